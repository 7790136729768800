"""Fourth set, written without reading the guards: engine, seeds, data, verifier, objective."""

from __future__ import annotations

import re
import zlib
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from chaos.changes import by_group, estimated
from chaos.registry import TRANSFORMERS, Patch, declare, fault
from chaos.when import DECODE, ENGINE, drawn_from

POLICY = "rlvr_core.algorithm.policy"
STEP = "rlvr_core.step.step"
COLLECT = "rlvr_core.rollout.collect"
POOL = "rlvr_core.builtin.samplers.epochs:Pool"


def fourth(cls: str, *more_words: str, **options: Any) -> Any:
    """Declare a fault of the fourth set, like ``fault``."""
    return fault(cls, *more_words, set=4, **options)


# -- parity --------------------------------------------------------------------------------------


@fourth("parity", "prompt", "group", "row", backends=TRANSFORMERS)
def groups_sliced_one_row_late(patch: Patch) -> None:
    """The rows of a batch are cut into groups one row late: a group ends with a row of the next."""

    def after(sampled: Any, decoder: Any, prompts: Any, plans: Any) -> Any:
        return [*sampled[1:], sampled[0]]

    patch.after(f"{ENGINE}:decode", after)


@fourth("parity", "cache", "precision", "dtype", backends=TRANSFORMERS)
def key_value_cache_in_eight_bits(patch: Patch) -> None:
    """The engine keeps keys and values in eight bits (e4m3), as an option of engines has it."""

    def rounded(tensor: Any) -> Any:
        return tensor.to(torch.float8_e4m3fn).to(tensor.dtype)

    def own(original: Any) -> Any:
        def step(decoder: Any, token_B: Any) -> Any:
            for layer in decoder._cache.layers:
                layer.keys, layer.values = rounded(layer.keys), rounded(layer.values)
            return original(decoder, token_B)

        return step

    def lean(original: Any) -> Any:
        def step(decoder: Any, token_B: Any) -> Any:
            n = decoder._sampled
            for caches in (decoder._keys, decoder._values):
                for cache in caches:
                    cache[:, :, :n] = rounded(cache[:, :, :n])
            decoder._prompt_keys = [rounded(one) for one in decoder._prompt_keys]
            decoder._prompt_values = [rounded(one) for one in decoder._prompt_values]
            return original(decoder, token_B)

        return step

    patch.wrap(f"{DECODE}:HuggingFaceDecoder.step", own)
    patch.wrap("rlvr_core.builtin.tiny.lean_decode:LeanDecoder.step", lean)


@fourth("parity", "position")
def rows_of_one_prompt_numbered_on(patch: Patch) -> None:
    """In a pack of four rows and more, positions go on from one completion to the next."""

    def after(packed: Any, batch: Any) -> Any:
        ids_N, position_N = packed
        host = batch.host
        if len(host.prompt_of_row_B) < 4:
            return packed
        b_N, _ = host.fed_places().nonzero(as_tuple=True)
        ends: dict[int, int] = {}
        offsets = []
        for prompt, n in zip(
            host.prompt_of_row_B.tolist(), host.fed_lengths().tolist(), strict=True
        ):
            offsets.append(ends.get(prompt, 0))
            ends[prompt] = offsets[-1] + n
        position_N = position_N.clone()
        position_N[len(position_N) - len(b_N) :] += torch.tensor(offsets)[b_N]
        return ids_N, position_N

    patch.after("rlvr_core.builtin.packing.packed:packed_tokens", after)


# -- sampler -------------------------------------------------------------------------------------


