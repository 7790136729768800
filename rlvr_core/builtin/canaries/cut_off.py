"""Answers that pass although the completion was cut off while they were being written.

Nobody knows whether such an answer is complete: ``[46`` may have been the start of 465, or of a
list. A verifier that completes it rewards text that the model did not write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_core.api import Group, Json, Judged

FEWEST = 3
"""Minimum problems with such an answer for a warning."""
SHOWN = 40
"""Number of last characters of a completion to quote."""


class CutOff:
    """Warns once about passing answers that end where the completion was cut off.

    Args:
        say: Prints a message for the user.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._problems: dict[str, str] = {}
        self._reported = False

    def count(self, group: Group) -> None:
        """Count a group's cut-off completions that pass."""
        if self._reported:
            return
        for member in group.members:
            if _passes_unfinished(member):
                text = member.completion.text
                self._problems.setdefault(group.problem.id, text[-SHOWN:])

    def tell(self) -> None:
        """Print the warning once there are enough problems."""
        if self._reported or len(self._problems) < FEWEST:
            return
        self._reported = True
        id_, end = next(iter(self._problems.items()))
        self._say(
            f"warning: guard references: completions of {len(self._problems)} problems that were "
            f"cut off (finish_reason: length) pass by an answer that ends where they do, such as "
            f"that of {id_}: {end!r}. The verifier completes it (a bracket or tag is missing), "
            "or takes what is there for the whole: ask for the end of the answer, or raise "
            "sampling.max_tokens. See rlvr docs guards#references"
        )

    def state_dict(self) -> dict[str, Json]:
        """Return the state for a checkpoint."""
        return {"problems": dict(self._problems), "told": self._reported}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self._problems, self._reported = dict(state["problems"]), state["told"]


def _passes_unfinished(member: Judged) -> bool:
    if not member.passed or member.completion.finish_reason != "length":
        return False
    first = next(iter(member.verdicts.values()), None)
    answer = "" if first is None else (first.extracted or "").strip()
    return bool(answer) and member.completion.text.endswith(answer)
