"""The 25 functions of RLVR-IFEval (allenai/RLVR-IFeval), by the names in its ``func_name``.

They read the same kinds of instruction as IFEval's constraints and differ in detail: counts are
exact or "around", capital letters count in some, and responses are compared as they are, without
stripping. What each accepts follows open-instruct's functions; the README lists the differences.
"""

from __future__ import annotations

import re

from rlvr_ifeval import language, matching, wordings
from rlvr_ifeval.arguments import (
    Count,
    Ending,
    ForbiddenWords,
    IthParagraph,
    KeywordList,
    LetterTimes,
    Marker,
    Options,
    OriginalPrompt,
    Quantified,
    ResponseLanguage,
    SplitSections,
    WordTimes,
)
from rlvr_ifeval.constraint import ConstraintSet, Family, NoArgs
from rlvr_ifeval.ifeval_layout import is_json
from rlvr_ifeval.substance import substantial

CONSTRAINTS = Family()


def _quantify(count: int, args: Quantified, slack: int) -> bool:
    match args.quantifier:
        case "at least":
            return count >= args.N
        case "at most":
            return count <= args.N
    return abs(count - args.N) <= slack


def _tenth(number: int) -> int:
    return max(round(number * 0.1), 1)


@CONSTRAINTS.add(
    "verify_keyword_frequency", WordTimes, lambda args: wordings.use(args.word, f"exactly {args.N}")
)
def _word_times(response: str, args: WordTimes) -> bool:
    pattern = rf"(?<!\w){re.escape(args.word.lower())}(?!\w)"
    return sum(1 for _ in re.finditer(pattern, response.lower())) == args.N


@CONSTRAINTS.add("verify_paragraph_count", Count, "Write {N} paragraphs, with * * * between them.")
def _dividers(response: str, args: Count) -> bool:
    text = "\n".join(line.strip() for line in response.splitlines()).strip()
    parts = text.split("* * *")
    return len(parts) == args.N and all(part.strip() for part in parts)


def sentence_count(text: str) -> int:
    """One more than the white spaces that follow ``.``, ``?`` or ``!``.

    A period is passed over after one capital and one small letter (``Mr.``) and in ``e.g.``.
    """
    ends = re.finditer(r"(?<=[.?!])\s", text)
    return 1 + sum(not _abbreviated(text[max(0, end.start() - 4) : end.start()]) for end in ends)


def _abbreviated(before: str) -> bool:
    return (
        re.search(r"\w\.\w[^\n]$", before) is not None
        or re.search(r"[A-Z][a-z]\.$", before) is not None
    )


@CONSTRAINTS.add(
    "validate_paragraphs",
    IthParagraph,
    lambda args: wordings.paragraph_begins(args.N, args.i, args.first_word),
)
def _nth_paragraph(response: str, args: IthParagraph) -> bool:
    paragraphs = response.split("\n\n")
    if len(paragraphs) != args.N or args.i > args.N:
        return False
    return paragraphs[args.i - 1].strip().startswith(args.first_word)


@CONSTRAINTS.add(
    "verify_postscript", Marker, lambda args: wordings.postscript(args.postscript_marker)
)
def _postscript(response: str, args: Marker) -> bool:
    at = response.find(args.postscript_marker)
    return at >= 0 and len(response[at:].strip()) > len(args.postscript_marker)


@CONSTRAINTS.add("verify_bullet_points", Count, lambda args: wordings.bullets(args.N))
def _bullets(response: str, args: Count) -> bool:
    return sum(line.strip().startswith(("*", "-")) for line in response.split("\n")) == args.N


@CONSTRAINTS.add("validate_title", NoArgs, wordings.TITLE)
def _titled(response: str, _: NoArgs) -> bool:
    return any(
        (begin := line.find("<<")) >= 0 and line.find(">>", begin + 2) >= 0
        for line in response.split("\n")
    )


@CONSTRAINTS.add(
    "validate_sections",
    SplitSections,
    lambda args: wordings.sections(args.N, args.section_splitter),
)
def _sections(response: str, args: SplitSections) -> bool:
    parts = response.split(args.section_splitter)
    return len(parts) - (not parts[0]) == args.N


def _two_responses(response: str, _: NoArgs) -> bool:
    parts = response.split("******")
    return len(parts) == 2 and parts[0].strip() != parts[1].strip()


def _both_substantial(response: str, _: NoArgs) -> bool:
    return all(map(substantial, response.split("******")))


@CONSTRAINTS.add("verify_keywords", KeywordList, lambda args: wordings.use_all(args.keyword_list))
def _verify_keywords(response: str, args: KeywordList) -> bool:
    return all(w.lower() in response.lower() for w in args.keyword_list)


