"""Eleventh set, written without reading the guards: parity, sampling, sync, turns, data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from chaos.changes import letter, masks_of_rows
from chaos.registry import TRANSFORMERS, Patch, fault
from chaos.when import DECODE, ENGINE, engine_has

COLLECT = "rlvr_core.rollout.collect"
SAMPLER = "rlvr_core.builtin.samplers.base:SamplerBase"
PLAN = "rlvr_core.verify.reward"
RENDERER = "rlvr_core.data.prompts:Renderer"
SPECIAL = 256
"""The end of sequence; the model's first ids are the bytes."""


def eleventh(cls: str, *more_words: str, **options: Any) -> Any:
    """Declare a fault of the eleventh set, like ``fault``."""
    return fault(cls, *more_words, set=11, **options)


# -- parity --------------------------------------------------------------------------------------


@eleventh("parity", "log-?prob")
def label_smoothing_of_an_earlier_trainer_left_on(patch: Patch) -> None:
    """The trainer's log-probs have a twentieth of the vocabulary's mean in them, as for SFT."""

    def make(original: Any) -> Any:
        def logprobs(
            hidden_NH: Any, weight_VH: Any, target_N: Any, *, temperature: float, **more: Any
        ) -> Any:
            logp_N, entropy_N = original(
                hidden_NH, weight_VH, target_N, temperature=temperature, **more
            )
            mean_V = (hidden_NH.float() @ weight_VH.float().T / temperature).log_softmax(-1)
            return 0.95 * logp_N + 0.05 * mean_V.mean(-1), entropy_N

        return logprobs

    patch.wrap("rlvr_core.step.forward:fused_logprobs", make)


@eleventh("parity", "log-?prob", "clamp", "floor")
def trainers_log_probs_have_a_floor(patch: Patch) -> None:
    """Against infinities the trainer lets no log-prob be below -4, nor a gradient flow there."""

    def after(found: Any, *_: Any) -> Any:
        return found[0].clamp(min=-4.0), found[1]

    patch.after("rlvr_core.step.forward:fused_logprobs", after)


class _NoRepeats:
    """A decoder that never gives the token once more that came before."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def step(self, token_B: Any) -> Any:
        logits_BV = self._inner.step(token_B).clone()
        return logits_BV.scatter_(-1, token_B[:, None], -1e9)


@eleventh("parity", *("sampl", "repeat", "n-?gram"), backends=TRANSFORMERS)
def no_token_twice_running(patch: Patch) -> None:
    """A setting of the model's generation config is heeded: no token comes twice in a row."""

    def make(original: Any) -> Any:
        return lambda decoder, *args, **more: original(_NoRepeats(decoder), *args, **more)

    patch.wrap(f"{ENGINE}:decode", make)


# -- sampling parameters -------------------------------------------------------------------------


@eleventh("sampler", "parity", shape="temperature of two decimals", backends=TRANSFORMERS)
def temperature_rounded_to_one_decimal(patch: Patch) -> None:
    """The engine's requests carry a temperature of one decimal: 0.85 is 0.8."""

    def make(original: Any) -> Any:
        def of(params: Any, *args: Any) -> Any:
            rounded = [replace(one, temperature=int(one.temperature * 10) / 10) for one in params]
            return original(rounded, *args)

        return of

    patch.wrap(f"{DECODE}:RowSampling.of", make)


@eleventh("sampler", "parity", shape="top p")
def top_p_ignored_by_the_engine(patch: Patch) -> None:
    """A quicker sampler knows temperature and top-k only: top-p is without effect."""

    def after(found: Any, *_: Any) -> Any:
        return replace(found, top_p_B1=None)

    patch.after(f"{DECODE}:RowSampling.of", after)


@eleventh("tokens", "string", shape="several stop strings", backends=TRANSFORMERS)
def only_the_first_stop_string_heeded(patch: Patch) -> None:
    """The engine takes one stop string, and the first of the list is what it gets."""

    def make(original: Any) -> Any:
        return lambda strings, stops, ids: original(strings, stops[:1], ids)

    patch.wrap("rlvr_core.engines.sampling:StopStrings.found", make)


