"""Runs a program's top level once, then does what it is asked to: calls and the like, or cells.

The other side is a trusted one: the parent, or through it the process that runs the tests. It
learns nothing here but plain data; what it compares them with never comes to this process.
"""

from __future__ import annotations

import builtins
import collections.abc
import contextlib
import datetime
import functools
import json
import os
import sys
import types
from collections import deque
from typing import Any, NoReturn

from rlvr_code.inside import callbacks, codec, errors, frames, kinds, script, subclasses, things
from rlvr_code.inside.contexts import CONTEXTS
from rlvr_code.inside.decimals import Decimals
from rlvr_code.inside.guests import METHODS, Guest, guest
from rlvr_code.inside.operations import OPERATIONS
from rlvr_code.inside.shared import NEW, SAME, SYNC, Shared
from rlvr_code.inside.turn import Turn
from rlvr_code.inside.watch import Watch

LOADED, ASK, ANSWER, BACK, BACK_ANSWER = b"l", b"q", b"a", b"c", b"d"
NAME, HANDLE, CALLBACK, METHOD = "name", "handle", "callback", "method"
CLASS, ERROR, RICH, GUEST, STDLIB = "class", "error", "rich", "guest", "stdlib"
RAISING, NOTED = "raising", "noted"

_CHAIN = 8
"""Exceptions in a row, each the cause or context of another, that the tests are told of."""
_MUTABLE = (list, dict, set, bytearray, deque)


