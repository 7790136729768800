"""Second set, written later and without reading the guards: learning, optimizer, masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from chaos.registry import Patch, later

OPTIMIZER = "rlvr_core.step.optim:Optimizer"
STEP = "rlvr_core.step.step"


def built(patch: Patch, change: Callable[[Any], None]) -> None:
    """Change the optimizer once it is built."""
    patch.after(f"{OPTIMIZER}.__init__", lambda _, optimizer, *__: change(optimizer))


def before_updates(patch: Patch, change: Callable[[Any], None]) -> None:
    """Do something to the optimizer before each update."""

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            change(optimizer)
            return original(optimizer, number)

        return step

    patch.wrap(f"{OPTIMIZER}.step", make)


# -- learning ------------------------------------------------------------------------------------


@later("learning", "update", "gradient")
def attention_frozen(patch: Patch) -> None:
    """All of attention is frozen, as for another recipe."""

    def after(model: Any, *_: Any) -> Any:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("self_attn" not in name)
        return model

    patch.after("rlvr_core.run.learner:_policy", after)


@later("learning", "update")
def every_other_update_is_lost(patch: Patch) -> None:
    """The inner optimizer acts on every other call only, as if it still accumulated."""
    calls = {"n": 0}

    def change(optimizer: Any) -> None:
        inner = optimizer.inner
        original = inner.step

        def step(*args: Any, **more: Any) -> Any:
            calls["n"] += 1
            return original(*args, **more) if calls["n"] % 2 else None

        inner.step = step

    built(patch, change)


@later("learning", "update", "gradient")
def optimizer_has_half_of_the_tensors(patch: Patch) -> None:
    """The optimizer was given every other tensor only."""

    def change(optimizer: Any) -> None:
        for group in optimizer.inner.param_groups:
            group["params"] = group["params"][::2]

    built(patch, change)


@later("learning", "update", "optimizer")
def weights_averaged_with_the_start(patch: Patch) -> None:
    """After each update the weights are averaged with those of the start."""
    start: list[Any] = []

    def note(optimizer: Any) -> None:
        start.extend(parameter.detach().clone() for parameter in optimizer.parameters)

    def after(update: Any, optimizer: Any, *_: Any) -> Any:
        with torch.no_grad():
            for parameter, first in zip(optimizer.parameters, start, strict=True):
                parameter.lerp_(first, 0.5)
        return update

    built(patch, note)
    patch.after(f"{OPTIMIZER}.step", after)


@later("learning", "lora", "adapter", "update", shape="lora")
def adapter_forgotten_every_third_step(patch: Patch) -> None:
    """After every third step the adapter begins again at 0, as if it had been merged."""
    steps = {"n": 0}

    def after(report: Any, trainer: Any, *_: Any) -> Any:
        steps["n"] += 1
        if steps["n"] % 3 == 0:
            with torch.no_grad():
                for name, parameter in trainer.model.named_parameters():
                    if "lora_B" in name:
                        parameter.zero_()
        return report

    patch.after(f"{STEP}:PolicyTrainer.update", after)


# -- optimizer -----------------------------------------------------------------------------------


@later("optimizer", "decay")
def weight_decay_unasked(patch: Patch) -> None:
    """AdamW decays all weights by 0.1, norms too, where no decay was asked for."""

    def change(optimizer: Any) -> None:
        for group in optimizer.inner.param_groups:
            group["weight_decay"] = 0.1

    built(patch, change)


@later("optimizer", "beta")
def betas_swapped(patch: Patch) -> None:
    """AdamW has its two decay rates the wrong way round."""

    def change(optimizer: Any) -> None:
        for group in optimizer.inner.param_groups:
            group["betas"] = group["betas"][::-1]

    built(patch, change)


@later("optimizer", "schedule", shape="cosine")
def schedule_one_step_ahead(patch: Patch) -> None:
    """Each update is made at the learning rate of the step after."""

    def make(original: Any) -> Any:
        return lambda optimizer, step: original(optimizer, step + 1)

    patch.wrap(f"{OPTIMIZER}.step", make)


@later("optimizer", "clip", shape="tight norm")
def each_micro_batch_clipped(patch: Patch) -> None:
    """The gathered gradient is clipped after every micro-batch, not once before the update."""

    def after(_: Any, optimizer: Any, *__: Any) -> None:
        norm = optimizer._train.max_grad_norm
        torch.nn.utils.clip_grad_norm_(optimizer.parameters, norm)

    patch.after(f"{OPTIMIZER}.backward", after)


@later("optimizer", "step")
def bias_correction_stays_at_the_first_step(patch: Patch) -> None:
    """AdamW counts every update as its first, and corrects its moments accordingly."""

    def change(optimizer: Any) -> None:
        for state in optimizer.inner.state.values():
            if "step" in state:
                state["step"].zero_()

    before_updates(patch, change)


@later("optimizer", "clip")
def gradient_clipped_by_value(patch: Patch) -> None:
    """Each entry of the gradient is cut at 0.002 before the norm is taken."""

    def change(optimizer: Any) -> None:
        torch.nn.utils.clip_grad_value_(optimizer.parameters, 0.002)

    before_updates(patch, change)


@later("optimizer")
def moments_of_half_of_the_tensors_lost(patch: Patch) -> None:
    """Half of the tensors lose their moments before every update."""

    def change(optimizer: Any) -> None:
        for parameter in optimizer.parameters[::2]:
            optimizer.inner.state.pop(parameter, None)

    before_updates(patch, change)


# -- masks ---------------------------------------------------------------------------------------


def rows(patch: Patch, change: Callable[[list[Any]], list[Any]]) -> None:
    """Change the rows of each group that is trained on."""

    def after(made: Any, *_: Any) -> Any:
        return replace(made, by_group=[change(group) for group in made.by_group])

    patch.after(f"{STEP}:rows_of", after)


@later("masks", "prompt")
def end_of_the_prompt_trained(patch: Patch) -> None:
    """The last four tokens of each prompt are trained on, as if they had been sampled."""

    def change(group: list[Any]) -> list[Any]:
        return [
            replace(
                row,
                prompt_ids=row.prompt_ids[:-4],
                token_ids=row.prompt_ids[-4:] + row.token_ids,
                loss_mask=(True,) * 4 + row.loss_mask,
                logprobs=(0.0,) * 4 + row.logprobs,
            )
            for row in group
        ]

    rows(patch, change)


@later("masks", "row", "completion")
def equal_answers_trained_once(patch: Patch) -> None:
    """Of equal completions of a group only the first is trained on."""
    rows(patch, lambda group: list({row.token_ids: row for row in reversed(group)}.values()))


@later("masks", "pad")
def mask_read_off_token_ids(patch: Patch) -> None:
    """The id of the space is taken for padding, so that no space is trained on."""

    def change(group: list[Any]) -> list[Any]:
        pad = 220
        return [
            replace(
                row,
                loss_mask=tuple(
                    kept and token != pad
                    for kept, token in zip(row.loss_mask, row.token_ids, strict=True)
                ),
            )
            for row in group
        ]

    rows(patch, change)


@later("masks")
def only_the_end_trained(patch: Patch) -> None:
    """Only the last four tokens of each completion are trained on."""

    def change(group: list[Any]) -> list[Any]:
        return [
            replace(row, loss_mask=(False,) * max(0, len(row.loss_mask) - 4) + row.loss_mask[-4:])
            for row in group
        ]

    rows(patch, change)


@later("masks")
def mask_of_the_row_before(patch: Patch) -> None:
    """In a micro-batch each row has the loss mask of the row before."""

    def after(batch: Any, *_: Any) -> Any:
        return replace(batch, mask_BT=batch.mask_BT.roll(1, 0) & batch.valid_BT)

    patch.after("rlvr_core.step.batch:_collate", after)
