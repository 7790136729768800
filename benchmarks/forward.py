"""Training's forward and backward, and generation: shared prompts, skewed lengths.

    python benchmarks/forward.py [--quick] [--threads N]

Sides take turns within one process. ``whole rows`` runs every completion behind a prompt of its own
through the model's forward, padded, as TRL does; ``packed`` is the same forward over one sequence
with each prompt once and no padding, which is what a run uses. Training is timed in seconds of the
processor, which other jobs of a machine disturb least.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterable
from typing import Any

import torch
from step_task import SIZES
from transformers import Qwen3Config, Qwen3ForCausalLM

from rlvr_core.api import MicroBatch, SamplingParams
from rlvr_core.engines.decode import HuggingFaceDecoder, RowPlan, decode
from rlvr_core.engines.sampling import StopStrings
from rlvr_core.packing.attention_mask import attention_mask_of
from rlvr_core.packing.packed import heads_of, packed_rows
from rlvr_core.step.batch import Row, micro_batches
from rlvr_core.step.forward import whole_rows
from rlvr_core.step.logprobs import fused_logprobs

VOCABULARY = 419
GROUP = 8
LENGTHS = {"8:1": (256, 32), "1:1": (128, 128), "1:8": (32, 256)}
SIDES = ("whole rows", "packed")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the small model, one repeat")
    parser.add_argument("--threads", type=int, default=2, help="torch threads")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    repeats = 1 if options.quick else 5
    sizes = ["0.8M"] if options.quick else ["0.8M", "10M"]
    print(f"torch {torch.__version__}, {options.threads} threads, median of {repeats}\n")
    print("| shared prompt: training | prompt:completion | " + " | ".join(SIDES) + " | packed x |")
    print("|---|---|" + "---|" * 3)
    for size in sizes:
        for ratio, (prompt, tokens) in LENGTHS.items():
            rows = _rows([(prompt, [tokens] * GROUP)] * 4)
            _line(f"{size} | {ratio}", _train(size, rows, repeats))
    print("\n| shared prompt: generation | prompt:completion | once a row | once a group | x |")
    print("|---|---|---|---|---|")
    for size in sizes:
        for ratio, (prompt, tokens) in LENGTHS.items():
            alone, shared = _generate(size, prompt, tokens, repeats)
            print(f"| {size} | {ratio} | {alone:.3f} | {shared:.3f} | {alone / shared:.2f} |")
    print("\n| skewed lengths: training | completions | " + " | ".join(SIDES) + " | packed x |")
    print("|---|---|" + "---|" * 3)
    draw = random.Random(0)
    skewed = [[max(4, int(draw.lognormvariate(3.2, 0.9))) for _ in range(GROUP)] for _ in range(8)]
    for size in sizes:
        rows = _rows([(24, [min(n, 256) for n in lengths]) for lengths in skewed])
        _line(f"{size} | log-normal", _train(size, rows, repeats))


def _model(size: str) -> Any:
    hidden, layers, heads, kv_heads, head_dim, mlp = SIZES[size]
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=mlp,
        eos_token_id=None,
    )
    return Qwen3ForCausalLM(config).eval()


def _rows(groups: Iterable[tuple[int, list[int]]]) -> list[Row]:
    draw = random.Random(1)

    def ids(n: int) -> tuple[int, ...]:
        return tuple(draw.randrange(VOCABULARY) for _ in range(n))

    return [
        Row(prompt, ids(n), (True,) * n, (0.0,) * n, 1.0)
        for length, lengths in groups
        for prompt in [ids(length)]
        for n in lengths
    ]


def _train(size: str, rows: list[Row], repeats: int) -> list[float]:
    """Median seconds of the processor for both passes, by side; the sides take turns."""
    model = _model(size)
    as_given = [_only(rows[i : i + GROUP]) for i in range(0, len(rows), GROUP)]
    packed = micro_batches(rows, tokens_per_micro_batch=4096)

    def dense(batch: MicroBatch) -> Any:
        mask = attention_mask_of(batch, torch.float32, heads_of(model), compiled=False)
        return packed_rows(model.model, batch, mask)

    runs = [(as_given, lambda batch: whole_rows(model.model, batch)), (packed, dense)]
    took: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats + 1):
        for seconds, (batches, states) in zip(took, runs, strict=True):
            model.zero_grad()
            begun = time.process_time()
            for batch in batches:
                target_N = batch.completion_ids_BT[batch.mask_BT]
                head_VH = model.lm_head.weight
                logp_N, _ = fused_logprobs(states(batch), head_VH, target_N, temperature=1.0)
                logp_N.sum().backward()
            seconds.append(time.process_time() - begun)
    return [statistics.median(seconds[1:]) for seconds in took]


def _only(rows: list[Row]) -> MicroBatch:
    (batch,) = micro_batches(rows, tokens_per_micro_batch=10**9)
    return batch


def _line(name: str, seconds: list[float]) -> None:
    whole, packed = seconds
    print(f"| {name} | {whole:.3f} | {packed:.3f} | {whole / packed:.2f} |", flush=True)


class _NoStops(StopStrings):
    def __init__(self) -> None:
        pass

    def special_ids(self, strings: tuple[str, ...]) -> frozenset[int]:
        return frozenset()


def _generate(size: str, prompt: int, tokens: int, repeats: int) -> tuple[float, float]:
    """Median seconds of sampling four groups: every row's prompt computed, and every group's."""
    model = _model(size)
    prompts = [row.prompt_ids for row in _rows([(prompt, [1])] * 4)]
    plan = RowPlan(SamplingParams(max_tokens=tokens), 0, tokens)
    ways = [
        ([p for p in prompts for _ in range(GROUP)], [[plan]] * (4 * GROUP)),
        (prompts, [[plan] * GROUP] * 4),
    ]
    took: list[list[float]] = [[], []]
    for _ in range(repeats + 1):
        for seconds, (texts, plans) in zip(took, ways, strict=True):
            begun = time.perf_counter()
            with torch.no_grad():
                decode(HuggingFaceDecoder(model), texts, plans, eos_ids=(), stop_strings=_NoStops())
            seconds.append(time.perf_counter() - begun)
    alone, shared = (statistics.median(seconds[1:]) for seconds in took)
    return alone, shared


if __name__ == "__main__":
    main()
