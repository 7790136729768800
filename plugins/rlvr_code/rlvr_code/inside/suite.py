"""Tests that are defined to be collected: functions ``test_...`` and classes of ``unittest``.

``pytest`` itself is not in the sandbox; ``make_pytest`` gives a module with what tests use of it:
``raises``, ``approx``, ``fixture``, ``mark.parametrize``, ``fail`` and the fixtures ``capsys``,
``monkeypatch``, ``request`` and ``tmp_path``. A test that is skipped has not passed.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import itertools
import math
import os
import re
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

_UNASKED = object()


class SkippedError(Exception):
    """A test says that it is not to be run."""


def collect(text: str, names: Mapping[str, Any]) -> int:
    """Run the tests that a text defines and does not run itself; how many there were.

    Raises:
        BaseException: What the first that fails raises.
    """
    tree = ast.parse(text)
    read = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}
    count = 0
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("test") and node.name not in read:
                count += _run_function(names[node.name], names)
        elif isinstance(node, ast.ClassDef):
            count += _run_class(names[node.name], names)
    return count


def _run_class(kind: Any, names: Mapping[str, Any]) -> int:
    if isinstance(kind, type) and "unittest" in sys.modules:
        import unittest

        if issubclass(kind, unittest.TestCase):
            return _run_cases(kind)
    if not (isinstance(kind, type) and kind.__name__.startswith("Test")):
        return 0
    count = 0
    for name in dir(kind):
        if name.startswith("test"):
            one = kind()
            _method(one, "setup_method")
            count += _run_function(getattr(one, name), names)
            _method(one, "teardown_method")
    return count


def _method(one: object, name: str) -> None:
    found = getattr(one, name, None)
    if found is not None:
        found(*[None] * len(inspect.signature(found).parameters))


def _run_cases(kind: Any) -> int:
    import unittest

    class First(unittest.TestResult):
        """Keeps the first error itself."""

        error: BaseException | None = None

        def addError(self, test: Any, err: Any) -> None:  # noqa: N802
            self.error = self.error or err[1]

        addFailure = addError

        def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
            self.error = self.error or (err[1] if err else None)

    result = First()
    tests = unittest.TestLoader().loadTestsFromTestCase(kind)
    tests.run(result)
    if result.error is not None:
        raise result.error
    return result.testsRun - len(result.skipped)


def _run_function(function: Any, names: Mapping[str, Any]) -> int:
    count = 0
    for given in _parameters(function):
        with contextlib.ExitStack() as stack, contextlib.suppress(SkippedError):
            have = dict(given)
            for name in inspect.signature(function).parameters:
                if name not in have:
                    have[name] = _fixture(name, names, stack, have)
            found = function(**have)
            if inspect.iscoroutine(found):
                import asyncio

                asyncio.run(found)
            count += 1
    return count


def _parameters(function: Any) -> Iterator[dict[str, Any]]:
    """Arguments of each run, by ``parametrize``."""
    marks = getattr(function, "parametrized", [])
    for chosen in itertools.product(*(rows for _, rows in marks)):
        given: dict[str, Any] = {}
        for (keys, _), row in zip(marks, chosen, strict=True):
            given |= dict(zip(keys, row, strict=True))
        yield given


def _fixture(
    name: str, names: Mapping[str, Any], stack: contextlib.ExitStack, have: Mapping[str, Any]
) -> Any:
    if name == "request":
        return types.SimpleNamespace(param=have.get("param"))
    if name in _FIXTURES:
        return stack.enter_context(_FIXTURES[name]())
    function = names.get(name)
    if not getattr(function, "is_fixture", False):
        raise LookupError(f"no fixture {name!r}")
    given = {
        one: _fixture(one, names, stack, have) for one in inspect.signature(function).parameters
    }
    found = function(**given)  # type: ignore[misc]
    if inspect.isgenerator(found):
        value = next(found)
        stack.callback(next, found, None)
        return value
    return found


class _Captured:
    """``capsys``."""

    def __init__(self) -> None:
        self._out, self._err = io.StringIO(), io.StringIO()

    def readouterr(self) -> Any:
        """What has been written since the last time."""
        found = types.SimpleNamespace(out=self._out.getvalue(), err=self._err.getvalue())
        for one in (self._out, self._err):
            one.seek(0)
            one.truncate()
        return found


@contextlib.contextmanager
def _capsys() -> Iterator[_Captured]:
    captured = _Captured()
    with contextlib.redirect_stdout(captured._out), contextlib.redirect_stderr(captured._err):
        yield captured


class _Patches:
    """``monkeypatch``."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []

    def setattr(self, target: Any, name: Any, value: Any = _UNASKED, raising: bool = True) -> None:
        """Put another value in an attribute, given by object and name, or by its full name."""
        if value is _UNASKED:
            module, _, attribute = target.rpartition(".")
            target, name, value = __import__(module, fromlist=["_"]), attribute, name
        before = getattr(target, name, _UNASKED)
        if raising and before is _UNASKED:
            raise AttributeError(name)
        self._undo.append(
            (lambda: delattr(target, name))
            if before is _UNASKED
            else (lambda: setattr(target, name, before))
        )
        setattr(target, name, value)

    def setitem(self, target: Any, key: Any, value: Any) -> None:
        """Put another value in a mapping."""
        before = target.get(key, _UNASKED)
        self._undo.append(
            (lambda: target.pop(key))
            if before is _UNASKED
            else (lambda: target.__setitem__(key, before))
        )
        target[key] = value

    def setenv(self, name: str, value: str) -> None:
        """Set a variable of the environment."""
        self.setitem(os.environ, name, value)

    def undo(self) -> None:
        """Put everything back."""
        while self._undo:
            self._undo.pop()()


