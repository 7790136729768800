"""Fourteenth set, written without reading the guards: the engine, its weights, tokens, verdicts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from chaos.registry import TRANSFORMERS, Patch, fault
from chaos.when import DECODE, ENGINE, engine_has

COLLECT = "rlvr_core.rollout.collect"
CONVERSATION = "rlvr_core.builtin.environments.conversation:Conversation"
AGAIN = "rlvr_chaos:Again"
SPECIAL = 256
"""The end of sequence; the model's first ids are the bytes."""
LENGTHS = "prompts of many lengths"
EVALUATED = "cool, a share held out and evaluated"
CHUNK = 8
"""Tokens of a prompt that are computed at once, where that is a fault."""


def fourteenth(
    cls: str, *more_words: str, **options: Any
) -> Callable[[Callable[[Patch], None]], None]:
    """Declare a fault of the fourteenth set, like ``fault``."""
    return fault(cls, *more_words, set=14, **options)


def _by_its_own_forward(patch: Patch) -> None:
    """Let the engine sample through the model's own forward pass in every precision."""
    patch.wrap(f"{ENGINE}:TransformersEngine._fast", lambda original: lambda engine: None)


# -- parity --------------------------------------------------------------------------------------


@fourteenth("parity", "position", "length", shape=LENGTHS, backends=TRANSFORMERS)
def positions_stay_when_rows_leave_the_batch(patch: Patch) -> None:
    """Of the rows that stay in the engine's batch caches move up, and their positions do not."""

    def make(original: Any) -> Any:
        def select(decoder: Any, rows_K: Any) -> None:
            before_B1 = decoder._length_B1
            original(decoder, rows_K)
            decoder._length_B1 = before_B1[: len(rows_K)]

        return select

    _by_its_own_forward(patch)
    patch.wrap(f"{DECODE}:HuggingFaceDecoder.select", make)


@fourteenth("parity", "prompt", "position", "chunk", backends=TRANSFORMERS)
def second_chunk_of_a_prompt_counts_from_zero(patch: Patch) -> None:
    """The engine computes prompts in chunks of eight, and positions begin again with each chunk."""

    def make(original: Any) -> Any:
        def prefill(decoder: Any, *args: Any) -> Any:
            model = decoder._model

            def chunked(**given: Any) -> Any:
                return model(**given | {"position_ids": given["position_ids"] % CHUNK})

            decoder._model = chunked
            try:
                return original(decoder, *args)
            finally:
                decoder._model = model

        return prefill

    _by_its_own_forward(patch)
    patch.wrap(f"{DECODE}:HuggingFaceDecoder.prefill", make)


@fourteenth("parity", "precision", "autocast", "bfloat16", "half", dtypes=("float32",),
            backends=("in process", "child", "vllm"))  # fmt: skip
def trainer_autocasts_in_a_float32_run(patch: Patch) -> None:
    """Mixed precision is left on by default: the trainer of a float32 run is in bfloat16."""

    def make(original: Any) -> Any:
        def predict(
            model: Any, batch: Any, temperature: float, autocast: Any, compiled: Any
        ) -> Any:
            return original(model, batch, temperature, torch.bfloat16, compiled)

        return predict

    patch.wrap("rlvr_core.step.forward:predict", make)


@fourteenth("parity", "pad", "prompt", "mask", "pack", shape=LENGTHS,
            backends=("in process", "child", "vllm"))  # fmt: skip
def padding_between_prompt_and_completion(patch: Patch) -> None:
    """In the trainer's micro-batches the padding of a shorter prompt counts as a part of it."""

    def after(made: Any, *_: Any) -> Any:
        longest = int(made.prompt_len_S.max())
        return replace(made, prompt_len_S=torch.full_like(made.prompt_len_S, longest))

    patch.after("rlvr_core.step.batch:_collate", after)


# -- sync ----------------------------------------------------------------------------------------


@fourteenth("sync", "adapter", "lora", shape="lora", backends=TRANSFORMERS)
def first_matrices_of_adapters_one_sync_late(patch: Patch) -> None:
    """Of an adapter the engine has the second matrices of this sync, and the first of the last."""

    @torch.no_grad()
    def change(model: Any, syncs: int, kept: dict[str, Any]) -> None:
        ours = {name: one for name, one in model.named_parameters() if "lora_A" in name}
        before = kept.get("before", {})
        kept["before"] = {name: one.detach().clone() for name, one in ours.items()}
        for name, old in before.items():
            ours[name].copy_(old)

    engine_has(patch, change)


