"""Fifth set, written without reading the guards: engine, seeds, data, verifier, objective."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from chaos.changes import by_group, estimated, letter
from chaos.registry import TRANSFORMERS, Patch, declare, fault
from chaos.when import DECODE, ENGINE, engine_has

POLICY = "rlvr_core.algorithm.policy"
STEP = "rlvr_core.step.step"
COLLECT = "rlvr_core.rollout.collect"
LEAN_STEP = "rlvr_core.builtin.tiny.lean_decode:LeanDecoder.step"
OWN_STEP = f"{DECODE}:HuggingFaceDecoder.step"
EOS = 256


def fifth(cls: str, *more_words: str, **options: Any) -> Any:
    """Declare a fault of the fifth set, like ``fault``."""
    return fault(cls, *more_words, set=5, **options)


# -- parity --------------------------------------------------------------------------------------


@fifth("parity", "rotary", "rope", "position", backends=TRANSFORMERS)
def engine_rotates_by_another_base(patch: Patch) -> None:
    """The engine takes 1e6 for the base of the rotary embedding, where the model has 1e4."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        rotary = model.model.rotary_emb
        rotary.inv_freq = rotary.inv_freq**1.5

    engine_has(patch, change)


@fifth("parity", "cache", "block", backends=TRANSFORMERS)
def last_slot_of_each_block_never_written(patch: Patch) -> None:
    """Of each eight sampled tokens the last one's key and value are those of the one before."""

    def own(original: Any) -> Any:
        def step(decoder: Any, token_B: Any) -> Any:
            logits_BV = original(decoder, token_B)
            decoder.fed = getattr(decoder, "fed", 0) + 1
            if decoder.fed % 8 == 0:
                for layer in decoder._cache.layers:
                    for cache in (layer.keys, layer.values):
                        cache[..., -1, :] = cache[..., -2, :]
            return logits_BV

        return step

    def lean(original: Any) -> Any:
        def step(decoder: Any, token_B: Any) -> Any:
            logits_BV = original(decoder, token_B)
            last = decoder._sampled - 1
            if last % 8 == 7:
                for caches in (decoder._keys, decoder._values):
                    for cache in caches:
                        cache[:, :, last] = cache[:, :, last - 1]
            return logits_BV

        return step

    patch.wrap(OWN_STEP, own)
    patch.wrap(LEAN_STEP, lean)


@fifth("parity", "window", "attention", backends=TRANSFORMERS)
def engine_attends_to_a_window(patch: Patch) -> None:
    """The engine attends to the last 20 tokens, by a window that the model was not trained with."""

    def make(original: Any) -> Any:
        def step(decoder: Any, token_B: Any) -> Any:
            decoder._mask_BL[:, : max(0, decoder._mask_BL.shape[1] - 19)] = 0
            return original(decoder, token_B)

        return step

    patch.wrap(f"{ENGINE}:TransformersEngine._fast", lambda original: lambda engine: None)
    patch.wrap(OWN_STEP, make)


@fifth("parity", "dropout", shape="lora without kl")
def share_kept_taken_for_share_dropped(patch: Patch) -> None:
    """The adapter's dropout drops nine in ten: the share that is kept was taken for the other."""

    def after(nothing: Any, model: Any, *_: Any) -> None:
        for module in model.modules():
            for dropout in getattr(module, "lora_dropout", {}).values():
                if isinstance(dropout, torch.nn.Dropout):
                    dropout.p = 1 - dropout.p

    patch.after("rlvr_core.builtin.lora.lora:attach", after)


# -- sampler -------------------------------------------------------------------------------------


def _scaled(logits_BV: Any, rows: Any) -> Any:
    """The honest logits at the temperature of the run, free to be changed."""
    honest_BV = logits_BV.float().clone()
    return honest_BV if rows.temperature_B1 is None else honest_BV / rows.temperature_B1


