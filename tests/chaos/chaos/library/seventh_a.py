"""Seventh set, written without reading the guards: engine, sampler, sync, objective."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from chaos.changes import by_group, estimated
from chaos.registry import TRANSFORMERS, Patch, fault
from chaos.when import DECODE, ENGINE, clock, engine_has

POLICY = "rlvr_core.algorithm.policy"
STEP = "rlvr_core.step.step"


def seventh(cls: str, *more_words: str, **options: Any) -> Any:
    """Declare a fault of the seventh set, like ``fault``."""
    return fault(cls, *more_words, set=7, **options)


# -- parity --------------------------------------------------------------------------------------


@seventh("parity", "prompt", "prefix", "cache", backends=TRANSFORMERS)
def prefix_cache_with_a_hash_of_seven_tokens(patch: Patch) -> None:
    """The engine's prefix cache knows a prompt by seven tokens: some are answered as another."""

    def make(original: Any) -> Any:
        def decode(decoder: Any, prompts: Any, plans: Any, **more: Any) -> Any:
            known: dict[Any, Any] = {}
            cached = [known.setdefault((prompt[:7], len(prompt)), prompt) for prompt in prompts]
            return original(decoder, cached, plans, **more)

        return decode

    patch.wrap(f"{ENGINE}:decode", make)


@contextmanager
def _scaled_attention(model: Any, factor: float) -> Iterator[None]:
    layers = [one for one in model.modules() if hasattr(one, "q_proj") and hasattr(one, "scaling")]
    honest = [layer.scaling for layer in layers]
    for layer in layers:
        layer.scaling *= factor
    try:
        yield
    finally:
        for layer, scaling in zip(layers, honest, strict=True):
            layer.scaling = scaling


@seventh("parity", "attention", "scal", backends=TRANSFORMERS)
def attention_scaled_for_padded_heads(patch: Patch) -> None:
    """The engine's kernel pads heads to 32 and scales their products by that, not by their 16."""

    def make(original: Any) -> Any:
        def sample(engine: Any, wave: Any, deadline: Any) -> None:
            with _scaled_attention(engine._model, 0.5**0.5):
                original(engine, wave, deadline)

        return sample

    patch.wrap(f"{ENGINE}:TransformersEngine._fast", lambda original: lambda engine: None)
    patch.wrap(f"{ENGINE}:TransformersEngine._sample", make)


@seventh("parity", "prompt", "request")
def last_two_requests_answered_in_the_order_of_finishing(patch: Patch) -> None:
    """If the last request of a batch finishes before the one before, each has the other's rows."""

    def after(sampled: Any, decoder: Any, prompts: Any, plans: Any) -> Any:
        sizes = [len(group) for group in plans]
        n = sizes[-1]
        if len(sizes) < 2 or sizes[-2] != n:
            return sampled
        rest, one, other = sampled[: -2 * n], sampled[-2 * n : -n], sampled[-n:]
        longest = [max(len(row.token_ids) for row in rows) for rows in (one, other)]
        return [*rest, *other, *one] if longest[1] < longest[0] else sampled

    patch.after(f"{ENGINE}:decode", after)


# -- sampler, seeds ------------------------------------------------------------------------------


@seventh("sampler", "nucleus", "filter", shape="very hot, top p and top k")
def top_p_taken_before_the_temperature(patch: Patch) -> None:
    """The mass that top-p leaves is that at temperature 1, and the temperature comes after it."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            from rlvr_core.engines.decode import _filter

            logits_BV = logits_BV.float().clone()
            if rows.top_k_B1 is not None or rows.top_p_B1 is not None:
                _filter(logits_BV, rows.top_k_B1, rows.top_p_B1)
            plain = replace(rows, top_k_B1=None, top_p_B1=None)
            return original(logits_BV, plain, uniform_B)

        return sample

    patch.wrap(f"{DECODE}:sample", make)


@seventh("seeds", "random", "independent", "stream", backends=TRANSFORMERS)
def preempted_rows_begin_their_streams_again(patch: Patch) -> None:
    """Every second group is preempted at its sixth token, and its random numbers begin again."""
    preempted: dict[str, Any] = {}

    def planned(original: Any) -> Any:
        def decode(decoder: Any, prompts: Any, plans: Any, **more: Any) -> Any:
            seeds = [plan.seed for group in plans[1::2] for plan in group]
            preempted["seeds"] = set(seeds)
            return original(decoder, prompts, plans, **more)

        return decode

    def make(original: Any) -> Any:
        def at(streams: Any, position: int) -> Any:
            from rlvr_core.engines.decode import uniforms

            uniform_B = original(streams, position)
            if position < 5:
                return uniform_B
            again_B = uniforms(streams._seeds, position - 5, 1)[0].to(uniform_B.device)
            which_B = torch.tensor([seed in preempted["seeds"] for seed in streams._seeds])
            return torch.where(which_B.to(uniform_B.device), again_B, uniform_B)

        return at

    patch.wrap(f"{ENGINE}:decode", planned)
    patch.wrap(f"{DECODE}:RandomStreams.at", make)


# -- sync ----------------------------------------------------------------------------------------


@seventh("sync", "replica", "parity", backends=TRANSFORMERS)
def one_of_two_replicas_never_synced(patch: Patch) -> None:
    """Of two replicas that share the requests, only the first one is ever given new weights."""
    second: list[Any] = []

    def make(original: Any) -> Any:
        def sample(engine: Any, wave: Any, deadline: Any) -> None:
            if not second:
                second.append(copy.deepcopy(engine._model))
            original(engine, wave[0::2], deadline)
            if not wave[1::2]:
                return
            synced, engine._model = engine._model, second[0]
            try:
                original(engine, wave[1::2], deadline)
            finally:
                if engine._model is second[0]:
                    engine._model = synced

        return sample

    patch.wrap(f"{ENGINE}:TransformersEngine._sample", make)


@seventh("sync", "adapter", "parity", shape="lora, mini-batches, two iterations")
def adapters_of_keys_and_values_exchanged(patch: Patch) -> None:
    """Adapters of fused layers are packed in the wrong order: keys get those of the values."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        for layer in [one for one in model.modules() if hasattr(one, "k_proj")]:
            for matrices in ("lora_A", "lora_B"):
                key, value = (getattr(one, matrices) for one in (layer.k_proj, layer.v_proj))
                for name in key:
                    one, other = key[name].weight, value[name].weight
                    one.data, other.data = other.data, one.data

    engine_has(patch, change)


