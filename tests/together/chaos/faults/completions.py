"""Text, end and version of completions do not follow from their tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.together.chaos.changes import DECODE, ENGINE, completions
from tests.together.chaos.registry import BOTH, Patch, fault


@fault("completions", backends=BOTH)
def another_token_ends_completions(patch: Patch) -> None:
    """The engine takes another token for the end of sequence: every completion is cut off."""
    patch.after(f"{ENGINE}:eos_ids", lambda *_: (255,))


@fault("completions")
def completions_end_at_a_digit(patch: Patch) -> None:
    """The engine also stops at a digit: answers end in the middle of a number."""
    patch.after(f"{ENGINE}:eos_ids", lambda ids, *_: (*ids, 20))


@fault("completions")
def sampling_goes_on_after_the_end(patch: Patch) -> None:
    """A completion ends two tokens after its end-of-sequence token."""

    def make(original: Any) -> Any:
        def reached(ends: Any, token_K: Any, open_K: Any, alive_K: Any, token_TB: Any) -> Any:
            if len(token_TB) < 3:
                return open_K & False
            return original(ends, token_TB[-3, alive_K], open_K, alive_K, token_TB)

        return reached

    patch.wrap(f"{DECODE}:_Ends.reached", make)


@fault("completions", "gold", "canaries", backends=BOTH)
def text_loses_its_last_characters(patch: Patch) -> None:
    """The text that is judged lacks the last two characters of the completion."""
    completions(patch, lambda one: replace(one, text=one.text[:-2]))


@fault("completions", shape="masked truncation")
def what_was_cut_off_is_said_to_have_stopped(patch: Patch) -> None:
    """Completions that were cut off say that they have stopped, so that none is masked."""
    completions(patch, lambda one: replace(one, finish_reason="stop"))


@fault("completions", "sync")
def version_label_stays(patch: Patch) -> None:
    """The engine labels everything it samples with version 0."""
    completions(patch, lambda one: replace(one, version=0))


@fault("completions", "preflight", config={"sampling": {"max_tokens": 4}}, backends=BOTH)
def cap_far_too_small(patch: Patch) -> None:
    """Completions are cut off after four tokens."""
    patch.hit()


@fault("completions", "preflight", config={"sampling": {"stop": ["["]}})
def stop_string_in_the_answer(patch: Patch) -> None:
    """A stop string ends every answer before its number."""
    patch.hit()
