"""Attention of packed tokens on a CPU, each prompt's keys and values once however many share them.

A completion attends to its own tokens and to its prompt's. The two parts of a softmax are joined by
their log-sum-exps, and the backward kernel of each part, given the joined output and log-sum-exp,
yields exactly its share of the gradient.

Dimensions: N tokens (first the prompts', then the completions'), S prompts, P prompt positions, B
rows, T completion positions, h heads, D head dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlvr_core.api import MicroBatch

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

Heads = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Segment:
    """Sequences of one kind among the packed tokens.

    Attributes:
        start: First of their tokens.
        stop: One past the last.
        rows: Sequences.
        width: Longest one; 0 when there is no token at all.
        slots: Place of each token in a (rows x width) grid, or None when the grid has no holes.
    """

    start: int
    stop: int
    rows: int
    width: int
    slots: Tensor | None

    @classmethod
    def of(cls, start: int, present: Tensor) -> Segment:
        """Make it from the True places of a (rows x width) grid."""
        slots = present.flatten().nonzero()[:, 0]
        rows, width = present.shape
        whole = len(slots) == present.numel()
        return cls(start, start + len(slots), rows, width, None if whole else slots)

    def grid(self, packed_NhD: Tensor) -> Tensor:
        """(rows, h, width, D) of the packed tokens, zeros where there is none."""
        tokens = packed_NhD[self.start : self.stop]
        if self.slots is not None:
            tokens = tokens.new_zeros(self.rows * self.width, *tokens.shape[1:]).index_copy_(
                0, self.slots, tokens
            )
        return tokens.view(self.rows, self.width, *tokens.shape[1:]).transpose(1, 2)

    def pack(self, grid: Tensor, into_NhD: Tensor) -> None:
        """Write a (rows, h, width, D) grid's tokens to their places in the packed list."""
        flat = grid.transpose(1, 2).flatten(0, 1)
        tokens = into_NhD[self.start : self.stop]
        tokens.copy_(flat if self.slots is None else flat[self.slots])


