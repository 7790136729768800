"""The verifier ``checks/sql``: a SELECT that gives the rows that the reference gives."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from rlvr_checks.structured.sql_query import (
    Database,
    QueryError,
    Row,
    check_select,
    find_query,
    parse,
    same_rows,
    typed,
)
from rlvr_core.api import Completion, ComponentConfig, DataError, Problem, Verdict
from rlvr_core.data.uri import local_path

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True, slots=True)
class _World:
    """A database, and the result of the reference on it.

    Attributes:
        database: The database.
        rows: Rows of the reference.
        keys: See ``same_rows``.
        reads: Whether the reference reads a table; an answer must then read one, too.
    """

    database: Database
    rows: list[Row]
    keys: list[Row] | None
    reads: bool


class SqlVerifier:
    """Runs the query of an answer and the reference in SQLite and compares their rows.

    Names of columns are no matter, their order is. The order of rows counts where the reference
    has an ``ORDER BY``, except among rows that it leaves equal. A query that is no single SELECT,
    fails, takes too long, or gives too much is wrong.
    """

    class Config(ComponentConfig):
        """Options of ``checks/sql``."""

        answer: Annotated[str, Field(min_length=1)] = "answer"
        """Field of the spec with the reference, a SELECT."""
        schema_field: Annotated[str, Field(min_length=1)] = "schema"
        """Field of the spec with the SQL that makes and fills the tables: text, or a list of texts
        for several databases, on each of which an answer must give the right rows."""
        database: Annotated[str, Field(min_length=1)] = "database"
        """Field of the spec with the path of a SQLite file, used where there is no script."""
        seconds: Annotated[float, Field(gt=0)] = 2.0
        """Processor time that a query may take on each database."""
        allow_empty: bool = False
        """Accept references that give no rows on any database; many a wrong query gives none."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def check(self, problem: Problem) -> None:
        """Refuse a problem whose database or reference does not work, or gives no rows.

        Raises:
            DataError: If the problem is refused.
            MachineError: If sqlglot is not installed.
        """
        worlds = self._worlds(problem)
        if not self._config.allow_empty and not any(world.rows for world in worlds):
            raise DataError(
                f"{problem.id}: checks/sql: the reference gives no rows, as wrong queries do",
                remedy="bring data for which it gives some, or set allow_empty: true",
            )

    def gold(self, problem: Problem) -> str:
        """Return the reference in a code fence."""
        return f"```sql\n{problem.spec[self._config.answer]}\n```"

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Return score 1 for the rows of the reference on each database, else 0."""
        worlds = self._worlds(problem)
        query = None
        try:
            query = find_query(completion.text)
            check_select(query)
            faults = [self._fault(query, world) for world in worlds]
        except QueryError as error:
            faults = [str(error)]
        fault = next((fault for fault in faults if fault is not None), None)
        passed = fault is None
        return Verdict(float(passed), passed=passed, extracted=query, detail=fault or "")

    def _fault(self, query: str, world: _World) -> str | None:
        rows = world.database.run(query, self._config.seconds)
        if world.reads and not world.database.tables:
            return "it reads no table"
        if len(rows) != len(world.rows):
            return f"{len(rows)} rows, not {len(world.rows)}"
        if rows and len(rows[0]) != len(world.rows[0]):
            return f"{len(rows[0])} columns, not {len(world.rows[0])}"
        if same_rows(world.rows, rows, world.keys):
            return None
        ordered = world.keys is not None and same_rows(world.rows, rows, None)
        return "the rows are in another order" if ordered else "other rows"

    def _worlds(self, problem: Problem) -> tuple[_World, ...]:
        config, spec = self._config, problem.spec
        answer, scripts = spec.get(config.answer), spec.get(config.schema_field)
        path = spec.get(config.database)
        if not isinstance(answer, str) or not answer.strip():
            raise DataError(f"{problem.id}: checks/sql needs a SELECT in field '{config.answer}'")
        several = (scripts,) if isinstance(scripts, str) else tuple(scripts or ())
        if not all(isinstance(script, str) for script in several) or not (several or path):
            raise DataError(
                f"{problem.id}: checks/sql needs SQL in field '{config.schema_field}', or the path "
                f"of a SQLite file in field '{config.database}'",
                remedy=f"fields there are: {', '.join(map(str, spec)) or 'none'}",
            )
        file = None if several else str(local_path(str(path)))
        try:
            return _worlds(several, file, answer)
        except (QueryError, sqlite3.Error, sqlite3.Warning) as error:
            raise DataError(f"{problem.id}: checks/sql: the reference: {error}") from error


@lru_cache(maxsize=16)
def _worlds(scripts: Sequence[str], path: str | None, answer: str) -> tuple[_World, ...]:
    reference = parse(answer)
    databases = (
        [Database(script, None) for script in scripts] if path is None else [Database(None, path)]
    )
    worlds = []
    for database in databases:
        rows = database.run(answer, _REFERENCE_SECONDS)
        reads = bool(database.tables)
        worlds.append(_World(database, rows, _order_keys(database, rows, reference), reads))
    return tuple(worlds)


_REFERENCE_SECONDS = 60.0


def _order_keys(database: Database, rows: list[Row], tree: exp.Query) -> list[Row] | None:
    """Return the sort key of each row of the reference; None if it has no ORDER BY."""
    order = tree.args.get("order")
    if order is None:
        return None
    keys = [_resolved(expression.this, tree) for expression in order.expressions]
    width = len(rows[0]) if rows else 0
    columns = [key for key in keys if isinstance(key, int) and 0 <= key < width]
    if len(columns) == len(keys):
        return [tuple(typed(row[column]) for column in columns) for row in rows]
    strict: list[Row] = [(number,) for number in range(len(rows))]
    try:
        wider = _with_keys(tree, keys)
        wide_rows = database.run(wider, _REFERENCE_SECONDS) if wider else []
    except QueryError:
        return strict
    if len(wide_rows) != len(rows) or [row[: -len(keys)] for row in wide_rows] != rows:
        return strict
    return [tuple(map(typed, row[-len(keys) :])) for row in wide_rows]


def _resolved(key: exp.Expression, tree: exp.Query) -> int | exp.Expression:
    """Return the output column that a key of ORDER BY names; the key itself if it names none."""
    from sqlglot import exp

    if isinstance(key, exp.Literal) and key.is_int:
        return int(key.name) - 1
    columns = tree.selects
    if any(column.is_star for column in columns):
        return key
    for index, column in enumerate(columns):
        plain = isinstance(key, exp.Column) and not key.table
        if (plain and column.alias_or_name.lower() == key.name.lower()) or column.unalias() == key:
            return index
    return key


def _with_keys(tree: exp.Query, order_keys: Sequence[Any]) -> str | None:
    """Return the reference with its ORDER BY keys as extra columns; None if that changes it."""
    from sqlglot import exp

    if not isinstance(tree, exp.Select) or tree.args.get("distinct"):
        return None
    aliases = {select.alias.lower(): select.unalias() for select in tree.selects if select.alias}

    def written_out(node: Any) -> Any:
        known = isinstance(node, exp.Column) and not node.table and node.name.lower() in aliases
        return aliases[node.name.lower()].copy() if known else node

    keys = [
        tree.selects[key].unalias() if isinstance(key, int) else key.copy().transform(written_out)
        for key in order_keys
    ]
    wider = tree.copy().select(*keys, copy=False)
    return str(wider.sql(dialect="sqlite"))
