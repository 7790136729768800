"""The tokens of a conversation: each answer is sampled after all earlier messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlvr_core.api import GenerationRequest, Message, Problem
from rlvr_core.toolkit import printable

if TYPE_CHECKING:
    from rlvr_view.chat.loading import Talker

Emit = Callable[[str], None]

FULL = "the context is full"
CAPPED = "the cap on an answer is reached"
STOPPED = "stopped"
LONGEST_CHARACTER = 4
"""Bytes of a character in UTF-8 at most, each of which may be a token."""


class Conversation:
    """The conversation so far, as the tokens that the model saw and wrote.

    Earlier turns stay the tokens that they were, as in training. A model that takes raw text has
    no turns: each message is a prompt of its own.
    """

    def __init__(self, talker: Talker) -> None:
        self._talker = talker
        self._ids: tuple[int, ...] = ()
        self._reply: tuple[int, ...] = ()

    def reset(self) -> None:
        """Forget everything."""
        self._ids = self._reply = ()

    def say(self, text: str, emit: Emit) -> str:
        """Sample the answer to a message, and hand out its text as it comes.

        Args:
            text: The message.
            emit: Takes pieces of the answer, safe for a terminal.

        Returns:
            Why the answer ended before its end; empty if it did not.

        Raises:
            DataError: If the chat template refuses the message.
            KeyboardInterrupt: If it was interrupted; the tokens until then are kept.
        """
        prompt = self._prompt(text)
        room = self._talker.positions - len(prompt)
        if room <= 0:
            return f"{FULL}: {len(prompt)} tokens of {self._talker.positions}"
        seen = _Seen(self._talker, emit)
        params = replace(self._talker.params, max_tokens=min(room, self._talker.params.max_tokens))
        seed = int.from_bytes(os.urandom(8), "big") >> 1
        engine = self._talker.engine
        future = engine.submit(GenerationRequest("chat", prompt, params, (seed,)))
        handle = self._talker.model.register_forward_pre_hook(seen.look, with_kwargs=True)
        try:
            engine.drain()
            (answer,) = future.result()
            seen.finish(answer.token_ids)
        finally:
            handle.remove()
            self._ids, self._reply = prompt, tuple(seen.ids)
        if answer.finish_reason != "length":
            return ""
        return FULL if params.max_tokens == room else CAPPED

    def _prompt(self, text: str) -> tuple[int, ...]:
        renderer = self._talker.renderer
        problem = Problem("chat", text, "", {}, "chat")
        if not self._ids or not renderer.as_chat(problem):
            return renderer.render(problem)
        more = renderer.suffix_ids(problem, self._reply, (Message("user", text),))
        return (*self._ids, *self._reply, *more)


class _Seen:
    """The tokens of an answer, seen as the model is given each one to continue from."""

    def __init__(self, talker: Talker, emit: Emit) -> None:
        self._tokenizer, self._emit = talker.tokenizer, emit
        self._prompt_seen = False
        self._shown = ""
        self.ids: list[int] = []

    def look(self, _model: Any, _args: Any, given: dict[str, Any]) -> None:
        """Take the token that a forward pass is given; the first pass is given the prompt."""
        if self._prompt_seen:
            self.ids.append(int(given["input_ids"][0, -1]))
            self._show(self.ids, whole=False)
        self._prompt_seen = True

    def finish(self, ids: Sequence[int]) -> None:
        """Take the whole answer: the model is never given its last token."""
        self.ids = list(ids)
        self._show(self.ids, whole=True)

    def _show(self, ids: Sequence[int], *, whole: bool) -> None:
        text = str(self._tokenizer.decode(list(ids), skip_special_tokens=True))
        if not whole:  # the last character may be one of several tokens, some still to come
            text = text[: len(text) - _unfinished(text)]
        if text.startswith(self._shown) or whole:
            pairs = enumerate(zip(text, self._shown, strict=False))
            same = next((i for i, (a, b) in pairs if a != b), min(len(text), len(self._shown)))
            self._emit(printable(text[same:]))
            self._shown = text


def _unfinished(text: str) -> int:
    """Return how many characters at the end of a text may be the beginning of another one."""
    return min(len(text) - len(text.rstrip("\ufffd")), LONGEST_CHARACTER - 1)
