"""The identity of rendered prompts, on which a result depends beside its options."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rlvr_core.api import Problem
from rlvr_core.data.prompts import Renderer


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of a task as the model receives them.

    Attributes:
        chats: How many are rendered with the chat template.
        text: SHA-256 of their texts, in order.
        tokens: SHA-256 of their token ids, in order.
        longest: Tokens of the longest.
    """

    chats: int
    text: str
    tokens: str
    longest: int

    @classmethod
    def rendered(cls, renderer: Renderer, problems: Sequence[Problem]) -> Prompts:
        """Render the prompts.

        Raises:
            DataError: If one cannot be rendered.
        """
        ids = [renderer.render(problem) for problem in problems]
        return cls(
            sum(renderer.as_chat(renderer.present(problem)) for problem in problems),
            _digest(renderer.text(problem).encode() for problem in problems),
            _digest(repr(tokens).encode() for tokens in ids),
            max(map(len, ids)),
        )


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
