"""Tests that are defined to be collected: functions ``test_...`` and classes of ``unittest``.

Fixtures are those of the tests, ``caplog``, ``capsys``, ``monkeypatch`` and ``request``. A test
that is skipped has not passed.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import inspect
import io
import itertools
import logging
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rlvr_code.inside.pytest_like import Fixture, SkippedError

_UNASKED = object()


def collect(text: str, names: Mapping[str, Any]) -> None:
    """Run the tests that a text defines and does not run itself.

    Raises:
        BaseException: What the first that fails raises.
    """
    tree = ast.parse(text)
    read = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}
    for name in defined(tree):
        if name not in read:
            run(name, names)


def defined(tree: ast.Module) -> list[str]:
    """Names of the tests that some code defines, in its order."""
    return [
        node.name
        for node in tree.body
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name.startswith("test")
            and not any("fixture" in ast.unparse(one) for one in node.decorator_list)
        )
        or (
            isinstance(node, ast.ClassDef)
            and (
                node.name.startswith("Test")
                or any(ast.unparse(base).endswith("TestCase") for base in node.bases)
            )
        )
    ]


def run(name: str, names: Mapping[str, Any]) -> None:
    """Run a test that is defined by now.

    Raises:
        AssertionError: If it, or all there is of it, is skipped.
        BaseException: What it raises.
    """
    found = names[name]
    count = _run_class(found, names) if isinstance(found, type) else _run_function(found, names)
    if not count:
        raise AssertionError(f"{name} runs no test")


def _run_class(kind: Any, names: Mapping[str, Any]) -> int:
    if isinstance(kind, type) and "unittest" in sys.modules:
        import unittest

        if issubclass(kind, unittest.TestCase):
            return _run_cases(kind)
    if not (isinstance(kind, type) and kind.__name__.startswith("Test")):
        return 0
    count = 0
    _method(kind, "setup_class")
    for name in dir(kind):
        if name.startswith("test"):
            one = kind()
            _method(one, "setup_method")
            try:
                count += _run_function(getattr(one, name), names, one)
            finally:
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


def _run_function(function: Any, names: Mapping[str, Any], own: Any = None) -> int:
    """Run a test, a method of ``own`` if that is given, once for each row and fixture's value."""
    count = 0
    known = _fixtures(names, own)
    wanted = [one.name for one in known.values() if one.autouse]
    wanted += [*_taken(function), *_named(function)]
    for row in _parameters(function):
        several = _several([name for name in wanted if name not in row], known)
        for params in itertools.product(*(known[name].params for name in several)):
            with contextlib.ExitStack() as stack, contextlib.suppress(SkippedError):
                _run_once(
                    function, row, wanted, known, dict(zip(several, params, strict=True)), stack
                )
                count += 1
    return count


def _run_once(
    function: Any,
    row: dict[str, Any],
    wanted: list[str],
    known: dict[str, Fixture],
    params: dict[str, Any],
    stack: contextlib.ExitStack,
) -> None:
    have = dict(row)
    for name in wanted:
        _value(name, known, params, have, stack)
    found = function(**{name: have[name] for name in _taken(function)})
    if inspect.iscoroutine(found):
        import asyncio

        asyncio.run(found)


def _parameters(function: Any) -> Iterator[dict[str, Any]]:
    """Arguments of each run, by ``parametrize``."""
    marks = getattr(function, "parametrized", [])
    for chosen in itertools.product(*(rows for _, rows in marks)):
        given: dict[str, Any] = {}
        for (keys, _), row in zip(marks, chosen, strict=True):
            given |= dict(zip(keys, row, strict=True))
        yield given


def _taken(function: Any) -> list[str]:
    """Parameters of a test that ``mock.patch`` does not give it."""
    patches = [one for one in getattr(function, "patchings", ()) if one.attribute_name is None]
    given = sum(one.new is sys.modules["unittest.mock"].DEFAULT for one in patches)
    return list(inspect.signature(function).parameters)[given:]


def _named(function: Any) -> list[str]:
    """Fixtures of ``usefixtures``."""
    return list(getattr(function, "fixtures", ()))


