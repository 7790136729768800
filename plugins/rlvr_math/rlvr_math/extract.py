r"""Where the final answer of a response stands outside of a box.

A place is ``<answer>`` tags, ``####``, a statement (``the answer is ...``), the last formula or the
last expression at all. The answer is a whole expression of ``rlvr_math.prose``, never a number cut
out of one. Everything here is linear in the text's length.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from rlvr_math import prose
from rlvr_math.boxes import Found, last_box
from rlvr_math.formulas import formulas
from rlvr_math.prose import Run
from rlvr_math.spelling import visible

_HEADING = re.compile(r"[ \t]*[.):][ \t]*\w")
_HASH = re.compile(r"####[ \t]*([^\n]*)")
_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_MARK = re.compile(
    r"\b(?:answer|result)[*\"'_]*(?: \d{1,2})?(?: is| was|\s?:| =)(?!\w)[ \t:*=\"'_]*"
    r"|\b(?:option|choice) is\b[ \t:*]*",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"\W*(?:(?:so|thus|hence) )?(?:(?:the|my) )?(?:(?:final|correct) )?\Z", re.I)
_ADVERB = re.compile(
    r"(?:\s*(?:therefore|thus|hence|then|simply|just|exactly|about|approximately|roughly|indeed"
    r"|equal to|given by|now|definitely|clearly|the (?:number|value)|in)\b[ :,]*)+",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[.!?](?=\s|\Z)")
_NOT = re.compile(r"\W*(?:(?:definitely |clearly |certainly )?not|never|anything but)\b", re.I)
_FALSE = re.compile(
    r"\b(?:false|wrong|incorrect|untrue|not (?:true|the case|correct)) (?:that|to say)\b[^.]*\Z",
    re.IGNORECASE,
)
_DENIAL = re.compile(
    r"\banswer(?:\*\*)?(?: is| was| can| could| must| should)?"
    r"(?: not|n['\N{RIGHT SINGLE QUOTATION MARK}]t|not)\b|\banswer differs\b",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"\b(?:can ?not|can['\u2019]t|could ?n[o'\u2019]t|unable to|not able to|do(?:es)? not"
    r"|don['\u2019]t|am not) (?:be )?"
    r"(?:determine|find|solve|answer|know|say|compute|sure|give|figure)\b"
    r"|\b(?:not|un)(?: )?able to (?:solve|find|determine|answer)",
    re.IGNORECASE,
)
_LONGEST = 2000


def tagged(text: str, first: bool = False) -> Found | None:
    """Return the content of the last (or first) ``<answer>...</answer>``; an unclosed one has none.

    Of a sentence in it the value counts.
    """
    contents: list[str] = []
    inside = -1
    for tag in _TAG.finditer(text) if "</" in text else ():
        if not tag[1]:
            inside = tag.end()
        elif inside >= 0:
            contents.append(text[inside : tag.start()].strip())
            inside = -1
            if first:
                break
    if not contents:
        return None
    return value_of(contents[-1], "answer tag")


def value_of(text: str, rule: str) -> Found:
    """The answer that a short text is or states."""
    if len(text) > _LONGEST:
        return Found(text, rule)
    if next(_marks(text), None):
        return stated(text) or Found(text, rule)
    formula = next(formulas(text), None)
    if formula and not text[: formula.start].strip(" *") and not text[formula.end :].strip(" *."):
        return Found(formula.content, rule)
    plain = _FORMULA.sub("", text)
    if _WORDS.search(plain) and "\\" not in plain and (statement := _statement(visible(text))):
        return Found(statement.text, rule, statement.prose)
    return Found(text, rule)


_FORMULA = re.compile(r"\$[^$]*\$|\\\([^()]*\\\)")
_WORDS = re.compile(r"\b[A-Za-z]{2,} [A-Za-z]+ ")


def hash_number(text: str, first: bool = False) -> Found | None:
    """The expression at the start of the last (or first) line after ``####``.

    A Markdown heading such as ``#### 1. Plan`` has none.
    """
    lines: list[str] = _HASH.findall(text) if "####" in text else []
    for line in lines if first else reversed(lines):
        expressions = prose.runs(visible(line[: prose.WINDOW]))
        if (
            expressions
            and not line[: expressions[0].start].strip(" *:=")
            and not expressions[0].denied
        ):
            if _HEADING.match(line, expressions[0].end):
                continue
            return _found(expressions[0], "####")
    return None


def _marks(text: str) -> Iterator[re.Match[str]]:
    """Where the text says that an answer follows."""
    folded = text.casefold()
    if "answer" in folded or "result" in folded or "option is" in folded or "choice is" in folded:
        yield from _MARK.finditer(text)


def stated(text: str, first: bool = False) -> Found | None:
    """Return the last (or first) result after ``answer is``: an expression if any, else text.

    The expression right after it counts, else the one after the last "is" of its sentence.
    """
    marks = list(_marks(text))
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    statements = list(zip(marks, ends, strict=True))
    for mark, end in statements if first else reversed(statements):
        block = visible(text[mark.end() : min(end, mark.end() + _LONGEST)])
        line = block.partition("\n")[0]
        if _BETWEEN.match(line) and (end < len(text) or not block.strip()):
            continue  # "Final Answer: The final answer is ...", or nothing at all
        if _FALSE.search(text, max(0, mark.start() - 80), mark.start()):
            continue
        if statement := _statement(block):
            return statement
    return None


def _statement(block: str) -> Found | None:
    """Return the result in the text after "the answer is"."""
    if (box := last_box(block)) and not block[: block.find("\\")].strip(" $*"):
        return Found(box.text, "answer is", True)
    start = re.match(r"[\s*_:]*", block)
    block = block[start.end() :] if start else block
    denied = _NOT.match(block)
    runs = [run for run in prose.runs(block, starts_line=False) if run.sentence == 0]
    if denied:
        return next((_found(run, "answer is") for run in runs if not run.denied), None)
    adverbs = _ADVERB.match(block)
    begin = adverbs.end() if adverbs else 0
    if runs and not block[begin : runs[0].start].strip(" *_\"'(:=") and not runs[0].partial:
        return None if runs[0].denied and len(runs) == 1 else _found(runs[0], "answer is")
    usable = [run for run in runs if not run.denied]
    if usable:
        after = [run for run in usable if re.search(r"\b(?:is|are|equals?|be|to)\W*\Z", run.before)]
        numbers = [run for run in usable if re.search(r"\d", run.text)]
        return _found((after[-1:] or numbers[:1] or usable)[0], "answer is")
    if runs:
        return None
    line = block.partition("\n")[0]
    content = _SENTENCE.split(line, maxsplit=1)[0].strip().strip("*_`\"'").rstrip(".").strip(" $*")
    return Found(content, "answer is") if content and not _REFUSAL.search(content) else None


def denied(text: str) -> bool:
    """Whether the text says that it gives no answer, or ends in what the answer is not."""
    tail = text[-_LONGEST:]
    if not any(word in tail for word in ("not", "n't", "n\u2019t", "nable", "differs")):
        return False
    if _REFUSAL.search(tail) and not deque(_marks(text), maxlen=1):
        return True
    last = deque(_DENIAL.finditer(text), maxlen=1) if "answer" in text.casefold() else ()
    return any(
        len(prose.runs(text[denial.start() : denial.end() + _LONGEST])) <= 1 for denial in last
    )


def _found(run: Run, rule: str) -> Found:
    if run.partial:
        return Found(
            f"{run.before.strip()[-60:]} {run.text} {run.after.strip()[:20]}".strip(), rule
        )
    return Found(run.text, rule, True)


def last_expression(text: str, first: bool = False, formula: bool = False) -> Found | None:
    """The last (or first) whole expression of a text.

    Args:
        text: The response.
        first: Whether the first one counts.
        formula: Whether only one with a formula in it counts; else it needs a number.
    """
    if not first and not formula and (plain := _LAST_LINE.search(text[-_SHORT:])):
        return Found(plain[1], "last number", True)
    text = visible(text)
    runs = iter(prose.runs(text[: prose.WINDOW])) if first else prose.iterate(text)
    rule = ("first " if first else "last ") + ("formula" if formula else "number")
    refused: Run | None = None
    for run in runs:
        if refused is not None and run.sentence != refused.sentence:
            break
        if run.question:
            continue
        if run.denied:
            refused = refused or run
        elif run.formula if formula else _has_value(run):
            return _found(run, rule)
    return Found(f"not {refused.text}", rule) if refused else None


_SHORT = 60
_LAST_LINE = re.compile(r"\n(?:[A-Z][a-z]*: )?(-?\$?\d{1,15}(?:\.\d{1,9})?)\.?\s{0,3}\Z")
"""The usual last line, which needs no closer look."""


def _has_value(run: Run) -> bool:
    return run.formula or bool(
        re.search(r"[\d\u221e\u2205\u03c0]|infinity|pi\b|[=<>+*/^]", run.text)
    )


def last_words(text: str) -> Found | None:
    """Return the result in the last sentence, if it has no expression."""
    sentences = [
        sentence
        for sentence in re.split(r"[.!?](?:\s|\Z)|\n", visible(text[-_LONGEST:]))
        if sentence.strip()
    ]
    if not sentences:
        return None
    if prose.runs(sentences[-1]):
        return None
    _, *rest = re.split(r"\b(?:is|are|was|has|have|equals|be)\b|:", sentences[-1])
    if not rest:
        return None
    words = rest[-1]
    words = re.sub(r"\A\s*(?:an?|the)\s+", "", words.strip(" *_`\"'"), flags=re.IGNORECASE)
    return Found(words, "last words") if words else None
