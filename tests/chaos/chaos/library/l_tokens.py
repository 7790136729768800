"""Tokenizer, template, ends and limits do not fit the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chaos.registry import EVERYWHERE, Patch, declare, fault

ENGINE = "rlvr_core.engines.transformers"


@fault("tokens", "truncat", backends=("in process", "child"))
def wrong_eos(patch: Patch) -> None:
    """The engine takes another token for the end of sequence: every completion is cut off."""
    patch.after(f"{ENGINE}:eos_ids", lambda *_: (255,))


@fault("tokens", "truncat", "short", "length")
def eos_is_a_digit(patch: Patch) -> None:
    """The engine also stops at a digit: answers end in the middle of a number."""
    patch.after(f"{ENGINE}:eos_ids", lambda ids, *_: (*ids, 20))


@fault("tokens", "twice", "double", backends=("in process", "child"))
def bos_twice(patch: Patch) -> None:
    """Every prompt begins with two special tokens."""
    patch.after("rlvr_core.data.prompts:Renderer.render", lambda ids, *_: (256, 256, *ids))


@fault("tokens", "prompt", "special")
def eos_in_prompt(patch: Patch) -> None:
    """Every prompt ends with the end of sequence."""
    patch.after("rlvr_core.data.prompts:Renderer.render", lambda ids, *_: (*ids, 256))


@fault("tokens", "chat", "prompt")
def template_on_a_base_model(patch: Patch) -> None:
    """Prompts are wrapped in the turns of a chat template that the model never saw."""
    patch.after(
        "rlvr_core.data.prompts:Renderer.text",
        lambda text, *_: f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n",
    )


@fault("tokens", "decod", "text", "round", backends=EVERYWHERE)
def text_of_other_tokens(patch: Patch) -> None:
    """The text that is judged lacks the last two tokens of the completion."""

    def make(original: Any) -> Any:
        def completion(prompt_ids: Any, generation: Any) -> Any:
            return original(prompt_ids, replace(generation, text=generation.text[:-2]))

        return completion

    patch.wrap("rlvr_core.rollout.collect:_completion", make)


@fault("tokens", "special", "text", "decod")
def text_with_special_tokens(patch: Patch) -> None:
    """The text that is judged ends with the name of the end of sequence, three times."""

    def make(original: Any) -> Any:
        def completion(prompt_ids: Any, generation: Any) -> Any:
            return original(prompt_ids, replace(generation, text=generation.text + " [0]<eos>"))

        return completion

    patch.wrap("rlvr_core.rollout.collect:_completion", make)


@fault("tokens", "decod", "text", "prompt", backends=EVERYWHERE)
def text_with_the_prompt(patch: Patch) -> None:
    """The text that is judged begins with a piece of the prompt's answer frame."""

    def make(original: Any) -> Any:
        def completion(prompt_ids: Any, generation: Any) -> Any:
            return original(prompt_ids, replace(generation, text="[1]" + generation.text))

        return completion

    patch.wrap("rlvr_core.rollout.collect:_completion", make)


@fault("tokens", "vocabular", "round", "decod")
def tokenizer_of_another_model(patch: Patch) -> None:
    """Prompts are encoded by another vocabulary: every id is 11 too large."""
    patch.after(
        "rlvr_core.data.prompts:Renderer.encode",
        lambda ids, *_: tuple((i + 11) % 256 for i in ids),
    )


@fault("tokens", "finish", "truncat")
def everything_ended_by_length(patch: Patch) -> None:
    """The engine says of every completion that it was cut off."""

    def make(original: Any) -> Any:
        def completion(prompt_ids: Any, generation: Any) -> Any:
            return original(prompt_ids, replace(generation, finish_reason="length"))

        return completion

    patch.wrap("rlvr_core.rollout.collect:_completion", make)


declare(
    "tokens",
    "max-tokens-too-small",
    "Completions are cut off after four tokens.",
    "max_tokens",
    "truncat",
    config={"sampling": {"max_tokens": 4}},
    backends=("in process", "child", "vllm"),
)
declare(
    "tokens",
    "stop-string-in-the-answer",
    "A stop string ends every answer before its number.",
    "extract",
    config={"sampling": {"stop": ["["]}},
)
declare(
    "tokens",
    "prefix-that-confuses",
    "The prompt's prefix is the end of another answer.",
    "prefix",
    "prompt",
    "extract",
    config={"data": {"prompt": {"prefix": " [1] or ["}}},
)
declare(
    "tokens",
    "system-text-for-a-base-model",
    "A system text stands before prompts of a base model.",
    "system",
    "prompt",
    "extract",
    config={"data": {"prompt": {"system": "You are a helpful assistant. Think step by step."}}},
)
