"""C: time and memory of the training step of models of real size, and where the time goes."""

from __future__ import annotations

import contextlib
import gc
import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from rlvr_core.api import Group
from rlvr_core.compiling.layers import compiled_model
from rlvr_core.step import step as stepping
from rlvr_core.step.step import PolicyTrainer
from rlvr_core.step.timing import PhaseTimer
from tests.together.gpu_kit.record import Record
from tests.together.gpu_standin.steps import CASE, groups, models, trainer_of

GIB = 2**30
TIMED = 3
"""Steps that are timed."""
PEAK = 989e12
"""FLOP/s of dense products in 16 bits that an H100 and an H200 are sold with."""

REAL: dict[str, Any] = {"size": "1.7B", "dtype": "bfloat16", "checkpointing": True}
REAL |= {"groups": 8, "n": 8, "prompt": 150, "tokens": 512, "budget": 16_384}
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

COMPILED = (
    "1.7B, 512 tokens",
    "1.7B, 512 tokens, every second layer",
    "1.7B, 512 tokens, nothing recomputed",
    "1.7B, 512 tokens, LoRA of rank 16",
    "1.7B, 4096 tokens",
)
"""Cases that are made with compiled layers, too."""


def case_of(name: str) -> dict[str, Any]:
    """Everything of a case."""
    return {**CASE, **REAL, **CASES[name]}


def fast(record: Record, names: Iterable[str], *, compiled: bool = False) -> None:
    """Measure cases by name."""
    for name in names:
        record.attempt("C", name, partial(measure, record, name, compiled=compiled))
        free()


def free() -> None:
    """Give back what the case before held."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def measure(record: Record, name: str, *, compiled: bool = False) -> None:
    """Make steps of a case: the first to warm up, then timed whole, then one timed by phase."""
    trainer, given = made_of(name, compiled=compiled)
    steps = itertools.count()
    begun = time.perf_counter()
    trainer.update(given, next(steps), 0)
    if compiled:
        name = f"{name}, compiled"
        record.add("C", f"{name}: first step", time.perf_counter() - begun, "s")
    trainer.update(given, next(steps), 1)
    torch.cuda.synchronize()
    at_rest = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    seconds = median_seconds(lambda: trainer.update(given, next(steps), 2))
    peak = torch.cuda.max_memory_allocated()
    figures(record, name, trainer, given, seconds)
    record.add("C", f"{name}: peak", peak / GIB, "GiB")
    record.add("C", f"{name}: between steps", at_rest / GIB, "GiB")
    with phases() as found:
        trainer.update(given, next(steps), 2)
    for phase, spent in found.items():
        record.add("C", f"{name}: {phase}", spent, "s")


def made_of(name: str, *, compiled: bool = False) -> tuple[PolicyTrainer, list[Group]]:
    """The trainer of a case on the GPU, and what it is to train on."""
    case = case_of(name)
    made = models(case, "cuda")
    trainer = trainer_of(case, made)
    if compiled:
        trainer.compiled = compiled_model(trainer.model)
    return trainer, groups(case, made["policy"].config.vocab_size)


def median_seconds(update: Callable[[], object]) -> float:
    """Median seconds of an update of several; the device is waited for before and behind it."""
    taken = []
    for _ in range(TIMED):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        update()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def figures(
    record: Record, name: str, trainer: PolicyTrainer, given: Sequence[Group], seconds: float
) -> None:
    """Seconds of a step, the median of ``TIMED``, and what follows from them."""
    trained, fed, params = sizes(trainer, given)
    note = f"{trained} tokens trained on, {fed} fed"
    record.add("C", f"{name}: step", seconds, "s", n=TIMED, note=note)
    record.add("C", f"{name}: speed", trained / seconds, "tokens/s", n=TIMED)
    record.add("C", f"{name}: MFU", 100 * 6 * params * fed / seconds / PEAK, "%", n=TIMED)


def sizes(trainer: PolicyTrainer, given: Sequence[Group]) -> tuple[int, int, int]:
    """Tokens that are trained on, tokens that are fed, and parameters of the model."""
    rows = [one.completion for group in given for one in group.members]
    trained = sum(len(one.token_ids) for one in rows)
    fed = trained + sum(len(group.members[0].completion.prompt_ids) for group in given)
    return trained, fed, sum(p.numel() for p in trainer.model.parameters())


@contextlib.contextmanager
def phases() -> Iterator[Mapping[str, float]]:
    """Seconds of the device by phase of the steps within."""
    found: defaultdict[str, float] = defaultdict(float)
    plain = stepping.PhaseTimer

    class Summed(PhaseTimer):
        def seconds(self) -> dict[str, float]:
            spent = super().seconds()
            for phase, one in spent.items():
                found[phase] += one
            return spent

    stepping.PhaseTimer = Summed
    try:
        yield found
    finally:
        stepping.PhaseTimer = plain


def profiled(record: Record, *, compiled: bool = False) -> None:
    """Where the time of a step goes, kernel by kernel; the table is a file beside the others."""
    trainer, given = made_of("1.7B, 512 tokens", compiled=compiled)
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
    (record.folder / f"{name.replace(', ', '-')}.txt").write_text(text)


def peer(record: Record, name: str) -> None:
    """The same rows by transformers alone: padded, its own forward, whole logits, AdamW."""
    trainer, given = made_of(name)
    model, budget = trainer.model, trainer.train.tokens_per_micro_batch
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
            taken = rows[at : at + max(1, budget // width)]
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
    seconds = median_seconds(update)
    name = f"{name}: transformers' plain loop"
    figures(record, name, trainer, given, seconds)
    record.add("C", f"{name}: peak", torch.cuda.max_memory_allocated() / GIB, "GiB")