# -- advantages ----------------------------------------------------------------------------------


@seventh("advantages", "normali[sz]", "combine", shape="rewards normalised each")
def rewards_summed_before_they_are_normalised(patch: Patch) -> None:
    """Rewards that are to be normalised one by one are summed first, and their sum normalised."""

    def change(row_N: Any, step: Any) -> Any:
        for places, reward in by_group(step):
            row_N[places] = (reward - reward.mean()) / (reward.std() + 1e-6)
        return row_N

    estimated(patch, change)


# -- KL ------------------------------------------------------------------------------------------


@seventh("kl", "advantage", "twice", shape="strong kl")
def kl_taken_from_the_advantage_too(patch: Patch) -> None:
    """The KL of a row is a penalty in its reward, and a term of the loss as well."""

    def after(terms: Any, loss: Any, batch: Any) -> Any:
        if batch.ref_logp_BT is None:
            return terms
        d_BT = (terms.logp_BT.detach() - batch.ref_logp_BT.detach()).to(terms.logp_BT.dtype)
        penalty_B1 = torch.where(terms.mask_BT, d_BT, 0.0).sum(1, keepdim=True)
        less_BT = terms.advantage_BT - loss._policy.beta * penalty_B1
        return replace(terms, advantage_BT=torch.where(terms.mask_BT, less_BT, 0.0))

    patch.after(f"{POLICY}:PolicyLoss._terms", after)


# -- loss ----------------------------------------------------------------------------------------


@seventh("loss", "clip", "delta", "bound", shape="clipped above and twice")
def second_clip_for_positive_advantages_too(patch: Patch) -> None:
    """The second clip acts whatever the sign: a token of a right answer has no gradient left."""

    def make(original: Any) -> Any:
        def surrogate(ratio_BT: Any, advantage_BT: Any, **bounds: Any) -> Any:
            found = original(ratio_BT, advantage_BT, **bounds)
            if bounds.get("delta") is None:
                return found
            least_BT = torch.minimum(found.loss_BT, -bounds["delta"] * advantage_BT)
            return replace(found, loss_BT=torch.where(advantage_BT > 0, least_BT, found.loss_BT))

        return surrogate

    patch.wrap(f"{POLICY}:clipped_surrogate", make)


@seventh("loss", "clip", "bound", shape="two iterations")
def clip_range_shrinks_from_the_fifth_step(patch: Patch) -> None:
    """A schedule that nobody asked for makes the range of the ratio ten times narrower."""
    now = clock()

    def make(original: Any) -> Any:
        def surrogate(ratio: Any, advantage: Any, *, low: float, high: float, **more: Any) -> Any:
            share = 0.1 if now.step >= 4 else 1.0
            return original(ratio, advantage, low=low * share, high=high * share, **more)

        return surrogate

    patch.wrap(f"{POLICY}:clipped_surrogate", make)


@seventh("loss", "entropy", "bonus", shape="entropy bonus")
def entropy_bonus_with_the_wrong_sign(patch: Patch) -> None:
    """The entropy is added to the loss, not taken from it: the bonus is for being sure."""
    patch.after(f"{POLICY}:_mean_entropy", lambda mean, *_: -mean)


@seventh("loss", "entropy", shape="tokens of high entropy")
def high_entropy_chosen_row_by_row(patch: Patch) -> None:
    """The fifth of tokens of highest entropy is taken of each row, not of the update's tokens."""

    def chosen(entropy_BT: Any, mask_BT: Any, share: float) -> Any:
        known_BT = torch.where(mask_BT, entropy_BT.float(), -torch.inf)
        rank_BT = known_BT.argsort(dim=1, descending=True).argsort(dim=1)
        return mask_BT & (rank_BT < (share * mask_BT.sum(1, keepdim=True)).ceil())

    @torch.no_grad()
    def after(found: Any, trainer: Any, part: Any, work: Any) -> Any:
        least, masks = found
        out = []
        for micro, by_share in zip(work, masks, strict=True):
            if by_share:
                entropy_BT = trainer._scores(micro.batch, temperature=part.temperature)[1]
                by_share = {s: chosen(entropy_BT, micro.batch.mask_BT, s) for s in by_share}
            out.append(by_share)
        return least, out

    patch.after(f"{STEP}:PolicyTrainer._entropy_masks", after)
