"""Changes that faults of several sets make: of advantages, masks, updates, calls without an end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from chaos.registry import Patch

FOREVER = 10.0**6
"""Seconds."""


def _sleep() -> None:
    time.sleep(FOREVER)


def estimated(patch: Patch, change: Callable[[Any, Any], Any]) -> None:
    """Change the advantages of a step: ``change(advantages (N,), judged step)``."""

    def after(found: Any, estimator: Any, step: Any) -> Any:
        return replace(found, row_N=np.asarray(change(found.row_N.copy(), step), dtype=np.float64))

    patch.after("rlvr_core.algorithm.estimate:Estimator.of", after)


def by_group(step: Any) -> Iterator[tuple[Any, Any]]:
    """Members' places, and rewards, of each group."""
    for group in np.unique(step.group_N):
        places = np.flatnonzero(step.group_N == group)
        yield places, step.reward_N[places]


def at_call(patch: Patch, place: str, call: int, hang: Callable[[], None] = _sleep) -> None:
    """Let the n-th call of a function never come back."""
    calls = [0]

    def make(original: Any) -> Any:
        def hanging(*args: Any, **more: Any) -> Any:
            calls[0] += 1
            if calls[0] == call:
                hang()
            return original(*args, **more)

        return hanging

    patch.wrap(place, make)


def letter(character: str) -> int:
    """The token of an ASCII character."""
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet()).index(character)


def masks_of_rows(patch: Patch, change: Callable[[Any, Any], Any]) -> None:
    """Change the loss mask of each row: ``change(row, problem of its group)``."""

    def after(made: Any, groups: Any, *_: Any) -> Any:
        by_group = [
            [
                replace(row, loss_mask=tuple(map(bool, change(row, groups[row.group].problem))))
                for row in rows
            ]
            for rows in made.by_group
        ]
        return replace(made, by_group=by_group)

    patch.after("rlvr_core.step.step:rows_of", after)


def after_update(patch: Patch, change: Callable[[str, Any, Any, int], None]) -> None:
    """Change each tensor after each update: ``change(name, it, it before, updates before)``."""
    made = [0]

    def make(original: Any) -> Any:
        @torch.no_grad()
        def step(optimizer: Any, number: int) -> Any:
            before = [one.detach().clone() for one in optimizer.parameters]
            said = original(optimizer, number)
            for name, one, old in zip(optimizer.names, optimizer.parameters, before, strict=True):
                change(name, one, old, made[0])
            made[0] += 1
            return said

        return step

    patch.wrap("rlvr_core.step.optim:Optimizer.step", make)
