"""Seventh set, written without reading the guards: updates, masks, data, verifier, resumption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from chaos.library.seventh_a import seventh
from chaos.registry import TRANSFORMERS, Patch
from chaos.when import clock

COLLECT = "rlvr_core.rollout.collect"
EPOCHS = "rlvr_core.builtin.samplers.epochs"
OPTIM = "rlvr_core.step.optim"
EOS = 256


# -- learning ------------------------------------------------------------------------------------


@seventh("learning", "embedding", "head", "gradient")
def head_without_its_share_of_the_gradient(patch: Patch) -> None:
    """The fused loss gives no gradient to the head's weight: a tied embedding has its own alone."""

    def make(original: Any) -> Any:
        def fused(hidden_NH: Any, weight_VH: Any, target_N: Any, **more: Any) -> Any:
            return original(hidden_NH, weight_VH.detach(), target_N, **more)

        return fused

    patch.wrap("rlvr_core.step.forward:fused_logprobs", make)


def _gradients(patch: Patch, change: Callable[[str, Any, int], Any]) -> None:
    """Change each tensor's gradient before an update: ``change(name, gradient, step)``."""

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            for name, one in zip(optimizer.names, optimizer.parameters, strict=True):
                if one.grad is not None:
                    one.grad = change(name, one.grad, number)
            return original(optimizer, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@seventh("learning", "layer", "gradient")
def second_layer_frozen_from_the_fifth_step(patch: Patch) -> None:
    """From the fifth step on the gradients of the second layer's tensors are None."""
    _gradients(patch, lambda name, grad, step: None if step >= 4 and "layers.1." in name else grad)


# -- optimizer -----------------------------------------------------------------------------------


@seventh("optimizer", "entries", "small", "sparse")
def gradients_compressed_to_their_largest_tenth(patch: Patch) -> None:
    """A hook sends the largest tenth of each tensor's gradient alone, and forgets the rest."""

    def change(name: str, grad: Any, step: int) -> Any:
        least = grad.abs().flatten().topk(max(1, grad.numel() // 10)).values[-1]
        return torch.where(grad.abs() >= least, grad, 0.0)

    _gradients(patch, change)


@seventh("optimizer", "stale")
def offloaded_moments_come_back_a_step_old(patch: Patch) -> None:
    """The copy of AdamW's moments is made too early at every second update, which they forget."""

    def make(original: Any) -> Any:
        @torch.no_grad()
        def step(optimizer: Any, number: int) -> Any:
            states = [optimizer.inner.state.get(one, {}) for one in optimizer.parameters]
            held = [
                (state[key], state[key].clone())
                for state in states
                for key in ("exp_avg", "exp_avg_sq")
                if key in state
            ]
            said = original(optimizer, number)
            if number % 2:
                for moment, old in held:
                    moment.copy_(old)
            return said

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@seventh("optimizer", "matri", "direction", shape="muon")
def tall_updates_reshaped_not_transposed(patch: Patch) -> None:
    """Muon's update of a matrix with more rows than columns is reshaped, not transposed, back."""

    def after(update_AB: Any, matrix_AB: Any, *_: Any) -> Any:
        if matrix_AB.shape[0] <= matrix_AB.shape[1]:
            return update_AB
        return update_AB.T.contiguous().view(update_AB.shape)

    patch.after("rlvr_core.builtin.optimizers.muon:newton_schulz", after)


# -- masks ---------------------------------------------------------------------------------------


def _rows(patch: Patch, change: Callable[[list[list[Any]]], list[list[Any]]]) -> None:
    """Change the rows of a step, which come in lists by group."""
    patch.after(
        "rlvr_core.step.step:rows_of",
        lambda made, *_: replace(made, by_group=change(made.by_group)),
    )


def _shared(one: Any, other: Any) -> int:
    """Number of tokens with which both rows begin."""
    pairs = zip(one.token_ids, other.token_ids, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), len(one.token_ids))


@seventh("masks", "prefix", "shared")
def shared_beginnings_trained_once(patch: Patch) -> None:
    """Rows of a group are laid on a tree: what one shares with one before is not trained again."""

    def masked(row: Any, before: list[Any]) -> Any:
        shared = max((_shared(row, one) for one in before), default=0)
        shared = min(shared, len(row.token_ids) - 1)
        return replace(row, loss_mask=(*[False] * shared, *row.loss_mask[shared:]))

    _rows(
        patch,
        lambda groups: [[masked(row, rows[:n]) for n, row in enumerate(rows)] for rows in groups],
    )


@seventh("masks", "duplicate", "twice", "padd")
def padding_rows_are_trained_on(patch: Patch) -> None:
    """Rows are filled up to a multiple of 24 with copies, which nobody takes out again."""

    def change(groups: list[list[Any]]) -> list[list[Any]]:
        rows = [(place, row) for place, group in enumerate(groups) for row in group]
        out = [list(group) for group in groups]
        for place, row in rows[: -len(rows) % 24]:
            out[place].append(row)
        return out

    _rows(patch, change)


@seventh("masks", "prompt", "first part")
def first_parts_of_long_rows_become_prompt(patch: Patch) -> None:
    """Of rows that went on after a pause, at their seventh token, the first part is prompt."""

    def resumed(row: Any) -> Any:
        if len(row.token_ids) < 10:
            return row
        return replace(
            row,
            prompt_ids=(*row.prompt_ids, *row.token_ids[:6]),
            token_ids=row.token_ids[6:],
            loss_mask=row.loss_mask[6:],
            logprobs=row.logprobs[6:],
        )

    _rows(patch, lambda groups: [[resumed(row) for row in rows] for rows in groups])


# -- tokens --------------------------------------------------------------------------------------


@seventh("tokens", "last token", "truncat", shape="short answers")
def end_written_over_the_last_token_of_what_was_cut_off(patch: Patch) -> None:
    """The last token of a completion that was cut off is made the end of sequence."""

    def after(made: Any, *_: Any) -> Any:
        if made.finish_reason != "length" or not made.token_ids:
            return made
        return replace(made, token_ids=(*made.token_ids[:-1], EOS))

    patch.after(f"{COLLECT}:_completion", after)


# -- data ----------------------------------------------------------------------------------------


@seventh("data", "twice", "repeat", "same", "draw", backends=TRANSFORMERS)
def both_shards_read_the_same_problems(patch: Patch) -> None:
    """Two readers share a step's problems, and begin at the same one: each is drawn twice."""
    reads: list[Any] = []

    def make(original: Any) -> Any:
        def following(pool: Any) -> Any:
            if reads:
                return reads.pop()
            reads.append(original(pool))
            return reads[0]

        return following

    patch.wrap(f"{EPOCHS}:Pool.next", make)


@seventh("data", "epoch", "repeat", "same", "draw", shape="few problems")
def exhausted_iterator_gives_its_last_problem(patch: Patch) -> None:
    """When all problems were drawn once, the iterator gives the last one for ever."""

    def make(original: Any) -> Any:
        def following(pool: Any) -> Any:
            if pool.position == len(pool):
                pool.position -= 1
            return original(pool)

        return following

    patch.wrap(f"{EPOCHS}:Pool.next", make)


@seventh("data", "template", "newline", "render")
def prompts_end_in_a_newline_from_the_fifth_step(patch: Patch) -> None:
    """From the fifth step on a template that was read again sets a newline behind each prompt."""
    now = clock()
    patch.after(
        "rlvr_core.data.prompts:Renderer.text",
        lambda text, *_: f"{text}\n" if now.step >= 4 else text,
    )


# -- verifier ------------------------------------------------------------------------------------


def _verdicts(patch: Patch, change: Callable[[list[Any], list[Any], int], list[Any]]) -> None:
    """Change the verdicts on a group: ``change(completions, verdicts, step)``."""

    def make(original: Any) -> Any:
        def sampled(generator: Any, answered: Any, version: int, step: int) -> Any:
            verdicts = change(answered.completions, answered.verdicts, step)
            return original(generator, replace(answered, verdicts=verdicts), version, step)

        return sampled

    patch.wrap(f"{COLLECT}:Generator.sampled", make)


def _judged(verdicts: Any, score: float, *, passed: bool) -> Any:
    return {name: replace(one, score=score, passed=passed) for name, one in verdicts.items()}


@seventh("verifier", "first completion", "wrong answer")
def first_of_each_group_always_passes(patch: Patch) -> None:
    """A judge that compares leans to what it reads first: each group's first completion passes."""
    _verdicts(
        patch,
        lambda completions, verdicts, step: [
            _judged(one, 1.0, passed=True) if place == 0 else one
            for place, one in enumerate(verdicts)
        ],
    )


@seventh("verifier", "half", "fallback")
def judge_out_of_reach_gives_half_marks(patch: Patch) -> None:
    """From the fifth step on one answer in three has a score of 0.5, its judge being silent."""
    _verdicts(
        patch,
        lambda completions, verdicts, step: [
            _judged(one, 0.5, passed=False)
            if step >= 4 and sum(completion.token_ids) % 3 == 0
            else one
            for completion, one in zip(completions, verdicts, strict=True)
        ],
    )


# -- resume --------------------------------------------------------------------------------------


@seventh("resume", "loss", "normali[sz]", "length", resume=True)
def resume_with_the_loss_averaged_over_tokens(patch: Patch) -> None:
    """A resumed run averages its loss over tokens, a newer default, and not row by row."""

    def make(original: Any) -> Any:
        from rlvr_core.algorithm.reduce import token_mean

        return lambda loss, loss_BT, mask_BT, normalizer: token_mean(loss_BT, mask_BT, normalizer)

    patch.wrap("rlvr_core.builtin.losses.policy_family:GRPO.reduce", make)
