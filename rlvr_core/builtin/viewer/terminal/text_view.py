"""A widget that shows long text and scrolls in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from rlvr_core.builtin.viewer.terminal.palette import style
from rlvr_core.builtin.viewer.terminal.rows import Block, Piece, rows


class TextView(ScrollView, can_focus=True):
    """Blocks of text, of which the rows on the screen alone are drawn."""

    DEFAULT_CSS = "TextView { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "page_down", "page down", show=False),
        Binding("g", "scroll_home", "to the top", show=False),
        Binding("G", "scroll_end", "to the end", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._blocks: Sequence[Block] = ()
        self._rows: list[tuple[str, list[Piece]]] = []
        self._begins: dict[str, int] = {}
        self._width = 0

    def show(self, blocks: Sequence[Block], *, top: bool = False) -> None:
        """Show these blocks, from the top or where it stands."""
        self._blocks = blocks
        self._lay_out()
        if top:
            self.scroll_to(y=0, animate=False)

    def go_to(self, name: str) -> None:
        """Go to the first block of a name."""
        if name in self._begins:
            self.scroll_to(y=self._begins[name], animate=False)

    def here(self, names: Sequence[str]) -> str | None:
        """Return the name, of these, of the last block that begins at or before the first row."""
        top = round(self.scroll_y)
        before = [name for name in names if self._begins.get(name, top + 1) <= top]
        return before[-1] if before else None

    @property
    def text(self) -> str:
        """All rows, as they are shown."""
        return "\n".join(
            margin + "".join(part for part, _ in pieces) for margin, pieces in self._rows
        )

    def on_resize(self, event: events.Resize) -> None:
        """Break the rows anew."""
        if self.scrollable_content_region.width != self._width:
            self._lay_out()

    def render_line(self, y: int) -> Strip:
        """Draw one row."""
        place = round(self.scroll_y) + y
        width, base = self.size.width, self.rich_style
        if place >= len(self._rows):
            return Strip.blank(width, base)
        margin, pieces = self._rows[place]
        coloured = not self.app.no_color
        drawn = [Segment(margin, base + style("quiet", coloured))] if margin else []
        drawn += [Segment(text, base + style(names, coloured)) for text, names in pieces]
        return Strip(drawn).adjust_cell_length(width, base)

    def _lay_out(self) -> None:
        self._width = self.scrollable_content_region.width
        if not self._width:
            return
        self._rows, self._begins = [], {}
        for one in self._blocks:
            if one.name:
                self._begins.setdefault(one.name, len(self._rows))
            room = self._width - len(one.margin)
            self._rows += [(one.margin, pieces) for pieces in rows(one, room)]
        # room below the last row, so that a short last block can be gone to
        self.virtual_size = Size(self._width, len(self._rows))
        self.refresh()
