"""Checks of a batch beside references and other rewards, and of eval tasks beside the training."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import comb
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from rlvr_core.builtin.doctor.consensus import last_answer
from rlvr_core.builtin.doctor.report import Answer, Check, outweighing, share
from rlvr_core.builtin.doctor.subject import stated, text_of

if TYPE_CHECKING:
    from rlvr_core.builtin.doctor.batch import Batch

OUTWEIGHS = 2.0
"""Factor by which the spread of another reward within groups may exceed that of the outcome."""
NEVER = 0.02
"""Share of answers that are the reference of some problem, below which they are of another kind."""
LESS, RARE = 2.0, 1e-3
"""Factor by which an eval task may be passed less often, and the chance of an error about it."""


def _outweighed(batch: Batch) -> Answer | None:
    """Compare the spread that each reward has within groups, by its weight."""
    weights = batch.subject.prepared.judge.plan.weights(0)
    spreads: dict[str, list[float]] = defaultdict(list)
    mains = {batch.main(group) for group in batch.groups}
    for group in batch.groups:
        names = batch.subject.prepared.judge.plan.names(group.problem)
        for name, weight in zip(names, weights, strict=True):
            scores = [m.verdicts[name].score for m in group.members if name in m.verdicts]
            known = [score for score in scores if score is not None]
            if len(known) > 1:
                spreads[name].append(abs(weight) * pstdev(known))
    sizes = {name: fmean(some) for name, some in spreads.items()}
    main = max((sizes[name] for name in mains if name in sizes), default=0.0)
    others = {name: size for name, size in sizes.items() if name not in mains}
    found = outweighing(main, others, OUTWEIGHS)
    if found is None or not batch.judged_enough:
        return None
    name, most, outweighs = found
    value = f"within groups the outcome varies by {main:.2g}, {name} by {most:.2g}"
    if outweighs:
        return Answer(
            "warn",
            f"{value}: it outweighs the outcome, and decides which completions are learnt",
            f"lower the weight of {name}, and check its sign",
            weight=118,
        )
    return Answer("ok", value)


def _kind(batch: Batch) -> Answer | None:
    """Check whether answers are of the kind of the references, where none of them is right."""
    if not batch.judged_enough or any(member.passed for member in batch.members) or batch.noisy:
        return None
    references = {(stated(one) or "").strip() for one in batch.subject.problems} - {""}
    if not references:
        return None
    numbers = {found for one in references if (found := last_answer(one))}
    answers = []
    for group in batch.groups:
        for member in group.members:
            verdict = member.verdicts.get(batch.main(group))
            read = (verdict.extracted or "").strip() if verdict else ""
            answers.append(read if 0 < len(read) <= 40 else last_answer(batch.first_part(member)))
    answers = [one for one in answers if one]
    if len(answers) < len(batch.members) / 2:
        return None
    hits = sum(one in references or last_answer(one) in numbers for one in answers)
    value = f"{share(hits, len(answers))} answers are the reference of any problem"
    if hits > NEVER * len(answers):
        return Answer("ok", value)
    some, one = (
        sorted(references, key=len)[len(references) // 2],
        sorted(answers)[len(answers) // 2],
    )
    return Answer(
        "fail",
        f"{value}: references are of another kind ({some[:40]!r}) than answers ({one[:40]!r})",
        "check which field of the data holds the reference (data.sources, option spec), its unit "
        "and its form",
        weight=122,
    )


def frame(texts: Sequence[str]) -> tuple[str, str]:
    """Return what all texts begin with, and what all end with."""
    return _start(texts).strip(), _start([text[::-1] for text in texts])[::-1].strip()


def _start(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)  # what these two share, all between them have
    same = (at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1])
    return first[: next(same, min(len(first), len(last)))]


def less_often(hits: int, n: int, rate: float) -> bool:
    """Whether so few hits would come at this rate, or even half of it, less than 1 in 1000."""
    rate /= LESS
    chance = sum(comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(hits + 1))
    return chance < RARE


def _asked_otherwise(batch: Batch) -> list[Answer] | None:
    """Compare how the model answers eval tasks with how it answers the training's problems.

    A task of the same verifier that puts its problems in another frame, and is hardly ever passed,
    measures the frame. A harder task in the same frame does not count.
    """
    main, members = batch.subject.main, batch.members
    verifiers = {main(group.problem) for group in batch.groups}
    trained = frame([text_of(group.problem) for group in batch.groups])
    passed = sum(bool(member.passed) for member in members)
    rate = passed / len(members)
    found = []
    for task, groups in batch.asked.items():
        asked = [member for group in groups for member in group.members]
        hits = sum(bool(member.passed) for member in asked)
        value = (
            f"{task}: {share(hits, len(asked))} pass, of the training's problems {100 * rate:.3g} %"
        )
        own = frame([text_of(group.problem) for group in groups])
        same = {main(group.problem) for group in groups} <= verifiers
        if same and own != trained and less_often(hits, len(asked), rate):
            found.append(
                Answer(
                    "warn",
                    f"{value}; its prompts stand between {_cut(own[0])} and {_cut(own[1])}, those "
                    f"of the training between {_cut(trained[0])} and {_cut(trained[1])}",
                    "ask eval problems as the training's are asked (template or style of the task)",
                    weight=86,
                )
            )
        else:
            found.append(Answer("ok", value))
    return found or None


def _cut(text: str) -> str:
    return repr(text if len(text) <= 30 else f"{text[:12]}...{text[-12:]}")


COMPARING: tuple[Check[Batch], ...] = (
    Check("batch/kind", "Are references of the kind that the model answers?", _kind),
    Check("batch/weights", "Does the outcome weigh most in a group?", _outweighed),
    Check("eval/style", "Are eval tasks answered like the training's problems?", _asked_otherwise),
)
