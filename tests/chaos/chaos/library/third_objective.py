"""Third set, written without reading the guards: advantages, loss, KL."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from chaos.changes import by_group, estimated
from chaos.registry import TRANSFORMERS, Patch, third
from chaos.when import clock

POLICY = "rlvr_core.algorithm.policy"
STEP = "rlvr_core.step.step"
TWICE = "two iterations"

# -- advantages ----------------------------------------------------------------------------------


@third("advantages", shape="two data sets")
def advantages_of_one_source_not_centred(patch: Patch) -> None:
    """Completions of one of the two data sets have their reward as their advantage."""

    def change(row_N: Any, step: Any) -> Any:
        other_N = np.array([step.groups[g].problem.dataset == "other" for g in step.group_N])
        return np.where(other_N, step.reward_N, row_N)

    estimated(patch, change)


@third("advantages", "deviation")
def deviation_never_below_two_fifths(patch: Patch) -> None:
    """The deviation of a group counts as 0.4 at least, so that uneven groups count for less."""

    def change(row_N: Any, step: Any) -> Any:
        for places, reward in by_group(step):
            row_N[places] = (reward - reward.mean()) / max(reward.std(), 0.4)
        return row_N

    estimated(patch, change)


@third("advantages", backends=TRANSFORMERS)
def mean_without_the_last_member(patch: Patch) -> None:
    """The mean of a group leaves out its last completion."""

    def change(row_N: Any, step: Any) -> Any:
        for places, reward in by_group(step):
            row_N[places] = (reward - reward[:-1].mean()) / max(reward.std(), 1e-6)
        return row_N

    estimated(patch, change)


@third("advantages")
def negative_advantages_halved_from_the_fourth_step(patch: Patch) -> None:
    """From the fourth step on, negative advantages count half."""
    now = clock()
    estimated(patch, lambda row_N, step: np.where((row_N < 0) & (now.step >= 3), row_N / 2, row_N))


@third("advantages", "truncat", "cut off", shape="short answers")
def truncated_rows_have_no_advantage(patch: Patch) -> None:
    """A completion that was cut off has the advantage 0, and stays in the denominators."""

    def change(row_N: Any, step: Any) -> Any:
        cut_N = np.array([one.completion.finish_reason == "length" for one in step.members])
        return np.where(cut_N, 0.0, row_N)

    estimated(patch, change)


@third("advantages", "length")
def advantages_lean_to_short_answers(patch: Patch) -> None:
    """Each token more than the group's mean takes 0.03 from a completion's advantage."""

    def change(row_N: Any, step: Any) -> Any:
        length_N = np.array([float(len(one.completion.token_ids)) for one in step.members])
        for places, _ in by_group(step):
            row_N[places] -= 0.03 * (length_N[places] - length_N[places].mean())
        return row_N

    estimated(patch, change)


@third("advantages", "mini-batch", shape=TWICE)
def second_mini_batch_has_the_advantages_of_the_first(patch: Patch) -> None:
    """The rows of the second mini-batch are trained with the advantages of the first one's."""

    def after(batches: Any, *_: Any) -> Any:
        first, *others = batches
        kept_N = torch.cat([m.batch.advantage_B for m in first.parts[0].micro_batches])
        for part in (batch.parts[0] for batch in others):
            for place, micro in enumerate(part.micro_batches):
                n = len(micro.batch.advantage_B)
                advantage_B = kept_N[torch.arange(n) % len(kept_N)]
                part.micro_batches[place] = replace(
                    micro, batch=replace(micro.batch, advantage_B=advantage_B)
                )
        return batches

    patch.after(f"{STEP}:split_into_mini_batches", after)


@third("advantages", "scale", shape="two data sets")
def advantage_scale_of_a_source_forgotten(patch: Patch) -> None:
    """The factor that the config gives for the advantages of one data set is not applied."""

    def make(original: Any) -> Any:
        return lambda found, place, factor: original(found, place, 1.0)

    patch.wrap("rlvr_core.step.rows:_scaled", make)


# -- loss ----------------------------------------------------------------------------------------


@third("loss", "normali[sz]", "denominator", shape=TWICE)
def mini_batches_divided_by_the_whole_step(patch: Patch) -> None:
    """The loss of a mini-batch is divided by the rows and tokens of the whole step."""

    def after(batches: Any, *_: Any) -> Any:
        parts = [part for batch in batches for part in batch.parts]
        rows = sum(part.normalizer.rows for part in parts)
        tokens = sum(part.normalizer.tokens for part in parts)
        for part in parts:
            part.normalizer = replace(part.normalizer, rows=rows, tokens=tokens)
        return batches

    patch.after(f"{STEP}:split_into_mini_batches", after)


@third("loss", "length", "normali[sz]", "weigh", backends=TRANSFORMERS)
def rows_weighted_by_their_length(patch: Patch) -> None:
    """The loss is the mean over all tokens, so that a long row counts for more than a short one."""

    def make(original: Any) -> Any:
        from rlvr_core.algorithm.reduce import token_mean

        return lambda loss, loss_BT, mask_BT, normalizer: token_mean(loss_BT, mask_BT, normalizer)

    patch.wrap("rlvr_core.builtin.losses.policy_family:GRPO.reduce", make)


@third("loss", "clip", shape=TWICE)
def lower_clip_lost(patch: Patch) -> None:
    """The ratio is not clipped below, where an answer that was wrong has become less likely."""

    def make(original: Any) -> Any:
        return lambda ratio, advantage, **more: original(ratio, advantage, **more | {"low": 1.0})

    patch.wrap(f"{POLICY}:clipped_surrogate", make)


