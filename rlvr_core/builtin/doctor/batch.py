"""Checks of one sampled batch: answers of the untrained policy, and their rewards."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import log
from statistics import fmean
from typing import TYPE_CHECKING

from rlvr_core.api import Completion, Group, Judged
from rlvr_core.api.services import REWARD_TOLERANCE
from rlvr_core.builtin.doctor.comparing import COMPARING
from rlvr_core.builtin.doctor.consensus import consensus, last_answer
from rlvr_core.builtin.doctor.endings import ENDINGS
from rlvr_core.builtin.doctor.report import Answer, Check, share
from rlvr_core.builtin.doctor.subject import NUMBER, Reference, Subject

if TYPE_CHECKING:
    from rlvr_core.api.services import Generator

NEAR_CHANCE = 0.6
"""Share of the surprise of uniform sampling (log of vocabulary size) that no trained model has."""
ENOUGH = 96
"""Minimum completions to judge rates; with fewer, rates are only reported."""


@dataclass
class Batch:
    """Completions of the initial policy.

    Attributes:
        subject: The run.
        groups: The judged groups.
        generator: Samples further completions.
        longer: New completions of problems with truncated ones, with a higher token cap.
        references: The references of the problems, by id.
        more: Further completions of the same problems, for a vote.
        asked: Completions of some problems of each eval task.
    """

    subject: Subject
    groups: list[Group]
    generator: Generator
    longer: list[Completion] = field(default_factory=list)
    references: dict[str, Reference] = field(default_factory=dict)
    more: list[Group] = field(default_factory=list)
    asked: dict[str, list[Group]] = field(default_factory=dict)

    @property
    def members(self) -> list[Judged]:
        """Every completion."""
        return [member for group in self.groups for member in group.members]

    @property
    def judged_enough(self) -> bool:
        """Whether there are enough completions to judge rates."""
        return len(self.members) >= ENOUGH

    def main(self, group: Group) -> str:
        """Return the verifier that decides a group's outcomes."""
        return self.subject.main(group.problem)

    @property
    def distinguishes(self) -> bool:
        """Whether some completions pass and some do not."""
        return len({bool(member.passed) for member in self.members}) > 1

    @property
    def surprise(self) -> float:
        """Mean surprise (minus log-prob) of a sampled token, in nats; 0 without log-probs."""
        logps = [logp for member in self.members for logp in member.completion.logprobs]
        return -fmean(logps) if logps else 0.0

    @property
    def noisy(self) -> bool:
        """Whether tokens are nearly random."""
        return self.surprise > NEAR_CHANCE * log(max(2, len(self.subject.tokenizer)))

    @property
    def ends(self) -> bool:
        """Whether most completions end before the token cap."""
        cut = sum(member.completion.finish_reason == "length" for member in self.members)
        return 2 * cut < len(self.members)

    def first_part(self, member: Judged) -> str:
        """Return a completion's text up to its first special token."""
        ids, renderer = member.completion.token_ids, self.subject.prepared.renderer
        end = next((at for at, id_ in enumerate(ids) if renderer.is_end(id_)), None)
        if end is None or end >= len(ids) - 1:
            return member.completion.text
        return str(self.subject.tokenizer.decode(list(ids[:end])))

    @property
    def passed_over(self) -> Counter[str]:
        """Special tokens that completions continued after, with the number of completions."""
        renderer, names = self.subject.prepared.renderer, Counter[str]()
        for member in self.members:
            inside = {id_ for id_ in member.completion.token_ids[:-1] if renderer.is_end(id_)}
            names.update(map(str, self.subject.tokenizer.convert_ids_to_tokens(sorted(inside))))
        return names


