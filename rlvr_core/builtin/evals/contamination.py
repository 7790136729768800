"""Contamination guard: detects held-out problems in the training data.

By id, by question, and, as a warning, by similarity to a question.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from rlvr_core.api import Complaint, ConfigError, Json, Message, Problem
from rlvr_core.builtin.evals.frames import unframed
from rlvr_core.builtin.evals.near import near_duplicates
from rlvr_core.builtin.evals.retold import told_again

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
_BETWEEN = re.compile(r"\n[ \t]*\n")
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

    Compatibility forms are folded (NFKC), and HTML entities such as ``&nbsp;`` read.
    Punctuation is removed unless it is arithmetic: the minus of ``5 - 3``, the point of ``1.5``,
    the brackets of ``2*(3+4)``; otherwise different sums would match. A punctuation mark that
    stands alone counts as a word: "End with !" is not "End with ?".
    """
    return " ".join(filter(None, map(_paragraph, _BETWEEN.split(text))))


@lru_cache(maxsize=4096)
def _paragraph(text: str) -> str:
    """Normalise one paragraph; worked examples are the same in every prompt of a data set."""
    if "&" in text:
        text = html.unescape(text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    text = _ALONE.sub(_spelt, _THOUSANDS.sub("", text.casefold())).translate(_TABLE)
    text = _TIGHT.sub(r"\1", " ".join(text.split()))
    return " ".join(_TEXTUAL.sub(" ", text).split())


def _spelt(mark: re.Match[str]) -> str:
    return f"u{ord(mark[0]):04x}"


def question(prompt: str | Sequence[Message]) -> str:
    """Return a prompt's question; for a conversation, all but the system message."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(turn.content for turn in prompt if turn.role != "system")


def normalised_question(prompt: str | Sequence[Message]) -> str:
    """Return a prompt's question, normalised."""
    return normalise(question(prompt))


def bodies(texts: Sequence[str]) -> list[str | None]:
    """Return each text, normalised, without the frame that most texts begin and end with.

    The frame is the data set's template ("Question: … Answer:"), including worked examples; without
    it a problem is recognised in another template. The result is None if too little of a text
    remains.
    """
    found = map(normalise, unframed(texts))
    return [body if _long(body) else None for body in found]


def short_bodies(texts: Sequence[str]) -> list[str]:
    """The service ``core/short-bodies``: what ``bodies`` leaves out, numbers and signs kept.

    Returns:
        What is left of each text without its frame; empty if it is long enough to be known.
    """
    found = map(normalise, unframed(texts))
    return ["" if _long(body) else body for body in found]


def _long(body: str) -> bool:
    return body.count(" ") >= BODY_WORDS - 1


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
    _questions: list[tuple[str, str]] = field(default_factory=list)

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
            text = "" if prompt is None else question(prompt)
            if normalise(text):
                names.append(id_)
                texts.append(text)
        for text, body, id_ in zip(texts, unframed(texts), names, strict=True):
            self._texts.setdefault(normalise(text), id_)
            own = normalise(body)
            if _long(own):
                self._texts.setdefault(own, id_)
            self._questions.append((id_, body))

    def add_problems(self, name: str, problems: Iterable[Problem]) -> None:
        """Add the problems of a data set."""
        self.add(name, ((problem.id, problem.prompt) for problem in problems))

    def search(self, problems: Sequence[Problem]) -> Contamination:
        """Find the problems that were trained on."""
        unframed_questions = unframed([question(problem.prompt) for problem in problems])
        matches, others = [], []
        for index, (problem, body) in enumerate(zip(problems, unframed_questions, strict=True)):
            short = normalise(body)
            twin = self._texts.get(normalised_question(problem.prompt))
            if twin is None and _long(short):
                twin = self._texts.get(short)
            if problem.id in self._ids:
                matches.append(Match(problem.id, problem.id, "id"))
            elif twin is not None:
                matches.append(Match(problem.id, twin, "text"))
            else:
                others.append(index)
        whole, again = told_again(
            [unframed_questions[index] for index in others], (text for _, text in self._questions)
        )
        left = []
        for index, row, by_numbers in zip(others, whole, again, strict=True):
            if row is None:
                left.append((index, by_numbers))
            else:
                matches.append(Match(problems[index].id, self._questions[row][0], "text"))
        near = near_duplicates(
            [unframed_questions[index] for index, _ in left], (text for _, text in self._questions)
        )
        for (index, by_numbers), by_words in zip(left, near, strict=True):
            match = by_words or by_numbers
            if match is not None:
                trained = self._questions[match[0]][0]
                matches.append(Match(problems[index].id, trained, "near", round(match[1], 3)))
        return Contamination(
            len(problems), tuple(matches), tuple(self.sources), tuple(self.unknown)
        )


@dataclass(frozen=True, slots=True)
class Match:
    """A held-out problem, the training problem it matches, and what they have in common.

    Attributes:
        id: The held-out problem.
        trained: The training problem.
        by: ``id``; ``text``: the same question, or its sentences among others; ``near``: very
            similar, such as the same problem with other names and numbers, rephrased or cut.
        share: For ``near``: the share of one problem that is in the other; of one told in other
            words, how much the two have in common.
    """

    id: str
    trained: str
    by: Literal["id", "text", "near"]
    share: float = 1.0

    @property
    def text(self) -> str:
        """Return the match in words."""
        descriptions = {
            "id": self.id,
            "text": f"{self.id} (asks what {self.trained} asks)",
            "near": f"{self.id} (like {self.trained}, {self.share:.0%})",
        }
        return descriptions[self.by]

    def data(self) -> dict[str, Json]:
        """Return the match as JSON."""
        share = {"share": self.share} if self.by == "near" else {}
        return {"id": self.id, "trained": self.trained, "by": self.by, **share}


@dataclass(frozen=True, slots=True)
class Contamination:
    """Contamination of one task.

    Attributes:
        n: Number of problems of the task.
        matches: The problems that were trained on, and those similar to one that was.
        sources: Training data that was searched.
        unknown: Training data that could not be searched, and why.
    """

    n: int
    matches: tuple[Match, ...]
    sources: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def same(self) -> list[Match]:
        """The problems that were trained on: same id or same question."""
        return [match for match in self.matches if match.by != "near"]

    @property
    def near(self) -> list[Match]:
        """Other problems that are very similar to one that was trained on."""
        return [match for match in self.matches if match.by == "near"]

    @property
    def share(self) -> float:
        """Share of the task's problems that were trained on."""
        return len(self.same) / self.n if self.n else 0.0

    @property
    def examples(self) -> str:
        """Return some of the problems that were trained on, in words."""
        return _some(self.same)

    def data(self) -> dict[str, Json]:
        """Return the result as JSON."""
        found: dict[str, Json] = {"against": list(self.sources), "not_checked": list(self.unknown)}
        if self.sources:
            same, near = self.same, self.near
            found |= {
                "n": len(same),
                "share": self.share,
                "by_id": sum(match.by == "id" for match in same),
                "by_text": sum(match.by == "text" for match in same),
                "examples": [match.data() for match in same[:EXAMPLES]],
                "near": {
                    "n": len(near),
                    "share": len(near) / self.n if self.n else 0.0,
                    "examples": [match.data() for match in near[:EXAMPLES]],
                },
            }
        return found

    def lines(self) -> list[str]:
        """Return the result as lines of text."""
        report = [f"contamination not checked: {why}" for why in self.unknown]
        if not self.sources:
            return report
        where = ", ".join(self.sources)
        if self.same:
            count = f"{len(self.same)} of {self.n} problems"
            report.append(f"warning: contamination: {count} are in {where}: {self.examples}")
        else:
            report.append(f"contamination: none of {self.n} problems is in {where}")
        if self.near:
            count = f"{len(self.near)} of {self.n} problems"
            report.append(
                f"warning: contamination: {count} are much like one in {where}: {_some(self.near)}"
            )
        return report


def _some(matches: Sequence[Match]) -> str:
    more = len(matches) - EXAMPLES
    shown = ", ".join(match.text for match in matches[:EXAMPLES])
    return f"{shown} and {more} more" if more > 0 else shown


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
            f"{name}: {len(one.same)} of {one.n} problems were trained on: {one.examples}",
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
