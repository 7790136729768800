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
        """Of AdamW, for embeddings, LM head, biases and norms."""
        eps: Annotated[float, Field(gt=0)] = 1e-5
        """Of AdamW."""
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
            update = self._muon if group["muon"] else self._adamw
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * self._config.weight_decay)
                    update(parameter, parameter.grad, self.state[parameter], group["lr"])
        return loss

    def _muon(
        self, weight_AB: Tensor, grad_AB: Tensor, state: dict[str, Tensor], lr: float
    ) -> None:
        if not state:
            state["momentum"] = torch.zeros_like(weight_AB)
        momentum_AB = state["momentum"].mul_(self._config.momentum).add_(grad_AB)
        update_AB = grad_AB.add(momentum_AB, alpha=self._config.momentum)
        scale = RMS * math.sqrt(max(weight_AB.shape))
        if update_AB.device.type == "cuda":  # float32 products take ten times as long
            update_AB = update_AB.bfloat16()
        weight_AB.add_(newton_schulz(update_AB, self._config.iterations), alpha=-lr * scale)

    def _adamw(self, weight: Tensor, grad: Tensor, state: dict[str, Tensor], lr: float) -> None:
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(weight)
            state["exp_avg_sq"] = torch.zeros_like(weight)
        state["step"] += 1
        steps = state["step"].item()
        first, second = self._config.betas
        mean = state["exp_avg"].mul_(first).add_(grad, alpha=1 - first)
        square = state["exp_avg_sq"].mul_(second).addcmul_(grad, grad, value=1 - second)
        denominator = (square / (1 - second**steps)).sqrt_().add_(self._config.eps)
        weight.addcdiv_(mean, denominator, value=-lr / (1 - first**steps))


def newton_schulz(matrix_AB: Tensor, iterations: int) -> Tensor:
    """About ``U V^T`` of the singular value decomposition ``U S V^T``.

    The quintic ``X <- a X + (b X X^T + c (X X^T)^2) X`` takes singular values into [0.7, 1.2]; in
    the precision of the matrix.
    """
    a, b, c = NEWTON_SCHULZ
    wide = matrix_AB.shape[0] <= matrix_AB.shape[1]
    x_AB: Tensor = matrix_AB if wide else matrix_AB.T  # the smaller side is squared
    x_AB = x_AB / (torch.linalg.matrix_norm(x_AB) + 1e-7)  # singular values at most 1
    for _ in range(iterations):
        gram_AA = x_AB @ x_AB.T
        x_AB = a * x_AB + (b * gram_AA + c * gram_AA @ gram_AA) @ x_AB
    return x_AB if wide else x_AB.T
