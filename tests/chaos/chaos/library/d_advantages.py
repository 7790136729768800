"""Advantages are not what the rewards say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from chaos.registry import TRANSFORMERS, Patch, fault


def advantages(patch: Patch, change: Callable[[Any, Any], Any]) -> None:
    """Change the checked advantages: ``change(row_N, step)``."""

    def make(original: Any) -> Any:
        def of(self: Any, step: Any) -> Any:
            found = original(self, step)
            return replace(found, row_N=np.asarray(change(found.row_N, step), dtype=np.float64))

        return of

    patch.wrap("rlvr_core.algorithm.estimate:Estimator.of", make)


def _within(row_N: Any, step: Any, change: Callable[[Any], Any]) -> Any:
    out = np.array(row_N)
    for group in np.unique(step.group_N):
        places = np.flatnonzero(step.group_N == group)
        out[places] = change(row_N[places])
    return out


@fault("advantages", backends=TRANSFORMERS)
def advantages_shuffled(patch: Patch) -> None:
    """Advantages are shuffled over the rows of the step."""
    advantages(patch, lambda a, s: np.random.default_rng(0).permutation(a))


@fault("advantages")
def advantages_of_next_group(patch: Patch) -> None:
    """Each group has the advantages of the next."""
    advantages(patch, lambda a, s: np.roll(a, int((s.group_N == 0).sum())))


@fault("advantages")
def advantages_rolled_in_group(patch: Patch) -> None:
    """Within a group, each completion has the advantage of its neighbour."""
    advantages(patch, lambda a, s: _within(a, s, lambda x: np.roll(x, 1)))


@fault("advantages", "centr", "baseline")
def advantages_not_centred(patch: Patch) -> None:
    """The reward itself is the advantage."""
    advantages(patch, lambda a, s: np.nan_to_num(s.reward_N))


@fault("advantages", "sign", backends=TRANSFORMERS)
def advantages_negated(patch: Patch) -> None:
    """The sign of every advantage is wrong."""
    advantages(patch, lambda a, s: -a)


@fault("advantages", "scale", "size")
def advantages_tenfold(patch: Patch) -> None:
    """Advantages are ten times too large."""
    advantages(patch, lambda a, s: 10 * a)


@fault("advantages", "scale", "size")
def advantages_hundredth(patch: Patch) -> None:
    """Advantages are a hundredth of what they should be."""
    advantages(patch, lambda a, s: a / 100)


@fault("advantages", "sign")
def advantages_absolute(patch: Patch) -> None:
    """Advantages have lost their sign."""
    advantages(patch, lambda a, s: np.abs(a))


@fault("advantages")
def advantages_all_one(patch: Patch) -> None:
    """Every advantage is 1."""
    advantages(patch, lambda a, s: np.ones_like(a))


@fault("advantages")
def advantages_only_positive(patch: Patch) -> None:
    """Negative advantages are set to 0."""
    advantages(patch, lambda a, s: np.maximum(a, 0))


@fault("advantages", "baseline", "group")
def advantages_over_the_batch(patch: Patch) -> None:
    """The baseline is the mean of the batch instead of the group's."""

    def change(a: Any, s: Any) -> Any:
        r = np.nan_to_num(s.reward_N)
        return (r - r.mean()) / max(r.std(), 1e-6)

    advantages(patch, change)


@fault("advantages", "scale", "size")
def advantages_divided_twice(patch: Patch) -> None:
    """Advantages are divided by the group's deviation twice."""

    def change(a: Any, s: Any) -> Any:
        return _within(
            np.arange(len(a)),
            s,
            lambda places: (
                a[places.astype(int)]
                / max(np.nan_to_num(s.reward_N)[places.astype(int)].std(), 1e-6)
            ),
        )

    advantages(patch, change)


@fault("advantages")
def advantages_noisy(patch: Patch) -> None:
    """Noise of deviation 1 is added to every advantage."""
    rng = np.random.default_rng(0)
    advantages(patch, lambda a, s: a + rng.normal(size=len(a)))


@fault("advantages")
def advantages_one_in_eight_flipped(patch: Patch) -> None:
    """The first completion of each group has the wrong sign."""
    advantages(patch, lambda a, s: _within(a, s, lambda x: x * np.r_[-1, np.ones(len(x) - 1)]))


@fault("advantages", "batch", "row")
def batch_advantages_of_other_rows(patch: Patch) -> None:
    """Packing puts the advantages of a micro-batch in another order than its rows."""
    patch.after(
        "rlvr_core.step.batch:_collate",
        lambda b, *_: replace(b, advantage_B=b.advantage_B.flip(0)),
    )


@fault("advantages", "batch", "row")
def batch_advantages_clipped(patch: Patch) -> None:
    """Packing cuts advantages to a tenth either way."""
    patch.after(
        "rlvr_core.step.batch:_collate",
        lambda b, *_: replace(b, advantage_B=b.advantage_B.clamp(-0.1, 0.1)),
    )


@fault("advantages", "scale", "size")
def advantages_scaled_by_source(patch: Patch) -> None:
    """Half of the problems have advantages three times as large as the config says."""

    def make(original: Any) -> Any:
        def rows_of(groups: Any, objective: Any, **options: Any) -> Any:
            more = {g.problem.id: 3.0 for g in groups if int(g.problem.id[-1]) % 2}
            return original(groups, objective, **options | {"scale": more})

        return rows_of

    patch.wrap("rlvr_core.step.step:rows_of", make)