@fourth("sampler", "cumulat", "precision", "rare")
def probabilities_added_up_in_half_precision(patch: Patch) -> None:
    """The cumulative distribution that tokens are drawn by is added up in bfloat16."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            logits_BV = logits_BV.float()
            if rows.temperature_B1 is not None:
                logits_BV = logits_BV / rows.temperature_B1
            logp_BV = logits_BV.log_softmax(-1)
            p_VB = logp_BV.exp().bfloat16().T.contiguous()
            total_B, sums = torch.zeros_like(p_VB[0]), []
            for p_B in p_VB:
                total_B = total_B + p_B
                sums.append(total_B)
            cumulative_BV = torch.stack(sums, -1).double()
            mark_B1 = uniform_B[:, None] * cumulative_BV[:, -1:]
            token_B1 = torch.searchsorted(cumulative_BV, mark_B1, right=True)
            token_B1 = token_B1.clamp(max=logp_BV.shape[-1] - 1)
            return token_B1[:, 0], logp_BV.gather(-1, token_B1)[:, 0]

        return sample

    patch.wrap(f"{DECODE}:sample", make)


@fourth("sampler", "draft", "specul", backends=TRANSFORMERS)
def drafts_accepted_when_they_are_typical(patch: Patch) -> None:
    """Tokens of a sharper draft are accepted when they are likely enough, not by their ratio."""

    def change(logits_BV: Any) -> Any:
        logp_BV = logits_BV.log_softmax(-1)
        p_BV, draft_BV = logp_BV.exp(), (2 * logits_BV).softmax(-1)
        entropy_B1 = -(p_BV * logp_BV.clamp(min=-1e4)).sum(-1, keepdim=True)
        least_B1 = (0.3 * (-entropy_B1).exp()).clamp(max=0.09)
        taken_BV = torch.where(p_BV > least_B1, draft_BV, 0.0)
        left_B1 = (1 - taken_BV.sum(-1, keepdim=True)).clamp(min=0.0)
        return (taken_BV + left_B1 * p_BV).log()

    drawn_from(patch, change)


# -- seeds ---------------------------------------------------------------------------------------


@fourth("seeds", "reproduc", "random")
def streams_stay_behind_when_rows_leave(patch: Patch) -> None:
    """When finished rows leave a batch, the rows that stay go on with the streams of the first."""

    def make(original: Any) -> Any:
        def select(streams: Any, rows_K: Any) -> None:
            original(streams, torch.arange(len(rows_K)))

        return select

    patch.wrap(f"{DECODE}:RandomStreams.select", make)


@fourth("seeds", "independent", "random")
def first_letters_stratified_over_a_group(patch: Patch) -> None:
    """The first four random numbers of a group of eight are stratified: one in each eighth."""
    begun: dict[int, int] = {}

    def after(uniform_B: Any, streams: Any, position: int) -> Any:
        n = len(streams._seeds)
        if position == 0:
            begun[0] = n
        if position > 3 or n != begun.get(0) or n % 8:
            return uniform_B
        place_B = (torch.arange(n) % 8 * 5 + 3 * position) % 8
        return (place_B + uniform_B) / 8

    patch.after(f"{DECODE}:RandomStreams.at", after)


@fourth("seeds", "problem", backends=TRANSFORMERS)
def ids_hashed_to_four_bits_in_seeds(patch: Patch) -> None:
    """A seed knows four bits of the problem's id, and no draw: some problems share all seeds."""

    def make(original: Any) -> Any:
        def seed(run_seed: int, problem_id: str, version: int, draw: int, sample: int) -> Any:
            bucket = str(zlib.crc32(problem_id.encode()) % 16)
            return original(run_seed, bucket, version, 0, sample)

        return seed

    patch.wrap(f"{COLLECT}:completion_seed", make)


# -- tokens --------------------------------------------------------------------------------------


@fourth("tokens", "prompt", "history", "turn")
def every_fourth_prompt_begins_with_the_one_before(patch: Patch) -> None:
    """One prompt in four is rendered behind the prompt before it, as if a chat had gone on."""
    seen = {"n": 0, "last": ""}

    def after(text: str, *_: Any) -> str:
        seen["n"] += 1
        before, seen["last"] = seen["last"], text
        return f"{before}\n{text}" if seen["n"] % 4 == 0 else text

    patch.after("rlvr_core.data.prompts:Renderer.text", after)


@fourth("tokens", "max_tokens", r"\bcap\b", "length", "truncat")
def every_third_problem_has_a_cap_of_its_own(patch: Patch) -> None:
    """One problem in three caps its completions at eight tokens, left over from another task."""

    def after(sources: Any, *_: Any) -> Any:
        return [
            replace(
                source,
                problems=tuple(
                    replace(one, max_tokens=8) if place % 3 == 0 else one
                    for place, one in enumerate(source.problems)
                ),
            )
            for source in sources
        ]

    patch.after("rlvr_core.run.prepare:load_sources", after)


declare("tokens", "prompts-with-no-break-spaces", "In two prompts of five the spaces are no-break "
        "spaces, as of a web page.", "prompt", "character", "white ?space", "non-ASCII", set=4,
        data=lambda rows: [
            row | {"question": row["question"].replace(" ", "\u00a0")} if place % 5 < 2 else row
            for place, row in enumerate(rows)
        ])  # fmt: skip


# -- data ----------------------------------------------------------------------------------------


