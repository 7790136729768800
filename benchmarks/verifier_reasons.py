"""Why verdicts differ, judged by hand: each class of rows, who is right, and the reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from verifier_rows import Row

from rlvr_math.boxes import boxes


@dataclass(frozen=True, slots=True)
class Class:
    """Rows that differ for one reason.

    Attributes:
        name: What they have in common.
        why: Why, in a sentence.
        right: Whose verdict is right.
        boxes: How many the response has at least.
        found: What is found in a row, by the name of its field.
    """

    name: str
    why: str
    right: str = "ours"
    boxes: int = 0
    found: Mapping[str, str] = field(default_factory=dict)

    def holds(self, row: Row) -> bool:
        """Whether a row is one of them."""
        if self.boxes and len(list(boxes(row.response))) < self.boxes:
            return False
        return all(re.search(regex, str(getattr(row, name))) for name, regex in self.found.items())


FORMS = {
    "gsm8k-strict": "\n#### %s",
    "minerva": "\nFinal Answer: The final answer is $%s$. I hope it is correct.",
}
EMPTY = """\
Two solutions of MATH end in an empty box. As responses they give no final answer, so they fail,
which is right; the reference, 0, is supplied by the loader from what their text says.
"""

_BY_HAND = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
OURS, THEIRS = ([Class(**one) for one in _BY_HAND[whose]] for whose in ("ours", "theirs"))
