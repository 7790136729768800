"""IFBench's constraints on layout and wording: lists, lines, options, templates, title case."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Annotated

import regex
from pydantic import Field, model_validator

from rlvr_ifeval.constraint import Args, Constraint, NoArgs, Word
from rlvr_ifeval.ifbench_text import AROUND, plain
from rlvr_ifeval.text import sentences, tokens

_LETTERED = re.compile(r"\W*[aA]\W*[bB]\W*[cC]\W*")
_EMOJI = regex.compile(r"(?V1)[\p{Emoji}--[#*0-9]--[\U0001f1e6-\U0001f1ff]]")
_LABELS = ("My Answer:", "My Conclusion:", "Future Outlook:")


class Options(Args):
    """What may be answered."""

    options: Word
    """The options, separated by slashes, by 'or', or by commas."""

    @model_validator(mode="after")
    def _several(self) -> Options:
        if len(self.choices) < 2:
            raise ValueError("fewer than two options; separate them by '/', 'or' or ','")
        return self

    @property
    def exact(self) -> bool:
        """Whether they are letters of a list, whose marks must be kept."""
        return _LETTERED.match(self.options) is not None

    @property
    def choices(self) -> list[str]:
        """The options, one by one; the letters ``or`` separate them, in a word too."""
        mark = "/" if "/" in self.options else "or" if "or" in self.options else ","
        return [part.strip() for part in self.options.split(mark)]


class Separator(Args):
    """What stands for bullets."""

    sep: Annotated[Word, Field(pattern=r"\S")]
    """The mark before each item."""


def _options(response: str, args: Options) -> bool:
    """Letters of a list are taken exactly."""
    if args.exact:
        return response in args.choices
    return response.strip(AROUND).lower() in {part.strip(AROUND).lower() for part in args.choices}


def _one_word_a_line(response: str, _: NoArgs) -> bool:
    """There are as many lines as words, a line of white space being one."""
    text = plain(response).strip()
    return sum(line != "" for line in text.split("\n")) == len(text.split())


def _is_emoji(char: str) -> bool:
    return _EMOJI.match(char) is not None


def _emoji(response: str, _: NoArgs) -> bool:
    """One of a sentence's last two characters is an emoji, or the next sentence's first one."""
    stripped = [plain(sentence).strip() for sentence in sentences(response)]
    if not all(stripped):
        # The script stops at the first sentence that fails, and an empty one does.
        return False
    return all(
        any(map(_is_emoji, sentence[-2:])) or _is_emoji(following[:1])
        for sentence, following in zip(stripped, [*stripped[1:], ""], strict=True)
    )


def _stairs(response: str, _: NoArgs) -> bool:
    """Of empty lines in a row every other one stays, and is a step without an indent.

    The script takes lines out of the list that it walks over: behind each empty line it skips
    one, and the line that it takes out is the first one like it.
    """
    lines = response.split("\n")
    taken: Counter[str] = Counter()
    at = 0
    while at < len(lines):
        blank = not lines[at].strip()
        taken[lines[at]] += blank
        at += 1 + blank
    seen: defaultdict[str, int] = defaultdict(int)
    indents = []
    for line in lines:
        seen[line] += 1
        if seen[line] > taken[line]:
            indents.append(len(line) - len(line.lstrip(" ")))
    return all(before < after for before, after in pairwise(indents))


def _listed(response: str, args: Separator) -> bool:
    """The mark is there twice, wherever it is."""
    return response.count(args.sep) >= 2


def _thesis(response: str, _: NoArgs) -> bool:
    """Text between an opening and a closing tag, and text behind them; ``<i>`` comes first."""
    start = response.find("<i>")
    start = response.find("<em>") if start < 0 else start
    rest = response[start:] if start >= 0 else ""
    end = rest.find("</i>")
    end = rest.find("</em>") if end < 0 else end
    return end >= 0 and rest[3:end].strip() != "" and rest[end + 4 :].strip() != ""


def _sub_bullets(response: str, _: NoArgs) -> bool:
    """Behind each asterisk there is a hyphen before the next asterisk."""
    return all("-" in part for part in response.split("*")[1:])


def _sentences_then_bullets(response: str, _: NoArgs) -> bool:
    """After an empty line, or among the bullet points, every line must be a bullet point."""
    before, bullets, text_may_follow = 0, 0, True
    for line in (line.strip() for line in response.split("\n")):
        if line.startswith("*"):
            if before < 2:
                return False
            bullets += 1
            text_may_follow = False
        elif not text_may_follow:
            return False
        else:
            before += len(sentences(line))
            text_may_follow = line != ""
    return bullets >= 2


def _title_case(response: str, _: NoArgs) -> bool:
    """No token begins small, unless capitals and small letters mix behind its first letter."""
    for token in tokens(response):
        if token[0].isalpha() and token[0].islower():
            rest = token[1:]
            if not rest or rest.isupper() or rest.islower():
                return False
    return True


def _template(response: str, _: NoArgs) -> bool:
    """The three labels occur, in any order."""
    return all(label in response for label in _LABELS)


def _no_whitespace(response: str, _: NoArgs) -> bool:
    return not any(char.isspace() for char in response)


CONSTRAINTS = (
    Constraint(
        "format:options",
        Options,
        _options,
        lambda args: f"Answer with one of these options and explain nothing: {args.options}",
    ),
    Constraint(
        "format:newline",
        NoArgs,
        _one_word_a_line,
        lambda _: "Put each word on its own line.",
    ),
    Constraint(
        "format:emoji",
        NoArgs,
        _emoji,
        lambda _: "End every sentence with an emoji.",
    ),
    Constraint(
        "format:line_indent",
        NoArgs,
        _stairs,
        lambda _: "Build stairs: indent every line more than the line before.",
    ),
    Constraint(
        "format:list",
        Separator,
        _listed,
        lambda args: f"Answer with a list whose items begin with {args.sep} in place of bullets.",
    ),
    Constraint(
        "format:thesis",
        NoArgs,
        _thesis,
        lambda _: "Begin each section with its thesis, in italics by HTML.",
    ),
    Constraint(
        "format:sub-bullets",
        NoArgs,
        _sub_bullets,
        lambda _: (
            "Write bullet points that begin with *, each with a sub-point that begins with -."
        ),
    ),
    Constraint(
        "format:no_bullets_bullets",
        NoArgs,
        _sentences_then_bullets,
        lambda _: (
            "Write two or more sentences that end in a period, and after them two or more bullet "
            "points that begin with *."
        ),
    ),
    Constraint(
        "format:title_case",
        NoArgs,
        _title_case,
        lambda _: "Write everything in title case: every major word begins with a capital.",
    ),
    Constraint(
        "format:output_template",
        NoArgs,
        _template,
        lambda _: (
            "Answer by this template: My Answer: [answer] My Conclusion: [conclusion] "
            "Future Outlook: [outlook]"
        ),
    ),
    Constraint(
        "format:no_whitespace",
        NoArgs,
        _no_whitespace,
        lambda _: "Use no spaces, line breaks or other white space.",
    ),
)
"""All of this family but brackets and quotes."""
