"""REINFORCE++ by plain formulas, one token at a time: beside the code that computes all at once.

The advantage of token t is ``(G_t - mean) / std``, with ``G_t = R - beta * sum of KL from t on``
and mean and deviation those of all loss tokens of the step. Rewards are the step's, and the KL to
the reference is computed again, in the first ``FIRST`` steps of a process and then in every
``EVERY``-th. What the loss was given for each token has to be that: not normalised over a part of
the step, such as a rank, a micro-batch or a data set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api.services import completion_logprobs
from rlvr_core.builtin.invariants.check import StepView, Trainer
from rlvr_core.builtin.invariants.fingerprints import is_sharded
from rlvr_core.builtin.invariants.oracles import cause
from rlvr_core.builtin.invariants.rows import Key, key_of, rows_of

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import Group, MicroBatch

FIRST, EVERY = 8, 64
"""Steps of a process that are computed again, and from there on the distance of one to the next."""

BAND = 1e-3
"""Difference that is rounding, as a share of an advantage, or of 1 if that is more."""

KNOWN = "rlvr_core.builtin.advantages.reinforce_plus_plus:ReinforcePlusPlus"

Tokens = list[list[float]]
"""A number for each token of each completion of the step."""


@dataclass(frozen=True, slots=True)
class Whitened:
    """Advantages by token, and what the returns were before."""

    advantages: Tokens
    mean: float
    std: float


def reinforce_plus_plus(
    groups: Sequence[Group], kl: Tokens | None, beta: float, *, group_baseline: bool
) -> Whitened:
    """Return the advantages of a step's completions, in the order of its groups.

    Args:
        groups: They.
        kl: Log-prob of the policy less that of the reference of each token, 0 outside the mask.
        beta: Its weight.
        group_baseline: Whether the mean reward of the group is taken off first.
    """
    returns: Tokens = []
    counted: list[float] = []
    for group in groups:
        known = [member.reward for member in group.members if member.reward is not None]
        base = math.fsum(known) / len(known) if group_baseline and known else 0.0
        for member in group.members:
            mask = member.completion.joined().loss_mask
            start = 0.0 if member.reward is None else member.reward - base
            ahead, own = 0.0, [start] * len(mask)
            for t in reversed(range(len(mask))):
                ahead += kl[len(returns)][t] if kl is not None else 0.0
                own[t] = start - beta * ahead
            returns.append(own)
            if member.reward is not None:
                counted += [value for value, inside in zip(own, mask, strict=True) if inside]
    if not counted:
        return Whitened(returns, math.nan, math.nan)
    mean = math.fsum(counted) / len(counted)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in counted) / len(counted))
    scale = max(std, 1e-4)
    return Whitened([[(value - mean) / scale for value in own] for own in returns], mean, std)


class TokenAdvantages:
    """What each token's advantage must be, of the steps that are computed again.

    Args:
        options: The estimator's options from the config.

    Attributes:
        whole: The returns of the step; None if it is not computed.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._beta = float(options.get("beta", 0.01))
        self._baseline = bool(options.get("group_baseline", False))
        self.whole: Whitened | None = None
        self._steps = 0
        self._of_key: dict[Key, list[list[float]]] = {}

    def begin(self, view: StepView) -> None:
        """Compute the advantages of the step that begins, if it is one to compute."""
        self.whole, self._of_key = None, {}
        component = view.trainer.objective.estimator.component
        if f"{type(component).__module__}:{type(component).__qualname__}" != KNOWN:
            return
        due = self._steps < FIRST or self._steps % EVERY == 0
        self._steps += 1
        needs_kl = self._beta > 0
        sharded = needs_kl and any(map(is_sharded, view.trainer.model.parameters()))
        # of branches the KL is not computed here
        members = [member for group in view.groups for member in group.members]
        branched = needs_kl and any(member.completion.branches for member in members)
        if not due or sharded or branched:
            return
        kl = _kl(view.trainer, view.groups) if needs_kl else None
        self.whole = reinforce_plus_plus(view.groups, kl, self._beta, group_baseline=self._baseline)
        flat = iter(self.whole.advantages)
        for place, group in enumerate(view.groups):
            factor = view.trainer.advantage_scale.get(group.problem.id, 1.0)
            for member in group.members:
                values = iter(next(flat))
                for row in member.completion.rows:
                    own = [factor * next(values) for _ in row.token_ids]
                    self._of_key.setdefault(key_of(place, row), []).append(own)

    def check(self, view: StepView) -> tuple[float, *tuple[str, ...]]:
        """Return the largest error of an update's advantages, what is wrong, and what to do."""
        pairs = self._pairs(view)
        if not pairs:
            return (math.nan,)
        errors = [abs(a - e) / max(1.0, abs(e)) for _, a, e in pairs]
        wrong = sum(not error <= BAND for error in errors)
        largest = max(abs(a - e) for _, a, e in pairs)
        if not wrong:
            return (largest,)
        key, used, right = pairs[errors.index(max(errors))]
        return (
            largest,
            f"{wrong} of {len(pairs)} tokens have another advantage than rewards and KL give: a "
            f"token of problem {view.groups[key[0]].problem.id} has {used:.4g}, and {right:.4g} is "
            f"right (tolerance {BAND:g} of it)",
            cause([(a, e) for _, a, e in pairs]),
            "mean and deviation are those of all loss tokens of the step, not of a process, a "
            "micro-batch or a data set: look at what normalises (whitens) advantages",
        )

    def wrong_figure(self, line: Mapping[str, float]) -> str:
        """Say what a step's line says otherwise of the step's returns; empty if nothing."""
        if self.whole is None or math.isnan(self.whole.mean):
            return ""
        whole = self.whole
        due = {"advantage/return_mean": whole.mean, "advantage/return_std": whole.std}
        band = BAND * max(whole.std, abs(whole.mean), 1e-4)
        for name, right in due.items():
            if not abs(line.get(name, right) - right) <= band:
                return (
                    f"{name} is reported as {line[name]:.6g}, and the returns of the step's tokens "
                    f"give {right:.6g}"
                )
        return ""

    def _pairs(self, view: StepView) -> list[tuple[Key, float, float]]:
        """Return key, advantage that the loss was given and the right one, of each loss token."""
        if not self._of_key:
            return []
        found: list[tuple[Key, float, float]] = []
        tables = {
            id(one): None if one.batch.advantage_BT is None else one.batch.advantage_BT.tolist()
            for one in view.seen
        }
        for row in rows_of(view):
            table = tables[id(row.seen)]
            length = len(row.key[2])
            given = [row.advantage] * length if table is None else table[row.index][:length]
            inside = [t for t in range(length) if row.mask[t]]
            wanted = self._of_key.get(row.key, [])
            if inside and wanted:  # equal completions may have unequal rewards
                apart = partial(_apart, given, inside)
                best = min(wanted, key=apart)
                found += [(row.key, given[t], best[t]) for t in inside]
        return found


