"""The learning rate of a step by plain formulas of the config, and whether the optimizer has it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from rlvr_core.api.services import RunConfig

TOLERANCE = 1e-5
"""Difference of a learning rate from its formula that is rounding, as a share of it."""


def rate_of(config: RunConfig, schedule: Any, step: int) -> float:
    """Return what the learning rate of a step must be.

    Args:
        config: The run's configuration.
        schedule: The schedule of the run, which is called where it is none of ours.
        step: The step, from 0.
    """
    train = config.train
    if step < train.warmup_steps:
        return train.lr * (step + 1) / train.warmup_steps
    after, span = step - train.warmup_steps, train.steps - 1 - train.warmup_steps
    progress = min(1.0, after / span) if span > 0 else float(after > 0)
    where = f"{type(schedule).__module__}:{type(schedule).__qualname__}"
    formula = _FORMULAS.get(where)
    if formula is None:
        return train.lr * float(schedule(progress))
    return train.lr * formula(progress, train.lr_schedule.with_)


def _falling(options: Mapping[str, Any], remaining: float) -> float:
    least = float(options.get("min_lr_ratio", 0.0))
    return least + (1 - least) * remaining


def _wsd(progress: float, options: Mapping[str, Any]) -> float:
    decay = float(options.get("decay", 0.2))
    return _falling(options, min(1.0, (1 - progress) / decay))


_FORMULAS: dict[str, Callable[[float, Mapping[str, Any]], float]] = {
    "rlvr_core.step.optim:Constant": lambda progress, options: 1.0,
    "rlvr_core.builtin.schedules.decay:Linear": lambda p, options: _falling(options, 1 - p),
    "rlvr_core.builtin.schedules.decay:Cosine": lambda p, options: _falling(
        options, (1 + math.cos(math.pi * p)) / 2
    ),
    "rlvr_core.builtin.schedules.decay:WSD": _wsd,
}


SPEED = ("foreach", "fused", "capturable", "differentiable", "params", "lr")
"""Options of torch's optimizers that change no formula, and those that are looked at elsewhere."""


def wrong_option(optimizer: Any) -> str:
    """Return an option of an optimizer that its builder's config does not have, and is not default.

    Args:
        optimizer: The trainer's; of one that a plugin built nothing is said.
    """
    inner, builder = optimizer.inner, optimizer.builder
    if not type(builder).__module__.startswith("rlvr_core."):
        return ""
    named = {*SPEED, *type(builder).Config.model_fields}
    for name, option in inspect.signature(type(inner)).parameters.items():
        known = name not in named and option.default is not option.empty
        for group in inner.param_groups if known else ():
            if name in group and group[name] != option.default:
                return f"{name} is {group[name]}, and the config knows of no such option"
    return ""


def wrong_rate(optimizer: Any, wanted: float, peak: float) -> float | None:
    """Return a learning rate of the optimizer that is not the one wanted; None if all are right.

    Args:
        optimizer: The trainer's.
        wanted: The learning rate of the step.
        peak: The largest of the run, for what rounding is where the schedule ends at 0.
    """
    # ours have one rate for all tensors; a plugin's may scale it by group
    ours = type(optimizer.builder).__module__.startswith("rlvr_core.")
    for group in optimizer.inner.param_groups:
        right = wanted * (1.0 if ours else float(group.get("lr_scale", 1.0)))
        found = float(group["lr"])
        if not abs(found - right) <= TOLERANCE * max(abs(right), TOLERANCE * peak):
            return found
    return None
