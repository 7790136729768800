"""Whether the files of a run hold what the step was: its line of metrics, and its rollouts.

What is written is read back from the disk, as whoever looks at the run later does. Only what was
appended since the step before is read, and of long rollouts the first part.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_core.api import Group, Judged
    from rlvr_core.builtin.invariants.model_files import ModelFiles
    from rlvr_core.builtin.invariants.rows import Key

MOST = 4 << 20
"""Bytes of a step's rollouts that are read."""

FIELDS = ("reward", "passed")
"""What a recorded completion has under the names that it has in a run."""


class Records:
    """Reads what a step has added to the files of a run.

    Args:
        folder: The run's folder.
        files: The model's files; None where prompts are not compared as texts.
    """

    def __init__(self, folder: Path, files: ModelFiles | None = None) -> None:
        self._files = files
        self._metrics = folder / "metrics.jsonl"
        self._rollouts = folder / "traces" / "rollouts.jsonl"
        self._ends = {path: _size(path) for path in (self._metrics, self._rollouts)}

    def skip(self) -> None:
        """Leave out what was added."""
        self._ends = {path: _size(path) for path in self._ends}

    def wrong(
        self,
        step: int,
        version: int,
        line: Mapping[str, float],
        drawn: Sequence[Group],
        advantages: Mapping[tuple[int, Key], Set[float]],
        kept: Mapping[int, str] | None = None,
    ) -> list[str]:
        """Say what was written of the step and is not so.

        Args:
            step: It, from 0.
            version: The policy's version at its start.
            line: The metrics that observers were shown.
            drawn: The new groups of the step, in the order in which they were drawn.
            advantages: What the losses were given, by the ``id`` of the group and its completion.
            kept: What became of completions that were cut off, by the ``id`` of each group that was
                trained on; None where that is not known.
        """
        lines = [one for one in self._added(self._metrics) if one.get("step") == step]
        found = _other_metrics(lines[-1], line) if lines else []
        groups = self._added(self._rollouts)
        others = sorted({str(one.get("step")) for one in groups} - {str(step)})
        if others:  # only this step has been written since
            found.append(f"rollouts.jsonl has groups of step {others[0]}, and it is {step}")
        groups = [one for one in groups if one.get("step") == step]
        for recorded, group in zip(groups, drawn, strict=False):
            found += _other_group(recorded, group, version, advantages) or self._other_prompt(
                recorded
            )
            if kept is not None:
                found += _other_fates(recorded, group, kept.get(id(group)))
        return found

    def _other_prompt(self, recorded: Mapping[str, Any]) -> list[str]:
        """Say whether the text of a recorded prompt is not that of its tokens, which are right."""
        text, ids = recorded.get("prompt"), recorded["prompt_ids"]
        if self._files is None or not isinstance(text, str) or not ids or _odd(text):
            return []
        if self._files.are_of(ids, text):
            return []
        return [
            f"rollouts.jsonl has the prompt {_short(text)} of problem {recorded['problem_id']}, "
            f"and it is {_short(self._files.decode(ids))}"
        ]

    def _added(self, path: Path) -> list[dict[str, Any]]:
        begin, end = self._ends[path], _size(path)
        self._ends[path] = end
        if end <= begin:  # nothing, or a new segment was begun
            return []
        with path.open("rb") as file:
            file.seek(begin)
            text = file.read(min(MOST, end - begin))
        whole = text[: text.rfind(b"\n") + 1]
        return [json.loads(one) for one in whole.splitlines()]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _other_metrics(recorded: Mapping[str, Any], line: Mapping[str, float]) -> list[str]:
    return [
        f"metrics.jsonl has {name} {recorded.get(name)}, and it is {value:.6g}"
        for name, value in line.items()
        if math.isfinite(value) and recorded.get(name) != value
    ]


def _other_group(
    recorded: Mapping[str, Any],
    group: Group,
    version: int,
    advantages: Mapping[tuple[int, Key], Set[float]],
) -> list[str]:
    id_, rows = group.problem.id, recorded["completions"]
    if recorded["problem_id"] != id_ or len(rows) != len(group.members):
        return [
            f"rollouts.jsonl has {len(rows)} completions of problem {recorded['problem_id']} where "
            f"the step has {len(group.members)} of problem {id_}"
        ]
    found = []
    ids = list(group.members[0].completion.prompt_ids) if group.members else []
    due_of = {"prompt_ids": ids, "sampled_version": group.version, "version": version}
    for name, due in due_of.items():
        if recorded.get(name) != due:
            has = _short(recorded.get(name))
            found.append(f"rollouts.jsonl has {name} {has} of problem {id_}, and it is {due}")
    for number, (row, member) in enumerate(zip(rows, group.members, strict=True)):
        known = advantages.get((id(group), _key(member)))
        for name, has, is_ in _pairs(row, member, known):
            found.append(
                f"rollouts.jsonl has {name} {has} of completion {number} of problem {id_}, and it "
                f"is {is_}"
            )
    return found


def _other_fates(recorded: Mapping[str, Any], group: Group, cut: str | None) -> list[str]:
    """Say which completions are recorded with another fate than theirs.

    Args:
        recorded: The line.
        group: Its group.
        cut: The fate of a completion that was cut off; None if the group was not trained on.
    """
    wrong = []
    for row, member in zip(recorded["completions"], group.members, strict=False):
        ended = member.completion.finish_reason == "length"
        due = cut if ended and cut is not None else "trained"
        told = row.get("fate")
        if member.reward is not None and (told == due) != (cut is not None):
            wrong.append(
                f"rollouts.jsonl has the fate {told} of a completion of problem "
                f"{group.problem.id}, which was {'' if cut is not None else 'not '}{due}"
            )
    return wrong


def _key(member: Judged) -> Any:
    return member.completion.prompt_ids, member.completion.token_ids


def _pairs(
    row: Mapping[str, Any], member: Judged, known: Set[float] | None
) -> list[tuple[str, Any, Any]]:
    """Return what a recorded completion says otherwise: name, what it has, what it should."""
    completion = member.completion
    pairs: list[tuple[str, Any, Any]] = [
        *((name, row.get(name), getattr(member, name)) for name in FIELDS),
        ("text", row.get("text"), completion.text),
        ("finish_reason", row.get("finish_reason"), completion.finish_reason),
        ("token_ids", row.get("token_ids"), list(completion.token_ids)),
        ("log-probs", row.get("logprobs"), list(completion.logprobs)),
    ]
    recorded = [[one.get("prompt_ids"), one.get("token_ids")] for one in row.get("branches", ())]
    due = [[list(one.prompt_ids), list(one.token_ids)] for one in completion.branches]
    pairs.append(("the branches", recorded, due))
    for name, verdict in member.verdicts.items():
        told = row.get("verdicts", {}).get(name, {}).get("score")
        pairs.append((f"a score of {name}", told, verdict.score))
    wrong = [(name, has, due) for name, has, due in pairs if has != due and not _odd(due)]
    told = row.get("advantage")
    if known and told is not None and not any(math.isclose(told, x, rel_tol=1e-5) for x in known):
        wrong.append(("an advantage", told, sorted(known)[0]))
    return [(name, _short(has), _short(due)) for name, has, due in wrong]


def _odd(value: Any) -> bool:
    """Whether it is, or has, what JSON or UTF-8 cannot hold."""
    if isinstance(value, str):
        return not value.isascii() and value != value.encode("utf-8", "replace").decode()
    values = value if isinstance(value, list) else [value]
    return any(isinstance(one, float) and not math.isfinite(one) for one in values)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:36]} ..."
