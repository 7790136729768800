"""Whether an English text begins with a verb, by its first sentence.

A first word that can be nothing but a verb decides at once. One that can be a noun, an adjective
or a name as well is read with what follows: an object ("Book the flight") or an adverb makes it an
imperative, a finite verb of its clause makes it the subject or a part of it ("Book sales rose",
"Clean water is"). Words before a finite verb that has a subject of its own do not count: "Plant
trees wherever you can". Gerunds and participles are verbs, unless they stand before the noun of
such a subject ("Walking shoes are").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rlvr_ifeval.ifbench_text import bare
from rlvr_ifeval.ifbench_verb_classes import (
    ADJECTIVES,
    ADVERBS,
    AFTER_PARTICIPLES,
    AUXILIARIES,
    CAUSATIVES,
    CLAUSE_TAKING,
    DETERMINERS,
    GERUNDS_BEFORE_NOUNS,
    HOMOGRAPHS,
    MODALS,
    NAMES,
    NOT_GERUNDS,
    NUMBERED,
    OBJECTS,
    OTHER_CLASSES,
    PAST,
    PAST_ALONE,
    PLACES,
    PLURALS,
    PLURALS_ALONE,
    PREPOSITIONS,
    SELDOM_PLURALS,
    SUBJECTS,
    SUBORDINATE,
    ZERO_PLURALS,
)
from rlvr_ifeval.ifbench_verbs import BASES, FORMS, NOUNS, base_form

_ENOUGH = 4_000
"""Characters of a text that hold its first sentence."""
_MOST_WORDS = 30
"""Words of a sentence that are looked at."""
_ENDS = re.compile(r"[.!?:;\u2026][\"'\u201d\u2019)*_]*$")

_COORDINATES = frozenset(("and", "or", "but"))
_FINITE = (AUXILIARIES | MODALS) - {"be", "been", "being", "having", "doing", "done", "let's"}
"""Auxiliaries that show what is before them to be a subject."""
_NO_NOUNS = OBJECTS | PREPOSITIONS | ADVERBS | SUBORDINATE | SUBJECTS | _COORDINATES | _FINITE


@dataclass(frozen=True, slots=True)
class _Sentence:
    """The first sentence.

    Attributes:
        words: Its words, in lower case.
        capital: Whether each begins with a capital.
        end: The mark at its end, or nothing.
        comma: Whether a comma follows the first word.
    """

    words: tuple[str, ...]
    capital: tuple[bool, ...]
    end: str
    comma: bool

    def word(self, at: int) -> str:
        """The word of a place, or nothing."""
        return self.words[at] if at < len(self.words) else ""


def starts_with_verb(text: str) -> bool:
    """Whether the first word of an English text is a verb in any form."""
    if text.lstrip().startswith("["):
        return False
    sentence = _first_sentence(text[:_ENOUGH])
    return bool(sentence.words) and _is_verb(sentence)


def _first_sentence(text: str) -> _Sentence:
    words: list[str] = []
    capital: list[bool] = []
    end, comma = "", False
    for line in text.split("\n"):
        for raw in line.split():
            for part in re.split("[\u2012-\u2015\u2026]+", raw) if len(raw) > 1 else (raw,):
                if word := bare(part):
                    words.append(word.casefold())
                    capital.append(word[0].isupper())
            if not words:
                continue
            comma = comma or (len(words) == 1 and raw.rstrip("\"'\u201d*_").endswith(","))
            closing = _ENDS.search(raw)
            if closing and not (len(words) == 1 and raw.endswith(".") and len(words[0]) < 3):
                end = raw.rstrip("\"'\u201d\u2019)*_")[-1:]
                break
        if words:
            break
    return _Sentence(tuple(words[:_MOST_WORDS]), tuple(capital[:_MOST_WORDS]), end, comma)


def _is_verb(sentence: _Sentence) -> bool:
    first, following = sentence.word(0), sentence.word(1)
    if first in OTHER_CLASSES:
        return first == "like" and following in _COORDINATES
    if first in MODALS:
        return _is_modal(sentence)
    if first in AUXILIARIES or first.endswith("n't"):
        return True
    if first == "last":
        return following in PREPOSITIONS | ADVERBS
    if first in HOMOGRAPHS and sentence.end == ":" and not following:
        return False
    if first in HOMOGRAPHS:
        return following in OBJECTS | PREPOSITIONS or not following or not _finite(sentence)
    if first in FORMS:
        return True
    if first.endswith("ing") and len(first) > 4 and first not in NOUNS:
        return first not in NOT_GERUNDS and not _is_modifier(sentence)
    base = base_form(first)
    if base is None:
        return _takes_an_object(sentence)
    is_participle = first.endswith("ed") and first != base
    if not is_participle and following in _FINITE:
        return False
    if base not in NOUNS and base not in ADJECTIVES and first not in NAMES:
        return True
    return is_participle or (first == base and _is_imperative(sentence))


def _is_modal(sentence: _Sentence) -> bool:
    """Whether a modal asks or wishes: "Will you", "May the best win"; not May, Will, a can."""
    following = sentence.word(1)
    if sentence.end == "?" or following in SUBJECTS or following in OBJECTS:
        return True
    return sentence.capital[1:2] != (True,) and not _finite(sentence) and following != "of"


def _takes_an_object(sentence: _Sentence) -> bool:
    """Whether a word that we do not know stands before an object, as nouns seldom do."""
    first, following = sentence.word(0), sentence.word(1)
    if sentence.comma or first.endswith(("ly", "s")) or not first.isalpha() or not first.isascii():
        return False
    if first.endswith("ed") and following in PREPOSITIONS:
        return True
    return following in OBJECTS and following not in ("no", "it", "all", "both", "each", "many")


def _is_imperative(sentence: _Sentence) -> bool:
    """Whether a word that can be noun, adjective or name is an imperative here."""
    first, following = sentence.word(0), sentence.word(1)
    if not following:
        return sentence.end != ":"
    if following in SUBJECTS - {"it", "that"}:
        return sentence.end == "?" or following == "what"
    if following in OBJECTS:
        return True
    if sentence.end == ":" and len(sentence.words) < 3:
        return False
    if following[0].isdigit():
        return first not in NUMBERED
    if following in ("of", "whose", "who") and first not in ("dream", "speak", "talk"):
        return False
    if following in ADVERBS and _object_or_end(sentence, 2):
        return first != "long"
    if not sentence.end and len(sentence.words) > 1 and all(sentence.capital):
        return False  # a heading
    return not _finite(sentence)


def _object_or_end(sentence: _Sentence, at: int) -> bool:
    word = sentence.word(at)
    return not word or word in OBJECTS | PREPOSITIONS | SUBORDINATE | ADVERBS | _COORDINATES


def _is_modifier(sentence: _Sentence) -> bool:
    """Whether a gerund stands before the noun of a subject: "Walking shoes are"."""
    first, following, after = (sentence.word(at) for at in range(3))
    if not following or following in _NO_NOUNS or following.endswith("ly"):
        return False
    if _is_plural(following):
        agrees = after in BASES or after in ("are", "were", "have", "do")
        return agrees or (first in GERUNDS_BEFORE_NOUNS and _finite(sentence))
    return first in GERUNDS_BEFORE_NOUNS and _finite(sentence)


def _is_plural(word: str) -> bool:
    if word in PREPOSITIONS or word in ADVERBS or word in OTHER_CLASSES:
        return False
    return word in PLURALS or (word.endswith("s") and not word.endswith(("ss", "us", "is")))


def _finite(sentence: _Sentence) -> bool:
    """Whether a finite verb follows whose subject begins with the first word."""
    words = sentence.words
    for at in range(1, len(words)):
        word, before = words[at], words[at - 1]
        if word in SUBORDINATE or word in SUBJECTS:
            return False
        if before == "to" or (word in PREPOSITIONS and word not in PAST):
            continue
        if word in _FINITE or word.endswith("n't"):
            return True
        if before not in OBJECTS - {"many"} and _is_predicate(words, at):
            return True
    return False


def _is_predicate(words: Sequence[str], at: int) -> bool:
    """Whether a full verb at a place is finite, by its form and its neighbours."""
    word, before = words[at], words[at - 1]
    following = words[at + 1] if at + 1 < len(words) else ""
    pair = at == 3 and words[1] == "and" and base_form(before) is None
    many = pair or (_is_plural(before) if at > 1 else before in ZERO_PLURALS)
    if word in PAST:
        present = many and base_form(word) == word
        return word in PAST_ALONE or present or at == 1 or following not in AFTER_PARTICIPLES
    base = base_form(word)
    if base is None:  # a word we do not know, between a plural and an object
        return many and following in OBJECTS and word not in OTHER_CLASSES | _NO_NOUNS
    open_end = not following or following in OBJECTS | ADVERBS | SUBORDINATE | PREPOSITIONS
    open_end = open_end or following.endswith("ly") or _is_plural(following)
    if word.endswith("ed"):
        place = following in PLACES and words[0] in ADJECTIVES
        return at == 1 or place or following not in AFTER_PARTICIPLES
    if word != base and word.endswith("s"):
        if word in PLURALS_ALONE:
            return False
        if base not in NOUNS or base in SELDOM_PLURALS:
            return True
        if words[0] in CAUSATIVES:
            return False
        if following == "that":
            return base in CLAUSE_TAKING
        return following in DETERMINERS or (at > 1 and not many and _is_plural(following))
    if word == base and many and words[0] not in CAUSATIVES:
        if base in ADJECTIVES:
            return following in OBJECTS | PREPOSITIONS | ADVERBS
        return base not in NOUNS or open_end
    return False
