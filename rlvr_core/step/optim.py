"""The learning rate of a step, AdamW, and the guarded update around any optimizer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field

from rlvr_core.api import ComponentConfig, NoConfig, OptimizerTraits, TrainedParameter
from rlvr_core.parallel.sharded import is_sharded, like, whole
from rlvr_core.record.metrics import misuse

if TYPE_CHECKING:
    from rlvr_core.api import OptimizerBuilder, Schedule
    from rlvr_core.config.model import TrainSection


class Constant:
    """1 throughout."""

    Config = NoConfig

    def __init__(self, config: NoConfig) -> None: ...

    def __call__(self, progress: float) -> float:
        """See ``Schedule``."""
        return 1.0


def learning_rate(train: TrainSection, schedule: Schedule, step: int) -> float:
    """Learning rate of a step, counted from 0.

    Linear from ``lr / warmup_steps`` over the warm-up, then as the schedule has it. A pure
    function, so resuming needs no state.

    Raises:
        PluginError: If the schedule gives no share of the peak.
    """
    if step < train.warmup_steps:
        return train.lr * (step + 1) / train.warmup_steps
    span = max(1, train.steps - 1 - train.warmup_steps)
    progress = min(1.0, (step - train.warmup_steps) / span)
    share: Any = schedule(progress)
    try:
        if 0.0 <= float(share) < math.inf:
            return train.lr * float(share)
    except (TypeError, ValueError, RuntimeError):
        pass
    what = f"gave {share!r} at progress {progress:g}, not a share of at least 0"
    raise misuse(schedule, what, "give a finite number")


Beta = Annotated[float, Field(ge=0.0, lt=1.0)]


class AdamWConfig(ComponentConfig):
    """Options of every AdamW."""

    betas: tuple[Beta, Beta] = (0.9, 0.999)
    """Decay rates of the mean of the gradient and of its square."""
    eps: Annotated[float, Field(gt=0)] = 1e-5
    """Added to the denominator; 1e-8 and less has diverged in half precision."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay, times the learning rate."""


class AdamW:
    """Adam with decoupled weight decay, Loshchilov and Hutter, arXiv:1711.05101."""

    Config = AdamWConfig
    traits = OptimizerTraits(elementwise=True)

    def __init__(self, config: AdamWConfig) -> None:
        self.config = config

    def build(self, parameters: Sequence[TrainedParameter], lr: float) -> torch.optim.Optimizer:
        """See ``OptimizerBuilder``."""
        return torch.optim.AdamW(
            [parameter.tensor for parameter in parameters],
            lr=lr,
            betas=self.config.betas,
            eps=self.config.eps,
            weight_decay=self.config.weight_decay,
            fused=True,
        )


@dataclass(frozen=True, slots=True)
class Update:
    """The result of one optimizer update.

    Attributes:
        grad_norm: Norm of the whole gradient before clipping; not finite when skipped.
        applied: False when the gradient was not finite and the weights stayed as they were.
        calibrating: Whether a skipped float16 step only lowered a loss scale that can go lower.
    """

    grad_norm: float
    applied: bool
    calibrating: bool = False


