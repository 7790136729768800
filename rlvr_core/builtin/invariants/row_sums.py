"""Each token's row of embedding and head: the gradients that arrive there, and that it moves.

A sample of elements hardly meets one row of many, and each row is a token: an embedding that was
told of its padding, which is often the end of sequence, never learns that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.builtin.invariants.backward import ASIDE

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.builtin.invariants.check import Trainer

STILL = 0.1
"""Share of rows with a gradient that may stay, before it is the rate that is too small to move."""

LARGEST = 0.1
"""Share of rows whose gradients count as large."""

SEEN = 64
"""Roundings of a row's mean weight that the learning rate has to be, for each row to move."""

PART = 2**22
"""Elements whose bits are summed at once."""

Sums = dict[str, tuple["Tensor", "Tensor"]]
"""By tensor: the sum of what arrived at each row, and that of its absolute values."""


class RowSums:
    """Adds up the gradients of rows from one backward pass to the next, and watches the update.

    Args:
        trainer: The policy's trainer; its tensors are whole in this process.
    """

    def __init__(self, trainer: Trainer) -> None:
        model, optimizer = trainer.model, trainer.optimizer
        ends = (model.get_input_embeddings(), model.get_output_embeddings())
        known = {id(getattr(one, "weight", None)) for one in ends if one is not None}
        named = zip(optimizer.names, optimizer.parameters, strict=True)
        self._tensors = {name: one for name, one in named if id(one) in known and one.ndim == 2}
        self._sums: Sums = {}
        self._there: Sums = {}
        self._before = self._bits()
        self._handles = [one.register_hook(self._keeper(n)) for n, one in self._tensors.items()]

    def _bits(self) -> dict[str, Tensor]:
        return {name: _checksums(one.detach()) for name, one in self._tensors.items()}

    def _keeper(self, name: str) -> Any:
        def keep(gradient: Tensor) -> None:
            if ASIDE.active:
                return
            signed, size = _of(gradient.detach())
            before = self._sums.get(name)
            if before is not None:
                signed, size = before[0] + signed, before[1] + size
            self._sums[name] = signed, size

        return keep

    def close(self) -> None:
        """Stop listening."""
        for handle in self._handles:
            handle.remove()

    def end(self) -> tuple[Sums, Sums]:
        """Stop listening; return what arrived, and what is there now, by tensor."""
        self.close()
        self._there = {
            name: _of(one.grad) for name, one in self._tensors.items() if one.grad is not None
        }
        return _on_host(self._sums), _on_host(self._there)

    def still(self, rate: float) -> str:
        """Say which rows an update has left as they were; empty if it has moved all it had to.

        Args:
            rate: The learning rate; AdamW moves a weight by about as much.


        Returns:
            Rows among those with the largest gradients, where nearly all with one have moved.
        """
        for name, now_R in self._bits().items():
            if name not in self._there:
                continue
            weight_RC = self._tensors[name].detach()
            mean_R = torch.linalg.vector_norm(weight_RC, 1, dim=1) / weight_RC.shape[1]
            if not rate > SEEN * torch.finfo(weight_RC.dtype).eps * float(mean_R.max()):
                continue
            size_R, same_R = self._there[name][1], now_R == self._before[name]
            some_R = size_R > 0
            if not bool(some_R.any()) or float(same_R[some_R].double().mean()) > STILL:
                continue
            large_R = some_R & (size_R >= size_R[some_R].quantile(1.0 - LARGEST))
            rows = (same_R & large_R).nonzero()[:, 0].tolist()
            if rows:
                return (
                    f"{len(rows)} of {len(size_R)} rows of {name} did not move, and have gradients "
                    f"that are among the largest: that of token {rows[0]}\nlook at what keeps "
                    "them: an embedding that was told of its padding, a frozen part of the "
                    "vocabulary"
                )
        return ""


def _on_host(sums: Sums) -> Sums:
    return {name: (signed.cpu(), size.cpu()) for name, (signed, size) in sums.items()}


def _of(gradient: Tensor) -> tuple[Tensor, Tensor]:
    wide_RC = gradient.float()
    # neither makes a copy of the tensor, which may be the largest there is
    return wide_RC.sum(1).double(), torch.linalg.vector_norm(wide_RC, 1, dim=1).double()


def _checksums(weight_RC: Tensor) -> Tensor:
    """Return one number a row that changes with any of its bits."""
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[weight_RC.element_size()]
    place_C = torch.arange(1, 2 * weight_RC.shape[1], 2, device=weight_RC.device)
    factor_C = place_C * 0x9E3779B97F4A7C1  # odd numbers far apart: changes do not cancel
    rows = max(1, PART // max(1, weight_RC.shape[1]))
    parts = weight_RC.contiguous().view(integers).split(rows)  # type: ignore[no-untyped-call]
    return torch.cat([(part.long() * factor_C).sum(1) for part in parts])


def wrong_rows(shares: Sequence[tuple[Sums, Sums]], own: int, rounding: float) -> str:
    """Say which rows have another gradient than what arrived; empty if none has.

    Args:
        shares: Of each process.
        own: This process, whose gradients are those of all.
        rounding: Share of a row's absolute values that is rounding.
    """
    for name, (found_R, _) in shares[own][1].items():
        arrived = [share[0][name] for share in shares if name in share[0]]
        if not arrived:
            continue
        due_R = torch.stack([one for one, _ in arrived]).sum(0) / len(shares)
        band_R = rounding * torch.stack([one for _, one in arrived]).sum(0) / len(shares) + 1e-30
        bad = ((found_R - due_R).abs() > band_R).nonzero()[:, 0].tolist()
        if bad:
            row = bad[0]
            nothing = "there is none" if not float(found_R[row]) else "there is another"
            return (
                f"the gradient of {len(bad)} of {len(found_R)} rows of {name} is not the sum of "
                f"what the backward passes of this update brought (band: rounding): that of token "
                f"{row}, where {nothing}"
            )
    return ""