def _fixtures(names: Mapping[str, Any], own: Any) -> dict[str, Fixture]:
    """The fixtures of the tests, and those of a class of tests, bound to its object."""
    found = {one.name: one for one in names.values() if isinstance(one, Fixture)}
    for name in dir(type(own)) if own is not None else ():
        one = inspect.getattr_static(own, name)
        if isinstance(one, Fixture):
            bound = copy.copy(one)
            bound.function = functools.partial(one.function, own)
            found[one.name] = bound
    return found


def _several(wanted: list[str], known: dict[str, Fixture]) -> list[str]:
    """Fixtures with parameters among those wanted, and among those that these want."""
    found: list[str] = []
    waiting, seen = list(wanted), set()
    while waiting:
        name = waiting.pop(0)
        if name in known and name not in seen:
            seen.add(name)
            found += [name] if known[name].params else []
            waiting += inspect.signature(known[name].function).parameters
    return found


def _value(
    name: str,
    known: dict[str, Fixture],
    params: dict[str, Any],
    have: dict[str, Any],
    stack: contextlib.ExitStack,
) -> Any:
    """What a test, or a fixture, gets for a name; made once for a test."""
    if name in have:
        return have[name]
    if name not in known:
        if name not in _FIXTURES:
            raise LookupError(f"no fixture {name!r}")
        have[name] = stack.enter_context(_FIXTURES[name]())
        return have[name]
    one = known[name]
    if one.wide and not one.params and name in _wide:
        have[name] = _wide[name]
        return have[name]
    given = {}
    for asked in inspect.signature(one.function).parameters:
        if asked == "request":
            given[asked] = _request(one, params, known, have, stack)
        else:
            given[asked] = _value(asked, known, params, have, stack)
    found = one.function(**given)
    if inspect.isgenerator(found):
        value = next(found)
        if not one.wide:
            stack.callback(next, found, None)
        found = value
    have[name] = found
    if one.wide:
        _wide[name] = found
    return found


def _request(
    one: Fixture,
    params: dict[str, Any],
    known: dict[str, Fixture],
    have: dict[str, Any],
    stack: contextlib.ExitStack,
) -> Any:
    return types.SimpleNamespace(
        param=params.get(one.name),
        addfinalizer=stack.callback,
        getfixturevalue=lambda name: _value(name, known, params, have, stack),
    )


_wide: dict[str, Any] = {}
"""Values of fixtures of more than one test, whose end is that of the process."""


class CaptureResult(NamedTuple):
    """What ``capsys`` has read."""

    out: str
    err: str


class _Captured:
    """``capsys``."""

    def __init__(self) -> None:
        self._out, self._err = io.StringIO(), io.StringIO()

    def readouterr(self) -> Any:
        """What has been written since the last time."""
        found = CaptureResult(self._out.getvalue(), self._err.getvalue())
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


class _Logged(logging.Handler):
    """``caplog``."""

    def __init__(self) -> None:
        super().__init__(0)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what is logged."""
        self.records.append(record)

    @property
    def messages(self) -> list[str]:
        """What it says."""
        return [one.getMessage() for one in self.records]

    @property
    def text(self) -> str:
        """All of it, line by line."""
        return "".join(f"{one.levelname} {one.name}:{one.getMessage()}\n" for one in self.records)

    @property
    def record_tuples(self) -> list[tuple[str, int, str]]:
        """Logger, level and text of each record."""
        return [(one.name, one.levelno, one.getMessage()) for one in self.records]

    def clear(self) -> None:
        """Forget what has been logged."""
        self.records.clear()

    def set_level(self, level: Any, logger: str | None = None) -> None:
        """Have records from a level on."""
        logging.getLogger(logger).setLevel(level)

    @contextlib.contextmanager
    def at_level(self, level: Any, logger: str | None = None) -> Iterator[None]:
        """The same for a while."""
        before = logging.getLogger(logger).level
        self.set_level(level, logger)
        try:
            yield
        finally:
            self.set_level(before, logger)


@contextlib.contextmanager
def _caplog() -> Iterator[_Logged]:
    logged = _Logged()
    logging.getLogger().addHandler(logged)
    try:
        yield logged
    finally:
        logging.getLogger().removeHandler(logged)


_FIXTURES: dict[str, Callable[[], Any]] = {
    "caplog": _caplog,
    "capsys": _capsys,
    "monkeypatch": _monkeypatch,
}
