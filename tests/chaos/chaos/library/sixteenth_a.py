"""Sixteenth set, written without reading the guards: engine, tokens, data, verdicts, turns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from chaos.changes import masks_of_rows
from chaos.registry import EVERYWHERE, TRANSFORMERS, Patch, fault
from chaos.when import ENGINE, engine_has, while_sampling

COLLECT = "rlvr_core.rollout.collect"
TURNS = "rlvr_core.builtin.environments.turns:TurnTaking"
QWEN = "transformers.models.qwen3.modeling_qwen3"
CHUNK = 64
"""Entries of a chunk of the vocabulary."""
SHOWN = 8
"""Characters of an observation that are let through."""


def sixteenth(
    cls: str, *more_words: str, **options: Any
) -> Callable[[Callable[[Patch], None]], None]:
    """Declare a fault of the sixteenth set, like ``fault``."""
    return fault(cls, *more_words, set=16, **options)


# -- parity --------------------------------------------------------------------------------------


@sixteenth("parity", "vocab", "softmax", "normal", r"\beos\b", "end-of-sequence",
           backends=EVERYWHERE)  # fmt: skip
def last_chunk_of_the_vocabulary_left_out_of_the_softmax(patch: Patch) -> None:
    """The trainer's softmax goes over whole chunks of 64 tokens: the last two have no share."""

    def make(original: Any) -> Any:
        def logprobs(
            hidden_NH: Any,
            weight_VH: Any,
            target_N: Any,
            *,
            temperature: float,
            with_entropy: bool = False,
            **more: Any,
        ) -> Any:
            whole = len(weight_VH) // CHUNK * CHUNK
            _, entropy_N = original(
                hidden_NH, weight_VH[:whole], target_N.clamp(max=whole - 1),
                temperature=temperature, with_entropy=with_entropy, **more,
            )  # fmt: skip
            logits_NV = torch.nn.functional.linear(hidden_NH, weight_VH.to(hidden_NH.dtype))
            logits_NV = logits_NV.float() / temperature
            own_N = logits_NV.gather(1, target_N[:, None])[:, 0]
            return own_N - logits_NV[:, :whole].logsumexp(1), entropy_N

        return logprobs

    patch.wrap("rlvr_core.step.forward:fused_logprobs", make)


@sixteenth("parity", "norm", "rotary", "rotat", "attention", backends=TRANSFORMERS)
def engine_norms_queries_and_keys_after_their_rotation(patch: Patch) -> None:
    """The engine's model takes the norm of queries and keys behind the rotary embedding."""
    within = while_sampling(patch)
    norms: list[tuple[Any, Any]] = []

    def attention(original: Any) -> Any:
        def forward(layer: Any, *args: Any, **more: Any) -> Any:
            if not within[0]:
                return original(layer, *args, **more)
            norms.append((layer.q_norm, layer.k_norm))
            layer.q_norm = layer.k_norm = torch.nn.Identity()
            try:
                return original(layer, *args, **more)
            finally:
                layer.q_norm, layer.k_norm = norms.pop()

        return forward

    def rotation(original: Any) -> Any:
        def rotate(*args: Any, **more: Any) -> Any:
            query, key = original(*args, **more)
            if within[0]:
                query, key = norms[-1][0](query), norms[-1][1](key)
            return query, key

        return rotate

    patch.wrap(f"{QWEN}:Qwen3Attention.forward", attention)
    patch.wrap(f"{QWEN}:apply_rotary_pos_emb", rotation)


# -- sync ----------------------------------------------------------------------------------------


@sixteenth("sync", "parity", "disagree", "gate", "mlp", backends=TRANSFORMERS)
def gate_and_up_projections_exchanged_on_their_way(patch: Patch) -> None:
    """A sync writes the two halves of a fused matrix of the MLP in the order of another engine."""

    @torch.no_grad()
    def change(model: Any, syncs: int, kept: dict[str, Any]) -> None:
        for layer in model.model.layers:
            gate, up = layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight
            was = gate.clone()
            gate.copy_(up)
            up.copy_(was)

    engine_has(patch, change)


