"""AdamW, its learning rate as a function of the step, and the guarded update."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rlvr_core.parallel.sharded import like, whole

if TYPE_CHECKING:
    from rlvr_core.config.model import TrainSection


def learning_rate(train: TrainSection, step: int) -> float:
    """Learning rate of a step, counted from 0.

    Linear from ``lr / warmup_steps`` over the warm-up, then constant, linear or half-cosine down
    to ``final_lr * lr`` at the last step. A pure function, so resuming needs no state.
    """
    if step < train.warmup_steps:
        return train.lr * (step + 1) / train.warmup_steps
    span = max(1, train.steps - 1 - train.warmup_steps)
    progress = min(1.0, (step - train.warmup_steps) / span)
    if train.schedule == "constant":
        return train.lr
    remaining = 1.0 - progress
    if train.schedule == "cosine":
        remaining = 0.5 * (1.0 + math.cos(math.pi * progress))
    return train.lr * (train.final_lr + (1.0 - train.final_lr) * remaining)


@dataclass(frozen=True, slots=True)
class Update:
    """What an optimizer step did.

    Attributes:
        grad_norm: Norm of the whole gradient before clipping; not finite when skipped.
        applied: False when the gradient was not finite and the weights stayed as they were.
        calibrating: Whether a skipped float16 step only lowered a loss scale that can go lower.
    """

    grad_norm: float
    applied: bool
    calibrating: bool = False


class Optimizer:
    """AdamW over one model, with loss scaling for float16 and non-finite gradients skipped.

    Args:
        model: The model.
        train: The config's train section.
        compute_dtype: Of the model's forward pass.
        updated: What AdamW updates, where it is not the model's parameters themselves.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        train: TrainSection,
        compute_dtype: torch.dtype,
        *,
        updated: Sequence[torch.Tensor] | None = None,
    ) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        self._train = train
        self._adamw = torch.optim.AdamW(
            self.parameters if updated is None else updated,
            lr=train.lr,
            betas=train.betas,
            eps=train.adam_eps,
            weight_decay=train.weight_decay,
            fused=True,
        )
        device = self.parameters[0].device.type
        self.scaler = torch.amp.GradScaler(device, enabled=compute_dtype == torch.float16)

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradient of a micro-batch's loss."""
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def step(self, step: int) -> Update:
        """Clip and apply the gathered gradient at the step's learning rate, then clear it.

        A gradient that is not finite is thrown away and the weights stay as they were.
        """
        for group in self._adamw.param_groups:
            group["lr"] = learning_rate(self._train, step)
        clip = math.inf if self._train.grad_clip is None else self._train.grad_clip
        grad_norm = self._unscale_and_clip(clip)
        applied = math.isfinite(grad_norm)
        scale = self.scaler.get_scale()
        if applied:
            self.scaler.step(self._adamw)
        self.scaler.update()
        # a norm can overflow where no gradient did, and then the scale is not the reason and stays
        calibrating = not applied and self.scaler.get_scale() < scale and scale > 1.0
        self._adamw.zero_grad(set_to_none=True)
        return Update(grad_norm, applied, calibrating)

    def _unscale_and_clip(self, clip: float) -> float:
        """The norm of the whole gradient before clipping."""
        self.scaler.unscale_(self._adamw)
        return float(whole(torch.nn.utils.clip_grad_norm_(self.parameters, clip)))

    def state_tensors(self, *, keep: bool = True) -> dict[str, torch.Tensor]:
        """Moments and step counts by parameter name, whole, for safetensors.

        With sharded parameters every process has to ask, and those that do not ``keep`` them get
        nothing.
        """
        tensors = {}
        for name, parameter in zip(self.names, self.parameters, strict=True):
            for key, value in self._adamw.state.get(parameter, {}).items():
                full = whole(torch.as_tensor(value).detach())
                if keep:
                    tensors[f"{name}|{key}"] = full.cpu().contiguous()
        return tensors

    def load_state_tensors(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take moments and step counts back; the inverse of ``state_tensors``."""
        by_name = self._by_name(tensors)
        for name, parameter in zip(self.names, self.parameters, strict=True):
            if name in by_name:
                self._adamw.state[parameter] = {
                    key: like(value.clone(), parameter)  # fused AdamW counts on the device
                    for key, value in by_name[name].items()
                }

    def _by_name(self, tensors: dict[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
        """What ``state_tensors`` gave, by parameter."""
        by_name: dict[str, dict[str, torch.Tensor]] = {}
        for full, value in tensors.items():
            name, _, key = full.rpartition("|")
            by_name.setdefault(name, {})[key] = value
        unknown = sorted(set(by_name) - set(self.names))
        if unknown:
            raise ValueError(f"optimizer state for parameters the model lacks: {unknown[:3]}")
        return by_name
