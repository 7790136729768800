"""Runs test code against a program that lives in another process, in another sandbox.

The names that are said to be the program's stand for those: calling one sends plain arguments over
and gets plain data back, so the comparison is made here, of data of built-in types, where the
program has no way to be. No other name is ever asked of it. What is no plain data is held as a
handle, which can be passed back, called, iterated and have attributes, but compares with nothing.
"""

from __future__ import annotations

import ast
import gc
import importlib
import json
import os
import random
import re
import sys
from typing import Any, NoReturn

from rlvr_code.inside import errors, looking, pytest_like, suite
from rlvr_code.inside.border import CannotCrossError, is_remote
from rlvr_code.inside.link import GoneError, Link
from rlvr_code.inside.namespace import Builtins, Names, Solution, TestModule
from rlvr_code.inside.operators import OPERATORS, ORDER
from rlvr_code.inside.surroundings import PATCHABLE, REAL

BEGIN, RESULT, FINISHED = b"b", b"r", b"f"
_ROUNDS = 3
"""How often both processes collect garbage, of which each may free some of the other's."""
_STOPS = re.compile(r"Stop(?:Async)?Iteration")
_SPECIAL = re.compile(r"__\w+__")
RUN = "__run_test__"
"""Name of the function that runs a test of the setup, by its name."""


def run(job: dict[str, Any], wire: int) -> NoReturn:
    """Run tests and send what came of each.

    Args:
        job: ``setup``: code before the tests; ``tests``: one text each; ``program``: names that
            are the program's, whatever the setup defines; ``late``: code after that; ``stored``:
            names of which the program learns what the tests set them to; ``nonce``: to be said with
            each result.
        wire: Descriptor of the connection.
    """
    given = frozenset(job["given"])
    names: dict[str, Any] = {}
    link = Link(wire, job["classes"], lambda name: names.get(name) if name in given else None)
    nonce = job["nonce"]
    try:
        text = " ".join((job["late"], *job["tests"]))
        for name in ("asyncio", "pickle", "unittest"):
            if name in job["setup"] or name in text:
                importlib.import_module(name)
        _furnish(link)
        link.mentioned = frozenset(_SPECIAL.findall(text))
        link.named = frozenset(_STOPS.findall(text))
        names = Names(link, job["program"], _declared(job), job["stored"])
        dict.__setitem__(names, "__builtins__", Builtins(names, looking.own_builtins(link)))
        dict.update(names, {"__name__": "tests"} | _modules(job))
        sys.modules["tests"] = TestModule(names)
        dict.update(names, {"type": looking.Type} if "type(" in text else {})
        exec(compile(job["setup"], "setup", "exec", dont_inherit=True), names)
        dict.__setitem__(names, RUN, lambda name: suite.run(name, names))
        names.open()
        if job["late"]:
            exec(compile(_guarded(job["late"]), "setup", "exec", dont_inherit=True), names)
        for number, test in enumerate(job["tests"]):
            link.send(BEGIN, json.dumps([nonce, number]).encode())
            why = _why_not(test, names, link)
            link.send(RESULT, json.dumps([nonce, number, why, link.crossed]).encode())
        link.send(FINISHED, json.dumps([nonce, ""]).encode())
    except BaseException as error:
        link.send(FINISHED, json.dumps([nonce, errors.describe(error)]).encode())
    os._exit(0)


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
    collect = gc.collect

    def collect_both(*given: Any) -> int:
        found = collect(*given)
        for _ in range(_ROUNDS):
            link.ask("library", None, ["gc", "collect"])
            collect()
        return found

    gc.collect = collect_both  # type: ignore[assignment]
    if "asyncio" in sys.modules:
        asyncio = sys.modules["asyncio"]
        run, create = asyncio.run, asyncio.BaseEventLoop.create_task

        def create_any(loop: Any, main: Any, **named: Any) -> Any:
            named["context"] = named.get("context") or link.contexts.copy()
            return create(loop, _waiting(main) if is_remote(main) else main, **named)

        asyncio.BaseEventLoop.create_task = create_any

        def run_any(main: Any, **named: Any) -> Any:
            return run(_waiting(main) if is_remote(main) else main, **named)

        asyncio.run = run_any  # type: ignore[attr-defined]
    link.contexts.watch()
    for place in PATCHABLE.split():
        module, _, name = place.rpartition(".")
        REAL[place] = getattr(importlib.import_module(module), name)
    looking.look_there(link)
    sys.modules["solution"] = Solution(link)


def _set_both(link: Link, name: str) -> None:
    """Set something of the interpreter in the program's process, too."""
    here = getattr(sys, name)

    def both(value: Any) -> None:
        here(value)
        link.ask("library", None, ["sys", name, value])

    setattr(sys, name, both)


async def _waiting(remote: Any) -> Any:
    return await remote


def _why_not(test: str, names: dict[str, Any], link: Link) -> str:
    """Empty if a test passes."""
    link.notes.clear()
    link.failed = None
    try:
        exec(compile(_guarded(test), "test", "exec", dont_inherit=True), names)
        suite.collect(test, names)
        if link.failed is not None:
            raise link.failed
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


_DIRECT = frozenset(f"__{name}__" for name in (*OPERATORS, *ORDER, "eq", "ne", "contains"))
"""Special methods that may give ``NotImplemented`` where a test calls them by name."""


class _Guard(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> Any:
        call = node.value.func if isinstance(node.value, ast.Call) else None
        asserts = isinstance(call, ast.Attribute) and call.attr.startswith("assert")
        return self.visit_Assert(node) if asserts else self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        self.generic_visit(node)
        if node.attr not in _DIRECT or not isinstance(node.ctx, ast.Load):
            return node
        found = ast.Name(looking.METHOD_OF, ast.Load())
        return ast.copy_location(ast.Call(found, [node.value, ast.Constant(node.attr)], []), node)

    def visit_Assert(self, node: ast.Assert | ast.Expr) -> Any:
        self.generic_visit(node)
        handler = ast.parse(
            "try: pass\nexcept Exception as __error:\n    __error.decides = True\n    raise"
        ).body[0]
        assert isinstance(handler, ast.Try)
        handler.body = [node]
        return handler


def _declared(job: dict[str, Any]) -> set[str]:
    """Names that functions of the tests set for the top level."""
    trees = map(ast.parse, (job["late"], *job["tests"]))
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Global)]
    return {name for node in nodes for name in node.names}


def _modules(job: dict[str, Any]) -> dict[str, Any]:
    """Modules of the library whose attributes are used; a test may leave their import out."""
    used: set[str] = set()
    for text in (job["setup"], job["late"], *job["tests"]):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used.add(node.value.id)
    return {name: __import__(name) for name in used & sys.stdlib_module_names}
