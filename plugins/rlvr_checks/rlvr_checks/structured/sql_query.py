"""Parses a model's SQL and runs it in SQLite: one SELECT, read-only, within limits."""

from __future__ import annotations

import math
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rlvr_core.api import MachineError, spoken

if TYPE_CHECKING:
    from sqlglot import exp

MAX_CHARACTERS = 20_000
MAX_ROWS = 10_000
MAX_VALUE = 1_000_000
"""Maximum bytes of one value, and of one SQL statement."""
MAX_PATTERN = 100
"""Maximum bytes of a pattern of LIKE and GLOB, which SQLite matches by backtracking."""
HEAP = 256 * 2**20
"""Maximum bytes that SQLite may use in a worker process."""
_STEPS = 10_000
"""SQLite VM instructions between two checks of the time limit; one may call a function."""
_WIDE = re.compile(r"%[^%a-zA-Z]*(?:\*|\d{5})")
"""A format with a width of five digits, or a width from an argument."""

# the authorizer sees a query only when it is prepared
_PLAIN: dict[str, Any] = {"isolation_level": None, "cached_statements": 0}

Row = tuple[Any, ...]

_NOISE = 1e-11
"""Relative error of a sum of fractions that should be whole."""

_FENCE = re.compile(r"```[ \t]*(\w*)[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_LANGUAGES = ("", "sql", "sqlite", "sqlite3", "mysql", "postgres", "postgresql", "pgsql", "tsql")
_TAG = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL | re.IGNORECASE)
_INLINE = re.compile(r"`\s*((?:SELECT|WITH|VALUES)\b[^`]*)`(?!`)", re.IGNORECASE)
_BEGIN = re.compile(
    r"^\s*(?:[*_#\w ]{1,40}:[*_]*[ \t]*)?((?:\(\s*)*(?:SELECT|WITH|VALUES)\b)", re.I | re.MULTILINE
)
_DENIED = frozenset(
    {
        "random", "randomblob", "load_extension", "readfile", "writefile", "edit", "fts3_tokenizer",
        "current_date", "current_time", "current_timestamp", "changes", "total_changes",
        "last_insert_rowid",
    }
)  # fmt: skip
"""Functions that access anything outside the database, or are not deterministic."""


class QueryError(ValueError):
    """Why a query is no answer, in one line."""


def find_query(answer: str) -> str:
    """Return the SQL of an answer: the last ``<answer>`` or fence, else text that starts a SELECT.

    Such text is code in backticks after prose, or starts a line, with the lines that belong to it.

    Raises:
        QueryError: If there is none.
    """
    text = spoken(answer.replace("\r\n", "\n")).strip()
    if tags := _TAG.findall(text):
        text = tags[-1].strip()
    blocks = [m[2] for m in _FENCE.finditer(text) if m[1].lower() in _LANGUAGES]
    if blocks:
        text = blocks[-1].strip()
    elif not tags:
        begun = _BEGIN.search(text)
        inline = _INLINE.findall(text)
        if begun:
            text = _without_prose(text[begun.start(1) :])
        elif inline:
            text = inline[-1].strip()
    if not text:
        raise QueryError("there is no SQL in the answer")
    if len(text) > MAX_CHARACTERS:
        raise QueryError(f"the query is longer than {MAX_CHARACTERS:,} characters")
    return text


def _without_prose(text: str) -> str:
    """Remove the paragraphs after a query that do not begin with an SQL keyword."""
    from sqlglot import TokenType
    from sqlglot.errors import SqlglotError

    paragraphs = re.split(r"\n[ \t]*\n", text.strip())
    for at in range(1, len(paragraphs)):
        try:
            first = _sqlglot().tokenize(paragraphs[at].strip()[:40].split("'")[0], read="sqlite")[
                :1
            ]
        except SqlglotError:
            continue
        if first and (first[0].token_type == TokenType.VAR or paragraphs[at].startswith("**")):
            return "\n\n".join(paragraphs[:at]).strip()
    return text.strip()


