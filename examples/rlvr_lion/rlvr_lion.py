"""The optimizer Lion: Chen et al. 2023, arXiv:2302.06675."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from rlvr_core.api import ComponentConfig, OptimizerTraits, Registrar, TrainedParameter, hookimpl


class Lion:
    """Moves every weight by ``lr``, in the sign of a mix of gradient and momentum."""

    traits = OptimizerTraits(elementwise=True)

    class Config(ComponentConfig):
        """Options of ``lion``."""

        betas: tuple[float, float] = (0.9, 0.99)
        """Share of the momentum in an update, and its decay rate."""
        weight_decay: float = 0.0
        """Decoupled weight decay, times the learning rate."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def build(self, parameters: Sequence[TrainedParameter], lr: float) -> torch.optim.Optimizer:
        """See ``OptimizerBuilder``."""
        return _Lion([one.tensor for one in parameters], lr, self._config)


class _Lion(torch.optim.Optimizer):
    def __init__(self, parameters: list[torch.Tensor], lr: float, config: Lion.Config) -> None:
        super().__init__(parameters, {"lr": lr})
        self._config = config

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One update."""
        mix, decay = self._config.betas
        for group in self.param_groups:
            for weight in (one for one in group["params"] if one.grad is not None):
                state = self.state[weight]
                momentum = state.setdefault("momentum", torch.zeros_like(weight))
                update = (mix * momentum + (1 - mix) * weight.grad).sign_()
                weight.mul_(1 - group["lr"] * self._config.weight_decay)
                weight.add_(update, alpha=-group["lr"])
                momentum.mul_(decay).add_(weight.grad, alpha=1 - decay)


@hookimpl
def register_optimizers(registrar: Registrar) -> None:
    """Make it ``lion/lion``."""
    registrar.add("lion", "rlvr_lion:Lion", summary="The sign of the momentum.")