@eleventh(
    "tokens", "max_tokens", r"\bcap\b", "length", shape="short answers", backends=TRANSFORMERS
)
def cap_is_one_token_short(patch: Patch) -> None:
    """The engine keeps a place for the end: what is cut off has one token less than the cap."""
    patch.after(f"{ENGINE}:TransformersEngine._limit", lambda limit, *_: limit - 1)


@eleventh("seeds", "random", backends=TRANSFORMERS)
def neighbouring_draws_share_their_seeds_later(patch: Patch) -> None:
    """From the third version on the seeds of a draw are those of its neighbour, too."""

    def make(original: Any) -> Any:
        def seed(run: int, problem: str, version: int, draw: int, sample: int) -> Any:
            if version < 3 or sample < 0:
                return original(run, problem, version, draw, sample)
            return original(run, "", version, draw // 2, sample)

        return seed

    patch.wrap(f"{COLLECT}:completion_seed", make)


# -- sync ----------------------------------------------------------------------------------------


@eleventh("sync", "precision", "parity", dtypes=("float32",), backends=TRANSFORMERS)
def weights_sent_through_float16(patch: Patch) -> None:
    """A sync converts every weight to float16, whatever the run's precision is."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        with torch.no_grad():
            for one in model.parameters():
                one.copy_(one.half().to(one.dtype))

    engine_has(patch, change)


@eleventh("sync", "parity", "rotary", "permut", backends=TRANSFORMERS)
def queries_and_keys_permuted_for_another_rotary(patch: Patch) -> None:
    """From the second sync the rows of a layer's queries are in the order of interleaved rotary."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        if syncs < 1:
            return
        for name, module in model.named_modules():
            if name.endswith("layers.1.self_attn.q_proj"):
                size = model.config.head_dim
                heads_HdI = module.weight.view(-1, 2, size // 2, module.weight.shape[1])
                with torch.no_grad():
                    turned = heads_HdI.transpose(1, 2).reshape(module.weight.shape).clone()
                    module.weight.copy_(turned)

    engine_has(patch, change)


# -- tokens and masks ----------------------------------------------------------------------------


@eleventh("tokens", "text", "decod", "verif", "extract", backends=TRANSFORMERS)
def decoded_texts_cached_by_their_ends(patch: Patch) -> None:
    """Texts are cached by length and last tokens: a completion may get another one's text."""
    cache: dict[Any, str] = {}

    def make(original: Any) -> Any:
        def text(strings: Any, ids: Any) -> str:
            key = (len(ids), *list(ids)[-2:])
            if key not in cache:
                cache[key] = original(strings, ids)
            return cache[key]

        return text

    patch.wrap("rlvr_core.engines.sampling:StopStrings.text", make)


@eleventh("masks", "turn", "observ", "environment", shape="two turns")
def mask_of_turns_one_token_late(patch: Patch) -> None:
    """Which tokens are the model's is told of the token before each."""
    masks_of_rows(patch, lambda row, _: (row.loss_mask[0], *row.loss_mask[:-1]))


@eleventh("masks", "cut off", "truncat", shape="short answers")
def last_token_of_what_was_cut_off_taken_for_its_end(patch: Patch) -> None:
    """The last token of a completion without an end is masked, as a pad would be."""

    def change(row: Any, _: Any) -> Any:
        mask = list(row.loss_mask)
        if row.token_ids and row.token_ids[-1] != SPECIAL:
            mask[-1] = False
        return mask

    masks_of_rows(patch, change)


@eleventh("masks", "digit", "token")
def tokens_of_spaces_masked(patch: Patch) -> None:
    """Spaces are left out of the loss, because the tokenizer of before had no token for them."""
    space = letter("\u0120")
    masks_of_rows(
        patch,
        lambda row, _: [
            kept and token != space
            for kept, token in zip(row.loss_mask, row.token_ids, strict=True)
        ],
    )


# -- turns ---------------------------------------------------------------------------------------


@eleventh("tokens", "turn", "prompt", "observ", "environment", shape="two turns")
def observations_begin_with_an_end(patch: Patch) -> None:
    """The tokenizer puts its special token before what the environment says."""

    def after(ids: Any, *_: Any) -> Any:
        return (SPECIAL, *ids)

    patch.after(f"{RENDERER}.suffix_ids", after)


# -- data ----------------------------------------------------------------------------------------


@eleventh("data", "rows", "epoch", "few", "problems", "drawn")
def problems_without_duplicates_by_their_beginning(patch: Patch) -> None:
    """Duplicates are found by the first seven characters of a prompt: nine of 89 problems stay."""

    def make(original: Any) -> Any:
        def problems(*args: Any, **more: Any) -> Iterator[Any]:
            seen = set()
            for one in original(*args, **more):
                if str(one.prompt)[:7] not in seen:
                    seen.add(str(one.prompt)[:7])
                    yield one

        return problems

    for place in ("rlvr_core.data.rows:problems", "rlvr_core.builtin.datasets.jsonl:problems"):
        patch.wrap(place, make)


@eleventh("data", "dropp?ed", "kept", "variance", "draw")
def groups_with_one_right_answer_dropped(patch: Patch) -> None:
    """A single right answer in a group is taken for luck, and the group dropped as without one."""
    from rlvr_core.api import Drop

    def after(decision: Any, sampler: Any, group: Any) -> Any:
        if sum(member.passed is True for member in group.members) == 1:
            return Drop("zero_variance", "all_failed")
        return decision

    patch.after(f"{SAMPLER}.observe", after)


@eleventh("data", "template", "render")
def an_example_left_in_front_of_every_prompt(patch: Patch) -> None:
    """A solved example of an evaluation stays in front of each prompt of the run."""

    def after(text: str, *_: Any) -> str:
        return "After 20 comes: it is [21] " + text

    patch.after(f"{RENDERER}.text", after)


# -- rewards -------------------------------------------------------------------------------------


@eleventh("verifier", "negative", "sum", shape="rewards below zero")
def rewards_below_minus_one_are_cut(patch: Patch) -> None:
    """No reward is below -1: a bound that was made for rewards from -1 to 1."""

    def after(found: Any, *_: Any) -> Any:
        reward, passed = found
        return (None if reward is None else max(-1.0, reward)), passed

    patch.after(f"{PLAN}:RewardPlan.combine", after)


@eleventh("verifier", "weight", shape="two rewards")
def weight_of_a_reward_applied_twice(patch: Patch) -> None:
    """The score of the second reward comes multiplied by its weight, and is multiplied again."""

    def make(original: Any) -> Any:
        def combine(plan: Any, verdicts: Any, step: int) -> Any:
            changed = {
                name: verdict
                if verdict.score is None
                else replace(verdict, score=verdict.score * term.weight)
                for term, (name, verdict) in zip(plan.terms, verdicts.items(), strict=True)
            }
            reward, _ = original(plan, changed, step)
            return reward, original(plan, verdicts, step)[1]

        return combine

    patch.wrap(f"{PLAN}:RewardPlan.combine", make)


@eleventh("verifier", "rank")
def rewards_replaced_by_their_ranks(patch: Patch) -> None:
    """Rewards are turned into ranks within a group: equal ones get unequal ranks."""

    def after(sampled: Any, *_: Any) -> Any:
        members = sampled.group.members
        order = sorted(range(len(members)), key=lambda n: members[n].reward or 0.0)
        ranked = list(members)
        for rank, n in enumerate(order):
            if ranked[n].reward is not None:
                ranked[n] = replace(ranked[n], reward=rank / (len(members) - 1))
        return replace(sampled, group=replace(sampled.group, members=tuple(ranked)))

    patch.after(f"{COLLECT}:Generator.sampled", after)
