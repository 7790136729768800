"""Runs test code: against a program in another process, or in the program's own.

In a process of its own the names that are said to be the program's stand for those: calling one
sends plain arguments over and gets plain data back, so the comparison is made here, of data of
built-in types, where the program has no way to be. No other name is ever asked of it.

In the program's process the tests hold the objects themselves. They come after the program has been
loaded, and are run with Python's functions as they were before.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import os
import re
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from rlvr_code.inside import errors, frames, pytest_like, serve, suite
from rlvr_code.inside.remote import CannotCrossError, Link

BEGIN, RESULT, FINISHED, TEST = b"b", b"r", b"f", b"t"
RUN = "__run_test__"
"""Name of the function that runs a test of the setup, by its name."""
_FAILURES = "__failures__"
_GUARD = f"try: pass\nexcept BaseException as __e:\n    {_FAILURES}.append(__e)\n    raise"
_EXPECTS = re.compile(r"[rR]aises|suppress")


def run(job: dict[str, Any], wire: int) -> NoReturn:
    """Run tests on the program at the other end of a wire, and send the outcome of each.

    Args:
        job: ``setup``: code before the tests; ``late``: code after the program's names are known;
            ``tests``: one text each; ``program``: names that are the program's, whatever the setup
            defines; ``classes``: those of them that are classes; ``nonce``: to be said with each
            result.
        wire: Descriptor of the connection.
    """
    nonce = job["nonce"]
    link = Link(wire, job["classes"], " ".join((job["late"], *job["tests"])))
    try:
        known: dict[str, Any] = {}
        names = _names(job, lambda name: link.names([*known.keys() & {name}])[name])
        _refuse_code_of_others(link, names)
        sys.modules["solution"] = types.ModuleType("solution")
        exec(_compiled(job["setup"]), names)
        known.update(link.names(job["program"]))
        names.take(known)
        vars(sys.modules["solution"]).update(known)
        exec(_compiled(job["late"]), names)
        for number, test in enumerate(job["tests"]):
            frames.send(wire, BEGIN, json.dumps([nonce, number]).encode())
            why = _why_not(test, names)
            error = link.taken()
            of_tests = error is not None and error.of_tests
            why = f"no plain data: {error}"[:300] if error is not None else why
            frames.send(wire, RESULT, json.dumps([nonce, number, why, of_tests]).encode())
        end = [nonce, "", False]
    except CannotCrossError as error:
        end = [nonce, f"no plain data: {error}", error.of_tests]
    except BaseException as error:
        end = [nonce, errors.describe(error), False]
    frames.send(wire, FINISHED, json.dumps(end).encode())
    os._exit(0)


class Names(dict[str, Any]):
    """The names of test code.

    Functions and classes of the program stand among them; what else it has is looked up there each
    time, since it may change.
    """

    def __init__(self, find: Callable[[str], Any]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, name: str) -> Any:
        return self._find(name)

    def take(self, program: dict[str, Any]) -> None:
        """Have the program's names, whatever the tests have defined before."""
        for name, value in program.items():
            if callable(value):
                self[name] = value
            else:
                self.pop(name, None)


def _refuse_code_of_others(link: Link, names: Names) -> None:
    """Keep test code from running, in this process, what the program may have written."""

    def refuse(*given: Any, **named: Any) -> Any:
        return link.refuse("code, or a pickle, that is read in a test", of_tests=True)

    names["__builtins__"] = vars(builtins) | {"eval": refuse, "exec": refuse}
    for name in ("pickle", "marshal"):
        module: Any = importlib.import_module(name)
        module.load = module.loads = refuse
    vars(importlib.import_module("pickle"))["Unpickler"] = refuse


def _nobody(name: str) -> Any:
    """Raise: nobody defines the name."""
    raise KeyError(name)