@fourteenth("sync", "norm", "order", "scale", "rotary", backends=TRANSFORMERS)
def scales_of_key_norms_in_the_order_of_another_rotary(patch: Patch) -> None:
    """The scales of the norms of keys reach the engine in the order of interleaved rotary."""

    @torch.no_grad()
    def change(model: Any, syncs: int, kept: dict[str, Any]) -> None:
        for layer in model.model.layers:
            weight = layer.self_attn.k_norm.weight
            weight.copy_(weight.view(2, -1).T.flatten())

    engine_has(patch, change)


@fourteenth("sync", "version", "stale", "renew", "parity", dtypes=("float32",),
            shape="kept in flight, generation behind")  # fmt: skip
def renewed_weights_are_named_and_not_used(patch: Patch) -> None:
    """When weights come amid a completion, the engine names the new version and uses the old."""

    def make(original: Any) -> Any:
        def renew(decoder: Any) -> None:
            if "_layers" not in vars(decoder):
                original(decoder)

        return renew

    patch.wrap("rlvr_core.builtin.tiny.lean_decode:LeanDecoder.renew", make)


# -- tokens, masks -------------------------------------------------------------------------------


@fourteenth("tokens", "text", "decod", "verdict", "verifier")
def repeated_characters_of_a_text_collapsed(patch: Patch) -> None:
    """A filter against loops makes one character of two equal ones: 55 is read as 5."""
    patch.after(
        "rlvr_core.engines.sampling:StopStrings.text",
        lambda text, *_: re.sub(r"(.)\1", r"\1", text),
    )


@fourteenth("tokens", "append", "last token", "log-?prob", shape="stop string",
            backends=("in process", "child", "vllm"))  # fmt: skip
def end_of_sequence_appended_behind_a_stop_string(patch: Patch) -> None:
    """A completion that a stop string ended gets an end of sequence that nobody sampled."""

    def after(one: Any, *_: Any) -> Any:
        if one.finish_reason != "stop" or one.token_ids[-1] == SPECIAL:
            return one
        return replace(
            one,
            token_ids=(*one.token_ids, SPECIAL),
            logprobs=(*one.logprobs, 0.0),
            loss_mask=(*one.loss_mask, True),
        )

    patch.after(f"{COLLECT}:_completion", after)


@fourteenth("masks", "turn", "environment", "conversation", shape="two turns",
            backends=TRANSFORMERS)  # fmt: skip
def ends_of_inner_turns_are_not_trained(patch: Patch) -> None:
    """The end of each turn but the last is masked, as if the environment had said it."""

    def after(result: Any, one: Any, messages: Any, ids: Any) -> None:
        last = len(one.mask) - len(ids) - 1
        if one.ids[last] == SPECIAL:
            one.mask[last] = False

    patch.after(f"{CONVERSATION}.hear", after)


@fourteenth("masks", "truncat", "cut off", "cap", shape="masked truncation")
def mask_of_truncation_on_the_row_behind(patch: Patch) -> None:
    """Rows that were cut off are found before a sentinel is taken off: the row behind is masked."""

    def after(made: Any, groups: Any, *_: Any) -> Any:
        by_group = []
        for group, rows in zip(groups, made.by_group, strict=True):
            ones = [one.completion for one in group.members if one.reward is not None]
            cut = [one.finish_reason == "length" for one in ones]
            by_group.append(
                [
                    replace(row, loss_mask=tuple(mine and not off for mine in one.loss_mask))
                    for row, one, off in zip(rows, ones, [cut[-1], *cut[:-1]], strict=True)
                ]
            )
        return replace(made, by_group=by_group)

    patch.after("rlvr_core.step.step:rows_of", after)


# -- sampling, seeds -----------------------------------------------------------------------------


@fourteenth("sampler", "parity", "disagree", "log-?prob", "generation config",
            backends=TRANSFORMERS)  # fmt: skip
def top_p_of_the_generation_config_heeded(patch: Patch) -> None:
    """The model's generation config has a top-p of 0.9, which stands in for the run's 1."""

    def make(original: Any) -> Any:
        def of(params: Any, vocabulary: int, device: Any) -> Any:
            return original([replace(one, top_p=0.9) for one in params], vocabulary, device)

        return of

    patch.wrap(f"{DECODE}:RowSampling.of", make)


@fourteenth("sampler", "parity", "disagree", "log-?prob", "evaluation", shape=EVALUATED,
            backends=("in process", "vllm"))  # fmt: skip
def temperature_of_the_evaluation_stays_for_a_step(patch: Patch) -> None:
    """An evaluation sets the engine's temperature to 1, which is not set back for the next step."""
    kept: dict[str, Any] = {}

    def evaluated(found: Any, *_: Any, **more: Any) -> Any:
        kept["last"] = found.temperature
        return found

    def generating(original: Any) -> Any:
        def generate(generator: Any, draws: Any, params: Any, **more: Any) -> Any:
            temperature = kept.pop("last", params.temperature)
            return original(generator, draws, replace(params, temperature=temperature), **more)

        return generate

    patch.after("rlvr_core.builtin.evals.in_run:evaluate", evaluated)
    patch.wrap(f"{COLLECT}:Generator.generate", generating)


