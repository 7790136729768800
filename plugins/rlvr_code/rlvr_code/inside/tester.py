"""Runs test code against a program that lives in another process, in another sandbox.

The names that are said to be the program's stand for those: calling one sends plain arguments over
and gets plain data back, so the comparison is made here, of data of built-in types, where the
program has no way to be. No other name is ever asked of it. What is no plain data is held as a
handle, which can be passed back, called, iterated and have attributes, but compares with nothing.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import json
import os
import random
import sys
import types
from collections.abc import Collection
from typing import Any, NoReturn

from rlvr_code.inside import errors, pytest_like, suite
from rlvr_code.inside.link import PATCHABLE, REAL, GoneError, Link
from rlvr_code.inside.remote import CannotCrossError, Remote, is_remote
from rlvr_code.inside.stand_ins import Rich

BEGIN, RESULT, FINISHED = b"b", b"r", b"f"
RUN = "__run_test__"
"""Name of the function that runs a test of the setup, by its name."""


def run(job: dict[str, Any], wire: int) -> NoReturn:
    """Run tests and send what came of each.

    Args:
        job: ``setup``: code before the tests; ``tests``: one text each; ``program``: names that
            are the program's, whatever the setup defines; ``late``: code after that; ``nonce``: to
            be said with each result.
        wire: Descriptor of the connection.
    """
    given = frozenset(job["given"])
    names: dict[str, Any] = {}
    link = Link(wire, job["classes"], lambda name: names.get(name) if name in given else None)
    nonce = job["nonce"]
    try:
        for name in ("asyncio", "pickle", "unittest"):
            if any(name in text for text in (job["setup"], job["late"], *job["tests"])):
                importlib.import_module(name)
        _furnish(link)
        names = Names(link, job["program"])
        dict.__setitem__(names, "__builtins__", Builtins(names))
        dict.update(names, {"__name__": "tests"} | _modules(job))
        dict.update(names, {"type": Type} if "type(" in "".join(job["tests"]) else {})
        exec(compile(job["setup"], "setup", "exec"), names)
        dict.__setitem__(names, RUN, lambda name: suite.run(name, names))
        names.open()
        if job["late"]:
            exec(compile(_guarded(job["late"]), "setup", "exec"), names)
        for number, test in enumerate(job["tests"]):
            link.send(BEGIN, json.dumps([nonce, number]).encode())
            why = _why_not(test, names, link)
            link.send(RESULT, json.dumps([nonce, number, why]).encode())
        link.send(FINISHED, json.dumps([nonce, ""]).encode())
    except BaseException as error:
        link.send(FINISHED, json.dumps([nonce, errors.describe(error)]).encode())
    os._exit(0)


class Names(dict[str, Any]):
    """The names of test code; those of the program are looked up there when they are used.

    Args:
        link: To the program.
        program: Names that are the program's.
    """

    def __init__(self, link: Link, program: Collection[str]) -> None:
        super().__init__()
        self._link, self._program, self._open = link, frozenset(program), False

    def open(self) -> None:
        """Take the program's names from the program, whatever the setup has defined."""
        self._open = True
        for name in self._program:
            self.pop(name, None)

    def __missing__(self, name: str) -> Any:
        if not self._open or name not in self._program:
            raise KeyError(name)
        found = self._link.name(name)
        if is_remote(found) and type(found) is not Remote:
            self[name] = found  # a function or class; values may change
        return found


class Builtins(dict[str, Any]):
    """Python's own names, then those of the program: the body of a class looks nowhere else."""

    def __init__(self, names: Names) -> None:
        super().__init__(__import__=builtins.__import__)
        self._names = names

    def __missing__(self, name: str) -> Any:
        return vars(builtins)[name] if name in vars(builtins) else self._names[name]


class _Types(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, type)

    def __call__(cls, *given: Any, **named: Any) -> Any:
        """The class of an object, of one of the program too; or a new class."""
        if len(given) == 1:
            remote = is_remote(given[0]) or isinstance(given[0], Rich)
            return given[0].__class__ if remote else type(given[0])
        return type(*given, **named)

    def __eq__(cls, other: object) -> bool:
        return other is type or other is cls

    def __hash__(cls) -> int:
        return hash(type)


class Type(type, metaclass=_Types):
    """``type`` in test code."""


