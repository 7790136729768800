"""Guard ``seeds``: completions repeat no oftener than their log-probs allow (T18).

Two counts, each compared with its expectation over *all* groups of a step and summed over steps:

- *Repeats within a prompt.* The next completion of a prompt equals one of those before it with the
  sum of the probabilities of the distinct texts so far, ``exp(sum of log-probs)`` each. Groups of
  one prompt and version are taken together, so seeds that ignore the draw are seen too.
- *The same seeds for every problem.* The completions of a group are exchangeable, so which of them
  begins like the completion of the same index in the group before is chance: given the rest, the
  probability is the share of such beginnings among those that are left.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlvr_core.api import BaseGuard, EngineTraits, Metric, NoConfig, traits_of
from rlvr_guards.betting import RepeatTest

if TYPE_CHECKING:
    from rlvr_core.api import Completion, Group, GroupsScored, GuardContext, Json

ODDS = 5e-5
"""Odds of a false alarm in 1,000 steps, for each of the two counts."""

SLACK, NEW_SLACK = 1.05, 0.8
"""Factors on the probabilities of a repeat and of a new completion, for log-probs that are rounded:
the one that adds less to that of a repeat is taken."""

ROUNDING = 1e-5
"""Largest error of a token's log-prob in float32, in nats: what a sure policy leaves to other texts
is less than the rounding of a long completion."""

INDEX_SLACK = 0.1
"""Share of the remaining probability that is given to a match of index by chance: an effect of the
index smaller than this is no seed."""

FLOOR = 1e-6
"""Least probability of a repeat."""


class Seeds(BaseGuard):
    """Stops a run whose completions repeat, or go together by index, more than chance allows."""

    name = "guards/seeds"
    reports = (
        Metric("seeds/repeats", "Completions equal to an earlier one of their prompt.", ""),
        Metric("seeds/expected", "Such repeats to be expected by the log-probs.", ""),
        Metric("seeds/evidence", "Evidence for repeated seeds; the run stops at 1.", "share"),
    )

    def __init__(self, config: NoConfig) -> None:
        super().__init__(config)
        self._repeats, self._by_index = RepeatTest(), RepeatTest()
        self._seeded = True

    def bind(self, context: GuardContext) -> None:
        """Look at engines that draw by seeds alone."""
        super().bind(context)
        self._seeded = traits_of(context.engine, EngineTraits).seeded

    def on_groups(self, event: GroupsScored) -> None:
        """Test a step's completions.

        Raises:
            RunError: If they repeat, or agree by index, with odds below ``ODDS``.
        """
        self.numbers = {}
        if not (self._seeded and self.is_due(event.step)):
            return
        happened, probability, tokens = repeats(event.groups)
        same, by_chance = index_matches(event.groups)
        self._repeats.add(happened, list(map(allowed, probability, tokens)))
        self._by_index.add(same, [p + INDEX_SLACK * (1 - p) for p in by_chance])
        limit = math.log(1 / ODDS)
        within, across = (
            max(0.0, float(test.evidence()[0]) / limit) for test in (self._repeats, self._by_index)
        )
        self.numbers = {
            "seeds/repeats": float(sum(happened)),
            "seeds/expected": sum(probability),
            "seeds/evidence": max(within, across),
        }
        if within >= 1:
            raise self.fault(
                event.step,
                f"{sum(happened)} of {len(happened)} completions repeat an earlier one of their "
                f"prompt, and their log-probs let {sum(probability):.3g} be expected",
                "the engine gives several completions one seed or ignores seeds, or its log-probs "
                "are not those of what it samples from",
            )
        if across >= 1:
            raise self.fault(
                event.step,
                f"{sum(same)} of {len(same)} completions begin like the completion of the same "
                f"index of another problem, and chance lets {sum(by_chance):.3g} be expected",
                "the engine gives the completions of each problem the same seeds: the seed must be "
                "that of the request, or the engine returns them in an order that depends on what "
                "they say",
            )

    def state_dict(self) -> dict[str, Json]:
        """Return the evidence so far, for a checkpoint."""
        return {"repeats": self._repeats.state_dict(), "by_index": self._by_index.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the evidence from a checkpoint."""
        self._repeats.load_state_dict(state["repeats"])
        self._by_index.load_state_dict(state["by_index"])


def allowed(probability: float, tokens: int) -> float:
    """Return the probability of a repeat that is no evidence.

    Args:
        probability: The one recorded.
        tokens: Length of the completions that it was computed from.
    """
    new = max(0.0, 1 - probability - ROUNDING * tokens)
    return min(SLACK * probability + FLOOR, 1 - NEW_SLACK * new)


def repeats(groups: Sequence[Group]) -> tuple[list[bool], list[float], list[int]]:
    """Return, per completion but the first of a prompt, whether it repeats an earlier one.

    Returns:
        Whether each repeats one, the probability of that given those before it, and the tokens of
        the longest of these.
    """
    prompts: dict[Hashable, dict[Hashable, float]] = {}
    happened: list[bool] = []
    probability: list[float] = []
    tokens: list[int] = []
    longest: Counter[Hashable] = Counter()
    for group in groups:
        for member in group.members:
            completion = member.completion
            key = (completion.prompt_ids, completion.version)
            seen = prompts.get(key)
            if seen is None:
                seen = prompts[key] = {}
            else:
                happened.append(completion.token_ids in seen)
                probability.append(min(1.0, sum(seen.values())))
                tokens.append(longest[key])
            longest[key] = max(longest[key], len(completion.token_ids))
            seen.setdefault(
                completion.token_ids, math.exp(min(0.0, math.fsum(completion.logprobs)))
            )
    return happened, probability, tokens


def index_matches(groups: Sequence[Group]) -> tuple[list[bool], list[float]]:
    """Return, per completion, whether it begins like that of its index in the group before.

    A beginning is the token at the first position at which both groups have several. Groups of one
    prompt are left out, which ``repeats`` compares, and so are those with tokens of several
    versions, whose later completions may be of newer weights.

    Returns:
        Whether each does, and the probability of that over the orders of its group that are left.
    """
    happened: list[bool] = []
    probability: list[float] = []
    usable = [
        [member.completion for member in group.members]
        for group in groups
        if group.members and not any(member.completion.token_versions for member in group.members)
    ]
    for before, group in itertools.pairwise(usable):
        if before[0].prompt_ids == group[0].prompt_ids:
            continue
        position = _first_difference(before, group)
        if position is None:
            continue
        theirs, ours = (
            [_token(completion, position) for completion in some] for some in (before, group)
        )
        left = Counter(ours)
        for index, token in enumerate(ours[: len(theirs)]):
            happened.append(token == theirs[index])
            probability.append(left[theirs[index]] / (len(ours) - index))
            left[token] -= 1
    return happened, probability


def _first_difference(*groups: Sequence[Completion]) -> int | None:
    """Return the first position at which each of the groups has several tokens."""
    longest = min((max((len(c.token_ids) for c in some), default=0) for some in groups), default=0)
    for position in range(longest):
        if all(len({_token(completion, position) for completion in some}) > 1 for some in groups):
            return position
    return None


def _token(completion: Completion, position: int) -> int:
    """Return a token, or -1 behind the end."""
    ids = completion.token_ids
    return ids[position] if position < len(ids) else -1
