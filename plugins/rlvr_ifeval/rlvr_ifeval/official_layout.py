"""IFBench's constraints on sentences, layout, quotes and repetition, as its script judges them."""

from __future__ import annotations

import re
import string
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import regex

from rlvr_ifeval.constraint import NoArgs
from rlvr_ifeval.ifbench_format import Options, Separator
from rlvr_ifeval.ifbench_repeat import Repeat, Span
from rlvr_ifeval.ifbench_sentence import Increment, KeywordInSentence
from rlvr_ifeval.official_text import AROUND, plain, sentences, tokens, words

_EMOJI = regex.compile(r"(?V1)[\p{Emoji}--[#*0-9]--[\U0001f1e6-\U0001f1ff]]")
_LETTERED = re.compile(r"\W*[aA]\W*[bB]\W*[cC]\W*")
_AROUND_QUOTES = string.digits + string.punctuation.replace('"', "")
_LABELS = ("My Answer:", "My Conclusion:", "Future Outlook:")


def alliteration(response: str, _: NoArgs) -> bool:
    """All runs of a sentence are added up."""
    counts = []
    for sentence in sentences(response):
        found = [bare for word in sentence.lower().split() if (bare := word.lstrip(AROUND))]
        same = [one[0] == two[0] for one, two in pairwise(found)]
        starts = sum(now and not before for before, now in pairwise([False, *same]))
        counts.append(sum(same) + starts)
    return all(one < two for one, two in pairwise(counts))


def keyword(response: str, args: KeywordInSentence) -> bool:
    """Between word boundaries, so that a keyword that ends in a mark is hardly found."""
    found = sentences(response)
    pattern = rf"\b{re.escape(args.word)}\b"
    return len(found) >= args.N and re.search(pattern, found[args.N - 1], re.IGNORECASE) is not None


def increment(response: str, args: Increment) -> bool:
    """A dash without spaces joins two words."""
    lengths = [len(words(sentence)) for sentence in sentences(response)]
    return all(two - one == args.small_n for one, two in pairwise(lengths))


def options(response: str, args: Options) -> bool:
    """The letters ``or`` separate options, in a word too; letters of a list are taken exactly."""
    mark = "/" if "/" in args.options else "or" if "or" in args.options else ","
    choices = [part.strip() for part in args.options.split(mark)]
    if _LETTERED.match(args.options):
        return response in choices
    return response.strip(AROUND).lower() in {part.strip(AROUND).lower() for part in choices}


def one_word_a_line(response: str, _: NoArgs) -> bool:
    """There are as many lines as words, a line of white space being one."""
    text = plain(response).strip()
    return sum(line != "" for line in text.split("\n")) == len(text.split())


def _is_emoji(char: str) -> bool:
    return _EMOJI.match(char) is not None


def emoji(response: str, _: NoArgs) -> bool:
    """One of a sentence's last two characters is an emoji, or the next sentence's first one."""
    found = [plain(sentence).strip() for sentence in sentences(response)]
    if not all(found):
        # The script stops at the first sentence that fails, and an empty one does.
        return False
    return all(
        any(map(_is_emoji, sentence[-2:])) or _is_emoji(following[:1])
        for sentence, following in zip(found, [*found[1:], ""], strict=True)
    )


def stairs(response: str, _: NoArgs) -> bool:
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
    return all(one < two for one, two in pairwise(indents))


def listed(response: str, args: Separator) -> bool:
    """The mark is there twice, wherever it is."""
    return response.count(args.sep) >= 2


def thesis(response: str, _: NoArgs) -> bool:
    """Text between an opening and a closing tag, and text behind them; ``<i>`` comes first."""
    start = response.find("<i>")
    start = response.find("<em>") if start < 0 else start
    rest = response[start:] if start >= 0 else ""
    end = rest.find("</i>")
    end = rest.find("</em>") if end < 0 else end
    return end >= 0 and rest[3:end].strip() != "" and rest[end + 4 :].strip() != ""


def sub_bullets(response: str, _: NoArgs) -> bool:
    """Behind each asterisk there is a hyphen before the next asterisk."""
    return all("-" in part for part in response.split("*")[1:])


def sentences_then_bullets(response: str, _: NoArgs) -> bool:
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


def title_case(response: str, _: NoArgs) -> bool:
    """No token begins small, unless capitals and small letters mix behind its first letter."""
    for token in tokens(response):
        if token[0].isalpha() and token[0].islower():
            rest = token[1:]
            if not rest or rest.isupper() or rest.islower():
                return False
    return True


def template(response: str, _: NoArgs) -> bool:
    """The three labels occur, in any order."""
    return all(label in response for label in _LABELS)


def quotes(response: str, _: NoArgs) -> bool:
    """Straight marks alone, apostrophes among them; the depth once reached is never forgotten."""
    opened: list[str] = []
    deepest = 0
    for char in response:
        if opened and char == opened[-1]:
            opened.pop()
            if deepest - len(opened) >= 3:
                return True
        elif char in "\"'":
            opened.append(char)
            deepest = max(deepest, len(opened))
    return False


def explained(response: str, _: NoArgs) -> bool:
    """Straight marks alone."""
    text = "".join(response.replace("'\"'", "").split())
    return '""' not in text and not text.strip(_AROUND_QUOTES).endswith('"')


def changed(response: str, args: Repeat) -> bool:
    """All words but the first are the same; another spacing is change enough."""
    asked = args.prompt_to_repeat
    return asked != response and asked.split()[1:] == response.split()[1:]


def span(response: str, args: Span) -> bool:
    """The indices count characters."""
    return response.strip().lower() == args.by_characters


OFFICIAL: dict[str, Callable[[str, Any], bool]] = {
    "sentence:alliteration_increment": alliteration,
    "sentence:keyword": keyword,
    "sentence:increment": increment,
    "format:options": options,
    "format:newline": one_word_a_line,
    "format:emoji": emoji,
    "format:line_indent": stairs,
    "format:list": listed,
    "format:thesis": thesis,
    "format:sub-bullets": sub_bullets,
    "format:no_bullets_bullets": sentences_then_bullets,
    "format:title_case": title_case,
    "format:output_template": template,
    "format:quotes": quotes,
    "format:quote_unquote": explained,
    "repeat:repeat_change": changed,
    "repeat:repeat_span": span,
}
"""The checks of this family that differ from a strict reading of the instruction."""
