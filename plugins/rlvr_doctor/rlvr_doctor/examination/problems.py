"""Checks of the data: duplicates, contradictions, prompts that contain their answer, amounts."""

from __future__ import annotations

import re
from collections import Counter

from rlvr_core.api import Finding, RunData
from rlvr_doctor.examination.report import Check, share
from rlvr_doctor.examination.subject import Subject, by_prompt, text_of

LEAKED = 0.05
"""Maximum share of prompts that state their answer: some do by chance."""
COPIES = 0.25
"""Maximum share of duplicates: data generated from few parts repeats itself."""
ONE_ANSWER = 0.9
"""Share of problems with the same right answer above which one constant answer suffices."""
FEWEST = 8
"""Minimum problems for a share to be meaningful."""
MANY_LEFT_OUT = 0.1
"""Share of over-long prompts above which there is a warning, though the limit allows them."""


def _copies(subject: Subject) -> Finding:
    groups, n = by_prompt(subject.problems), len(subject.problems)
    copies = sum(len(group) - 1 for group in groups)
    text = f"{share(copies, n)} problems repeat the prompt of another one under another id"
    if copies <= max(1, COPIES * n):
        return Finding("data/copies", "ok", text)
    worst = max(groups, key=len)
    return Finding(
        "data/copies",
        "fail" if copies > n / 2 else "warn",
        f"{text}; {len(worst)} times that of {worst[0].id}",
        f"train on the {n - copies} different problems: remove copies from data.sources",
    )


def _contradictions(subject: Subject) -> Finding | None:
    """Check for prompts with several right answers, each under another id."""
    groups = by_prompt(subject.problems)
    if not groups:
        return None
    apart = [
        group for group in groups if len({subject.gold(problem) for problem in group} - {None}) > 1
    ]
    if not apart:
        return Finding("data/contradictions", "ok", "copies are judged alike")
    named = ", ".join(problem.id for problem in apart[0][:3])
    return Finding(
        "data/contradictions",
        "warn",
        f"{len(apart)} prompts have several different references ({named})",
        "correct the references, or make the prompts say what distinguishes the problems",
    )


def _variety(subject: Subject) -> Finding | None:
    answers = Counter(reference.answer for reference in subject.references)
    total = answers.total()
    if total < FEWEST:
        return None
    (most, count), *_ = answers.most_common(1)
    text = f"{len(answers)} different right answers to {total} problems"
    if count <= ONE_ANSWER * total:
        return Finding("data/answers", "ok", text)
    return Finding(
        "data/answers",
        "warn",
        f"{text}; {share(count, total)} are {most[:40]!r}: one answer earns the reward",
        "check which field of the data holds the reference (option answer of the source)",
    )


def _leaks(subject: Subject) -> Finding | None:
    """Check for prompts that state their answer behind a label, or hold the whole response."""
    references = [reference for reference in subject.references if reference.answer]
    if len(references) < FEWEST:
        return None
    leaking = []
    for reference in references:
        prompt = text_of(reference.problem)
        label = (
            r"\b(?:answer|solution)\s*(?:is|:|=)\s*"
            + re.escape(reference.answer)
            + r"(?![\w]|[.,]\d)"
        )
        whole = (
            len(reference.response) > len(reference.answer) + 3
            and reference.response.strip() in prompt
        )
        if whole or re.search(label, prompt, re.IGNORECASE):
            leaking.append(reference.problem.id)
    text = f"{share(len(leaking), len(references))} prompts state their own answer"
    if len(leaking) <= LEAKED * len(references):
        return Finding("data/leaks", "ok", text)
    return Finding(
        "data/leaks",
        "fail",
        f"{text}, such as {leaking[0]}",
        "take the answer out of the prompt (data.sources, or the field that prompt names)",
    )


def _held_out(subject: Subject) -> Finding:
    if not subject.held_out:
        what = "no eval task: eval.tasks would show whether what is learnt is general"
        return Finding("data/held_out", "note", what)
    reports = subject.prepared.resolved.host.check_data(
        RunData(
            model=subject.config.model.path,
            trained={"the training data": subject.problems},
            held_out=subject.held_out,
            max_contaminated=1.0,  # reported here, not refused
            where=subject.prepared.resolved.where(("eval", "tasks")),
        )
    )
    lines = [line for report in reports for line in report.lines]
    remedy = "take other problems for one of the two"
    if any("warning: " in line for line in lines):
        return Finding("data/held_out", "fail", "; ".join(lines), remedy)
    return Finding("data/held_out", "ok", "; ".join(lines) or "nothing was found")


def _overlong(subject: Subject) -> Finding:
    used, section = len(subject.problems), subject.limits.data
    left_out = sum(len(source.left_out) for source in subject.prepared.sources)
    text = (
        f"{share(left_out, used + left_out)} prompts are longer than data.max_prompt_tokens "
        f"({section.max_prompt_tokens})"
    )
    remedy = "raise data.max_prompt_tokens, or remove the long problems"
    if left_out > section.max_overlong_share * (used + left_out):
        what = f"{text}; the run refuses more than {section.max_overlong_share:g}"
        return Finding("data/overlong", "fail", what, remedy)
    if left_out > MANY_LEFT_OUT * (used + left_out):
        return Finding("data/overlong", "warn", f"{text} and are not trained on", remedy)
    return Finding("data/overlong", "ok", text)


def _amount(subject: Subject) -> Finding:
    train, n = subject.limits.train, len(subject.problems)
    passes = train.steps * train.prompts_per_step / max(n, 1)
    text = f"{n} problems; {train.steps} steps of {train.prompts_per_step} are {passes:.3g} passes"
    if train.prompts_per_step <= n:
        return Finding("data/amount", "ok", text)
    return Finding(
        "data/amount",
        "warn",
        f"{text}; a step has more prompts than there are problems",
        f"set train.prompts_per_step to {n} or less, or add problems",
    )


def _divide(subject: Subject) -> Finding | None:
    train = subject.limits.train
    if train.prompts_per_step % train.mini_batches == 0:
        return None
    return Finding(
        "data/mini_batches",
        "warn",
        f"{train.prompts_per_step} prompts in {train.mini_batches} mini-batches: they do not "
        "divide, so some updates see fewer groups than others",
        f"set train.prompts_per_step to a multiple of {train.mini_batches}",
    )


DATA: tuple[Check[Subject], ...] = (
    ("data/copies", _copies),
    ("data/contradictions", _contradictions),
    ("data/answers", _variety),
    ("data/leaks", _leaks),
    ("data/held_out", _held_out),
    ("data/overlong", _overlong),
    ("data/amount", _amount),
    ("data/mini_batches", _divide),
)
