"""IFBench's constraints on layout and wording: lists, lines, options, templates, title case."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Annotated

import regex
from pydantic import Field, model_validator

from rlvr_ifeval.constraint import Args, Family, NoArgs, Word
from rlvr_ifeval.ifbench_text import AROUND, plain
from rlvr_ifeval.text import sentences, tokens

_LETTERED = re.compile(r"\W*[aA]\W*[bB]\W*[cC]\W*")
_EMOJI = regex.compile(r"(?V1)[\p{Emoji}--[#*0-9]--[\U0001f1e6-\U0001f1ff]]")
_LABELS = ("My Answer:", "My Conclusion:", "Future Outlook:")


CONSTRAINTS = Family()
"""All of this family but brackets and quotes."""


class Options(Args):
    """The allowed answers."""

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
    """The bullet characters."""

    sep: Annotated[Word, Field(pattern=r"\S")]
    """The mark before each item."""


@CONSTRAINTS.add(
    "format:options", Options, "Answer with one of these options and explain nothing: {options}"
)
def _options(response: str, args: Options) -> bool:
    """Letters of a list are taken exactly."""
    if args.exact:
        return response in args.choices
    return response.strip(AROUND).lower() in {part.strip(AROUND).lower() for part in args.choices}


@CONSTRAINTS.add("format:newline", NoArgs, "Put each word on its own line.")
def _one_word_a_line(response: str, _: NoArgs) -> bool:
    """There are as many lines as words, a line of white space being one."""
    text = plain(response).strip()
    return sum(line != "" for line in text.split("\n")) == len(text.split())


def _is_emoji(char: str) -> bool:
    return _EMOJI.match(char) is not None


@CONSTRAINTS.add("format:emoji", NoArgs, "End every sentence with an emoji.")
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


@CONSTRAINTS.add(
    "format:line_indent", NoArgs, "Build stairs: indent every line more than the line before."
)
def _stairs(response: str, _: NoArgs) -> bool:
    """Of empty lines in a row every other one stays, and is a step without an indent.

    The script takes lines out of the list that it walks over: after each empty line it skips
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


@CONSTRAINTS.add(
    "format:list", Separator, "Answer with a list whose items begin with {sep} in place of bullets."
)
def _listed(response: str, args: Separator) -> bool:
    """The mark is there twice, wherever it is."""
    return response.count(args.sep) >= 2


@CONSTRAINTS.add("format:thesis", NoArgs, "Begin each section with its thesis, in italics by HTML.")
def _thesis(response: str, _: NoArgs) -> bool:
    """Text between an opening and a closing tag, and text after them; ``<i>`` comes first."""
    start = response.find("<i>")
    start = response.find("<em>") if start < 0 else start
    rest = response[start:] if start >= 0 else ""
    end = rest.find("</i>")
    end = rest.find("</em>") if end < 0 else end
    return end >= 0 and rest[3:end].strip() != "" and rest[end + 4 :].strip() != ""


@CONSTRAINTS.add(
    "format:sub-bullets",
    NoArgs,
    "Write bullet points that begin with *, each with a sub-point that begins with -.",
)
def _sub_bullets(response: str, _: NoArgs) -> bool:
    """After each asterisk there is a hyphen before the next asterisk."""
    return all("-" in part for part in response.split("*")[1:])


@CONSTRAINTS.add(
    "format:no_bullets_bullets",
    NoArgs,
    "Write two or more sentences that end in a period, and after them two or more bullet "
    "points that begin with *.",
)
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


@CONSTRAINTS.add(
    "format:title_case",
    NoArgs,
    "Write everything in title case: every major word begins with a capital.",
)
def _title_case(response: str, _: NoArgs) -> bool:
    """No token begins small, unless capitals and small letters mix after its first letter."""
    for token in tokens(response):
        if token[0].isalpha() and token[0].islower():
            rest = token[1:]
            if not rest or rest.isupper() or rest.islower():
                return False
    return True


@CONSTRAINTS.add(
    "format:output_template",
    NoArgs,
    "Answer by this template: My Answer: [answer] My Conclusion: [conclusion] "
    "Future Outlook: [outlook]",
)
def _template(response: str, _: NoArgs) -> bool:
    """The three labels occur, in any order."""
    return all(label in response for label in _LABELS)


@CONSTRAINTS.add("format:no_whitespace", NoArgs, "Use no spaces, line breaks or other white space.")
def _no_whitespace(response: str, _: NoArgs) -> bool:
    return not any(char.isspace() for char in response)
