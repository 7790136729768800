"""Tenth set, written without reading the guards: parity, sync, turns, seeds, sampling, data."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from chaos.registry import TRANSFORMERS, Patch, fault
from chaos.when import DECODE, ENGINE, engine_has

COLLECT = "rlvr_core.rollout.collect"
BRANCH = "rlvr_core.builtin.environments.conversation:Branch"
SAMPLER = "rlvr_core.builtin.samplers.base:SamplerBase"
SPECIAL = 256
"""The end of sequence; the model's first ids are the bytes."""


def tenth(cls: str, *more_words: str, **options: Any) -> Any:
    """Declare a fault of the tenth set, like ``fault``."""
    return fault(cls, *more_words, set=10, **options)


def _by_its_own_forward(patch: Patch) -> None:
    """Let the engine sample through the model's own forward pass in every precision."""
    patch.wrap(f"{ENGINE}:TransformersEngine._fast", lambda original: lambda engine: None)


# -- parity --------------------------------------------------------------------------------------


@tenth("parity", "vocab", "head", "logit", backends=("in process", "child", "vllm"))
def padded_vocabulary_counts_in_the_softmax(patch: Patch) -> None:
    """The trainer's head is padded to a multiple of 128 rows, whose logits of 0 are summed, too."""

    def make(original: Any) -> Any:
        def logprobs(hidden_NH: Any, weight_VH: Any, target_N: Any, **more: Any) -> Any:
            wide_VH = F.pad(weight_VH, (0, 0, 0, -len(weight_VH) % 128))
            return original(hidden_NH, wide_VH, target_N, **more)

        return logprobs

    patch.wrap("rlvr_core.step.forward:fused_logprobs", make)


@tenth(
    "parity", "prompt", "pad", "position", shape="prompts of many lengths", backends=TRANSFORMERS
)
def engine_attends_to_the_padding(patch: Patch) -> None:
    """Shorter prompts of a batch are padded on the left, and nobody masks what they begin with."""

    def make(original: Any) -> Any:
        def prefill(decoder: Any, prompts: Any, counts: Any, most: int) -> Any:
            width = max(map(len, prompts))
            seen = [(0,) * (width - len(prompt)) + tuple(prompt) for prompt in prompts]
            return original(decoder, seen, counts, most)

        return prefill

    _by_its_own_forward(patch)
    patch.wrap(f"{DECODE}:HuggingFaceDecoder.prefill", make)


@tenth("parity", "rotary", "position", "buffer", "precision", backends=TRANSFORMERS)
def engines_rotary_frequencies_in_half_precision(patch: Patch) -> None:
    """The engine's copy was cast to bfloat16 with its buffers: the rotary frequencies are round."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        for name, buffer in model.named_buffers():
            if "inv_freq" in name:
                buffer.copy_(buffer.bfloat16().to(buffer.dtype))

    _by_its_own_forward(patch)
    engine_has(patch, change)


@tenth("parity", "prompt", "turn", "conversation", "render", "history", shape="two turns",
       backends=TRANSFORMERS)  # fmt: skip
def history_rendered_again_without_its_ends(patch: Patch) -> None:
    """The second turn's prompt is the text so far, encoded again: the first turn has no end."""

    def make(original: Any) -> Any:
        def submit(engine: Any, request: Any) -> Any:
            ids = tuple(token for token in request.prompt_ids if token != SPECIAL)
            return original(engine, replace(request, prompt_ids=ids))

        return submit

    patch.wrap(f"{ENGINE}:TransformersEngine.submit", make)


# -- sync ----------------------------------------------------------------------------------------


