"""How many completions a group has, and how many groups a step draws, by the rules of the config.

Where sampling goes on until something was seen (``adaptive``, ``refill``), whoever stops at another
time chooses by outcome: completions of each group are gone through in the order in which they were
judged, groups in that in which they were drawn, and the rule of docs/samplers.md says when to stop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlvr_core.builtin.invariants.deliveries import is_ours

if TYPE_CHECKING:
    from rlvr_core.api import Group, Judged
    from rlvr_core.api.services import RunConfig


class GroupSizes:
    """Compares sizes of groups and steps with the rules, for samplers that have those of all.

    Args:
        config: The run's configuration.
        sampler: Chooses the problems.
    """

    def __init__(self, config: RunConfig, sampler: Any) -> None:
        options = config.sampler.with_
        rule = options.get("adaptive") if is_ours(sampler, "observe") else None
        self._rule: Mapping[str, Any] | None = dict(rule) if rule else None
        self._n = config.sampling.n
        self._prompts = config.train.prompts_per_step
        refill = float(options.get("refill", 1.0))
        self._most = self._prompts + math.floor(refill * self._prompts + 1e-9)
        ours = all(is_ours(sampler, name) for name in ("draw", "observe", "refill"))
        in_turns = not config.train.max_staleness and int(options.get("max_reads", 1)) == 1
        self._counts_draws = ours and in_turns

    def wrong(self, group: Group) -> str:
        """Say what is wrong with a group that the sampler has decided on; empty if nothing is."""
        rule = self._rule
        if rule is None:
            return ""
        most = rule.get("max_completions") or self._n
        chunk, size = min(rule.get("chunk_size", 1), most), len(group.members)
        seen = chunk
        while seen < size and not _complete(rule, group.members[:seen], most):
            seen = min(seen + chunk, most)
        if seen == size and _complete(rule, group.members, most):
            return ""
        known = [member.passed for member in group.members[: min(seen, size)]]
        when = "went on" if seen < size else "ended"
        return (
            f"the group of problem {group.problem.id} has {size} completions and {when} after "
            f"{len(known)}, {known.count(True)} passed and {known.count(False)} failed"
            + ("" if seen <= size else f", in a chunk of {chunk}")
        )

    def rounds(self, drawn: Sequence[Group], trained: Sequence[Group]) -> list[Sequence[Group]]:
        """Return the groups of a step by the draw that they belong to, if the rule was followed."""
        if not self._counts_draws:
            return []
        kept = {id(group) for group in trained}
        found: list[Sequence[Group]] = []
        seen, wanted = 0, self._prompts
        while wanted > 0 and seen <= len(drawn):
            found.append(drawn[seen : seen + wanted])
            seen += wanted
            filled = sum(id(group) in kept for group in drawn[:seen])
            wanted = min(self._prompts - filled, self._most - seen)
        return found if seen == len(drawn) else []

    def wrong_number(self, drawn: Sequence[Group], trained: Sequence[Group]) -> str:
        """Say whether a step drew another number of groups than its dropped ones ask for."""
        if not self._counts_draws or self.rounds(drawn, trained):
            return ""
        kept = {id(group) for group in trained}
        return (
            f"the step drew {len(drawn)} groups, {len(kept)} of which are kept, and "
            f"train.prompts_per_step is {self._prompts} with {self._most - self._prompts} "
            "replacements of dropped ones at most (sampler.with.refill)"
        )


def _complete(rule: Mapping[str, Any], members: Sequence[Judged], most: int) -> bool:
    """Whether a group of these completions gets no more."""
    if len(members) >= most:
        return True
    limit = rule.get("max_total_tokens")
    if limit is not None and sum(len(one.completion.token_ids) for one in members) >= limit:
        return True
    good, bad = rule.get("k_success", 0), rule.get("k_failure", 0)
    passed = sum(member.passed is True for member in members)
    failed = sum(member.passed is False for member in members)
    return bool(good or bad) and passed >= good and failed >= bad
