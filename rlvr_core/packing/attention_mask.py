"""Attention of packed tokens: a completion sees its prompt and itself, a prompt sees itself.

Outside attention there is no padding, and every prompt is there once. There are three ways: two
kernels joined on a CPU (``joined_attention``); on a GPU in half precision one call of the flash
kernel for varying lengths; and in any other case two grids.

Dimensions: N packed tokens (first the prompts', then the completions'), S prompts, P prompt
positions, B rows, T completion positions, K = P + T keys, R = S + B sequences, h heads, D head
dimension.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from rlvr_core.api import MicroBatch, one_line
from rlvr_core.packing.joined_attention import JoinedMask
from rlvr_core.step.batch import Row, micro_batches


def _flash_kernel() -> Any:
    """Attention of sequences of varying length; None before torch 2.10, where grids are the way."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn


_FLASH = _flash_kernel()
_NAMES_GROUPS = _FLASH is not None and "enable_gqa" in inspect.signature(_FLASH).parameters
"""Whether torch needs a flag for fewer key heads; 2.10 and 2.11 accept them without it."""
_ALIGNED = 8
"""Entries of a mask that its rows begin at a multiple of; a GPU would copy another."""
_OTHER_FORMS = ("softcap", "sliding_window", "s_aux", "position_bias", "cache")
"""Arguments of some models' attention that are not supported here."""


class AttentionMask(Protocol):
    """The packed tokens that each token of a micro-batch attends to."""

    def attend(self, q_NhD: Tensor, k_NhD: Tensor, v_NhD: Tensor, scale: float) -> Tensor:
        """Attention, (N, h, D); keys and values may have fewer heads. Differentiable."""


class HeadSizes(NamedTuple):
    """Sizes of a layer's attention."""

    queries: int
    keys: int
    dim: int
    value_dim: int


def attention_mask_of(
    batch: MicroBatch, dtype: torch.dtype, heads: Collection[HeadSizes], *, compiled: bool
) -> AttentionMask:
    """The fastest way there is.

    Args:
        batch: On its device.
        dtype: What attention is computed in.
        heads: Sizes that the model's layers have.
        compiled: Whether the model is: grids have one form for all batches, and hardly ever another
            graph.
    """
    device = batch.prompt_len_S.device
    if device.type == "cpu":
        joined = not compiled and all(sizes.dim == sizes.value_dim for sizes in heads)
        return JoinedMask.of(batch) if joined else GridMask.of(batch)
    if takes_flash(device, dtype, heads):
        return VarlenMask.of(batch)
    return GridMask.of(batch, dtype)


