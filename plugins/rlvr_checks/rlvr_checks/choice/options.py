"""Finds the option that a part of an answer names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlvr_checks.choice.text import ARTICLE, bare, key, key_value

LETTERS = "ABCDEFGHIJ"

_LEAD = re.compile(
    r"(?:(?:the|my|so|thus|final|correct|best|right|answer|option|choice|letter|is|it|its)\b[\s:]*)+",
    re.IGNORECASE,
)
_BETWEEN = ".:)]-, \n\u2013\u2014"
"""Text that may stand between a letter and the text of its option."""
_SENTENCE_END = re.compile(r"\.(?:$|\n|\s+[^a-z])")
_LETTER = re.compile(r"[(\[]?\s*(?<![A-Za-z0-9])([A-Za-z])(?![A-Za-z0-9'])\s*([)\]]?)\s*")
_NOT_A_BUT = re.compile(r"not\s+\(?[A-J]\)?,?\s+(?:but|rather)\s+(?:rather\s+)?", re.IGNORECASE)
_OTHER = re.compile(
    r"[\s.,;:)\]]*(?:\b(?:or|and|if not|unless|as well as)\b|[/&+|,;])[\s,(]*"
    r"(?:(?:maybe|perhaps|possibly|also|else|either|both|it is|it's)\b[\s,(]*)*"
    r"(?:(?:option|choice|answer)\b)?[\s(\[]*([A-J])(?![A-Za-z0-9'-])"
    r"(?!\)?\s+(?:is|are)\s+(?:wrong|not|incorrect|false))"
    r"|\)?[ .,;:]*\([A-J]\)|[ .,:)]+[A-J](?=[.,;)]|\s*$)"
)
_GOES_ON = re.compile(
    r"(?:because|since|as|which|for|due|based|but|by|with|where|rather|instead|not|in|"
    r"(?:is|are) (?:the )?(?:correct|right|best|answer))\b",
    re.IGNORECASE,
)
_GOES_ON_BEHIND = re.compile(r"\s+" + _GOES_ON.pattern, re.IGNORECASE)
_TEXT_END = re.compile(r"\s*(?:$|[.!;](?:\s|$)|\n|,(?=\s)|\))")
_LINE_END = re.compile(r"\n|\.\s")
_NONE_BUT = re.compile(
    r"(?:not|none)\b[^.;\n]{0,80}?\bbut\s+(?:(?:it\s+)?is\s+)?(?:the\s+)?(?:closest|nearest)"
    r"(?:\s+(?:one|option|answer|choice|value|match))?(?:\s+(?:is|to|would be))*\s*(?:option\s+)?",
    re.IGNORECASE,
)
"""``not among the options, but the closest is``."""
_NAME = re.compile(r"(?:option|choice|letter)\s+(?=\(?[A-J]\b)", re.IGNORECASE)
_PART_END = re.compile(r"\n|\)|\.(?:\s|$)")
_AND_ANOTHER = re.compile(
    r"[).:](?:\s+(?!(?:because|since|as|which|not|but|due|based|where|while|whereas)\b)[^\s.,;:()]+)"
    r"{1,12}\s+(?:and|or)\s+(?:\(([A-J])\)|([A-J])\.\s)"
)
"""Behind a letter: ``) for the first and (B)``."""
_PARTS = re.compile(r"\)(?:(?!\.\s|\n)[^(]){0,200}\((?:[a-j]|[ivx]+)\)")
"""Behind a small letter: ``) 10 amp, (b)``, parts of one answer."""
_REASON_WORD = re.compile(
    r"(?:because|since|as|(?:is|are) (?:the )?(?:only )?(?:correct|right|best|answer))\b"
)


class Options:
    """Reads letters and texts of the options of one question.

    Args:
        options: Texts of the options, from A on.
    """

    def __init__(self, options: Sequence[str]) -> None:
        self._options = [bare(option).rstrip(" .;!") for option in options]
        self._keys = [key(option) for option in self._options]
        self._letters = LETTERS[: len(options)]
        # the longest first: "choice 10" begins like "choice 1"
        self._by_length = sorted(range(len(options)), key=lambda i: -len(self._options[i]))

    def strict(self, text: str) -> str | None:
        """Return the option that a text names and nothing else: by letter, by text, or both."""
        text = key_value(bare(text))
        for statement in (text, _LEAD.sub("", text, count=1) if _LEAD.match(text) else text):
            statement = _NOT_A_BUT.sub("", statement)
            if (index := self._whole(statement)) is not None:
                return self._letters[index]
            letter_match = _LETTER.match(statement)
            if letter_match is None:
                continue
            letter, rest = letter_match[1].upper(), statement[letter_match.end() :].lstrip(_BETWEEN)
            if not rest.strip(" .;!") or self.has_text(letter, rest):
                return letter
            if self._whole(rest) is not None:
                return None
        return None

    def beginning(self, text: str) -> str | None:
        """Return the option that a text begins with, unless the rest names another."""
        text = _NAME.sub("", bare(text.lstrip("*: }")), count=1)
        text = _NONE_BUT.sub("", _NOT_A_BUT.sub("", text, count=1), count=1)
        if (index := self._text_at(text)) is not None:
            return self._letters[index]
        if (index := self._whole(_PART_END.split(text, maxsplit=1)[0])) is not None:
            return self._letters[index]
        letter_match = _LETTER.match(text)
        if letter_match is None or (letter_match[1].islower() and not _closed(text, letter_match)):
            return None
        letter, gap, rest = (
            letter_match[1].upper(),
            text[letter_match.end(1) : letter_match.end()],
            text[letter_match.end() :],
        )
        behind = rest.lstrip(_BETWEEN)
        if self.has_text(letter, _LINE_END.split(behind, maxsplit=1)[0]):
            return letter
        if _OTHER.match(text, letter_match.end(1)):
            return None
        another = _AND_ANOTHER.match(text, letter_match.end(1))
        if another and letter_match[1] not in another.groups():
            return None
        if letter_match[1].islower() and _PARTS.match(text, letter_match.end(1)):
            return None
        index = self._text_at(behind)
        if index is not None:
            return letter if self.has_text(letter, self._options[index]) else None
        if rest.startswith("(") and not gap:
            return None  # A(t) is a function
        if not rest or "\n" in gap or letter_match[2] or rest[0] in ",;:!)(":
            return None if rest.startswith("?") else letter
        if rest[0] == ".":
            return letter if _SENTENCE_END.match(rest) else None
        return letter if _GOES_ON.match(rest) else None

    def names(self, text: str) -> bool:
        """Return whether a text begins with an option or a list of them."""
        letter_match = _LETTER.match(bare(text))
        marked = letter_match is not None and bool(letter_match[1].isupper() or letter_match[2])
        return marked or self.beginning(text) is not None

    def stated(self, text: str) -> str | None:
        """Return the option whose text a sentence begins with."""
        index = self._text_at(text)
        return None if index is None else self._letters[index]

    def ends(self, letter: str, rest: str) -> bool:
        """Return whether a sentence ends after a letter and its option's text or a reason."""
        rest = rest.lstrip(_BETWEEN)
        if not rest.strip(" .!") or _REASON_WORD.match(rest):
            return True
        index = self._letters.find(letter)
        return index >= 0 and self._keys[index].startswith(key(rest))

    def begins(self, letter: str, text: str) -> bool:
        """Return whether a sentence is the text of the option with a letter."""
        place = self._letters.find(letter)
        if place < 0 or not text.casefold().startswith(self._options[place].casefold()):
            return False
        return _TEXT_END.match(text, len(self._options[place])) is not None

    def has_text(self, letter: str, text: str) -> bool:
        """Return whether a text is that of the option with a letter."""
        place = self._letters.find(letter)
        return place >= 0 and self._keys[place] == key(text)

    def _whole(self, text: str) -> int | None:
        """Return the option whose text a text is."""
        text_key = key(text)
        index = self._keys.index(text_key) if text_key and text_key in self._keys else None
        return None if index is not None and self._is_letter(index, text) else index

    def _is_letter(self, index: int, statement: str) -> bool:
        """Return whether an answer is a letter, and not an option's text that looks like one.

        Where an option's text is "c" or "(c)", only that is the text, and "C" is the letter.
        """
        option = self._options[index]
        letter = option.strip("()").upper()
        if len(letter) != 1 or letter not in self._letters:
            return False
        return option.isupper() or not statement.strip().startswith(option)

    def _text_at(self, text: str) -> int | None:
        """Return the option whose text a sentence starts, and unless it continues, ends with."""
        folded = text.casefold()
        article = ARTICLE.match(folded)
        for statement in (folded, folded[article.end() :] if article else ""):
            for index in self._by_length:
                whole = self._options[index].casefold()
                for option in (whole, ARTICLE.sub("", whole, count=1)):
                    if not option or not statement.startswith(option):
                        continue
                    rest = statement[len(option) :]
                    if self._is_letter(index, text):
                        continue
                    if _TEXT_END.match(rest) or _GOES_ON_BEHIND.match(rest):
                        return None if self._another(rest) else index
        return None

    def _another(self, rest: str) -> bool:
        """Return whether a list that an option begins continues with another one."""
        separator = re.match(r"\s*[,;]\s*(?:or\s+|and\s+)?", rest)
        behind = rest[separator.end() :] if separator else ""
        return any(behind.startswith(option.casefold()) for option in self._options if option)


def _closed(text: str, letter_match: re.Match[str]) -> bool:
    """Return whether a small letter is an answer: in brackets, or nothing behind it in its line."""
    return bool(letter_match[2]) or not text[letter_match.end(1) :].split("\n")[0].strip(" .")
