"""Replaces pytest, which is not in the sandbox; ``make_pytest`` returns it as a module."""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Mapping
from typing import Any


class SkippedError(Exception):
    """A test says that it is not to be run."""


class _Raises:
    """``pytest.raises`` as a context."""

    def __init__(self, kinds: Any, match: str | None = None) -> None:
        self._kinds, self._match = kinds, match
        self.value: Any = None
        self.type: Any = None

    def __enter__(self) -> _Raises:
        return self

    def __exit__(self, kind: Any, error: Any, trace: object) -> bool:
        if kind is None:
            raise AssertionError(f"nothing was raised, not {self._kinds!r}")
        if not issubclass(kind, self._kinds):
            return False
        self.value, self.type = error, kind
        return self._match is None or self.match(self._match)

    def match(self, pattern: str) -> bool:
        """Whether the exception's text fits; an assertion that it does."""
        if not re.search(pattern, str(self.value)):
            raise AssertionError(f"{pattern!r} does not match {str(self.value)!r}")
        return True


def _raises(kinds: Any, *given: Any, match: str | None = None, **named: Any) -> Any:
    context = _Raises(kinds, match)
    if given:
        with context:
            given[0](*given[1:], **named)
    return context


class _Approx:
    """A number, or several, give or take."""

    def __init__(
        self,
        expected: Any,
        rel: float | None = None,
        abs: float | None = None,
        nan_ok: bool = False,
    ) -> None:
        self._expected, self._nan_ok = expected, nan_ok
        self._rel = 1e-6 if rel is None and abs is None else (rel or 0.0)
        self._abs = 1e-12 if abs is None else abs

    def __eq__(self, other: object) -> bool:
        return self._same(self._expected, other)

    __hash__ = None  # type: ignore[assignment]

    def _same(self, expected: Any, given: Any) -> bool:
        if isinstance(expected, Mapping):
            return (
                isinstance(given, dict)
                and expected.keys() == given.keys()
                and all(self._same(expected[key], given[key]) for key in expected)
            )
        if isinstance(expected, list | tuple):
            return (
                isinstance(given, list | tuple)
                and len(expected) == len(given)
                and all(map(self._same, expected, given))
            )
        if not all(isinstance(value, int | float | complex) for value in (expected, given)):
            return bool(expected == given)
        if expected != expected:
            return self._nan_ok and given != given
        if math.isinf(abs(expected)):
            return bool(expected == given)
        return bool(abs(expected - given) <= max(self._rel * abs(expected), self._abs))

    def __repr__(self) -> str:
        return f"approx({self._expected!r})"


class _Mark:
    """``pytest.mark``; marks that change nothing are taken as they come."""

    def parametrize(self, keys: Any, rows: Any, **rest: Any) -> Callable[[Any], Any]:
        """Run a test once for each row."""
        words = [key.strip() for key in keys.split(",")] if isinstance(keys, str) else list(keys)
        whole = [tuple(row) if len(words) > 1 or isinstance(row, _Row) else (row,) for row in rows]
        return _with_attribute("parametrized", lambda before: [*(before or []), (words, whole)])

    def usefixtures(self, *names: str) -> Callable[[Any], Any]:
        """Have fixtures made that the test is not given."""
        return _with_attribute("fixtures", lambda before: names)

    def skip(self, *given: Any, **named: Any) -> Any:
        """Not to be run."""
        return _skipped(given[0]) if given and callable(given[0]) else _skipped

    def skipif(self, condition: Any, **named: Any) -> Any:
        """Not to be run in some cases."""
        return _skipped if condition else (lambda function: function)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _bare_or_not(lambda function, **named: function)


class _Row(tuple[Any, ...]):
    """``pytest.param``."""

    __slots__ = ()


class Fixture:
    """A function that gives tests what they ask for by its name."""

    def __init__(self, function: Any, **named: Any) -> None:
        if named.get("params") is not None:
            raise NotImplementedError("pytest.fixture with params is not supported")
        self.function = function
        self.name = named.get("name") or function.__name__
        self.autouse = bool(named.get("autouse"))


def _with_attribute(name: str, value: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        setattr(function, name, value(getattr(function, name, None)))
        return function

    return decorate


def _bare_or_not(decorate: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that may be given options, or stand alone."""

    def either(*given: Any, **named: Any) -> Any:
        alone = len(given) == 1 and callable(given[0])
        return decorate(given[0]) if alone else lambda function: decorate(function, **named)

    return either


def _skipped(function: Any) -> Any:
    return lambda *given, **named: _skip()


def _fail(reason: str = "", **named: Any) -> None:
    raise AssertionError(reason)


def _skip(reason: str = "", **named: Any) -> None:
    raise SkippedError(reason)


def make_pytest() -> types.ModuleType:
    """A module with what tests use of pytest."""
    module = types.ModuleType("pytest")
    vars(module).update(
        raises=_raises,
        approx=_Approx,
        mark=_Mark(),
        fixture=_bare_or_not(Fixture),
        fail=_fail,
        skip=_skip,
        param=lambda *values, **named: _Row(values),
        main=lambda *given, **named: 0,
    )
    return module
