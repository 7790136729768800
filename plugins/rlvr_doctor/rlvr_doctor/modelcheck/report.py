"""The error of a part of a model that cannot be used."""

from __future__ import annotations


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