@dataclass(frozen=True, slots=True)
class GridMask:
    """Prompts and completions side by side for ``scaled_dot_product_attention``, padded there.

    Attributes:
        prompt_SP: Packed place of each prompt's tokens; any place on padding.
        row_BT: The same of each row's tokens; one column at least.
        keys_BK: Of each row's keys: its prompt's, then its own.
        query_Q: Those of prompts and rows behind each other, flat.
        key_M: Those of prompts and rows' keys behind each other, flat.
        mask_B1TK: Which of its keys a row's token sees; or what is added to its scores.
        slot_N: Place of each token in ``query_Q``.
    """

    prompt_SP: Tensor
    row_BT: Tensor
    keys_BK: Tensor
    query_Q: Tensor
    key_M: Tensor
    mask_B1TK: Tensor
    slot_N: Tensor

    @classmethod
    def of(cls, batch: MicroBatch, dtype: torch.dtype | None = None) -> GridMask:
        """Make the mask of a micro-batch, on its device.

        Args:
            batch: It.
            dtype: What attention is computed in; for a mask that a GPU's kernel takes as it is,
                which it would otherwise make anew in each layer, and keep.
        """
        is_prompt_SP, is_row_BT = batch.prompt_places(), batch.fed_places()
        if is_row_BT.shape[1] == 0:
            is_row_BT = F.pad(is_row_BT, (0, 1))
        T = is_row_BT.shape[1]
        prompt_SP = _numbered(is_prompt_SP)
        row_BT = torch.where(is_row_BT, is_prompt_SP.sum() + _numbered(is_row_BT), 0)
        of_B = batch.prompt_of_row_B
        keys_BK = torch.cat([prompt_SP[of_B], row_BT], dim=1)
        # an empty grid of rows has one column of padding, which is no place
        places = [batch.host.prompt_places(), batch.host.fed_places()]
        before_TT = torch.ones(T, T, dtype=torch.bool, device=of_B.device).tril()
        far_BTP = is_prompt_SP[of_B][:, None].expand(-1, T, -1)
        own_BTT = is_row_BT[:, None] & before_TT
        visible_B1TK = torch.cat([far_BTP, own_BTT], dim=2)[:, None]
        return cls(
            prompt_SP=prompt_SP,
            row_BT=row_BT,
            keys_BK=keys_BK,
            query_Q=torch.cat([prompt_SP.flatten(), row_BT.flatten()]),
            key_M=torch.cat([prompt_SP.flatten(), keys_BK.flatten()]),
            mask_B1TK=visible_B1TK if dtype is None else _added(visible_B1TK, dtype),
            slot_N=batch.send(torch.cat([present.flatten() for present in places]).nonzero()[:, 0]),
        )

    def attend(self, q_NhD: Tensor, k_NhD: Tensor, v_NhD: Tensor, scale: float) -> Tensor:
        """See ``AttentionMask``; on any device, in any precision."""
        shared = q_NhD.shape[1] // k_NhD.shape[1]
        k_MhD, v_MhD = _gathered(k_NhD, v_NhD, self.key_M)
        if shared > 1:  # of fewer key heads a GPU would hold all scores
            k_MhD, v_MhD = (x.repeat_interleave(shared, 1) for x in (k_MhD, v_MhD))
        q_ShPD, q_BhTD = self._grids(q_NhD[self.query_Q], self.row_BT)
        k_ShPD, k_BhKD = self._grids(k_MhD, self.keys_BK)
        v_ShPD, v_BhKD = self._grids(v_MhD, self.keys_BK)
        mask_B1TK = self.mask_B1TK
        if mask_B1TK.dtype != torch.bool:
            mask_B1TK = mask_B1TK.to(q_NhD.dtype)
        prompts_ShPD = F.scaled_dot_product_attention(
            q_ShPD, k_ShPD, v_ShPD, is_causal=True, scale=scale
        )
        rows_BhTD = F.scaled_dot_product_attention(
            q_BhTD, k_BhKD, v_BhKD, attn_mask=mask_B1TK, scale=scale
        )
        flat = [x.transpose(1, 2).flatten(0, 1) for x in (prompts_ShPD, rows_BhTD)]
        return torch.cat(flat)[self.slot_N]

    def _grids(self, flat_hD: Tensor, rows_BX: Tensor) -> list[Tensor]:
        """The prompts' part of a flat list and the rows', each as (sequences, h, width, D)."""
        places = self.prompt_SP, rows_BX
        parts = torch.split(flat_hD, [place.numel() for place in places])
        return [
            part.view(*place.shape, *part.shape[1:]).transpose(1, 2)
            for part, place in zip(parts, places, strict=True)
        ]


