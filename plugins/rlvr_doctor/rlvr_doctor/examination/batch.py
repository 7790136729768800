"""Checks of one sampled batch: answers of the untrained policy, and their rewards."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from rlvr_core.api import Finding, Group, Judged
from rlvr_core.api.rollouts import REWARD_TOLERANCE
from rlvr_doctor.examination.report import Check, share
from rlvr_doctor.examination.subject import Subject

ENOUGH = 96
"""Minimum completions to judge rates; with fewer, rates are only reported."""


@dataclass
class Batch:
    """Completions of the initial policy.

    Attributes:
        subject: The run.
        groups: The judged groups.
    """

    subject: Subject
    groups: list[Group]

    @property
    def members(self) -> list[Judged]:
        """Every completion."""
        return [member for group in self.groups for member in group.members]

    @property
    def judged_enough(self) -> bool:
        """Whether there are enough completions to judge rates."""
        return len(self.members) >= ENOUGH


def _pass_rate(batch: Batch) -> Iterator[Finding]:
    by_set: dict[str, list[bool]] = defaultdict(list)
    for group in batch.groups:
        outcomes = [bool(member.passed) for member in group.members if member.passed is not None]
        by_set[group.problem.dataset] += outcomes
    for name, outcomes in sorted(by_set.items()):
        passed, n = sum(outcomes), len(outcomes)
        text = f"{name}: {share(passed, n)} pass"
        if n < ENOUGH or 0 < passed < n:
            yield Finding("batch/pass_rate", "ok" if n >= ENOUGH else "note", text)
        elif passed:
            remedy = "harder problems, or a verifier that looks at the answer"
            yield Finding("batch/pass_rate", "warn", f"{text}: nothing is left to learn", remedy)
        else:
            yield Finding(
                "batch/pass_rate",
                "warn",
                f"{text}: no outcome tells the policy anything",
                "easier problems, a stronger model or more tokens; look at the sampled answers",
            )


def _zero_variance(batch: Batch) -> Finding:
    rewards = [[m.reward for m in g.members if m.reward is not None] for g in batch.groups]
    known = [some for some in rewards if some]
    if not known:
        remedy = "see verifier/ above, and try the verifier: rlvr verify"
        return Finding("batch/variance", "fail", "no completion has a reward", remedy)
    equal = sum(max(some) - min(some) <= REWARD_TOLERANCE for some in known)
    text = f"{share(equal, len(known))} groups have equal rewards and teach nothing"
    if not batch.judged_enough or equal <= 0.9 * len(known):
        return Finding("batch/variance", "ok", text)
    return Finding(
        "batch/variance",
        "fail" if equal == len(known) else "warn",
        text,
        "problems that are passed sometimes; a larger sampling.n",
    )


def _rewards(batch: Batch) -> Iterator[Finding]:
    """Check that verifiers judge, without too many errors."""
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
    for name in sorted({*scores, *failed}):
        some, n = scores[name], len(scores[name]) + failed[name]
        text = f"{name}: mean score {fmean(some):.3g}" if some else f"{name}: no score"
        if failed[name] > limit * n:
            yield Finding(
                "batch/rewards",
                "fail",
                f"{text}; {share(failed[name], n)} verdicts failed: {details[name]}",
                "fix the verifier (rlvr verify), or raise verify.timeout or verify.memory_mb",
            )
        else:
            yield Finding("batch/rewards", "ok", text)


def _signs(batch: Batch) -> Finding | None:
    """Check whether passing completions get more reward than failing ones."""
    known = [m for m in batch.members if m.reward is not None and m.passed is not None]
    right = [m.reward for m in known if m.passed and m.reward is not None]
    wrong = [m.reward for m in known if not m.passed and m.reward is not None]
    if len(right) < 4 or len(wrong) < 4:
        return None
    text = f"mean reward {fmean(right):.3g} where passed, {fmean(wrong):.3g} where not"
    if fmean(right) > fmean(wrong):
        return Finding("batch/signs", "ok", text)
    remedy = "correct the signs and sizes of rewards[].weight"
    return Finding("batch/signs", "fail", f"{text}: wrong answers are rewarded", remedy)


def _ending(batch: Batch) -> Finding:
    """Report how many completions the token cap cuts off; it is a fault only if it cuts off all."""
    members, cap = batch.members, batch.subject.config.sampling.max_tokens
    cut = sum(member.completion.finish_reason == "length" for member in members)
    text = f"{share(cut, len(members))} completions are cut off at {cap} tokens"
    if cut < len(members) or not batch.judged_enough:
        return Finding("batch/ending", "ok", text)
    return Finding(
        "batch/ending",
        "warn",
        text,
        "raise sampling.max_tokens, or correct eos_token_id of the model if it should have ended",
    )


def _repeats(batch: Batch) -> Finding:
    distinct = [len({member.completion.token_ids for member in g.members}) for g in batch.groups]
    repeated = sum(count == 1 for count in distinct)
    text = f"{share(sum(distinct), len(batch.members))} completions differ from others of the group"
    if 3 * repeated <= 2 * len(distinct) or not batch.judged_enough:
        return Finding("batch/repeats", "ok", text)
    return Finding(
        "batch/repeats",
        "fail",
        f"{share(repeated, len(distinct))} groups are one answer repeated",
        "raise sampling.temperature (1.0 is usual), or check the seeds of the engine",
    )


def histogram(lengths: Sequence[int], bins: int = 8) -> str:
    """Return a histogram of lengths as text, one line per bin."""
    top = max(lengths, default=0) + 1
    step = max(1, -(-top // bins))
    counts = Counter(length // step for length in lengths)
    most = max(counts.values(), default=1)
    return "\n".join(
        f"{at * step:>6} to {at * step + step - 1:<6} {counts[at]:>5} "
        + "#" * round(40 * counts[at] / most)
        for at in range(-(-top // step))
    )


BATCH: tuple[Check[Batch], ...] = (
    ("batch/pass_rate", _pass_rate),
    ("batch/variance", _zero_variance),
    ("batch/rewards", _rewards),
    ("batch/signs", _signs),
    ("batch/ending", _ending),
    ("batch/repeats", _repeats),
)
