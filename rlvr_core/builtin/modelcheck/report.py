"""The findings of an examination of a model's files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rlvr_core.api import Json

Level = Literal["ok", "note", "warn", "fail", "skip"]
"""``note``: nothing to judge. ``skip``: not examined, and the text says why."""


class BrokenPartError(Exception):
    """A part of a model cannot be used, so checks that depend on it are skipped.

    Attributes:
        part: ``config``, ``weights``, ``tokenizer`` or ``architecture``.
        text: What is wrong with it.
        remedy: What to do about it.
    """

    def __init__(self, part: str, text: str, remedy: str) -> None:
        super().__init__(text)
        self.part, self.text, self.remedy = part, text, remedy


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one question.

    Attributes:
        id: ``<part>/<name>``, stable.
        level: The verdict.
        text: What was found.
        remedy: What to do about it; empty where nothing is wrong.
        data: Numbers, for ``--json``.
    """

    id: str
    level: Level
    text: str
    remedy: str = ""
    data: Json = None

    def as_json(self) -> dict[str, Json]:
        """Return the finding as JSON."""
        found: dict[str, Json] = {
            "id": self.id,
            "verdict": self.level,
            "found": self.text,
            "remedy": self.remedy,
        }
        return found if self.data is None else {**found, "data": self.data}


@dataclass(slots=True)
class Report:
    """All findings."""

    findings: list[Finding] = field(default_factory=list)

    def level(self, *levels: Level) -> list[Finding]:
        """Return the findings of these levels."""
        return [one for one in self.findings if one.level in levels]

    @property
    def verdict(self) -> Literal["healthy", "doubtful", "broken"]:
        """``broken`` if any check failed, ``doubtful`` if any gave a warning."""
        if self.level("fail"):
            return "broken"
        return "doubtful" if self.level("warn") else "healthy"


def first_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def at_first(names: list[str], n: int = 3) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - n} more" if len(names) > n else ""
    return ", ".join(names[:n]) + more