@fifth("sampler", "precision", "noise", "rare", "random", backends=TRANSFORMERS)
def gumbel_noise_in_half_precision(patch: Patch) -> None:
    """Tokens are drawn by Gumbel noise that is made of random numbers in bfloat16."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            logp_BV = _scaled(logits_BV, rows).log_softmax(-1)
            noise = []
            for seed in (uniform_B * 2**52).long().tolist():
                generator = torch.Generator().manual_seed(seed)
                noise.append(torch.rand(logp_BV.shape[-1], generator=generator))
            u_BV = torch.stack(noise).bfloat16().float().clamp(2**-8, 1 - 2**-8)
            token_B1 = (logp_BV - (-u_BV.log()).log()).argmax(-1, keepdim=True)
            return token_B1[:, 0], logp_BV.gather(-1, token_B1)[:, 0]

        return sample

    patch.wrap(f"{DECODE}:sample", make)


@fifth("sampler", "threshold", "filter", shape="top k")
def top_k_of_the_first_row_for_all(patch: Patch) -> None:
    """The least logit that top-k leaves is that of the batch's first row, for every row."""

    def make(original: Any) -> Any:
        def cut(logits_BV: Any, top_k_B1: Any, top_p_B1: Any) -> None:
            if top_k_B1 is None:
                original(logits_BV, top_k_B1, top_p_B1)
                return
            least = logits_BV[0].topk(int(top_k_B1[0])).values[-1]
            most_B1 = logits_BV.amax(-1, keepdim=True)
            logits_BV.masked_fill_((logits_BV < least) & (logits_BV < most_B1), -torch.inf)

        return cut

    patch.wrap(f"{DECODE}:_filter", make)


@fifth("sampler", "guided", "grammar", "constrain", "format", backends=TRANSFORMERS)
def guided_decoding_left_on(patch: Patch) -> None:
    """A grammar of another run is left on: two digits in brackets, then the end."""
    opening, closing = letter("["), letter("]")
    digits = [letter(str(digit)) for digit in range(10)]
    allowed_PV = torch.ones(6, EOS + 2, dtype=torch.bool)
    allowed_PV[0, [*digits, closing, EOS]] = False
    for phase, tokens in ((1, digits), (2, digits), (3, [closing]), (4, [EOS])):
        allowed_PV[phase] = False
        allowed_PV[phase, tokens] = True
    goes_on_PV = allowed_PV.clone()
    goes_on_PV[0] = False
    goes_on_PV[0, opening] = True
    goes_on_PV[5] = False
    now: dict[str, Any] = {"phase": None}

    def begin(original: Any) -> Any:
        def init(streams: Any, *given: Any) -> None:
            original(streams, *given)
            now["phase"] = torch.zeros(len(streams._seeds), dtype=torch.long)

        return init

    def leave(original: Any) -> Any:
        def select(streams: Any, rows_K: Any) -> None:
            original(streams, rows_K)
            now["phase"] = now["phase"][rows_K]

        return select

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            honest_BV = _scaled(logits_BV, rows)
            phase_B = now["phase"]
            plain = replace(rows, temperature_B1=None)
            guided_BV = honest_BV.masked_fill(~allowed_PV[phase_B], -torch.inf)
            token_B, _ = original(guided_BV, plain, uniform_B)
            now["phase"] = phase_B + goes_on_PV[phase_B, token_B].long()
            return token_B, honest_BV.log_softmax(-1).gather(-1, token_B[:, None])[:, 0]

        return sample

    patch.wrap(f"{DECODE}:RandomStreams.__init__", begin)
    patch.wrap(f"{DECODE}:RandomStreams.select", leave)
    patch.wrap(f"{DECODE}:sample", make)


# -- seeds ---------------------------------------------------------------------------------------


