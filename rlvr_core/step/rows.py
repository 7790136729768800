"""Turns judged groups into rows with advantages, alike in every process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from rlvr_core.algorithm.estimate import Advantages, judged_step
from rlvr_core.step.batch import Row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rlvr_core.api import Group
    from rlvr_core.step.objective import Objective


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a step's completions.

    Attributes:
        by_group: Per group, one row per completion that has a reward, and its branches' rows.
        advantages: Per group, one per member; None where it was left out, or none is made.
        metrics: Numbers of the estimator, and groups with fewer than two rewards.
    """

    by_group: list[list[Row]]
    advantages: list[list[float | None]]
    metrics: dict[str, float]


def rows_of(
    groups: Sequence[Group],
    objective: Objective,
    *,
    weights: Sequence[float],
    scale: Mapping[str, float],
    mask_truncated: bool,
    kl_N: Sequence[NDArray[np.float64]] | None = None,
) -> Rows:
    """Rows of all completions that have a reward.

    Args:
        groups: What to train on.
        objective: Has the advantage estimator, and the prompts of teachers.
        weights: The weight of each reward.
        scale: Factor on advantages by problem id; 1 where there is none.
        mask_truncated: Whether completions that hit the cap are left out of the loss.
        kl_N: Per completion, the KL of each token to the reference, if the estimator needs it.

    Raises:
        PluginError: If the estimator gives anything but finite numbers of the right shape.
        RunError: If a reward is infinite.
    """
    step = judged_step(groups, weights, kl_N)
    estimated = None if objective.estimator is None else objective.estimator.of(step)
    rewarded = Counter(step.group_N[step.scorable_N].tolist())
    metrics: dict[str, float] = dict(estimated.metrics) if estimated else {}
    metrics["groups/lone"] = sum(rewarded[place] < 2 for place in range(len(groups)))
    teacher_prompts = [objective.teacher_prompt(group.problem) for group in groups]
    by_group: list[list[Row]] = [[] for _ in groups]
    per_group: list[list[float | None]] = [[] for _ in groups]
    members = [member for group in groups for member in group.members]
    for place, (index, member) in enumerate(zip(step.group_N.tolist(), members, strict=True)):
        completion = member.completion
        masked = mask_truncated and completion.finish_reason == "length"
        advantage, by_token = _scaled(estimated, place, scale.get(groups[index].problem.id, 1.0))
        unknown = masked or member.reward is None or estimated is None
        per_group[index].append(None if unknown else advantage)
        if member.reward is None:
            continue
        teacher, values = teacher_prompts[index], iter(by_token or ())
        sampled = completion.n_sampled if completion.branches else 0
        for row in completion.rows:
            of_prompt = row.prompt_ids == completion.prompt_ids
            by_group[index].append(
                Row(
                    row.prompt_ids,
                    row.token_ids,
                    (False,) * len(row.token_ids) if masked else row.loss_mask,
                    row.logprobs,
                    advantage,
                    group=index,
                    token_advantages=by_token and tuple(islice(values, len(row.token_ids))),
                    # a branch that begins otherwise is shown to its teacher as it is
                    teacher_prompt_ids=teacher if of_prompt else teacher and row.prompt_ids,
                    share=sum(row.loss_mask) / max(1, sampled) if completion.branches else 1.0,
                )
            )
    return Rows(by_group, per_group, metrics)


def _scaled(
    advantages: Advantages | None, place: int, factor: float
) -> tuple[float, tuple[float, ...] | None]:
    """A completion's advantage, and the advantages of its tokens if there are any."""
    if advantages is None:
        return 0.0, None
    row = float(advantages.row_N[place]) * factor
    if advantages.token_N is None:
        return row, None
    return row, tuple((advantages.token_N[place] * factor).tolist())
