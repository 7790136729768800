"""Trainer and engine disagree on the log-probs of what was sampled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from chaos.registry import EVERYWHERE, TRANSFORMERS, Patch, fault

STEP = "rlvr_core.step.step"
FORWARD = "rlvr_core.step.forward"
COLLECT = "rlvr_core.rollout.collect"


def training_pass(patch: Patch, change: Callable[..., tuple[Any, dict[str, Any]]]) -> None:
    """Change batch and options of the pass that is trained through, and of no other."""

    def make(original: Any) -> Any:
        def scores(model: Any, batch: Any, **options: Any) -> Any:
            batch, options = change(batch, options)
            return original(model, batch, **options)

        return scores

    patch.wrap(f"{STEP}:completion_scores", make)


def every_pass(patch: Patch, change: Callable[..., tuple[Any, dict[str, Any]]]) -> None:
    """Change batch and options of every pass of the trainer."""
    training_pass(patch, change)

    def make(original: Any) -> Any:
        def logprobs(model: Any, batch: Any, **options: Any) -> Any:
            batch, options = change(batch, options)
            return original(model, batch, **options)

        return logprobs

    patch.wrap(f"{STEP}:completion_logprobs", make)


def reported(patch: Patch, change: Callable[[tuple[float, ...]], Any]) -> None:
    """Change the log-probs that any engine reports."""

    def make(original: Any) -> Any:
        def completion(prompt_ids: Any, generation: Any) -> Any:
            logprobs = tuple(float(x) for x in change(generation.logprobs))
            return original(prompt_ids, replace(generation, logprobs=logprobs))

        return completion

    patch.wrap(f"{COLLECT}:_completion", make)


@fault("parity", "temperature", backends=EVERYWHERE)
def training_temperature_95(patch: Patch) -> None:
    """The training pass alone is at temperature 0.95."""
    training_pass(patch, lambda batch, o: (batch, o | {"temperature": 0.95}))


@fault("parity", "temperature", backends=EVERYWHERE)
def training_temperature_half(patch: Patch) -> None:
    """The training pass alone is at temperature 0.5."""
    training_pass(patch, lambda batch, o: (batch, o | {"temperature": 0.5}))


@fault("parity", "temperature", backends=EVERYWHERE)
def trainer_temperature_90(patch: Patch) -> None:
    """Every pass of the trainer is at temperature 0.9, and the engine at 1."""
    every_pass(patch, lambda batch, o: (batch, o | {"temperature": 0.9}))


@fault("parity", "temperature", shape="cool", backends=TRANSFORMERS)
def trainer_ignores_temperature(patch: Patch) -> None:
    """The run samples at temperature 0.6, and the trainer's passes are at 1."""
    every_pass(patch, lambda batch, o: (batch, o | {"temperature": 1.0}))


@fault("parity", backends=EVERYWHERE)
def training_off_by_one(patch: Patch) -> None:
    """In the training pass the distribution of the token before is read."""
    inside = []

    def scores(original: Any) -> Any:
        def made(*args: Any, **options: Any) -> Any:
            inside.append(1)
            try:
                return original(*args, **options)
            finally:
                inside.pop()

        return made

    def shift(found: Any, *_: Any) -> Any:
        return replace(found, states=found.states.roll(1, 0)) if inside else found

    patch.after(f"{FORWARD}:predict", shift)
    patch.wrap(f"{STEP}:completion_scores", scores)


@fault("parity", backends=TRANSFORMERS)
def trainer_off_by_one(patch: Patch) -> None:
    """In every pass of the trainer the distribution of the token before is read."""
    patch.after(f"{FORWARD}:predict", lambda f, *_: replace(f, states=f.states.roll(1, 0)))


@fault("parity", backends=EVERYWHERE)
def training_rows_swapped(patch: Patch) -> None:
    """In the training pass each row has the log-probs of its neighbour."""

    def swap(found: Any, *_: Any) -> Any:
        logp_BT, entropy_BT, *more = found
        return (logp_BT.roll(1, 0), entropy_BT, *more)

    patch.after(f"{STEP}:completion_scores", swap)


