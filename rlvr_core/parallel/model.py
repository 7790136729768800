"""The policy over several processes: whole in each (DDP), or a part of it in each (FSDP2).

Accelerate brings the processes together and gives them their devices. The policy is wrapped by the
two torch functions that Accelerate itself would call, because its ``prepare`` also takes over the
optimizer and divides by accumulation steps, and both belong to the step, in the open.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import nn

from rlvr_core.api import ConfigError
from rlvr_core.parallel.ranks import Ranks

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rlvr_core.api.forward import RowSplit

Strategy = Literal["ddp", "fsdp"]
T = TypeVar("T")


class Computed(nn.Module):
    """Wraps a computation on a micro-batch as a module's forward: DDP and FSDP act on forward."""

    def __init__(self, model: PreTrainedModel, **options: Any) -> None:
        super().__init__()
        self.model = model
        # in a dict, a compiled body does not count as a part of this module
        self.options = options

    def forward(self, compute: Callable[..., Any], batch: Any, **more: Any) -> Any:
        """Call one of the functions of ``rlvr_core.step.forward``."""
        return compute(self.model, batch, **(self.options | more))


class ParallelModel:
    """Models that several processes compute together.

    Args:
        ranks: The processes.
        strategy: ``ddp`` or ``fsdp``.
        shard_size: Processes that a copy is split over; None for all of them.
        split: The processes that split each micro-batch with this one; None where each computes
            its own.

    Attributes:
        sharded: Whether each process has but a part of the weights.

    Raises:
        ConfigError: If ``shard_size`` does not divide their number.
    """

    def __init__(
        self,
        ranks: Ranks,
        strategy: Strategy,
        shard_size: int | None = None,
        split: RowSplit | None = None,
    ) -> None:
        self.ranks, self._split = ranks, split
        self.sharded = strategy == "fsdp"
        self._shard_size = shard_size or ranks.world
        if ranks.world % self._shard_size:
            fits = [n for n in range(1, ranks.world + 1) if ranks.world % n == 0]
            raise ConfigError(
                f"train.shard_size {shard_size} does not divide the {ranks.world} processes",
                where="train.shard_size",
                remedy=f"one of {', '.join(map(str, fits))}, or another number of processes",
            )
        self._modules: dict[Any, Any] = {}

    def add(self, model: PreTrainedModel, *, trained: bool, **options: Any) -> None:
        """Take a model in; ``options`` are for whatever is computed of it.

        With ``fsdp``, its parameters become sharded ones: an optimizer is to be made afterwards.
        """
        module = Computed(model, **options)
        if self._split is not None:
            self._split.admit(model)
        if self.sharded:
            from rlvr_core.parallel.fsdp.sharding import shard

            dtype = options.get("autocast_dtype")
            module.options["autocast_dtype"] = shard(module, model, dtype, self._shard_size)
            self._modules[model] = module
        elif trained:
            from torch.nn.parallel import DistributedDataParallel

            with warnings.catch_warnings():
                # older torch has no other word for it than the one newer torch warns of
                warnings.simplefilter("ignore", FutureWarning)
                # buffers are the same everywhere: nothing that is trained changes them
                self._modules[model] = DistributedDataParallel(
                    module, broadcast_buffers=False, gradient_as_bucket_view=True
                )
        else:
            self._modules[model] = module

    def compute(
        self, compute: Callable[..., T], model: PreTrainedModel, batch: Any, **more: Any
    ) -> T:
        """Call ``compute`` on a micro-batch under a model that was added. A collective."""
        module = self._modules[model]
        if self._split is not None:
            compute = self._split.shared(compute)
        result: T = module(compute, batch, **more)
        if self.sharded and not torch.is_grad_enabled():
            module.reshard()  # no backward pass comes that would
        return result

    def idle(self, count: int) -> int:
        """Return how many idle micro-batches this process has to add. A collective.

        A forward pass under FSDP needs all processes, so each computes as many micro-batches as
        the one with most; DDP needs one of each process.

        Args:
            count: How many it has.
        """
        most = max(self.ranks.gather(count))
        return max(0, (most if self.sharded else min(1, most)) - count)

    @contextlib.contextmanager
    def accumulating(self, model: PreTrainedModel, *, last: bool) -> Iterator[None]:
        """Around forward and backward pass of a micro-batch.

        DDP sums gradients over processes with the last one alone. FSDP does it with each, so that
        no process ever holds more than its part.
        """
        if self.sharded or last:
            yield
            return
        with self._modules[model].no_sync():
            yield
