"""C: time and memory of the training step of models of real size, and where the time goes."""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from record import Record
from steps import CASE, groups, models, trainer_of

from rlvr_core.api import Group
from rlvr_core.builtin.compiling.layers import compiled_body
from rlvr_core.step import step as stepping
from rlvr_core.step.step import PolicyTrainer

GIB = 2**30
PEAK = 989e12
"""FLOP/s of dense products in 16 bits that an H100 and an H200 are sold with."""

REAL: dict[str, Any] = {"size": "1.7B", "dtype": "bfloat16", "checkpointing": True}
REAL |= {"groups": 8, "n": 8, "prompt": 150, "tokens": 512, "budget": 16_384, "steps": 3}
CASES: dict[str, dict[str, Any]] = {
    "1.7B, 512 tokens": {},
    "1.7B, 512 tokens, reference": {"beta": 1e-3},
    "1.7B, 512 tokens, every second layer": {"checkpointing": "every-2"},
    "1.7B, 512 tokens, nothing recomputed": {"checkpointing": False, "budget": 8192},
    "1.7B, 512 tokens, LoRA of rank 16": {"lora": 16},
    "1.7B, 512 tokens, grids": {"flash": False},
    "1.7B, 512 tokens, padded rows": {"forward_paths": False},
    "1.7B, 4096 tokens": {"groups": 2, "tokens": 4096},
}
"""Completions of skewed lengths, the longest as long as the name says."""


COMPILED = [name for name in CASES if name.endswith((" tokens", "layer", "recomputed", "16"))]


def case_of(name: str) -> dict[str, Any]:
    """Everything of a case."""
    return {**CASE, **REAL, **CASES[name]}


def fast(record: Record, names: Sequence[str]) -> None:
    """Measure cases by name."""
    for name in names:
        record.attempt("C", name, lambda name=name: measure(record, name))  # type: ignore[misc]
        free()


def free() -> None:
    """Give back what the case before held."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def measure(record: Record, name: str, *, compiled: bool = False) -> None:
    """Make steps of a case: the first to warm up, then timed whole, then one timed by phase."""
    case = case_of(name)
    made = models(case, "cuda")
    trainer, given = trainer_of(case, made), groups(case, made["policy"].config.vocab_size)
    if compiled:
        name = f"{name}, compiled"
        trainer.compiled = compiled_body(trainer.model)
        begun = time.perf_counter()
    trainer.update(given, 0, 0)
    if compiled:
        record.add("C", f"{name}: first step", time.perf_counter() - begun, "s")
    trainer.update(given, 1, 1)
    torch.cuda.synchronize()
    at_rest = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    taken = []
    for step in range(case["steps"]):
        begun = time.perf_counter()
        trainer.update(given, 2 + step, 2 + step)
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - begun)
    seconds, peak = statistics.median(taken), torch.cuda.max_memory_allocated()
    figures(record, name, trainer, given, seconds, n=len(taken))
    record.add("C", f"{name}: peak", peak / GIB, "GiB")
    record.add("C", f"{name}: between steps", at_rest / GIB, "GiB")
    with phases() as found:
        trainer.update(given, 9, 9)
    for phase, spent in found.items():
        record.add("C", f"{name}: {phase}", spent, "s")


def figures(
    record: Record,
    name: str,
    trainer: PolicyTrainer,
    given: Sequence[Group],
    seconds: float,
    n: int,
) -> None:
    """Seconds of a step, and what follows from them."""
    trained, fed, params = sizes(trainer, given)
    note = f"{trained} tokens trained on, {fed} fed"
    record.add("C", f"{name}: step", seconds, "s", n=n, note=note)
    record.add("C", f"{name}: speed", trained / seconds, "tokens/s", n=n)
    record.add("C", f"{name}: MFU", 100 * 6 * params * fed / seconds / PEAK, "%", n=n)


def sizes(trainer: PolicyTrainer, given: Sequence[Group]) -> tuple[int, int, int]:
    """Tokens that are trained on, tokens that are fed, and parameters of the model."""
    rows = [one.completion for group in given for one in group.members]
    trained = sum(len(one.token_ids) for one in rows)
    fed = trained + sum(len(group.members[0].completion.prompt_ids) for group in given)
    return trained, fed, sum(p.numel() for p in trainer.model.parameters())


@contextlib.contextmanager
def phases() -> Iterator[Mapping[str, float]]:
    """Seconds by phase of the steps within; the device is waited for at each one's end."""
    found: defaultdict[str, float] = defaultdict(float)
    plain = stepping._timed

    @contextlib.contextmanager
    def timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        yield
        torch.cuda.synchronize()
        found[phase] += time.perf_counter() - begun

    stepping._timed = timed
    try:
        yield found
    finally:
        stepping._timed = plain


