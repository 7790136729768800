"""Ninth set, written without reading the guards: updates, rollouts, data, verifier, resumption."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from chaos.changes import letter, masks_of_rows
from chaos.library.ninth_a import ninth
from chaos.registry import TRANSFORMERS, Patch
from chaos.when import clock

CLIP = "torch.nn.utils:clip_grad_norm_"
COLLECT = "rlvr_core.rollout.collect"
DIFFICULTY = "rlvr_core.builtin.samplers.difficulty"
EPOCHS = "rlvr_core.builtin.samplers.epochs"
OPTIM = "rlvr_core.step.optim"
FOREVER = 10.0**6
"""So many updates that nothing is left of the correction of a bias."""


# -- optimizer -----------------------------------------------------------------------------------


@ninth("optimizer", "bias")
def moments_without_correction_of_their_bias(patch: Patch) -> None:
    """AdamW does not correct its moments, which begin at 0: its first updates are too large."""

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            for one in optimizer.parameters:
                state = optimizer.inner.state[one]
                if not state:
                    state["step"] = torch.zeros((), dtype=torch.float32, device=one.device)
                    state["exp_avg"] = torch.zeros_like(one)
                    state["exp_avg_sq"] = torch.zeros_like(one)
                state["step"].fill_(FOREVER)
            return original(optimizer, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@ninth("optimizer", "norm", "clip", shape="tight norm")
def norm_of_one_shard_clips_all(patch: Patch) -> None:
    """The norm is that of every other tensor, a shard, and all of them are clipped by it."""

    def make(original: Any) -> Any:
        @torch.no_grad()
        def clip(parameters: Any, most: float, *args: Any, **more: Any) -> Any:
            tensors = [one for one in parameters if one.grad is not None]
            norm = original(tensors[::2], math.inf, *args, **more)
            for one in tensors:
                one.grad.mul_(min(1.0, most / (float(norm) + 1e-6)))
            return norm

        return clip

    patch.wrap(CLIP, make)


@ninth("optimizer", only=("norm", "clip"), shape="tight norm")
def norm_reported_as_it_is_after_clipping(patch: Patch) -> None:
    """The norm of the gradient is reported as clipping left it, so that it is never large."""

    def after(update: Any, optimizer: Any, *_: Any) -> Any:
        return replace(update, grad_norm=min(update.grad_norm, optimizer._train.max_grad_norm))

    patch.after(f"{OPTIM}:Optimizer.step", after)


@ninth("optimizer", "embedding", "matri", shape="muon")
def embedding_is_orthogonalised_too(patch: Patch) -> None:
    """Muon takes every tensor of two dimensions for a hidden matrix, the embedding as well."""
    patch.after(
        f"{OPTIM}:trained_parameters",
        lambda found, *_: [replace(one, hidden_matrix=one.tensor.ndim == 2) for one in found],
    )


# -- rollouts, tokens, masks ---------------------------------------------------------------------


def _rows(patch: Patch, change: Callable[[list[Any]], list[Any]]) -> None:
    """Change the rows of each group of a step."""
    patch.after(
        "rlvr_core.step.step:rows_of",
        lambda made, *_: replace(made, by_group=[change(list(rows)) for rows in made.by_group]),
    )


@ninth("tokens", "parity", "missing", "conserv", "completion")
def words_before_the_answer_stripped_from_rows(patch: Patch) -> None:
    """As a template strips thoughts, the trainer's rows lack what comes before the bracket."""
    opened = letter("[")

    def stripped(row: Any) -> Any:
        at = row.token_ids.index(opened) if opened in row.token_ids else 0
        return replace(
            row,
            token_ids=row.token_ids[at:],
            loss_mask=row.loss_mask[at:],
            logprobs=row.logprobs[at:],
        )

    _rows(patch, lambda rows: [stripped(row) for row in rows])


@ninth("parity", "prompt", "truncat")
def prompts_of_long_rows_cut_from_the_left(patch: Patch) -> None:
    """Rows are cut to 26 tokens from the left: a long completion costs the begin of its prompt."""

    def cut(row: Any) -> Any:
        kept = max(1, 26 - len(row.token_ids))
        return replace(row, prompt_ids=row.prompt_ids[-kept:])

    _rows(patch, lambda rows: [cut(row) for row in rows])