def _pass_rate(batch: Batch) -> list[Answer]:
    by_set: dict[str, list[bool]] = defaultdict(list)
    for group in batch.groups:
        outcomes = [bool(one.passed) for one in group.members if one.passed is not None]
        by_set[group.problem.dataset] += outcomes
    answers = []
    for name, outcomes in sorted(by_set.items()):
        passed, n = sum(outcomes), len(outcomes)
        value, data = f"{name}: {share(passed, n)} pass", {"passed": passed, "n": n}
        if n >= ENOUGH and passed == 0:
            answers.append(
                Answer(
                    "fail",
                    f"{value}: no group has anything to learn from",
                    "easier problems, a stronger model or more tokens; see the sampled answers, "
                    "the extraction and the verifier below",
                    weight=90,
                    data=data,
                )
            )
        elif n >= ENOUGH and passed == n:
            answers.append(
                Answer(
                    "fail",
                    f"{value}: nothing is left to learn",
                    "harder problems, or a verifier that looks at the answer",
                    weight=90,
                    data=data,
                )
            )
        else:
            answers.append(Answer("ok" if n >= ENOUGH else "note", value, data=data))
    return answers or [Answer("note", "the verifiers give no outcome, only scores")]


def _zero_variance(batch: Batch) -> Answer:
    rewards = [[m.reward for m in g.members if m.reward is not None] for g in batch.groups]
    known = [some for some in rewards if some]
    equal = sum(max(some) - min(some) <= REWARD_TOLERANCE for some in known)
    value = f"{share(equal, len(known))} groups have equal rewards and teach nothing"
    if not known:
        return Answer("fail", "no completion has a reward", "see verifier/ below", weight=95)
    if batch.judged_enough and equal == len(known):
        return Answer(
            "fail", value, "problems that are passed sometimes; sampling.n of 8 or more", weight=80
        )
    if batch.judged_enough and equal > 0.9 * len(known):
        return Answer("warn", value, "problems nearer the model's strength; a larger sampling.n")
    return Answer("ok", value, data={"equal": equal, "groups": len(known)})


def _extraction(batch: Batch) -> Answer | None:
    counted, found = 0, 0
    for group in batch.groups:
        for member in group.members:
            verdict = member.verdicts.get(batch.main(group)) or next(
                iter(member.verdicts.values()), None
            )
            if verdict is None:
                continue
            known = verdict.parts.get("extracted")
            if known is None and verdict.extracted is None:
                continue
            counted += 1
            found += bool(known) if known is not None else verdict.extracted is not None
    if counted == 0:
        reads = any(one.verdict and one.verdict.extracted for one in batch.subject.references)
        if not reads or not batch.judged_enough:
            return None
        counted = len(batch.members)
    value = f"an answer was found in {share(found, counted)} completions"
    if counted >= ENOUGH and found < 0.02 * counted:
        return Answer(
            "fail",
            value,
            "ask for the form that the verifier reads (data.prompt.system or prefix), or choose a "
            "verifier that reads what the model writes",
            weight=110,
        )
    if counted >= ENOUGH and found < 0.2 * counted:
        return Answer("warn", value, "show the wanted form in the prompt (data.prompt.system)")
    return Answer("ok" if counted >= ENOUGH else "note", value)


def _reading(batch: Batch) -> Answer | None:
    """Check whether failing completions end with the reference, and so are misread."""
    right, inside, failing, by_chance = 0, 0, 0, 0
    answers = [one.answer for one in batch.references.values() if one.answer]
    for place, group in enumerate(batch.groups):
        reference = batch.references.get(group.problem.id)
        if reference is None or not reference.answer:
            continue
        other = answers[(place + 1) % len(answers)]
        for member in group.members:
            if member.passed or member.passed is None:
                continue
            failing += 1
            last = last_answer(batch.first_part(member))
            right += last == reference.answer.strip(" .$")
            by_chance += last == other.strip(" .$") and other != reference.answer
            inside += last in numbers_of(reference.answer)
            by_chance += last in numbers_of(other) and last not in numbers_of(reference.answer)
    if failing < ENOUGH / 2:
        return None
    value = f"{share(right, failing)} completions that fail end with the reference"
    if right > 4 and right > 3 * by_chance and right > 0.04 * failing:
        return Answer(
            "fail",
            f"{value}: the verifier does not read them",
            "choose a verifier that reads such answers, or ask for its form in the prompt",
            weight=125,
        )
    if inside > 4 and inside > 3 * by_chance and inside > 0.04 * failing:
        some = next(one for one in answers if numbers_of(one))
        return Answer(
            "fail",
            f"{share(inside, failing)} completions that fail end with a number that the reference "
            f"holds among other text, such as {some[:60]!r}",
            "give the verifier the bare answer as the reference (data.sources, option spec), or "
            "choose a verifier that reads such references",
            weight=125,
        )
    return Answer("ok", value)


