"""Questions as templates that can be filled, and read back by a solver that knows only the text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Question:
    """A question and what it is about."""

    text: str
    slots: tuple[tuple[str, str], ...]


class Ask:
    """The wordings of one question; slots are written ``{name}``.

    With three or more wordings the last one is kept out of training.
    """

    def __init__(self, *wordings: str) -> None:
        self.wordings = wordings

    @property
    def for_training(self) -> tuple[str, ...]:
        """The wordings a training task may use."""
        return self.wordings[:-1] if len(self.wordings) > 2 else self.wordings

    def fill(self, wording: str, **slots: str) -> Question:
        """One wording with its slots filled; the same slots are there in each wording."""
        text = _SLOT.sub(lambda slot: slots[slot[1]], wording)
        return Question(text, tuple(sorted(slots.items())))

    def read(self, text: str) -> dict[str, str]:
        """The values in the slots of a question made by ``fill``.

        Raises:
            ValueError: If it was made by none of the wordings.
        """
        for pattern in self._patterns:
            if match := pattern.fullmatch(text):
                return match.groupdict()
        raise ValueError(f"no wording of this archetype: {text!r}")

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        patterns = []
        for wording in self.wordings:
            regex, seen = "", set()
            for index, piece in enumerate(_SLOT.split(wording)):
                if index % 2 == 0:
                    regex += re.escape(piece)
                else:
                    regex += f"(?P={piece})" if piece in seen else f"(?P<{piece}>.+?)"
                    seen.add(piece)
            patterns.append(re.compile(regex, re.DOTALL))
        return patterns