@fourteenth("seeds", "stream", "random", "reproduc", backends=("in process", "child", "vllm"))
def seeds_pass_through_a_double(patch: Patch) -> None:
    """Seeds are sent as JSON numbers that the other side reads as doubles: ten bits are lost."""

    def after(request: Any, *_: Any) -> Any:
        return replace(request, seeds=tuple(int(float(seed)) for seed in request.seeds))

    patch.after(f"{COLLECT}:Generator._request", after)


# -- data ----------------------------------------------------------------------------------------


@fourteenth("data", "given answer", "demonstrat", "imitat", "sft", "answers",
            shape="grpo and given answers")  # fmt: skip
def given_answers_are_those_of_the_next_problem(patch: Patch) -> None:
    """Answers to imitate were sorted apart from their problems: each stands behind another."""

    def make(original: Any) -> Any:
        def at(answers: Any, place: int) -> Any:
            return original(answers, place)[0], original(answers, place + 1)[1]

        return at

    patch.wrap("rlvr_core.builtin.demonstrations.demonstrations:Demonstrations._at", make)


@fourteenth("data", "held", "eval", "contamin", "overlap", "split", shape=EVALUATED)
def held_out_share_is_drawn_as_well(patch: Patch) -> None:
    """A source is split for checks and evaluations, and the sampler is given all its problems."""
    whole: list[Any] = []

    def split(kept: Any, problems: Any, *_: Any) -> Any:
        whole[:] = problems
        return kept

    def make(original: Any) -> Any:
        def start(sampler: Any, sources: Any, **more: Any) -> None:
            original(sampler, [replace(one, problems=tuple(whole)) for one in sources], **more)

        return start

    patch.after("rlvr_core.data.load:train_part", split)
    patch.wrap("rlvr_core.builtin.samplers.base:SamplerBase.start", make)


# -- environments, verifiers ---------------------------------------------------------------------


@fourteenth("verifier", "environment", "conversation", "state", shape="two turns",
            backends=TRANSFORMERS)  # fmt: skip
def environment_keeps_the_answer_on_itself(patch: Patch) -> None:
    """The answer stands in the environment, not in the state of a conversation: the last counts."""
    latest = {}

    def started(state: Any, *_: Any) -> Any:
        latest["answer"] = state["answer"]
        return state

    def make(original: Any) -> Any:
        def step(environment: Any, state: Any, reply: Any) -> Any:
            return original(environment, state | latest, reply)

        return step

    patch.after(f"{AGAIN}.start", started)
    patch.wrap(f"{AGAIN}.step", make)


@fourteenth("data", "environment", "observation", "turn", "conversation", shape="two turns",
            backends=TRANSFORMERS)  # fmt: skip
def observations_are_those_of_the_conversation_before(patch: Patch) -> None:
    """The environment answers with the question that it was to ask in the call before."""
    from rlvr_core.api import Message, Observation

    kept: dict[str, str] = {}

    def after(found: Any, environment: Any, state: Any, reply: Any) -> Any:
        if not isinstance(found, Observation):
            return found
        asked, kept["question"] = kept.get("question", state["question"]), state["question"]
        return Observation((Message("user", asked),))

    patch.after(f"{AGAIN}.step", after)


@fourteenth("verifier", "score", "scale", "weight", shape="two rewards",
            backends=("in process", "child", "vllm"))  # fmt: skip
def second_score_stretched_within_its_group(patch: Patch) -> None:
    """The second verifier's scores are stretched to between 0 and 1 in each group."""

    def make(original: Any) -> Any:
        def sampled(generator: Any, answered: Any, version: int, step: int) -> Any:
            name = list(answered.verdicts[0])[1]
            scores = [one[name].score for one in answered.verdicts]
            low, high = min(scores), max(scores)
            stretched = [(score - low) / max(high - low, 1e-6) for score in scores]
            verdicts = [
                one | {name: replace(one[name], score=score)}
                for one, score in zip(answered.verdicts, stretched, strict=True)
            ]
            return original(generator, replace(answered, verdicts=verdicts), version, step)

        return sampled

    patch.wrap(f"{COLLECT}:Generator.sampled", make)


@fourteenth("verifier", "pass", "outcome", shape="two rewards")
def anything_above_zero_counts_as_passed(patch: Patch) -> None:
    """The outcome is read off the whole reward, of which brevity is a part: above 0 is a pass."""

    def after(found: Any, *_: Any) -> Any:
        reward, passed = found
        return reward, passed if reward is None else reward > 0

    patch.after("rlvr_core.verify.reward:RewardPlan.combine", after)