@dataclass(frozen=True, slots=True)
class JoinedMask:
    """How the packed tokens of a micro-batch attend to each other.

    Attributes:
        prompts: The prompts, rows in order.
        completions: The completions' input tokens, rows in order.
        prompt_of_row_B: Prompt of each row; None when every prompt has equally many rows, in
            the prompts' order, so that a prompt's rows can be taken as one long query.
        prompt_mask: (rows of the prompt part, 1, 1, P) additive mask of holes, or None.
    """

    prompts: Segment
    completions: Segment
    prompt_of_row_B: Tensor | None
    prompt_mask: Tensor | None

    @classmethod
    def of(cls, batch: MicroBatch) -> JoinedMask:
        """Make it from a micro-batch whose completions lack their last token."""
        prompt_SP = batch.prompt_places()
        input_BT = batch.fed_places()
        S, B = len(prompt_SP), len(input_BT)
        prompts = Segment.of(0, prompt_SP)
        even = torch.arange(S).repeat_interleave(B // S)
        together = B % S == 0 and torch.equal(batch.prompt_of_row_B, even)
        mask = None
        if prompts.slots is not None:
            mask = torch.zeros(prompt_SP.shape).masked_fill_(~prompt_SP, -torch.inf)
            mask = mask if together else mask[batch.prompt_of_row_B]
            mask = mask[:, None, None]
        return cls(
            prompts=prompts,
            completions=Segment.of(prompts.stop, input_BT),
            prompt_of_row_B=None if together else batch.prompt_of_row_B,
            prompt_mask=mask,
        )

    def attend(self, q_NhD: Tensor, k_NhD: Tensor, v_NhD: Tensor, scale: float) -> Tensor:
        """Attention of packed heads, (N, h, D); differentiable."""
        out_NhD: Tensor = _Joined.apply(q_NhD, k_NhD, v_NhD, self, scale)  # type: ignore[no-untyped-call]
        return out_NhD

    def of_prompt(self, grid: Tensor) -> Tensor:
        """Rows' (B, h, T, D) as the queries of the prompt part, (S, h, rows x T, D)."""
        if self.prompt_of_row_B is not None:
            return grid
        B, h, T, D = grid.shape
        S = self.prompts.rows
        return grid.transpose(1, 2).reshape(S, B // S * T, h, D).transpose(1, 2)

    def of_rows(self, grid: Tensor) -> Tensor:
        """The inverse of ``of_prompt``; also for (S, h, rows x T) without D."""
        if self.prompt_of_row_B is not None:
            return grid
        B, T = self.completions.rows, self.completions.width
        moved = grid.transpose(1, 2)
        return moved.reshape(B, T, *moved.shape[2:]).transpose(1, 2)

    def prompt_keys(self, grid: Tensor) -> Tensor:
        """Prompts' keys or values as the prompt part needs them."""
        return grid if self.prompt_of_row_B is None else grid[self.prompt_of_row_B]

    def mask_as(self, x: Tensor) -> Tensor | None:
        """The mask in the precision of what it is added to."""
        return None if self.prompt_mask is None else self.prompt_mask.to(x.dtype)

    def sum_prompt_keys(self, grid: Tensor) -> Tensor:
        """The gradient of ``prompt_keys``."""
        if self.prompt_of_row_B is None:
            return grid
        total = grid.new_zeros(self.prompts.rows, *grid.shape[1:])
        return total.index_add_(0, self.prompt_of_row_B, grid)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attention of packed (N, h, D) heads.

        Returns:
            Output (N, h, D), log-sum-exp of prompts (S, h, P) and of completions (B, h, T).
        """
        out_NhD = torch.empty_like(q, memory_format=torch.contiguous_format)
        prompts, completions = self.prompts, self.completions
        prompt_q, prompt_k, prompt_v = (prompts.grid(x) for x in (q, k, v))
        out, prompt_lse = _flash(prompt_q, prompt_k, prompt_v, 0.0, True, scale=scale)
        prompts.pack(out, out_NhD)
        if completions.width == 0:
            return out_NhD, prompt_lse, prompt_lse
        own_q, own_k, own_v = (completions.grid(x) for x in (q, k, v))
        own_out, own_lse = _flash(own_q, own_k, own_v, 0.0, True, scale=scale)
        far_out, far_lse = _flash(
            self.of_prompt(own_q),
            self.prompt_keys(prompt_k),
            self.prompt_keys(prompt_v),
            0.0,
            False,
            attn_mask=self.mask_as(q),
            scale=scale,
        )
        far_out, far_lse = self.of_rows(far_out), self.of_rows(far_lse)
        share_BhT1 = torch.sigmoid(far_lse - own_lse)[..., None]  # of the softmax's mass
        joined = torch.lerp(own_out, far_out, share_BhT1.to(own_out.dtype))
        completions.pack(joined, out_NhD)
        return out_NhD, prompt_lse, torch.logaddexp(own_lse, far_lse)

    def backward(
        self,
        grad: Tensor,
        heads: Heads,
        out: Tensor,
        prompt_lse: Tensor,
        lse: Tensor,
        scale: float,
    ) -> Heads:
        """Gradients of packed query, key and value."""
        prompts, completions = self.prompts, self.completions
        grads = tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in heads)
        prompt_q, prompt_k, prompt_v = (prompts.grid(x) for x in heads)
        d_prompt = _flash_backward(
            prompts.grid(grad),
            prompt_q,
            prompt_k,
            prompt_v,
            prompts.grid(out),
            prompt_lse,
            0.0,
            True,
            scale=scale,
        )
        if completions.width > 0:
            own_grad, own_out = completions.grid(grad), completions.grid(out)
            own_q, own_k, own_v = (completions.grid(x) for x in heads)
            d_own = _flash_backward(
                own_grad, own_q, own_k, own_v, own_out, lse, 0.0, True, scale=scale
            )
            d_far = _flash_backward(
                self.of_prompt(own_grad),
                self.of_prompt(own_q),
                self.prompt_keys(prompt_k),
                self.prompt_keys(prompt_v),
                self.of_prompt(own_out),
                self.of_prompt(lse[..., None])[..., 0],
                0.0,
                False,
                attn_mask=self.mask_as(heads[0]),
                scale=scale,
            )
            d_own[0].add_(self.of_rows(d_far[0]))
            for new, packed in zip(d_own, grads, strict=True):
                completions.pack(new, packed)
            for index in (1, 2):
                d_prompt[index].add_(self.sum_prompt_keys(d_far[index]))
        for new, packed in zip(d_prompt, grads, strict=True):
            prompts.pack(new, packed)
        return grads[0], grads[1], grads[2]


class _Joined(torch.autograd.Function):
    """``JoinedMask.forward`` with ``JoinedMask.backward``."""

    @staticmethod
    def forward(
        ctx: Any, q_NhD: Tensor, k_NhD: Tensor, v_NhD: Tensor, layout: JoinedMask, scale: float
    ) -> Tensor:
        out_NhD, prompt_lse, lse = layout.forward(q_NhD, k_NhD, v_NhD, scale)
        ctx.save_for_backward(q_NhD, k_NhD, v_NhD, out_NhD, prompt_lse, lse)
        ctx.layout, ctx.scale = layout, scale
        return out_NhD

    @staticmethod
    def backward(ctx: Any, grad_NhD: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out_NhD, prompt_lse, lse = ctx.saved_tensors
        grads = ctx.layout.backward(grad_NhD, (q, k, v), out_NhD, prompt_lse, lse, ctx.scale)
        return (*grads, None, None)