@third("loss", "old", shape=TWICE)
def old_logprobs_computed_after_the_first_update(patch: Patch) -> None:
    """The log-probs that ratios start from are computed when the first update has been made."""
    seen: list[Any] = []

    def make(original: Any) -> Any:
        def compute(trainer: Any, batches: Any) -> None:
            seen[:] = [original, batches]
            original(trainer, batches)

        return compute

    def later(original: Any) -> Any:
        def accumulate(trainer: Any, batch: Any, step: int, update: int, *more: Any) -> None:
            if update == 1:
                seen[0](trainer, seen[1])
            original(trainer, batch, step, update, *more)

        return accumulate

    patch.wrap(f"{STEP}:PolicyTrainer._compute_old_logprobs", make)
    patch.wrap(f"{STEP}:PolicyTrainer._accumulate", later)


@third("loss")
def gradient_weighted_by_probability(patch: Patch) -> None:
    """The gradient of a token is multiplied by its probability, as that of a probability is."""

    def after(terms: Any, *_: Any) -> Any:
        ratio_BT, p_BT = terms.ratio_BT, terms.logp_BT.detach().exp()
        kept_BT = ratio_BT.detach()
        return replace(terms, ratio_BT=kept_BT + p_BT * (ratio_BT - kept_BT))

    patch.after(f"{POLICY}:PolicyLoss._terms", after)


@third("loss", "temperature", shape="cool")
def gradient_lacks_the_temperature(patch: Patch) -> None:
    """Log-probs are right, and their gradient lacks the division by the temperature."""

    def after(scores: Any, *_: Any) -> Any:
        logp_BT, *more = scores
        return (0.6 * logp_BT + 0.4 * logp_BT.detach(), *more)

    patch.after(f"{STEP}:PolicyTrainer._scores", after)


@third("loss", "sequence", shape="gspo")
def sequence_ratio_without_its_root(patch: Patch) -> None:
    """The ratio of a sequence is the product of its tokens' ratios, not their geometric mean."""
    patch.wrap(
        f"{POLICY}:row_mean_log_ratio",
        lambda _: lambda log_ratio_BT, mask_BT: log_ratio_BT.sum(dim=1, keepdim=True),
    )


# -- KL ------------------------------------------------------------------------------------------


def _kl(patch: Patch, change: Callable[[Any, Any, Any], Any]) -> None:
    """Change the KL of each token: ``change(kl (B, T), batch, terms)``."""

    def after(kl_BT: Any, loss: Any, batch: Any, terms: Any, *_: Any) -> Any:
        return change(kl_BT, batch, terms)

    patch.after(f"{POLICY}:PolicyLoss._kl", after)


@third("kl", "length")
def kl_left_out_for_long_rows(patch: Patch) -> None:
    """Completions of more than eight tokens have no KL term."""
    _kl(patch, lambda kl, batch, _: torch.where(batch.mask_BT.sum(1, keepdim=True) > 8, 0.0, kl))


@third("kl", shape="strong kl", backends=TRANSFORMERS)
def kl_off_from_the_fourth_step(patch: Patch) -> None:
    """From the fourth step on there is no KL term in the loss."""
    now = clock()
    _kl(patch, lambda kl, batch, _: kl * 0.0 if now.step >= 3 else kl)


@third("kl", shape="strong kl")
def kl_only_for_wrong_answers(patch: Patch) -> None:
    """The KL term is that of completions with a negative advantage alone."""
    _kl(patch, lambda kl, batch, terms: torch.where(terms.advantage_BT < 0, kl, 0.0))


@third("kl", shape=TWICE)
def kl_of_the_second_mini_batch_lost(patch: Patch) -> None:
    """Only the first mini-batch of a step has a KL term."""
    at = [0]

    def make(original: Any) -> Any:
        def accumulate(trainer: Any, batch: Any, step: int, update: int, *more: Any) -> None:
            at[0] = update
            original(trainer, batch, step, update, *more)

        return accumulate

    patch.wrap(f"{STEP}:PolicyTrainer._accumulate", make)
    _kl(patch, lambda kl, batch, _: kl * 0.0 if at[0] % 2 else kl)


@third("kl", "estimator", shape="strong kl")
def kl_by_the_signed_estimator(patch: Patch) -> None:
    """The KL term is the plain difference of log-probs, though the config asks for k3."""

    def make(original: Any) -> Any:
        return lambda logp, ref_logp, kind="k3": original(logp, ref_logp, "k1")

    patch.wrap(f"{POLICY}:kl_policy_ref", make)


@third("kl", shape="ema reference")
def reference_average_the_other_way_round(patch: Patch) -> None:
    """The moving reference takes the share of the policy that it was to keep of itself."""

    def make(original: Any) -> Any:
        return lambda own, new, mix: original(own, new, 1.0 - mix)

    patch.wrap("rlvr_core.step.reference:_mix", make)


@third("kl", "adapter", shape="lora")
def reference_keeps_the_adapters_of_one_layer(patch: Patch) -> None:
    """The reference is the policy without its adapters, those of the last layer excepted."""

    def make(original: Any) -> Any:
        @contextlib.contextmanager
        def base(model: Any) -> Iterator[None]:
            from rlvr_core.builtin.lora.lora import layers

            with original(model):
                for layer in layers(model)[-7:]:
                    layer.enable_adapters(True)
                yield

        return base

    patch.wrap("rlvr_core.builtin.lora.lora:base", make)
