"""The decoding loop's cache and step for lean models: rows of one prompt share its keys and values.

Dimensions: S prompts, P prompt positions, B rows, T sampled positions, N tokens of either; h
key-value heads, g query heads of each, D head dimension; C = h x rows or h x prompts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rlvr_core.api import Decoder
from rlvr_core.builtin.tiny.lean import LeanModel, flash, rotate, unit

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, query (N, h, D), key, value) -> attention's output (N, h D)."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Which rows look at which prompt: every prompt has as many slots as the fullest has rows.

    Attributes:
        slots: Slots of a prompt.
        row_of_slot_R: The row in each slot, any row in those left over; None when there are none
            and slots are rows.
        slot_of_row_B: The slot of each row; None likewise.
    """

    slots: int
    row_of_slot_R: Tensor | None
    slot_of_row_B: Tensor | None

    @classmethod
    def of(cls, prompt_of_row_B: Tensor, prompts: int) -> Sharing:
        """Of rows in the order of their prompts, none of which is without a row."""
        B, count_S = len(prompt_of_row_B), prompt_of_row_B.bincount(minlength=prompts)
        slots = int(count_S.max())
        if slots * prompts == B:
            return cls(slots, None, None)
        row_B = torch.arange(B)
        first_S = count_S.cumsum(0) - count_S
        slot_of_row_B = prompt_of_row_B * slots + row_B - first_S[prompt_of_row_B]
        row_of_slot_R = torch.zeros(prompts * slots, dtype=torch.long)
        return cls(slots, row_of_slot_R.index_copy(0, slot_of_row_B, row_B), slot_of_row_B)

    def by_prompt(self, value_hBgX: Tensor) -> Tensor:
        """Values of rows (h, B, g, X), slot by slot of each prompt."""
        return value_hBgX if self.row_of_slot_R is None else value_hBgX[:, self.row_of_slot_R]

    def by_row(self, value_hSqX: Tensor, rows: int) -> Tensor:
        """Values of prompts' slots (h, S, q, X), row by row."""
        h, S, q, X = value_hSqX.shape
        value_hRgX = value_hSqX.view(h, S * self.slots, q // self.slots, X)
        return value_hRgX if self.slot_of_row_B is None else value_hRgX[:, self.slot_of_row_B]


class LeanDecoder(Decoder):
    """Prefill and step over two caches.

    One is of prompts, (kv heads, S, P, D), which their rows share; the other, of fixed size
    (kv heads, B, T, D), of what the rows sample.

    Scores are products batched over C = kv heads x rows, or x prompts: at one position a row, that
    is faster than the attention kernel.
    """

    def __init__(self, lean: LeanModel) -> None:
        self._lean = lean
        self.renew()
        self.vocabulary = len(self._head_VH)
        self.device = self._head_VH.device
        self._prompt_keys: list[Tensor] = []
        self._prompt_values: list[Tensor] = []
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._mask_SP: Tensor | None = None
        self._prompt_of_row_B = torch.empty(0)
        self._sharing = Sharing(0, None, None)
        self._position_B = torch.empty(0)
        self._sampled = 0

    def renew(self) -> None:
        """See ``Decoder``: what is folded is folded again."""
        lean = self._lean
        self._layers = lean.weights()
        self._head_VH = lean.lm_head * (lean.final_norm * math.sqrt(len(lean.final_norm)))

    def prefill(
        self, prompts: Sequence[tuple[int, ...]], counts: Sequence[int], max_new_tokens: int
    ) -> Tensor:
        """See ``Decoder``. Prompts are padded on the left, the pad positions masked."""
        S, P = len(prompts), max(map(len, prompts))
        ids_SP = torch.tensor([[0] * (P - len(p)) + list(p) for p in prompts])
        length_S = torch.tensor([len(p) for p in prompts])
        position_SP = torch.arange(P) - (P - length_S)[:, None]
        row_B = torch.repeat_interleave(torch.arange(S), torch.tensor(list(counts)))
        shape = (self._lean.kv_heads, len(row_B), max_new_tokens, self._lean.head_dim)
        causal_S1PP: Tensor | None = None
        if int(length_S.min()) < P:
            seen_SPP = (position_SP >= 0)[:, None, :] & torch.ones(P, P, dtype=torch.bool).tril()
            seen_SPP |= torch.eye(P, dtype=torch.bool)  # a pad position sees itself: no NaN
            causal_S1PP = _additive(seen_SPP[:, None])
            self._mask_SP = _additive(position_SP >= 0)

        def attend(index: int, q_NhD: Tensor, k_NhD: Tensor, v_NhD: Tensor) -> Tensor:
            q, k, v = (x.view(S, P, *x.shape[1:]).transpose(1, 2) for x in (q_NhD, k_NhD, v_NhD))
            self._prompt_keys.append(k.transpose(0, 1).contiguous())
            self._prompt_values.append(v.transpose(0, 1).contiguous())
            self._keys.append(torch.empty(shape))
            self._values.append(torch.empty(shape))
            if causal_S1PP is None:
                out: Tensor = flash(q, k, v, 0.0, True)[0]
            else:
                out = flash(q, k, v, 0.0, False, attn_mask=causal_S1PP)[0]
            return out.transpose(1, 2).reshape(S * P, -1)

        rotation = self._lean.rotation(position_SP.clamp(min=0).flatten())
        x_NH = self._run(ids_SP.flatten(), rotation, attend)
        self._position_B, self._prompt_of_row_B = length_S[row_B], row_B
        self._sharing = Sharing.of(row_B, S)
        return self._logits(x_NH.view(S, P, -1)[:, -1])[row_B]

    def step(self, token_B: Tensor) -> Tensor:
        """See ``Decoder``."""
        B, now, sharing = len(token_B), self._sampled, self._sharing
        self._sampled += 1
        h, D = self._lean.kv_heads, self._lean.head_dim
        S, P = self._prompt_keys[0].shape[1:3]
        mask_C1P = no_mask = torch.zeros(1, 1, 1)
        if self._mask_SP is not None:
            mask_C1P = self._mask_SP[:, None].repeat(h, 1, 1)

        def attend(index: int, q_BhD: Tensor, k_BhD: Tensor, v_BhD: Tensor) -> Tensor:
            for cache, new in ((self._keys, k_BhD), (self._values, v_BhD)):
                cache[index][:, :, now] = new.transpose(0, 1)
            keys, values = (
                cache[index].view(h * B, -1, D)[:, : now + 1]
                for cache in (self._keys, self._values)
            )
            prompt_keys, prompt_values = (
                cache[index].view(h * S, P, D) for cache in (self._prompt_keys, self._prompt_values)
            )
            # the query heads of one key head are taken as so many positions
            q_hBgD = q_BhD.view(B, h, -1, D).transpose(0, 1).contiguous()
            q_CgD = q_hBgD.view(h * B, -1, D)
            score_CgT = torch.baddbmm(no_mask, q_CgD, keys.mT, alpha=D**-0.5)
            # so are the rows of one prompt, where they look at it
            q_CqD = sharing.by_prompt(q_hBgD).view(h * S, -1, D)
            score_CqP = torch.baddbmm(mask_C1P, q_CqD, prompt_keys.mT, alpha=D**-0.5)
            score_CgP = sharing.by_row(score_CqP.view(h, S, -1, P), B).view(h * B, -1, P)
            weight_CgL = torch.cat([score_CgP, score_CgT], dim=-1).softmax(-1)
            weight_hBgP = weight_CgL[..., :P].view(h, B, -1, P)
            weight_CqP = sharing.by_prompt(weight_hBgP).view(h * S, -1, P)
            out_CqD = torch.bmm(weight_CqP, prompt_values)
            out_CgD = sharing.by_row(out_CqD.view(h, S, -1, D), B).view(h * B, -1, D)
            out_CgD = torch.baddbmm(out_CgD, weight_CgL[..., P:], values)
            return out_CgD.view(h, B, -1).transpose(0, 1).reshape(B, -1)

        x_BH = self._run(token_B, self._lean.rotation(self._position_B), attend)
        self._position_B = self._position_B + 1
        return self._logits(x_BH)

    def select(self, rows_K: Tensor) -> None:
        """See ``Decoder``."""
        kept_S, self._prompt_of_row_B = torch.unique(
            self._prompt_of_row_B[rows_K], return_inverse=True
        )
        self._sharing = Sharing.of(self._prompt_of_row_B, len(kept_S))
        for caches in (self._keys, self._values):
            for index, old in enumerate(caches):
                caches[index] = old.new_empty(old.shape[0], len(rows_K), *old.shape[2:])
                caches[index][:, :, : self._sampled] = old[:, rows_K, : self._sampled]
        if len(kept_S) < self._prompt_keys[0].shape[1]:
            self._prompt_keys = [old[:, kept_S] for old in self._prompt_keys]
            self._prompt_values = [old[:, kept_S] for old in self._prompt_values]
            self._mask_SP = None if self._mask_SP is None else self._mask_SP[kept_S]
        self._position_B = self._position_B[rows_K]

    def _run(self, id_N: Tensor, rotation_N1d: Tensor, attend: Attend) -> Tensor:
        lean = self._lean
        rotated, both = lean.heads + lean.kv_heads, lean.heads + 2 * lean.kv_heads
        x_NH = F.embedding(id_N, lean.embedding)
        for index, layer in enumerate(self._layers):
            h_NH = unit(x_NH, lean.eps)[0]
            qkv_NQ = F.linear(h_NH, layer.qkv_QH, layer.qkv_bias_Q)
            heads_NhD = qkv_NQ.view(-1, both, lean.head_dim)
            qk_NhD = heads_NhD[:, :rotated]
            if layer.qk_norm_hD is not None:
                qk_NhD = unit(qk_NhD, lean.eps)[0].mul_(layer.qk_norm_hD)
            qk_NhD = rotate(qk_NhD, rotation_N1d)
            a_NA = attend(
                index, qk_NhD[:, : lean.heads], qk_NhD[:, lean.heads :], heads_NhD[:, rotated:]
            )
            x_NH.addmm_(a_NA, layer.out_HA.t())
            h_NH = unit(x_NH, lean.eps)[0]
            gate_NI, up_NI = F.linear(h_NH, layer.gate_up_IH).chunk(2, dim=1)
            x_NH.addmm_(F.silu(gate_NI).mul_(up_NI), layer.down_HI.t())
        return x_NH

    def _logits(self, x_NH: Tensor) -> Tensor:
        logits_NV: Tensor = F.linear(unit(x_NH, self._lean.eps)[0], self._head_VH)
        return logits_NV


def _additive(seen: Tensor) -> Tensor:
    return torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf)
