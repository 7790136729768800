"""Attention of one process's packed tokens to keys and values of all processes of its group.

Keys and values are gathered for one layer at a time, and their gradients, which every process has a
part of, are summed where they came from: in float32.

Dimensions: n tokens of this process, C processes, W = most tokens of one, h heads, D head
dimension, R pieces, Q most tokens of a piece, K most keys of one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from rlvr_cluster.context.split import Split, bounds
from rlvr_core.api import MicroBatch
from rlvr_core.packing.attention_mask import (
    AttentionMask,
    HeadSizes,
    VarlenMask,
    takes_flash,
)


@dataclass(frozen=True, slots=True)
class ContextMask:
    """An ``AttentionMask`` of this process's tokens.

    Attributes:
        inner: Who sees whom: queries of this process, keys as they are gathered.
        most: Tokens of the process with most.
        processes: The group.
    """

    inner: AttentionMask
    most: int
    processes: Any

    @classmethod
    def of(
        cls,
        split: Split,
        batch: MicroBatch,
        dtype: torch.dtype,
        heads: Collection[HeadSizes],
        processes: Any,
    ) -> ContextMask:
        """The flash kernel where it works, else grids."""
        device = batch.mask_BT.device
        flash = takes_flash(device, dtype, heads)
        inner: AttentionMask = _varlen(split, batch) if flash else PieceGrids.of(split, batch)
        return cls(inner, split.most, processes)

    def attend(self, q_nhD: Tensor, k_nhD: Tensor, v_nhD: Tensor, scale: float) -> Tensor:
        """See ``AttentionMask``. A collective, as is its backward pass."""
        n, D = len(k_nhD), k_nhD.shape[2]
        both_nhD = F.pad(torch.cat([k_nhD, v_nhD], dim=2), (0, 0, 0, 0, 0, self.most - n))
        gathered: Tensor = _Gather.apply(both_nhD.contiguous(), self.processes)  # type: ignore[no-untyped-call]
        return self.inner.attend(q_nhD, gathered[..., :D], gathered[..., D:], scale)


def _varlen(split: Split, batch: MicroBatch) -> VarlenMask:
    return VarlenMask(
        keys_M=batch.send(split.gathered_keys()),
        first_query_R1=batch.send(bounds(split.query_len_R).int()),
        first_key_R1=batch.send(bounds(split.key_len_R).int()),
        most_queries=int(split.query_len_R.max()),
        most_keys=int(split.key_len_R.max()),
    )


@dataclass(frozen=True, slots=True)
class PieceGrids:
    """Pieces side by side for ``scaled_dot_product_attention``, padded.

    Attributes:
        query_RQ: Place of each piece's tokens; any place on padding.
        key_RK: Gathered place of its keys.
        visible_R1QK: Which of them a token sees: those up to its own, which is the last for the
            last token. Padding sees what there is, as a row that sees nothing would be NaN.
        slot_n: Place of each token in the flat grid of queries.
    """

    query_RQ: Tensor
    key_RK: Tensor
    visible_R1QK: Tensor
    slot_n: Tensor

    @classmethod
    def of(cls, split: Split, batch: MicroBatch) -> PieceGrids:
        """Of a process's tokens, on the device of the micro-batch."""
        q_R, k_R = split.query_len_R, split.key_len_R
        is_query_RQ = torch.arange(int(q_R.max())) < q_R[:, None]
        is_key_RK = torch.arange(int(k_R.max())) < k_R[:, None]
        query_RQ, key_RK = torch.zeros_like(is_query_RQ).long(), torch.zeros_like(is_key_RK).long()
        query_RQ[is_query_RQ] = torch.arange(len(split.own_n))
        key_RK[is_key_RK] = split.gathered_keys()
        send = batch.send
        last_RQ = send((k_R - q_R)[:, None] + torch.arange(is_query_RQ.shape[1]))
        key_K = torch.arange(is_key_RK.shape[1], device=last_RQ.device)
        return cls(
            query_RQ=send(query_RQ),
            key_RK=send(key_RK),
            visible_R1QK=((key_K <= last_RQ[..., None]) & send(is_key_RK)[:, None])[:, None],
            slot_n=send(is_query_RQ.flatten().nonzero()[:, 0]),
        )

    def attend(self, q_nhD: Tensor, k_NhD: Tensor, v_NhD: Tensor, scale: float) -> Tensor:
        """See ``AttentionMask``; keys and values are those of the whole group."""
        shared = q_nhD.shape[1] // k_NhD.shape[1]

        def keys(x_NhD: Tensor) -> Tensor:
            wide = torch.promote_types(x_NhD.dtype, torch.float32)  # for sums of gradients
            gathered = x_NhD.to(wide)[self.key_RK].to(x_NhD.dtype).transpose(1, 2)
            return gathered if shared == 1 else gathered.repeat_interleave(shared, 1)

        out_RhQD = F.scaled_dot_product_attention(
            q_nhD[self.query_RQ].transpose(1, 2),
            keys(k_NhD),
            keys(v_NhD),
            attn_mask=self.visible_R1QK,
            scale=scale,
        )
        return out_RhQD.transpose(1, 2).flatten(0, 1)[self.slot_n]


def _collective(name: str, older: str) -> Any:
    """Return a collective by its name since torch 2.13, which warns of the older one."""
    return getattr(dist, name, None) or getattr(dist, older)


class _Gather(torch.autograd.Function):
    """(W, ...) of each process behind one another, (C W, ...); back, the sum of all gradients."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, processes: Any) -> Tensor:
        ctx.processes = processes
        whole = values.new_empty(processes.size() * len(values), *values.shape[1:])
        gather = _collective("all_gather_single", "all_gather_into_tensor")
        gather(whole, values, group=processes)
        return whole

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        wide = grad.to(torch.promote_types(grad.dtype, torch.float32)).contiguous()
        summed = wide.new_empty(len(wide) // ctx.processes.size(), *wide.shape[1:])
        scatter = _collective("reduce_scatter_single", "reduce_scatter_tensor")
        scatter(summed, wide, group=ctx.processes)
        return summed.to(grad.dtype), None
