"""Contamination guard: detects held-out problems in the training data, by id or by question."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rlvr_core.api import Complaint, ConfigError, Json, Message, Problem

EXAMPLES = 10
"""Number of problems named from a longer list."""
BODY_WORDS = 8
"""Fewest words a text must keep when its template is removed: shorter ones may match by chance."""

_OPERATORS = "-*/%.()[]{}"
"""Punctuation that may be arithmetic; the expressions below decide where it is."""


class _Table(dict[int, int | str | None]):
    """Translation table for ``str.translate``, filled in as characters are first met."""

    def __missing__(self, code: int) -> int | str | None:
        character = chr(code)
        category = unicodedata.category(character)
        becomes: int | str | None = code
        if category == "Pd" or character == "\N{MINUS SIGN}":
            becomes = "-"
        elif category == "Cf":
            becomes = None
        elif character in "$`" or (category[0] == "P" and character not in _OPERATORS):
            becomes = " "
        self[code] = becomes
        return becomes


_TABLE = _Table()
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_ALONE = re.compile(r"(?<=[^\W\d_] )[.,;:!?](?!\S)")
_TIGHT = re.compile(r" *([-+*/%^=<>()\[\]{}]) *")
_TEXTUAL = re.compile(
    r"""
    (?=[-.*/%()\[\]{}])(?:
      (?<!\d)\. | \.(?!\d)                             # no decimal point
    | -(?![\d(\[{.]|[^\W\d_](?![^\W\d_]))              # no minus: no term comes after it
    | (?<![\d)\]}])[*/](?![\d(\[{]|[^\W\d_](?![^\W\d_])) # no factor on either side
    | (?<!\d)%                                         # no percentage
    | (?<![-+*/^=<>])[(\[{] | [)\]}](?![-+*/^=<>])     # brackets that do not touch an operator
    )""",
    re.VERBOSE,
)


def normalise(text: str) -> str:
    """Normalise a text: remove case, spacing, punctuation and Unicode variants.

    Compatibility forms are folded (NFKC). Punctuation is removed unless it is arithmetic: the minus
    of ``5 - 3``, the point of ``1.5``, the brackets of ``2*(3+4)``; otherwise different sums would
    match. A punctuation mark that stands alone counts as a word: "End with !" is not "End with ?".
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    text = _ALONE.sub(_spelt, _THOUSANDS.sub("", text.casefold())).translate(_TABLE)
    text = _TIGHT.sub(r"\1", " ".join(text.split()))
    return " ".join(_TEXTUAL.sub(" ", text).split())


def _spelt(mark: re.Match[str]) -> str:
    return f"u{ord(mark[0]):04x}"


def asked(prompt: str | Sequence[Message]) -> str:
    """Return a prompt's question, normalised; for a conversation, all but the system message."""
    if isinstance(prompt, str):
        return normalise(prompt)
    return normalise("\n".join(turn.content for turn in prompt if turn.role != "system"))


def bodies(texts: Sequence[str]) -> list[str | None]:
    """Return each text without the words that all texts begin and end with.

    These words are the data set's template ("Question: … Answer:"), including worked examples;
    without them a problem is recognised in another template. The result is None for a text of which
    too little is left.
    """
    distinct = sorted(set(texts))
    if len(distinct) < 2:
        return [None] * len(texts)
    turned = sorted(text[::-1] for text in distinct)
    # in sorted order, the first and last text share exactly what all texts share
    start = _shared_words(distinct[0], distinct[-1])
    end = _shared_words(turned[0], turned[-1])
    found = [text[start : len(text) - end].strip() for text in texts]
    return [body if body.count(" ") >= BODY_WORDS - 1 else None for body in found]


def _shared_words(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts, cut to whole words."""
    pairs = enumerate(zip(one, other, strict=False))
    same = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    return one.rfind(" ", 0, same) + 1


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
        names, texts = [], []
        for id_, prompt in rows:
            self._ids.add(id_)
            text = "" if prompt is None else asked(prompt)
            if text:
                names.append(id_)
                texts.append(text)
        for text, body, id_ in zip(texts, bodies(texts), names, strict=True):
            self._texts.setdefault(text, id_)
            if body is not None:
                self._texts.setdefault(body, id_)

    def add_problems(self, name: str, problems: Iterable[Problem]) -> None:
        """Add the problems of a data set."""
        self.add(name, ((problem.id, problem.prompt) for problem in problems))

    def search(self, problems: Sequence[Problem]) -> Contamination:
        """Find the problems that were trained on."""
        texts = [asked(problem.prompt) for problem in problems]
        matches = []
        for problem, text, body in zip(problems, texts, bodies(texts), strict=True):
            twin = self._texts.get(text) or self._texts.get(body or "")
            if problem.id in self._ids:
                matches.append(Match(problem.id, problem.id, "id"))
            elif twin is not None:
                matches.append(Match(problem.id, twin, "text"))
        return Contamination(
            len(problems), tuple(matches), tuple(self.sources), tuple(self.unknown)
        )


@dataclass(frozen=True, slots=True)
class Match:
    """A held-out problem, the training problem it matches, and what they have in common."""

    id: str
    trained: str
    by: Literal["id", "text"]

    @property
    def text(self) -> str:
        """Return the match in words."""
        return self.id if self.by == "id" else f"{self.id} (asks what {self.trained} asks)"


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
        """Return some of the matches, in words."""
        more = len(self.matches) - EXAMPLES
        shown = ", ".join(match.text for match in self.matches[:EXAMPLES])
        return f"{shown} and {more} more" if more > 0 else shown

    def data(self) -> dict[str, Json]:
        """Return the result as JSON."""
        found: dict[str, Json] = {"against": list(self.sources), "not_checked": list(self.unknown)}
        if self.sources:
            found |= {
                "n": len(self.matches),
                "share": self.share,
                "by_id": sum(match.by == "id" for match in self.matches),
                "by_text": sum(match.by == "text" for match in self.matches),
                "examples": [
                    {"id": match.id, "trained": match.trained, "by": match.by}
                    for match in self.matches[:EXAMPLES]
                ],
            }
        return found

    def lines(self) -> list[str]:
        """Return the result as lines of text."""
        told = [f"contamination not checked: {why}" for why in self.unknown]
        if not self.sources:
            return told
        where = ", ".join(self.sources)
        if not self.matches:
            return [*told, f"contamination: none of {self.n} problems is in {where}"]
        count = f"{len(self.matches)} of {self.n} problems"
        return [*told, f"warning: contamination: {count} are in {where}: {self.examples}"]


def check(found: Mapping[str, Contamination], limit: float, where: str, allow: str) -> None:
    """Refuse tasks with too many problems that were trained on.

    Args:
        found: Contamination by task name.
        limit: Largest share.
        where: Location in the configuration.
        allow: How the user can allow it.

    Raises:
        ConfigError: If there are any; names each such task and some of its problems.
    """
    complaints = [
        Complaint(
            f"{name}: {len(one.matches)} of {one.n} problems were trained on: {one.examples}",
            where,
            (
                f"found in: {', '.join(one.sources)}",
                f"take other problems for one of the two, or accept it: {allow}",
            ),
        )
        for name, one in found.items()
        if one.share > limit
    ]
    if complaints:
        raise ConfigError.collect(complaints)
