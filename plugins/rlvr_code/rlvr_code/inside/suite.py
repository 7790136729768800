"""Tests that are defined to be collected: functions ``test_...`` and classes of ``unittest``.

Of pytest there is what ``pytest_like`` has. A test that is skipped has not passed.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import itertools
import re
import sys
from collections.abc import Mapping
from typing import Any

from rlvr_code.inside.fixtures import FIXTURES
from rlvr_code.inside.pytest_like import Fixture, SkippedError


def collect(text: str, names: Mapping[str, Any]) -> None:
    """Run the tests that a text defines and does not run itself.

    Raises:
        BaseException: What the first that fails raises.
    """
    tree = ast.parse(text)
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for name in defined(tree):
        if name not in read:
            run(name, names)


def defined(tree: ast.Module) -> list[str]:
    """Names of the tests that some code defines, in its order."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node.name for node in tree.body if isinstance(node, kinds) and _is_test(node)]


def _is_test(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    if isinstance(node, ast.ClassDef):
        bases = map(ast.unparse, node.bases)
        return node.name.startswith("Test") or any(base.endswith("TestCase") for base in bases)
    fixture = any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)
    return node.name.startswith("test") and not fixture


def missing_fixtures(tree: ast.Module) -> list[str]:
    """Return the fixtures that tests ask for and that neither they nor ``FIXTURES`` define."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    marks = {node: " ".join(map(ast.unparse, node.decorator_list)) for node in functions}
    known = {node.name for node in functions if "fixture" in marks[node]} | FIXTURES.keys()
    missing = {"params of a fixture" for text in marks.values() if "fixture(params" in text}
    for node in functions:
        is_test = node.name.startswith("test") and "patch" not in marks[node]
        if is_test or "fixture" in marks[node]:
            names = {argument.arg for argument in node.args.args} - known - {"self"}
            missing |= {name for name in names if not re.search(rf"\b{name}\b", marks[node])}
    return sorted(missing)


def run(name: str, names: Mapping[str, Any]) -> None:
    """Run a test that is defined by now.

    Raises:
        AssertionError: If it, or all there is of it, is skipped.
        BaseException: What it raises.
    """
    test = names[name]
    if not isinstance(test, type):
        count = _run_function(test, _fixtures(names))
    elif "unittest" in sys.modules and issubclass(test, sys.modules["unittest"].TestCase):
        count = _run_cases(test)
    else:
        count = _run_class(test, names)
    if not count:
        raise AssertionError(f"{name} runs no test")


def _run_class(kind: Any, names: Mapping[str, Any]) -> int:
    count = 0
    _call_if_there(kind, "setup_class")
    for name in dir(kind):
        if name.startswith("test"):
            instance = kind()
            _call_if_there(instance, "setup_method")
            try:
                bound = {
                    key: Fixture(functools.partial(fixture.function, instance), name=key)
                    for key, fixture in inspect.getmembers_static(kind)
                    if isinstance(fixture, Fixture)
                }
                count += _run_function(getattr(instance, name), _fixtures(names) | bound)
            finally:
                _call_if_there(instance, "teardown_method")
    return count


def _call_if_there(of: object, name: str) -> None:
    method = getattr(of, name, None)
    if method is not None:
        method(*[None] * len(inspect.signature(method).parameters))


def _run_cases(kind: Any) -> int:
    """Run a ``TestCase``; how many of its tests have been run."""
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
    unittest.TestLoader().loadTestsFromTestCase(kind).run(result)
    if result.error is not None:
        raise result.error
    return result.testsRun - len(result.skipped)


def _run_function(function: Any, fixtures: Mapping[str, Fixture]) -> int:
    """Run a test once for each row of ``parametrize``; how often it was not skipped."""
    count = 0
    marks = getattr(function, "parametrized", [])
    for chosen in itertools.product(*(rows for _, rows in marks)):
        row: dict[str, Any] = {}
        for (keys, _), values in zip(marks, chosen, strict=True):
            row |= dict(zip(keys, values, strict=True))
        with contextlib.ExitStack() as stack, contextlib.suppress(SkippedError):
            automatic = [name for name, fixture in fixtures.items() if fixture.autouse]
            for name in [*automatic, *getattr(function, "fixtures", ())]:
                _value(name, fixtures, row, stack)
            given = {name: _value(name, fixtures, row, stack) for name in _taken(function)}
            result = function(**given)
            if inspect.iscoroutine(result):
                import asyncio

                asyncio.run(result)
            count += 1
    return count


def _taken(function: Any) -> list[str]:
    """Parameters of a test that ``mock.patch`` does not give it."""
    patches = [
        patch for patch in getattr(function, "patchings", ()) if patch.attribute_name is None
    ]
    given = sum(patch.new is sys.modules["unittest.mock"].DEFAULT for patch in patches)
    parameters = list(inspect.signature(function).parameters.values())[given:]
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def _fixtures(names: Mapping[str, Any]) -> dict[str, Fixture]:
    return {value.name: value for value in names.values() if isinstance(value, Fixture)}


def _value(
    name: str,
    fixtures: Mapping[str, Fixture],
    have: dict[str, Any],
    stack: contextlib.ExitStack,
) -> Any:
    """Return a test's or fixture's value for a name; made once per test."""
    if name in have:
        return have[name]
    if name in fixtures:
        function = fixtures[name].function
        wanted = inspect.signature(function).parameters
        value = function(**{key: _value(key, fixtures, have, stack) for key in wanted})
        if inspect.isgenerator(value):
            generator, value = value, next(value)
            stack.callback(next, generator, None)
    elif name in FIXTURES:
        value = stack.enter_context(FIXTURES[name]())
    else:
        raise LookupError(f"no fixture {name!r}")
    have[name] = value
    return value
