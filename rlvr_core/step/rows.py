"""From judged groups to rows with advantages: what a step trains on, as every process sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr_core.algorithm.advantages import combined_advantages
from rlvr_core.step.batch import Row

if TYPE_CHECKING:
    from rlvr_core.api.types import Group
    from rlvr_core.step.objective import Objective


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a step's completions.

    Attributes:
        by_group: Per group, one row per completion that has a reward.
        advantages: Per group, one per member; None where it was left out, or none is made.
        lone_groups: Groups with fewer than two rewards.
    """

    by_group: list[list[Row]]
    advantages: list[list[float | None]]
    lone_groups: int


def rows_of(
    groups: Sequence[Group],
    objective: Objective,
    *,
    weights: Sequence[float],
    scale: Mapping[str, float],
    version: int,
    mask_truncated: bool,
) -> Rows:
    """Rows of all completions that have a reward.

    Args:
        groups: What to train on.
        objective: How rewards become advantages, and what teachers are told.
        weights: The weight of each reward.
        scale: Factor on advantages by problem id; 1 where there is none.
        version: The policy's; a group of an older one is off-policy.
        mask_truncated: Whether completions that hit the cap are left out of the loss.
    """
    members = [(index, m) for index, group in enumerate(groups) for m in group.members]
    result = combined_advantages(
        [member.reward for _, member in members],
        [[verdict.score for verdict in member.verdicts.values()] for _, member in members],
        [index for index, _ in members],
        weights=weights,
        mode=objective.advantage or "center",
        combine=objective.combine,
    )
    told = [objective.teacher_prompt(group.problem) for group in groups]
    by_group: list[list[Row]] = [[] for _ in groups]
    per_group: list[list[float | None]] = [[] for _ in groups]
    for (index, member), centred in zip(members, result.advantage_N.tolist(), strict=True):
        completion = member.completion
        masked = mask_truncated and completion.finish_reason == "length"
        advantage = centred * scale.get(groups[index].problem.id, 1.0)
        unknown = masked or member.reward is None or objective.advantage is None
        per_group[index].append(None if unknown else advantage)
        if member.reward is None:
            continue
        mask = (False,) * len(completion.token_ids) if masked else completion.loss_mask
        by_group[index].append(
            Row(
                completion.prompt_ids,
                completion.token_ids,
                mask,
                completion.logprobs,
                advantage,
                on_policy=groups[index].version == version,
                teacher_prompt_ids=told[index],
            )
        )
    return Rows(by_group, per_group, result.lone_groups)
