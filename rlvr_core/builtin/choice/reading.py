r"""Which option an answer to a multiple-choice question names: none, one, or several.

The answer is looked for in this order, and the first place that is there decides: ``<answer>``,
``\boxed{}``, the last statement ("the answer is ...", "option B is correct"), the whole text, its
last line, its first line, the one option that the last sentence points at. A place that is empty,
names two options or denies one gives no answer; later places are not tried.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rlvr_core.api import spoken
from rlvr_core.builtin.choice.places import boxed, tagged

LETTERS = "ABCDEFGHIJ"
_READ = 50_000
"""Characters at the end of an answer that are read."""

Place = Literal[
    "answer tag", "box", "statement", "whole answer", "last line", "first line", "last sentence"
]


@dataclass(frozen=True, slots=True)
class Choice:
    """What was read.

    Attributes:
        letter: The letter of the option; None if no single one is named.
        place: Where the answer was looked for; None if there is no such place.
        text: What stands there.
    """

    letter: str | None
    place: Place | None
    text: str


def read_choice(text: str, options: Sequence[str]) -> Choice:
    """Read the option that an answer names; ``options`` are their texts, from A on."""
    text = plain(spoken(text)[-_READ:])
    reader = _Reader(options)
    if (found := tagged(text)) is not None:
        inside = boxed(found)
        return Choice(reader.strict(found if inside is None else inside), "answer tag", found[:200])
    if (found := boxed(text)) is not None:
        return Choice(reader.strict(found), "box", found[:200])
    if (found := reader.statement(text)) is not None:
        return Choice(reader.beginning(found), "statement", found[:200])
    return reader.unmarked(text)


def plain(text: str) -> str:
    """Normalise Unicode, and take out characters that are not seen."""
    text = unicodedata.normalize("NFKC", text)
    return "".join(c for c in text if unicodedata.category(c) != "Cf")


# -- what an answer says ---------------------------------------------------------------------------

_STYLE = re.compile(
    r"\\(?:text|mathrm|mathbf|mathit|mathsf|bm|mbox|rm|bf|it)[a-z]*(?![a-z])\s?|\\[()!\[\]]|"
    r"[*_`#$]|</?(?:b|i|u|p|em|strong|code|span)>|\\(?=[.\s]|$)",
    re.IGNORECASE,
)
_SPACE = re.compile(r"\\[,;: ]|~")
_QUOTED = re.compile(
    r"(?<!\w)[\"'\u2018\u201c]([^\"'\u2018\u2019\u201c\u201d]*)[\"'\u2019\u201d](?!\w)"
)
_BRACED = re.compile(r"(?<![\\\w^_}])\{([^{}]*)\}")
_ARTICLE = re.compile(r"(?:the|an?)\s+(?=\S)", re.IGNORECASE)

_LEAD = re.compile(
    r"(?:(?:the|my|so|thus|final|correct|best|right|answer|option|choice|letter|is|it|its)\b[\s:]*)+",
    re.IGNORECASE,
)
_FILL = (
    r"(?:\s*(?:therefore|thus|then|hence|clearly|definitely|certainly|indeed|simply|obviously|"
    r"(?:most )?(?:likely|probably)|option|choice|letter|number|given by|:|=|"
    r"-(?=\s*\(?[A-Za-z]))\s*)*"
)
_BE = r"(?:\b(?:is|should be|must be|would be|has to be)\b|:)"
_STATEMENT = re.compile(
    r"(?:\banswer(?:\s*\([^()]{0,40}\)|\s+(?:to|of|for|here|in)\b[^.,;:!?\n]{0,60}?)?\s*(?:=|"
    + _BE
    + r")|\b(?:correct|right|best|final)\s+(?:option|choice|letter|one)"
    r"(?:\s+(?:of|among|here|in)\b[^.,;:!?\n]{0,60}?)?\s*"
    + _BE
    + r"|\b(?:i|we)(?:'ll|'d|\s+will|\s+would|\s+therefore|\s+can)?\s+"
    r"(?:choose|pick|select|go with|say|answer(?: with)?)"
    r"|\bit(?:'s|\s+is|\s+must be|\s+has to be)"
    r"|答案(?:是|为|选|应为)?\s*:?)" + _FILL,
    re.IGNORECASE,
)
_IS_RIGHT = re.compile(
    r"(?:\b(?:option|choice|answer)\s+)?\(?(?<![A-Za-z0-9'-])([A-Z])\)?"
    r"(?:\s+is|\s+must be|\s+should be)(?:\s+(?:therefore|thus|clearly|indeed))?"
    r"\s+(?:the\s+)?(?:correct|right|best|answer)\b",
)
_LISTED = re.compile(r"(?:\b[A-J]\)?\s*(?:,|/|&)?\s*(?:and|or|nor)?|,)\s*$")
_NOT = re.compile(
    r"\b(?:not|no|never|cannot|neither|nor|nobody|doubt|wrong|incorrect|false|unlikely|impossible|"
    r"eliminate|exclude|except|if|whether|unless|suppose|assume|might|could|may|is|isn't|than|was|"
    r"were|opposite|least|worst|mistake|nothing|far from)\b|n't\b",
    re.IGNORECASE,
)
_STRONG = re.compile(r"answer|option|choice|letter|one|答案", re.IGNORECASE)
_LONGEST = 1000
"""Characters behind a statement that are looked at."""
_BETWEEN = ".:)]-, \n\u2013\u2014"
"""What may stand between a letter and the text of its option."""
_SENTENCE_END = re.compile(r"\.(?:$|\n|\s+[^a-z])")
_CLAUSE = re.compile(r"[.!?;:,\n]|\b(?:so|but|therefore|thus|hence|then|because)\b", re.IGNORECASE)
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
_REASON = re.compile(r"(\(?[A-J]\)?)[,.:]?\s+(?:because|since|as)\b")
_STATES = re.compile(r"\b(?:is|are) (?:the )?(?:correct|right|best|answer)\b", re.IGNORECASE)
_SO = re.compile(r"(?:thus|therefore|so|hence|then|clearly)\W+", re.IGNORECASE)


class _Reader:
    """Reads letters and texts of the options of one question."""

    def __init__(self, options: Sequence[str]) -> None:
        self._options = [_bare(option) for option in options]
        self._letters = LETTERS[: len(options)]
        # the longest first: "choice 10" begins like "choice 1"
        self._by_length = sorted(range(len(options)), key=lambda i: -len(self._options[i]))

    def strict(self, text: str) -> str | None:
        """The option that is all that a text says: its letter, its text, or both."""
        text = _key_value(_bare(text))
        for said in (text, _LEAD.sub("", text, count=1) if _LEAD.match(text) else text):
            said = _NOT_A_BUT.sub("", said)
            if (index := self._whole(said)) is not None:
                return self._letters[index]
            found = _LETTER.match(said)
            if found is None:
                continue
            rest = said[found.end() :].lstrip(_BETWEEN)
            if not rest.strip(" .;!"):
                return found[1].upper()
            if len(said) > found.end() and (index := self._whole(rest)) is not None:
                letter = self._letters[index]
                return letter if letter == found[1].upper() else None
        return None

    def _whole(self, text: str) -> int | None:
        said = key(text)
        return next((i for i, one in enumerate(self._options) if said and key(one) == said), None)

    def statement(self, text: str) -> str | None:
        """What stands behind the last statement of an answer, or its letter; None without one.

        A statement that is denied, doubted or asked is passed over; one is given, as nothing, if
        there is no other.
        """
        found: list[tuple[int, str, bool]] = []
        for match in reversed(list(_STATEMENT.finditer(text))):
            behind = text[match.end() : match.end() + _LONGEST]
            # "it is" and "I choose" go on in many other ways
            if _STRONG.search(match[0]) or self.beginning(behind) is not None:
                found.append((match.start(), behind, _denied(text, match.start())))
                if not found[-1][2]:
                    break
        for match in reversed(list(_IS_RIGHT.finditer(text))):
            listed = _LISTED.search(text[max(0, match.start() - 20) : match.start()])
            if not listed and not _denied(text, match.start()):
                found.append((match.start(), f"({match[1]})", False))
                break
        sound = [(start, behind) for start, behind, denied in found if not denied]
        if sound:
            return max(sound)[1]
        return "" if found else None

    def beginning(self, text: str) -> str | None:
        """The option that a text begins with, unless what goes on behind it names another."""
        text = _NOT_A_BUT.sub("", _bare(text.lstrip("*:")), count=1)
        if (index := self._text_at(text)) is not None:
            return self._letters[index]
        found = _LETTER.match(text)
        if found is None or (found[1].islower() and not _closed(text, found)):
            return None
        if _OTHER.match(text, found.end(1)):
            return None
        letter, gap, rest = found[1].upper(), text[found.end(1) : found.end()], text[found.end() :]
        index = self._text_at(rest.lstrip(_BETWEEN))
        if index is not None:
            return letter if self._letters[index] == letter else None
        if not rest or "\n" in gap or found[2] or rest[0] in ",;:!)(":
            return None if rest.startswith("?") else letter
        if rest[0] == ".":
            return letter if _SENTENCE_END.match(rest) else None
        return letter if _GOES_ON.match(rest) else None

    def _text_at(self, text: str) -> int | None:
        """The option whose text a sentence begins with and, unless it goes on, ends with."""
        text = text.casefold()
        article = _ARTICLE.match(text)
        for said in (text, text[article.end() :] if article else ""):
            for index in self._by_length:
                whole = self._options[index].casefold()
                for option in (whole, _ARTICLE.sub("", whole, count=1)):
                    if not option or not said.startswith(option):
                        continue
                    rest = said[len(option) :]
                    if _TEXT_END.match(rest) or _GOES_ON_BEHIND.match(rest):
                        return None if self._another(rest) else index
        return None

    def _another(self, rest: str) -> bool:
        """Whether a list that an option begins goes on with another one."""
        found = re.match(r"\s*[,;]\s*(?:or\s+|and\s+)?", rest)
        behind = rest[found.end() :] if found else ""
        return any(behind.startswith(one.casefold()) for one in self._options if one)

    def unmarked(self, text: str) -> Choice:
        """The answer of a text that neither marks nor states it."""
        if letter := self.strict(text):
            return Choice(letter, "whole answer", text[:200])
        lines = [line for line in text.split("\n") if line.strip()]
        if not lines:
            return Choice(None, None, "")
        read = [self.strict(line) for line in lines]
        if read[-1] and (len(read) < 2 or read[-2] in (None, read[-1])):
            return Choice(read[-1], "last line", lines[-1][:200])
        if read[0] and {one for one in read if one} == {read[0]}:
            return Choice(read[0], "first line", lines[0][:200])
        if read[-1]:
            return Choice(None, "last line", lines[-1][:200])
        return self._pointed(lines[-1])

    def _pointed(self, line: str) -> Choice:
        """The one marked letter of the last sentence: ``we are left with (B)``."""
        if reason := _REASON.match(_bare(line)):
            return Choice(self.strict(reason[1]), "last line", line[:200])
        sentence = re.split(r"(?<=[.!?])\s+(?=\S)", line.strip())[-1]
        said = _SO.sub("", _bare(sentence), count=1)
        if _STATES.search(said) and (index := self._text_at(said)) is not None:
            return Choice(self._letters[index], "last sentence", sentence[:200])
        marked = set(
            re.findall(r"\(([A-J])\)|\*\*\(?([A-J])\)?\.?\*\*|\b[Oo]ption ([A-J])\b", sentence)
        )
        letters = {letter for one in marked for letter in one if letter}
        denied = re.search(
            r"\b(?:not|never|cannot|neither|nor|wrong|incorrect|false|except|either|or|maybe|"
            r"perhaps|might|could|eliminat\w*|exclude\w*|if)\b|n't\b|\?",
            sentence,
            re.IGNORECASE,
        )
        letter = letters.pop() if len(letters) == 1 and not denied else None
        return Choice(letter, "last sentence", sentence[:200])


def _closed(text: str, found: re.Match[str]) -> bool:
    """Whether a small letter is an answer: in brackets, or nothing behind it in its line."""
    return bool(found[2]) or not text[found.end(1) :].split("\n")[0].strip(" .")


def _denied(text: str, start: int) -> bool:
    """Whether the clause before a statement denies, doubts or asks it."""
    before = text[max(0, start - 200) : start]
    clause = _CLAUSE.split(before)[-1]
    return _NOT.search(clause) is not None


def _bare(text: str) -> str:
    """A text without what only styles it."""
    text = _STYLE.sub("", _SPACE.sub(" ", text)).replace(r"\dfrac", r"\frac")
    text = _QUOTED.sub(r"\1", text.replace(r"\tfrac", r"\frac"))
    for _ in range(3):
        text = _BRACED.sub(r"\1", text)
    return re.sub(r"[ \t]+", " ", text).strip()


def key(text: str) -> str:
    """What two writings of one option have in common: letters and signs, without spaces."""
    text = _ARTICLE.sub("", text.strip().rstrip(".;!").casefold(), count=1)
    return re.sub(r"\s+", "", text)


_OBJECT = re.compile(r"\{\s*(?:answer|choice|option|letter)\s*:\s*([^,{}\[\]]*)\}", re.IGNORECASE)


def _key_value(text: str) -> str:
    found = _OBJECT.fullmatch(text)
    return found[1].strip() if found else text