def check_select(query: str) -> None:
    """Refuse a text that is not one statement, a SELECT.

    Only tokens are checked, in linear time: sqlglot's parser can take forever on a hostile text.
    SQLite parses the query, and its authorizer only allows reading.

    Raises:
        QueryError: If it is something else.
        MachineError: If sqlglot is not installed.
    """
    sqlglot = _sqlglot()
    from sqlglot import TokenType

    try:
        tokens = sqlglot.tokenize(query, read="sqlite")
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise QueryError(f"not SQL: {str(error).strip().splitlines()[0][:150]}") from error
    statements: list[list[Any]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    statements = [statement for statement in statements if statement]
    if len(statements) != 1:
        raise QueryError(f"{len(statements)} statements; one SELECT is wanted")
    words = [token for token in statements[0] if token.token_type != TokenType.L_PAREN]
    first = words[0].text.upper() if words else "("
    if first not in ("SELECT", "WITH", "VALUES"):
        raise QueryError(f"{first[:40]!r} is no SELECT")
    for token in statements[0]:
        if token.token_type == TokenType.STRING and token.text.strip().lower() == "now":
            raise QueryError("'now' is not the same at each call")


def parse(query: str) -> exp.Query:
    """Parse a reference.

    Raises:
        QueryError: If it is not a SELECT.
        MachineError: If sqlglot is not installed.
    """
    sqlglot = _sqlglot()
    check_select(query)
    try:
        tree = sqlglot.parse_one(query, read="sqlite")
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise QueryError(f"not SQL: {str(error).strip().splitlines()[0][:150]}") from error
    tree = tree.unnest() if isinstance(tree, sqlglot.exp.Subquery) else tree
    if not isinstance(tree, sqlglot.exp.Query):
        raise QueryError(f"{type(tree).__name__.upper()} is no SELECT")
    select: exp.Query = tree
    return select


def _sqlglot() -> Any:
    try:
        import sqlglot
    except ImportError as error:
        raise MachineError(
            "checks/sql needs sqlglot", remedy="pip install 'rlvr-core[sql]'"
        ) from error
    return sqlglot


class Database:
    """A read-only database: in memory, created by a script, or a file.

    Args:
        script: SQL that creates and fills the tables.
        path: A SQLite file, instead of a script.

    Raises:
        sqlite3.Error: If the script is wrong, or the file is not a database.
    """

    def __init__(self, script: str | None, path: str | None) -> None:
        if path is None:
            connection = sqlite3.connect(":memory:", **_PLAIN)
            connection.executescript(script or "")
        else:
            uri = f"file:{quote(path)}?mode=ro"
            connection = sqlite3.connect(uri, uri=True, **_PLAIN)
        connection.execute(f"PRAGMA hard_heap_limit={HEAP}")
        connection.execute("PRAGMA query_only=ON")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_PATTERN)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        for name in ("printf", "format"):
            connection.create_function(name, -1, _formatted, deterministic=True)
        connection.set_authorizer(self._allowed)
        self._connection = connection
        self.tables: set[str] = set()
        """Tables that the last query read."""

    def run(self, query: str, seconds: float) -> list[Row]:
        """Return the rows of a query that may take ``seconds`` of processor time.

        Raises:
            QueryError: If it is wrong, takes too long or returns too much.
        """
        end = time.process_time() + seconds
        self.tables.clear()
        self._connection.set_progress_handler(lambda: time.process_time() > end, _STEPS)
        try:
            rows: list[Row] = self._connection.execute(query).fetchmany(MAX_ROWS + 1)
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                what = f"it took more than {seconds:g} s of processor time"
                raise QueryError(what) from error
            raise QueryError(f"SQLite: {error}") from error
        except (sqlite3.Error, sqlite3.Warning, MemoryError, OverflowError, ValueError) as error:
            raise QueryError(f"SQLite: {str(error) or type(error).__name__}") from error
        finally:
            self._connection.set_progress_handler(None, 0)
        if len(rows) > MAX_ROWS:
            raise QueryError(f"it gives more than {MAX_ROWS:,} rows")
        return rows

    def _allowed(
        self, action: int, first: str | None, second: str | None, *rest: str | None
    ) -> int:
        """SQLite's authorizer: allow reading and deterministic functions only."""
        if action == sqlite3.SQLITE_FUNCTION:
            denied = (second or "").lower() in _DENIED
            return sqlite3.SQLITE_DENY if denied else sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ and first:
            self.tables.add(first)
        known = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)
        return sqlite3.SQLITE_OK if action in known else sqlite3.SQLITE_DENY


def _formatted(*arguments: Any) -> Any:
    """SQLite's own ``printf``, without widths that take long and escape the time limit."""
    if arguments and isinstance(arguments[0], str) and _WIDE.search(arguments[0]):
        raise ValueError("printf with a width of that kind is not allowed")
    with closing(sqlite3.connect(":memory:")) as other:
        marks = ",".join("?" * len(arguments))
        return other.execute(f"SELECT printf({marks})", arguments).fetchone()[0]


def same_rows(expected: Sequence[Row], actual: Sequence[Row], keys: Sequence[Row] | None) -> bool:
    """Return whether two results are equal.

    Args:
        expected: Rows of the reference.
        actual: Rows of the answer.
        keys: Sort key of each row of the reference: consecutive rows with equal keys may come in
            any order. None to ignore the order of all rows.
    """
    if len(expected) != len(actual):
        return False
    left = [_key(row) for row in expected]
    right = [_key(row) for row in actual]
    if keys is None:
        return Counter(left) == Counter(right)
    start = 0
    for end in range(1, len(left) + 1):
        if end < len(left) and keys[end] == keys[start]:
            continue
        if Counter(left[start:end]) != Counter(right[start:end]):
            return False
        start = end
    return True


def _key(row: Row) -> tuple[tuple[str, Any], ...]:
    return tuple(map(typed, row))


def typed(value: Any) -> tuple[str, Any]:
    """Return a value for comparison: numbers by value, fractions to ten digits, text as text."""
    if isinstance(value, float):
        if math.isfinite(value) and abs(value) < 2**53:
            whole = round(value)
            if abs(value - whole) <= min(_NOISE * max(abs(value), 1.0), 1e-6):
                return "number", whole
        return "fraction", f"{value:.10g}"
    return "number" if isinstance(value, int) else type(value).__name__, value
