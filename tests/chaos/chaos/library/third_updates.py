"""Third set, written without reading the guards: learning, optimizer, masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from chaos.changes import masks_of_rows
from chaos.registry import TRANSFORMERS, Patch, third
from chaos.when import ENGINE

OPTIM = "rlvr_core.step.optim"
STEP = "rlvr_core.step.step"
TWICE = "two iterations"


def _before(patch: Patch, change: Callable[[Any, int], None]) -> None:
    """Do something before each update: ``change(optimizer, step)``."""

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            change(optimizer, number)
            return original(optimizer, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@torch.no_grad()
def _stepped(optimizer: Any, original: Any, number: int) -> tuple[Any, list[Any], list[Any]]:
    """Make an update; what it said, and gradients and weights from before it."""
    weights = [one.detach().clone() for one in optimizer.parameters]
    gradients = [None if one.grad is None else one.grad.clone() for one in optimizer.parameters]
    return original(optimizer, number), gradients, weights


def _after(patch: Patch, change: Callable[[Any, int, list[Any], list[Any]], None]) -> None:
    """Do something after each update: ``change(optimizer, step, gradients, weights before)``."""

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            said, gradients, weights = _stepped(optimizer, original, number)
            with torch.no_grad():
                change(optimizer, number, gradients, weights)
            return said

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


# -- learning ------------------------------------------------------------------------------------


@third("learning", "schedule", shape="cosine")
def schedule_ends_halfway(patch: Patch) -> None:
    """The schedule of the learning rate is at its end, 0, in the middle of the run."""
    place = f"{OPTIM}:learning_rate"
    patch.after(place, lambda rate, train, schedule, step: 0.0 if step >= 4 else rate)


@third("learning", backends=TRANSFORMERS)
def matrices_frozen(patch: Patch) -> None:
    """Only the scales of the norms are trained; no matrix gets a gradient."""

    def change(optimizer: Any, step: int) -> None:
        for one in optimizer.parameters:
            if one.ndim >= 2:
                one.grad = None

    _before(patch, change)


@third("learning", "adapter", shape="lora")
def adapters_of_the_upper_half_frozen(patch: Patch) -> None:
    """The adapters of the upper half of the layers get no gradient."""

    def change(optimizer: Any, step: int) -> None:
        for one in optimizer.parameters[len(optimizer.parameters) // 2 :]:
            one.grad = None

    _before(patch, change)


@third("learning", "norm", "clip", shape="tight norm")
def gradients_above_the_norm_thrown_away(patch: Patch) -> None:
    """A gradient whose norm is above the limit becomes 0, in the place of being scaled."""

    def after(norm: Any, parameters: Any, most: float, *_: Any) -> Any:
        if float(norm) > most:
            for one in parameters:
                if one.grad is not None:
                    one.grad.zero_()
        return norm

    patch.after("torch.nn.utils:clip_grad_norm_", after)


@third("learning", "update", shape=TWICE)
def later_updates_of_a_step_do_nothing(patch: Patch) -> None:
    """Of the updates of a step only the first one changes the weights."""
    last = [-1]

    def change(optimizer: Any, step: int, gradients: Any, weights: Any) -> None:
        if step == last[0]:
            for one, old in zip(optimizer.parameters, weights, strict=True):
                one.copy_(old)
        last[0] = step

    _after(patch, change)


@third("learning", "embedding", "row", "vocabular")
def half_of_the_vocabulary_frozen(patch: Patch) -> None:
    """The embeddings of one half of the vocabulary get no gradient."""

    def change(optimizer: Any, step: int) -> None:
        for name, one in zip(optimizer.names, optimizer.parameters, strict=True):
            if ("embed_tokens" in name or "lm_head" in name) and one.grad is not None:
                one.grad[: len(one) // 2] = 0.0

    _before(patch, change)


# -- optimizer -----------------------------------------------------------------------------------


@third("optimizer", "weights")
def weights_rolled_back_once(patch: Patch) -> None:
    """After the fifth step the weights are those of the third again; the moments stay."""
    kept: list[Any] = []

    def change(optimizer: Any, step: int, gradients: Any, weights: Any) -> None:
        if step == 2:
            kept[:] = [one.detach().clone() for one in optimizer.parameters]
        if step == 4:
            for one, old in zip(optimizer.parameters, kept, strict=True):
                one.copy_(old)

    _after(patch, change)


@third("optimizer", shape=TWICE)
def second_mini_batch_adds_to_the_first(patch: Patch) -> None:
    """Gradients are cleared when an iteration ends, and not between its two mini-batches."""
    made = [0]

    def change(optimizer: Any, step: int, gradients: Any, weights: Any) -> None:
        made[0] += 1
        if made[0] % 2:
            for one, gradient in zip(optimizer.parameters, gradients, strict=True):
                one.grad = gradient

    _after(patch, change)


@third("optimizer", backends=TRANSFORMERS)
def one_layer_at_the_tenfold_rate(patch: Patch) -> None:
    """The second layer moves ten times as far as the learning rate says."""

    def change(optimizer: Any, step: int, gradients: Any, weights: Any) -> None:
        for name, one, old in zip(optimizer.names, optimizer.parameters, weights, strict=True):
            if "layers.1." in name:
                one.add_(one - old, alpha=9.0)

    _after(patch, change)


@third("optimizer")
def learning_rate_threefold_from_the_fourth_step(patch: Patch) -> None:
    """From the fourth step on, weights move three times as far as the learning rate says."""

    def change(optimizer: Any, step: int, gradients: Any, weights: Any) -> None:
        for one, old in zip(optimizer.parameters, weights, strict=True):
            if step >= 3:
                one.add_(one - old, alpha=2.0)

    _after(patch, change)


@third("optimizer")
def half_of_the_gradient_stays(patch: Patch) -> None:
    """Half of the gradient of an update is left for the next one."""

    def change(optimizer: Any, step: int, gradients: Any, weights: Any) -> None:
        for one, gradient in zip(optimizer.parameters, gradients, strict=True):
            one.grad = None if gradient is None else gradient / 2

    _after(patch, change)


@third("optimizer", r"\beps")
def epsilon_a_thousandfold(patch: Patch) -> None:
    """AdamW divides with an epsilon that is a thousand times the configured one."""

    def after(made: Any, *_: Any) -> Any:
        for group in made.param_groups:
            group["eps"] *= 1000
        return made

    patch.after(f"{OPTIM}:AdamW.build", after)


@third("optimizer", "decay", shape="weight decay")
def weight_decay_in_the_gradient(patch: Patch) -> None:
    """Weight decay is added to the gradient, where Adam's denominator takes it off again."""

    def make(original: Any) -> Any:
        def build(builder: Any, parameters: Any, lr: float) -> Any:
            options = builder.config
            return torch.optim.Adam(
                [one.tensor for one in parameters],
                lr=lr,
                betas=options.betas,
                eps=options.eps,
                weight_decay=options.weight_decay,
                fused=True,
            )

        return build

    patch.wrap(f"{OPTIM}:AdamW.build", make)


