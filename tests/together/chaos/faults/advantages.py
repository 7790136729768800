"""Advantages are not what the rewards say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.together.chaos.changes import BATCH, STEP, advantages, groups_of
from tests.together.chaos.registry import BOTH, Patch, fault


@fault("advantages")
def advantages_of_next_group(patch: Patch) -> None:
    """Each group has the advantages of the next."""
    advantages(patch, lambda row_N, step: np.roll(row_N, int((step.group_N == 0).sum())))


@fault("advantages", "canaries")
def advantages_not_centred(patch: Patch) -> None:
    """The reward itself is the advantage."""
    advantages(patch, lambda row_N, step: np.nan_to_num(step.reward_N))


@fault("advantages", "loss", backends=BOTH)
def advantages_negated(patch: Patch) -> None:
    """The sign of every advantage is wrong."""
    advantages(patch, lambda row_N, step: -row_N)


@fault("advantages")
def baseline_of_the_batch(patch: Patch) -> None:
    """The baseline is the mean of the batch instead of the group's."""

    def change(row_N: Any, step: Any) -> Any:
        reward_N = np.nan_to_num(step.reward_N)
        return (reward_N - reward_N.mean()) / max(reward_N.std(), 1e-6)

    advantages(patch, change)


@fault("advantages")
def deviation_plus_one(patch: Patch) -> None:
    """What keeps the deviation from 0 is 1, not 1e-6."""

    def change(row_N: Any, step: Any) -> Any:
        for places, reward in groups_of(step):
            row_N[places] *= reward.std() / (reward.std() + 1)
        return row_N

    advantages(patch, change)


@fault("advantages")
def two_best_and_two_worst_count(patch: Patch) -> None:
    """Down-sampling is left on: all but two of the best and two of the worst have no advantage."""

    def change(row_N: Any, step: Any) -> Any:
        for places, reward in groups_of(step):
            order = np.argsort(-reward, kind="stable")
            row_N[places[order[2:-2]]] = 0.0
        return row_N

    advantages(patch, change)


@fault("advantages", "loss")
def batch_advantages_of_other_rows(patch: Patch) -> None:
    """Packing puts the advantages of a micro-batch in another order than its rows."""
    patch.after(
        f"{BATCH}:_collate",
        lambda batch, *_: replace(batch, advantage_B=batch.advantage_B.flip(0)),
    )


@fault("advantages")
def advantages_scaled_for_half_of_the_problems(patch: Patch) -> None:
    """Half of the problems have advantages three times as large as the config says."""

    def make(original: Any) -> Any:
        def rows_of(groups: Any, objective: Any, **options: Any) -> Any:
            scale = {g.problem.id: 3.0 for g in groups if int(g.problem.id[-1]) % 2}
            return original(groups, objective, **options | {"scale": scale})

        return rows_of

    patch.wrap(f"{STEP}:rows_of", make)
