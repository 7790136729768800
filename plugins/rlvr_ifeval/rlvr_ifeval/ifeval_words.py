"""IFEval's constraints on what a response says: keywords, letters, language, case, phrases."""

from __future__ import annotations

import re
from collections.abc import Callable

from rlvr_ifeval import language, matching, wordings
from rlvr_ifeval.arguments import (
    CapitalWords,
    EndPhrase,
    ForbiddenWords,
    KeywordFrequency,
    Keywords,
    LetterFrequency,
    Postscript,
    PromptToRepeat,
    ResponseLanguage,
)
from rlvr_ifeval.constraint import Family, NoArgs
from rlvr_ifeval.matching import compare
from rlvr_ifeval.substance import substantial
from rlvr_ifeval.text import tokens, words

CHOICES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


CONSTRAINTS = Family()
"""All of this family."""


def _postscript(response: str, args: Postscript) -> bool:
    text = response.lower()
    match args.postscript_marker:
        case "P.P.S":
            return re.search(r"p\.\s?p\.\s?s", text) is not None
        case "P.S.":
            return re.search(r"p\.\s?s\.", text) is not None
    return args.postscript_marker.lower() in text


def _after_postscript(response: str, args: Postscript) -> bool:
    at = response.lower().rfind(args.postscript_marker.lower()[:3])
    return (
        substantial(response[:at]) and len(words(response[at:])) > len(args.postscript_marker) / 2
    )


@CONSTRAINTS.add(
    "combination:repeat_prompt",
    PromptToRepeat,
    lambda args: wordings.repeat_first(args.prompt_to_repeat),
    has_content=lambda response, args: substantial(
        response.strip()[len(args.prompt_to_repeat.strip()) :]
    ),
)
def _repeats(response: str, args: PromptToRepeat) -> bool:
    return response.strip().lower().startswith(args.prompt_to_repeat.strip().lower())


@CONSTRAINTS.add(
    "startend:end_checker",
    EndPhrase,
    lambda args: wordings.end_with(args.end_phrase),
    has_content=lambda response, args: substantial(
        response.strip().strip('"')[: -len(args.end_phrase)]
    ),
)
def _ends(response: str, args: EndPhrase) -> bool:
    return response.strip().strip('"').lower().endswith(args.end_phrase.lower())


@CONSTRAINTS.add("startend:quotation", NoArgs, wordings.QUOTED)
def _quoted(response: str, _: NoArgs) -> bool:
    text = response.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


def _english(cased: Callable[[str], bool]) -> Callable[[str, NoArgs], bool]:
    """In one case throughout, and English or too short to tell."""
    return lambda response, _: cased(response) and language.is_language(response, "en") is not False


@CONSTRAINTS.add(
    "keywords:existence",
    Keywords,
    lambda args: wordings.use_all(args.keywords),
    has_content=lambda response, args: (
        len(words(response)) >= 5 + len(words(" ".join(args.keywords)))
    ),
)
def _existence(response: str, args: Keywords) -> bool:
    return all(matching.has(word, response) for word in args.keywords)


@CONSTRAINTS.add(
    "keywords:frequency",
    KeywordFrequency,
    lambda args: wordings.use(args.keyword, f"{args.relation} {args.frequency}"),
)
def _frequency(response: str, args: KeywordFrequency) -> bool:
    return compare(matching.occurrences(args.keyword, response), args.relation, args.frequency)


@CONSTRAINTS.add(
    "keywords:forbidden_words", ForbiddenWords, lambda args: wordings.use_none(args.forbidden_words)
)
def _forbidden_words(response: str, args: ForbiddenWords) -> bool:
    return not any(matching.has_word(word, response) for word in args.forbidden_words)


@CONSTRAINTS.add(
    "keywords:letter_frequency",
    LetterFrequency,
    "Let the letter '{letter}' occur {let_relation} {let_frequency} times.",
)
def _letter_frequency(response: str, args: LetterFrequency) -> bool:
    return compare(
        response.lower().count(args.letter.lower()), args.let_relation, args.let_frequency
    )


@CONSTRAINTS.add(
    "language:response_language",
    ResponseLanguage,
    lambda args: wordings.only_language(language.name(args.language)),
)
def _response_language(response: str, args: ResponseLanguage) -> bool:
    return language.is_language(response, args.language) is not False


CONSTRAINTS.add(
    "detectable_content:postscript",
    Postscript,
    lambda args: wordings.postscript(args.postscript_marker),
    has_content=_after_postscript,
)(_postscript)


@CONSTRAINTS.add(
    "detectable_format:constrained_response",
    NoArgs,
    wordings.answer_with(CHOICES),
    has_content=None,
)
def _constrained_response(response: str, _: NoArgs) -> bool:
    return any(choice in response for choice in CHOICES)


@CONSTRAINTS.add(
    "change_case:capital_word_frequency",
    CapitalWords,
    lambda args: wordings.write(
        f"{args.capital_relation} {args.capital_frequency}",
        "words in capital letters throughout",
    ),
)
def _capital_word_frequency(response: str, args: CapitalWords) -> bool:
    return compare(
        sum(1 for token in tokens(response) if token.isupper()),
        args.capital_relation,
        args.capital_frequency,
    )


CONSTRAINTS.add(
    "change_case:english_capital", NoArgs, "Answer in English, in capital letters only."
)(_english(str.isupper))
CONSTRAINTS.add(
    "change_case:english_lowercase", NoArgs, "Answer in English, in lower-case letters only."
)(_english(str.islower))


@CONSTRAINTS.add("punctuation:no_comma", NoArgs, wordings.NO_COMMAS)
def _no_comma(response: str, _: NoArgs) -> bool:
    return "," not in response