@tenth("sync", "row", "embedding", "head", "special", backends=TRANSFORMERS)
def rows_of_special_tokens_never_synced(patch: Patch) -> None:
    """The engine takes as many rows of the embedding as there are bytes: the end's stays behind."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        rows = model.get_input_embeddings().weight[SPECIAL:]
        old = kept.setdefault("rows", rows.detach().clone())
        with torch.no_grad():
            rows.copy_(old)

    engine_has(patch, change)


@tenth("sync", "version", "batch", shape="small waves", backends=TRANSFORMERS)
def first_wave_sampled_by_the_weights_before(patch: Patch) -> None:
    """New weights are loaded while the first batch of requests runs on with the old ones."""
    kept: dict[str, Any] = {}

    def loading(original: Any) -> Any:
        def load(engine: Any, version: int, source: Any) -> None:
            original(engine, version, source)
            kept["old"] = kept.get("now")
            kept["now"] = copy.deepcopy(engine._model)

        return load

    def sampling(original: Any) -> Any:
        def sample(engine: Any, wave: Any, deadline: Any) -> None:
            new, old = engine._model, kept.pop("old", None)
            engine._model = new if old is None else old
            try:
                original(engine, wave, deadline)
            finally:
                engine._model = new

        return sample

    patch.wrap(f"{ENGINE}:TransformersEngine.load_weights", loading)
    patch.wrap(f"{ENGINE}:TransformersEngine._sample", sampling)


# -- turns, tokens, masks ------------------------------------------------------------------------


@tenth("masks", "environment", "observation", "turn", shape="two turns", backends=TRANSFORMERS)
def observations_are_trained_on(patch: Patch) -> None:
    """What the environment says in a conversation is trained on as if the model had said it."""

    def after(mask: Any, one: Any, elsewhere: Any) -> Any:
        return (True,) * len(mask)

    patch.after(f"{BRANCH}.sampled", after)


@tenth("masks", "turn", "conversation", shape="two turns", backends=TRANSFORMERS)
def only_the_first_turn_is_trained(patch: Patch) -> None:
    """Of a conversation the first turn is trained on; later ones count as history."""

    def after(mask: Any, one: Any, elsewhere: Any) -> Any:
        first = next((turn.n_tokens for turn in one.turns if turn.role == "assistant"), 0)
        return tuple(own and place < first for place, own in enumerate(mask))

    patch.after(f"{BRANCH}.sampled", after)


@tenth("tokens", "given answer", "demonstrat", "imitat", "sft", shape="grpo and given answers")
def given_answers_lack_their_end(patch: Patch) -> None:
    """Answers to imitate are encoded without the end of sequence, and teach the model to go on."""

    def after(row: Any, *_: Any) -> Any:
        return replace(
            row,
            token_ids=row.token_ids[:-1],
            loss_mask=row.loss_mask[:-1],
            logprobs=row.logprobs[:-1],
        )

    patch.after("rlvr_core.builtin.demonstrations.demonstrations:Demonstrations._row", after)


# -- seeds, sampling -----------------------------------------------------------------------------


@tenth("seeds", "overlap", "stream", "independent", "random", backends=TRANSFORMERS)
def streams_of_a_group_overlap(patch: Patch) -> None:
    """A group has one stream of random numbers; each row begins one place further in it."""
    shifted: dict[int, tuple[int, int]] = {}

    def decoding(original: Any) -> Any:
        def decode(decoder: Any, prompts: Any, plans: Any, **more: Any) -> Any:
            shifted.clear()
            changed = []
            for group in plans:
                first = group[0].seed
                rows = [replace(plan, seed=first ^ (k << 48)) for k, plan in enumerate(group)]
                shifted.update({row.seed: (first, k) for k, row in enumerate(rows)})
                changed.append(rows)
            return original(decoder, prompts, changed, **more)

        return decode

    def drawing(original: Any) -> Any:
        def uniforms(seeds: Any, start: int, count: int) -> Any:
            places = [shifted.get(seed, (seed, 0)) for seed in seeds]
            return torch.cat([original([seed], start + k, count) for seed, k in places], 1)

        return uniforms

    patch.wrap(f"{ENGINE}:decode", decoding)
    patch.wrap(f"{DECODE}:uniforms", drawing)


@tenth("sampler", "renormal", "parity", "log-prob", shape="top p", backends=TRANSFORMERS)
def log_probs_of_before_top_p(patch: Patch) -> None:
    """The engine samples by top-p as it is asked to, and reports log-probs of all tokens."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            all_BV = logits_BV.float().clone()
            if rows.temperature_B1 is not None:
                all_BV = all_BV / rows.temperature_B1
            token_B, logp_B = original(logits_BV, rows, uniform_B)
            if rows.top_p_B1 is None:
                return token_B, logp_B
            return token_B, all_BV.log_softmax(-1).gather(-1, token_B[:, None])[:, 0]

        return sample

    patch.wrap(f"{DECODE}:sample", make)


