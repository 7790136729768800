"""Answers that pass although the completion was cut off while they were being written.

Whether such an answer is whole nobody knows: ``[46`` may have been going to be 465, or to go on
with another number. A verifier that completes what is missing pays for what nobody wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_core.api import Group, Json, Judged

FEWEST = 3
"""Problems with such an answer before anything is said."""
SHOWN = 40
"""Characters of a completion's end that are quoted."""


class CutOff:
    """Tells once of answers that end where the completion was cut off, and pass.

    Args:
        say: Tells the user something.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._problems: dict[str, str] = {}
        self._told = False

    def count(self, group: Group) -> None:
        """Look at a group's completions."""
        if self._told:
            return
        for member in group.members:
            if _passes_unfinished(member):
                text = member.completion.text
                self._problems.setdefault(group.problem.id, text[-SHOWN:])

    def tell(self) -> None:
        """Say what was found, once there are enough problems."""
        if self._told or len(self._problems) < FEWEST:
            return
        self._told = True
        id_, end = next(iter(self._problems.items()))
        self._say(
            f"warning: guard references: completions of {len(self._problems)} problems that were "
            f"cut off (finish_reason: length) pass by an answer that ends where they do, such as "
            f"that of {id_}: {end!r}. The verifier completes it (a bracket or tag is missing), "
            "or takes what is there for the whole: ask for the end of the answer, or raise "
            "sampling.max_tokens. See rlvr docs guards#references"
        )

    def state_dict(self) -> dict[str, Json]:
        """Return what is counted, for a checkpoint."""
        return {"problems": dict(self._problems), "told": self._told}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self._problems, self._told = dict(state["problems"]), state["told"]


def _passes_unfinished(member: Judged) -> bool:
    if not member.passed or member.completion.finish_reason != "length":
        return False
    first = next(iter(member.verdicts.values()), None)
    answer = "" if first is None else (first.extracted or "").strip()
    return bool(answer) and member.completion.text.endswith(answer)
