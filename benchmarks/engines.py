"""Engines side by side: start, generation, weight sync, on random models of several sizes.

    OMP_NUM_THREADS=1 python benchmarks/engines.py [--sizes 0.8M 10M] [--rounds 3]

Rounds are interleaved and the best of each is printed, in tokens per CPU second of this process:
on a shared machine that is the figure that repeats. Half the prompts' length is shared text.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from rlvr_core.api import Engine, EngineContext, GenerationRequest, SamplingParams
from rlvr_core.engines.sync import ModuleSource
from rlvr_core.engines.transformers import TransformersEngine
from rlvr_core.engines.vllm.engine import VllmEngine

VOCABULARY = 4096
SIZES = {  # hidden size, layers, rows of the embedding
    "0.8M": (128, 4, 420),
    "2.5M": (192, 6, 420),
    "5M": (256, 6, 1024),
    "10M": (320, 8, VOCABULARY),
    "100M": (768, 14, VOCABULARY),
}


@dataclass(frozen=True)
class Load:
    """What is generated: prompts x n completions of exactly ``new`` tokens."""

    prompts: int
    n: int
    prompt: int
    new: int

    def __str__(self) -> str:
        return f"{self.prompts}x{self.n}, {self.prompt}+{self.new} tokens"


LOADS = (Load(16, 8, 16, 64), Load(16, 8, 256, 32))


def make(size: str, folder: Path) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """A random model that never ends a completion by itself, saved in ``folder``."""
    hidden, layers, rows = SIZES[size]
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=rows,
            hidden_size=hidden,
            intermediate_size=3 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=hidden // 32,
            num_key_value_heads=max(hidden // 64, 1),
            head_dim=32,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).eval()
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(rows)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return model, fast


def generate(engine: Engine, load: Load, rows: int, seed: int) -> int:
    """Run one load; the tokens made."""
    draw = torch.Generator().manual_seed(seed)
    params = SamplingParams(max_tokens=load.new)
    shared = torch.randint(2, rows, (load.prompt // 2,), generator=draw).tolist()
    futures = []
    for number in range(load.prompts):
        own = torch.randint(2, rows, (load.prompt - len(shared),), generator=draw).tolist()
        seeds = tuple(seed * 10_000 + number * load.n + i for i in range(load.n))
        futures.append(
            engine.submit(GenerationRequest(str(number), (*shared, *own), params, seeds))
        )
    engine.drain(600)
    return sum(len(answer.token_ids) for future in futures for answer in future.result())


def main() -> None:
    """Print one table per size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=["0.8M", "5M", "10M"], choices=list(SIZES))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory() as folder:
            measure(size, Path(folder), arguments.rounds)


def measure(size: str, folder: Path, rounds: int) -> None:
    """Measure both engines on one model, in turns."""
    model, tokenizer = make(size, folder)
    context = EngineContext(str(folder), model, tokenizer, torch.float32, 512, 0)
    engines: dict[str, Engine] = {
        "transformers": TransformersEngine(TransformersEngine.Config()),
        "vllm": VllmEngine(VllmEngine.Config()),
    }
    print(f"\n{size}: {model.num_parameters():,} parameters, {torch.get_num_threads()} thread(s)")
    for name, engine in engines.items():
        wall, cpu = time.perf_counter(), time.process_time()
        engine.start(context)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(f"  start {name}: {wall:.1f} s wall, {cpu:.1f} s CPU")
    for load in LOADS:
        best: dict[str, float] = {}
        for turn in range(rounds + 1):  # the first warms up
            for name, engine in engines.items():
                seed = turn + 1
                tokens = load.prompts * load.n * load.new
                cpu = time.process_time()
                made = generate(engine, load, SIZES[size][2], seed)
                cpu = time.process_time() - cpu
                assert made == tokens, (name, made)
                if turn:
                    best[name] = max(best.get(name, 0.0), tokens / cpu)
        ratio = best["vllm"] / best["transformers"]
        figures = ", ".join(f"{name} {speed:,.0f}" for name, speed in best.items())
        print(f"  {load}: {figures} tokens/CPU-s, vllm {ratio:.2f}x")
    source = ModuleSource(model)
    syncs = []
    for version in range(1, 6):
        wall = time.perf_counter()
        engines["vllm"].load_weights(version, source)
        syncs.append(time.perf_counter() - wall)
    print(f"  sync vllm, probe included: {1000 * min(syncs):.0f} ms, best of {len(syncs)}")
    for engine in engines.values():
        engine.close()


if __name__ == "__main__":
    main()
