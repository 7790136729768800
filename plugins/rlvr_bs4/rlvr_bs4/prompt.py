"""The prompt of a single answer: question, form of the answer, rules, pages.

It has the same parts for every task. Nothing in it depends on the truth, on whether there is one,
or on the archetype.
"""

from __future__ import annotations

from rlvr_bs4.schema import describe
from rlvr_bs4.task import REASONS, Task

_RULES = """\
Answer with one JSON object at the end, nothing after it:
{"status": "ok", "answer": ...}
If, and only if, the HTML does not hold the answer, say so instead:
{"status": "limit", "answer": null, "limit": {"reason": ..., "evidence": ...}}
The reason is one of these: {reasons}. The evidence is a short piece copied from the HTML, the \
address, call or text that shows what is missing.
Never repeat passwords, tokens or other secret values that a page holds."""


def rules() -> str:
    """How to answer; the same for every task."""
    reasons = "; ".join(f'"{name}" ({meaning})' for name, meaning in REASONS.items())
    return _RULES.replace("{reasons}", reasons)


def ask(task: Task) -> str:
    """Question and form of the answer."""
    return f"Question: {task.question}\nThe answer is {describe(task.schema)}."


def single(task: Task) -> str:
    """The whole prompt, with all pages of the task in it."""
    pages = "\n".join(
        f"=== PAGE {url} ===\n{html.rstrip()}"
        for url, html in sorted(task.pages.items(), key=lambda page: (page[0] != task.start, page))
    )
    return (
        "Answer a question about a web site from its HTML.\n"
        f"{ask(task)}\n{rules()}\n\n{pages}\n=== END ===\nAnswer:"
    )