# -- masks ---------------------------------------------------------------------------------------


@third("masks", "length", "long")
def rows_above_twelve_tokens_masked(patch: Patch) -> None:
    """Completions of more than twelve tokens are left out of the loss."""
    masks_of_rows(
        patch,
        lambda row, _: [kept and len(row.token_ids) <= 12 for kept in row.loss_mask],
    )


@third("masks", "source", "data set", shape="two data sets")
def rows_of_one_source_masked(patch: Patch) -> None:
    """No token of one of the two data sets is trained on."""
    masks_of_rows(
        patch, lambda row, problem: [k and problem.dataset != "other" for k in row.loss_mask]
    )


@third("masks")
def one_token_in_ten_not_trained(patch: Patch) -> None:
    """One token in ten is left out of the loss, here and there."""
    masks_of_rows(
        patch,
        lambda row, _: [
            kept and (7 * place + sum(row.token_ids)) % 10 != 0
            for place, kept in enumerate(row.loss_mask)
        ],
    )


@third("masks", "truncat", "cut off", shape="masked truncation")
def truncation_mask_forgotten(patch: Patch) -> None:
    """Completions that were cut off are trained on, though the config leaves them out."""

    def make(original: Any) -> Any:
        return lambda *args, **more: original(*args, **more | {"mask_truncated": False})

    patch.wrap(f"{STEP}:rows_of", make)


@third("masks", "micro-batch", shape="micro batches")
def last_row_of_each_micro_batch_masked(patch: Patch) -> None:
    """The last row of each micro-batch takes no part in the loss."""

    def after(batch: Any, *_: Any) -> Any:
        mask_BT = batch.mask_BT.clone()
        if len(mask_BT) > 1:
            mask_BT[-1] = False
        return replace(batch, mask_BT=mask_BT)

    patch.after("rlvr_core.step.batch:_collate", after)


@third("masks", "twice", "mini-batch", shape=TWICE)
def one_group_in_both_mini_batches(patch: Patch) -> None:
    """The first group of a step is in both of its mini-batches, in the place of another one."""

    def make(original: Any) -> Any:
        def only(rows: Any, places: Any) -> Any:
            first = rows.trained[0]
            return original(rows, [first, *places[1:]] if first not in places else places)

        return only

    patch.wrap("rlvr_core.step.objective:TrainingRows.only", make)


@third("masks")
def digits_masked_as_if_a_tool_had_written_them(patch: Patch) -> None:
    """Tokens with a digit in them are left out of the loss, as the text of a tool is."""
    tokenizer: list[Any] = []

    def start(original: Any) -> Any:
        def begin(engine: Any, context: Any) -> None:
            tokenizer[:] = [context.tokenizer]
            original(engine, context)

        return begin

    def make(original: Any) -> Any:
        def generation(**given: Any) -> Any:
            texts = [tokenizer[0].decode([token]) for token in given["token_ids"]]
            mask = tuple(not any(map(str.isdigit, text)) for text in texts)
            return original(**given, loss_mask=mask)

        return generation

    patch.wrap(f"{ENGINE}:TransformersEngine.start", start)
    patch.wrap(f"{ENGINE}:Generation", make)
