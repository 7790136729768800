"""Tables: rows, columns by header, and cells that span."""

from __future__ import annotations

from rlvr_bs4.archetype import Archetype, Body, Claim, Draft
from rlvr_bs4.ask import Ask
from rlvr_bs4.dom import Element, Node, h
from rlvr_bs4.schema import STRING, array, nullable, record
from rlvr_bs4.site import Site, attr, text
from rlvr_bs4.world import World
from rlvr_core.api import Json


class _Table(Archetype):
    category = "tables"

    def other(self, w: World, columns: int) -> Element:
        """A table of the same form that is not asked for."""
        rows = [h("tr", *(h("td", w.phrase()) for _ in range(columns))) for _ in range(2)]
        return h("table", h("tr", *(h("th", w.word()) for _ in range(columns))), *rows)

    def wrap(self, w: World, target: str, table: Element, columns: int) -> Body:
        """The requested table after another one."""
        blocks: tuple[Node, ...] = (self.other(w, columns), h("p", w.sentence()), table)
        return Body(blocks, claims=(Claim(f"#{target}"),))


class ListOfDicts(_Table):
    """Rows as objects, empty cells as null."""

    id = "mvp.table_list_of_dicts"
    twins = 8
    difficulty = "medium"
    phase = 1
    _COLUMNS = ("Name", "Company", "Email", "Price")
    schema = array(record(**{name: nullable(STRING) for name in _COLUMNS}))
    asks = Ask(
        'Give the body rows of the table with id "{id}" in order, each as an object keyed by the '
        "column headers; an empty cell is null.",
        'Turn the table "{id}" into one object per row with the headers as keys, null for empty '
        "cells.",
        'Return the body rows of table "{id}" in order as objects with the headers as keys, '
        "with null where a cell is empty.",
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        truth: list[dict[str, str | None]] = []
        for _ in range(w.between(3, 6)):
            person = w.person()
            email = f"{person.split()[0].lower()}@{w.word()}.example"
            values = (person, w.company(), email, w.price())
            truth.append(dict(zip(self._COLUMNS, values, strict=True)))
        truth[w.between(0, len(truth) - 1)][w.pick(self._COLUMNS[1:])] = None
        head = h("thead", h("tr", *(h("th", f" {name} ") for name in self._COLUMNS)))
        rows = [
            h("tr", *(h("td", "" if row[c] is None else f"\n  {row[c]} ") for c in self._COLUMNS))
            for row in truth
        ]
        table = h(f"table#{target}", head, h("tbody", *rows))
        return Draft(w.ask(self.asks, id=target), truth, self.wrap(w, target, table, 4))

    def _rows(self, site: Site, css: str) -> list[dict[str, str]]:
        table = site.one(css)
        names = [text(th) for th in table.select("th")]
        rows = [[text(td) for td in tr.select("td")] for tr in table.select("tr")]
        return [dict(zip(names, row, strict=False)) for row in rows if row]

    def solve(self, site: Site) -> Json:
        rows = self._rows(site, f'[id="{self.slots(site)["id"]}"]')
        return [{name: value or None for name, value in row.items()} for row in rows]

    def bug_first_table(self, site: Site) -> Json:
        return self._rows(site, "table")

    def bug_empty_text_for_null(self, site: Site) -> Json:
        return self._rows(site, f'[id="{self.slots(site)["id"]}"]')


class ListOfLists(_Table):
    """Rows as lists of a table without headers."""

    id = "mvp.table_list_of_lists"
    twins = 8
    difficulty = "easy"
    phase = 1
    schema = array(array(STRING))
    asks = Ask(
        'Give the table with id "{id}" as a list of rows, each a list of its cells\' texts.',
        'What are the rows of the table "{id}"? Give a list of lists of cell texts.',
        'Return the cell texts of table "{id}", row by row, as a list of lists.',
    )

    def build(self, w: World) -> Draft:
        target, columns = w.ident(), w.between(2, 4)
        truth = [[w.phrase() for _ in range(columns)] for _ in range(w.between(3, 5))]
        rows = [h("tr", *(h("td", f" {cell}") for cell in row)) for row in truth]
        table = h(f"table#{target}", *rows)
        return Draft(w.ask(self.asks, id=target), truth, self.wrap(w, target, table, columns))

    def solve(self, site: Site) -> list[list[str]]:
        rows = site.soup().select(f'[id="{self.slots(site)["id"]}"] tr')
        return [[text(td) for td in tr.select("td")] for tr in rows]

    def bug_flat(self, site: Site) -> list[str]:
        return [text(td) for td in site.soup().select(f'[id="{self.slots(site)["id"]}"] td')]

    def bug_first_table(self, site: Site) -> list[list[str]]:
        return [[text(td) for td in tr.select("td")] for tr in site.one("table").select("tr")]


class ColumnByHeader(_Table):
    """One column by its header, in rows that begin with a header cell."""

    id = "mvp.table_column_by_header"
    twins = 8
    difficulty = "medium"
    phase = 1
    schema = array(STRING)
    asks = Ask(
        'Give the values of the column "{column}" of the table with id "{id}", top to bottom.',
        'What is in the column "{column}" of table "{id}"? List it from top to bottom.',
        'Return all values under the header "{column}" in table "{id}", from top to bottom.',
    )
    _THEMES = (
        ("Product", "Price", "Stock", "Supplier"),
        ("Employee", "Team", "Office", "Manager"),
        ("City", "Region", "Mayor", "Founded"),
    )

    def build(self, w: World) -> Draft:
        target, headers = w.ident(), w.pick(self._THEMES)
        at = w.between(1, 3)
        cells = [[w.phrase() for _ in headers] for _ in range(w.between(3, 6))]
        head = h("thead", h("tr", *(h("th", name, scope="col") for name in headers)))
        rows = [
            h("tr", h("th", row[0], scope="row"), *(h("td", cell) for cell in row[1:]))
            for row in cells
        ]
        table = h(f"table#{target}", head, h("tbody", *rows))
        question = w.ask(self.asks, column=headers[at], id=target)
        return Draft(question, [row[at] for row in cells], self.wrap(w, target, table, 4))

    def _column(self, site: Site, cells: str) -> list[str]:
        slots = self.slots(site)
        table = site.one(f'[id="{slots["id"]}"]')
        at = [text(th) for th in table.select("thead th")].index(slots["column"])
        return [text(tr.select(cells)[at]) for tr in table.select("tbody tr")]

    def solve(self, site: Site) -> list[str]:
        return self._column(site, "th, td")

    def bug_row_header_not_counted(self, site: Site) -> list[str]:
        return self._column(site, "td")


class Rowspan(_Table):
    """A row whose first cell is held by the row above."""

    id = "mvp.table_rowspan"
    twins = 8
    difficulty = "hard"
    phase = 2
    schema = record(category=STRING, price=STRING)
    asks = Ask(
        'In the table with id "{id}" category cells span several rows. Give category and price '
        'of the item "{item}".',
        'Look up "{item}" in the table "{id}" (categories span rows): its category and price?',
        'Return category and price of "{item}" from table "{id}", whose category cells span rows.',
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        rows: list[Node] = [h("tr", *(h("th", n) for n in ("Category", "Item", "Stock", "Price")))]
        inner: list[tuple[str, dict[str, str]]] = []
        for _ in range(w.between(2, 3)):
            category, n = w.word().capitalize(), w.between(2, 4)
            for index in range(n):
                item, price = w.product(), w.price()
                cells = [h("td", item), h("td", str(w.number(1, 400))), h("td", price)]
                if index == 0:
                    cells.insert(0, h("td", category, rowspan=str(n)))
                else:
                    inner.append((item, {"category": category, "price": price}))
                rows.append(h("tr", *cells))
        item, truth = w.pick(inner)
        body = self.wrap(w, target, h(f"table#{target}", *rows), 4)
        return Draft(w.ask(self.asks, id=target, item=item), truth, body)

    def solve(self, site: Site) -> Json:
        slots = self.slots(site)
        for row in grid(site, f'[id="{slots["id"]}"]'):
            if row[1] == slots["item"]:
                return {"category": row[0], "price": row[3]}
        return None

    def bug_spans_ignored(self, site: Site) -> Json:
        slots = self.slots(site)
        for tr in site.soup().select(f'[id="{slots["id"]}"] tr'):
            cells = [text(td) for td in tr.select("td")]
            if slots["item"] in cells:
                return {"category": cells[0], "price": cells[-1]}
        return None


class TableSpans(_Table):
    """A value where row and column spans meet."""

    id = "web.table_spans"
    twins = 8
    difficulty = "hard"
    phase = 3
    schema = STRING
    asks = Ask(
        'In the table with id "{id}", what is the value of "{row}" under "{group}", sub-column '
        '"{column}"?',
        'Table "{id}" has grouped columns. Which value stands in row "{row}", group "{group}", '
        'column "{column}"?',
        'Return the cell of table "{id}" in row "{row}" and column "{column}" of the group '
        '"{group}".',
    )

    def build(self, w: World) -> Draft:
        target = w.ident()
        groups, columns = [w.word().capitalize() for _ in range(3)], ("Plan", "Actual")
        top = [h("th", "Team", rowspan="2")]
        top += [h("th", group, colspan="2") for group in groups]
        rows = [h("tr", *top), h("tr", *(h("th", name) for _ in groups for name in columns))]
        known: list[tuple[str, str, str, str]] = []
        for index in range(4):
            label = w.company()
            values = [str(w.number(100, 9999)) for _ in range(6)]
            cells = [h("th", label, scope="row"), *(h("td", value) for value in values)]
            if index == 1:  # Plan and Actual of the first group are one cell
                values[1] = values[0]
                cells = [cells[0], h("td", values[0], colspan="2"), *cells[3:]]
            if index == 3:  # the last value of the row above holds for this one too
                values[5] = known[-1][3]
                cells.pop()
            if index == 2:
                cells[-1].attrs["rowspan"] = "2"
            rows.append(h("tr", *cells))
            for at, value in enumerate(values):
                known.append((label, groups[at // 2], columns[at % 2], value))
        # below row spans and after column spans, where counting cells goes wrong
        row, group, column, truth = w.pick([*known[8:12], known[23]])
        body = self.wrap(w, target, h(f"table#{target}", *rows), 4)
        question = w.ask(self.asks, id=target, row=row, group=group, column=column)
        return Draft(question, truth, body)

    def solve(self, site: Site) -> str:
        slots = self.slots(site)
        groups, columns, *rows = grid(site, f'[id="{slots["id"]}"]')
        wanted = (slots["group"], slots["column"])
        at = list(zip(groups, columns, strict=True)).index(wanted)
        return next(row[at] for row in rows if row[0] == slots["row"])

    def bug_spans_ignored(self, site: Site) -> str:
        slots = self.slots(site)
        table = site.one(f'[id="{slots["id"]}"]')
        groups = [text(th) for th in table.select("tr")[0].select("th")]
        at = 2 * groups.index(slots["group"]) - 1 + (slots["column"] == "Actual")
        row = next(tr for tr in table.select("tr") if slots["row"] in text(tr))
        cells = row.select("th, td")
        return text(cells[at]) if at < len(cells) else ""


def grid(site: Site, css: str) -> list[list[str]]:
    """The table with every cell repeated over all it spans, as a browser lays it out."""
    rows: list[list[str]] = []
    held: dict[int, tuple[str, int]] = {}
    for tr in site.soup().select(f"{css} tr"):
        row: list[str] = []
        cells = tr.select("th, td")
        while cells or len(row) in held:
            if len(row) in held:
                value, left = held.pop(len(row))
                if left > 1:
                    held[len(row)] = (value, left - 1)
                row.append(value)
                continue
            cell = cells.pop(0)
            down = int(attr(cell, "rowspan", "1"))
            for _ in range(int(attr(cell, "colspan", "1"))):
                if down > 1:
                    held[len(row)] = (text(cell), down - 1)
                row.append(text(cell))
        rows.append(row)
    return rows