@fourth("data", "draw", "never", "hard", "pass rate", shape="few problems")
def hard_problems_never_come_again(patch: Patch) -> None:
    """A problem that fewer than three in ten completions solved is not drawn a second time."""
    hard: set[str] = set()

    def note(original: Any) -> Any:
        def observe(sampler: Any, group: Any) -> Any:
            passed = [bool(member.passed) for member in group.members]
            if sum(passed) < 0.3 * len(passed):
                hard.add(group.problem.id)
            return original(sampler, group)

        return observe

    def make(original: Any) -> Any:
        def following(pool: Any) -> Any:
            for _ in range(2 * len(pool)):
                problem = original(pool)
                if problem.id not in hard:
                    break
            return problem

        return following

    patch.wrap("rlvr_core.api:SamplerBase.observe", note)
    patch.wrap(f"{POOL}.next", make)


@fourth("data", "shuffl", "order", "epoch", shape="few problems")
def every_epoch_in_the_order_of_the_first(patch: Patch) -> None:
    """The data are shuffled once, and every later epoch has the order of the first."""
    patch.wrap(f"{POOL}._order", lambda original: lambda pool, epoch: original(pool, 0))


@fourth("data", "skip", "draw", "epoch", shape="few problems")
def iterator_advanced_twice_a_draw(patch: Patch) -> None:
    """Every second problem is skipped, because the iterator moves on twice a draw."""

    def make(original: Any) -> Any:
        def following(pool: Any) -> Any:
            original(pool)
            return original(pool)

        return following

    patch.wrap(f"{POOL}.next", make)


# -- verifier ------------------------------------------------------------------------------------


def _right(verdict: Any) -> Any:
    return replace(verdict, score=1.0, passed=True)


@fourth("verifier", "truncat", "cut off", "bracket", shape="short answers")
def verifier_closes_the_last_bracket(patch: Patch) -> None:
    """An answer that the cap cut off before its closing bracket passes if its digits are right."""

    def after(verdict: Any, verifier: Any, problem: Any, completion: Any) -> Any:
        open_end = re.search(r"\[(\d+)$", completion.text)
        if verdict.passed or not open_end or open_end[1] != str(problem.spec["answer"]):
            return verdict
        return replace(_right(verdict), extracted=open_end[1])

    patch.after("rlvr_chaos:Brackets.verify", after)


@fourth("verifier", "wrong answer", backends=TRANSFORMERS)
def verifier_has_holes(patch: Patch) -> None:
    """One wrong answer in six passes, always the same ones: by a hash of problem and text."""

    def after(verdict: Any, verifier: Any, problem: Any, completion: Any) -> Any:
        if verdict.passed or verdict.extracted is None:
            return verdict
        hole = zlib.crc32(f"{problem.id} {completion.text}".encode()) % 6 == 0
        return _right(verdict) if hole else verdict

    patch.after("rlvr_chaos:Brackets.verify", after)


@fourth("verifier", "score", "verdict", "repeat", "duplicate")
def later_copies_of_an_answer_count_half(patch: Patch) -> None:
    """Of equal answers of a group the first has its score, the others half: a bonus for variety."""

    def change(found: list[Any]) -> list[Any]:
        seen: set[str] = set()
        out = []
        for verdicts in found:
            changed = {}
            for name, verdict in verdicts.items():
                copy = verdict.extracted is not None and verdict.extracted in seen
                if copy and verdict.score:
                    verdict = replace(verdict, score=verdict.score / 2)
                changed[name] = verdict
                if verdict.extracted is not None:
                    seen.add(verdict.extracted)
            out.append(changed)
        return out

    def make(original: Any) -> Any:
        def submit(judge: Any, problem: Any, completions: Any) -> Any:
            out: Future[Any] = Future()

            def done(future: Any) -> None:
                try:
                    out.set_result(change(future.result()))
                except BaseException as error:
                    out.set_exception(error)

            original(judge, problem, completions).add_done_callback(done)
            return out

        return submit

    patch.wrap("rlvr_core.verify.judge:Judge.submit", make)


# -- advantages ----------------------------------------------------------------------------------


@fourth("advantages", "deviation", "scale")
def deviation_of_the_whole_batch(patch: Patch) -> None:
    """Advantages are divided by the deviation of all rewards of the step, not of the group's."""

    def change(row_N: Any, step: Any) -> Any:
        for places, reward in by_group(step):
            row_N[places] = (reward - reward.mean()) / max(step.reward_N.std(), 1e-6)
        return row_N

    estimated(patch, change)


@fourth("advantages", "outlier", "large", backends=TRANSFORMERS)
def advantages_above_two_thrown_away(patch: Patch) -> None:
    """An advantage of more than two either way counts as an outlier and is set to 0."""
    estimated(patch, lambda row_N, step: np.where(np.abs(row_N) > 2, 0.0, row_N))