@fault("parity", backends=EVERYWHERE)
def reported_zero(patch: Patch) -> None:
    """The engine reports 0 for every token."""
    reported(patch, lambda logps: [0.0] * len(logps))


@fault("parity", backends=EVERYWHERE)
def batch_behaviour_zero(patch: Patch) -> None:
    """The log-probs of sampling are zeroed in the training batch."""
    patch.after(
        "rlvr_core.step.batch:_collate",
        lambda b, *_: replace(b, behaviour_logp_BT=torch.zeros_like(b.behaviour_logp_BT)),
    )


@fault("parity", backends=EVERYWHERE)
def reported_shifted(patch: Patch) -> None:
    """The engine reports each token's log-prob one place late."""
    reported(patch, lambda logps: (*logps[-1:], *logps[:-1]))


@fault("parity", backends=EVERYWHERE)
def reported_base_two(patch: Patch) -> None:
    """The engine reports logarithms to base 2."""
    reported(patch, lambda logps: [x / math.log(2) for x in logps])


@fault("parity", backends=EVERYWHERE)
def reported_tenths(patch: Patch) -> None:
    """The engine reports log-probs rounded to whole tenths."""
    reported(patch, lambda logps: [round(x, 1) for x in logps])


@fault("parity", backends=EVERYWHERE)
def reported_mean(patch: Patch) -> None:
    """The engine reports the mean log-prob of the completion for each of its tokens."""
    reported(patch, lambda logps: [sum(logps) / max(1, len(logps))] * len(logps))


@fault("parity", backends=EVERYWHERE)
def reported_first_wrong(patch: Patch) -> None:
    """The log-prob of the first token of each completion is 0, as if it were given."""
    reported(patch, lambda logps: [0.0, *logps[1:]])


@fault("parity", "temperature", "raw", shape="cool", backends=TRANSFORMERS)
def engine_reports_raw_at_060(patch: Patch) -> None:
    """The run samples at temperature 0.6, and the engine reports log-probs at 1."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            raw_BV = logits_BV.clone().float().log_softmax(-1)
            token_B, _ = original(logits_BV, rows, uniform_B)
            return token_B, raw_BV.gather(1, token_B[:, None])[:, 0]

        return sample

    patch.wrap("rlvr_core.engines.decode:sample", make)


@fault("parity", "prompt", backends=EVERYWHERE)
def training_prompt_cut(patch: Patch) -> None:
    """The trainer's rows lack the first three tokens of the prompt."""

    def make(original: Any) -> Any:
        def row(prompt_ids: Any, *args: Any, **more: Any) -> Any:
            return original(prompt_ids[3:] or prompt_ids, *args, **more)

        return row

    patch.wrap("rlvr_core.step.rows:Row", make)
    patch.wrap(f"{STEP}:Row", make)


@fault("parity", "prompt", backends=EVERYWHERE)
def training_pass_prompt_last_token(patch: Patch) -> None:
    """In the training pass alone the last token of each prompt is another."""

    def change(batch: Any, options: Any) -> Any:
        ids_SP = batch.prompt_ids_SP.clone()
        ids_SP[torch.arange(len(ids_SP)), batch.prompt_len_S - 1] = 5
        return replace(batch, prompt_ids_SP=ids_SP), options

    training_pass(patch, change)


@fault("parity", "dropout", shape="own forward")
def training_with_dropout(patch: Patch) -> None:
    """Attention drops a tenth in the training pass."""

    def make(original: Any) -> Any:
        def scores(model: Any, batch: Any, **options: Any) -> Any:
            for module in model.modules():
                if hasattr(module, "attention_dropout"):
                    module.attention_dropout = 0.1
            model.train()
            try:
                return original(model, batch, **options)
            finally:
                model.eval()

        return scores

    patch.wrap(f"{STEP}:completion_scores", make)


