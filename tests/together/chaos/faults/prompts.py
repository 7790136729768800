"""Prompts are not what problem, config and tokenizer make."""

from __future__ import annotations

from typing import Any

from tests.together.chaos.changes import END
from tests.together.chaos.registry import BOTH, Patch, fault

RENDERER = "rlvr_core.data.prompts:Renderer"


@fault("prompts", "preflight", backends=BOTH)
def begin_of_sequence_twice(patch: Patch) -> None:
    """Every prompt begins with two special tokens."""
    patch.after(f"{RENDERER}.render", lambda ids, *_: (END, END, *ids))


@fault("prompts", "preflight")
def chat_template_on_a_base_model(patch: Patch) -> None:
    """Prompts are wrapped in the turns of a chat template that the model never saw."""
    patch.after(
        f"{RENDERER}.text",
        lambda text, *_: f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n",
    )


@fault("prompts", "preflight")
def tokenizer_of_another_model(patch: Patch) -> None:
    """Prompts are encoded by another vocabulary: every id is 11 too large."""
    patch.after(f"{RENDERER}.encode", lambda ids, *_: tuple((i + 11) % 256 for i in ids))


@fault("prompts", "preflight")
def prompts_cut_from_the_left(patch: Patch) -> None:
    """Prompts keep their last eight tokens, and lose half of the number."""
    patch.after(f"{RENDERER}.render", lambda ids, *_: ids[-8:])


@fault("prompts", "preflight")
def prompts_in_lower_case(patch: Patch) -> None:
    """Prompts are put into lower case before they become tokens."""

    def make(original: Any) -> Any:
        return lambda renderer, text: original(renderer, text.lower())

    patch.wrap(f"{RENDERER}.encode", make)