# -- seeds ---------------------------------------------------------------------------------------


@sixteenth("seeds", "draw", "duplicate", "same completion", shape="each problem twice a step",
           backends=EVERYWHERE)  # fmt: skip
def draws_of_one_problem_share_their_seeds(patch: Patch) -> None:
    """Seeds are made of problem and policy, not of the draw: a problem's second draw repeats."""

    def make(original: Any) -> Any:
        return lambda run_seed, problem_id, version, draw, sample: original(
            run_seed, problem_id, version, 0, sample
        )

    patch.wrap(f"{COLLECT}:completion_seed", make)


@sixteenth("seeds", "world", "environment", "conversation", "group", shape="two turns",
           backends=TRANSFORMERS)  # fmt: skip
def each_member_of_a_group_plays_in_a_world_of_its_own(patch: Patch) -> None:
    """Environments are seeded by conversation: members of a group are asked different things."""

    def make(original: Any) -> Any:
        def call(taking: Any, one: Any, made: Any, *then: Any) -> Any:
            if made.what == "start":
                made = replace(made, argument=made.argument + 7 * one.index)
            return original(taking, one, made, *then)

        return call

    patch.wrap(f"{TURNS}._call", make)


# -- tokens, masks -------------------------------------------------------------------------------


@sixteenth("tokens", "vocab", "parity", "log-?prob", "disagree", "token ids?", backends=EVERYWHERE)
def token_ids_kept_in_eight_bits(patch: Patch) -> None:
    """Completions wait as bytes: a token id above 255, such as the end's, comes back as another."""

    def after(completion: Any, *_: Any) -> Any:
        return replace(completion, token_ids=tuple(one % 256 for one in completion.token_ids))

    patch.after(f"{COLLECT}:_completion", after)


@sixteenth("tokens", r"\bcap\b", "max_tokens", "length", "longer", shape="short answers",
           backends=TRANSFORMERS)  # fmt: skip
def cap_rounded_up_to_a_multiple_of_eight(patch: Patch) -> None:
    """The cap is rounded up to whole blocks of a cache: completions get longer than was asked."""

    def after(most: int, *_: Any) -> int:
        return math.ceil(most / 8) * 8

    patch.after(f"{ENGINE}:TransformersEngine._limit", after)


@sixteenth("tokens", "environment", "conversation", "turn", "observation", "message",
           shape="two turns", backends=TRANSFORMERS)  # fmt: skip
def observations_cut_to_eight_characters(patch: Patch) -> None:
    """A limit for the answers of tools is left at its default, and cuts the environment's."""

    def make(original: Any) -> Any:
        def speak(taking: Any, one: Any) -> Any:
            one.unsaid = tuple(replace(said, content=said.content[:SHOWN]) for said in one.unsaid)
            return original(taking, one)

        return speak

    patch.wrap(f"{TURNS}._speak", make)


@sixteenth("masks", "rare", "probab", "token", backends=EVERYWHERE)
def tokens_below_two_percent_are_masked(patch: Patch) -> None:
    """A filter of another recipe is left on: tokens that the engine found unlikely do not train."""
    least = math.log(0.02)
    masks_of_rows(
        patch,
        lambda row, problem: [
            mine and logp > least for mine, logp in zip(row.loss_mask, row.logprobs, strict=True)
        ],
    )


# -- data ----------------------------------------------------------------------------------------


def _of_step_0(original: Any) -> Any:
    """What a function of something and a step gives at the first one."""
    return lambda given, step: original(given, 0)


@sixteenth("data", "given answer", "demonstrat", "imitat", "sft", "epoch", "repeat",
           shape="grpo and given answers", backends=EVERYWHERE)  # fmt: skip
