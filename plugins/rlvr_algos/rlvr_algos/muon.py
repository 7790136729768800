"""Muon for the hidden matrices, AdamW for everything else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from rlvr_core.api import ComponentConfig

if TYPE_CHECKING:
    from rlvr_core.api import TrainedParameter

Beta = Annotated[float, Field(ge=0.0, lt=1.0)]

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration that brings singular values near 1 fastest."""
RMS = 0.2
"""Root mean square of an AdamW update, which Muon's is scaled to."""
STACK = 1 << 26
"""Numbers of the matrices that are computed together on a GPU: small ones leave it idle."""


class Muon:
    """Orthogonalised momentum: Jordan et al. 2024, scaled as in Liu et al., arXiv:2502.16982.

    With momentum ``M <- momentum * M + G`` and ``U = G + momentum * M`` (Nesterov), a matrix of
    shape (A, B) moves by ``-lr * 0.2 * sqrt(max(A, B)) * NewtonSchulz(U)``: by as much, in root
    mean square, as AdamW would move it. So ``train.lr`` is AdamW's, and one rate serves both.
    """

    class Config(ComponentConfig):
        """Options of optimizer ``muon``."""

        momentum: Beta = 0.95
        """Decay rate of the momentum of a matrix."""
        iterations: Annotated[int, Field(gt=0)] = 5
        """Newton-Schulz iterations."""
        betas: tuple[Beta, Beta] = (0.9, 0.999)
        """Decay rates of AdamW, which updates embeddings, LM head, biases and norms."""
        eps: Annotated[float, Field(gt=0)] = 1e-5
        """Added to the denominator of AdamW."""
        weight_decay: Annotated[float, Field(ge=0)] = 0.0
        """Decoupled weight decay of all parameters, times the learning rate."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def build(self, parameters: Sequence[TrainedParameter], lr: float) -> torch.optim.Optimizer:
        """See ``OptimizerBuilder``."""
        groups = [
            {"params": [p.tensor for p in parameters if p.hidden_matrix is hidden], "muon": hidden}
            for hidden in (True, False)
        ]
        return _Muon([group for group in groups if group["params"]], lr, self.config)


class _Muon(torch.optim.Optimizer):
    def __init__(self, groups: list[dict[str, Any]], lr: float, config: Muon.Config) -> None:
        super().__init__(groups, {"lr": lr})
        self._config = config

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if not weights:
                continue
            torch._foreach_mul_(weights, 1 - group["lr"] * self._config.weight_decay)
            update = self._muon if group["muon"] else self._adamw
            update(weights, [weight.grad for weight in weights], group["lr"])
        return loss

    def _muon(self, weights: list[Tensor], grads: list[Tensor], lr: float) -> None:
        momenta = self._moments(weights, "momentum")
        torch._foreach_mul_(momenta, self._config.momentum)
        torch._foreach_add_(momenta, grads)
        for places in _stacks(weights):
            some = [[tensors[place] for place in places] for tensors in (weights, grads, momenta)]
            updates = torch._foreach_add(some[1], some[2], alpha=self._config.momentum)
            update = torch.stack(updates) if len(places) > 1 else updates[0]
            del updates
            if update.device.type == "cuda":  # float32 products take ten times as long
                update = update.bfloat16()
            update = newton_schulz(update, self._config.iterations).to(weights[0].dtype)
            scale = RMS * math.sqrt(max(update.shape[-2:]))
            moves = update.unbind() if len(places) > 1 else [update]
            torch._foreach_add_(some[0], moves, alpha=-lr * scale)

    def _adamw(self, weights: list[Tensor], grads: list[Tensor], lr: float) -> None:
        means, squares = (self._moments(weights, name) for name in ("exp_avg", "exp_avg_sq"))
        steps = [self._counted(weight) for weight in weights]
        first, second = self._config.betas
        torch._foreach_mul_(means, first)
        torch._foreach_add_(means, grads, alpha=1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, grads, grads, value=1 - second)
        denominators = torch._foreach_div(squares, [1 - second**n for n in steps])
        torch._foreach_sqrt_(denominators)
        torch._foreach_add_(denominators, self._config.eps)
        rates = [-lr / (1 - first**n) for n in steps]
        torch._foreach_addcdiv_(weights, means, denominators, rates)

    def _moments(self, weights: list[Tensor], name: str) -> list[Tensor]:
        """A moment of each weight, 0 where there was none."""
        states = [self.state[weight] for weight in weights]
        for weight, state in zip(weights, states, strict=True):
            if name not in state:
                state[name] = torch.zeros_like(weight)
        return [state[name] for state in states]

    def _counted(self, weight: Tensor) -> float:
        """Count another step of a weight."""
        state = self.state[weight]
        state.setdefault("step", torch.zeros((), dtype=torch.float32)).add_(1)
        return float(state["step"])


def _stacks(weights: list[Tensor]) -> list[list[int]]:
    """Places of the matrices that are computed together: on a GPU several of a shape."""
    by_shape: dict[torch.Size, list[int]] = {}
    for place, weight in enumerate(weights):
        by_shape.setdefault(weight.shape, []).append(place)
    most = STACK if weights[0].device.type == "cuda" else 1
    return [
        places[start : start + size]
        for shape, places in by_shape.items()
        for size in [max(1, most // shape.numel())]
        for start in range(0, len(places), size)
    ]


def newton_schulz(matrix: Tensor, iterations: int) -> Tensor:
    """About ``U V^T`` of the singular value decomposition ``U S V^T``.

    The quintic ``X <- a X + (b X X^T + c (X X^T)^2) X`` takes singular values into [0.7, 1.2]; in
    the precision of the matrix, (A, B), or of each of a stack, (n, A, B).
    """
    a, b, c = NEWTON_SCHULZ
    wide = matrix.shape[-2] <= matrix.shape[-1]
    x_AB: Tensor = matrix if wide else matrix.mT  # the smaller side is squared
    norm_11 = torch.linalg.matrix_norm(x_AB, keepdim=True)
    x_AB = x_AB / (norm_11 + 1e-7)  # singular values at most 1
    for _ in range(iterations):
        gram_AA = x_AB @ x_AB.mT
        x_AB = a * x_AB + (b * gram_AA + c * gram_AA @ gram_AA) @ x_AB
    return x_AB if wide else x_AB.mT