def _apart(given: Sequence[float], inside: Sequence[int], wanted: Sequence[float]) -> float:
    return max(abs(given[t] - wanted[t]) for t in inside)


def _kl(trainer: Trainer, groups: Sequence[Group]) -> Tokens:
    """Return the log-prob of the policy less that of the reference at each token, by completion."""
    members = [member for group in groups for member in group.members]
    found: Tokens = [[0.0] * len(member.completion.token_ids) for member in members]
    scores_NK = trainer.token_scores(groups, partial(_gap, trainer))
    for gap, row, position, _ in scores_NK.tolist() if len(scores_NK) else ():
        found[int(row)][int(position)] = gap
    return found


def _gap(trainer: Trainer, model: Any, batch: MicroBatch, **more: Any) -> tuple[Tensor, ...]:
    """Return the gap at each loss token, the number of its row, and its position; (B, T) each."""
    own_BT = completion_logprobs(model, batch, **more)
    more["compiled"] = None
    with trainer.reference.active() as reference:
        gap_BT = own_BT - completion_logprobs(reference, batch, **more)
    row_BT = batch.group_B[:, None].expand_as(gap_BT)
    position_BT = torch.arange(gap_BT.shape[1], device=gap_BT.device).expand_as(gap_BT)
    return gap_BT, row_BT, position_BT
