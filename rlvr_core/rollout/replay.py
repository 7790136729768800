"""The queue of groups that are to be trained on again, and its state for a checkpoint."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import NamedTuple

from rlvr_core.api import Completion, Draw, Group, Json, Judged, Problem, Span, Transcript, Verdict
from rlvr_core.api.rollouts import Rollouts, Sampled


class Reading(NamedTuple):
    """A group that is to be trained on again.

    Attributes:
        version: The policy version it was sampled under.
        left: The reads it has left.
    """

    version: int
    left: int


@dataclass(slots=True)
class _Entry:
    sampled: Sampled
    left: int


class ReplayBuffer:
    """A queue: what was trained on goes to its end until it has been read often enough."""

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, sampled: Sampled) -> None:
        """Keep a group for the reads it has left after its first step."""
        if sampled.reads > 1:
            self._entries.append(_Entry(sampled, sampled.reads - 1))

    def after_training(
        self, rollouts: Rollouts, thrown_away: Sequence[bool], *, updated: bool, skipped: bool
    ) -> None:
        """Count a step's reads, and keep its new groups for theirs.

        Args:
            rollouts: The step's groups.
            thrown_away: For each group of ``rollouts.trained``, whether all its updates were
                skipped.
            updated: Whether any update of the step was applied.
            skipped: Whether there were updates, and none was applied: nothing was read then.
        """
        if not skipped:
            again = thrown_away[len(rollouts.kept) :]
            unread = [place for place, lost in enumerate(again) if lost]
            self.take(len(rollouts.replayed), unread)
        if updated:
            for sampled, lost in zip(rollouts.kept, thrown_away, strict=False):
                if not lost:
                    self.put(sampled)

    def readings(self) -> list[Reading]:
        """Return the groups that wait, with version and reads left, for generation ahead."""
        return [Reading(entry.sampled.group.version, entry.left) for entry in self._entries]

    def expire(self, oldest: int) -> int:
        """Drop the groups that were sampled before a version; return their number."""
        before = len(self)
        young = [entry for entry in self._entries if entry.sampled.group.version >= oldest]
        self._entries = deque(young)
        return before - len(self)

    def waiting(self, most: int) -> list[Sampled]:
        """Return what ``take`` would, without counting a read."""
        return [entry.sampled for entry in islice(self._entries, most)]

    def take(self, most: int, unread: Collection[int] = ()) -> list[Sampled]:
        """Return up to ``most`` groups, the oldest in the queue first, and count a read of each.

        Args:
            most: How many.
            unread: Places among them of those that do not count, as no update was made of them.
        """
        taken = [self._entries.popleft() for _ in range(min(most, len(self)))]
        for place, entry in enumerate(taken):
            entry.left -= place not in unread
        self._entries.extend(entry for entry in taken if entry.left > 0)
        return [entry.sampled for entry in taken]

    def state_dict(self) -> list[Json]:
        """Return all groups with everything that training needs, as JSON."""
        return [
            saved_group(entry.sampled) | {"n": entry.sampled.draw.n, "left": entry.left}
            for entry in self._entries
        ]

    def load_state_dict(self, state: list[Json], problems: Mapping[str, Problem]) -> None:
        """Continue where ``state_dict`` was taken.

        Args:
            state: It.
            problems: The run's problems by id.
        """
        self._entries = deque(
            _Entry(restored_group(saved, problems), saved["left"]) for saved in state
        )


def saved_group(sampled: Sampled) -> dict[str, Json]:
    """Return a group with everything that training needs, as JSON."""
    return {
        "problem": sampled.draw.problem.id,
        "index": sampled.draw.index,
        "prompt_text": sampled.prompt_text,
        "version": sampled.group.version,
        "reads": sampled.reads,
        "members": [asdict(member) for member in sampled.group.members],
    }


def restored_group(saved: Mapping[str, Json], problems: Mapping[str, Problem]) -> Sampled:
    """Return the group that ``saved_group`` was given."""
    problem = problems[saved["problem"]]
    members = tuple(member_of(member) for member in saved["members"])
    return Sampled(
        Draw(problem, len(members), saved["index"]),
        saved["prompt_text"],
        Group(problem, members, saved["version"]),
        reads=saved["reads"],
    )


def member_of(saved: Mapping[str, Json]) -> Judged:
    """Rebuild a judged completion from the JSON of its ``dataclasses.asdict``."""
    verdicts = {name: Verdict.from_json(verdict) for name, verdict in saved["verdicts"].items()}
    spans = tuple(Span(**span) for span in saved["spans"])
    completion = _completion_of(saved["completion"])
    return Judged(completion, verdicts, saved["reward"], saved["passed"], spans)


def _completion_of(saved: Mapping[str, Json]) -> Completion:
    completion = dict(saved)
    for name in ("prompt_ids", "token_ids", "logprobs", "loss_mask", "token_versions"):
        completion[name] = tuple(completion[name])
    if completion["transcript"] is not None:
        completion["transcript"] = Transcript.from_json(completion["transcript"])
    completion["branches"] = tuple(map(_completion_of, completion["branches"]))
    return Completion(**completion)
