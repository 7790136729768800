"""Context parallelism: the tokens of a micro-batch split over processes (train.context_parallel).

The processes of a group train on the same micro-batches. Each computes the layers, the LM head and
the log-probs of its own tokens (``split``); attention gathers keys and values
(``attention``), and at the end log-probs are put together again, so that every process of
the group has those of all tokens.

The loss counts in the first process of a group alone, times 0 in the others. What arrives at the
log-probs is therefore summed over the group, and so each parameter has in each process the part of
the gradient that comes through that process's tokens. DDP and FSDP sum the parts over all
processes, as if these had nothing in common: that is the gradient, and no factor is left over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from rlvr_cluster.context.attention import ContextMask
from rlvr_cluster.context.split import Split
from rlvr_core.api import Complaint, ConfigError, MicroBatch
from rlvr_core.api.forward import ModelAdapter
from rlvr_core.packing.packed import (
    heads_of,
    packed_tokens,
    padded_because,
    predictors,
)
from rlvr_core.parallel import ranks
from rlvr_core.step.forward_paths import choose_forward_paths

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rlvr_core.config.model import RunConfig

PATH = "cluster/context-parallel"
WHERE = "train.context_parallel"
_SLACK = 60.0
"""Seconds above ``run.timeout``, as for the other waits of processes for each other."""


@dataclass(frozen=True, slots=True)
class Group:
    """Processes in a row that share micro-batches.

    Attributes:
        index: This process, counted from 0 within the group.
        size: How many there are.
        processes: Connects them.
    """

    index: int
    size: int
    processes: Any


_ACTIVE: ContextVar[Group | None] = ContextVar("context_parallel", default=None)
"""The group whose processes all compute the current micro-batch; None for a process's own pass."""


