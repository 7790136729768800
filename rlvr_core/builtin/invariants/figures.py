"""What a step's line must say of its completions, counted again from the groups themselves.

docs/metrics.md says what each name means; nothing here is shared with the code that reports them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlvr_core.api import Group, Judged

EQUAL = 1e-12
"""Rewards that are closer are equal."""

FAILED = frozenset({"error", "timeout", "busy"})
"""Statuses of verdicts that are none."""

FAMILIES = ("stop/", "ended/", "environment/", "pass_rate/")
"""Beginnings of names of which the line has those that occurred and no others."""


def mean(values: Collection[float]) -> float:
    """Return the mean of at least one number."""
    return math.fsum(values) / len(values)


def figures_of(groups: Sequence[Group]) -> dict[str, float]:
    """Return what the line of a step must say of all groups that were drawn, dropped or not."""
    members = [member for group in groups for member in group.members]
    due: dict[str, float] = {
        "groups/drawn": len(groups),
        "groups/zero_variance": sum(map(_flat, groups)),
        "groups/none_passed": sum(map(_none_passed, groups)),
    }
    if members:
        due |= {"groups/size": len(members) / len(groups)}
        different = sum(len({one.completion.token_ids for one in g.members}) for g in groups)
        due["unique_rate"] = different / len(members)
        due |= _lengths(groups, members)
    due |= _scores(groups, members)
    return due | _conversations(members)


def _rewards(group: Group) -> list[float]:
    return [member.reward for member in group.members if member.reward is not None]


def _flat(group: Group) -> bool:
    rewards = sorted(_rewards(group))
    return bool(rewards) and rewards[-1] - rewards[0] <= EQUAL


def _none_passed(group: Group) -> bool:
    known = [member.passed for member in group.members if member.passed is not None]
    return bool(known) and not any(known)


def _scores(groups: Sequence[Group], members: Sequence[Judged]) -> dict[str, float]:
    due: dict[str, float] = {}
    by_name: dict[str, list[float]] = {}
    verdicts = [pair for member in members for pair in member.verdicts.items()]
    for name, verdict in verdicts:
        if verdict.score is not None:
            by_name.setdefault(name, []).append(float(verdict.score))
    due |= {f"reward/{name}": mean(scores) for name, scores in by_name.items()}
    if verdicts:
        due["verify/error_rate"] = mean([one.status in FAILED for _, one in verdicts])
    spent = [one.usage for _, one in verdicts if one.usage is not None]
    for name in ("requests", "prompt_tokens", "completion_tokens", "cost"):
        counts = [one for usage in spent if (one := getattr(usage, name)) is not None]
        due |= {f"verify/{name}": math.fsum(counts)} if counts else {}
    rewards = [reward for group in groups for reward in _rewards(group)]
    if rewards:
        middle = mean(rewards)
        due["reward/mean"] = middle
        due["reward/std"] = math.sqrt(mean([(one - middle) ** 2 for one in rewards]))
    passed: dict[str, list[bool]] = {}
    for group in groups:
        for member in group.members:
            if member.passed is not None:
                passed.setdefault(group.problem.dataset, []).append(member.passed)
    if passed:
        due["pass_rate"] = mean([one for some in passed.values() for one in some])
    if len(passed) > 1:
        due |= {f"pass_rate/{name}": mean(some) for name, some in passed.items()}
    return due


def _lengths(groups: Sequence[Group], members: Sequence[Judged]) -> dict[str, float]:
    lengths = [len(member.completion.token_ids) for member in members]
    ends = Counter(member.completion.finish_reason for member in members)
    return {
        "length/mean": mean(lengths),
        "length/max": max(lengths),
        "truncated_rate": ends["length"] / len(members),
        "tokens/prompt": sum(len(g.members[0].completion.prompt_ids) for g in groups if g.members),
        "tokens/completion": sum(map(_sampled, members)),
        **{f"stop/{reason}": n for reason, n in ends.items()},
    }


def _foreign(member: Judged) -> int:
    """Return how many tokens of a completion an environment wrote."""
    completion = member.completion
    if completion.transcript is None:
        return 0
    return completion.transcript.loss_mask(len(completion.token_ids)).count(False)


def _sampled(member: Judged) -> int:
    """Return how many tokens of a completion the model wrote, those of its branches included."""
    own = len(member.completion.token_ids) - _foreign(member)
    return own + sum(branch.loss_mask.count(True) for branch in member.completion.branches)


def _conversations(members: Sequence[Judged]) -> dict[str, float]:
    scripts = [member.completion.transcript for member in members]
    played = [one for one in scripts if one is not None]
    if not played:
        return {}
    turns = [one.n_turns for one in played]
    counted: Counter[str] = Counter()
    for one in played:
        counted.update(one.counts)
    return {
        "turns/mean": mean(turns),
        "turns/max": max(turns),
        "tokens/environment": sum(map(_foreign, members)),
        **{f"ended/{how}": n for how, n in Counter(one.ended for one in played).items()},
        **{f"environment/{name}": n for name, n in counted.items()},
    }


def trained_figures(groups: Sequence[Group], *, mask_truncated: bool) -> dict[str, float]:
    """Return what the line must say of the groups that the step trains on.

    Args:
        groups: They, replayed ones included.
        mask_truncated: Whether completions that were cut off are left out.
    """
    tokens = [
        _sampled(member)
        for group in groups
        for member in group.members
        if member.reward is not None
        and not (mask_truncated and member.completion.finish_reason == "length")
    ]
    lone = sum(len(_rewards(group)) < 2 for group in groups)
    return {
        "rows": sum(n > 0 for n in tokens),
        "tokens/loss": sum(tokens),
        "groups/lone": lone,
    }


def fates_of(
    groups: Sequence[Group], kept: Collection[int], *, mask_truncated: bool
) -> Counter[str]:
    """Count the completions of a step's groups by what becomes of them, dropped ones as "dropped".

    Args:
        groups: All that were drawn.
        kept: The ``id`` of those that are trained on.
        mask_truncated: Whether completions that were cut off are left out.
    """
    found: Counter[str] = Counter()
    for group in groups:
        for member in group.members:
            cut = mask_truncated and member.completion.finish_reason == "length"
            if member.reward is None:
                failed = FAILED & {verdict.status for verdict in member.verdicts.values()}
                found["error" if failed else "unscorable"] += 1
            elif id(group) not in kept:
                found["dropped"] += 1
            else:
                found["truncated" if cut else "trained"] += 1
    return found


def ages_of(groups: Sequence[Group], version: int, *, mask_truncated: bool) -> dict[str, float]:
    """Return mean and maximum age of the completions that a step trains on, in updates.

    Args:
        groups: Those that are trained on.
        version: The policy's at the step's start.
        mask_truncated: Whether completions that were cut off are left out.
    """
    ages = [
        version - group.version
        for group in groups
        for member in group.members
        if member.reward is not None
        and not (mask_truncated and member.completion.finish_reason == "length")
    ]
    return {"staleness/mean": mean(ages), "staleness/max": max(ages)} if ages else {}


def details_beyond(line: Mapping[str, float], dropped: Sequence[Group]) -> list[str]:
    """Return which details of fates are told of more completions than have them, name by name."""
    groups = [group for group in dropped if _rewards(group)]
    scored = [[one.passed for one in group.members if one.reward is not None] for group in groups]
    most = {
        f"ledger/zero_variance/{name}": sum(len(one) for one in scored if set(one) == {passed})
        for name, passed in (("all_passed", True), ("all_failed", False))
    }
    for name in line:
        fate, _, detail = name.removeprefix("ledger/").partition("/")
        if name.startswith("ledger/") and detail and name not in most:
            most[name] = int(line.get(f"ledger/{fate}", 0))
    return [
        f"{name} is {line[name]:g}, and at most {n} completions can be such"
        for name, n in most.items()
        if line.get(name, 0.0) > n
    ]


def too_many(line: Mapping[str, float], dropped: Sequence[Group]) -> list[str]:
    """Return which reasons for dropping groups are reported of more groups than have them."""
    outcomes = [{member.passed for member in one.members} - {None} for one in dropped]
    most = {
        "groups/all_passed": outcomes.count({True}),
        "groups/all_failed": outcomes.count({False}),
    }
    return [
        f"{name} is {line[name]:g}, and {n} of the dropped groups are such"
        for name, n in most.items()
        if line.get(name, 0.0) > n
    ]


def reasons_of(dropped: Sequence[Group]) -> dict[str, float]:
    """Return what the line must say of dropped groups, where the built-in rule drops them.

    Args:
        dropped: The groups of the step that are not trained on.
    """
    reasons: Counter[str] = Counter()
    completions: Counter[str] = Counter()
    for group in dropped:
        scored = [member for member in group.members if member.reward is not None]
        outcomes = {member.passed for member in scored}
        reason = "equal"
        if len(scored) < 2:
            reason = "one_scored" if scored else "unscorable"
        elif len(outcomes) == 1 and None not in outcomes:
            reason = "all_passed" if True in outcomes else "all_failed"
        reasons[reason] += 1
        completions[reason] += len(scored)
    always = ("all_passed", "all_failed", "equal")
    due: dict[str, float] = {f"groups/{name}": reasons.pop(name, 0) for name in always}
    due |= {f"groups/dropped/{name}": n for name, n in reasons.items()}
    due |= {f"ledger/zero_variance/{name}": n for name, n in completions.items() if n}
    return due | {"ledger/zero_variance": completions.total()}


def contradictions(
    line: Mapping[str, float], due: Mapping[str, float], bands: Mapping[str, float] | None = None
) -> list[str]:
    """Return what a step's line says otherwise, name by name.

    Args:
        line: The step's metrics.
        due: What they must be.
        bands: Differences that are rounding; a billionth of the number where there is none.
    """
    wrong = []
    for name, should in due.items():
        found = line.get(name)
        if found is None:
            wrong.append(f"{name} is not there, and is {should:.6g}")
            continue
        band = (bands or {}).get(name, 1e-9 * max(1.0, abs(should)))
        both_odd = not math.isfinite(found) and not math.isfinite(should)
        if not (abs(found - should) <= band or both_odd):
            wrong.append(f"{name} is {found:.6g}, and must be {should:.6g}")
    return wrong
