"""Third set, written without reading the guards: parity, sampler, seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from chaos.registry import TRANSFORMERS, Patch, third
from chaos.when import DECODE, ENGINE, clock, drawn_from

# -- parity --------------------------------------------------------------------------------------


@third("parity", "position")
def positions_stretch_after_the_twelfth(patch: Patch) -> None:
    """The trainer counts positions double from the twelfth on, as for long contexts."""

    def after(packed: Any, *_: Any) -> Any:
        ids_N, position_N = packed
        return ids_N, torch.where(position_N > 12, 2 * position_N - 12, position_N)

    patch.after("rlvr_core.builtin.packing.packed:packed_tokens", after)


@third("parity", "cache", backends=TRANSFORMERS)
def cache_rows_exchanged_when_others_leave(patch: Patch) -> None:
    """When finished rows leave the engine's batch, two of the rows that stay exchange caches."""

    def make(original: Any) -> Any:
        def select(decoder: Any, rows_K: Any) -> None:
            if len(rows_K) > 1:
                rows_K = torch.cat([rows_K[:-2], rows_K[-2:].flip(0)])
            original(decoder, rows_K)

        return select

    patch.wrap(f"{DECODE}:HuggingFaceDecoder.select", make)
    patch.wrap("rlvr_core.builtin.tiny.lean_decode:LeanDecoder.select", make)


def _reported(patch: Patch, change: Callable[..., Any]) -> None:
    """Report other log-probs than those of the tokens drawn.

    Args:
        patch: The fault's.
        change: From raw logits (B, V), the tokens (B,) and the honest log-probs to the reported.
    """

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            raw_BV = logits_BV.float().clone()
            token_B, logp_B = original(logits_BV, rows, uniform_B)
            return token_B, change(raw_BV, token_B, logp_B)

        return sample

    patch.wrap(f"{DECODE}:sample", make)


@third("parity", backends=TRANSFORMERS)
def reported_logprobs_of_the_first_twenty(patch: Patch) -> None:
    """The engine reports log-probs that are normalised over the twenty likeliest tokens."""

    def change(raw_BV: Any, token_B: Any, logp_B: Any) -> Any:
        total_B = raw_BV.log_softmax(-1).topk(20, dim=-1).values.logsumexp(-1)
        return torch.minimum(logp_B - total_B, torch.zeros_like(logp_B))

    _reported(patch, change)


@third("parity", "temperature", shape="cool")
def reported_before_the_temperature(patch: Patch) -> None:
    """The engine reports log-probs at temperature 1, whatever it samples at."""

    def change(raw_BV: Any, token_B: Any, logp_B: Any) -> Any:
        return raw_BV.log_softmax(-1).gather(-1, token_B[:, None])[:, 0]

    _reported(patch, change)


def _decoded(patch: Patch, change: Callable[..., Any]) -> None:
    """Change the rows that were sampled; ``change(rows, sizes of their groups)``."""

    def after(sampled: Any, decoder: Any, prompts: Any, plans: Any) -> Any:
        return change(sampled, [len(group) for group in plans])

    patch.after(f"{ENGINE}:decode", after)


@third("parity", backends=TRANSFORMERS)
def logprobs_of_equally_long_neighbours_exchanged(patch: Patch) -> None:
    """Two neighbours of a group that are of one length get one another's log-probs."""

    def change(sampled: Any, sizes: Any) -> Any:
        out, first = list(sampled), 0
        for size in sizes:
            for a in range(first, first + size - 1, 2):
                one, other = out[a], out[a + 1]
                if len(one.token_ids) == len(other.token_ids):
                    out[a] = replace(one, logprobs=other.logprobs)
                    out[a + 1] = replace(other, logprobs=one.logprobs)
            first += size
        return out

    _decoded(patch, change)


@third("parity", "last token", "eos", "end-of-sequence")
def logprob_of_the_end_reported_as_zero(patch: Patch) -> None:
    """The token that ends a completion is reported as if it had been certain."""

    def change(sampled: Any, sizes: Any) -> Any:
        return [
            replace(one, logprobs=(*one.logprobs[:-1], 0.0)) if one.finish_reason == "stop" else one
            for one in sampled
        ]

    _decoded(patch, change)


@third("parity", "prompt")
def last_row_reads_another_prompt(patch: Patch) -> None:
    """In each micro-batch the last row is computed behind the prompt of another group."""

    def after(batch: Any, *_: Any) -> Any:
        of_row_B = batch.prompt_of_row_B.clone()
        of_row_B[-1] = (of_row_B[-1] + 1) % len(batch.prompt_len_S)
        return replace(batch, prompt_of_row_B=of_row_B)

    patch.after("rlvr_core.step.batch:_collate", after)


