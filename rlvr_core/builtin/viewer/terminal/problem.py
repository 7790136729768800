"""One problem across the steps: an answer of each draw, with what differs from the one before."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from rlvr_core.api.services import RunFolder, brief
from rlvr_core.builtin.viewer.compare import WHICH, Draw
from rlvr_core.builtin.viewer.reader import Reader
from rlvr_core.builtin.viewer.terminal.page import Page
from rlvr_core.builtin.viewer.terminal.rows import Block, block
from rlvr_core.builtin.viewer.terminal.text_view import TextView


class ProblemPage(Page[tuple[list[Draw], int]]):
    """The draws of a problem.

    Args:
        reader: Reads runs.
        folder: The run.
        problem: The problem's id.
    """

    live = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("w", "which", "best, worst, first")]

    def __init__(self, reader: Reader, folder: RunFolder, problem: str) -> None:
        super().__init__(reader)
        self._folder, self._problem, self._which = folder, problem, WHICH[0]

    def body(self) -> TextView:
        """Return the text."""
        return TextView()

    def read(self) -> tuple[list[Draw], int]:
        """Read the draws."""
        return self.reader.draws(self._folder, self._problem, self._which)

    def show(self, found: tuple[list[Draw], int]) -> None:
        """Show the draws."""
        draws, total = found
        some = "" if len(draws) == total else f" ({len(draws)} of them here)"
        self.head(f"{self._problem}: {total:,} draws{some}, the {self._which} completion of each")
        blocks = [one for draw in draws for one in _draw(draw)]
        self.query_one(TextView).show(blocks, top=True)
        self.say("Words between {+ +} are new since the draw before, those between [- -] are gone.")

    def action_which(self) -> None:
        """Take another completion of each draw."""
        self._which = WHICH[(WHICH.index(self._which) + 1) % len(WHICH)]
        self.load()


def _draw(draw: Draw) -> list[Block]:
    listed, answer = draw.group, draw.answer
    judged = f"{listed['passed']} of {listed['judged']} passed" if listed["judged"] else ""
    heading = [f"step {listed['step']}", f"group {listed['key']}", judged]
    if answer is not None and answer["reward"] is not None:
        heading.append(f"reward {brief(answer['reward'])}")
    blocks = [block(", ".join(filter(None, heading)), "title")]
    pieces = []
    for kind, text in draw.changes:
        before, after = {"added": ("{+", "+}"), "removed": ("[-", "-]")}.get(kind, ("", ""))
        pieces += [(before, "quiet"), (text, kind), (after, "quiet")]
    if answer is None:
        blocks.append(block("it has no completion", "quiet"))
    else:
        blocks.append(Block(tuple(pieces), "│ "))
    if draw.cut:
        blocks.append(block("… the text goes on; the group has all of it", "quiet"))
    return [*blocks, block("")]
