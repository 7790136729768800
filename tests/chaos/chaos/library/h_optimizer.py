"""Updates are made, and are wrong."""

from __future__ import annotations

from typing import Any

import torch

from chaos.registry import Patch, fault

OPTIM = "rlvr_core.step.optim"


@fault("optimizer")
def learning_rate_hundredfold(patch: Patch) -> None:
    """The learning rate is a hundred times that of the config."""
    patch.after(f"{OPTIM}:learning_rate", lambda rate, *_: 100 * rate)


@fault("optimizer", "accumul", "clear")
def gradients_never_cleared(patch: Patch) -> None:
    """Gradients of all steps pile up."""

    def make(original: Any) -> Any:
        kept: dict[int, Any] = {}

        def step(self: Any, number: int) -> Any:
            for i, p in enumerate(self.parameters):
                if p.grad is not None:
                    kept[i] = kept.get(i, 0) + p.grad.clone()
                    p.grad.copy_(kept[i])
            return original(self, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@fault("optimizer", "state")
def moments_reset_each_step(patch: Patch) -> None:
    """The optimizer forgets its moments after each update."""

    def make(original: Any) -> Any:
        def step(self: Any, number: int) -> Any:
            self.inner.state.clear()
            return original(self, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@fault("optimizer", "weight decay", "decay")
def weight_decay_huge(patch: Patch) -> None:
    """Weights shrink by 3 % an update."""

    def make(original: Any) -> Any:
        @torch.no_grad()
        def step(self: Any, number: int) -> Any:
            for p in self.parameters:
                p.mul_(0.97)
            return original(self, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@fault("optimizer", "sign")
def gradient_reversed(patch: Patch) -> None:
    """The sign of every gradient is wrong."""

    def make(original: Any) -> Any:
        def step(self: Any, number: int) -> Any:
            for p in self.parameters:
                if p.grad is not None:
                    p.grad.neg_()
            return original(self, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@fault("optimizer", "noise")
def gradient_replaced_by_noise(patch: Patch) -> None:
    """Gradients are noise of the same size."""

    def make(original: Any) -> Any:
        def step(self: Any, number: int) -> Any:
            torch.manual_seed(number)
            for p in self.parameters:
                if p.grad is not None:
                    p.grad = torch.randn_like(p.grad) * p.grad.norm() / p.numel() ** 0.5
            return original(self, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@fault("optimizer", "twice")
def every_update_twice(patch: Patch) -> None:
    """Every update is applied twice, and counted once."""

    def make(original: Any) -> Any:
        def step(self: Any, number: int) -> Any:
            grads = [None if p.grad is None else p.grad.clone() for p in self.parameters]
            original(self, number)
            for p, grad in zip(self.parameters, grads, strict=True):
                p.grad = grad
            return original(self, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@fault("optimizer", "micro", "accumul", shape="micro batches")
def last_micro_batch_only(patch: Patch) -> None:
    """Each micro-batch's gradient overwrites that of the one before."""

    def make(original: Any) -> Any:
        def backward(self: Any, loss: Any) -> None:
            self.inner.zero_grad(set_to_none=True)
            original(self, loss)

        return backward

    patch.wrap(f"{OPTIM}:Optimizer.backward", make)


@fault("optimizer", "other", "tensor", "parameter", "order")
def gradients_of_other_layers(patch: Patch) -> None:
    """Layers of the same shape have each other's gradients."""

    def make(original: Any) -> Any:
        def step(self: Any, number: int) -> Any:
            by_name = dict(zip(self.names, self.parameters, strict=True))
            for name, p in by_name.items():
                other = by_name.get(name.replace(".layers.0.", ".layers.1."))
                if ".layers.0." in name and other is not None:
                    p.grad, other.grad = other.grad, p.grad
            return original(self, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@fault("optimizer", "schedule", "warm")
def learning_rate_decays_at_once(patch: Patch) -> None:
    """The learning rate is divided by 30 at each step."""
    patch.after(f"{OPTIM}:learning_rate", lambda rate, train, schedule, step: rate / 30**step)
