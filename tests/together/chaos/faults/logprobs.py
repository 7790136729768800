"""Trainer and engine disagree on the log-probs of what was sampled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from tests.together.chaos.changes import DECODE, FORWARD, STEP, reported, training_pass
from tests.together.chaos.registry import BOTH, Patch, fault


@fault("parity", backends=BOTH)
def training_temperature_95(patch: Patch) -> None:
    """The training pass alone is at temperature 0.95."""
    training_pass(patch, lambda batch, options: (batch, options | {"temperature": 0.95}))


@fault("parity", shape="cool")
def trainer_ignores_temperature(patch: Patch) -> None:
    """The run samples at temperature 0.6, and the trainer's passes are at 1."""
    patch.options(f"{STEP}:completion_scores", temperature=1.0)
    patch.options(f"{STEP}:completion_logprobs", temperature=1.0)


@fault("parity", backends=BOTH)
def trainer_off_by_one(patch: Patch) -> None:
    """In every pass of the trainer the distribution of the token before is read."""
    patch.after(f"{FORWARD}:predict", lambda f, *_: replace(f, states=f.states.roll(1, 0)))


@fault("parity")
def training_prompt_cut(patch: Patch) -> None:
    """The trainer's rows lack the first three tokens of the prompt."""

    def make(original: Any) -> Any:
        def row(prompt_ids: Any, *args: Any, **options: Any) -> Any:
            return original(prompt_ids[3:] or prompt_ids, *args, **options)

        return row

    patch.wrap("rlvr_core.step.rows:Row", make)
    patch.wrap(f"{STEP}:Row", make)


@fault("parity", shape="own forward")
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


@fault("parity", shape="own forward")
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


@fault("parity", "loss")
def training_logprobs_in_half_precision(patch: Patch) -> None:
    """The trainer's log-probs are rounded to bfloat16 after the softmax."""

    def coarse(scores: Any, *_: Any) -> Any:
        logp, *others = scores
        return (logp + (logp.bfloat16().float() - logp).detach(), *others)

    patch.after(f"{STEP}:completion_scores", coarse)


@fault("parity", shape="micro batches")
def micro_batches_share_a_buffer(patch: Patch) -> None:
    """Log-probs of sampling of all micro-batches lie in one buffer: the last one's stay in it."""
    room = torch.zeros(1 << 17)

    def after(batches: Any, *_: Any) -> Any:
        made = []
        for batch in batches:
            part_BT = room[: batch.behaviour_logp_BT.numel()].view_as(batch.behaviour_logp_BT)
            part_BT.copy_(batch.behaviour_logp_BT)
            made.append(replace(batch, behaviour_logp_BT=part_BT))
        return made

    patch.after(f"{STEP}:micro_batches", after)


@fault("parity", backends=BOTH)
def reported_one_late(patch: Patch) -> None:
    """The engine reports each token's log-prob one place late."""
    reported(patch, lambda logps: (*logps[-1:], *logps[:-1]))


@fault("parity", shape="cool", backends=BOTH)
def engine_reports_raw_logprobs(patch: Patch) -> None:
    """The run samples at temperature 0.6, and the engine reports log-probs at 1."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            raw_BV = logits_BV.clone().float().log_softmax(-1)
            token_B, _ = original(logits_BV, rows, uniform_B)
            return token_B, raw_BV.gather(1, token_B[:, None])[:, 0]

        return sample

    patch.wrap(f"{DECODE}:sample", make)


@fault("parity", "sync", backends=BOTH)
def engine_norm_has_another_epsilon(patch: Patch) -> None:
    """The engine's logits are 3 % too small, as with another epsilon of the last norm."""

    def make(original: Any) -> Any:
        return lambda logits_BV, rows, u: original(logits_BV * 0.97, rows, u)

    patch.wrap(f"{DECODE}:sample", make)


@fault("parity", backends=BOTH)
def prefix_cache_with_a_hash_of_seven_tokens(patch: Patch) -> None:
    """The engine's prefix cache knows a prompt by seven tokens: some are answered as another."""

    def make(original: Any) -> Any:
        def decode(decoder: Any, prompts: Any, plans: Any, **options: Any) -> Any:
            known: dict[Any, Any] = {}
            cached = [known.setdefault((prompt[:7], len(prompt)), prompt) for prompt in prompts]
            return original(decoder, cached, plans, **options)

        return decode

    patch.wrap("rlvr_core.engines.transformers:decode", make)