class Host:
    """The program's side of the wire."""

    def __init__(self, wire: int) -> None:
        self._wire = wire
        self._kept: dict[int, object] = {}
        self._next = 0
        self._named_now: dict[str, Any] = {}
        self._numbers: dict[int, int] = {}
        self._guests: dict[int, Any] = {}
        self._guest_numbers: dict[int, int] = {}
        self._shared: Shared | None = None
        self._reads = False
        self._decimals = Decimals()
        self._turn = Turn()
        self._classes = kinds.Classes(self._call_back, Guest, METHODS)
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
        things.imports.append(True)
        self._turn.__enter__()
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
            self._learn(asked)
            given, named = asked["args"], dict(asked.get("named", ()))
            if asked.get("tests"):
                self._watch.listen()
                watch.enter_context(self._watch.watched(asked, answer))
            if asked["op"] == "data":
                answer["v"] = codec.Raw(codec.data(asked["to"], self._pen))
            else:
                with self._turn.given_up():
                    here = asked.get("context", 0)
                    answer["v"] = CONTEXTS.run(here, self._done, asked, answer, given, named)
        except BaseException as error:
            answer["e"] = errors.told(error, _Raised(error))
        finally:
            watch.close()
        if rebound := self._rebound():
            answer["rebound"] = rebound
        try:
            return self._dumps(answer, quiet)
        except BaseException as error:
            return self._dumps({"e": errors.told(error, None)}, True)

    def _learn(self, asked: dict[str, Any]) -> None:
        """Take in what the tests have set, and let go of what they do not hold any more."""
        self.names.update(asked.get("globals", ()))
        CONTEXTS.learn(asked.get("contexts", ()))
        if "levels" in asked:
            self._watch.set_levels(dict(asked["levels"]))
        for number in asked.get("dropped", ()):
            self._numbers.pop(id(self._kept.pop(number, None)), None)

    def _rebound(self) -> list[str]:
        """Names that the tests know as something else than they are now."""
        known, names = self._named_now, self.names
        found = [name for name in known if names.get(name) is not known[name]]
        for name in found:
            del known[name]
        return found

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

    def _done(self, asked: dict[str, Any], answer: dict[str, Any], *given: Any) -> Any:
        """Do what is asked; the context of decimal numbers is one for tests and program."""
        self._decimals.learn(asked.get("decimal"))
        try:
            return self._do(asked["op"], asked["to"], *given)
        finally:
            if news := self._decimals.news():
                answer["decimal"] = news

    def _do(self, op: str, target: Any, given: list[Any], named: dict[str, Any]) -> Any:
        if op == "global":
            self.names[given[0]] = given[1]
            return None
        if op == "unglobal":
            del self.names[given[0]]
            return None
        if op == "subclass":
            return self._number(subclasses.make(given[0], given[1], given[2], named))
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
        if tag == STDLIB:
            return things.found(*value)
        if tag == CALLBACK:
            if value[0] not in self._guests:
                function = callbacks.function(self._call_back, value, self._find)
                self._guests[value[0]] = function
                self._guest_numbers[id(function)] = value[0]
            return self._guests[value[0]]
        if tag == GUEST:
            if value[0] not in self._guests:
                kind = codec.decode(value[1], self._find)
                self._guests[value[0]] = made = guest(self._call_back, value[0], kind)
                self._guest_numbers[id(made)] = value[0]
            return self._guests[value[0]]
        if tag == kinds.KIND:
            number, name, doc, bases, special, begins, fields = value
            found = [codec.decode(one, self._find) for one in bases]
            made = self._classes.find(number, name, doc, found, special)
            if begins is not None:  # for those who look at it; it is never called
                begins = callbacks.function(self._call_back, begins, self._find)
                type.__setattr__(made, "__init__", begins)
            if fields is not None:
                named = [(one, codec.decode(of, self._find)) for one, of in fields]
                self._classes.with_fields(made, named)
            return made
        if tag == subclasses.WRAPPED:
            return subclasses.unwrapped(value[0], codec.decode(value[1], self._find))
        if tag == kinds.GIVEN:
            return self._classes.given(self._named(value[0]), value[1])
        if tag == "library":
            return self._classes.library(*value)
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
            error = errors.made(of, told, text)
            self._guests[number] = error
            self._guest_numbers[id(error)] = number
        return self._guests[number]

    def _named(self, name: str) -> Any:
        if name in self.names:
            self._named_now[name] = self.names[name]
            return self.names[name]
        raise NameError(f"name {name!r} is not defined")

    def _solution(self, name: str) -> Any:
        """A function, or a method of the class ``Solution`` that some problem sets ask for."""
        if name not in self.names and hasattr(self.names.get("Solution"), name):
            return getattr(self.names["Solution"](), name)
        return self._named(name)

    def _call_back(self, number: int, op: str, *given: Any, **named: Any) -> Any:
        """Have the other side do something with an object of its own."""
        with self._turn:
            asked = {"quiet": self._reads, "ask": (number, op, given, tuple(named.items()))}
            if written := self._watch.written():
                asked["written"] = written
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
            return self._of_tests(raised)
        if exact is _Raised:
            return self._raised(value.error)
        if isinstance(value, kinds.GuestType) and (of := self._classes.number(value)) is not None:
            return {"t": GUEST, "v": of}
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
            self._kept[self._next] = value
            self._numbers[id(value)] = self._next
            self._next += 1
        return self._numbers[id(value)]

    def _class(self, value: type, number: int) -> dict[str, Any]:
        if value.__module__ != "solution":
            return {"t": STDLIB, "v": [value.__module__, value.__qualname__]}
        bases = [one for one in value.__bases__ if one is not object]
        own = [one for one in bases if one.__module__ in ("solution", "builtins")]
        return {"t": CLASS, "v": [number, value.__name__, [self._encoded(one) for one in own]]}

    def _encoded(self, value: type) -> Any:
        built_in = value.__module__ == "builtins"
        return {"t": "type", "v": value.__name__} if built_in else self._keep(value)

    def _of_tests(self, value: Any) -> dict[str, Any]:
        """An object of the tests; with an exception come the notes that were added here."""
        number = self._guest_numbers[id(value)]
        notes = getattr(value, "__notes__", None) if isinstance(value, BaseException) else None
        if notes and type(value).__dict__.get("__notes__") is None:
            return {
                "t": NOTED,
                "v": [number, codec.encode(list(map(str, notes)), codec.Pen(self._keep))],
            }
        return {"t": GUEST, "v": number}

    def _raised(self, error: BaseException, depth: int = 0) -> dict[str, Any]:
        if id(error) in self._guest_numbers:
            return self._of_tests(error)
        kind = type(error)
        handle = [self._number(error), "error"]
        of = self._class(kind, self._number(kind))
        told = [codec.encode(one, self._pen) for one in error.args]
        about: dict[str, Any] = {
            "suppress": error.__suppress_context__,
            "has": [
                [name, codec.encode(value, self._pen)]
                for name, value in errors.attributes(error).items()
            ],
        }
        for name in ("cause", "context") if depth < _CHAIN else ():
            other = getattr(error, f"__{name}__")
            about[name] = None if other is None else self._raised(other, depth + 1)
        return {"t": ERROR, "v": [of, handle, told, about]}


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
    if isinstance(value, _FUNCTIONS):
        return "function"
    if isinstance(value, datetime.tzinfo):
        return "zone"
    if hasattr(type(value), "__mro_entries__"):
        return "alias"
    if hasattr(type(value), "__get__") and not isinstance(value, _BOUND):
        if hasattr(type(value), "__set__"):
            return "descriptor"
        return "callget" if callable(value) else "get"
    if callable(value):
        return "call"
    if isinstance(value, collections.abc.Mapping):
        return "mapping"
    return "sequence" if isinstance(value, collections.abc.Sequence) else ""


_FUNCTIONS = (types.FunctionType, functools._lru_cache_wrapper)
_BOUND = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)


def run(code: bytes, wire: int) -> NoReturn:
    """Load a program and serve it."""
    try:
        host = Host(wire)
        host.load(code)
        host.serve()
    finally:
        os._exit(1)
