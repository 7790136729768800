"""Compares the answers that groups agree on with the references."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance
from typing import TYPE_CHECKING

from rlvr_core.api import Group, Judged
from rlvr_core.builtin.doctor.report import Answer, at_first, share
from rlvr_core.builtin.doctor.subject import NUMBER
from rlvr_core.builtin.doctor.weight_files import damage

if TYPE_CHECKING:
    from rlvr_core.builtin.doctor.batch import Batch

FEW_GROUPS, RARE = 8, 0.25
"""Fewest groups that agree, and fewest of all groups as a share, to judge by them."""
SHORT = 24
"""Maximum characters of a word to compare; longer answers have several forms."""
MANY = 10
"""With fewer different references, such as letters, agreement on a wrong one is likely."""
LIMIT = 0.2
"""Maximum share of choices that differ from the reference: models can be consistently wrong."""
LESS_SURE = 2.0
"""Standard errors by which the votes of choices against the reference may be fewer than others'."""
FEW = 3
"""Minimum choices that differ from the reference for a warning."""
NORMAL, RISK = 0.02, 0.02
"""Share of choices that differ from right references where the model is as sure of them as of right
ones, and the chance of as many at which there is a warning."""


@dataclass(frozen=True, slots=True)
class Vote:
    """The choice of a group.

    Attributes:
        answer: The answer.
        right: Whether it equals the reference.
        passed: Number of completions that passed, whatever their answer.
        share: Its share of the votes.
    """

    answer: str
    right: bool
    passed: int
    share: float = 1.0


def last_answer(text: str) -> str:
    """Return the last number of a text, or else its last word."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", text.replace(",", ""))
    words = text.split()
    return numbers[-1] if numbers else words[-1].strip(" .$") if words else ""


def taken(batch: Batch, group: Group, member: Judged) -> str:
    """Return the answer of a completion: the verifier's extracted one, else its last number.

    Text after the first special token is ignored, since the model had ended its answer there. The
    result is empty if the reference is neither a number nor a short word, and for a completion that
    was cut off before its answer, unless all were.
    """
    reference = batch.references.get(group.problem.id)
    expected = reference.answer.strip(" .$") if reference is not None else ""
    if not (NUMBER.fullmatch(expected) or (expected.isalnum() and len(expected) <= SHORT)):
        return ""
    verdict = member.verdicts.get(batch.main(group))
    found = (verdict.extracted or "").strip() if verdict else ""
    text = batch.first_part(member)
    if found and found != member.completion.text.strip() and found in text:
        return found if len(found) <= SHORT else ""
    if member.completion.finish_reason == "length" and batch.ends:
        return ""
    return last_answer(text) if NUMBER.fullmatch(expected) else ""


def vote(batch: Batch, group: Group, more: tuple[Judged, ...] = ()) -> Vote | None:
    """Return the answer that a group agrees on; None if no answer leads clearly."""
    passed: Counter[str] = Counter()
    answers = []
    for member in (*group.members, *more):
        if answer := taken(batch, group, member):
            answers.append(answer)
            passed[answer] += bool(member.passed)
    if not answers:
        return None
    [(choice, votes)] = Counter(answers).most_common(1)
    if 2 * votes <= len(answers) or votes < 2:
        return None
    right = 2 * passed[choice] > votes
    reference = batch.references.get(group.problem.id)
    if not batch.distinguishes and reference is not None and NUMBER.fullmatch(choice):
        # a verifier that passes all or nothing is no evidence about the reference
        right = choice == reference.answer.strip(" .$")
        return Vote(choice, right, int(right), votes / len(answers))
    return Vote(choice, right, passed.total(), votes / len(answers))


def consensus(batch: Batch) -> Answer | None:
    """Judge whether groups that agree on an answer agree with the reference."""
    more: dict[str, tuple[Judged, ...]] = defaultdict(tuple)
    for group in batch.more:
        more[group.problem.id] += group.members
    found = [
        (group.problem.id, vote(batch, group, more[group.problem.id])) for group in batch.groups
    ]
    if len({one.answer for one in batch.references.values()}) < MANY:
        return None
    if batch.noisy:
        return Answer("note", "completions are noise: what they agree on says nothing")
    chosen = [(id_, one) for id_, one in found if one is not None]
    against = [(id_, one) for id_, one in chosen if not one.right and one.passed == 0]
    # where few groups agree the model guesses, and may guess the same wrong answer
    if len(chosen) < max(FEW_GROUPS, RARE * len(found)):
        return Answer("note", f"{len(chosen)} groups agree on an answer: too few to judge")
    value = f"{share(len(against), len(chosen))} groups that agree choose another answer"
    if too_many([one for _, one in against], [one for _, one in chosen if one.right], len(chosen)):
        if broken := damage(batch.subject):
            what = f"{value} than the reference, and the model is broken: {broken}"
            return Answer("note", what)
        some = at_first([f"{id_}: {one.answer!r}" for id_, one in against])
        return Answer(
            "warn",
            f"{value} than the reference ({some})",
            "check the references of these problems: many may be wrong, or of a wrong field",
            weight=85,
        )
    return Answer("ok", value)


def too_many(against: Sequence[Vote], right: Sequence[Vote], n: int) -> bool:
    """Return whether more choices differ from the reference than from right references.

    A model errs in one way often, but is less sure where it errs, and errs alike everywhere. Of
    choices that are as sure as the right ones, and differ, a few are too many.

    Args:
        against: Choices that differ from the reference.
        right: Choices that equal it.
        n: Number of choices.
    """
    k = len(against)
    if k < FEW:
        return False
    if k > LIMIT * n:
        return True
    if tail(k, n, NORMAL) > RISK or len({one.answer for one in against}) <= k / 2:
        return False
    shares, others = [one.share for one in against], [one.share for one in right]
    if len(others) < FEW:
        return False
    spread = math.sqrt(pvariance([*shares, *others]) * (1 / k + 1 / len(others)))
    return fmean(shares) >= fmean(others) - LESS_SURE * spread


def tail(k: int, n: int, rate: float) -> float:
    """Return the chance of k or more of n at a rate."""
    few = sum(math.comb(n, at) * rate**at * (1 - rate) ** (n - at) for at in range(k))
    return 1 - few
