"""A sample of a step for display: one group with its best and worst completion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlvr_core.api import Group, Judged
from rlvr_core.api.services import brief, printable

TEXT = 600
"""Maximum characters shown of a text; longer ones lose their middle."""


class Samples:
    """The groups of the newest step; each request shows the next one."""

    def __init__(self) -> None:
        self._step, self._groups, self._shown = 0, list[Group](), 0

    def take(self, step: int, groups: Sequence[Group]) -> None:
        """Keep the groups of a step; those whose rewards differ come first."""
        self._step, self._shown = step, 0
        self._groups = sorted(groups, key=lambda group: len({m.reward for m in group.members}) < 2)

    def lines(self) -> list[str]:
        """Return the lines of the next sample."""
        if not self._groups:
            return ["there is no sample yet: the first step has no rewards so far"]
        group = self._groups[self._shown % len(self._groups)]
        self._shown += 1
        return list(_lines(self._step, group))


def _lines(step: int, group: Group) -> Iterator[str]:
    passed = [one.passed for one in group.members if one.passed is not None]
    judged = f", {sum(passed)} of {len(passed)} passed" if passed else ""
    yield f"sample of step {step + 1}: {group.problem.id}{judged}"
    prompt = group.problem.prompt
    if isinstance(prompt, str):
        yield from _block("prompt", prompt)
    else:
        for message in prompt:
            yield from _block(message.role, message.content)
    ranked = sorted(group.members, key=lambda one: -(one.reward or 0.0))
    for one in ranked if len(ranked) < 2 else (ranked[0], ranked[-1]):
        yield from _block(_head(one), one.completion.text)


def _head(one: Judged) -> str:
    mark = {True: "right", False: "wrong"}.get(one.passed, "not judged")  # type: ignore[arg-type]
    reasons = [verdict.detail for verdict in one.verdicts.values() if verdict.detail]
    reward = "none" if one.reward is None else brief(one.reward)
    return f"[{mark}] reward {reward}  {printable('; '.join(reasons), 120)}".rstrip()


def _block(label: str, text: str) -> Iterator[str]:
    """Yield a labelled text prefixed by a bar, so that it cannot imitate our output."""
    yield f"  {label}"
    for line in printable(text, TEXT).split("\n"):
        yield f"  | {line}"
