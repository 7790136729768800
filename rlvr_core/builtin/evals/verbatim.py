"""Finds held-out problems word for word in training prompts, whatever frame they were put into.

A problem is found where its words and signs stand in a prompt in their order, with nothing between
them, from one boundary to another: an end of a sentence or a line, a bracket, a quotation mark.
What frames are made of is a boundary or is not read: numbers and bullets of lists, comment signs,
quotes and tables of Markdown, tags of HTML, commands of LaTeX, markers of roles. Strings of JSON
and of code are read as what they stand for, too.
"""

from __future__ import annotations

import ast
import html
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress

LEAST_WORDS = 12
"""Words and signs that a problem must have to be known where it stands among others."""
_FIRST = 4
"""Words that a problem is looked up by."""
_DEEP = 2
"""Strings in strings: a row of JSON within another."""

_TOKEN = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)?|[^\w\s,.;:!?'\"$(){}\[\]]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_MARKS = str.maketrans("“”„«»‘’•", '""""""\'"')  # noqa: RUF001
_LINE = re.compile(r"^[^\S\n]*(?:(?:[>*+|;%#]{1,8}|-{1,3}|//+)(?:[^\S\n]+|$))+", re.MULTILINE)
"""Signs of comments, quotes and bullets at the beginning of a line."""
_FRAME = re.compile(
    r"""
      \\item\b(?:\s*\[[^\]\n]*\])?
    | \\(?:begin|end)\{(?:enumerate|itemize|quote|quotation|problem|exercise|question|center)\}
    | /\*+ | \*+/ | <!-- | -->
    | (?<!\w)(?:\*\*|__)(?=\S) | (?<=[\w.?!:$)])(?:\*\*|__)(?!\w)
    | <\|[^<>|\n]{1,40}\|>
    | </?(?:p|li|ol|ul|div|span|b|i|em|strong|br|h\d|td|tr|th|table|pre|code|blockquote|q|problem
        |question|prompt|user|instruction|input|task|text)(?:\s[\w-]+="[^"<>]*")*\s*/?>
    | (?<!\S)\|(?!\S)
    | ```\w* | `
    | (?=\b(?:answer|solution|response|output)\s*:)
    | (?<=\s)(?=\(?\d{1,3}\)\s)
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
_BEGIN = re.compile(r"[.?!:;)\]\"'({\n]")
_END = re.compile(r"[.?!:;)\]}\"'\n]|\$\$")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', re.DOTALL)
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|[\\\"'/ntr])")
_MEANS = {"n": "\n", "t": "\t", "r": "\n"}


class Words:
    """The words and signs of a text, and where a problem may begin and end in it.

    Args:
        text: The text.
    """

    def __init__(self, text: str) -> None:
        text = html.unescape(text) if "&" in text else text
        text = _THOUSANDS.sub("", _LINE.sub("\n", text.translate(_MARKS)))
        text = _FRAME.sub(' " ', text).casefold()
        self.words: list[str] = []
        self.begins: list[int] = []
        self._ends: set[int] = set()
        before = 0
        for found in _TOKEN.finditer(text):
            at = len(self.words)
            between = text[before : found.start()]
            if not at or _BEGIN.search(between):
                self.begins.append(at)
            if _END.search(between):
                self._ends.add(at)
            self.words.append(found[0])
            before = found.end()
        self._ends.add(len(self.words))

    def has(self, words: Sequence[str], at: int) -> bool:
        """Whether these words stand here, up to an end."""
        return at + len(words) in self._ends and self.words[at : at + len(words)] == words


class Verbatim:
    """Held-out problems that stand in a training prompt word for word.

    Args:
        held_out: Prompts without their frames.

    Attributes:
        found: For each the index of the first training prompt that holds it, or None. Problems of
            fewer than ``LEAST_WORDS`` words have none.
    """

    def __init__(self, held_out: Sequence[str]) -> None:
        self._problems = [Words(text).words for text in held_out]
        self._owners: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for index, words in enumerate(self._problems):
            if len(words) >= LEAST_WORDS:
                self._owners[tuple(words[:_FIRST])].append(index)
        self.found: list[int | None] = [None] * len(held_out)

    def read(self, row: int, text: str) -> None:
        """Take the next training prompt."""
        for one in readings(text):
            words = Words(one)
            for at in words.begins:
                for index in self._owners.get(tuple(words.words[at : at + _FIRST]), ()):
                    if self.found[index] is None and words.has(self._problems[index], at):
                        self.found[index] = row


def readings(text: str, depth: int = _DEEP) -> Iterator[str]:
    """Yield a text, what its strings stand for, and what it is if it was escaped itself."""
    yield text
    if not depth or "\\" not in text:
        return  # strings without escapes are read where they stand
    whole = _ESCAPED.sub(_meant, text)
    if whole != text:
        yield whole
    for found in _STRING.finditer(text):
        literal = found[0]
        if "\\" not in literal or len(literal) < LEAST_WORDS:
            continue
        value: object = None
        with suppress(ValueError, SyntaxError):
            value = json.loads(literal, strict=False)
        if value is None:
            with suppress(ValueError, SyntaxError, MemoryError):
                value = ast.literal_eval(literal)
        if isinstance(value, str) and value not in (text, whole):
            yield from readings(value, depth - 1)


def _meant(found: re.Match[str]) -> str:
    what = found[1]
    return chr(int(what[1:], 16)) if len(what) > 1 else _MEANS.get(what, what)
