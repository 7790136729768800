"""Checks the direction of an update against an independent computation of the gradient.

The oracle's objective is the sum over completions of (reward - mean of the group) times the sum
of their tokens' log-probs. Its gradient is taken row by row, without packing, masks or caches, and
compared with the optimizer's change of the weights.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

import torch

from rlvr_core.builtin.doctor.report import Answer

if TYPE_CHECKING:
    from rlvr_core.api import Completion, Group
    from rlvr_core.api.services import Session

MOST_ROWS = 160
RELATED = 0.15
"""Minimum agreement of a healthy update: 1 is the oracle's sign in every weight, 0 is chance."""
PART, BAND = 0.01, 1.25
"""Share of the update by which the objective is measured, forwards and backwards; largest ratio of
what is measured and predicted."""
LOST = 0.2
"""Share of the predicted change that may be lost when weights are rounded."""
SUMMED = 16.0
"""Roundings of a log-prob of 1 that its sums add up to."""
ROUNDED = 2.0**-24
"""Half the distance of float32 numbers, relative to their size."""
ROUNDED_PART, ROUNDED_BAND = 0.25, 3.0
"""The same in half precision, whose rounding would hide a small change."""


@dataclass(frozen=True, slots=True)
class Direction:
    """The first update beside the oracle's gradient.

    Attributes:
        agreement: Sum of gradient times change, over the sum of their sizes: between -1 and 1.
        predicted: Change of the objective along a part of the update, by the oracle's gradient.
        measured: The same, measured with the trainer's own log-probs.
        moved: Whether any trained weight moved.
        rows: Number of completions.
        part: The fraction of the update.
        band: Maximum ratio of the two changes, or of its inverse.
        applied: The predicted change, of the weights as they were rounded when they were moved.
        finest: Smallest change of the objective that its own rounding lets through.
        lr: The learning rate.
        size: Root mean square of the trained weights.
    """

    agreement: float
    predicted: float
    measured: float
    moved: bool
    rows: int
    part: float = PART
    band: float = BAND
    applied: float | None = None
    finest: float = 0.0
    lr: float = 0.0
    size: float = 0.0

    @property
    def below_rounding(self) -> bool:
        """Whether the part of the update is too small for weights or log-probs to show it."""
        lost = self.applied is not None and self.predicted != 0
        kept = self.applied / self.predicted if lost and self.applied is not None else 1.0
        return abs(kept - 1) > LOST or abs(self.predicted) < self.finest

    def answer(self) -> Answer:
        """Judge the direction."""
        value = (
            f"agreement {self.agreement:.2f} (1 best, 0 chance); along {self.part:g} of it the "
            f"objective changes by {self.measured:.3g}, predicted {self.predicted:.3g}, over "
            f"{self.rows} completions"
        )
        data = {"agreement": self.agreement}
        remedy = f"raise train.lr from {self.lr:g}: at weights of size {self.size:.2g}, "
        if not self.moved and self.lr < ROUNDED * self.size:
            remedy += "an update this small is lost when it is added"
            return Answer("fail", "the update moved no trained weight", remedy, data=data)
        if not self.moved:
            return Answer(
                "fail",
                "the update moved no trained weight",
                "the optimizer holds other tensors than the model, or every gradient is 0",
                data=data,
            )
        if self.agreement < -RELATED:
            remedy = "the sign of rewards, advantages or the loss is reversed"
            return Answer("fail", f"{value}: against the rewards", remedy, data=data)
        if self.agreement < RELATED:
            remedy = "advantages do not belong to their completions, or another term of the loss "
            remedy += "outweighs the rewards"
            return Answer("fail", f"{value}: unrelated to the rewards", remedy, data=data)
        differs = self.predicted > 0 and not (
            1 / self.band < self.measured / self.predicted < self.band
        )
        # far below it, agreement is chance too
        if (differs and self.below_rounding) or abs(self.predicted) < self.finest / 4:
            value += ": the step is below rounding, so the change cannot be measured"
            remedy += "an update is hardly more than their rounding"
            return Answer("warn", value, remedy, data=data)
        if differs:
            remedy = "the trainer's log-probs are not those of the model: temperature, masks, "
            remedy += "packing or a compiled path"
            return Answer("fail", value, remedy, data=data)
        return Answer("ok", value, data=data)


