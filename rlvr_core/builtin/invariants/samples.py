"""A few hundred elements of each trained tensor, and the gradients that micro-batches add there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.builtin.invariants.backward import ASIDE
from rlvr_core.builtin.invariants.fingerprints import local

if TYPE_CHECKING:
    from torch import Tensor

ELEMENTS = 256
"""Elements of a tensor that are looked at, at most."""


class Sample:
    """Places in the local parts of tensors, the same as long as it lives.

    Args:
        tensors: The trained tensors.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        generator = torch.Generator().manual_seed(0)
        self._places = []
        for tensor in tensors:
            n = local(tensor).numel()
            places = torch.arange(n)
            if n > ELEMENTS:
                places = torch.randint(n, (ELEMENTS,), generator=generator)
            self._places.append(places.to(tensor.device))

    def of(self, number: int, tensor: Tensor) -> Tensor:
        """Return the sampled elements of one tensor, float64 where it lies."""
        places = self._places[number]
        # a whole tensor in the place of a sharded one is another tensor: nothing is sampled of it
        return local(tensor).reshape(-1)[places].double()

    def take(self, tensors: Sequence[Tensor | None]) -> list[Tensor]:
        """Return the sampled elements of all tensors, 0 for one that is None; on the CPU."""
        found = [
            torch.zeros(len(self._places[number]), dtype=torch.float64, device=places.device)
            if tensor is None
            else self.of(number, tensor)
            for number, (tensor, places) in enumerate(zip(tensors, self._places, strict=True))
        ]
        if not found:
            return []
        return list(torch.split(torch.cat(found).cpu(), [len(one) for one in found]))


class Arriving:
    """Adds up the gradients that arrive at parameters, from one backward pass to the next.

    Args:
        sample: Where to look.
        parameters: The trained tensors, whole in this process.
    """

    def __init__(self, sample: Sample, parameters: Sequence[Tensor]) -> None:
        self._sample = sample
        self._sums: list[Tensor | None] = [None] * len(parameters)
        self._sizes: list[Tensor | None] = [None] * len(parameters)
        self._last: list[Tensor | None] = [None] * len(parameters)
        self._handles = [
            one.register_hook(self._keeper(number))  # type: ignore[no-untyped-call]
            for number, one in enumerate(parameters)
        ]

    def _keeper(self, number: int) -> Any:
        def keep(gradient: Tensor) -> None:
            if ASIDE.active:
                return
            found = self._sample.of(number, gradient.detach())
            total, size = self._sums[number], self._sizes[number]
            self._sums[number] = found if total is None else total + found
            self._sizes[number] = found.abs() if size is None else size + found.abs()
            self._last[number] = found

        return keep

    def end(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Stop, and return by tensor: the sums, those of absolute values, and what came last."""
        for handle in self._handles:
            handle.remove()
        found = []
        for values in (self._sums, self._sizes, self._last):
            empty = self._sample.take([None] * len(values))
            found.append(
                [no if one is None else one.cpu() for one, no in zip(values, empty, strict=True)]
            )
        return found[0], found[1], found[2]