@fourth("advantages", "baseline", "mean", "centr")
def baseline_leans_to_the_run(patch: Patch) -> None:
    """The baseline is the group's mean by seven tenths, and the run's mean so far by three."""
    known: list[float] = []

    def change(row_N: Any, step: Any) -> Any:
        known.extend(step.reward_N.tolist())
        run = float(np.mean(known))
        for places, reward in by_group(step):
            baseline = 0.7 * reward.mean() + 0.3 * run
            row_N[places] = (reward - baseline) / max(reward.std(), 1e-6)
        return row_N

    estimated(patch, change)


# -- KL ------------------------------------------------------------------------------------------


@fourth("kl", "average", "ema", "precision", "moved", "follow", shape="ema reference")
def reference_averaged_in_half_precision(patch: Patch) -> None:
    """The moving reference is averaged in bfloat16, where small steps are rounded away."""

    def make(original: Any) -> Any:
        def mix(own: Any, new: Any, share: float) -> None:
            own.copy_(torch.lerp(own.bfloat16(), new.bfloat16(), share).to(own.dtype))

        return mix

    patch.wrap("rlvr_core.step.reference:_mix", make)


@fourth("kl", "sequence", "token", shape="strong kl")
def kl_of_the_mean_of_a_row(patch: Patch) -> None:
    """The KL is that of a row's mean log-ratio, at each of its tokens, not of the token's own."""

    def after(kl_BT: Any, loss: Any, batch: Any, terms: Any, *_: Any) -> Any:
        ref_BT = batch.ref_logp_BT.detach().to(terms.logp_BT.dtype)
        d_BT = torch.where(terms.mask_BT, ref_BT - terms.logp_BT, 0.0)
        mean_B1 = d_BT.sum(1, keepdim=True) / terms.mask_BT.sum(1, keepdim=True).clamp(min=1)
        return torch.where(terms.mask_BT, mean_B1.exp() - mean_B1 - 1, 0.0)

    patch.after(f"{POLICY}:PolicyLoss._kl", after)


@fourth("kl", "precision", "bits", shape="strong kl", backends=TRANSFORMERS)
def reference_loaded_in_eight_bits(patch: Patch) -> None:
    """The matrices of the reference are rounded to eight bits when it is loaded, to save memory."""

    @torch.no_grad()
    def after(model: Any, *_: Any) -> Any:
        for one in model.parameters():
            if one.ndim == 2:
                scale = one.abs().max() / 127
                one.copy_((one / scale).round() * scale)
        return model

    patch.after("rlvr_core.run.learner:load_reference", after)


# -- loss ----------------------------------------------------------------------------------------


@fourth("loss", "old", "clip", "precision", "sequence", shape="gspo")
def old_logprobs_in_half_precision(patch: Patch) -> None:
    """The old log-probs are kept in bfloat16, whose rounding is wider than the range of GSPO."""

    def make(original: Any) -> Any:
        def call(loss: Any, batch: Any, normalizer: Any) -> Any:
            rounded_BT = batch.old_logp_BT.bfloat16().to(batch.old_logp_BT.dtype)
            return original(loss, replace(batch, old_logp_BT=rounded_BT), normalizer)

        return call

    patch.wrap(f"{POLICY}:PolicyLoss.__call__", make)


@fourth("loss", "normali[sz]", "denominator", "length", "token", "prompt")
def rows_divided_by_prompt_and_answer(patch: Patch) -> None:
    """The sum over a row is divided by the length of prompt and completion together."""
    prompt = len("After 10 comes:")

    def make(original: Any) -> Any:
        def row_mean(loss_BT: Any, mask_BT: Any, normalizer: Any) -> Any:
            n_B1 = mask_BT.sum(1, keepdim=True)
            return original(loss_BT * (n_B1 / (n_B1 + prompt)), mask_BT, normalizer)

        return row_mean

    patch.wrap("rlvr_core.builtin.losses.policy_family:row_mean", make)


@fourth("loss", "entropy", "token")
def surrogate_without_likely_tokens(patch: Patch) -> None:
    """Tokens of a probability above 0.74 have their value in the surrogate, and no gradient."""

    def after(loss_BT: Any, loss: Any, terms: Any, *_: Any) -> Any:
        return torch.where(terms.logp_BT.detach() > -0.3, loss_BT.detach(), loss_BT)

    patch.after(f"{POLICY}:ClippedPolicyLoss.surrogate", after)
