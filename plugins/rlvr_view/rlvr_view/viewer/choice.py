"""Translates the filters of the rollout browser to SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

from rlvr_core.api import ConfigError
from rlvr_view.viewer.index import storable

PAGE = 50
"""Groups on a page."""
LONGEST = 2000
"""Maximum characters of a filter's value."""
SORTS = {
    "newest": "g.step DESC, g.id DESC",
    "oldest": "g.step, g.id",
    "reward, highest": "g.reward DESC, g.id",
    "reward, lowest": "g.reward IS NULL, g.reward, g.id",
    "passed, most": "1.0 * g.passed / g.judged DESC, g.id",
    "passed, fewest": "g.judged = 0, 1.0 * g.passed / g.judged, g.id",
    "longest": "g.tokens DESC, g.id",
}
OUTCOMES = {
    "mixed": "g.passed > 0 AND g.passed < g.judged",
    "right": "g.judged > 0 AND g.passed = g.judged",
    "wrong": "g.judged > 0 AND g.passed = 0",
    "not judged": "g.judged = 0",
}
ANSWERS = {"right": "c.passed = 1", "wrong": "c.passed = 0", "not judged": "c.passed IS NULL"}
_NAMES = {
    "step_from": "from step",
    "step_to": "to step",
    "reward_from": "reward from",
    "reward_to": "reward to",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """The filters, order and page; an empty string filters nothing out.

    Attributes:
        step_from: First step.
        step_to: Last step.
        problem: Part of a problem's id.
        dataset: A data set.
        group: How a group came out: a key of ``OUTCOMES``.
        answer: How a completion came out: a key of ``ANSWERS``.
        fate: The fate in the ledger.
        status: Status of its verdicts: ``ok``, or the first other one.
        finish: Why it ended.
        reward_from: Lowest reward.
        reward_to: Highest reward.
        text: Part of completion, prompt or verdict, in capitals or not.
        sort: A key of ``SORTS``.
        page: Page of the list, counted from 1.
    """

    step_from: str = ""
    step_to: str = ""
    problem: str = ""
    dataset: str = ""
    group: str = ""
    answer: str = ""
    fate: str = ""
    status: str = ""
    finish: str = ""
    reward_from: str = ""
    reward_to: str = ""
    text: str = ""
    sort: str = "newest"
    page: str = "1"

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Choice:
        """Read the parameters of a request.

        Raises:
            ConfigError: If a parameter has a value that is not allowed.
        """
        known = {field_.name for field_ in fields(cls)}
        parameters = {
            key: storable(value) for key, value in query.items() if key in known and value
        }
        if any(len(value) > LONGEST for value in parameters.values()):
            raise ConfigError(f"what is looked for has at most {LONGEST:,} characters")
        chosen = cls(**parameters)
        for name in ("step_from", "step_to", "page"):
            _number(chosen, name, int)
        for name in ("reward_from", "reward_to"):
            _number(chosen, name, float)
        kinds = {"sort": SORTS, "group": OUTCOMES, "answer": ANSWERS}
        for name, allowed in kinds.items():
            value = getattr(chosen, name)
            if value and value not in allowed:
                raise ConfigError(f"{name} is one of {', '.join(allowed)}, not '{value}'")
        return chosen

    def query(self, **changes: str) -> str:
        """Return the query string of a URL, with ``changes`` applied; defaults are left out."""
        changed = replace(self, **changes)
        plain = Choice()
        parameters = {
            field_.name: getattr(changed, field_.name)
            for field_ in fields(self)
            if getattr(changed, field_.name) != getattr(plain, field_.name)
        }
        return urlencode(parameters)

    @property
    def first(self) -> int:
        """Number of groups on earlier pages."""
        return (max(1, int(self.page)) - 1) * PAGE

    def groups(self) -> tuple[str, list[Any]]:
        """Return the SQL condition on groups ``g``, and its parameters."""
        conditions, values = ["1"], list[Any]()

        def add(condition: str, *new_values: Any) -> None:
            conditions.append(condition)
            values.extend(new_values)

        if self.step_from:
            add("g.step >= ?", int(self.step_from))
        if self.step_to:
            add("g.step <= ?", int(self.step_to))
        if self.problem:
            add("g.problem LIKE ? ESCAPE '\\'", _like(self.problem))
        if self.dataset:
            add("g.dataset = ?", self.dataset)
        if self.group:
            add(OUTCOMES[self.group])
        inner, inner_values = self.completions()
        if inner != "1":
            add(
                f"EXISTS (SELECT 1 FROM completions c WHERE c.grp = g.id AND {inner})",
                *inner_values,
            )
        return " AND ".join(conditions), values

    def completions(self) -> tuple[str, list[Any]]:
        """Return the SQL condition on completions ``c`` of a group ``g``, and its parameters."""
        conditions, values = list[str](), list[Any]()
        if self.answer:
            conditions.append(ANSWERS[self.answer])
        for column in ("fate", "status", "finish"):
            if value := getattr(self, column):
                conditions.append(f"c.{column} = ?")
                values.append(value)
        for sign, value in ((">=", self.reward_from), ("<=", self.reward_to)):
            if value:
                conditions.append(f"c.reward {sign} ?")
                values.append(float(value))
        if self.text:
            like = "LIKE ? ESCAPE '\\'"
            conditions.append(
                f"(g.prompt {like} OR EXISTS (SELECT 1 FROM texts t WHERE t.grp = c.grp "
                f"AND t.sample = c.sample AND (t.text {like} OR t.told {like})))"
            )
            values += [_like(self.text)] * 3
        return " AND ".join(conditions) or "1", values


@dataclass(frozen=True, slots=True)
class Found:
    """One page of the chosen groups.

    Attributes:
        rows: The groups, with ``matches``: completions that fit.
        total: Groups on all pages.
    """

    rows: list[sqlite3.Row]
    total: int


def find(index: sqlite3.Connection, choice: Choice) -> Found:
    """Return a page of the chosen groups."""
    where, values = choice.groups()
    order = SORTS[choice.sort]
    selected = index.execute(f"SELECT g.id FROM groups g WHERE {where} ORDER BY {order}", values)
    ids = [row[0] for row in selected]
    page = ids[choice.first : choice.first + PAGE]
    inner, inner_values = choice.completions()
    rows = index.execute(
        f"SELECT g.*, substr(g.prompt, 1, 200) AS shown, (SELECT count(*) FROM completions c "
        f"WHERE c.grp = g.id AND {inner}) AS matches FROM groups g "
        f"WHERE g.id IN ({', '.join('?' * len(page))}) ORDER BY {order}",
        [*inner_values, *page],
    ).fetchall()
    return Found(rows, len(ids))


def neighbours(
    index: sqlite3.Connection, choice: Choice, key: str
) -> tuple[str | None, str | None]:
    """Return the keys of the chosen groups before and after one."""
    where, values = choice.groups()
    order = SORTS[choice.sort]
    selected = index.execute(f"SELECT g.key FROM groups g WHERE {where} ORDER BY {order}", values)
    keys = [row[0] for row in selected]
    if key not in keys:
        return None, None
    place = keys.index(key)
    before = keys[place - 1] if place else None
    return before, keys[place + 1] if place + 1 < len(keys) else None


def options(index: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the values that each filter with a list offers."""

    def distinct(column: str, table: str) -> list[str]:
        rows = index.execute(f"SELECT DISTINCT {column} FROM {table} ORDER BY 1 LIMIT 200")
        return [row[0] for row in rows if row[0]]

    return {
        "dataset": distinct("dataset", "groups"),
        "group": list(OUTCOMES),
        "answer": list(ANSWERS),
        "fate": distinct("fate", "completions"),
        "status": distinct("status", "completions"),
        "finish": distinct("finish", "completions"),
        "sort": list(SORTS),
    }


def _number(choice: Choice, name: str, kind: type[int] | type[float]) -> None:
    value = getattr(choice, name)
    try:
        if value and abs(kind(value)) >= 2**53:
            raise ValueError
    except (ValueError, OverflowError):
        what = "a whole number" if kind is int else "a number"
        raise ConfigError(f"'{_NAMES.get(name, name)}' is {what}, not '{value}'") from None


def _like(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
