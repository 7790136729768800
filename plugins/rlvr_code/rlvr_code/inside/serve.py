"""Runs a program's top level once, then does what it is asked to: calls and the like, or cells.

The other side is a trusted one: the parent, or through it the process that runs the tests. It
learns nothing here but plain data; what it compares them with never comes to this process.
"""

from __future__ import annotations

import builtins
import itertools
import json
import operator
import os
import sys
import types
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

from rlvr_code.inside import codec, errors, frames, script

LOADED, ASK, ANSWER = b"l", b"q", b"a"
NAME, METHOD, HANDLE = "name", "method", "handle"
"""Tags: a name of the program, one that may be a method of ``Solution``, an object kept here."""
UNFIT, CHANGED = "unfit", "changed"
MOST_ITEMS = 100_000

_MUTABLE = (list, dict, set, bytearray, deque)


def _items(value: Any) -> list[Any]:
    return list(itertools.islice(value, MOST_ITEMS))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "setattr": setattr,
    "delattr": delattr,
    "len": len,
    "bool": bool,
    "str": str,
    "repr": repr,
    "items": _items,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
}
"""Operations that tests may perform on an object of a class of the program."""


class Host:
    """The program's side of the wire."""

    def __init__(self, wire: int) -> None:
        self._wire = wire
        self._kept: dict[int, object] = {}
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
            ended = {"ok": False, "why": errors.describe(error)}
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
            request = codec.loads(body, self._find)
            answer = self._done(request)
        except BaseException as error:
            return codec.dumps({"e": errors.told(error)})
        try:
            return codec.dumps(answer, self._keep if request.get("keep") else codec.refuse)
        except codec.UnfitError as error:
            return codec.dumps({UNFIT: str(error)})
        except BaseException as error:  # out of a generator
            return codec.dumps({"e": errors.told(error)})

    def _done(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked; with ``back``, the arguments that have changed come back too."""
        given, named = request["args"], dict(request.get("named", {}))
        back = [at for at, argument in enumerate(given) if type(argument) in _MUTABLE]
        before = [codec.dumps(given[at], self._keep) for at in back] if request.get("back") else []
        answer = {"v": self._do(request, given, named)}
        changed = [
            [at, given[at]]
            for at, text in zip(back, before, strict=False)
            if codec.dumps(given[at], self._keep) != text
        ]
        return answer | ({CHANGED: changed} if changed else {})

    def _do(self, request: dict[str, Any], given: list[Any], named: dict[str, Any]) -> Any:
        op, target = request["op"], request["to"]
        if op == "call":
            return target(*given, **named)
        if op == "make":
            return self._number(target(*given, **named))
        if op == "attribute":
            attribute = getattr(target, *given)
            return [callable(attribute), None if callable(attribute) else attribute]
        if op == "method":
            return getattr(target, given[0])(*given[1:], **named)
        if op == "names":
            return {name: _kind(self.names[name]) for name in given if name in self.names}
        if op == "cell":
            return self._cell(*given)
        return OPERATIONS[op](target, *given)

    def _cell(self, code: bytes, file: str) -> int:
        """Run more source text where the program's names are."""
        status = script.execute(code, self.names, file)
        script.flush()
        return status

    def _find(self, tag: str, value: Any) -> Any:
        if tag == HANDLE:
            return self._kept[value]
        if tag == METHOD and value not in self.names and hasattr(self.names.get("Solution"), value):
            return getattr(self.names["Solution"](), value)
        if tag in (NAME, METHOD) and value in self.names:
            return self.names[value]
        raise NameError(f"name {value!r} is not defined")

    def _keep(self, value: Any) -> dict[str, Any]:
        return {"t": HANDLE, "v": self._number(value)}

    def _number(self, value: object) -> int:
        """Return one number per object, and keep the object alive."""
        self._kept[id(value)] = value
        return id(value)


def _kind(value: Any) -> list[Any]:
    """Return the kind of a name: ``class``, ``error`` with its classes, ``data``, or ``call``."""
    if isinstance(value, type):
        error = issubclass(value, BaseException) and value.__module__ != "builtins"
        return ["error", errors.lineage(value)] if error else ["class", None]
    try:
        codec.dumps(value)
    except codec.UnfitError:
        return ["call", None]
    return ["data", value]


def run(code: bytes, wire: int) -> NoReturn:
    """Load a program and serve it."""
    try:
        host = Host(wire)
        host.load(code)
        host.serve()
    finally:
        os._exit(1)