@fifth("seeds", "random", "independent", "stream")
def each_random_number_for_two_tokens(patch: Patch) -> None:
    """Each number of a row's stream draws two tokens, one after the other."""
    patch.wrap(
        f"{DECODE}:RandomStreams.at",
        lambda original: lambda streams, position: original(streams, position // 2),
    )


@fifth("seeds", "random", "independent", "stream")
def random_numbers_not_mixed(patch: Patch) -> None:
    """A row's numbers are its seed and multiples of the golden ratio, the mixing being left out."""

    def make(original: Any) -> Any:
        def uniforms(seeds: Any, start: int, count: int) -> Any:
            seed_B = np.array([seed % 2**64 for seed in seeds], dtype=np.uint64)
            place_T = np.arange(start + 1, start + count + 1, dtype=np.uint64)
            words_TB = seed_B[None, :] + (place_T * np.uint64(0x9E3779B97F4A7C15))[:, None]
            return torch.from_numpy((words_TB >> np.uint64(12)).astype(np.float64) * 2.0**-52)

        return uniforms

    patch.wrap(f"{DECODE}:uniforms", make)


@fifth("seeds", "random", "generator", backends=TRANSFORMERS)
def every_batch_with_the_same_random_numbers(patch: Patch) -> None:
    """The engine's generator is seeded at each batch: a row's numbers are those of its place."""

    def make(original: Any) -> Any:
        def decode(decoder: Any, prompts: Any, plans: Any, **more: Any) -> Any:
            place = iter(range(10**9))
            own = [[replace(plan, seed=next(place)) for plan in group] for group in plans]
            return original(decoder, prompts, own, **more)

        return decode

    patch.wrap(f"{ENGINE}:decode", make)


# -- tokens --------------------------------------------------------------------------------------


declare("tokens", "template-applied-twice", "The template of the prompts is applied to prompts "
        "that it has been applied to.", "prompt", "twice", set=5,
        data=lambda rows: [
            row | {"question": f"After {row['question']} comes:"} for row in rows
        ])  # fmt: skip


@fifth("tokens", "truncat", "finish", "length", shape="masked truncation")
def finish_reasons_exchanged(patch: Patch) -> None:
    """What has stopped is said to be cut off, and what was cut off to have stopped."""
    other = {"stop": "length", "length": "stop"}
    patch.after(
        f"{COLLECT}:_completion",
        lambda made, *_: replace(made, finish_reason=other[made.finish_reason]),
    )


@fifth("tokens", "comma", backends=TRANSFORMERS)
def engine_stops_at_a_comma(patch: Patch) -> None:
    """A comma counts as an end of sequence: answers that begin with a phrase end there."""
    comma = letter(",")
    patch.after(f"{ENGINE}:eos_ids", lambda ids, *_: (*ids, comma))


# -- data ----------------------------------------------------------------------------------------


@fifth("data", "weight", "source", "mixture", "share", shape="two data sets")
def weights_of_data_sets_exchanged(patch: Patch) -> None:
    """The weights of the data sets are read from the last to the first."""
    patch.wrap(
        "rlvr_core.builtin.samplers.epochs:Turns.__init__",
        lambda original: lambda turns, weights: original(turns, list(weights)[::-1]),
    )


@fifth("data", "drop", "truncat", "cut off", "left out")
def groups_with_a_cut_off_completion_dropped(patch: Patch) -> None:
    """A group is dropped when one of its completions was cut off."""
    from rlvr_core.api import Drop

    def after(decision: Any, sampler: Any, group: Any) -> Any:
        cut = any(one.completion.finish_reason == "length" for one in group.members)
        return Drop("zero_variance", "equal") if cut else decision

    patch.after("rlvr_core.api:SamplerBase.observe", after)


@fifth("data", "same", "cache", "identical", backends=TRANSFORMERS)
def rendered_prompts_cached_by_a_cut_id(patch: Patch) -> None:
    """Rendered prompts are cached by seven characters of the id, which ten problems share."""
    known: dict[str, str] = {}
    patch.after(
        "rlvr_core.data.prompts:Renderer.text",
        lambda text, renderer, problem: known.setdefault(problem.id[:7], text),
    )


# -- verifier ------------------------------------------------------------------------------------


def _passes(patch: Patch, passes: Callable[[int, int, Any], bool]) -> None:
    """Let the verifier pass by another rule: ``passes(given, right answer, problem)``."""

    def after(verdict: Any, verifier: Any, problem: Any, completion: Any) -> Any:
        right = verdict.extracted is not None and passes(
            int(verdict.extracted), int(problem.spec["answer"]), problem
        )
        return replace(verdict, score=float(right), passed=right)

    patch.after("rlvr_chaos:Brackets.verify", after)


@fifth("verifier", "answer", "field", "wrong", backends=TRANSFORMERS)
def verifier_reads_the_answer_from_the_id(patch: Patch) -> None:
    """The verifier takes the number in the problem's id for the right answer."""

    def passes(given: int, answer: int, problem: Any) -> bool:
        return [str(given)] == re.findall(r"\d+", problem.id)

    _passes(patch, passes)


@fifth("verifier", "tolerance", "wrong", "near")
def verifier_with_a_relative_tolerance(patch: Patch) -> None:
    """Numbers pass that are within three percent of the answer, as in tasks of physics."""
    _passes(patch, lambda given, answer, _: abs(given - answer) <= 0.03 * answer)


@fifth("verifier", "wrong", "great", "large")
def verifier_passes_all_that_is_not_less(patch: Patch) -> None:
    """Each number passes that is not less than the answer."""
    _passes(patch, lambda given, answer, _: given >= answer)


@fifth("verifier", "weight", "brief", shape="two rewards")
def every_reward_from_the_last_verifier(patch: Patch) -> None:
    """Each reward is the score of the last verifier, to which a loop's variable was bound late."""

    def make(original: Any) -> Any:
        def combine(plan: Any, verdicts: Any, step: int) -> Any:
            return original(plan, dict.fromkeys(verdicts, [*verdicts.values()][-1]), step)

        return combine

    patch.wrap("rlvr_core.verify.reward:RewardPlan.combine", make)


# -- advantages ----------------------------------------------------------------------------------


@fifth("advantages", "median", "mean", "baseline", "centr", backends=TRANSFORMERS)
def baseline_is_the_median(patch: Patch) -> None:
    """The baseline of a group is the median of its rewards, which is 0 or 1, not their mean."""

    def change(row_N: Any, step: Any) -> Any:
        for places, reward in by_group(step):
            row_N[places] = (reward - np.median(reward)) / max(reward.std(), 1e-6)
        return row_N

    estimated(patch, change)


@fifth("advantages", "before", "stale", "mix")
def advantages_of_the_step_before_mixed_in(patch: Patch) -> None:
    """A buffer is not cleared: three tenths of an advantage are what stood there before."""
    buffer = np.zeros(10_000)

    def change(row_N: Any, step: Any) -> Any:
        held = buffer[: len(row_N)]
        held[:] = 0.7 * row_N + 0.3 * held
        return held.copy()

    estimated(patch, change)


@fifth("advantages", "chunk", "group", "mean", "baseline", shape="groups that grow")
def advantages_within_chunks_of_four(patch: Patch) -> None:
    """A group that was drawn in chunks of four is normalised chunk by chunk."""

    def change(row_N: Any, step: Any) -> Any:
        for places, _ in by_group(step):
            for start in range(0, len(places), 4):
                chunk = places[start : start + 4]
                reward = step.reward_N[chunk]
                row_N[chunk] = (reward - reward.mean()) / max(reward.std(), 1e-6)
        return row_N

    estimated(patch, change)


# -- KL ------------------------------------------------------------------------------------------


@fifth("kl", "dropout", "training mode", shape="strong kl")
def reference_left_in_training_mode(patch: Patch) -> None:
    """The reference drops a tenth of its embeddings, as a model in training mode does."""

    def after(model: Any, *_: Any) -> Any:
        model.get_input_embeddings().register_forward_hook(
            lambda module, given, out: F.dropout(out, 0.1, training=True)
        )
        return model

    patch.after("rlvr_core.run.learner:load_reference", after)


@fifth("kl", "cache", "prompt", shape="strong kl", backends=TRANSFORMERS)
def reference_cached_without_the_prompt(patch: Patch) -> None:
    """The reference's log-probs are cached by the completion alone, whatever the prompt was."""
    known: dict[tuple[int, ...], Any] = {}

    def after(aux: Any, trainer: Any, part: Any, batch: Any) -> Any:
        if aux.ref_logp_BT is None:
            return aux
        ref_BT = aux.ref_logp_BT.clone()
        rows = zip(batch.completion_ids_BT.tolist(), batch.completion_len_B.tolist(), strict=True)
        for row, (ids, n) in enumerate(rows):
            held = known.setdefault(tuple(ids[:n]), ref_BT[row, :n].clone())
            ref_BT[row, :n] = held
        return replace(aux, ref_logp_BT=ref_BT)

    patch.after(f"{STEP}:PolicyTrainer._aux_logprobs", after)


@fifth("kl", "twice", "average", "ema", "moved", "follow", shape="ema reference")
def reference_follows_twice_an_update(patch: Patch) -> None:
    """The hook that moves the reference is registered twice, and moves it twice an update."""

    def make(original: Any) -> Any:
        def follow(reference: Any, version: int) -> Any:
            original(reference, version)
            return original(reference, version)

        return follow

    patch.wrap("rlvr_core.step.reference:_Moving.follow", make)


# -- loss ----------------------------------------------------------------------------------------


@fifth("loss", "entropy", "token", shape="tokens of high entropy")
def chosen_tokens_are_those_left_out(patch: Patch) -> None:
    """The mask of the tokens of high entropy is inverted: all others are trained on."""

    def after(found: Any, trainer: Any, part: Any, work: Any) -> Any:
        least, masks = found
        return least, [
            {share: micro.batch.mask_BT & ~mask_BT for share, mask_BT in chosen.items()}
            for micro, chosen in zip(work, masks, strict=True)
        ]

    patch.after(f"{STEP}:PolicyTrainer._entropy_masks", after)


@fifth("loss", "clip", shape="clipped above and twice")
def ends_of_the_clip_exchanged(patch: Patch) -> None:
    """The two widths of the clip are given in the wrong order."""

    def make(original: Any) -> Any:
        def clipped(
            ratio_BT: Any, advantage_BT: Any, *, low: float, high: float, **more: Any
        ) -> Any:
            return original(ratio_BT, advantage_BT, low=high, high=low, **more)

        return clipped

    patch.wrap(f"{POLICY}:clipped_surrogate", make)


@fifth("loss", "weight", "detach", shape="cispo")
def weight_of_a_token_keeps_its_gradient(patch: Patch) -> None:
    """The ratio that weighs a token in CISPO is differentiated, too."""

    def after(loss_BT: Any, loss: Any, terms: Any, *_: Any) -> Any:
        return -terms.ratio_BT.clamp(max=loss._cap) * terms.advantage_BT * terms.logp_BT

    patch.after("rlvr_core.builtin.losses.policy_family:CISPO.surrogate", after)


@fifth("loss", "entropy", "bonus", "normali[sz]", "denominator", shape="entropy bonus")
def entropy_bonus_summed_over_rows(patch: Patch) -> None:
    """The entropy of the bonus is divided by the number of rows, not by that of tokens."""
    patch.after(
        f"{POLICY}:_mean_entropy",
        lambda mean, batch, normalizer: mean * (normalizer.tokens / max(1, normalizer.rows)),
    )
