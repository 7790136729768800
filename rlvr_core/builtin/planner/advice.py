"""Changes of a configuration, each with what the same formulas say of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rlvr_core.builtin.planner.memory import memory_of
from rlvr_core.builtin.planner.setup import Setup
from rlvr_core.builtin.planner.speed import speed_of

_RANK = 16


@dataclass(frozen=True, slots=True)
class Change:
    """A change and its effect.

    Attributes:
        setting: What to set.
        peak: Peak bytes of a training GPU with it.
        step: Seconds of a step with it.
        fits: Whether the run then fits.
    """

    setting: str
    peak: float
    step: float
    fits: bool


def changes(setup: Setup) -> list[Change]:
    """The changes that help: to fit where the run does not, to be faster where it does."""
    now = memory_of(setup)
    fits = now.left >= 0 and now.kv_room > 0
    step = speed_of(setup, now.kv_room).step
    found = []
    for setting, changed in _variants(setup):
        memory = memory_of(changed)
        time = speed_of(changed, memory.kv_room).step
        good = memory.left >= 0 and memory.kv_room > 0
        helps = memory.peak < 0.99 * now.peak if not fits else good and time < 0.99 * step
        if helps:
            found.append(Change(setting, memory.peak, time, good))
    if fits:
        return sorted(found, key=lambda one: one.step)
    return sorted(found, key=lambda one: (not one.fits, one.step if one.fits else one.peak))


def _variants(setup: Setup) -> Iterator[tuple[str, Setup]]:
    checkpointed = replace(setup, checkpointing=not setup.checkpointing)
    yield f"train.gradient_checkpointing={str(checkpointed.checkpointing).lower()}", checkpointed
    least = setup.prompt + setup.completion
    for budget in (setup.budget // 2, 2 * setup.budget):
        if budget >= least:
            yield f"train.tokens_per_micro_batch={budget}", replace(setup, budget=budget)
    if setup.checkpointing is False and setup.budget // 2 >= least:
        both = replace(checkpointed, budget=setup.budget // 2)
        yield f"train.gradient_checkpointing=true train.tokens_per_micro_batch={both.budget}", both
    if setup.trainers > 1 and not setup.lora:
        kind = "ddp" if setup.fsdp else "fsdp"
        yield f"train.parallel={kind}", replace(setup, fsdp=not setup.fsdp)
        if not (setup.fsdp or setup.checkpointing):
            both = replace(checkpointed, fsdp=True)
            yield "train.parallel=fsdp train.gradient_checkpointing=true", both
    if setup.reference and not setup.offload and not setup.fsdp:
        yield "train.reference.offload=true", replace(setup, offload=True)
    if setup.width == 4:
        yield "model.dtype=bfloat16", replace(setup, width=2)
    if not setup.lora:
        adapter = _adapter(setup)
        yield f"model.lora.rank={_RANK}", adapter
        if not setup.checkpointing:
            yield (
                f"model.lora.rank={_RANK} train.gradient_checkpointing=true",
                replace(adapter, checkpointing=True),
            )
    if setup.shared and setup.share > 0.35:
        yield "engine.with.gpu_memory_utilization=0.3", replace(setup, share=0.3)


def _adapter(setup: Setup) -> Setup:
    """The run with an adapter of rank 16 on every linear layer."""
    shape = setup.shape
    wide = 3 * shape.hidden + 3 * shape.inner  # inputs and outputs of the MLP's three
    wide += 4 * shape.hidden + 2 * shape.queries + 2 * shape.keys
    trained = shape.layers * _RANK * wide
    return replace(setup, lora=True, reference=False, offload=False, fsdp=False, trained=trained)
