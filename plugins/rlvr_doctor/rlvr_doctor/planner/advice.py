"""Changes of a configuration that help, each found by planning the run again with it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlvr_core.api import RlvrError
from rlvr_doctor.planner.plans import Plan, Planner
from rlvr_doctor.planner.setup import Setup

_COUNTS = (2, 4, 8, 16, 32, 64)
_ROUNDS = 6
_STEP = 0.05
"""Shares of a card that are advised are multiples of it."""
_ADAPTER = "model.lora.rank=16"


@dataclass(frozen=True, slots=True)
class Change:
    """A change and the plan with it.

    Attributes:
        settings: The settings, ``KEY=VALUE``.
        count: GPUs.
        plan: The plan.
    """

    settings: tuple[str, ...]
    count: int
    plan: Plan


def advise(planner: Planner, plan: Plan, count: int) -> list[Change]:
    """Return changes that make a run fit, or make a fitting run faster; best first."""
    if plan.fits:
        changes = [_try(planner, count, some) for some in _faster(plan)]
        least = 0.99 * plan.speed.step
        good = [c for c in changes if c and c.plan.fits and c.plan.speed.step < least]
        return sorted(good, key=lambda change: change.plan.speed.step)
    tried = [_fitted(planner, count, (), exact=True) or _fitted(planner, count, ())]
    if tried[0] is None and not plan.setup.adapter:
        more = (_fitted(planner, n, ("train.parallel=fsdp",)) for n in _COUNTS if n > count)
        tried.append(next((change for change in more if change), None))
    if not plan.setup.adapter:
        tried.append(_fitted(planner, count, (_ADAPTER,)))
    return [change for change in tried if change]


def _try(planner: Planner, count: int, settings: Sequence[str]) -> Change | None:
    """Plan with a change; None if the configuration does not allow it."""
    try:
        return Change(tuple(settings), count, planner.plan(count, settings))
    except RlvrError:
        return None


def _fitted(
    planner: Planner, count: int, first: tuple[str, ...], *, exact: bool = False
) -> Change | None:
    """Add to the settings ``first`` the change that helps most, until the run fits.

    Where ``exact``, only changes that change no update but by rounding.
    """
    best = _try(planner, count, first)
    for _ in range(_ROUNDS):
        if best is None or best.plan.fits:
            break
        now = best
        more = [_with(now.settings, setting) for setting in _smaller(now.plan, exact)]
        tried = [_try(planner, count, settings) for settings in more]
        helping = [change for change in tried if change and _lack(change) < _lack(now)]
        # of those that fit, the one that costs the least time
        best = min(
            helping, key=lambda change: (_lack(change), change.plan.speed.step), default=None
        )
    if best is None or not best.plan.fits:
        return None
    for setting in best.settings:
        if setting not in first:
            without = _try(planner, count, [kept for kept in best.settings if kept != setting])
            best = without if without and without.plan.fits else best
    return best


def _lack(change: Change) -> float:
    return change.plan.memory.lack


def _with(settings: tuple[str, ...], setting: str) -> tuple[str, ...]:
    """Add a setting, in place of another value of its key."""
    key = setting.partition("=")[0]
    return (*(old for old in settings if old.partition("=")[0] != key), setting)


def _smaller(plan: Plan, exact: bool) -> Iterator[str]:
    """Yield changes that may need less memory."""
    setup = plan.setup
    if setup.every != 1:
        yield "train.gradient_checkpointing=all"
    if not setup.every:
        yield "train.gradient_checkpointing=every-2"
    for budget in _budgets(setup):
        yield f"train.tokens_per_micro_batch={budget}"
    if setup.trainers > 1 and not setup.fsdp:
        yield "train.parallel=fsdp"
    if setup.reference and not setup.offload:
        yield "train.reference.offload=true"
    split = 2 * setup.split
    if setup.trainers % split == 0 and not setup.compiled and not [*_budgets(setup)]:
        yield f"train.context_parallel={split}"  # a single row may be too long
    if not (exact or setup.half):
        yield "model.dtype=bfloat16"
    if setup.moments == 8 and not (exact or setup.adapter):
        yield "train.optimizer=adamw-8bit"
    yield from _share(plan)


def _faster(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Yield changes that may need less time."""
    setup = plan.setup
    if setup.every:
        for which in ("none", "every-3", "every-2"):
            yield (f"train.gradient_checkpointing={which}",)
        for budget in _budgets(setup):
            yield "train.gradient_checkpointing=none", f"train.tokens_per_micro_batch={budget}"
    if setup.several_micros:
        yield (f"train.tokens_per_micro_batch={2 * setup.budget}",)
    if setup.fsdp:
        yield ("train.parallel=ddp",)
    if setup.reference and setup.offload:
        yield ("train.reference.offload=false",)
    if not setup.half:
        yield ("model.dtype=bfloat16",)
    for share in _share(plan):
        yield (share,)


def _budgets(setup: Setup) -> Iterator[int]:
    """Yield halves of the token budget that still hold the longest completion."""
    budget = setup.budget // 2
    while budget >= setup.prompt + setup.completion:
        yield budget
        budget //= 2


def _share(plan: Plan) -> Iterator[str]:
    """Yield the largest share of the card that an engine can use beside the trainer."""
    engine, memory = plan.setup.engine, plan.memory
    if not (engine.shared and engine.own_weights):
        return
    beside = memory.generating if engine.sleeps else memory.training
    room = memory.card - (beside - memory.engine)
    share = _STEP * math.floor(min(0.9, room / memory.card) / _STEP + 1e-9)
    if share > 0 and abs(share - engine.memory / memory.card) > 1e-6:
        yield f"engine.with.gpu_memory_utilization={share:.2f}"
