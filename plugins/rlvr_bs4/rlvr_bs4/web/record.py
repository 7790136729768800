"""What is kept of a conversation: all that its grade is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rlvr_bs4.web.programs import Use
from rlvr_core.api import Json

CallName = Literal["run_python", "navigate", "back", "get_task_metadata", "lint_json", ""]
FREE: tuple[CallName, ...] = ("get_task_metadata", "lint_json")


@dataclass(frozen=True, slots=True)
class Called:
    """One call of a tool.

    Attributes:
        name: Of the tool; empty for what could not be read, or names none.
        ran: Whether it was carried out; not so if it was refused.
        error: Whether the model got an error.
        use: What its program did with the page.
        mended: How many slips of its JSON were put right.
        timeout: Whether the time of its program was up.
    """

    name: CallName
    ran: bool = True
    error: bool = False
    use: Use = field(default_factory=Use)
    mended: int = 0
    timeout: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of the model: what it wrote, and the calls in it."""

    text: str
    calls: tuple[Called, ...] = ()


@dataclass(slots=True)
class Conversation:
    """The state of a conversation.

    Attributes:
        spec: What the task is made from again.
        trail: URLs that ``back`` goes back on; the last one is the current page.
        visited: URLs in the order they were come to.
        steps: The model's turns up to now.
    """

    spec: dict[str, Json]
    trail: list[str]
    visited: list[str]
    steps: list[Step] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The current page."""
        return self.trail[-1]

    def go(self, url: str) -> None:
        """Come to a page."""
        self.trail.append(url)
        self.visited.append(url)

    def back(self) -> bool:
        """Return to the page before this one; False on the first."""
        if len(self.trail) == 1:
            return False
        self.trail.pop()
        self.visited.append(self.url)
        return True
