"""The mini-batches of a step, one optimizer update each, and their metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from rlvr_core.algorithm.reduce import finish
from rlvr_core.api import LossOutput, Normalizer
from rlvr_core.config.model import TrainSection
from rlvr_core.parallel.ranks import Ranks
from rlvr_core.record.metrics import check_declared
from rlvr_core.step.batch import LocalMicroBatch, Row
from rlvr_core.step.objective import LossTerm, TrainingRows
from rlvr_core.step.optim import Update

_OF_AN_ITERATION = ("ratio/", "clip_fraction/")
"""Metrics of how far the policy has moved since the start of the step."""


@dataclass(frozen=True, slots=True)
class AuxLogprobs:
    """Log-probs of a micro-batch under other models than the policy.

    Attributes:
        teacher_logprobs: By term, the most likely tokens (N, K) of its teacher and their
            log-probs (B, T, K).
        ref_logp_BT: The reference's log-probs; None where no loss asks for them.
    """

    teacher_logprobs: dict[str, tuple[Tensor, Tensor]]
    ref_logp_BT: Tensor | None


@dataclass(slots=True)
class MiniBatchPart:
    """The rows of one kind in a mini-batch, packed into micro-batches.

    Attributes:
        training: The rows, and the losses that read them.
        normalizer: Denominators of the mini-batch.
        micro_batches: Those of this process.
        old_logprobs: By micro-batch, the policy's log-probs (B, T) at the start of the step; empty
            where none are needed.
        aux: By index of a micro-batch, log-probs of other models that hold for every iteration.
    """

    training: TrainingRows
    normalizer: Normalizer
    micro_batches: list[LocalMicroBatch]
    old_logprobs: list[Tensor] = field(default_factory=list)
    aux: dict[int, AuxLogprobs] = field(default_factory=dict)


@dataclass(slots=True)
class MiniBatch:
    """The data of one optimizer update of each iteration.

    Attributes:
        parts: One per kind of rows (sampled completions, given answers); at least one.
        groups: Places in the step of the groups whose completions it has.
    """

    parts: list[MiniBatchPart] = field(default_factory=list)
    groups: Sequence[int] = ()


def split_into_mini_batches(
    parts: Sequence[TrainingRows],
    n: int,
    normalizer: Callable[[TrainingRows], Normalizer],
    pack: Callable[[Sequence[Row]], list[LocalMicroBatch]],
) -> list[MiniBatch]:
    """Distribute the groups of each part over ``n`` mini-batches.

    A group without a loss token takes no place. Where a part has fewer groups than mini-batches,
    the last ones are without it, and one without any part is none: groups are whole, and the given
    answers of a mini-batch are as many as in any other step.

    Args:
        parts: The rows of the step, by kind.
        n: Number of mini-batches, each an update.
        normalizer: Denominators of a part.
        pack: A process's micro-batches of all rows.
    """
    batches = [MiniBatch() for _ in range(n)]
    for whole in parts:
        trained = whole.trained
        for index, batch in enumerate(batches):
            places = trained[index::n]
            if places:
                part = whole.only(places)
                batch.parts.append(MiniBatchPart(part, normalizer(part), pack(part.rows)))
                batch.groups = batch.groups if part.given else places
    return [batch for batch in batches if batch.parts]


def count_rows(
    parts: Sequence[TrainingRows], normalizer: Callable[[TrainingRows], Normalizer]
) -> dict[str, float]:
    """Rows and loss tokens of a step, each counted once however often it is read."""
    metrics: dict[str, float] = {}
    for part in parts:
        step = normalizer(part)
        metrics[f"{part.prefix}rows"] = step.rows
        metrics[f"{part.prefix}tokens/loss"] = step.tokens
    return metrics


def summarize_updates(
    totals: Sequence[Totals], updates: Sequence[Update], iterations: int
) -> dict[str, float]:
    """Metrics over the updates of a step that were applied, or over all where none was.

    With several iterations there are some for each; they are absent for one that applied none of a
    step that applied some.

    Args:
        totals: What each update counted.
        updates: The optimizer's word on each.
        iterations: How many; each made the same number of updates.
    """
    none = not any(update.applied for update in updates)
    counted = [place for place, update in enumerate(updates) if update.applied or none]
    metrics = Totals.over([totals[place] for place in counted])
    metrics["grad_norm"] = sum(updates[place].grad_norm for place in counted) / len(counted)
    share = len(totals) // iterations
    for number in range(iterations if iterations > 1 else 0):
        mine = [totals[place] for place in counted if place // share == number]
        metrics |= {
            f"iteration/{number + 1}/{name}": value
            for name, value in (Totals.over(mine) if mine else {}).items()
            if name.startswith(_OF_AN_ITERATION)
        }
    return metrics


def count_updates(
    batches: Sequence[MiniBatch], updates: Sequence[Update], train: TrainSection
) -> dict[str, float]:
    """Count the updates of a step and the rows they read.

    Args:
        batches: Those that there were groups for.
        updates: The optimizer's word on each.
        train: Says how many were asked for.
    """
    norms = [update.grad_norm for update in updates]
    metrics: dict[str, float] = {
        "updates/applied": sum(update.applied for update in updates),
        "updates/skipped": sum(not update.applied for update in updates),
        "updates/missing": train.updates_per_step - len(updates),
    }
    if norms:
        metrics["grad_norm/max"] = max(norms, key=lambda norm: (math.isnan(norm), norm))
    for part in (part for batch in batches for part in batch.parts):
        name = f"{part.training.prefix}rows/read"
        metrics[name] = metrics.get(name, 0) + part.normalizer.rows * train.num_iterations
    return metrics


class Totals:
    """Sums losses and metrics over one update's micro-batches, without waiting for the device."""

    def __init__(self, terms: Sequence[LossTerm]) -> None:
        self._terms = terms
        self.thresholds: list[float] = []
        """Entropy thresholds of chosen tokens, equal in all processes."""
        self._losses: dict[str, list[torch.Tensor]] = {}
        self._sums: dict[tuple[str, str], list[tuple[torch.Tensor, torch.Tensor]]] = {}
        self._maxima: dict[tuple[str, str], list[torch.Tensor]] = {}

    def add(self, outputs: Sequence[tuple[LossTerm, LossOutput]]) -> None:
        """Add the losses and metrics of one micro-batch."""
        for term, output in outputs:
            self._losses.setdefault(term.name, []).append(output.loss.detach())
            for name, pair in output.sums.items():
                self._sums.setdefault((term.name, name), []).append(pair)
            for name, value in output.maxima.items():
                self._maxima.setdefault((term.name, name), []).append(value)

    def gather(self, ranks: Ranks) -> None:
        """Take all numbers from the device at once, and add the other processes'; a collective."""
        self._to_host()
        if ranks.world == 1:
            return
        losses = {name: _sum(parts) for name, parts in self._losses.items()}
        sums = {key: _pair(pairs) for key, pairs in self._sums.items()}
        maxima = {key: max(map(float, values)) for key, values in self._maxima.items()}
        self._losses, self._sums, self._maxima = {}, {}, {}
        for sums_of, pairs, most in ranks.gather((losses, sums, maxima)):
            for name, loss in sums_of.items():
                # a loss is multiplied by the number of processes, see Normalizer
                self._losses.setdefault(name, []).append(_exact(loss / ranks.world))
            for key, pair in pairs.items():
                self._sums.setdefault(key, []).append((_exact(pair[0]), _exact(pair[1])))
            for key, value in most.items():
                self._maxima.setdefault(key, []).append(_exact(value))

    def _to_host(self) -> None:
        """Copy all numbers in one transfer: each by itself would wait for the device."""
        numbers, places = tree_flatten((self._losses, self._sums, self._maxima))
        if numbers:
            device = numbers[0].device
            host = torch.stack([number.double().to(device) for number in numbers]).cpu()
            self._losses, self._sums, self._maxima = tree_unflatten(list(host), places)

    def mean(self, term: str, name: str) -> float | None:
        """Return a term's metric over all tokens of the update; None where there were none."""
        total, count = _pair(self._sums.get((term, name), []))
        return total / count if count else None

    def losses(self) -> dict[str, float]:
        """Return the loss of each term that the update had a row of."""
        return {name: _sum(parts) for name, parts in self._losses.items()}

    @staticmethod
    def over(updates: Sequence[Totals]) -> dict[str, float]:
        """Return losses, means and maxima over several updates; a metric without values is absent.

        A term's loss is its mean over the updates that had a row of it, and ``loss`` that of
        what each update was given: the weighted sum of the terms it had. A metric that several
        losses report keeps its plain name for the first of them.
        """
        terms = updates[0]._terms
        losses = [update.losses() for update in updates]
        given = [
            sum(t.weight * loss_of[t.name] for t in terms if t.name in loss_of)
            for loss_of in losses
        ]
        metrics = {"loss": sum(given) / len(given)}
        for term in terms:
            values = [loss_of[term.name] for loss_of in losses if term.name in loss_of]
            if values and len(terms) > 1:
                metrics[f"loss/{term.name}"] = sum(values) / len(values)
        thresholds = [least for update in updates for least in update.thresholds]
        if thresholds:
            metrics["entropy/threshold"] = min(thresholds)
        for term in terms:
            finished = _finished(term, updates)
            check_declared(term.loss, finished, core=True)
            for name, value in finished.items():
                metrics[f"loss/{term.name}/{name}" if name in metrics else name] = value
        return metrics


def _finished(term: LossTerm, updates: Sequence[Totals]) -> dict[str, float]:
    """Return the metrics of a term over all tokens of the updates."""
    sums: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    maxima: dict[str, list[float]] = {}
    for update in updates:
        for (owner, name), pairs in update._sums.items():
            if owner == term.name:
                sums.setdefault(name, []).extend(pairs)
        for (owner, name), values in update._maxima.items():
            if owner == term.name:
                maxima.setdefault(name, []).extend(map(float, values))
    return finish(
        {name: _pair(pairs) for name, pairs in sums.items()},
        {name: max(values) for name, values in maxima.items()},
    )


def _exact(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _pair(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> tuple[float, float]:
    return _sum([total for total, _ in pairs]), _sum([count for _, count in pairs])


def _sum(values: Sequence[torch.Tensor]) -> float:
    return float(torch.stack([value.double() for value in values]).sum()) if values else 0.0
