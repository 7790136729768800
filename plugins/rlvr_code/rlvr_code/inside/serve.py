"""Runs a program's top level once, then does what it is asked to: calls and the like, or cells.

The other side is a trusted one: the parent, or through it the process that runs the tests. It
learns nothing here but plain data; what it compares them with never comes to this process.
"""

from __future__ import annotations

import builtins
import json
import operator
import os
import sys
import types
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

from rlvr_code.inside import codec, frames, script

LOADED, ASK, ANSWER, BACK, BACK_ANSWER = b"l", b"q", b"a", b"c", b"d"
NAME, HANDLE, CALLBACK, METHOD = "name", "handle", "callback", "method"

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "get": getattr,
    "set": setattr,
    "item": operator.getitem,
    "setitem": operator.setitem,
    "iter": iter,
    "next": next,
    "len": len,
    "true": bool,
    "str": str,
    "repr": repr,
    "contains": operator.contains,
}
_MUTABLE = (list, dict, set, bytearray, deque)


class Host:
    """The program's side of the wire."""

    def __init__(self, wire: int) -> None:
        self._wire = wire
        self._kept: list[object] = []
        self.names: dict[str, Any] = {}

    def load(self, code: bytes) -> None:
        """Run the program's top level and say how that ended."""
        module = types.ModuleType("solution")
        sys.modules["solution"] = module
        module.__file__ = script.NAME
        self.names = module.__dict__
        self.names["__builtins__"] = builtins
        ended: dict[str, Any] = {"ok": True}
        try:
            exec(script.compiled(code, script.NAME), self.names)
        except BaseException as error:
            ended = {"ok": False, "why": describe(error)}
            script.report(error, script.NAME)
        script.flush()
        frames.send(self._wire, LOADED, json.dumps(ended).encode())

    def serve(self) -> NoReturn:
        """Answer until the other side hangs up."""
        while True:
            try:
                kind, body = frames.receive(self._wire)
            except frames.ClosedError:
                os._exit(0)
            if kind == ASK:
                frames.send(self._wire, ANSWER, self._answer(body))

    def _answer(self, body: bytes) -> bytes:
        try:
            asked = codec.loads(body, self._find)
            if asked["op"] == "cell":
                return self._cell(asked)
            given = asked["args"]
            before = [_text_of(one) for one in given]
            result = self._do(asked["op"], asked["to"], given, asked.get("named", {}))
            changed = {
                place: one
                for place, one in enumerate(given)
                if isinstance(one, _MUTABLE) and _text_of(one) != before[place]
            }
            return codec.dumps({"v": result, "changed": changed}, self._keep)
        except BaseException as error:
            told = [_kind_of(error), _message(error), describe(error)]
            return codec.dumps({"e": told}, self._keep)

    def _do(self, op: str, target: Any, given: list[Any], named: dict[str, Any]) -> Any:
        if op == "call":
            return target(*given, **named)
        return _OPERATIONS[op](target, *given)

    def _cell(self, asked: dict[str, Any]) -> bytes:
        """Run more source text where the program's names are."""
        code: bytes = asked["code"]
        status = script.execute(code, self.names, asked["file"])
        script.flush()
        return codec.dumps({"v": status}, self._keep)

    def _find(self, tag: str, value: Any) -> Any:
        if tag == HANDLE:
            return self._kept[value]
        if tag == NAME:
            return self._named(value)
        if tag == METHOD:
            return self._solution(value)
        if tag == CALLBACK:
            return lambda *given: self._call_back(value, given)
        raise codec.UnfitError(tag)

    def _named(self, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        raise NameError(f"name {name!r} is not defined")

    def _solution(self, name: str) -> Any:
        """A function, or a method of the class ``Solution`` that some problem sets ask for."""
        if name not in self.names and hasattr(self.names.get("Solution"), name):
            return getattr(self.names["Solution"](), name)
        return self._named(name)

    def _call_back(self, number: int, given: tuple[Any, ...]) -> Any:
        """Call a function of the other side."""
        frames.send(self._wire, BACK, codec.dumps([number, list(given)], self._keep))
        while True:
            kind, body = frames.receive(self._wire)
            if kind == BACK_ANSWER:
                break
            if kind == ASK:
                frames.send(self._wire, ANSWER, self._answer(body))
        answer = codec.loads(body, self._find)
        if "e" in answer:
            raise exception(*answer["e"])
        return answer["v"]

    def _keep(self, value: object) -> dict[str, Any]:
        self._kept.append(value)
        return {
            "t": HANDLE,
            "v": [len(self._kept) - 1, callable(value), hasattr(value, "__next__")],
        }


def run(code: bytes, wire: int) -> NoReturn:
    """Load a program and serve it."""
    try:
        host = Host(wire)
        host.load(code)
        host.serve()
    finally:
        os._exit(1)


def exception(kind: str, text: str) -> Exception:
    """The built-in exception of this name, or one that mentions it."""
    found = vars(builtins).get(kind)
    if isinstance(found, type) and issubclass(found, Exception):
        return found(text)
    return RuntimeError(f"{kind}: {text}")


def _kind_of(error: BaseException) -> str:
    """Name of the built-in exception that an error is, or derives from."""
    for base in type.mro(type(error)):
        name = str(base.__name__)
        if vars(builtins).get(name) is base:
            return name
    return "Exception"


def _message(error: BaseException) -> str:
    try:
        return str(error)[:1000]
    except BaseException:
        return ""


def describe(error: BaseException) -> str:
    """An error in a line, whatever its class does when it is asked."""
    try:
        return f"{type(error).__name__}: {error!s}"[:1000]
    except BaseException:
        return "an error that cannot be described"


def _text_of(value: object) -> bytes | None:
    """A mutable value as text, to see whether it has changed."""
    if not isinstance(value, _MUTABLE):
        return None
    return codec.dumps(value, lambda one: {"t": "id", "v": id(one)})