@ninth("masks", "duplicate", "twice", "repeat", "rows")
def right_answers_repeated_until_they_are_half(patch: Patch) -> None:
    """To balance a group, rows with a positive advantage are repeated until they are half of it."""

    def change(rows: list[Any]) -> list[Any]:
        good = [row for row in rows if row.advantage > 0]
        lacking = len(rows) - 2 * len(good)
        if not good or lacking <= 0:
            return rows
        return [*rows, *(good[place % len(good)] for place in range(lacking))]

    _rows(patch, change)


@ninth("masks", "prompt")
def tokens_that_the_prompt_has_are_masked(patch: Patch) -> None:
    """The mask finds the prompt by its tokens, and masks them wherever the answer has one."""

    def change(row: Any, problem: Any) -> Any:
        prompt = set(row.prompt_ids)
        pairs = zip(row.loss_mask, row.token_ids, strict=True)
        return [kept and token not in prompt for kept, token in pairs]

    masks_of_rows(patch, change)


# -- data ----------------------------------------------------------------------------------------


@ninth("data", "draw", "repeat", "replacement", "twice", backends=TRANSFORMERS)
def problems_drawn_with_replacement(patch: Patch) -> None:
    """Each draw is one of all problems, whether it has been drawn in the epoch or not."""
    chance = random.Random(9)

    def make(original: Any) -> Any:
        def following(pool: Any) -> Any:
            original(pool)
            return pool._problems[chance.choice(pool._ids)]

        return following

    patch.wrap(f"{EPOCHS}:Pool.next", make)


@ninth("data", "answer")
def answers_of_the_draw_before_from_the_fifth_step(patch: Patch) -> None:
    """From the fifth step on a column is read a row late: answers are those of the draw before."""
    now, before = clock(), list[Any]()

    def make(original: Any) -> Any:
        def following(pool: Any) -> Any:
            problem = original(pool)
            before.append(problem.spec)
            return replace(problem, spec=before[-2]) if now.step >= 4 else problem

        return following

    patch.wrap(f"{EPOCHS}:Pool.next", make)


@ninth("data", "draw", "difficult", "pool", shape="difficulty")
def weights_of_difficulty_the_wrong_way_round(patch: Patch) -> None:
    """Problems that never fail or never pass are preferred, and the ones between are avoided."""

    def after(weights: Any, *_: Any) -> Any:
        return weights | {"hard": weights["normal"], "easy": weights["normal"], "normal": 0.1}

    patch.after(f"{DIFFICULTY}:Difficulty._weights", after)


# -- verifier ------------------------------------------------------------------------------------


@ninth("verifier", "length")
def long_completions_punished_near_the_cap(patch: Patch) -> None:
    """Each token after the fourteenth takes a tenth off the reward, by a recipe that is left on."""

    def after(found: Any, judge: Any, completion: Any, *_: Any) -> Any:
        reward, passed = found
        if reward is None:
            return found
        return reward - 0.1 * max(0, len(completion.token_ids) - 14), passed

    patch.after("rlvr_core.verify.judge:Judge.reward", after)


@ninth("verifier", "verdict")
def verdicts_in_the_order_of_length(patch: Patch) -> None:
    """Completions are judged in the order of their length, and nobody undoes it on the way back."""

    def make(original: Any) -> Any:
        def sampled(generator: Any, answered: Any, version: int, step: int) -> Any:
            lengths = [len(one.token_ids) for one in answered.completions]
            order = sorted(range(len(lengths)), key=lengths.__getitem__)
            verdicts = [answered.verdicts[place] for place in order]
            return original(generator, replace(answered, verdicts=verdicts), version, step)

        return sampled

    patch.wrap(f"{COLLECT}:Generator.sampled", make)


# -- resume --------------------------------------------------------------------------------------


@ninth("resume", "adapter", "merged", "frozen", "reference", shape="lora", resume=True)
def resume_with_the_adapter_on_merged_weights(patch: Patch) -> None:
    """A resumed run has its adapter merged into the weights, and lays it on them once more."""

    def make(original: Any) -> Any:
        @torch.no_grad()
        def load(folder: Any, *, model: Any, **more: Any) -> Any:
            state = original(folder, model=model, **more)
            for layer in [one for one in model.modules() if hasattr(one, "lora_A")]:
                for name in layer.lora_A:
                    delta = layer.lora_B[name].weight @ layer.lora_A[name].weight
                    weight = layer.base_layer.weight
                    weight.add_((layer.scaling[name] * delta).to(weight.dtype))
            return state

        return load

    patch.wrap("rlvr_core.step.checkpoint:load", make)