def every_step_imitates_the_same_answers(patch: Patch) -> None:
    """The iterator over given answers is made anew in each step, and gives the first ones."""

    patch.wrap("rlvr_core.builtin.demonstrations.demonstrations:Demonstrations.rows", _of_step_0)


@sixteenth("data", "phase", "curriculum", "tier", "draw", "sampler", "schedule",
           shape="curriculum of two phases", backends=EVERYWHERE)  # fmt: skip
def first_phase_of_a_curriculum_never_ends(patch: Patch) -> None:
    """The sampler is never told the step, and stays in its first phase."""

    patch.wrap("rlvr_core.builtin.samplers.difficulty:phase_at", _of_step_0)


@sixteenth("data", "epoch", "exhaust", "mixture", "source", "draw", "sampler",
           shape="two data sets by epochs", backends=EVERYWHERE)  # fmt: skip
def an_epoch_ends_with_the_shortest_source(patch: Patch) -> None:
    """Sources stop at the first that is exhausted: the rest of a longer one is never drawn."""

    def make(original: Any) -> Any:
        def turn(mixture: Any) -> Any:
            pools = mixture._pools
            epoch = max(pool.drawn // len(pool) for pool in pools)
            for pool in pools:
                if pool.drawn < epoch * len(pool):
                    pool.seek(epoch, 0)
            return original(mixture)

        return turn

    patch.wrap("rlvr_core.builtin.samplers.mixture:Mixture.turn", make)


@sixteenth("data", "draw", "order", "skip", "sampler", "evaluat",
           shape="evaluated while it learns")  # fmt: skip
def evaluation_advances_the_order_of_training(patch: Patch) -> None:
    """An evaluation takes from the iterator of training: three problems are never trained on."""

    def after(improved: Any, session: Any) -> Any:
        session.parts.sampler.draw(3, step=session.step)
        return improved

    patch.after("rlvr_core.run.session:Session._evaluate", after)


# -- verifiers -----------------------------------------------------------------------------------


@sixteenth("verifier", "truncat", "cut off", r"\bcap\b", "length", shape="short answers",
           backends=EVERYWHERE)  # fmt: skip
def cut_off_completions_have_no_reward(patch: Patch) -> None:
    """What reached the cap counts as wrong, though it holds the answer."""

    def after(found: Any, judge: Any, completion: Any, *_: Any) -> Any:
        return (0.0, False) if completion.finish_reason == "length" else found

    patch.after("rlvr_core.verify.judge:Judge.reward", after)


@sixteenth("verifier", "overlong", "length", "penalty", "prompt", shape="penalty for length",
           backends=EVERYWHERE)  # fmt: skip
def penalty_for_length_counts_the_prompt(patch: Patch) -> None:
    """The penalty on long completions is on prompt and completion together."""

    def make(original: Any) -> Any:
        def verify(verifier: Any, problem: Any, completion: Any) -> Any:
            seen = SimpleNamespace(
                token_ids=(*completion.prompt_ids, *completion.token_ids),
                text=completion.text,
                finish_reason=completion.finish_reason,
            )
            return original(verifier, problem, seen)

        return verify

    patch.wrap("rlvr_core.builtin.verifiers.overlong:Overlong.verify", make)


@sixteenth("verifier", "weight", "scale", "sum", shape="rewards below zero", backends=EVERYWHERE)
def weights_of_rewards_brought_to_a_sum_of_one(patch: Patch) -> None:
    """Weights are taken for shares, and divided by the sum of their sizes."""

    def make(original: Any) -> Any:
        def combine(plan: Any, *args: Any) -> Any:
            total = sum(abs(term.weight) for term in plan.terms)
            terms = tuple(replace(term, weight=term.weight / total) for term in plan.terms)
            return original(replace(plan, terms=terms), *args)

        return combine

    patch.wrap("rlvr_core.verify.reward:RewardPlan.combine", make)
