"""Equal completions of one problem have equal verdicts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlvr_core.api import Completion, Group

REMEMBERED = 20_000
"""Number of most recent verdicts to compare with."""

Key = tuple[str, str, int, str]
Said = tuple[float | None, bool | None]


class Repeats:
    """Remembers verdicts by problem and completion."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Key, str], Said] = OrderedDict()

    def differing(self, group: Group, names: Sequence[str]) -> Iterator[str]:
        """Yield, in words, each verdict that differs from that of an equal completion.

        Args:
            group: A judged group.
            names: Verifiers that are deterministic.
        """
        for member in group.members:
            completion = member.completion
            if completion.transcript is not None or completion.usage is not None:
                continue
            key = _key(group.problem.id, completion)
            for name in names:
                verdict = member.verdicts.get(name)
                if verdict is None or verdict.status != "ok":
                    continue
                scored = (verdict.score, verdict.passed)
                earlier = self._known.setdefault((key, name), scored)
                self._known.move_to_end((key, name))
                if earlier != scored:
                    yield (
                        f"two equal completions of problem {group.problem.id} "
                        f"({completion.text[-40:]!r}) have the scores {earlier[0]:g} and "
                        f"{scored[0]:g} by {name}: verdicts are mixed up on their way, or the "
                        "verifier keeps state or draws random numbers"
                    )
                    self._known[key, name] = scored
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def _key(problem_id: str, completion: Completion) -> Key:
    return problem_id, completion.text, len(completion.token_ids), completion.finish_reason