def _added(visible_B1TK: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a key is seen, else minus infinity; rows begin where a GPU's kernel wants them."""
    *rows, K = visible_B1TK.shape
    room = visible_B1TK.new_zeros(*rows, K + -K % _ALIGNED, dtype=dtype)
    return room[..., :K].masked_fill_(~visible_B1TK, -torch.inf)


def _gathered(k_NhD: Tensor, v_NhD: Tensor, place_M: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values at their places; a prompt's gradients of all its rows add up in float32."""
    if torch.compiler.is_compiling():  # casts are part of other kernels there
        wide = torch.promote_types(k_NhD.dtype, torch.float32)
        k_MhD, v_MhD = (x.to(wide)[place_M].to(x.dtype) for x in (k_NhD, v_NhD))
        return k_MhD, v_MhD
    gathered: tuple[Tensor, Tensor] = _Gather.apply(k_NhD, v_NhD, place_M)  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, k_NhD: Tensor, v_NhD: Tensor, place_M: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(place_M)
        ctx.n, ctx.dim = len(k_NhD), k_NhD.shape[2]
        return k_NhD[place_M], v_NhD[place_M]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, k_MhD: Tensor, v_MhD: Tensor) -> tuple[Tensor, Tensor, None]:
        (place_M,) = ctx.saved_tensors
        # a GPU sorts the places before it adds: once for both
        both_MhD = _side_by_side(k_MhD, v_MhD)
        sum_NhD = both_MhD.new_zeros(ctx.n, *both_MhD.shape[1:])
        sum_NhD.index_put_((place_M,), both_MhD, accumulate=True)
        del both_MhD  # of rows that are split it is the most there is
        k_NhD, v_NhD = sum_NhD[..., : ctx.dim], sum_NhD[..., ctx.dim :]
        return k_NhD.to(k_MhD.dtype), v_NhD.to(v_MhD.dtype), None


def _side_by_side(k_MhD: Tensor, v_MhD: Tensor) -> Tensor:
    """Both behind each other in their last dimension, in float32 at least."""
    wide = torch.promote_types(k_MhD.dtype, torch.float32)
    if wide == k_MhD.dtype:
        return torch.cat([k_MhD, v_MhD], dim=2)
    D = k_MhD.shape[2]
    both_MhD = k_MhD.new_empty(*k_MhD.shape[:2], D + v_MhD.shape[2], dtype=wide)
    both_MhD[..., :D].copy_(k_MhD)
    both_MhD[..., D:].copy_(v_MhD)
    return both_MhD


def _numbered(present: Tensor) -> Tensor:
    """The number of each True entry among them all, row by row; 0 elsewhere."""
    return torch.where(present, present.flatten().cumsum(0).view_as(present) - 1, 0)


@dataclass(frozen=True, slots=True)
class VarlenMask:
    """Sequences of varying length for the flash kernel: the prompts, then the rows.

    Attributes:
        keys_M: Packed place of every key, each row's prompt before its own.
        first_query_R1: Where the queries of each sequence begin, and where the last ends; int32.
        first_key_R1: The same of its keys.
        most_queries: Of one sequence.
        most_keys: Of one sequence.
    """

    keys_M: Tensor
    first_query_R1: Tensor
    first_key_R1: Tensor
    most_queries: int
    most_keys: int

    @classmethod
    def of(cls, batch: MicroBatch) -> VarlenMask:
        """Make the mask of a micro-batch, on its device; a lone token has no query."""
        host = batch.host  # lengths are known there, and no device is waited for
        is_prompt_SP, is_row_BT = host.prompt_places(), host.fed_places()
        of_B, n_prompt = host.prompt_of_row_B, int(is_prompt_SP.sum())
        place_BK = torch.cat(
            [_numbered(is_prompt_SP)[of_B], n_prompt + _numbered(is_row_BT)], dim=1
        )
        seen_BK = torch.cat([is_prompt_SP[of_B], is_row_BT], dim=1)
        query_R = torch.cat([host.prompt_len_S, host.fed_lengths()])
        key_R = torch.cat([host.prompt_len_S, host.prompt_len_S[of_B] + host.fed_lengths()])
        return cls(
            keys_M=batch.send(torch.cat([torch.arange(n_prompt), place_BK[seen_BK]])),
            first_query_R1=batch.send(F.pad(query_R.cumsum(0), (1, 0)).int()),
            first_key_R1=batch.send(F.pad(key_R.cumsum(0), (1, 0)).int()),
            most_queries=int(query_R.max()),
            most_keys=int(key_R.max()),
        )

    def attend(self, q_NhD: Tensor, k_NhD: Tensor, v_NhD: Tensor, scale: float) -> Tensor:
        """See ``AttentionMask``; on a GPU, in half precision."""
        grouped = {"enable_gqa": q_NhD.shape[1] != k_NhD.shape[1]} if _NAMES_GROUPS else {}
        out_NhD: Tensor = _FLASH(
            q_NhD.contiguous(),
            *_gathered(k_NhD, v_NhD, self.keys_M),
            self.first_query_R1,
            self.first_key_R1,
            self.most_queries,
            self.most_keys,
            scale=scale,
            window_size=(-1, 0),  # causal; the last query of a sequence sees its last key
            **grouped,
        )
        return out_NhD


def takes_flash(device: torch.device, dtype: torch.dtype, heads: Collection[HeadSizes]) -> bool:
    """Whether the flash kernel works for all of these."""
    return device.type != "cpu" and all(flash_works(device, dtype, sizes) for sizes in heads)


@lru_cache
def flash_works(device: torch.device, dtype: torch.dtype, heads: HeadSizes) -> bool:
    """Whether the flash kernel gives what grids give, gradients too: found out by trying, once."""
    return not flash_fault(device, dtype, heads)


@lru_cache
def flash_fault(device: torch.device, dtype: torch.dtype, heads: HeadSizes) -> str:
    """Why the flash kernel is not to be taken; empty where it is."""
    if _FLASH is None:
        return f"torch {torch.__version__} has no flash attention of varying lengths"
    if device.type != "cuda":
        return "it needs a GPU"
    if dtype not in (torch.float16, torch.bfloat16):
        return f"it does not compute in {str(dtype).removeprefix('torch.')}"
    if heads.dim != heads.value_dim:
        return f"heads are of {heads.dim} for keys and of {heads.value_dim} for values"
    batch = _example(device)
    n = int(batch.prompt_len_S.sum() + batch.fed_lengths().sum())
    draw = torch.Generator().manual_seed(0)
    given = [
        torch.randn(n, h, heads.dim, generator=draw).to(device, dtype)
        for h in (heads.queries, heads.keys, heads.keys, heads.queries)
    ]
    results: list[list[Tensor]] = []
    try:
        with torch.enable_grad(), torch.autocast(device.type, enabled=False):
            for way in (VarlenMask.of(batch), GridMask.of(batch)):
                q, k, v = (x.detach().requires_grad_() for x in given[:3])
                out = way.attend(q, k, v, heads.dim**-0.5)
                results.append([out.detach(), *torch.autograd.grad(out, (q, k, v), given[3])])
    except (RuntimeError, ValueError, TypeError, ImportError) as error:
        # no such kernel in this torch, for this GPU or for heads of this size
        return f"it failed: {one_line(error)}"
    for flash, grid in zip(*results, strict=True):
        if not bool(((flash - grid).abs().max() <= 0.05 * grid.abs().max()).item()):
            return "its results are not those of grids"
    return ""


def flash_on(device: torch.device) -> bool:
    """Whether it works for heads such as most models have."""
    return flash_works(device, torch.bfloat16, HeadSizes(16, 8, 128, 128))


def _example(device: torch.device) -> MicroBatch:
    rows = [
        Row(tuple(range(prompt)), (0,) * n, (True,) * n, (0.0,) * n, 0.0)
        for prompt, n in ((5, 1), (5, 4), (5, 9), (3, 7), (2, 1))
    ]
    (batch,) = micro_batches(rows, tokens_per_micro_batch=1000, device=device)
    return batch


def attention(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A transformers attention function that knows packed tokens.

    Args:
        plain: What is called without a ``packed_mask``.
    """

    def attend(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *,
        packed_mask: AttentionMask | None = None,
        **more: Any,
    ) -> Any:
        if packed_mask is None:
            return plain(module, query, key, value, attention_mask, **more)
        own_mask = attention_mask is not None and attention_mask.numel() > 1
        if own_mask or more.get("dropout") or any(more.get(n) is not None for n in _OTHER_FORMS):
            raise ValueError("attention of this kind is not packed")
        scaling = more.get("scaling")
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        q_NhD, k_NhD, v_NhD = (_computed(x[0].transpose(0, 1)) for x in (query, key, value))
        return packed_mask.attend(q_NhD, k_NhD, v_NhD, scale)[None], None

    return attend


def _computed(x: Tensor) -> Tensor:
    """Cast to the precision of the autocast region, as torch's own attention does."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x
