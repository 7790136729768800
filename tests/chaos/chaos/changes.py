"""Changes that faults of several sets make: of advantages, and of a call that never ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

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