@third("parity", "head")
def trainer_computes_with_the_first_head(patch: Patch) -> None:
    """The trainer's log-probs come from a copy of the LM head that was made in the first step."""
    kept: list[Any] = []

    def make(original: Any) -> Any:
        def fused(hidden_NH: Any, weight_VH: Any, target_N: Any, **more: Any) -> Any:
            if not kept:
                kept.append(weight_VH.detach().clone())
            return original(hidden_NH, kept[0], target_N, **more)

        return fused

    patch.wrap("rlvr_core.step.forward:fused_logprobs", make)


# -- sampler -------------------------------------------------------------------------------------


@third("sampler", backends=TRANSFORMERS)
def hotter_from_the_third_version(patch: Patch) -> None:
    """From the third version on the engine samples at 1.3 times the temperature."""
    now = clock()
    drawn_from(patch, lambda logits_BV: logits_BV / 1.3 if now.version >= 3 else logits_BV)


def _marked(patch: Patch, temperature: float, which: Callable[[int, int, int], bool]) -> None:
    """Sample some rows at another temperature, and report them at that of the run.

    Args:
        patch: The fault's.
        temperature: Theirs.
        which: Whether a row is one of them, by place of its group, its own there, and their number.
    """

    def planned(original: Any) -> Any:
        def decode(decoder: Any, prompts: Any, plans: Any, **more: Any) -> Any:
            changed = [
                [
                    replace(plan, params=replace(plan.params, temperature=temperature))
                    if which(g, r, len(group))
                    else plan
                    for r, plan in enumerate(group)
                ]
                for g, group in enumerate(plans)
            ]
            return original(decoder, prompts, changed, **more)

        return decode

    def honest(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            logp_BV = logits_BV.float().log_softmax(-1)
            token_B, _ = original(logits_BV, rows, uniform_B)
            return token_B, logp_BV.gather(-1, token_B[:, None])[:, 0]

        return sample

    patch.wrap(f"{ENGINE}:decode", planned)
    patch.wrap(f"{DECODE}:sample", honest)


@third("sampler")
def first_prompt_of_a_batch_sampled_cooler(patch: Patch) -> None:
    """The completions of the first prompt of each batch are sampled at a temperature of 0.5."""
    _marked(patch, 0.5, lambda group, row, n: group == 0)


@third("sampler", backends=TRANSFORMERS)
def last_of_each_group_sampled_cooler(patch: Patch) -> None:
    """The last completion of each group is sampled at a temperature of 0.4."""
    _marked(patch, 0.4, lambda group, row, n: row == n - 1)


def _position(patch: Patch) -> list[int]:
    """Where the position that is sampled stands, while a run samples."""
    place = [0]

    def make(original: Any) -> Any:
        def at(streams: Any, position: int) -> Any:
            place[0] = position
            return original(streams, position)

        return at

    patch.wrap(f"{DECODE}:RandomStreams.at", make)
    return place


@third("sampler")
def greedy_after_the_twelfth_token(patch: Patch) -> None:
    """From the twelfth token of a completion on, the engine takes the likeliest one."""
    place = _position(patch)
    drawn_from(patch, lambda logits_BV: logits_BV * 60 if place[0] >= 12 else logits_BV)


@third("sampler")
def temperature_follows_the_entropy(patch: Patch) -> None:
    """The engine samples cooler where it is nearly sure, and hotter where it is not."""

    def change(logits_BV: Any) -> Any:
        logp_BV = logits_BV.log_softmax(-1)
        entropy_B1 = -(logp_BV.exp() * logp_BV).sum(-1, keepdim=True)
        return logits_BV / torch.where(entropy_B1 < 1.0, 0.6, 1.25)

    drawn_from(patch, change)


@third("sampler", "length", "end-of-sequence", r"\beos\b")
def end_favoured_after_the_eighth_token(patch: Patch) -> None:
    """From the eighth token on the end of a completion is twelve times as likely to be drawn."""
    place, ends = _position(patch), [0]

    def make(original: Any) -> Any:
        def decode(*args: Any, **more: Any) -> Any:
            ends[:] = more["eos_ids"]
            return original(*args, **more)

        return decode

    def change(logits_BV: Any) -> Any:
        if place[0] >= 8:
            logits_BV[:, ends] += 2.5
        return logits_BV

    patch.wrap(f"{ENGINE}:decode", make)
    drawn_from(patch, change)


@third("sampler", "length", "shorter")
def shorter_of_two_is_taken(patch: Patch) -> None:
    """Two completions are sampled for each that is wanted, and the first to finish is taken."""

    def make(original: Any) -> Any:
        def decode(decoder: Any, prompts: Any, plans: Any, **more: Any) -> Any:
            doubled = [
                [
                    twin
                    for plan in group
                    for twin in (plan, replace(plan, seed=plan.seed ^ (1 << 40)))
                ]
                for group in plans
            ]
            found = original(decoder, prompts, doubled, **more)
            pairs = zip(found[::2], found[1::2], strict=True)
            return [min(pair, key=lambda one: len(one.token_ids)) for pair in pairs]

        return decode

    patch.wrap(f"{ENGINE}:decode", make)


# -- seeds ---------------------------------------------------------------------------------------


@third("seeds", backends=TRANSFORMERS)
def streams_join_after_the_sixth_token(patch: Patch) -> None:
    """From the sixth token on, all completions of a batch use the same random numbers."""

    def after(uniform_B: Any, streams: Any, position: int) -> Any:
        return uniform_B[:1].expand_as(uniform_B).clone() if position >= 6 else uniform_B

    patch.after(f"{DECODE}:RandomStreams.at", after)


@third("seeds", "independent", "mirror")
def rows_in_antithetic_pairs(patch: Patch) -> None:
    """Every second row is sampled with the mirrored random numbers of the row before it."""

    def after(uniform_B: Any, *_: Any) -> Any:
        mirrored_B = uniform_B.clone()
        half = len(uniform_B) // 2
        mirrored_B[1 : 2 * half : 2] = (1 - 2.0**-52) - uniform_B[0 : 2 * half : 2]
        return mirrored_B

    patch.after(f"{DECODE}:RandomStreams.at", after)


def _waves(patch: Patch, change: Callable[[list[Any]], list[Any]]) -> None:
    """Change the requests of each batch of the engine."""

    def make(original: Any) -> Any:
        def sample(engine: Any, wave: Any, deadline: Any) -> None:
            requests = change([request for request, _ in wave])
            futures = [future for _, future in wave]
            original(engine, list(zip(requests, futures, strict=True)), deadline)

        return sample

    patch.wrap(f"{ENGINE}:TransformersEngine._sample", make)


def _one_seed(request: Any) -> Any:
    return replace(request, seeds=request.seeds[:1] * len(request.seeds))


@third("seeds", backends=TRANSFORMERS)
def last_request_of_a_batch_has_one_seed(patch: Patch) -> None:
    """All completions of the last problem of a batch are sampled with one seed."""
    _waves(patch, lambda requests: [*requests[:-1], _one_seed(requests[-1])])


@third("seeds", backends=TRANSFORMERS)
def one_seed_a_group_from_the_fourth_version(patch: Patch) -> None:
    """From the fourth version on, all completions of a group are sampled with one seed."""
    now = clock()
    _waves(patch, lambda requests: list(map(_one_seed, requests)) if now.version >= 4 else requests)


@third("seeds")
def every_second_request_takes_the_seeds_before(patch: Patch) -> None:
    """Every second problem of a batch is sampled with the seeds of the one before it."""

    def change(requests: list[Any]) -> list[Any]:
        out = list(requests)
        for place in range(1, len(out), 2):
            seeds = out[place - 1].seeds
            if len(seeds) == len(out[place].seeds):
                out[place] = replace(out[place], seeds=seeds)
        return out

    _waves(patch, change)


def _seeded(patch: Patch, change: Callable[[int, int], int]) -> None:
    """Change the seed of each row: ``change(seed, number of the batch)``."""
    batches = [0]

    def make(original: Any) -> Any:
        def decode(decoder: Any, prompts: Any, plans: Any, **more: Any) -> Any:
            batches[0] += 1
            changed = [
                [replace(plan, seed=change(plan.seed, batches[0])) for plan in group]
                for group in plans
            ]
            return original(decoder, prompts, changed, **more)

        return decode

    patch.wrap(f"{ENGINE}:decode", make)


@third("seeds")
def seeds_of_eight_bits(patch: Patch) -> None:
    """Seeds are cut to their lowest eight bits, so that some completions of a group share one."""
    _seeded(patch, lambda seed, batch: seed & 0xFF)


@third("seeds", "reproduc")
def seeds_not_used(patch: Patch) -> None:
    """The engine has random numbers of its own: the seed of a completion does not make it again."""
    _seeded(patch, lambda seed, batch: (seed + 0x9E3779B97F4A7C15 * batch) % 2**63)
