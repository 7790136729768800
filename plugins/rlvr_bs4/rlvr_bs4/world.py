"""One task's randomness: a seeded stream, and values drawn from it that are never drawn twice."""

from __future__ import annotations

import hashlib
import random
import string
from collections.abc import Callable, Sequence
from typing import TypeVar

from rlvr_bs4 import words
from rlvr_bs4.ask import Ask, Question

T = TypeVar("T")
_TAIL = string.ascii_lowercase + string.digits


def stream(*parts: object) -> random.Random:
    """A generator seeded by a hash of its name: equal in every process and Python version."""
    name = "\x1f".join(map(str, parts))
    return random.Random(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))


class World:
    """Draws the content of one task.

    Words, names, ids, classes and amounts are each unique within the task, so that what a question
    singles out is single by construction; the gate checks it again on the finished page.
    """

    def __init__(self, rng: random.Random, *, training: bool) -> None:
        self.rng = rng
        self.training = training
        self._seen: set[str] = set()

    # -- choosing

    def pick(self, options: Sequence[T]) -> T:
        """One of them."""
        return options[self.rng.randrange(len(options))]

    def sample(self, options: Sequence[T], n: int) -> list[T]:
        """Several of them, none twice."""
        return self.rng.sample(list(options), n)

    def shuffled(self, options: Sequence[T]) -> list[T]:
        """Return the items in a random order."""
        return self.rng.sample(list(options), len(options))

    def between(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return self.rng.randint(low, high)

    def chance(self, p: float) -> bool:
        """True with this probability."""
        return self.rng.random() < p

    def ask(self, ask: Ask, **slots: str) -> Question:
        """The question in one of its wordings."""
        return ask.fill(self.pick(ask.for_training if self.training else ask.wordings), **slots)

    # -- text

    def word(self) -> str:
        """A noun."""
        return self._fresh(lambda: self.pick(words.NOUNS))

    def phrase(self) -> str:
        """Adjective and noun: ``amber anchor``."""
        return self._fresh(lambda: f"{self.pick(words.ADJECTIVES)} {self.pick(words.NOUNS)}")

    def title(self) -> str:
        """A phrase in capitals, of two or three words."""
        return self._fresh(
            lambda: " ".join(
                word.capitalize()
                for word in (
                    *self.sample(words.ADJECTIVES, self.between(1, 2)),
                    self.pick(words.NOUNS),
                )
            )
        )

    def sentence(self) -> str:
        """A plain sentence."""
        return self._fresh(
            lambda: (
                f"The {self.pick(words.ADJECTIVES)} {self.pick(words.NOUNS)} "
                f"{self.pick(words.VERBS)} the {self.pick(words.ADJECTIVES)} "
                f"{self.pick(words.NOUNS)}."
            )
        )

    def person(self) -> str:
        """First and last name."""
        return self._fresh(lambda: f"{self.pick(words.FIRST_NAMES)} {self.pick(words.LAST_NAMES)}")

    def company(self) -> str:
        """A firm's name."""
        kinds = ("Ltd", "Group", "Works", "Supply", "Partners")
        return self._fresh(
            lambda: (
                f"{self.pick(words.ADJECTIVES).capitalize()} "
                f"{self.pick(words.NOUNS).capitalize()} {self.pick(kinds)}"
            )
        )

    def product(self) -> str:
        """An article's name with a model number."""
        return self._fresh(
            lambda: (
                f"{self.pick(words.ADJECTIVES).capitalize()} {self.pick(words.GOODS)} "
                f"{self.between(100, 999)}"
            )
        )

    def city(self) -> str:
        """A town."""
        return self._fresh(lambda: self.pick(words.CITIES))

    # -- identifiers

    def ident(self) -> str:
        """An id: ``harbor-k3f9x2``; it never tells that it is the one asked for."""
        return self._fresh(lambda: f"{self.pick(words.NOUNS)}-{self._tail(6)}")

    def klass(self) -> str:
        """A class: ``calm-harbor-27``."""
        return self._fresh(
            lambda: f"{self.pick(words.ADJECTIVES)}-{self.pick(words.NOUNS)}-{self.between(10, 99)}"
        )

    def lookalikes(self, name: str, n: int) -> list[str]:
        """Names that contain or nearly are this one."""
        ways: list[Callable[[], str]] = [
            lambda: f"{name}-{self.pick(words.NOUNS)}",
            lambda: f"{self.pick(words.NOUNS)}-{name}",
            lambda: f"{name}{self.between(1, 9)}",
            lambda: name[:-1] + self.pick(_TAIL),
            lambda: name[:-2] + name[-1] + name[-2],
        ]
        return [self._fresh(lambda: self.pick(ways)(), but=name) for _ in range(n)]

    def path(self) -> str:
        """A piece of a URL."""
        return self._fresh(lambda: f"{self.pick(words.ADJECTIVES)}-{self.pick(words.NOUNS)}")

    def code(self) -> str:
        """An article number: ``KX-4821``."""
        letters = string.ascii_uppercase
        return self._fresh(
            lambda: f"{self.pick(letters)}{self.pick(letters)}-{self.between(1000, 9999)}"
        )

    def secret(self) -> str:
        """A random token, to be planted as a canary."""
        return self._fresh(lambda: self._tail(20))

    def number(self, low: int, high: int) -> int:
        """A whole number not drawn before."""
        return int(self._fresh(lambda: str(self.between(low, high))))

    # -- money

    def price(self, low: int = 200, high: int = 49_999) -> str:
        """An amount between so many cents: ``$12.34``."""
        return self._fresh(lambda: dollars(self.between(low, high)))

    def _tail(self, n: int) -> str:
        return "".join(self.pick(_TAIL) for _ in range(n))

    def _fresh(self, draw: Callable[[], str], but: str = "") -> str:
        """Something not drawn before in this task."""
        for _ in range(1000):
            value = draw()
            if value not in self._seen and value != but:
                self._seen.add(value)
                return value
        raise RuntimeError("the vocabulary is used up")


def dollars(cents: int) -> str:
    """``1234`` as ``$12.34``."""
    sign = "-" if cents < 0 else ""
    return f"{sign}${abs(cents) // 100}.{abs(cents) % 100:02d}"


def cents(text: str) -> int:
    """``$12.34`` as ``1234``."""
    return round(float(text.replace("$", "").replace(",", "")) * 100)