@contextlib.contextmanager
def _monkeypatch() -> Iterator[_Patches]:
    patches = _Patches()
    try:
        yield patches
    finally:
        patches.undo()


@contextlib.contextmanager
def _tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


_FIXTURES: dict[str, Callable[[], Any]] = {
    "capsys": _capsys,
    "monkeypatch": _monkeypatch,
    "tmp_path": _tmp_path,
}


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
        if self._match is not None and not re.search(self._match, str(error)):
            raise AssertionError(f"{self._match!r} does not match {str(error)!r}")
        self.value, self.type = error, kind
        return True

    def match(self, pattern: str) -> bool:
        """Whether the exception's text fits; an assertion that it does."""
        if not re.search(pattern, str(self.value)):
            raise AssertionError(f"{pattern!r} does not match {str(self.value)!r}")
        return True


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
        if not all(isinstance(one, int | float | complex) for one in (expected, given)):
            return bool(expected == given)
        if expected != expected:
            return self._nan_ok and given != given
        if math.isinf(abs(expected)):
            return bool(expected == given)
        return abs(expected - given) <= max(self._rel * abs(expected), self._abs)

    def __repr__(self) -> str:
        return f"approx({self._expected!r})"


class _Mark:
    """``pytest.mark``; marks that change nothing are taken as they come."""

    def parametrize(self, keys: Any, rows: Any, **rest: Any) -> Callable[[Any], Any]:
        """Run a test once for each row."""
        words = [one.strip() for one in keys.split(",")] if isinstance(keys, str) else list(keys)
        many = [getattr(row, "values_", row) for row in rows]
        cut = [tuple(row) if len(words) > 1 else (_only(row),) for row in many]

        def decorate(function: Any) -> Any:
            function.parametrized = [*getattr(function, "parametrized", []), (words, cut)]
            return function

        return decorate

    def skip(self, *given: Any, **named: Any) -> Any:
        """Not to be run."""
        return _skipped(given[0]) if given and callable(given[0]) else _skipped

    def skipif(self, condition: Any, **named: Any) -> Any:
        """Not to be run in some cases."""
        return _skipped if condition else (lambda function: function)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def mark(*given: Any, **named: Any) -> Any:
            return given[0] if len(given) == 1 and callable(given[0]) else lambda one: one

        return mark


def _only(row: Any) -> Any:
    return row[0] if isinstance(row, _Row) else row


class _Row(tuple[Any, ...]):
    __slots__ = ()


def _skipped(function: Any) -> Any:
    def skipped() -> None:
        raise SkippedError

    return skipped


def _raises(kinds: Any, *given: Any, match: str | None = None, **named: Any) -> Any:
    context = _Raises(kinds, match)
    if not given:
        return context
    with context:
        given[0](*given[1:], **named)
    return context


def _fixture_mark(*given: Any, **named: Any) -> Any:
    def decorate(function: Any) -> Any:
        function.is_fixture = True
        return function

    return decorate(given[0]) if given and callable(given[0]) else decorate


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
        fixture=_fixture_mark,
        fail=_fail,
        skip=_skip,
        param=lambda *values, **named: types.SimpleNamespace(values_=_Row(values)),
        main=lambda *given, **named: 0,
        MonkeyPatch=_Patches,
    )
    return module
