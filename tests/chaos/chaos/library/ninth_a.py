"""Ninth set, written without reading the guards: engine, sampler, sync, objective."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from chaos.changes import by_group, estimated, letter
from chaos.registry import TRANSFORMERS, Patch, fault
from chaos.when import DECODE, ENGINE, drawn_from, engine_has

POLICY = "rlvr_core.algorithm.policy"
PLUS_PLUS = "rlvr_core.builtin.advantages.reinforce_plus_plus:ReinforcePlusPlus"


def ninth(cls: str, *more_words: str, **options: Any) -> Any:
    """Declare a fault of the ninth set, like ``fault``."""
    return fault(cls, *more_words, set=9, **options)


# -- parity --------------------------------------------------------------------------------------


@contextmanager
def _merged_in_base_two() -> Iterator[None]:
    """Attend to prompt and sampled tokens apart, and weigh both by 2 to the log of their sums."""
    honest = F.scaled_dot_product_attention
    known = {"prompt": 0}

    def attend(
        q: Any, k: Any, v: Any, attn_mask: Any = None, scale: float | None = None, **more: Any
    ) -> Any:
        if q.shape[-2] > 1:
            known["prompt"] = k.shape[-2]
            return honest(q, k, v, attn_mask=attn_mask, scale=scale, **more)
        heads = q.shape[1] // k.shape[1]
        k, wide = k.repeat_interleave(heads, 1).float(), v.repeat_interleave(heads, 1).float()
        score = q.float() @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            score = score.masked_fill(~attn_mask, -torch.inf)
        elif attn_mask is not None:
            score = score + attn_mask
        sizes = [known["prompt"], k.shape[-2] - known["prompt"]]
        parts = list(zip(score.split(sizes, -1), wide.split(sizes, -2), strict=True))
        lse = torch.stack([part.logsumexp(-1, keepdim=True) for part, _ in parts])
        share = (lse * math.log(2)).softmax(0)
        out = torch.stack([part.softmax(-1) @ value for part, value in parts])
        return (share * out).sum(0).to(v.dtype)

    F.scaled_dot_product_attention = attend
    try:
        yield
    finally:
        F.scaled_dot_product_attention = honest


@ninth("parity", "attention", "cache", backends=TRANSFORMERS)
def prompt_and_completion_merged_in_the_wrong_base(patch: Patch) -> None:
    """Attention to a shared prompt and to the rest are merged by sums whose logs are to base 2."""

    def make(original: Any) -> Any:
        def sample(engine: Any, wave: Any, deadline: Any) -> None:
            with _merged_in_base_two():
                original(engine, wave, deadline)

        return sample

    patch.wrap(f"{ENGINE}:TransformersEngine._fast", lambda original: lambda engine: None)
    patch.wrap(f"{ENGINE}:TransformersEngine._sample", make)


# -- sampler, seeds ------------------------------------------------------------------------------


@ninth("sampler", "likeliest")
def likeliest_tokens_left_out_of_every_second_draw(patch: Patch) -> None:
    """In half of the draws, of tokens of a tenth or more only the least likely one is left in."""
    coins = torch.Generator().manual_seed(9)

    def change(logits_BV: Any) -> Any:
        p_BV = logits_BV.softmax(-1)
        above_BV = p_BV >= 0.1
        least_B1 = p_BV.masked_fill(~above_BV, torch.inf).amin(-1, keepdim=True)
        coin_B1 = torch.rand(len(p_BV), 1, generator=coins).to(p_BV.device) < 0.5
        return logits_BV.masked_fill(above_BV & (p_BV > least_B1) & coin_B1, -torch.inf)

    drawn_from(patch, change)


@ninth("sampler", "draft", "speculat", "distribution")
def rejected_drafts_replaced_by_any_token(patch: Patch) -> None:
    """Where a draft is refused, a token of the whole distribution is drawn, not of what is left."""

    def change(logits_BV: Any) -> Any:
        p_BV, draft_BV = logits_BV.softmax(-1), (3.0 * logits_BV).softmax(-1)
        accepted_BV = torch.minimum(p_BV, draft_BV)
        refused_B1 = 1.0 - accepted_BV.sum(-1, keepdim=True)
        return (accepted_BV + refused_B1 * p_BV).log()

    drawn_from(patch, change)


@ninth("sampler", r"\bseed", "again", "retr", "reject", backends=TRANSFORMERS)
def unreadable_completions_sampled_again(patch: Patch) -> None:
    """A completion without one number in brackets is answered again, once, by a wrapper's retry."""
    opened, closed = letter("["), letter("]")

    def readable(row: Any) -> bool:
        return row.token_ids.count(opened) == 1 and row.token_ids.count(closed) == 1

    def make(original: Any) -> Any:
        def decode(decoder: Any, prompts: Any, plans: Any, **more: Any) -> Any:
            doubled = [
                [one for plan in group for one in (plan, replace(plan, seed=plan.seed ^ (1 << 37)))]
                for group in plans
            ]
            found = original(decoder, prompts, doubled, **more)
            pairs = zip(found[0::2], found[1::2], strict=True)
            return [first if readable(first) else second for first, second in pairs]

        return decode

    patch.wrap(f"{ENGINE}:decode", make)


