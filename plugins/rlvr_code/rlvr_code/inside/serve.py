"""Runs a program's top level once, then does what it is asked to: calls and the like, or cells.

The other side is a trusted one: the parent, or through it the process that runs the tests. It
learns nothing here but plain data; what it compares them with never comes to this process.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import json
import operator
import os
import sys
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TextIO, cast

from rlvr_code.inside import callbacks, codec, frames, remote, script
from rlvr_code.inside.guests import Guest, guest
from rlvr_code.inside.shared import NEW, SAME, SYNC, Shared


def _nothing(*given: Any) -> None:
    """What a descriptor without a method does."""


def _reflected(do: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda one, other: do(other, one)


def _of(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def _loop() -> Any:
    """The event loop in which everything is waited for, so that locks and the like go together."""
    import asyncio

    if not _loops:
        _loops.append(asyncio.new_event_loop())
        asyncio.set_event_loop(_loops[0])
    return _loops[0]


async def _awaited(one: Any) -> Any:
    return await one


_loops: list[Any] = []
_SINGLE_TURNS = 20
_WAIT_SECONDS = 0.002


def _turn(task: Any, turns: int) -> bool:
    """Let the event loop go on: by a turn at first, in the order of any loop, then for a while."""
    loop = _loop()
    if turns < _SINGLE_TURNS:
        loop.call_soon(loop.stop)
        loop.run_forever()
    else:
        import asyncio

        loop.run_until_complete(asyncio.wait({task}, timeout=_WAIT_SECONDS))
    return bool(task.done())


def _cancel(task: Any) -> None:
    task.cancel()
    _turn(task, 0)
    if task.done() and not task.cancelled():
        task.exception()  # which nobody wants any more


LOADED, ASK, ANSWER, BACK, BACK_ANSWER = b"l", b"q", b"a", b"c", b"d"
NAME, HANDLE, CALLBACK, METHOD = "name", "handle", "callback", "method"
CLASS, ERROR, RICH, GUEST, STDLIB = "class", "error", "rich", "guest", "stdlib"
RAISING = "raising"

_OPERATIONS: dict[str, Callable[..., Any]] = {
    **remote.UNARY,
    **remote.OPERATORS,
    **{f"r{name}": _reflected(do) for name, do in remote.OPERATORS.items()},
    **{
        f"i{name}": getattr(operator, f"__i{name}__")
        for name in remote.OPERATORS
        if name != "divmod"
    },
    **remote.ORDER,
    "get": getattr,
    "set": setattr,
    "delattr": delattr,
    "item": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "iter": iter,
    "next": next,
    "len": len,
    "hash": hash,
    "true": bool,
    "str": str,
    "repr": repr,
    "format": format,
    "round": round,
    "dir": dir,
    "eq": lambda one, other: bool(one == other),
    "contains": operator.contains,
    "type": type,
    "isinstance": isinstance,
    "name": lambda one: one,
    "enter": lambda one: type(one).__enter__(one),
    "exit": lambda one, error: bool(type(one).__exit__(one, *_of(error))),
    "await": lambda one: _loop().run_until_complete(_awaited(one)),
    "task": lambda one: _loop().create_task(_awaited(one)),
    "turn": lambda one, turns: _turn(one, turns),
    "cancel": lambda one: _cancel(one),
    "result": lambda one: one.result(),
    "aiter": lambda one: type(one).__aiter__(one),
    "anext": lambda one: _loop().run_until_complete(_awaited(type(one).__anext__(one))),
    "aenter": lambda one: _loop().run_until_complete(_awaited(type(one).__aenter__(one))),
    "aexit": lambda one, error: bool(
        _loop().run_until_complete(_awaited(type(one).__aexit__(one, *_of(error))))
    ),
    "library": lambda one, module, name, *given, **named: getattr(
        importlib.import_module(module), name
    )(*given, **named),
    "resume": lambda one, name, given: getattr(one, name)(given),
    "descriptor": lambda one, name, *given: getattr(type(one), name, _nothing)(one, *given),
    "seed": lambda one, *given: __import__("random").seed(*given),
}
_MUTABLE = (list, dict, set, bytearray, deque)
IMMUTABLE = (int, float, str, tuple, bytes, frozenset, complex)
"""Immutable data, which crosses together with a handle if its class is the program's."""
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)


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
        self._listens = False
        self._told: list[Any] = []
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
                self._listen()
                watch.enter_context(self._watched(asked, answer))
            if asked["op"] == "data":
                answer["v"] = codec.Raw(codec.data(asked["to"], self._pen))
            else:
                answer["v"] = self._do(asked["op"], asked["to"], given, named)
        except BaseException as error:
            answer["e"] = _told(error, _Raised(error))
        finally:
            watch.close()
        try:
            return self._dumps(answer, quiet)
        except BaseException as error:
            return self._dumps({"e": _told(error, None)}, True)

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
        return _OPERATIONS[op](target, *given, **named)

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
            kind = type(name, found, {"__module__": "tests", "__init__": _takes_anything})
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
                error = exception(of.__name__, text)
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

    @contextlib.contextmanager
    def _watched(self, asked: dict[str, Any], answer: dict[str, Any]) -> Iterator[None]:
        """Do something as the tests would see it: what is written, warned and logged comes to them.

        What they have put in place of functions of the library is used instead.
        """
        streams = {name: io.StringIO() for name in ("stdout", "stderr")}
        real = {name: getattr(sys, name) for name in streams}
        before = {}
        self._told.clear()
        for place, value in asked["patched"]:
            module, _, name = place.rpartition(".")
            before[place] = getattr(importlib.import_module(module), name)
            setattr(sys.modules[module], name, value)
        if asked["environ"] is not None:
            os.environ.clear()
            os.environ.update(asked["environ"])
        for name, stream in streams.items():
            setattr(sys, name, stream)
        try:
            yield
        finally:
            for name, stream in real.items():
                setattr(sys, name, stream)
            for place, value in before.items():
                module, _, name = place.rpartition(".")
                setattr(sys.modules[module], name, value)
            written = {name: one.getvalue() for name, one in streams.items() if one.getvalue()}
            if written:
                answer["written"] = written
            if self._told:
                answer["told"] = list(self._told)

    def _warned(self, message: Any, category: Any, *rest: Any, **more: Any) -> None:
        self._told.append(["warning", category, str(message)])

    def _listen(self) -> None:
        """Read standard input where the tests do, who may have put something in its place."""
        if self._listens:
            return
        self._listens = True
        sys.stdin = cast("TextIO", Input(lambda op: self._call_back(-1, op)))
        builtins.input = lambda prompt="", /: self._call_back(-1, "input", str(prompt))
        warnings.simplefilter("always")
        warnings.showwarning = self._warned
        if "logging" in sys.modules:
            self._take_logs()

    def _take_logs(self) -> None:
        import logging

        told = self._told

        class Taker(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                told.append(["log", record.name, record.levelno, record.getMessage()])

        logging.getLogger().addHandler(Taker())

    def _keep(self, value: Any) -> dict[str, Any] | None:
        exact = type(value)
        raised = value.error if exact is _Raised else value
        if id(raised) in self._guest_numbers:
            return {"t": GUEST, "v": self._guest_numbers[id(raised)]}
        if exact is _Raised:
            return self._raised(value.error)
        if issubclass(exact, Guest):
            return {"t": GUEST, "v": object.__getattribute__(value, "_ask").args[0]}
        derived = issubclass(exact, (*IMMUTABLE, *_MUTABLE))
        if derived and exact.__module__ != "solution" and not issubclass(exact, IMMUTABLE):
            return None
        number = self._number(value)
        if isinstance(value, type):
            return self._class(value, number)
        if isinstance(value, BaseException):
            return self._raised(value)
        handle = {"t": HANDLE, "v": [number, _kind(value)]}
        if derived and issubclass(exact, IMMUTABLE):
            base: Any = next(one for one in IMMUTABLE if issubclass(exact, one))
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


class Input(io.TextIOBase):
    """Standard input, read by the tests' process."""

    def __init__(self, ask: Callable[[str], Any]) -> None:
        self._ask_for = ask

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
        """The next line."""
        return str(self._ask_for("readline"))

    def read(self, size: int | None = -1, /) -> str:
        """All that is left."""
        return str(self._ask_for("read"))

    def readable(self) -> bool:
        """It is."""
        return True


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


def exception(kind: str, text: str) -> Exception:
    """The built-in exception of this name, or one that mentions it."""
    found = vars(builtins).get(kind)
    if isinstance(found, type) and issubclass(found, Exception):
        return found(text)
    return RuntimeError(f"{kind}: {text}")


def _takes_anything(error: BaseException, *given: Any, **named: Any) -> None:
    """What an exception of the tests has been made of came over with it."""


def _kind_of(error: BaseException) -> str:
    """Name of the built-in exception that an error is, or derives from."""
    for base in type.mro(type(error)):
        name = str(base.__name__)
        if vars(builtins).get(name) is base:
            return name
    return "Exception"


def _told(error: BaseException, raised: object) -> tuple[Any, ...]:
    return (_kind_of(error), _message(error), describe(error), raised)


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