@tenth("tokens", "end", shape="stop strings of the data", backends=("in process", "child", "vllm"))
def stop_strings_of_a_problem_ignored(patch: Patch) -> None:
    """Requests have the stop strings of the config alone, not those of their problem."""

    def after(request: Any, generator: Any, draw: Any, prompt: Any, params: Any, *_: Any) -> Any:
        return replace(request, params=replace(request.params, stop=tuple(params.stop)))

    patch.after(f"{COLLECT}:Generator._request", after)


# -- draws ---------------------------------------------------------------------------------------


@tenth("data", "group", "draw", "refill", "replace", shape="pairs")
def dropped_groups_are_not_replaced(patch: Patch) -> None:
    """Groups of equal rewards are dropped, and nothing is drawn in their place."""
    patch.after(f"{SAMPLER}.refill", lambda more, *_: 0)


@tenth("data", "group", "drop", "kept", "pass rate", "variance")
def uneven_groups_dropped_as_equal(patch: Patch) -> None:
    """A filter is left on: groups that pass in less than 3 of 10 or more than 7 are dropped."""
    from rlvr_core.api import Drop, Keep

    def after(decision: Any, sampler: Any, group: Any) -> Any:
        passed = [member.passed for member in group.members]
        rate = passed.count(True) / max(1, len(passed))
        if isinstance(decision, Keep) and not 0.3 <= rate <= 0.7:
            return Drop("zero_variance", "equal")
        return decision

    patch.after(f"{SAMPLER}.observe", after)


@tenth("data", "draw", "sampler", "outcome", "pass rate", shape="difficulty, few problems")
def outcomes_credited_to_the_problem_after(patch: Patch) -> None:
    """The sampler counts passes and failures of each group for the next one's problem."""

    def make(original: Any) -> Any:
        def update(sampler: Any, outcomes: Any) -> None:
            before = [outcomes[-1], *outcomes[:-1]] if outcomes else []
            moved = [
                replace(one, successes=other.successes, failures=other.failures)
                for one, other in zip(outcomes, before, strict=True)
            ]
            original(sampler, moved)

        return update

    patch.wrap("rlvr_core.builtin.samplers.difficulty:Difficulty.update", make)


# -- rewards, verifier ---------------------------------------------------------------------------


@tenth("verifier", "sum", "score")
def three_tenths_of_a_reward_leak_into_the_next(patch: Patch) -> None:
    """What a reward is summed in is not cleared: three tenths of the one before are in it."""
    last = [0.0]

    def after(found: Any, *_: Any) -> Any:
        reward, passed = found
        if reward is None:
            return found
        leaked, last[0] = reward + 0.3 * last[0], reward
        return leaked, passed

    patch.after("rlvr_core.verify.reward:RewardPlan.combine", after)


@tenth("verifier", "score", "penalt", backends=("in process", "child", "vllm"))
def unreadable_answers_cost_one(patch: Patch) -> None:
    """A penalty of another recipe is left on: a text without one number in brackets scores -1."""
    from rlvr_core.api import Verdict

    def after(verdict: Any, *_: Any) -> Any:
        if verdict.parts.get("extracted") == 0.0:
            return Verdict(-1.0, passed=False, parts=verdict.parts)
        return verdict

    patch.after("rlvr_chaos:Brackets.verify", after)
