"""Nothing is learned, or less than it seems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from chaos.registry import Patch, fault

OPTIM = "rlvr_core.step.optim"


def tensors(patch: Patch, which: Callable[[str], bool], *, freeze: bool = True) -> None:
    """Let the updates of some tensors be lost: they are put back after each."""

    def make(original: Any) -> Any:
        def step(self: Any, number: int) -> Any:
            kept = [
                (p, p.detach().clone())
                for name, p in zip(self.names, self.parameters, strict=True)
                if which(name)
            ]
            update = original(self, number)
            with torch.no_grad():
                for p, before in kept:
                    p.copy_(before)
            return update

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


def gradients(patch: Patch, change: Callable[[str, Any], Any]) -> None:
    """Change the gradients before each update: ``change(name, gradient)``."""

    def make(original: Any) -> Any:
        def step(self: Any, number: int) -> Any:
            for name, p in zip(self.names, self.parameters, strict=True):
                if p.grad is not None:
                    p.grad = change(name, p.grad)
            return original(self, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@fault("learning", backends=("in process", "child"))
def learning_rate_zero(patch: Patch) -> None:
    """The schedule gives a learning rate of 0."""
    patch.after(f"{OPTIM}:learning_rate", lambda *_: 0.0)


@fault("learning", "too small", "rounding")
def learning_rate_vanishing(patch: Patch) -> None:
    """The learning rate is 1e-14: no float32 weight can move by it."""
    patch.after(f"{OPTIM}:learning_rate", lambda *_: 1e-14)


@fault("learning", "optimizer", backends=("in process", "child"))
def optimizer_on_a_copy(patch: Patch) -> None:
    """The optimizer updates a copy of the weights."""

    def make(original: Any) -> Any:
        def step(self: Any, number: int) -> Any:
            before = [p.detach().clone() for p in self.parameters]
            update = original(self, number)
            with torch.no_grad():
                for p, old in zip(self.parameters, before, strict=True):
                    p.copy_(old)
            return update

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@fault("learning", "optimizer")
def optimizer_never_steps(patch: Patch) -> None:
    """The update is said to be applied, and is not."""

    def make(original: Any) -> Any:
        def step(self: Any, number: int) -> Any:
            inner = self.inner.step
            self.inner.step = lambda *a, **k: None
            try:
                return original(self, number)
            finally:
                self.inner.step = inner

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@fault("learning", "layer", "tensor", "parameter")
def one_layer_frozen(patch: Patch) -> None:
    """The weights of layer 1 are put back after each update."""
    tensors(patch, lambda name: ".layers.1." in name)


@fault("learning", "embed", "tensor", "parameter")
def embedding_frozen(patch: Patch) -> None:
    """The embedding is put back after each update."""
    tensors(patch, lambda name: "embed" in name)


@fault("learning", "norm", "tensor", "parameter")
def norms_frozen(patch: Patch) -> None:
    """The weights of the norms are put back after each update."""
    tensors(patch, lambda name: "norm" in name)


@fault("learning", "tensor", "parameter", "layer")
def one_tensor_frozen(patch: Patch) -> None:
    """One projection of many is put back after each update."""
    tensors(patch, lambda name: name.endswith("layers.0.self_attn.k_proj.weight"))


@fault("learning", "gradient")
def gradients_cleared(patch: Patch) -> None:
    """Gradients are cleared before each update."""
    gradients(patch, lambda name, grad: torch.zeros_like(grad))


@fault("learning", "gradient", "layer", "tensor", "parameter")
def one_layer_without_gradient(patch: Patch) -> None:
    """Layer 0 has no gradient, as behind a detach."""
    gradients(patch, lambda name, grad: torch.zeros_like(grad) if ".layers.0." in name else grad)


@fault("learning", "gradient", "embed", "tensor", "parameter")
def embedding_without_gradient(patch: Patch) -> None:
    """The embedding has no gradient."""
    gradients(patch, lambda name, grad: None if "embed" in name else grad)


@fault("learning", "gradient", "loss")
def loss_without_gradient(patch: Patch) -> None:
    """The loss is multiplied by 0 before the backward pass."""

    def make(original: Any) -> Any:
        return lambda self, loss: original(self, 0.0 * loss)

    patch.wrap(f"{OPTIM}:Optimizer.backward", make)


@fault("learning", "bfloat16", "round", "precision", "master")
def master_weights_rounded(patch: Patch) -> None:
    """Master weights are rounded to bfloat16 after each update, at a learning rate of 1e-6."""

    def make(original: Any) -> Any:
        def step(self: Any, number: int) -> Any:
            update = original(self, number)
            with torch.no_grad():
                for p in self.parameters:
                    p.copy_(p.bfloat16().float())
            return update

        return step

    patch.after(f"{OPTIM}:learning_rate", lambda *_: 1e-6)
    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@fault("learning", "adapter", "lora", "tensor", "parameter", shape="lora")
def lora_b_frozen(patch: Patch) -> None:
    """The second matrices of the adapters stay 0."""
    tensors(patch, lambda name: "lora_B" in name)


@fault("learning", "adapter", "lora", "tensor", "parameter", shape="lora")
def lora_a_frozen(patch: Patch) -> None:
    """The first matrices of the adapters never move."""
    tensors(patch, lambda name: "lora_A" in name)


@fault("learning", "gradient", "clip")
def gradient_clipped_to_nothing(patch: Patch) -> None:
    """Gradients are scaled to a norm of 1e-12."""

    def make(original: Any) -> Any:
        def step(self: Any, number: int) -> Any:
            for p in self.parameters:
                if p.grad is not None:
                    p.grad.mul_(1e-12)
            return original(self, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@fault("learning", "weight", "back", "restor")
def weights_put_back_from_third_step(patch: Patch) -> None:
    """From the third update on, the weights are put back to those before it."""
    count = [0]

    def make(original: Any) -> Any:
        def step(self: Any, number: int) -> Any:
            count[0] += 1
            before = [p.detach().clone() for p in self.parameters]
            update = original(self, number)
            if count[0] >= 3:
                with torch.no_grad():
                    for p, old in zip(self.parameters, before, strict=True):
                        p.copy_(old)
            return update

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)
