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
import itertools
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from rlvr_code.inside.fixtures import FIXTURES
from rlvr_code.inside.pytest_like import Fixture, SkippedError


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
        if name not in FIXTURES:
            raise LookupError(f"no fixture {name!r}")
        have[name] = stack.enter_context(FIXTURES[name]())
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
