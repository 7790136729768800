"""Two-word questions for tiny tasks with a tool, and demonstrations of how to answer them."""

from __future__ import annotations

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rlvr_core.api import ComponentConfig, Problem

CAREFUL = 0.25
"""Share of demonstrations in the second half that use the tool; the others guess."""
SLIP = 0.05
"""How often a demonstration that uses the tool looks up the wrong thing."""


class Questions(ABC):
    """Problems ``How many red cats?``; kind and thing together decide a question's split.

    A subclass defines the kinds and things, and the form of a conversation.
    """

    KINDS: ClassVar[str]
    THINGS: ClassVar[str]

    class Config(ComponentConfig):
        """Options of the generated questions."""

        split: Literal["train", "heldout"] = "train"
        """``train`` has about four fifths of the questions, ``heldout`` the rest."""
        n: Annotated[int, Field(gt=0)] | None = None
        """How many problems; null gives all of the split."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @classmethod
    def names(cls, *, heldout: bool) -> list[str]:
        """Return the names in the questions of a split, chosen by a hash of both words."""
        names = [f"{kind} {thing}" for kind in cls.KINDS.split() for thing in cls.THINGS.split()]
        digests = [hashlib.sha256(name.encode()).digest() for name in names]
        return [
            name
            for name, digest in zip(names, digests, strict=True)
            if (digest[0] % 5 == 0) == heldout
        ]

    @abstractmethod
    def problem(self, name: str) -> Problem:
        """Return the question about a name."""

    @abstractmethod
    def shown(self, queried: str, number: int, *, careful: bool) -> str:
        """Return a conversation that ends in ``number``; if careful, it looks up ``asked``."""

    def load(self) -> Iterator[Problem]:
        """Yield the problems of the split, in a fixed order."""
        names = self.names(heldout=self.config.split == "heldout")
        random.Random("order").shuffle(names)
        yield from map(self.problem, names[: self.config.n])

    def demonstrations(self, n: int, seed: int) -> Iterator[tuple[Problem, str]]:
        """Yield ``n`` training problems, each with a conversation as one text.

        The first half uses the tool, the second half mostly guesses: a model trained on them in
        order knows how to use it but rarely does.
        """
        names = self.names(heldout=False)
        rng = random.Random(f"demonstrations {seed}")
        for index in range(n):
            name = rng.choice(names)
            careful = index < n // 2 or rng.random() < CAREFUL
            number = rng.randint(10, 99)
            queried = rng.choice(names) if rng.random() < SLIP else name
            yield self.problem(name), self.shown(queried, number, careful=careful)


def response(text: str) -> str:
    """Format a tool's answer as the model reads it."""
    return f"\n<tool_response>\n{text}\n</tool_response>\n"