@CONSTRAINTS.add(
    "validate_forbidden_words", ForbiddenWords, lambda args: wordings.use_none(args.forbidden_words)
)
def _validate_forbidden_words(response: str, args: ForbiddenWords) -> bool:
    return not any(w.lower() in response.lower() for w in args.forbidden_words)


@CONSTRAINTS.add(
    "verify_letter_frequency",
    LetterTimes,
    "Let '{letter}' occur exactly {N} times; capital and small letters differ.",
)
def _verify_letter_frequency(response: str, args: LetterTimes) -> bool:
    return response.count(args.letter) == args.N


@CONSTRAINTS.add(
    "validate_response_language",
    ResponseLanguage,
    lambda args: wordings.only_language(language.name(args.language)),
)
def _validate_response_language(response: str, args: ResponseLanguage) -> bool:
    return language.is_language(response, args.language) is True


@CONSTRAINTS.add(
    "validate_word_constraint",
    Quantified,
    lambda args: wordings.write(f"{args.quantifier} {args.N}", "words"),
)
def _validate_word_constraint(response: str, args: Quantified) -> bool:
    return _quantify(len(response.split()), args, _tenth(args.N))


@CONSTRAINTS.add(
    "verify_sentence_constraint",
    Quantified,
    lambda args: wordings.write(f"{args.quantifier} {args.N}", "sentences"),
)
def _verify_sentence_constraint(response: str, args: Quantified) -> bool:
    return _quantify(sentence_count(response), args, 1)


@CONSTRAINTS.add("validate_placeholders", Count, lambda args: wordings.placeholders(args.N))
def _validate_placeholders(response: str, args: Count) -> bool:
    return matching.placeholders(response) >= args.N


@CONSTRAINTS.add(
    "validate_choice", Options, lambda args: wordings.answer_with(args.options), has_content=None
)
def _validate_choice(response: str, args: Options) -> bool:
    return any(option in response for option in args.options)


@CONSTRAINTS.add("validate_highlighted_sections", Count, lambda args: wordings.highlights(args.N))
def _validate_highlighted_sections(response: str, args: Count) -> bool:
    return sum(line.count("*") // 2 for line in response.split("\n")) >= args.N


@CONSTRAINTS.add("validate_json_format", NoArgs, "Give the whole answer as JSON.")
def _validate_json_format(response: str, _: NoArgs) -> bool:
    return is_json(response)


@CONSTRAINTS.add(
    "validate_repeat_prompt",
    OriginalPrompt,
    lambda args: wordings.repeat_first(args.original_prompt),
    has_content=lambda response, args: substantial(response[len(args.original_prompt) :]),
)
def _validate_repeat_prompt(response: str, args: OriginalPrompt) -> bool:
    return response.startswith(args.original_prompt)


CONSTRAINTS.add(
    "validate_two_responses", NoArgs, wordings.TWO_RESPONSES, has_content=_both_substantial
)(_two_responses)


@CONSTRAINTS.add("validate_uppercase", NoArgs, "Use capital letters only.")
def _validate_uppercase(response: str, _: NoArgs) -> bool:
    return response == response.upper()


@CONSTRAINTS.add("validate_lowercase", NoArgs, "Use lower-case letters only.")
def _validate_lowercase(response: str, _: NoArgs) -> bool:
    return response == response.lower()


@CONSTRAINTS.add(
    "validate_frequency_capital_words",
    Quantified,
    lambda args: wordings.write(
        f"{args.quantifier} {args.N}", "words in capital letters throughout"
    ),
)
def _validate_frequency_capital_words(response: str, args: Quantified) -> bool:
    return _quantify(len(re.findall(r"\b[A-Z]+\b", response)), args, _tenth(args.N))


@CONSTRAINTS.add(
    "validate_end",
    Ending,
    lambda args: wordings.end_with(args.end_phrase),
    has_content=lambda response, args: substantial(response[: -len(args.end_phrase)]),
)
def _validate_end(response: str, args: Ending) -> bool:
    return response.endswith(args.end_phrase)


@CONSTRAINTS.add("validate_quotation", NoArgs, wordings.QUOTED)
def _validate_quotation(response: str, _: NoArgs) -> bool:
    return response.startswith('"') and response.endswith('"')


@CONSTRAINTS.add("validate_no_commas", NoArgs, wordings.NO_COMMAS)
def _validate_no_commas(response: str, _: NoArgs) -> bool:
    return "," not in response


RLVR = ConstraintSet("rlvr", CONSTRAINTS)
