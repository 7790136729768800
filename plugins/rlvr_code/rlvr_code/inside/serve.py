"""Runs a program's top level once, then does what it is asked to: calls and the like, or cells.

The other side is a trusted one: the parent, or through it the process that runs the tests. It
learns nothing here but plain data; what it compares them with never comes to this process.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import sys
import types
from collections import deque
from typing import Any, NoReturn

from rlvr_code.inside import callbacks, codec, errors, frames, script
from rlvr_code.inside.guests import Guest, guest
from rlvr_code.inside.operations import OPERATIONS
from rlvr_code.inside.shared import NEW, SAME, SYNC, Shared
from rlvr_code.inside.watch import Watch

LOADED, ASK, ANSWER, BACK, BACK_ANSWER = b"l", b"q", b"a", b"c", b"d"
NAME, HANDLE, CALLBACK, METHOD = "name", "handle", "callback", "method"
CLASS, ERROR, RICH, GUEST, STDLIB = "class", "error", "rich", "guest", "stdlib"
RAISING = "raising"

_MUTABLE = (list, dict, set, bytearray, deque)


class Host:
    """The program's side of the wire."""

    def __init__(self, wire: int) -> None:
        self._wire = wire
        self._kept: list[object] = []
        self._numbers: dict[int, int] = {}
        self._guests: dict[int, Any] = {}
        self._guest_numbers: dict[int, int] = {}
        self._shared: Shared | None = None
        self._reads = False
        self._watch = Watch(self._call_back)
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
        answer: dict[str, Any] = codec.Fields()
        watch = contextlib.ExitStack()
        quiet = False
        try:
            asked = self._loads(body)
            if asked["op"] == "cell":
                return self._cell(asked)
            quiet = bool(asked.get("quiet"))
            given, named = asked["args"], dict(asked.get("named", ()))
            if asked.get("tests"):
                self._watch.listen()
                watch.enter_context(self._watch.watched(asked, answer))
            if asked["op"] == "data":
                answer["v"] = codec.Raw(codec.data(asked["to"], self._pen))
            else:
                answer["v"] = self._do(asked["op"], asked["to"], given, named)
        except BaseException as error:
            answer["e"] = errors.told(error, _Raised(error))
        finally:
            watch.close()
        try:
            return self._dumps(answer, quiet)
        except BaseException as error:
            return self._dumps({"e": errors.told(error, None)}, True)

    @property
    def _pen(self) -> codec.Pen:
        return codec.Pen(self._keep, self._shared)

    def _loads(self, body: bytes) -> Any:
        outer, self._reads = self._reads, True
        try:
            return codec.loads(body, self._find)
        finally:
            self._reads = outer

    def _dumps(self, fields: dict[str, Any], quiet: bool) -> bytes:
        """A message; a quiet one is sent while another is being read, which may tell of changes."""
        shared, well = self._shared, False
        if shared is None:
            return codec.dumps(codec.Fields(fields), self._keep)
        try:
            sync = {} if quiet else {SYNC: shared.changes(self._pen)}
            body = codec.dumps(codec.Fields(sync | fields), self._keep, shared)
            well = True
            return body
        finally:
            shared.sent(well)

    def _do(self, op: str, target: Any, given: list[Any], named: dict[str, Any]) -> Any:
        if op == "global":
            self.names[given[0]] = given[1]
            return None
        if op == "unglobal":
            del self.names[given[0]]
            return None
        if op in ("call", "make"):
            return target(*given, **named)
        return OPERATIONS[op](target, *given, **named)

    def _cell(self, asked: dict[str, Any]) -> bytes:
        """Run more source text where the program's names are."""
        code: bytes = asked["code"]
        status = script.execute(code, self.names, asked["file"])
        script.flush()
        return codec.dumps({"v": status}, self._keep)

    def _find(self, tag: str, value: Any) -> Any:
        if tag == HANDLE:
            return self._kept[value]
        if tag in (NEW, SAME, SYNC):
            self._shared = self._shared or Shared(1)
            return self._shared.read(tag, value, self._find)
        if tag == NAME:
            return self._named(value)
        if tag == METHOD:
            return self._solution(value)
        if tag == CALLBACK:
            if value[0] not in self._guests:
                function = callbacks.function(self._call_back, value, self._find)
                self._guests[value[0]] = function
                self._guest_numbers[id(function)] = value[0]
            return self._guests[value[0]]
        if tag == GUEST:
            if value[0] not in self._guests:
                self._guests[value[0]] = guest(self._call_back, *value)
            return self._guests[value[0]]
        if tag == RAISING:
            return self._raising(*value)
        if tag == ERROR:
            return self._guest_error(*value)
        raise codec.UnfitError(tag)

    def _raising(self, number: int, name: str, bases: list[Any]) -> Any:
        """A class of exceptions for one of the tests'."""
        if number not in self._guests:
            found = tuple(codec.decode(one, self._find) for one in bases)
            kind = type(name, found, {"__module__": "tests", "__init__": errors.takes_anything})
            self._guests[number] = kind
            self._guest_numbers[id(kind)] = number
        return self._guests[number]

    def _guest_error(self, number: int, kind: Any, given: Any, text: str) -> Any:
        """An exception for one of the tests', of which it has no more than the arguments."""
        if number not in self._guests:
            of = codec.decode(kind, self._find)
            told = codec.decode(given, self._find)
            try:
                error = of(*told)
            except Exception:
                error = errors.exception(of.__name__, text)
            self._guests[number] = error
            self._guest_numbers[id(error)] = number
        return self._guests[number]

    def _named(self, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        raise NameError(f"name {name!r} is not defined")

    def _solution(self, name: str) -> Any:
        """A function, or a method of the class ``Solution`` that some problem sets ask for."""
        if name not in self.names and hasattr(self.names.get("Solution"), name):
            return getattr(self.names["Solution"](), name)
        return self._named(name)

    def _call_back(self, number: int, op: str, *given: Any, **named: Any) -> Any:
        """Have the other side do something with an object of its own."""
        asked = {"quiet": self._reads, "ask": (number, op, given, tuple(named.items()))}
        frames.send(self._wire, BACK, self._dumps(asked, self._reads))
        while True:
            kind, body = frames.receive(self._wire)
            if kind == BACK_ANSWER:
                break
            if kind == ASK:
                frames.send(self._wire, ANSWER, self._answer(body))
        answer = self._loads(body)
        if "e" in answer:
            raise answer["e"]
        return answer["v"]

    def _keep(self, value: Any) -> dict[str, Any] | None:
        exact = type(value)
        raised = value.error if exact is _Raised else value
        if id(raised) in self._guest_numbers:
            return {"t": GUEST, "v": self._guest_numbers[id(raised)]}
        if exact is _Raised:
            return self._raised(value.error)
        if issubclass(exact, Guest):
            return {"t": GUEST, "v": object.__getattribute__(value, "_ask").args[0]}
        derived = issubclass(exact, (*codec.IMMUTABLE, *_MUTABLE))
        if derived and exact.__module__ != "solution" and not issubclass(exact, codec.IMMUTABLE):
            return None
        number = self._number(value)
        if isinstance(value, type):
            return self._class(value, number)
        if isinstance(value, BaseException):
            return self._raised(value)
        handle = {"t": HANDLE, "v": [number, _kind(value)]}
        if derived and issubclass(exact, codec.IMMUTABLE):
            base: Any = next(one for one in codec.IMMUTABLE if issubclass(exact, one))
            plain = base(value) if base is not str else str.__getitem__(value, slice(None)) + ""
            if type(plain) is base:
                return {"t": RICH, "v": [codec.data(value, self._pen), handle]}
        return handle

    def _number(self, value: object) -> int:
        """The same for the same object."""
        if id(value) not in self._numbers:
            self._kept.append(value)
            self._numbers[id(value)] = len(self._kept) - 1
        return self._numbers[id(value)]

    def _class(self, value: type, number: int) -> dict[str, Any]:
        if value.__module__ != "solution":
            return {"t": STDLIB, "v": [value.__module__, value.__name__]}
        bases = [one for one in value.__bases__ if one is not object]
        own = [one for one in bases if one.__module__ in ("solution", "builtins")]
        return {"t": CLASS, "v": [number, value.__name__, [self._encoded(one) for one in own]]}

    def _encoded(self, value: type) -> Any:
        built_in = value.__module__ == "builtins"
        return {"t": "type", "v": value.__name__} if built_in else self._keep(value)

    def _raised(self, error: BaseException) -> dict[str, Any]:
        kind = type(error)
        handle = [self._number(error), "error"]
        cause = None if error.__cause__ is None else self._raised(error.__cause__)
        of = self._class(kind, self._number(kind))
        told = [codec.encode(one, self._pen) for one in error.args]
        return {"t": ERROR, "v": [of, handle, told, cause]}


class _Raised:
    """An exception that ended an operation, not one that is its value."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _kind(value: object) -> str:
    if isinstance(value, _MUTABLE):
        return "data"
    if isinstance(value, types.GeneratorType):
        return "generator"
    if hasattr(type(value), "__await__"):
        return "await"
    if hasattr(type(value), "__set__") and hasattr(type(value), "__get__"):
        return "descriptor"
    return "call" if callable(value) else ""


def run(code: bytes, wire: int) -> NoReturn:
    """Load a program and serve it."""
    try:
        host = Host(wire)
        host.load(code)
        host.serve()
    finally:
        os._exit(1)
