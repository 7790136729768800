"""The losses and metrics of a step, summed over its updates and their micro-batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlvr_core.losses.metrics import finish
from rlvr_core.protocols import LossOutput
from rlvr_core.ranks import Ranks
from rlvr_core.record.glossary import lookup
from rlvr_core.train.objective import Term


class Totals:
    """Sums losses and metrics over micro-batches, without waiting for the device.

    A metric that several losses report keeps its plain name for the first of them.
    """

    def __init__(self, terms: Sequence[Term]) -> None:
        self._terms = terms
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

    @classmethod
    def together(cls, parts: Sequence[Totals]) -> Totals:
        """All that several have counted."""
        whole = cls(parts[0]._terms)
        for part in parts:
            for name, losses in part._losses.items():
                whole._losses.setdefault(name, []).extend(losses)
            for key, pairs in part._sums.items():
                whole._sums.setdefault(key, []).extend(pairs)
            for key, most in part._maxima.items():
                whole._maxima.setdefault(key, []).extend(most)
        return whole

    def values(self, updates: int = 1) -> dict[str, float]:
        """Losses, means and maxima; what was never counted is absent.

        Args:
            updates: How many were counted; losses are the mean over them.
        """
        values = {name: _sum(parts) / updates for name, parts in self._losses.items()}
        metrics = {"loss": sum(t.weight * values[t.name] for t in self._terms if t.name in values)}
        if len(self._terms) > 1:
            metrics |= {f"loss/{name}": value for name, value in values.items()}
        for term in self._terms:
            for name, value in self._finished(term).items():
                # what only a plugin's loss knows goes where the glossary leaves room for it
                plain = name if lookup(name) else f"loss/{name}"
                metrics[f"loss/{term.name}/{name}" if plain in metrics else plain] = value
        return metrics

    def _finished(self, term: Term) -> dict[str, float]:
        sums = {
            name: _pair(pairs) for (owner, name), pairs in self._sums.items() if owner == term.name
        }
        maxima = {
            name: max(map(float, values))
            for (owner, name), values in self._maxima.items()
            if owner == term.name
        }
        return finish(sums, maxima)


def _exact(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _pair(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> tuple[float, float]:
    return _sum([total for total, _ in pairs]), _sum([count for _, count in pairs])


def _sum(values: Sequence[torch.Tensor]) -> float:
    return float(torch.stack([value.double() for value in values]).sum())
