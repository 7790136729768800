"""Losses and metrics: summed over the micro-batches of an update, averaged over updates."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlvr_core.algorithm.metrics import finish
from rlvr_core.api import LossOutput
from rlvr_core.parallel.ranks import Ranks
from rlvr_core.record.metrics import check_declared
from rlvr_core.step.objective import Term


class Totals:
    """Sums losses and metrics over one update's micro-batches, without waiting for the device."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._terms = terms
        self.thresholds: list[float] = []
        """Least entropies of tokens that were chosen by it, the same in all processes."""
        self._losses: dict[str, list[torch.Tensor]] = {}
        self._sums: dict[tuple[str, str], list[tuple[torch.Tensor, torch.Tensor]]] = {}
        self._maxima: dict[tuple[str, str], list[torch.Tensor]] = {}

    def add(self, outputs: Sequence[tuple[Term, LossOutput]]) -> None:
        """Count one micro-batch."""
        for term, output in outputs:
            self._losses.setdefault(term.name, []).append(output.loss.detach())
            for name, pair in output.sums.items():
                self._sums.setdefault((term.name, name), []).append(pair)
            for name, value in output.maxima.items():
                self._maxima.setdefault((term.name, name), []).append(value)

    def gather(self, ranks: Ranks) -> None:
        """Count what the other processes counted, too."""
        if ranks.world == 1:
            return
        losses = {name: _sum(parts) for name, parts in self._losses.items()}
        sums = {key: _pair(pairs) for key, pairs in self._sums.items()}
        maxima = {key: max(map(float, values)) for key, values in self._maxima.items()}
        self._losses, self._sums, self._maxima = {}, {}, {}
        for one, pairs, most in ranks.gather((losses, sums, maxima)):
            for name, loss in one.items():
                # a loss is multiplied by the number of processes, see Normalizer
                self._losses.setdefault(name, []).append(_exact(loss / ranks.world))
            for key, pair in pairs.items():
                self._sums.setdefault(key, []).append((_exact(pair[0]), _exact(pair[1])))
            for key, value in most.items():
                self._maxima.setdefault(key, []).append(_exact(value))

    def mean(self, term: str, name: str) -> float | None:
        """A term's metric over all tokens of the update; None where there were none."""
        total, count = _pair(self._sums.get((term, name), []))
        return total / count if count else None

    def losses(self) -> dict[str, float]:
        """The value of each term that the update had a row of."""
        return {name: _sum(parts) for name, parts in self._losses.items()}

    @staticmethod
    def over(updates: Sequence[Totals]) -> dict[str, float]:
        """Losses, means and maxima over several updates; what was never counted is absent.

        A term's loss is its mean over the updates that had a row of it (T13), and ``loss`` that of
        what each update was given: the weighted sum of the terms it had. A metric that several
        losses report keeps its plain name for the first of them.
        """
        terms = updates[0]._terms
        losses = [update.losses() for update in updates]
        given = [sum(t.weight * one[t.name] for t in terms if t.name in one) for one in losses]
        metrics = {"loss": sum(given) / len(given)}
        for term in terms:
            values = [one[term.name] for one in losses if term.name in one]
            if values and len(terms) > 1:
                metrics[f"loss/{term.name}"] = sum(values) / len(values)
        thresholds = [least for update in updates for least in update.thresholds]
        if thresholds:
            metrics["entropy/threshold"] = min(thresholds)
        for term in terms:
            found = _finished(term, updates)
            check_declared(term.loss, found, kernel=True)
            for name, value in found.items():
                metrics[f"loss/{term.name}/{name}" if name in metrics else name] = value
        return metrics


def _finished(term: Term, updates: Sequence[Totals]) -> dict[str, float]:
    """The metrics of a term over all tokens of the updates."""
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