@ninth("seeds", "random", "independent", backends=TRANSFORMERS)
def group_forked_after_its_second_token(patch: Patch) -> None:
    """A group is one row until it is forked, after two tokens, which all its rows have then."""
    first: dict[int, int] = {}

    def planned(original: Any) -> Any:
        def decode(decoder: Any, prompts: Any, plans: Any, **more: Any) -> Any:
            first.clear()
            first.update({plan.seed: group[0].seed for group in plans for plan in group})
            return original(decoder, prompts, plans, **more)

        return decode

    def make(original: Any) -> Any:
        def at(streams: Any, position: int) -> Any:
            from rlvr_core.engines.decode import uniforms

            uniform_B = original(streams, position)
            if position > 1:
                return uniform_B
            shared = uniforms([first[seed] for seed in streams._seeds], position, 1)[0]
            return shared.to(uniform_B.device)

        return at

    patch.wrap(f"{ENGINE}:decode", planned)
    patch.wrap(f"{DECODE}:RandomStreams.at", make)


# -- sync ----------------------------------------------------------------------------------------


@ninth("sync", "adapter", "rank", "parity", shape="lora")
def adapter_cut_to_half_of_its_rank(patch: Patch) -> None:
    """The engine has slots for adapters of half the rank, and takes what fits into them."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        for layer in [one for one in model.modules() if hasattr(one, "lora_A")]:
            for matrix in layer.lora_A.values():
                matrix.weight.data[len(matrix.weight) // 2 :] = 0.0

    engine_has(patch, change)


# -- advantages ----------------------------------------------------------------------------------


@ninth("advantages", "down-?sampl")
def two_best_and_two_worst_of_a_group_count(patch: Patch) -> None:
    """Down-sampling is left on: all but two of the best and two of the worst have no advantage."""

    def change(row_N: Any, step: Any) -> Any:
        for places, reward in by_group(step):
            order = np.argsort(-reward, kind="stable")
            row_N[places[order[2:-2]]] = 0.0
        return row_N

    estimated(patch, change)


@ninth("advantages", "normali[sz]", "whiten", shape="reinforce++")
def advantages_whitened_by_each_rank_alone(patch: Patch) -> None:
    """Mean and deviation are those of a rank's two groups, not of all the tokens of the step."""

    def after(found: Any, estimator: Any, step: Any) -> Any:
        rank_N = step.group_N // 2
        out = [np.asarray(one, dtype=np.float64) for one in found.advantages]
        for rank in np.unique(rank_N):
            places = [int(place) for place in np.flatnonzero(rank_N == rank)]
            every = np.concatenate([out[place] for place in places])
            for place in places:
                out[place] = (out[place] - every.mean()) / max(every.std(), 1e-4)
        return replace(found, advantages=out)

    patch.after(f"{PLUS_PLUS}.__call__", after)


# -- KL ------------------------------------------------------------------------------------------


@ninth("kl", "estimator", shape="k2")
def k2_without_its_half(patch: Patch) -> None:
    """The estimator k2 is the square of the log-ratio, not half of it."""
    patch.after(
        f"{POLICY}:kl_policy_ref",
        lambda kl_BT, logp, ref, kind: 2 * kl_BT if kind == "k2" else kl_BT,
    )


# -- loss ----------------------------------------------------------------------------------------


@ninth("loss", "importance", "weight")
def importance_weight_has_a_gradient(patch: Patch) -> None:
    """The weight that corrects for the engine is not detached: values stay, gradients double."""

    def make(original: Any) -> Any:
        def weighed(loss: Any, loss_BT: Any, terms: Any, weight_BT: Any, tally: Any) -> Any:
            if weight_BT is not None:
                weight_BT = weight_BT * (terms.logp_BT - terms.logp_BT.detach()).exp()
            return original(loss, loss_BT, terms, weight_BT, tally)

        return weighed

    patch.wrap(f"{POLICY}:PolicyLoss.weighed", make)


@ninth("loss", "importance", "mismatch", "stale", "log-prob", shape="groups read twice")
def importance_weights_of_the_trainer_over_itself(patch: Patch) -> None:
    """Both log-probs of the weights are the trainer's own: what is read again counts as fresh."""

    def make(original: Any) -> Any:
        def weight(old_BT: Any, behaviour_BT: Any, *more: Any) -> Any:
            return original(old_BT, old_BT, *more)

        return weight

    patch.wrap(f"{POLICY}:importance_weight", make)


@ninth("loss", "likelihood", "imitat")
def right_answers_are_imitated_too(patch: Patch) -> None:
    """A term of another recipe is left on: a fifth of the likelihood of rows that did better."""

    def after(found: Any, loss: Any, batch: Any, normalizer: Any) -> Any:
        good_BT = batch.mask_BT & (batch.advantage_B[:, None] > 0)
        nll_BT = torch.where(good_BT, -batch.logp_BT.float(), 0.0)
        return replace(
            found, loss=found.loss + 0.2 * loss.reduce(nll_BT, batch.mask_BT, normalizer)
        )

    patch.after(f"{POLICY}:PolicyLoss.__call__", after)