class Room:
    """The process of a program that takes the tests in, too.

    It keeps for itself what it works with, before the program is loaded. The number that a result
    has to have is read when its test is over; until then it is nowhere in this process.

    Args:
        wire: Descriptor of the connection.
    """

    def __init__(self, wire: int) -> None:
        self._wire = wire
        self._builtins = dict(vars(builtins))
        self._receive, self._send = frames.receive, frames.send
        self._dumps, self._loads, self._exec = json.dumps, json.loads, exec

    def serve(self, program: dict[str, Any]) -> NoReturn:
        """Run tests as they come, until the other side hangs up.

        Args:
            program: The names of the program.
        """
        job = self._loads(self._receive(self._wire)[1])
        names, why = Names(_nobody), ""
        try:
            names = self._prepared(job, program)
        except BaseException as error:
            why = f"the tests themselves: {errors.describe(error)}"
        while True:
            try:
                test = self._receive(self._wire)[1].decode("utf-8", "surrogatepass")
                result = why or _why_not(test, names)
                nonce = self._receive(self._wire)[1].decode()
            except frames.ClosedError:
                os._exit(0)
            self._send(self._wire, RESULT, self._dumps([nonce, result]).encode())

    def _prepared(self, job: dict[str, Any], program: dict[str, Any]) -> Names:
        """The names of the tests; those of the program are what it has made of them."""
        theirs = frozenset(job["program"]) & program.keys()
        names = _names(job, lambda name: program[name] if name in theirs else _nobody(name))
        names["__builtins__"] = self._builtins
        given = {name: program[name] for name in job["given"] if name in program}
        self._exec(_compiled(job["setup"]), names)
        names.take({name: program[name] for name in theirs} | given)
        self._exec(_compiled(job["late"]), names)
        names.update(given)
        return names


def share(code: bytes, wire: int) -> NoReturn:
    """Load a program, and run tests in its process."""
    try:
        room = Room(wire)
        host = serve.Host(wire)
        host.load(code)
        room.serve(host.names)
    finally:
        os._exit(1)


def _names(job: dict[str, Any], find: Callable[[str], Any]) -> Names:
    """The names that test code begins with."""
    texts = [job["setup"], job["late"], *job["tests"]]
    sys.modules["pytest"] = pytest_like.make_pytest()
    if any("unittest" in text for text in texts):
        importlib.import_module("unittest.mock")
    sys.modules["tests"] = types.ModuleType("tests")
    names = Names(find)
    names.update(_modules(texts), __name__="tests")
    names[RUN] = lambda name: suite.run(name, names)
    names[_FAILURES] = []
    return names


def _why_not(test: str, names: dict[str, Any]) -> str:
    """Empty if a test passes."""
    failures = names[_FAILURES]
    failures.clear()
    try:
        exec(_compiled(test), names)
        suite.collect(test, names)
        if failures:
            raise failures[0]
    except AssertionError as error:
        why = f"the assertion does not hold: {error}" if str(error) else "not as asserted"
        return why[:300]
    except BaseException as error:
        return errors.describe(error)[:300]
    return ""


def _compiled(code: str) -> types.CodeType:
    """Test code, in which no ``with`` can swallow an exception out of an assertion."""
    tree = ast.fix_missing_locations(_Guard().visit(ast.parse(code)))
    return compile(tree, "tests", "exec", dont_inherit=True)


class _Guard(ast.NodeTransformer):
    _inside = 0

    def visit_With(self, node: ast.With | ast.AsyncWith) -> Any:
        expects = any(_EXPECTS.search(ast.unparse(item.context_expr)) for item in node.items)
        self._inside += not expects
        self.generic_visit(node)
        self._inside -= not expects
        return node

    visit_AsyncWith = visit_With

    def visit_Expr(self, node: ast.Expr) -> Any:
        call = node.value.func if isinstance(node.value, ast.Call) else None
        asserts = isinstance(call, ast.Attribute) and call.attr.startswith("assert")
        return self.visit_Assert(node) if asserts else self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert | ast.Expr) -> Any:
        self.generic_visit(node)
        if not self._inside:
            return node
        guarded = ast.parse(_GUARD).body[0]
        assert isinstance(guarded, ast.Try)
        guarded.body = [node]
        return guarded


def _modules(texts: Iterable[str]) -> dict[str, Any]:
    """Modules of the library whose attributes are used; a test may leave their import out."""
    used: set[str] = set()
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used.add(node.value.id)
    return {name: __import__(name) for name in used & sys.stdlib_module_names}
