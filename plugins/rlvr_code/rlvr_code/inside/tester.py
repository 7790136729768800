"""Runs test code against a program that lives in another process, in another sandbox.

The names that are said to be the program's stand for those: calling one sends plain arguments over
and gets plain data back, so the comparison is made here, of data of built-in types, where the
program has no way to be. No other name is ever asked of it. What is no plain data is held as a
handle, which can be passed back, called, iterated and have attributes, but compares with nothing.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any, NoReturn

from rlvr_code.inside import codec, frames, serve

BEGIN, RESULT, FINISHED = b"b", b"r", b"f"


class GoneError(BaseException):
    """The program has ended, or broken the protocol."""


class Remote:
    """Stands for a name or an object of the program."""

    __slots__ = ("_link", "_tag", "_value")

    def __init__(self, link: Link, tag: str, value: Any) -> None:
        object.__setattr__(self, "_link", link)
        object.__setattr__(self, "_tag", tag)
        object.__setattr__(self, "_value", value)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call it in the program's process."""
        return self._link.ask("call", self, list(given), named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._link.ask("get", self, [name])

    def __setattr__(self, name: str, value: Any) -> None:
        self._link.ask("set", self, [name, value])

    def __getitem__(self, key: Any) -> Any:
        return self._link.ask("item", self, [key])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._link.ask("setitem", self, [key, value])

    def __iter__(self) -> Iterator[Any]:
        return self._link.ask("iter", self, [])  # type: ignore[no-any-return]

    def __next__(self) -> Any:
        return self._link.ask("next", self, [])

    def __len__(self) -> int:
        length = self._link.ask("len", self, [])
        if type(length) is not int:
            raise TypeError("no length")
        return length

    def __contains__(self, value: Any) -> bool:
        raise TypeError("what a program's object contains is for the program to say")

    def __str__(self) -> str:
        return str(self._link.ask("str", self, []))

    def __repr__(self) -> str:
        return f"<an object of the program, number {self._value}>"

    def __eq__(self, other: object) -> bool:
        raise TypeError("only plain data can be compared; this is an object of the program")

    def __bool__(self) -> bool:
        # a program that lies here could as well have returned True: ``assert f(x)`` asks no more
        truth = self._link.ask("true", self, [])
        if type(truth) is not bool:
            raise TypeError("neither true nor false")
        return truth

    __hash__ = None  # type: ignore[assignment]


class Link:
    """The connection to the program."""

    def __init__(self, wire: int) -> None:
        self._wire = wire
        self._callbacks: list[Any] = []

    def send(self, kind: bytes, body: bytes) -> None:
        """Send a frame."""
        frames.send(self._wire, kind, body)

    def ask(
        self, op: str, target: Remote, given: list[Any], named: dict[str, Any] | None = None
    ) -> Any:
        """Have the program do something; what came of it.

        Raises:
            GoneError: If there is no program any more.
        """
        asked = {"op": op, "to": target, "args": given, "named": named or {}}
        self.send(serve.ASK, codec.dumps(asked, self._keep))
        while True:
            try:
                kind, body = frames.receive(self._wire)
            except frames.ClosedError as error:
                raise GoneError("the program has ended") from error
            if kind == serve.ANSWER:
                return self._understand(op, body, given)
            if kind != serve.BACK:
                raise GoneError("the program broke the protocol")
            self._called_back(body)

    def _understand(self, op: str, body: bytes, given: list[Any]) -> Any:
        try:
            answer = codec.loads(body, self._find)
            if "e" in answer:
                kind, text, _ = answer["e"]
            else:
                for place, now in answer["changed"].items():
                    _become(given[place], now)
                return answer["v"]
        except (codec.UnfitError, LookupError, TypeError, ValueError) as error:
            raise GoneError("the program broke the protocol") from error
        raised = serve.exception(str(kind), str(text))
        if isinstance(raised, StopIteration) and op != "next":
            # it would end the loop of a test that calls the program in ``map``, before any result
            raise RuntimeError(f"the program raised StopIteration: {text}")
        raise raised

    def _called_back(self, body: bytes) -> None:
        try:
            number, given = codec.loads(body, self._find)
            function = self._callbacks[number]
        except (codec.UnfitError, LookupError, TypeError, ValueError) as error:
            raise GoneError("the program broke the protocol") from error
        try:
            answer = codec.dumps({"v": function(*given)}, self._keep)
        except Exception as error:
            said = [type(error).__name__, str(error)]
            answer = codec.dumps({"e": said}, self._keep)
        self.send(serve.BACK_ANSWER, answer)

    def _keep(self, value: object) -> dict[str, Any]:
        if isinstance(value, Remote):
            return {"t": value._tag, "v": value._value}
        if callable(value):
            self._callbacks.append(value)
            return {"t": serve.CALLBACK, "v": len(self._callbacks) - 1}
        raise codec.UnfitError(f"a {type(value).__name__} cannot be given to the program")

    def _find(self, tag: str, value: Any) -> Any:
        if tag != serve.HANDLE or type(value[0]) is not int:
            raise codec.UnfitError(tag)
        return Remote(self, serve.HANDLE, value[0])


def _become(value: Any, now: Any) -> None:
    """Change an argument in place, as the program has done with its copy."""
    if type(value) is not type(now):
        raise codec.UnfitError("an argument has changed its type")
    if isinstance(value, list | bytearray):
        value[:] = now
    elif isinstance(value, dict | set):
        value.clear()
        value.update(now)
    elif isinstance(value, deque):
        value.clear()
        value.extend(now)


def run(job: dict[str, Any], wire: int) -> NoReturn:
    """Run tests and send what came of each.

    Args:
        job: ``setup``: code before the tests; ``tests``: one text each; ``program``: names that
            are the program's, whatever the setup defines; ``late``: code after that; ``nonce``: to
            be said with each result.
        wire: Descriptor of the connection.
    """
    link = Link(wire)
    nonce = job["nonce"]
    try:
        names: dict[str, Any] = {"__name__": "tests", "__builtins__": builtins} | _modules(job)
        exec(compile(job["setup"], "setup", "exec"), names)
        names |= {name: Remote(link, serve.NAME, name) for name in job["program"]}
        if job["late"]:
            exec(compile(job["late"], "setup", "exec"), names)
        for number, test in enumerate(job["tests"]):
            link.send(BEGIN, json.dumps([nonce, number]).encode())
            why = _why_not(test, names)
            link.send(RESULT, json.dumps([nonce, number, why]).encode())
        link.send(FINISHED, json.dumps([nonce, ""]).encode())
    except BaseException as error:
        link.send(FINISHED, json.dumps([nonce, serve.describe(error)]).encode())
    os._exit(0)


def _why_not(test: str, names: dict[str, Any]) -> str:
    """Empty if a test passes."""
    try:
        exec(compile(test, "test", "exec"), names)
    except GoneError:
        raise
    except AssertionError as error:
        return f"the assertion does not hold: {error}"[:300] if str(error) else "not as asserted"
    except BaseException as error:
        return serve.describe(error)[:300]
    return ""


def _modules(job: dict[str, Any]) -> dict[str, Any]:
    """Modules of the library whose attributes are used; a test may leave their import out."""
    used: set[str] = set()
    for text in (job["setup"], job["late"], *job["tests"]):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used.add(node.value.id)
    return {name: __import__(name) for name in used & sys.stdlib_module_names}