class ContextParallel:
    """See ``RowSplit``: this process as one of its group.

    Args:
        config: The run's configuration.

    Attributes:
        group: Set by ``connect``.

    Raises:
        ConfigError: If other settings rule it out.
    """

    group: Group

    def __init__(self, config: RunConfig) -> None:
        if faults := setting_faults(config):
            raise ConfigError.collect(faults)
        self._size = config.train.context_parallel
        self._timeout = timedelta(seconds=config.run.timeout + _SLACK)
        self._paths = config.model.forward_paths

    def connect(self) -> None:
        """See ``RowSplit``."""
        if faults := group_faults(self._size):
            raise ConfigError.collect(faults)
        processes, _ = dist.new_subgroups(  # type: ignore[no-untyped-call]
            self._size, timeout=self._timeout
        )
        self.group = Group(dist.get_rank() % self._size, self._size, processes)

    def admit(self, model: PreTrainedModel) -> None:
        """See ``RowSplit``."""
        if not heads_of(model):
            why = padded_because(model) or "packed rows do not give what whole rows give"
            raise ConfigError(
                f"the tokens of a {type(model).__name__} cannot be split over processes: {why}",
                where=WHERE,
                remedy="set it to 1; rlvr docs speed says which models are trained on packed rows",
            )
        choose_forward_paths(model, (PATH, *self._paths))

    def shared(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """See ``RowSplit``."""

        def together(model: Any, batch: MicroBatch, **options: Any) -> Any:
            mask_BT = own_mask(batch, self.group)
            host = replace(batch.host, mask_BT=mask_BT, on_host=None)
            on_device = None if batch.on_host is None else host
            part = replace(batch, mask_BT=batch.send(mask_BT), on_host=on_device)
            with _active(self.group):
                return put_together(compute(model, part, **options), part.mask_BT, self.group)

        return together


def setting_faults(config: RunConfig) -> list[Complaint]:
    """What ``train.context_parallel`` does not go together with, whatever the processes."""
    model, lora, faults = config.model, config.model.lora, {}
    if config.train.compile:
        faults["train.compile"] = (
            "a compiled model does not exchange keys and values",
            "set train.compile: false",
        )
    if model.attention != "sdpa":
        faults["model.attention"] = (
            f"keys and values are exchanged by the attention sdpa, not by {model.attention}",
            "set model.attention: sdpa",
        )
    if "core/packed" not in model.forward_paths:
        faults["model.forward_paths"] = (
            "it splits packed rows, and model.forward_paths has no core/packed",
            "leave model.forward_paths out",
        )
    if lora is not None and lora.dropout > 0:
        faults["model.lora.dropout"] = (
            "which values are dropped would depend on how tokens are split",
            "set model.lora.dropout: 0",
        )
    return [
        Complaint(f"{WHERE}: {what}", where, (remedy, f"or set {WHERE}: 1"))
        for where, (what, remedy) in faults.items()
    ]


def group_faults(size: int) -> list[Complaint]:
    """Why the processes do not divide into groups of ``size``.

    Returns:
        One complaint, or none.
    """
    world = ranks.count()
    if world % size == 0:
        return []
    what = "1 process does" if world == 1 else f"{world} processes do"
    launch = f"rlvr launch --processes {-(-world // size) * size}, or another multiple of {size}"
    fits = ", ".join(str(n) for n in range(1, world + 1) if world % n == 0)
    return [
        Complaint(
            f"{what} not divide into groups of {size} that split rows",
            WHERE,
            (launch, f"or set {WHERE} to {fits}"),
        )
    ]


def own_mask(batch: MicroBatch, group: Group) -> Tensor:
    """(B, T) the loss tokens of a micro-batch that this process computes; on the CPU."""
    host = batch.host
    owner_M = Split.of(batch, group.index, group.size).owner_N[predictors(host)]
    own_BT = torch.zeros_like(host.mask_BT)
    return own_BT.masked_scatter_(host.mask_BT, owner_M == group.index)


def put_together(outputs: Any, mask_BT: Tensor, group: Group) -> Any:
    """Sum what each process found at its own loss tokens; a collective, as is its backward pass."""
    flat, tree = tree_flatten(outputs)
    places = [i for i, value in enumerate(flat) if value.is_floating_point()]
    mine = [torch.where(_wide_as(mask_BT, flat[i]), flat[i], 0.0) for i in places]
    if mine:
        # one collective: several could meet in another order in the backward pass
        dtype = reduce(torch.promote_types, (value.dtype for value in mine))
        joined = torch.cat([value.to(dtype).flatten() for value in mine])
        whole: Tensor = _Sum.apply(joined, group.processes)  # type: ignore[no-untyped-call]
        parts = torch.split(whole, [value.numel() for value in mine])
        for place, value, part in zip(places, mine, parts, strict=True):
            # a copy: FSDP puts no hook on a view
            flat[place] = part.view_as(value).to(value.dtype, copy=True)
    return tree_unflatten(flat, tree)


def _wide_as(mask_BT: Tensor, value: Tensor) -> Tensor:
    return mask_BT.view(*mask_BT.shape, *[1] * (value.ndim - 2))


class _Sum(torch.autograd.Function):
    """The sum over the processes, in each; back, the sum of what each makes of it."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, processes: Any) -> Tensor:
        ctx.processes = processes
        whole = values.clone()
        dist.all_reduce(whole, group=processes)
        return whole

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        whole = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(whole, group=ctx.processes)
        return whole, None


@contextmanager
def _active(group: Group) -> Iterator[None]:
    token = _ACTIVE.set(group)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


def find_context(model: PreTrainedModel, adapter: ModelAdapter) -> ContextPath | None:
    """See ``ForwardPathFactory``: the way where a group computes, and there alone."""
    group = _ACTIVE.get()
    return None if group is None else ContextPath(model, group)


@dataclass(frozen=True, slots=True)
class ContextPath:
    """See ``ForwardPath``.

    Attributes:
        model: Has been admitted.
        group: Computes the micro-batch.
    """

    model: Any
    group: Group

    def predict(
        self, batch: MicroBatch, module: Any, *, dtype: torch.dtype, compiled: bool
    ) -> Tensor:
        """See ``ForwardPath``; the loss tokens are those of ``own_mask``."""
        split = Split.of(batch, self.group.index, self.group.size)
        mask = ContextMask.of(split, batch, dtype, heads_of(self.model), self.group.processes)
        own_n = batch.send(split.own_n)
        ids_N, position_N = packed_tokens(batch)
        output = module(
            input_ids=ids_N[own_n][None],
            # transformers makes no mask of its own where it is given one of four dimensions
            attention_mask=torch.ones(1, 1, 1, 1, dtype=torch.bool, device=ids_N.device),
            position_ids=position_N[own_n][None],
            use_cache=False,
            packed_mask=mask,
        )
        predicted_1n: Tensor = output[0]
        return predicted_1n[0, batch.send(split.place_N[predictors(batch.host)])]