@fault("parity", "attention", "mask", shape="own forward", backends=("in process",))
def training_sees_padding(patch: Patch) -> None:
    """The trainer's attention mask leaves out the first four tokens of every prompt."""

    def make(original: Any) -> Any:
        def rows(module: Any, batch: Any) -> Any:
            def blind(**options: Any) -> Any:
                seen_BL = torch.ones_like(options["input_ids"])
                seen_BL[:, :4] = 0
                return module(**options, attention_mask=seen_BL)

            return original(blind, batch)

        return rows

    patch.wrap(f"{FORWARD}:whole_rows", make)


@fault("parity", "position", shape="own forward")
def training_positions_jump(patch: Patch) -> None:
    """In the trainer, positions of the completion begin 64 further than in the engine."""

    def make(original: Any) -> Any:
        def rows(module: Any, batch: Any) -> Any:
            length_B1 = batch.prompt_len_S[batch.prompt_of_row_B][:, None]

            def late(**options: Any) -> Any:
                at_L = torch.arange(options["input_ids"].shape[1])
                at_BL = torch.where(at_L >= length_B1, at_L + 64, at_L)
                return module(**options, position_ids=at_BL)

            return original(late, batch)

        return rows

    patch.wrap(f"{FORWARD}:whole_rows", make)


@fault("parity", "head", "logit", backends=EVERYWHERE)
def training_head_capped(patch: Patch) -> None:
    """The trainer's logits are capped at 4 by tanh, the engine's are not."""

    def cap(found: Any, *_: Any) -> Any:
        head = found.head
        logits_NV = torch.nn.functional.linear(found.states, head.weight.to(found.states.dtype))
        return replace(found, states=4 * torch.tanh(logits_NV / 4), head=None)

    patch.after(f"{FORWARD}:predict", cap)


@fault("parity", "precision", "dtype", backends=TRANSFORMERS)
def trainer_weights_in_four_bits(patch: Patch) -> None:
    """The trainer's hidden states are rounded to 3 significant bits before the head."""

    def coarse(found: Any, *_: Any) -> Any:
        x = found.states
        scale = x.detach().abs().amax() / 7
        return replace(found, states=x + ((x / scale).round() * scale - x).detach())

    patch.after(f"{FORWARD}:predict", coarse)


@fault("parity", "norm", backends=TRANSFORMERS)
def engine_norm_eps(patch: Patch) -> None:
    """The engine's logits are 3 % too small, as with another epsilon of the last norm."""

    def make(original: Any) -> Any:
        return lambda logits_BV, rows, u: original(logits_BV * 0.97, rows, u)

    patch.wrap("rlvr_core.engines.decode:sample", make)


@fault("parity", "prompt", backends=EVERYWHERE)
def engine_prompt_without_last(patch: Patch) -> None:
    """The engine is given the prompt without its last token."""
    patch.after(
        f"{COLLECT}:Generator._request",
        lambda request, *_: replace(request, prompt_ids=request.prompt_ids[:-1]),
    )


@fault("parity", "prompt", backends=EVERYWHERE)
def engine_prompt_with_system(patch: Patch) -> None:
    """The engine is given a system text before the prompt that the trainer never sees."""
    patch.after(
        f"{COLLECT}:Generator._request",
        lambda request, *_: replace(request, prompt_ids=(10, 20, 30, 40, *request.prompt_ids)),
    )


@fault("parity", "token", backends=EVERYWHERE)
def tokens_encoded_again(patch: Patch) -> None:
    """The trainer's tokens are those of the text without its leading space, encoded again."""

    def make(original: Any) -> Any:
        def completion(prompt_ids: Any, generation: Any) -> Any:
            ids, logps = generation.token_ids, generation.logprobs
            if len(ids) > 2:
                generation = replace(generation, token_ids=ids[1:], logprobs=logps[1:])
            return original(prompt_ids, generation)

        return completion

    patch.wrap(f"{COLLECT}:_completion", make)