def profiled(record: Record, *, compiled: bool = False) -> None:
    """Where the time of a step goes, kernel by kernel; the table is a file beside the others."""
    case = case_of("1.7B, 512 tokens")
    made = models(case, "cuda")
    trainer, given = trainer_of(case, made), groups(case, made["policy"].config.vocab_size)
    if compiled:
        trainer.compiled = compiled_body(trainer.model)
    for step in range(2):
        trainer.update(given, step, step)
    torch.cuda.synchronize()
    from torch.profiler import ProfilerActivity, profile

    begun = time.perf_counter()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        trainer.update(given, 2, 2)
        torch.cuda.synchronize()
    wall = time.perf_counter() - begun
    table = seen.key_averages()
    kernels = [one for one in table if one.self_device_time_total > 0 and not one.cpu_time_total]
    busy = sum(one.self_device_time_total for one in kernels) / 1e6
    count = sum(one.count for one in kernels)
    name = "profile, compiled" if compiled else "profile"
    record.add("C", f"{name}: kernels", count, "", note=f"{wall:.2f} s under the profiler")
    record.add("C", f"{name}: seconds of kernels", busy, "s")
    text = table.table(sort_by="self_device_time_total", row_limit=60, max_name_column_width=110)
    (record.folder / f"{name}.txt").write_text(text)


def peer(record: Record, name: str) -> None:
    """The same rows by transformers alone: padded, its own forward, whole logits, AdamW."""
    case = case_of(name)
    made = models(case, "cuda")
    trainer, given = trainer_of(case, made), groups(case, made["policy"].config.vocab_size)
    model = trainer.model
    rows = sorted(
        (one.completion for group in given for one in group.members),
        key=lambda one: -len(one.prompt_ids) - len(one.token_ids),
    )
    total = sum(len(one.token_ids) for one in rows)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        at = 0
        while at < len(rows):
            width = len(rows[at].prompt_ids) + len(rows[at].token_ids)
            taken = rows[at : at + max(1, case["budget"] // width)]
            at += len(taken)
            ids = torch.zeros(len(taken), width, dtype=torch.long)
            seen, mask = torch.zeros_like(ids), torch.zeros(len(taken), width, dtype=torch.bool)
            for place, one in enumerate(taken):
                whole = torch.tensor([*one.prompt_ids, *one.token_ids])
                ids[place, : len(whole)], seen[place, : len(whole)] = whole, 1
                mask[place, len(one.prompt_ids) : len(whole)] = True
            yield ids.cuda(), seen.cuda(), mask.cuda()

    def update() -> None:
        for ids, seen, mask in batches():
            with torch.autocast("cuda", torch.bfloat16):
                logits = model(input_ids=ids, attention_mask=seen, use_cache=False).logits
            logps = torch.log_softmax(logits[:, :-1].float(), dim=-1)
            logp = logps.gather(-1, ids[:, 1:, None])[..., 0]
            (-(logp * mask[:, 1:]).sum() / total).backward()
            del logits, logps, logp
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    update()
    torch.cuda.reset_peak_memory_stats()
    taken = []
    for _ in range(3):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        update()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - begun)
    name = f"{name}: transformers' plain loop"
    figures(record, name, trainer, given, statistics.median(taken), n=3)
    record.add("C", f"{name}: peak", torch.cuda.max_memory_allocated() / GIB, "GiB")
