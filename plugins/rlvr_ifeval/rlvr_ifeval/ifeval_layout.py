"""IFEval's constraints on how a response is laid out: lengths, paragraphs, markdown, JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from rlvr_ifeval import matching, wordings
from rlvr_ifeval.arguments import (
    NthParagraph,
    NumberBullets,
    NumberHighlights,
    NumberParagraphs,
    NumberPlaceholders,
    NumberSentences,
    NumberWords,
    Sections,
)
from rlvr_ifeval.constraint import Family, NoArgs
from rlvr_ifeval.matching import compare
from rlvr_ifeval.substance import substantial
from rlvr_ifeval.text import sentences, words

_FENCES = ("```json", "```Json", "```JSON", "```")
_ENDS_WORD = ".,?!'\""


CONSTRAINTS = Family()
"""All of this family."""


@CONSTRAINTS.add(
    "length_constraints:nth_paragraph_first_word",
    NthParagraph,
    lambda args: wordings.paragraph_begins(
        args.num_paragraphs, args.nth_paragraph, args.first_word
    ),
)
def _nth_paragraph(response: str, args: NthParagraph) -> bool:
    paragraphs = response.split("\n\n")
    count = sum(1 for paragraph in paragraphs if paragraph.strip())
    if count != args.num_paragraphs or args.nth_paragraph > count:
        return False
    paragraph = paragraphs[args.nth_paragraph - 1].split()
    if not paragraph:
        return False
    word = paragraph[0].lstrip("'").lstrip('"')
    end = next((at for at, letter in enumerate(word) if letter in _ENDS_WORD), len(word))
    # Letter by letter, as the benchmark does it: a capital sigma at the end is no final one.
    return "".join(map(str.lower, word[:end])) == args.first_word.lower()


def bullets(text: str) -> int:
    """Lines that begin with one ``*``, or with ``-``.

    A ``*`` alone on its line takes the line below as its text, even if that is a bullet.
    """
    stars = sum(1 for _ in re.finditer(r"(?m)^[^\S\n]*\*[^*].*$", text))
    return stars + sum(1 for _ in re.finditer(r"(?m)^[^\S\n]*-", text))


def highlights(text: str) -> int:
    """``*parts*`` and ``**parts**`` with text in them."""
    single = re.findall(r"\*[^\n*]*\*", text)
    double = re.findall(r"\*\*[^\n*]*\*\*", text)
    return sum(1 for part in single + double if part.strip("*").strip())


def _different_highlights(response: str, args: NumberHighlights) -> bool:
    highlighted = {part.strip() for part in re.findall(r"\*([^\n*]+)\*", response)} - {""}
    return len(highlighted) >= args.num_highlights and substantial(response)


def sections(text: str, mark: str) -> int:
    """How often ``mark`` stands before a number."""
    return sum(1 for _ in re.finditer(rf"{re.escape(mark)}\s?\d+", text))


def unfenced(text: str) -> str:
    """Text without the code fence around it."""
    text = text.strip()
    for fence in _FENCES:
        text = text.removeprefix(fence)
    return text.removesuffix("```").strip()


def is_json(text: str) -> bool:
    """Whether a text is one JSON value; one nested too deeply to read does not count."""
    return _json(text) is not None


def _json(text: str) -> list[Any] | None:
    """A JSON value in a list, or None."""
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        return None


def _json_content(response: str, _: NoArgs) -> bool:
    read = _json(unfenced(response))
    return read is not None and isinstance(read[0], dict | list) and bool(read[0])


def has_title(text: str) -> bool:
    """Whether a line has ``<<something>>``."""
    return any(_title(line) for line in text.split("\n"))


def _title(line: str) -> str:
    begin, end = line.find("<<"), line.rfind(">>")
    if begin < 0 or end < begin + 3:
        return ""
    return line[begin : end + 2].lstrip("<").rstrip(">").strip()


def _more_than_title(response: str, _: NoArgs) -> bool:
    return substantial("\n".join(line for line in response.split("\n") if not _title(line)))


def two_responses(text: str) -> list[str] | None:
    """Two different parts separated by ``******``, empty ones at either end aside."""
    parts = text.split("******")
    if any(not part.strip() for part in parts[1:-1]):
        return None
    kept = [part.strip() for part in parts if part.strip()]
    return kept if len(kept) == 2 and kept[0] != kept[1] else None


def _both_substantial(response: str, _: NoArgs) -> bool:
    return all(map(substantial, two_responses(response) or [""]))


@CONSTRAINTS.add(
    "length_constraints:number_sentences",
    NumberSentences,
    lambda args: wordings.write(f"{args.relation} {args.num_sentences}", "sentences"),
)
def _number_sentences(response: str, args: NumberSentences) -> bool:
    return compare(len(sentences(response)), args.relation, args.num_sentences)


@CONSTRAINTS.add(
    "length_constraints:number_paragraphs",
    NumberParagraphs,
    "Write {num_paragraphs} paragraphs, with *** on a line between them.",
    has_content=lambda response, args: substantial(response.replace("*", "")),
)
def _number_paragraphs(response: str, args: NumberParagraphs) -> bool:
    return matching.filled(matching.divided(response)) == args.num_paragraphs


@CONSTRAINTS.add(
    "length_constraints:number_words",
    NumberWords,
    lambda args: wordings.write(f"{args.relation} {args.num_words}", "words"),
)
def _number_words(response: str, args: NumberWords) -> bool:
    return compare(len(words(response)), args.relation, args.num_words)


@CONSTRAINTS.add(
    "detectable_content:number_placeholders",
    NumberPlaceholders,
    lambda args: wordings.placeholders(args.num_placeholders),
)
def _number_placeholders(response: str, args: NumberPlaceholders) -> bool:
    return matching.placeholders(response) >= args.num_placeholders


@CONSTRAINTS.add(
    "detectable_format:number_bullet_lists",
    NumberBullets,
    lambda args: wordings.bullets(args.num_bullets),
)
def _number_bullet_lists(response: str, args: NumberBullets) -> bool:
    return bullets(response) == args.num_bullets


@CONSTRAINTS.add(
    "detectable_format:number_highlighted_sections",
    NumberHighlights,
    lambda args: wordings.highlights(args.num_highlights),
    has_content=_different_highlights,
)
def _number_highlighted_sections(response: str, args: NumberHighlights) -> bool:
    return highlights(response) >= args.num_highlights


@CONSTRAINTS.add(
    "detectable_format:multiple_sections",
    Sections,
    lambda args: wordings.sections(args.num_sections, args.section_spliter),
)
def _multiple_sections(response: str, args: Sections) -> bool:
    return sections(response, args.section_spliter) >= args.num_sections


@CONSTRAINTS.add(
    "detectable_format:json_format",
    NoArgs,
    "Give the whole answer as JSON; a ``` fence around it is allowed.",
    has_content=_json_content,
)
def _json_format(response: str, _: NoArgs) -> bool:
    return is_json(unfenced(response))


@CONSTRAINTS.add("detectable_format:title", NoArgs, wordings.TITLE, has_content=_more_than_title)
def _title_rule(response: str, _: NoArgs) -> bool:
    return has_title(response)


@CONSTRAINTS.add(
    "combination:two_responses", NoArgs, wordings.TWO_RESPONSES, has_content=_both_substantial
)
def _two_responses(response: str, _: NoArgs) -> bool:
    return two_responses(response) is not None
