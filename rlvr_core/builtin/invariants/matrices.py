"""Muon: which tensors it may take, and whole matrices, whose elements depend on all others.

A matrix W of shape (A, B) moves by -lr * 0.2 * sqrt(max(A, B)) * NewtonSchulz(G + momentum * M)
beside its decay. That is computed again in float64, on the other side of the matrix where it is
tall: X <- a X + X (b X^T X + c (X^T X)^2) needs no transposed matrix. The gradient G is what the
momentum was given, M - momentum * M before; that it is the step's is checked elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.builtin.invariants.fingerprints import is_sharded

if TYPE_CHECKING:
    from torch import Tensor

QUINTIC = (3.4445, -4.7750, 2.0315)
"""Coefficients of Jordan et al. 2024."""

RMS = 0.2

ELEMENTS = 1 << 22
"""Size of the largest matrix that is computed again."""

BANDS = {"cpu": 0.02, "cuda": 0.2}
"""Distance of a move from its formula, as a share of it; a GPU iterates in bfloat16.

Where a gradient has few directions, as one of few tokens has, the iterations blow up what bfloat16
rounds in the others. How far that takes the formula itself is computed, and added to a GPU's band.
"""


@dataclass(frozen=True, slots=True)
class _Matrix:
    number: int
    weight_AB: Tensor
    momentum_AB: Tensor


class Matrices:
    """A tall, a wide and a square matrix before an update, where Muon has such and none is sharded.

    Args:
        optimizer: The policy's.
        turn: By which others of a shape are taken each time.
    """

    def __init__(self, optimizer: Any, turn: int) -> None:
        hidden = {
            id(one)
            for group in optimizer.inner.param_groups
            if group.get("muon")
            for one in group["params"]
        }
        whole = not any(map(is_sharded, optimizer.parameters))
        by_shape: dict[int, list[int]] = {}
        for number, one in enumerate(optimizer.parameters):
            if whole and id(one) in hidden and one.ndim == 2 and one.numel() <= ELEMENTS:
                a, b = one.shape
                by_shape.setdefault((a > b) - (a < b), []).append(number)
        chosen = [numbers[turn % len(numbers)] for numbers in by_shape.values()]
        self._before = [self._copy(optimizer, number) for number in sorted(chosen)]

    @staticmethod
    def _copy(optimizer: Any, number: int) -> _Matrix:
        weight_AB = optimizer.parameters[number].detach().double()
        momentum_AB = optimizer.inner.state.get(optimizer.parameters[number], {}).get("momentum")
        if momentum_AB is None:
            return _Matrix(number, weight_AB, torch.zeros_like(weight_AB))
        return _Matrix(number, weight_AB, momentum_AB.double())

    def wrong(self, optimizer: Any, rate: float) -> str:
        """Say what is wrong with how they moved, and the remedy behind a line break.

        Args:
            optimizer: As before the update.
            rate: The learning rate that the config gives the step.
        """
        options = optimizer.builder.config
        for before in self._before:
            after = self._copy(optimizer, before.number)
            due_AB = _move(before, after.momentum_AB, rate, options)
            move_AB = after.weight_AB - before.weight_AB
            size = float(due_AB.norm())
            # what float32 rounds of the weights is no part of the update
            band = BANDS.get(due_AB.device.type, 0.2) * size + 1e-6 * float(after.weight_AB.norm())
            if due_AB.device.type == "cuda":
                half_AB = _move(before, after.momentum_AB, rate, options, torch.bfloat16)
                band += float((half_AB - due_AB).norm())
            apart = float((move_AB - due_AB).norm())
            if size == 0 or apart <= band:
                continue
            along = float((move_AB * due_AB).sum()) / size**2
            name, shape = optimizer.names[before.number], tuple(due_AB.shape)
            return (
                f"the matrix {name} of shape {shape} did not move as Muon's formula says at a "
                f"learning rate of {rate:.3g}: its move is {apart / size:.2g} of the formula's "
                f"apart from it (band {band / size:.2g}), and {along:.2g} times as long in its "
                f"direction\nlook at the Newton-Schulz iterations, at where matrices are "
                "transposed and reshaped, at the scale by shape, and at the decay"
            )
        return ""


def wrong_kind(model: Any, optimizer: Any) -> str:
    """Say which tensor Muon treats against its rule, after an update; empty if none is.

    Matrices between hidden layers are orthogonalised. Embeddings, the LM head and whatever is no
    matrix are AdamW's. How a tensor was treated is seen by the state that it has.

    Args:
        model: The policy.
        optimizer: Its optimizer, one of Muon.
    """
    ends = [one for one in model.modules() if isinstance(one, torch.nn.Embedding)]
    ends += [model.get_input_embeddings(), model.get_output_embeddings()]
    outer = {id(one) for end in ends if end is not None for one in end.parameters()}
    for name, one in zip(optimizer.names, optimizer.parameters, strict=True):
        state = optimizer.inner.state.get(one, {})
        hidden = one.ndim == 2 and id(one) not in outer
        if not state or ("momentum" in state) == hidden:
            continue
        what = "a matrix between hidden layers"
        if not hidden:
            what = "an embedding or the LM head" if id(one) in outer else "no matrix"
        does = "leaves to AdamW" if hidden else "orthogonalises"
        return (
            f"the optimizer {does} {name}, which is {what}\nMuon is for matrices between hidden "
            "layers and AdamW for all else: look at what sorts tensors into groups "
            "(TrainedParameter.hidden_matrix)"
        )
    return ""


def _move(
    before: _Matrix,
    momentum_AB: Tensor,
    rate: float,
    options: Any,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Return by how much a matrix has to move, if it is iterated in a dtype."""
    gradient_AB = momentum_AB - options.momentum * before.momentum_AB
    x_AB = gradient_AB + options.momentum * momentum_AB
    x_AB = (x_AB / (x_AB.norm() + 1e-7)).to(dtype)
    a, b, c = QUINTIC
    for _ in range(options.iterations):
        gram_BB = x_AB.T @ x_AB
        x_AB = a * x_AB + x_AB @ (b * gram_BB + c * gram_BB @ gram_BB)
    scale = RMS * max(x_AB.shape) ** 0.5
    move_AB: Tensor = -rate * (scale * x_AB.double() + options.weight_decay * before.weight_AB)
    return move_AB
