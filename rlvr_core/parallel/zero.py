"""ZeRO stage 2 by DeepSpeed: whole weights in each process, a part of gradient and moments.

DeepSpeed sums gradients over processes as they are made, and gathers the new weights after an
update. Everything between is ours: its optimizer is a bell that it rings when this process's part
of the gradient is there, and what answers is the guarded AdamW of ``optim``, over that part.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rlvr_core.api.errors import ConfigError
from rlvr_core.step.optim import Optimizer, Update

if TYPE_CHECKING:
    from rlvr_core.config.model import TrainSection

_BUCKET = 2**25
"""Elements of the gradient that are summed at once: 128 MiB."""


class ZeroOptimizer(Optimizer):
    """``Optimizer`` over this process's part of the parameters.

    DeepSpeed lays the parameters one after another, pads the end, and cuts the row into parts of
    equal length; the parameters become views of it.

    Args:
        module: Has the policy as ``model``, and its forward is what is differentiated.
        train: The config's train section.
        compute_dtype: Of the policy.

    Attributes:
        engine: DeepSpeed's: the module to call where a backward pass follows.
    """

    def __init__(self, module: Any, train: TrainSection, compute_dtype: torch.dtype) -> None:
        parameters = [one for one in module.model.parameters() if one.requires_grad]
        self._bell = _Bell(parameters)
        self.engine = _engine(module, self._bell)
        (group,) = self._bell.param_groups
        (self._part,) = group["params"]  # DeepSpeed has put it there
        super().__init__(module.model, train, compute_dtype, updated=[self._part])

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a micro-batch's loss; every process has to."""
        self.engine.backward(self.scaler.scale(loss))

    def step(self, step: int) -> Update:
        """See ``Optimizer``; every process has to ask."""
        updates: list[Update] = []
        self._bell.answer = lambda: updates.append(super(ZeroOptimizer, self).step(step))
        with warnings.catch_warnings():
            # newer torch has another name for what DeepSpeed gathers weights by
            warnings.simplefilter("ignore", FutureWarning)
            self.engine.step()
        (update,) = updates
        return update

    def _unscale_and_clip(self, clip: float) -> float:
        gradient = self._part.grad
        if self.scaler.is_enabled():
            # what overflowed in one part lowers the scale of every process
            finite = gradient.isfinite().all().int()
            dist.all_reduce(finite, dist.ReduceOp.MIN)
            if not finite:
                gradient.fill_(torch.inf)
        self.scaler.unscale_(self._adamw)
        squared = torch.linalg.vector_norm(gradient).double().square()
        dist.all_reduce(squared)
        norm = squared.sqrt().float()
        torch.nn.utils.clip_grads_with_norm_([self._part], clip, norm)
        return float(norm)

    def state_tensors(self, *, keep: bool = True) -> dict[str, Tensor]:
        """See ``Optimizer``; every process has to ask."""
        state = self._adamw.state.get(self._part, {})
        tensors = {}
        for name, parameter, own, ours in self._pieces():
            for key, value in state.items():
                full = value.clone()
                if value.shape == self._part.shape:
                    full = torch.zeros(parameter.numel(), dtype=value.dtype, device=value.device)
                    full[own] = value[ours]
                    dist.all_reduce(full)
                    full = full.view(parameter.shape)
                if keep:
                    tensors[f"{name}|{key}"] = full.cpu()
        return tensors

    def load_state_tensors(self, tensors: dict[str, Tensor]) -> None:
        """See ``Optimizer``; weights that were loaded before are taken over too.

        Raises:
            ConfigError: If the parameters were not all updated equally often.
        """
        by_name = self._by_name(tensors)
        state: dict[str, Tensor] = {}
        counts = {float(by_name.get(name, {}).get("step", -1)) for name in self.names}
        if len(counts) > 1:
            raise ConfigError(
                "the parameters were not all updated equally often, which zero2 cannot go on from",
                where="train.parallel",
                remedy="set train.parallel: ddp",
            )
        for name, _, own, ours in self._pieces():
            for key, value in by_name.get(name, {}).items():
                if value.ndim == 0:  # fused AdamW counts on the device
                    state[key] = value.clone().to(self._part.device)
                    continue
                part = state.setdefault(key, torch.zeros_like(self._part, requires_grad=False))
                part[ours] = value.flatten()[own].to(part.device)
        self._adamw.state[self._part] = state
        self.engine.optimizer.refresh_fp32_params()

    def _pieces(self) -> Iterator[tuple[str, Tensor, slice, slice]]:
        """Of each parameter, what of it is in this process's part, and where there."""
        for name, parameter in zip(self.names, self.parameters, strict=True):
            laid: Any = parameter
            own = ours = slice(0, 0)
            if laid._hp_mapping is not None:
                own = _slice(laid._hp_mapping.lp_fragment_address)
                ours = _slice(laid._hp_mapping.hp_fragment_address)
            yield name, parameter, own, ours


class _Bell(torch.optim.Optimizer):
    """What DeepSpeed takes for the optimizer of its part of the parameters."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 0.0})
        self.answer: Callable[[], None] = lambda: None

    def step(self, closure: Any = None) -> Any:
        """Call who waits for the gradient."""
        self.answer()


def quiet_deepspeed() -> None:
    """Let DeepSpeed log errors alone; also before its import, which warns on standard output."""
    logging.getLogger("DeepSpeed").addFilter(_is_error)  # its import sets the level anew


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _engine(module: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    os.environ.setdefault("DS_ACCELERATOR", device)
    quiet_deepspeed()
    import deepspeed
    from deepspeed.utils import groups

    # On a CPU it would compile a sum over shared memory, which waits forever for a process that has
    # gone; and a group of its own would wait longer than run.deadline. That nothing can be compiled
    # is said before it asks the compilers, and prints what they lack.
    deepspeed.ops.__compatible_ops__ = {}
    groups._WORLD_GROUP = dist.group.WORLD
    config = {
        "train_micro_batch_size_per_gpu": 1,
        # an update is due when step is called, and no gradient is divided but by the processes
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_clipping": 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": 2,
            "compute_grad_norm": False,
            "reduce_bucket_size": _BUCKET,
            "allgather_bucket_size": _BUCKET,
        },
    }
    engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=config)
    return engine


def _slice(address: Any) -> slice:
    return slice(address.start, address.start + address.numel)
