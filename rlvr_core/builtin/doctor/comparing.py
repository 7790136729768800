"""Checks of a batch beside references and other rewards, and of eval tasks beside the training."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, median, pstdev
from typing import TYPE_CHECKING

from rlvr_core.api import Group
from rlvr_core.builtin.doctor.consensus import last_answer
from rlvr_core.builtin.doctor.report import Answer, Check, share
from rlvr_core.builtin.doctor.subject import stated

if TYPE_CHECKING:
    from rlvr_core.builtin.doctor.batch import Batch

OUTWEIGHS = 2.0
"""Factor by which the spread of another reward within groups may exceed that of the outcome."""
NEVER = 0.02
"""Share of answers that are the reference of some problem, below which they are of another kind."""
FAR = 0.5
"""Share of the training's rate of answers found, below which an eval task is asked otherwise."""
CUT = 0.3
"""Share of answers to an eval task that may be cut off."""


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
    if not others or not main or not batch.judged_enough:
        return None
    name, most = max(others.items(), key=lambda item: item[1])
    value = f"within groups the outcome varies by {main:.2g}, {name} by {most:.2g}"
    if most > OUTWEIGHS * main:
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


def found_share(groups: list[Group], main: dict[str, str]) -> tuple[int, int]:
    """Count the completions in which the deciding verifier found an answer, and all it told of."""
    found = n = 0
    for group in groups:
        for member in group.members:
            verdict = member.verdicts.get(main[group.problem.id])
            if verdict is None:
                continue
            known = verdict.parts.get("extracted")
            n += 1
            found += bool(known) if known is not None else verdict.extracted is not None
    return found, n


def _asked_otherwise(batch: Batch) -> list[Answer] | None:
    """Compare how the model answers eval tasks with how it answers the training's problems."""
    if not batch.asked:
        return None
    main = batch.subject.main
    trained, n_trained = found_share(
        batch.groups, {g.problem.id: main(g.problem) for g in batch.groups}
    )
    ours = {main(group.problem) for group in batch.groups}
    length = median(len(member.completion.token_ids) for member in batch.members)
    found = []
    for task, groups in batch.asked.items():
        members = [member for group in groups for member in group.members]
        cut = sum(member.completion.finish_reason == "length" for member in members)
        own_length = median(len(member.completion.token_ids) for member in members)
        hits, n = found_share(groups, {g.problem.id: main(g.problem) for g in groups})
        value = (
            f"{task}: an answer was found in {share(hits, n)}, median {own_length:g} tokens (training "
            f"{length:g}), {cut} cut off"
        )
        same = {main(group.problem) for group in groups} <= ours
        base = trained / n_trained if n_trained else 0.0
        cut_before = sum(m.completion.finish_reason == "length" for m in batch.members)
        differs = same and base >= 0.5 and hits < FAR * base * n
        more_cut = same and cut > CUT * len(members) and cut_before <= 0.1 * len(batch.members)
        if differs or more_cut:
            found.append(
                Answer(
                    "warn",
                    f"{value}; of the training's {share(trained, n_trained)}: the task's prompts are "
                    "of another style than those trained on",
                    "ask eval problems as the training's are asked (template or style of the task)",
                    weight=86,
                )
            )
        else:
            found.append(Answer("ok", value))
    return found


COMPARING: tuple[Check[Batch], ...] = (
    Check("batch/kind", "Are references of the kind that the model answers?", _kind),
    Check("batch/weights", "Does the outcome weigh most in a group?", _outweighed),
    Check("eval/style", "Are eval tasks answered like the training's problems?", _asked_otherwise),
)
