"""Checks of the data: duplicates, contradictions, prompts that contain their reference."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from rlvr_core.api import Problem, RunData
from rlvr_core.builtin.doctor.report import Answer, Check, refused, share
from rlvr_core.builtin.doctor.rows import rows
from rlvr_core.builtin.doctor.subject import Subject, stated, text_of

LEAKED = 0.05
"""Maximum share of prompts that contain their reference: some do by chance."""
COPIES = 0.25
"""Maximum share of duplicates: data generated from few parts repeats itself."""
ONE_ANSWER = 0.9
"""Share of problems with the same reference above which one constant answer suffices."""
FEWEST = 8
"""Minimum problems for a share to be meaningful."""
FEWEST_HELD = 5
"""Minimum prompts with their reference in the same place."""

_LABEL = (
    r"\b(?:answer|solution|result|gold|hint|reference|ground[ _]truth|target|key)\b"
    r"(?:\s+is)?\W{0,6}"
)
TWICE = 0.05
"""Share of prompts that begin or end with the same text twice in a row, above which it counts as a
template."""
REACH = 600
"""Number of characters at either end of a prompt to search for a template."""
_AGAIN = re.compile(r"\s*(?=\W*\w{3})(\S.{3,}?)\s*\1", re.DOTALL)
"""Matches a text that begins with a repeated part; endings are matched on reversed text."""
MANY_LEFT_OUT = 0.1
"""Share of over-long prompts above which there is a warning, though the limit allows them."""


def _question_key(problem: Problem) -> str:
    """Return a key equal for equal problems: prompt without case and spacing, and world."""
    world = json.dumps(dict(problem.spec), sort_keys=True) if problem.environment else ""
    return " ".join(text_of(problem).casefold().split()).strip(" .?!:") + world


def _groups(subject: Subject) -> list[list[Problem]]:
    groups: dict[str, list[Problem]] = defaultdict(list)
    for problem in subject.problems:
        groups[_question_key(problem)].append(problem)
    return [group for group in groups.values() if len(group) > 1]


def _copies(subject: Subject) -> Answer:
    groups, n = _groups(subject), len(subject.problems)
    copies = sum(len(group) - 1 for group in groups)
    value = f"{share(copies, n)} problems repeat the prompt of another one under another id"
    if copies <= max(1, COPIES * n):
        return Answer("ok", value, data={"copies": copies, "problems": n})
    worst = max(groups, key=len)
    return Answer(
        "fail" if copies > n / 2 else "warn",
        f"{value}; {len(worst)} times that of {worst[0].id}",
        f"train on the {n - copies} different problems: remove copies from data.sources",
        data={"copies": copies, "problems": n},
    )


def _contradictions(subject: Subject) -> Answer | None:
    groups = _groups(subject)
    apart = []
    for group in groups:
        answers = {stated(problem) for problem in group} - {None}
        if len(answers) > 1:
            apart.append(group)
    if not apart:
        return Answer("ok", "no prompt has two references") if groups else None
    first = apart[0]
    named = ", ".join(f"{one.id}: {stated(one)}" for one in first[:3])
    return Answer(
        "fail",
        f"{len(apart)} prompts have several different references ({named})",
        "correct the references, or make the prompts say what distinguishes the problems",
        weight=120,
    )


def _variety(subject: Subject) -> Answer | None:
    answers = Counter(
        stated_answer for one in subject.problems if (stated_answer := stated(one)) is not None
    )
    total = answers.total()
    if total < 4 * FEWEST:
        return None
    (most, count), *_ = answers.most_common(1)
    value = f"{len(answers)} different references in {total} problems"
    if len(answers) == 1 or count > ONE_ANSWER * total:
        return Answer(
            "fail",
            f"{value}; {share(count, total)} are {most[:40]!r}: one answer earns the reward",
            "check which field of the data holds the reference (option answer of the source)",
        )
    return Answer("ok", value)


def _leaks(subject: Subject) -> Answer | None:
    """Check for references in prompts: after a label, as a whole, or always in the same place."""
    references = [one for one in subject.references if one.answer]
    if len(references) < FEWEST:
        return None
    labelled = [one for one in references if _labelled(text_of(one.problem), one.answer)]
    whole = [
        one
        for one in references
        if len(one.response) > len(one.answer) + 3 and one.response.strip() in text_of(one.problem)
    ]
    found = list({one.problem.id: one for one in [*labelled, *whole]}.values())
    how = ""
    if len(found) <= LEAKED * len(references):
        slots: Counter[str] = Counter()
        hits: Counter[str] = Counter()
        members: dict[str, list[str]] = defaultdict(list)
        for one in references:
            for slot, held in _slots(text_of(one.problem)):
                slots[slot] += 1
                if held == one.answer:
                    hits[slot] += 1
                    members[slot].append(one.problem.id)
        sure = [
            slot
            for slot, n in hits.items()
            if n >= FEWEST_HELD and n >= 0.2 * len(references) and n >= 0.8 * slots[slot]
        ]
        if not sure:
            return Answer("ok", f"{share(len(found), len(references))} prompts give it away")
        best = max(sure, key=lambda slot: hits[slot])
        how = f" ({best})"
        found = [one for one in references if one.problem.id in members[best]]
    return Answer(
        "fail",
        f"{share(len(found), len(references))} prompts hold their own reference{how}, such as "
        f"{found[0].problem.id}",
        "take the reference out of the prompt (data.sources, or the field that prompt names)",
        weight=130,
    )


def _labelled(prompt: str, answer: str) -> bool:
    pattern = _LABEL + re.escape(answer) + r"(?![\w]|[.,]\d)"
    return re.search(pattern, prompt, re.IGNORECASE) is not None


def _slots(prompt: str) -> Iterator[tuple[str, str]]:
    """Yield places in a frame around the question that may hold an answer, with their content."""
    words = prompt.split()
    if len(words) < 2:
        return
    for place, word in (("at the end", words[-1]), ("at the beginning", words[0])):
        inside = word.strip("().,;:[]")
        yield place, inside
        if inside and inside != word:  # perhaps only some prompts have this frame
            yield f"{place}, as {word.replace(inside, '...', 1)!r}", inside
    rest = Counter(word.casefold().strip("().,;:[]<>/?!") for word in words)
    for before, word in itertools.pairwise(words):
        frame = before.casefold().strip("().,;:[]<>/?!")
        # a word that the question repeats tells where to look: finding the answer is the task
        if frame.isalpha() and rest[frame] == 1:
            yield f"behind {frame!r}", word.strip("().,;:[]")


def _templates(subject: Subject) -> Answer | None:
    """Check for text repeated twice in a row around the question in many prompts."""
    found: Counter[tuple[str, str]] = Counter()
    for problem in subject.problems:
        text = text_of(problem)
        if twice := _AGAIN.match(text[:REACH]):
            found["before", twice[1].strip()] += 1
        if twice := _AGAIN.match(text[::-1][:REACH]):
            found["behind", twice[1][::-1].strip()] += 1
    n = len(subject.problems)
    ((place, template), count), *_ = found.most_common(1) or [(("", ""), 0)]
    if count < max(FEWEST, TWICE * n):
        return Answer("ok", "no prompt template was applied twice") if n >= FEWEST else None
    return Answer(
        "warn",
        f"{share(count, n)} prompts have {template[:60]!r} twice in a row {place} the question: a "
        "prompt template was applied twice",
        "apply it once, in the data or in data.sources",
    )


def _held_out(subject: Subject) -> list[Answer] | None:
    if not subject.held_out:
        return [
            Answer("note", "no eval task: eval.tasks would show whether what is learnt is general")
        ]
    try:
        reports = subject.prepared.resolved.host.check_data(
            RunData(
                model=subject.config.model.path,
                trained={"the training data": subject.problems},
                held_out=subject.held_out,
                max_contaminated=subject.limits.eval.max_contaminated,
                where=subject.prepared.resolved.where(("eval", "tasks")),
            )
        )
    except Exception as error:
        from rlvr_core.api import RlvrError

        if isinstance(error, RlvrError):
            return refused(error)
        raise
    lines = [line for report in reports for line in report.lines]
    return [Answer("ok", "; ".join(lines) or "nothing was found")]


def _overlong(subject: Subject) -> Answer:
    used = len(subject.problems)
    left_out = sum(len(source.left_out) for source in subject.prepared.sources)
    limit = subject.limits.data.max_overlong_share
    value = f"{share(left_out, used + left_out)} prompts are longer than data.max_prompt_tokens"
    if left_out > limit * (used + left_out):
        return Answer(
            "fail",
            f"{value} ({subject.limits.data.max_prompt_tokens}); the run refuses more than "
            f"{limit:g}",
            "raise data.max_prompt_tokens, or remove the long problems",
        )
    if left_out > MANY_LEFT_OUT * (used + left_out):
        return Answer(
            "warn",
            f"{value} ({subject.limits.data.max_prompt_tokens}) and are not trained on",
            "raise data.max_prompt_tokens: what is left is not the data set that was chosen",
        )
    return Answer("ok", value)


def _amount(subject: Subject) -> Answer:
    config = subject.limits
    prompts, n = config.train.prompts_per_step, len(subject.problems)
    passes = config.train.steps * prompts / max(n, 1)
    value = f"{n} problems; {config.train.steps} steps of {prompts} prompts are {passes:.3g} passes"
    if prompts > n:
        return Answer(
            "warn",
            f"{value}; a step has more prompts than there are problems",
            f"set train.prompts_per_step to {n} or less, or add problems",
        )
    return Answer("ok", value, data={"problems": n, "passes": passes})


def _divide(subject: Subject) -> Answer | None:
    train = subject.limits.train
    if train.mini_batches == 1:
        return None
    rest = train.prompts_per_step % train.mini_batches
    value = f"{train.prompts_per_step} prompts in {train.mini_batches} mini-batches"
    if rest:
        return Answer(
            "warn",
            f"{value}: they do not divide, so some updates see fewer groups than others",
            f"set train.prompts_per_step to a multiple of {train.mini_batches}",
        )
    return Answer("ok", value)


DATA: tuple[Check[Subject], ...] = (
    Check("data/copies", "Are the problems different from each other?", _copies),
    Check("data/contradictions", "Has every prompt one reference?", _contradictions),
    Check("data/references", "Do references differ between problems?", _variety),
    Check("data/leaks", "Are prompts silent about their references?", _leaks),
    Check("data/templates", "Is a prompt template applied once?", _templates),
    Check("data/rows", "Is each prompt the text of one row?", rows),
    Check("data/held_out", "Are eval problems absent from the training data?", _held_out),
    Check("data/overlong", "Do prompts fit data.max_prompt_tokens?", _overlong),
    Check("data/amount", "Are there enough problems for the run?", _amount),
    Check("data/mini_batches", "Do batch sizes divide?", _divide),
)
