"""Rollout metrics of a step; the glossary describes each name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean, pstdev

from rlvr_core.api import Drop, Group, Judged
from rlvr_core.api.problems import Fate
from rlvr_core.api.rollouts import REWARD_TOLERANCE, Rollouts, Sampled

_EQUAL = ("all_passed", "all_failed", "equal")
"""Reasons for dropping groups with equal rewards; each is always reported, even if 0."""


def rollout_metrics(rollouts: Rollouts) -> dict[str, float]:
    """Compute rewards, outcomes, lengths and group counts over all draws, kept or dropped."""
    sampled = rollouts.all
    groups = [drawn.group for drawn in sampled]
    members = [member for group in groups for member in group.members]
    metrics: dict[str, float] = {
        "groups/drawn": len(groups),
        "groups/kept": len(rollouts.kept),
    }
    dropped = Counter(_why(lost.drop) for lost in rollouts.dropped if lost.drop is not None)
    metrics |= {f"groups/{reason}": dropped.pop(reason, 0) for reason in _EQUAL}
    metrics |= {f"groups/dropped/{reason}": count for reason, count in sorted(dropped.items())}
    metrics["groups/zero_variance"] = sum(map(_without_variance, groups))
    metrics["groups/none_passed"] = sum(
        {member.passed for member in group.members} - {None} == {False} for group in groups
    )
    if groups:
        metrics["groups/size"] = len(members) / len(groups)
        metrics["unique_rate"] = unique_rate(groups)
    rewards = [member.reward for member in members if member.reward is not None]
    if rewards:
        metrics["reward/mean"] = fmean(rewards)
        metrics["reward/std"] = pstdev(rewards)
    metrics |= _pass_rates(sampled)
    metrics |= _verdict_means(members)
    metrics |= _lengths(sampled, members)
    metrics |= _conversations(members)
    return metrics


def _why(drop: Drop) -> str:
    """Return why a group was dropped, in one word."""
    return (drop.fate == "zero_variance" and drop.detail) or drop.fate


def _without_variance(group: Group) -> bool:
    """Whether a group has rewards that are all equal, so that its advantages are 0."""
    rewards = [member.reward for member in group.members if member.reward is not None]
    return bool(rewards) and max(rewards) - min(rewards) <= REWARD_TOLERANCE


def _pass_rates(sampled: Sequence[Sampled]) -> dict[str, float]:
    by_dataset: dict[str, list[bool]] = {}
    for drawn in sampled:
        for member in drawn.group.members:
            if member.passed is not None:
                by_dataset.setdefault(drawn.group.problem.dataset, []).append(member.passed)
    everything = [passed for outcomes in by_dataset.values() for passed in outcomes]
    if not everything:
        return {}
    rates = {"pass_rate": fmean(everything)}
    if len(by_dataset) > 1:
        rates |= {f"pass_rate/{name}": fmean(some) for name, some in sorted(by_dataset.items())}
    return rates


def _verdict_means(members: Sequence[Judged]) -> dict[str, float]:
    scores: dict[str, list[float]] = {}
    failed = judged = 0
    for member in members:
        for name, verdict in member.verdicts.items():
            judged += 1
            failed += verdict.status in ("error", "timeout", "busy")
            if verdict.score is not None:
                scores.setdefault(name, []).append(verdict.score)
    means = {f"reward/{name}": fmean(values) for name, values in sorted(scores.items())}
    means |= _usage_totals(members)
    return {**means, "verify/error_rate": failed / judged} if judged else means


def _usage_totals(members: Sequence[Judged]) -> dict[str, float]:
    """Sum the requests, tokens and cost of verifiers that call a remote model."""
    usages = [verdict.usage for member in members for verdict in member.verdicts.values()]
    spent = [usage for usage in usages if usage is not None]
    if not spent:
        return {}
    total = sum(spent[1:], spent[0])
    counts = {
        "requests": total.requests,
        "prompt_tokens": total.prompt_tokens,
        "completion_tokens": total.completion_tokens,
        "cost": total.cost,
    }
    return {f"verify/{name}": count for name, count in counts.items() if count is not None}


def _lengths(sampled: Sequence[Sampled], members: Sequence[Judged]) -> dict[str, float]:
    if not members:
        return {}
    lengths = [len(member.completion.token_ids) for member in members]
    reasons = Counter(member.completion.finish_reason for member in members)
    # all completions of a group share one prompt, which the engine computes once
    prompts = [len(drawn.group.members[0].completion.prompt_ids) for drawn in sampled]
    return {
        "length/mean": fmean(lengths),
        "length/max": max(lengths),
        "truncated_rate": reasons["length"] / len(members),
        "tokens/prompt": sum(prompts),
        "tokens/completion": sum(member.completion.n_sampled for member in members),
        **{f"stop/{reason}": count for reason, count in sorted(reasons.items())},
    }


def _conversations(members: Sequence[Judged]) -> dict[str, float]:
    """Count turns, ways of ending, environment tokens and counters of environments."""
    played = [(m.completion, m.completion.transcript) for m in members]
    scripts = [transcript for _, transcript in played if transcript is not None]
    if not scripts:
        return {}
    counts: Counter[str] = Counter()
    for transcript in scripts:
        counts.update(transcript.counts)
    ends = Counter(transcript.ended for transcript in scripts)
    turns = [transcript.n_turns for transcript in scripts]
    theirs = [c.loss_mask.count(False) for c, transcript in played if transcript]
    return {
        "turns/mean": fmean(turns),
        "turns/max": max(turns),
        "tokens/environment": sum(theirs),
        **{f"ended/{how}": count for how, count in sorted(ends.items())},
        **{f"environment/{name}": count for name, count in sorted(counts.items())},
    }


def fates(sampled: Sampled, *, mask_truncated: bool) -> list[Fate]:
    """Return the ledger fate of each completion of a group, with masked truncated ones marked."""
    ends = sampled.fates()
    if not mask_truncated:
        return ends
    return [
        "truncated" if fate == "trained" and member.completion.finish_reason == "length" else fate
        for fate, member in zip(ends, sampled.group.members, strict=True)
    ]


def details(sampled: Sampled) -> list[str]:
    """Return the ledger detail of each completion of a group.

    A completion without a reward gets no detail: the reason for dropping the group does not apply
    to it.
    """
    why = sampled.drop.detail if sampled.drop else ""
    return ["" if member.reward is None else why for member in sampled.group.members]


def unique_rate(groups: Sequence[Group]) -> float:
    """Return the ratio of distinct to all completions, within groups; 1.0 if all differ."""
    total = sum(len(group.members) for group in groups)
    distinct = sum(len({m.completion.token_ids for m in group.members}) for group in groups)
    return distinct / total if total else 1.0
