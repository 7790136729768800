"""Held-out problems in training data: equal ids, equal whole prompts, and long shared n-grams."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from rlvr_core.api import Json, Message, Problem

EXAMPLES = 10
"""Number of problems named from a longer list."""
WORDS = 13
"""Words of an n-gram, as GPT-3 and its successors compare held-out data with training data."""
LEAST = 10
"""Fewest n-grams of a prompt by which it is compared: 22 words that are no template."""
SHARE = 0.8
"""Share of these n-grams that must be in one training prompt."""
TEMPLATE = 5
"""Number of training prompts from which on an n-gram is the template of many problems."""

_WORD = re.compile(r"\w+|[^\w\s]")


def normalise(text: str) -> str:
    """Return a text without differences of case, spacing and Unicode variants."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def question(prompt: str | Sequence[Message]) -> str:
    """Return a prompt's normalised text; of a conversation, all but the system message."""
    if isinstance(prompt, str):
        return normalise(prompt)
    return normalise("\n".join(turn.content for turn in prompt if turn.role != "system"))


def ngrams(text: str) -> set[tuple[str, ...]]:
    """Return the n-grams of a normalised text's words and signs."""
    words = _WORD.findall(text)
    return set(zip(*(words[start:] for start in range(WORDS)), strict=False))


@dataclass(frozen=True, slots=True)
class Match:
    """A held-out problem, the training problem it matches, and what they have in common.

    Attributes:
        id: The held-out problem.
        trained: The training problem.
        by: ``id``; ``text``: the same whole prompt; ``ngrams``: most of its 13-grams.
    """

    id: str
    trained: str
    by: Literal["id", "text", "ngrams"]

    @property
    def text(self) -> str:
        """Return the match in words."""
        if self.by == "id":
            return self.id
        part = "" if self.by == "text" else "most of "
        return f"{self.id} ({part}the prompt of {self.trained})"


@dataclass(frozen=True, slots=True)
class Contamination:
    """Contamination of one task.

    Attributes:
        n: Number of problems of the task.
        matches: The problems that were trained on.
        sources: Training data that was searched.
        unknown: Training data that could not be searched, and why.
    """

    n: int
    matches: tuple[Match, ...]
    sources: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def share(self) -> float:
        """Share of the task's problems that were trained on."""
        return len(self.matches) / self.n if self.n else 0.0

    @property
    def examples(self) -> str:
        """Return some of the problems that were trained on, in words."""
        more = len(self.matches) - EXAMPLES
        shown = ", ".join(match.text for match in self.matches[:EXAMPLES])
        return f"{shown} and {more} more" if more > 0 else shown

    def data(self) -> dict[str, Json]:
        """Return the result as JSON."""
        result: dict[str, Json] = {"against": list(self.sources), "not_checked": list(self.unknown)}
        if self.sources:
            kinds = Counter(match.by for match in self.matches)
            result |= {
                "n": len(self.matches),
                "share": self.share,
                **{f"by_{kind}": kinds[kind] for kind in ("id", "text", "ngrams")},
                "examples": [asdict(match) for match in self.matches[:EXAMPLES]],
            }
        return result

    def lines(self) -> list[str]:
        """Return the result as lines of text."""
        lines = [f"contamination not checked: {why}" for why in self.unknown]
        where = ", ".join(self.sources)
        if self.matches:
            count = f"{len(self.matches)} of {self.n} problems"
            lines.append(f"warning: contamination: {count} are in {where}: {self.examples}")
        elif self.sources:
            lines.append(f"contamination: none of {self.n} problems is in {where}")
        return lines


@dataclass(slots=True)
class Trained:
    """The data that a model was trained on.

    Attributes:
        sources: The sources of this data.
        unknown: Reasons why some of it is unknown.
    """

    sources: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)
    _texts: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, rows: Iterable[tuple[str, str | Sequence[Message] | None]]) -> None:
        """Add a data set.

        Args:
            name: Name of the data set.
            rows: Pairs of id (or another name, if there is none) and prompt.
        """
        if name not in self.sources:
            self.sources.append(name)
        for id_, prompt in rows:
            self._ids.add(id_)
            text = "" if prompt is None else question(prompt)
            if text:
                self._texts.setdefault(text, id_)

    def add_problems(self, name: str, problems: Iterable[Problem]) -> None:
        """Add the problems of a data set."""
        self.add(name, ((problem.id, problem.prompt) for problem in problems))

    def search(self, problems: Sequence[Problem]) -> Contamination:
        """Find the problems that were trained on."""
        matches: list[Match] = []
        others: list[tuple[str, str]] = []
        for problem in problems:
            text = question(problem.prompt)
            if problem.id in self._ids:
                matches.append(Match(problem.id, problem.id, "id"))
            elif text in self._texts:
                matches.append(Match(problem.id, self._texts[text], "text"))
            else:
                others.append((problem.id, text))
        matches += self._by_ngrams(others)
        return Contamination(
            len(problems), tuple(matches), tuple(self.sources), tuple(self.unknown)
        )

    def _by_ngrams(self, held_out: Sequence[tuple[str, str]]) -> list[Match]:
        """Find the prompts of which one training prompt holds most, template text left out."""
        grams_of = [ngrams(text) for _, text in held_out]
        wanted = set().union(*grams_of)
        holders: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for text, id_ in self._texts.items() if wanted else ():
            for gram in ngrams(text) & wanted:
                holders[gram].append(id_)
        matches = []
        for (id_, _), grams in zip(held_out, grams_of, strict=True):
            telling = [gram for gram in grams if len(holders.get(gram, ())) < TEMPLATE]
            shared = Counter(holder for gram in telling for holder in holders.get(gram, ()))
            if shared and len(telling) >= LEAST:
                trained, count = max(shared.items(), key=lambda item: (item[1], item[0]))
                if count >= SHARE * len(telling):
                    matches.append(Match(id_, trained, "ngrams"))
        return matches