class Optimizer:
    """An optimizer over one model, with loss scaling for float16 and non-finite gradients skipped.

    Args:
        model: The model.
        train: The config's train section.
        compute_dtype: Of the model's forward pass.
        builder: Makes the optimizer.
        schedule: How the learning rate goes on after the warm-up.

    Attributes:
        inner: What the builder built.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        train: TrainSection,
        compute_dtype: torch.dtype,
        builder: OptimizerBuilder,
        schedule: Schedule,
    ) -> None:
        parameters = trained_parameters(model)
        self.names = [parameter.name for parameter in parameters]
        self.parameters = [parameter.tensor for parameter in parameters]
        self._train = train
        self.schedule = schedule
        self.builder = builder
        self.inner = builder.build(parameters, train.lr)
        good = isinstance(self.inner, torch.optim.Optimizer)
        groups = self.inner.param_groups if good else []
        # a gradient that no optimizer clears would pile up
        if {parameter for group in groups for parameter in group["params"]} != {*self.parameters}:
            what = f"built a {type(self.inner).__name__}, no torch.optim.Optimizer of what it got"
            raise misuse(builder, what, "give an optimizer all tensors it is given, and no others")
        device = self.parameters[0].device.type
        self.scaler = torch.amp.GradScaler(device, enabled=compute_dtype == torch.float16)

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradient of a micro-batch's loss."""
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def learning_rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        return learning_rate(self._train, self.schedule, step)

    def step(self, step: int) -> Update:
        """Clip and apply the gathered gradient at the step's learning rate, then clear it.

        A gradient that is not finite is thrown away and the weights stay as they were.
        """
        rate = self.learning_rate(step)
        for group in self.inner.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        clip = math.inf if self._train.max_grad_norm is None else self._train.max_grad_norm
        self.scaler.unscale_(self.inner)
        grad_norm = float(whole(torch.nn.utils.clip_grad_norm_(self.parameters, clip)))
        applied = math.isfinite(grad_norm)
        # not scaler.step: it would synchronise again to check for infs, which the norm shows
        if applied:
            self.inner.step()
        scale = 1.0 if applied else self.scaler.get_scale()
        self.scaler.update()
        # a norm can overflow where no gradient did, and then the scale is not the reason and stays
        calibrating = scale > 1.0 and self.scaler.get_scale() < scale
        self.inner.zero_grad(set_to_none=True)
        return Update(grad_norm, applied, calibrating)

    def state_tensors(self) -> dict[str, torch.Tensor]:
        """The optimizer's state by parameter name, for safetensors; sharded where parameters are.

        Raises:
            PluginError: If the optimizer keeps what is neither a tensor nor a number.
        """
        tensors = {}
        for name, parameter in zip(self.names, self.parameters, strict=True):
            for key, value in self.inner.state.get(parameter, {}).items():
                try:
                    tensors[f"{name}|{key}"] = torch.as_tensor(value)
                except (TypeError, ValueError, RuntimeError) as error:
                    what = f"keeps {value!r:.80} as {key!r}, which no checkpoint can hold"
                    raise misuse(self.builder, what, "keep tensors and numbers") from error
        return tensors

    def load_state_tensors(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take the state back; the inverse of ``state_tensors``."""
        by_name: dict[str, dict[str, torch.Tensor]] = {}
        for full, value in tensors.items():
            name, _, key = full.rpartition("|")
            by_name.setdefault(name, {})[key] = value
        parameters = dict(zip(self.names, self.parameters, strict=True))
        if unknown := sorted(by_name.keys() - parameters.keys()):
            raise ValueError(f"optimizer state for parameters the model lacks: {unknown[:3]}")
        for name, state in by_name.items():
            parameter = parameters[name]
            self.inner.state[parameter] = {k: _restored(v, parameter) for k, v in state.items()}


def trained_parameters(model: torch.nn.Module) -> list[TrainedParameter]:
    """Return the trained parameters in the model's order; a tied parameter once."""
    from transformers import PreTrainedModel

    outer: list[Any] = [
        module for module in model.modules() if isinstance(module, torch.nn.Embedding)
    ]
    if isinstance(model, PreTrainedModel):
        outer.append(model.get_output_embeddings())  # type: ignore[no-untyped-call]
    places = {id(module.weight) for module in outer if module is not None}
    return [
        TrainedParameter(name, tensor, tensor.ndim == 2 and id(tensor) not in places)
        for name, tensor in model.named_parameters()
        if tensor.requires_grad
    ]


def _restored(value: torch.Tensor, parameter: torch.Tensor) -> Any:
    """Restore a saved state value: an integer as an integer, a tensor on its device."""
    if value.ndim == 0 and value.dtype == torch.int64:
        return int(value)
    # fused AdamW counts on the device
    return like(value if is_sharded(value) else value.clone(), parameter)