def _furnish(link: Link) -> None:
    """Let the library's functions that look into objects know those of the program."""
    sys.modules["pytest"] = pytest_like.make_pytest()
    seed = random.seed

    def seed_both(*given: Any, **named: Any) -> None:
        seed(*given, **named)
        link.ask("seed", None, [*given, *named.values()])

    random.seed = seed_both
    for name in ("setrecursionlimit", "set_int_max_str_digits"):
        _set_both(link, name)
    if "asyncio" in sys.modules:
        asyncio = sys.modules["asyncio"]
        run, create = asyncio.run, asyncio.BaseEventLoop.create_task

        def create_any(loop: Any, main: Any, **named: Any) -> Any:
            return create(loop, _waiting(main) if is_remote(main) else main, **named)

        asyncio.BaseEventLoop.create_task = create_any

        def run_any(main: Any, **named: Any) -> Any:
            return run(_waiting(main) if is_remote(main) else main, **named)

        asyncio.run = run_any  # type: ignore[attr-defined]
    for place in PATCHABLE.split():
        module, _, name = place.rpartition(".")
        REAL[place] = getattr(importlib.import_module(module), name)
    for place in _LOOKING.split():
        module, _, name = place.rpartition(".")
        if module in sys.modules:
            _look_there(link, sys.modules[module], name)
    sys.modules["solution"] = Solution(link)


def _set_both(link: Link, name: str) -> None:
    """Set something of the interpreter in the program's process, too."""
    here = getattr(sys, name)

    def both(value: Any) -> None:
        here(value)
        link.ask("library", None, ["sys", name, value])

    setattr(sys, name, both)


_LOOKING = """
copy.copy copy.deepcopy dataclasses.asdict dataclasses.astuple dataclasses.fields
dataclasses.is_dataclass dataclasses.replace inspect.signature inspect.getdoc inspect.isabstract
inspect.isasyncgenfunction inspect.isclass inspect.iscoroutinefunction inspect.isfunction
inspect.iscoroutine inspect.isgeneratorfunction inspect.ismethod inspect.getmembers
asyncio.iscoroutinefunction pickle.dumps pickle.loads typing.get_type_hints weakref.ref
"""
"""Functions of the library that look into an object: into one of the program, the program does."""


def _look_there(link: Link, module: Any, name: str) -> None:
    here = getattr(module, name)

    @functools.wraps(here)
    def either(*given: Any, **named: Any) -> Any:
        solution = name == "loads" and b"solution" in given[0]
        if solution or any(is_remote(one) or isinstance(one, Rich) for one in given):
            return link.ask("library", None, [module.__name__, name, *given], named)
        return here(*given, **named)

    setattr(module, name, either)


class Solution(types.ModuleType):
    """The program as a module, for tests that import it."""

    def __init__(self, link: Link) -> None:
        super().__init__("solution")
        self.__dict__["__link"] = link

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self.__dict__["__link"].value(name)
        except NameError:
            raise AttributeError(name) from None

    def __delattr__(self, name: str) -> None:
        self.__dict__["__link"].ask("unglobal", None, [name])

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__["__link"].ask("global", None, [name, value])


async def _waiting(remote: Any) -> Any:
    return await remote


def _why_not(test: str, names: dict[str, Any], link: Link) -> str:
    """Empty if a test passes."""
    link.notes.clear()
    try:
        exec(compile(_guarded(test), "test", "exec"), names)
        suite.collect(test, names)
    except GoneError:
        raise
    except CannotCrossError as error:
        return f"cannot cross to the tests: {error}"[:300]
    except AssertionError as error:
        why = f"the assertion does not hold: {error}" if str(error) else "not as asserted"
        notes = f" (cannot cross to the tests: {'; '.join(link.notes)})" if link.notes else ""
        return (why[: 300 - min(len(notes), 200)] + notes)[:300]
    except BaseException as error:
        return errors.describe(error)[:300]
    return ""


def _guarded(test: str) -> ast.Module:
    """Test code in which an exception out of an assertion is marked: no ``with`` may swallow it."""
    guarded: ast.Module = _Guard().visit(ast.parse(test))
    return ast.fix_missing_locations(guarded)


class _Guard(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> Any:
        call = node.value.func if isinstance(node.value, ast.Call) else None
        asserts = isinstance(call, ast.Attribute) and call.attr.startswith("assert")
        return self.visit_Assert(node) if asserts else node

    def visit_Assert(self, node: ast.Assert | ast.Expr) -> Any:
        handler = ast.parse(
            "try: pass\nexcept Exception as __error:\n    __error.decides = True\n    raise"
        ).body[0]
        assert isinstance(handler, ast.Try)
        handler.body = [node]
        return handler


def _modules(job: dict[str, Any]) -> dict[str, Any]:
    """Modules of the library whose attributes are used; a test may leave their import out."""
    used: set[str] = set()
    for text in (job["setup"], job["late"], *job["tests"]):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used.add(node.value.id)
    return {name: __import__(name) for name in used & sys.stdlib_module_names}
