"""The screen of a group: its completions with verdicts and reasons, tokens in colours."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from rlvr_core.api.services import RunFolder
from rlvr_core.builtin.viewer.choice import Choice
from rlvr_core.builtin.viewer.group import TEXT, Shown, Turn
from rlvr_core.builtin.viewer.reader import Opened, Reader
from rlvr_core.builtin.viewer.terminal.asking import Question
from rlvr_core.builtin.viewer.terminal.page import Page
from rlvr_core.builtin.viewer.terminal.palette import KEYS, token_style
from rlvr_core.builtin.viewer.terminal.problem import ProblemPage
from rlvr_core.builtin.viewer.terminal.rows import Block, Piece, block
from rlvr_core.builtin.viewer.terminal.text_view import TextView
from rlvr_core.builtin.viewer.tokens import COLOURS


class GroupPage(Page[Opened]):
    """One group.

    Args:
        reader: Reads runs.
        folder: The run.
        choice: The filters, which decide the next and previous group.
        key: The group.
    """

    live = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "go(1)", "next"),
        Binding("k", "go(-1)", "previous"),
        Binding("right", "sample(1)", "next completion", show=False),
        Binding("left", "sample(-1)", "previous completion", show=False),
        Binding("c", "colour", "colours"),
        Binding("f", "favourite(False)", "favourite"),
        Binding("F", "favourite(True)", "of the completion", show=False),
        Binding("n", "note", "note"),
        Binding("p", "problem", "problem"),
        Binding("w", "whole", "whole"),
    ]

    def __init__(self, reader: Reader, folder: RunFolder, choice: Choice, key: str) -> None:
        super().__init__(reader)
        self._folder, self._choice, self._key = folder, choice, key
        self._whole = False
        self._colour = next(iter(COLOURS))
        self._opened: Opened | None = None

    def body(self) -> TextView:
        """Return the text."""
        return TextView()

    def read(self) -> Opened:
        """Open the group."""
        return self.reader.group(self._folder, self._choice, self._key, whole=self._whole)

    def show(self, found: Opened) -> None:
        """Show the group."""
        other = self._opened is None or self._opened.key != found.key
        self._opened = found
        self._draw(top=other)

    def action_go(self, by: int) -> None:
        """Open the next or previous group that fits."""
        if self._opened is None:
            return
        key = self._opened.after if by > 0 else self._opened.before
        if key is None:
            self.say("this is the last one" if by > 0 else "this is the first one")
            return
        self._key, self._whole = key, False
        self.load()

    def action_sample(self, by: int) -> None:
        """Go to another completion."""
        names = self._names()
        if not names:
            return
        text = self.query_one(TextView)
        here = text.here(names)
        place = names.index(here) + by if here else max(0, by - 1)
        if place < 0:
            text.scroll_to(y=0, animate=False)
        text.go_to(names[min(max(0, place), len(names) - 1)] if place >= 0 else "")

    def action_colour(self) -> None:
        """Colour tokens by something else."""
        every = list(COLOURS)
        self._colour = every[(every.index(self._colour) + 1) % len(every)]
        self._draw()

    def action_favourite(self, completion: bool) -> None:
        """Toggle the group, or the completion on the screen, as a favourite."""
        if self._opened is not None and (key := self._marked(completion)) is not None:
            now = bool(self._opened.marks.get(key, {}).get("favourite"))
            self._change(key, favourite=not now)

    def action_note(self) -> None:
        """Write a note on the group."""
        if self._opened is None:
            return
        key = self._opened.key
        before = str(self._opened.marks.get(key, {}).get("note") or "")

        def noted(text: str | None) -> None:
            if text is not None and text != before:
                self._change(key, note=text)

        self.app.push_screen(Question(f"Note on {key}", before), noted)

    def action_problem(self) -> None:
        """Show its problem across the steps."""
        if self._opened is not None:
            problem = self._opened.listed["problem"]
            self.app.push_screen(ProblemPage(self.reader, self._folder, problem))

    def action_whole(self) -> None:
        """Show texts whole, or their beginnings."""
        self._whole = not self._whole
        self.load()

    def _names(self) -> list[str]:
        return [str(one.sample) for one in self._opened.completions] if self._opened else []

    def _marked(self, completion: bool) -> str | None:
        """Return the key of the group, or of the completion on the screen, to mark."""
        if not completion:
            return self._key
        here = self.query_one(TextView).here(self._names())
        if here is None:
            self.say("go to a completion first: →")
            return None
        return f"{self._key}/{here}"

    def _change(self, key: str, *, favourite: bool | None = None, note: str | None = None) -> None:
        marks = self.reader.marks(self._folder)

        def change() -> str:
            marks.change(key, favourite=favourite, note=note)
            self.app.call_from_thread(self.load, "")
            return ""

        self.in_thread(change)

    def _draw(self, *, top: bool = False) -> None:
        if self._opened is None:
            return
        one = self._opened
        star = " ★" if one.marks.get(one.key, {}).get("favourite") else ""
        self.head(f"{one.key}{star}  {one.listed['problem']}, drawn {one.times} times")
        self.query_one(TextView).show(list(_blocks(one, self._colour, self._whole)), top=top)
        self.say("\n".join(one.notes))


def _blocks(one: Opened, colour: str, whole: bool) -> list[Block]:
    blocks = [_facts(one.facts)]
    if note := one.marks.get(one.key, {}).get("note"):
        blocks.append(block(str(note), margin="note  "))
    blocks += [block("prompt, as the model saw it", "label"), block(
        one.prompt if whole else one.prompt[:TEXT], "heard", margin="│ "
    )]  # fmt: skip
    if len(one.prompt) > TEXT and not whole:
        blocks.append(_more(f"{len(one.prompt) - TEXT:,} characters"))
    if one.coloured:
        legend: list[Piece] = [(f"colours: {COLOURS[colour]}  ", "quiet")]
        for css, text in KEYS[colour]:
            legend += [(text, css), ("  ", "")]
        blocks.append(Block(tuple(legend)))
    for shown in one.completions:
        blocks += _completion(shown, one, colour)
    return [*blocks, block(""), *(block(text, "quiet") for text in one.missing)]


def _completion(shown: Shown, one: Opened, colour: str) -> list[Block]:
    mark = one.marks.get(f"{one.key}/{shown.sample}", {})
    sign = {"right": "✔ right", "wrong": "✘ wrong"}.get(shown.outcome, shown.outcome)
    head: list[Piece] = [
        (f"── {shown.sample}  ", "title"),
        (sign, {"right": "right", "wrong": "wrong"}.get(shown.outcome, "quiet")),
        ("  ★" if mark.get("favourite") else "", "title"),
        ("" if shown.matches else "  does not fit the filter", "quiet"),
    ]
    blocks = [block(""), Block(tuple(head), name=str(shown.sample))]
    blocks.append(_facts(list(shown.facts.items())))
    if note := mark.get("note"):
        blocks.append(block(str(note), margin="note  "))
    for turn in shown.turns:
        blocks += _turn(turn, shown.css, colour)
    if shown.left_out:
        blocks.append(_more(shown.left_out))
    for name, fields in shown.verdicts:
        blocks.append(block(f"verdict of {name}", "label"))
        blocks += [Block(((f"{key}: ", "quiet"), (value, "")), "  ") for key, value in fields]
    if shown.unlikely:
        blocks.append(block("least likely tokens", "label"))
        blocks += [Block(((repr(text), ""), (f"  {description}", "quiet")), "  ")
                   for text, description in shown.unlikely]  # fmt: skip
    return blocks


def _turn(turn: Turn, answer: str, colour: str) -> list[Block]:
    own = turn.role in ("", "assistant")
    blocks = [block(turn.role, "label")] if turn.role else []
    if turn.tokens:
        pieces = tuple((one.text, token_style(one.css, answer, colour)) for one in turn.tokens)
        blocks.append(Block(pieces, "│ "))
    else:
        blocks.append(block(turn.text, "" if own else "heard", margin="│ "))
    return [*blocks, *(block(call, "call", margin="tool call  ") for call in turn.calls)]


def _facts(facts: list[tuple[str, str]]) -> Block:
    pieces: list[Piece] = []
    for name, value in facts:
        pieces += [(f"{name}\xa0", "quiet"), (f"{value}   ", "")]  # not broken between them
    return Block(tuple(pieces))


def _more(what: str) -> Block:
    return block(f"… {what} more are not shown: w shows the whole", "quiet")