def numbers_of(reference: str) -> list[str]:
    """Return the numbers in a reference that also has words; empty for any other."""
    words = reference.replace(",", "").split()
    numbers = [word.strip(" .$") for word in words if NUMBER.fullmatch(word.strip(" .$"))]
    prose = sum(word.isalpha() for word in words) > len(numbers)
    return numbers if prose else []


def _rewards(batch: Batch) -> list[Answer]:
    scores: dict[str, list[float]] = defaultdict(list)
    failed: Counter[str] = Counter()
    details: dict[str, str] = {}
    for member in batch.members:
        for name, verdict in member.verdicts.items():
            if verdict.score is not None:
                scores[name].append(verdict.score)
            if verdict.status in ("error", "timeout", "busy"):
                failed[name] += 1
                details.setdefault(name, f"{verdict.status}: {verdict.detail[:120]}")
    limit = batch.subject.limits.verify.max_error_rate
    mains = {batch.main(group) for group in batch.groups}
    differing = [n for n, some in scores.items() if max(some) - min(some) > REWARD_TOLERANCE]
    answers = []
    for name in sorted({*scores, *failed}):
        some, n = scores[name], len(scores[name]) + failed[name]
        value = f"{name}: mean score {fmean(some):.3g}" if some else f"{name}: no score"
        if failed[name] > limit * n:
            answers.append(
                Answer(
                    "fail",
                    f"{value}; {share(failed[name], n)} verdicts failed: {details[name]}",
                    "mend the verifier (rlvr verify), or raise verify.timeout or verify.memory_mb",
                    weight=150,
                )
            )
        elif len(some) >= ENOUGH and max(some) - min(some) <= REWARD_TOLERANCE:
            # beside another that differs, as a reward for a form that the model already keeps
            matters = name in mains or not differing
            answers.append(
                Answer(
                    "fail" if matters else "warn",
                    f"{value}: every completion gets {some[0]:g}",
                    "a reward that never differs teaches nothing: mend or remove it",
                    weight=115 if matters else 60,
                )
            )
        else:
            answers.append(Answer("ok", value))
    return [*answers, *_signs(batch)]


def _signs(batch: Batch) -> list[Answer]:
    """Check whether passing completions get more reward than failing ones."""
    known = [m for m in batch.members if m.reward is not None and m.passed is not None]
    right = [m.reward for m in known if m.passed and m.reward is not None]
    wrong = [m.reward for m in known if not m.passed and m.reward is not None]
    if len(right) < 4 or len(wrong) < 4:
        return []
    value = f"mean reward {fmean(right):.3g} where passed, {fmean(wrong):.3g} where not"
    if fmean(right) <= fmean(wrong):
        return [
            Answer(
                "fail",
                f"{value}: wrong answers are rewarded",
                "correct the signs and sizes of rewards[].weight",
                weight=165,
            )
        ]
    return [Answer("ok", value)]


BATCH: tuple[Check[Batch], ...] = (
    Check("batch/pass_rate", "Are some completions right and some wrong?", _pass_rate),
    Check("batch/variance", "Do rewards differ within groups?", _zero_variance),
    Check("batch/rewards", "Does every verifier judge, and distinguish?", _rewards),
    Check("batch/extraction", "Are answers found in the completions?", _extraction),
    Check("batch/reading", "Are answers read as they are written?", _reading),
    Check("batch/consensus", "Do agreeing completions agree with the reference?", consensus),
    *COMPARING,
    *ENDINGS,
)