def trained_tensors(session: Session) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield name and tensor of everything that is trained."""
    for name, tensor in session.trainer.model.named_parameters():
        if tensor.requires_grad:
            yield name, tensor


def measure_direction(session: Session, groups: Callable[[], Sequence[Group]]) -> Direction | None:
    """Take one step, and compare its change with the oracle's gradient; None without an update.

    Args:
        session: A session at its first step.
        groups: Returns the groups of the newest step.
    """
    before = {name: tensor.detach().clone() for name, tensor in trained_tensors(session)}
    exact = session.trainer.precision.compute == torch.float32
    part, band = (PART, BAND) if exact else (ROUNDED_PART, ROUNDED_BAND)
    version = session.version
    session.one_step()
    if session.version == version:
        return None
    rows = _weighted(groups())[:MOST_ROWS]
    change = {name: tensor.detach() - before[name] for name, tensor in trained_tensors(session)}
    after = {name: tensor.detach().clone() for name, tensor in trained_tensors(session)}
    try:
        _put(session, before)
        gradient = _gradient(session, rows)
        _put(session, {name: before[name] - part * change[name] for name in before})
        old = _objective(session, groups(), rows)
        _put(session, {name: before[name] + part * change[name] for name in before})
        new = _objective(session, groups(), rows)
        moved = {n: (before[n] + part * change[n]) - before[n] for n in before}
    finally:
        _put(session, after)
    product = sum(float((gradient[n] * change[n]).sum()) for n in change)
    sizes = sum(float((gradient[n].abs() * change[n].abs()).sum()) for n in change)
    return Direction(
        agreement=product / sizes if sizes else 0.0,
        predicted=part * product,
        measured=(new - old) / 2,
        moved=any(bool(one.any()) for one in change.values()),
        rows=len(rows),
        part=part,
        band=band,
        applied=sum(float((gradient[n] * moved[n]).sum()) for n in moved),
        finest=_finest(rows),
        lr=session.config.train.lr,
        size=_size(before.values()),
    )


def _finest(rows: Sequence[tuple[Completion, float]]) -> float:
    """Return what rounding alone does to the objective: a random walk over its log-probs.

    Each is the difference of numbers of the size of logits, which are themselves long sums.
    """
    eps = SUMMED * torch.finfo(torch.float32).eps
    each = [eps * weight * (1 + abs(p)) for one, weight in rows for p in one.logprobs]
    return math.sqrt(sum(one * one for one in each))


def _size(tensors: Iterable[torch.Tensor]) -> float:
    """Return the root mean square of weights."""
    some = list(tensors)
    total = sum(float(one.double().square().sum()) for one in some)
    return math.sqrt(total / max(1, sum(one.numel() for one in some)))


def _weighted(groups: Sequence[Group]) -> list[tuple[Completion, float]]:
    """Return every completion with its reward minus the mean of its group."""
    rows = []
    for group in groups:
        rewards = [m.reward for m in group.members if m.reward is not None]
        if len(rewards) < 2 or max(rewards) == min(rewards):
            continue
        mean = fmean(rewards)
        rows += [(m.completion, m.reward - mean) for m in group.members if m.reward is not None]
    return rows


def _gradient(
    session: Session, rows: Sequence[tuple[Completion, float]]
) -> dict[str, torch.Tensor]:
    """Return the gradient of the oracle's objective, computed row by row."""
    model, temperature = session.trainer.model, session.trainer.temperature
    named = dict(trained_tensors(session))
    total = {name: torch.zeros_like(tensor) for name, tensor in named.items()}
    dtype = session.trainer.precision.autocast
    for completion, weight in rows:
        ids = [*completion.prompt_ids, *completion.token_ids]
        ids_1S = torch.tensor([ids], device=model.device)
        autocast = (
            contextlib.nullcontext()
            if dtype is None
            else torch.autocast(model.device.type, dtype=dtype)
        )
        with torch.enable_grad(), autocast:
            logits_SV = model(input_ids=ids_1S, use_cache=False).logits[0].float() / temperature
        start = len(completion.prompt_ids)
        logp_T = logits_SV[start - 1 : -1].log_softmax(-1).gather(-1, ids_1S[0, start:, None])[:, 0]
        mask_T = torch.tensor(completion.loss_mask, device=model.device)
        objective = weight * logp_T[mask_T].sum()
        found = torch.autograd.grad(objective, list(named.values()), allow_unused=True)
        for name, part in zip(named, found, strict=True):
            if part is not None:
                total[name] += part
    return total


def _objective(
    session: Session, groups: Sequence[Group], rows: Sequence[tuple[Completion, float]]
) -> float:
    """Return the same objective by the trainer's forward pass, over the same completions."""
    weights = {id(completion): weight for completion, weight in rows}
    total = 0.0
    for group in groups:
        for member in group.members:
            weight = weights.get(id(member.completion))
            if weight is not None:
                # one at a time: packing would reorder several
                logp_N, _ = session.trainer.logprobs([replace(group, members=(member,))])
                total += weight * float(logp_N.double().sum())
    return total


@torch.no_grad()
def _put(session: Session, values: dict[str, torch.Tensor]) -> None:
    for name, tensor in trained_tensors(session):
        tensor.copy_(values[name])
