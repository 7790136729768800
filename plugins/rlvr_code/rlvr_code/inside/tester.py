"""Runs test code against a program that lives in another process, in another sandbox.

The names that are said to be the program's stand for those: calling one sends plain arguments over
and gets plain data back, so the comparison is made here, of data of built-in types, where the
program has no way to be. No other name is ever asked of it. What is no plain data is held as a
handle, which can be passed back, called, iterated and have attributes, but compares with nothing.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import inspect
import json
import os
import random
import sys
import threading
import types
from collections import deque
from collections.abc import Collection
from typing import Any, NoReturn

from rlvr_code.inside import codec, frames, guests, serve, suite
from rlvr_code.inside.remote import (
    LIVE,
    Callable_,
    CannotCrossError,
    Error,
    Remote,
    RemoteErrorType,
    RemoteType,
    Rich,
    is_remote,
    live,
    rich,
)

BEGIN, RESULT, FINISHED = b"b", b"r", b"f"


class GoneError(BaseException):
    """The program has ended, or broken the protocol."""


class Link:
    """The connection to the program.

    Args:
        wire: Its descriptor.
        classes: Names that the tests use as those of classes; of them alone objects are the tests'
            own making.
    """

    def __init__(self, wire: int, classes: Collection[str] = ()) -> None:
        self._wire = wire
        self._classes = frozenset(classes)
        self._made_by: set[int] = set()
        self._own: list[Any] = []
        self._remotes: dict[tuple[str, int], Any] = {}
        self._errors: dict[Any, Any] = {}
        self._lock = threading.RLock()
        self.notes: list[str] = []

    def send(self, kind: bytes, body: bytes) -> None:
        """Send a frame."""
        frames.send(self._wire, kind, body)

    def note(self, what: str) -> None:
        """Keep what may be why a test fails."""
        if what not in self.notes:
            self.notes.append(what)

    def name(self, name: str) -> Any:
        """What a name of the program stands for now; a name it does not have, too, until asked."""
        stands = Callable_(self, serve.NAME, name, "call")
        try:
            found = self.ask("name", stands, [])
        except NameError:
            return stands
        if type(found) is Callable_:
            return stands  # looked up at each call: the program may change what it means
        if isinstance(type(found), type) and issubclass(type(found), RemoteType):
            if name in self._classes:
                self._made_by.add(type.__getattribute__(found, "_number"))
        return found

    def ask(
        self, op: str, target: Any, given: list[Any], named: dict[str, Any] | None = None
    ) -> Any:
        """Have the program do something; what came of it.

        Raises:
            GoneError: If there is no program any more.
        """
        asked = {"op": op, "to": target, "args": given, "named": named or {}, "tests": True}
        try:
            body = codec.dumps(asked, self._keep)
        except codec.UnfitError as error:
            raise CannotCrossError(str(error)) from None
        with self._lock:
            self.send(serve.ASK, body)
            while True:
                try:
                    kind, body = frames.receive(self._wire)
                except frames.ClosedError as error:
                    raise GoneError("the program has ended") from error
                if kind == serve.ANSWER:
                    break
                if kind != serve.BACK:
                    raise GoneError("the program broke the protocol")
                self._called_back(body)
        found = self._understand(op, body, given, named or {})
        if op == "make" and type(found) in (Remote, Callable_):
            if type.__getattribute__(target, "_number") in self._made_by:
                object.__setattr__(found, "_made", True)
        return found

    def _understand(self, op: str, body: bytes, given: list[Any], named: dict[str, Any]) -> Any:
        def find(tag: str, value: Any) -> Any:
            return given[value] if tag == serve.GIVEN else self._find(tag, value)

        try:
            answer = codec.loads(body, find)
            if "out" in answer:
                sys.stdout.write(str(answer["out"]))
            if "e" in answer:
                kind, text, _, raised = answer["e"]
            else:
                for place, now in answer["changed"].items() if "changed" in answer else ():
                    _become(named[place] if type(place) is str else given[place], now)
                return answer["v"]
        except (codec.UnfitError, LookupError, TypeError, ValueError) as error:
            raise GoneError("the program broke the protocol") from error
        if not isinstance(raised, BaseException):
            raised = serve.exception(str(kind), str(text))
        if isinstance(raised, StopIteration | StopAsyncIteration) and op not in ("next", "anext"):
            # it would end the loop of a test that calls the program in ``map``, before any result
            raised = RuntimeError(f"the program raised {type(raised).__name__}: {text}")
        raise raised

    def _called_back(self, body: bytes) -> None:
        try:
            number, op, given, named = codec.loads(body, self._find)
            if number == -1:
                one: Any = None
            else:
                one = self._own[number]
        except (codec.UnfitError, LookupError, TypeError, ValueError) as error:
            raise GoneError("the program broke the protocol") from error
        try:
            found = _input(op, given) if number == -1 else guests.apply(one, op, given, named)
            answer = codec.dumps({"v": found}, self._keep)
        except Exception as error:
            own = error if is_remote(error) else None
            answer = codec.dumps({"e": [type(error).__name__, str(error), own]}, self._keep)
        self.send(serve.BACK_ANSWER, answer)

    def _keep(self, value: object) -> dict[str, Any] | None:
        kind = type(value)
        if issubclass(kind, Remote):
            put = object.__getattribute__
            return {"t": put(value, "_tag"), "v": put(value, "_value")}
        if issubclass(kind, RemoteType):
            return {"t": serve.HANDLE, "v": type.__getattribute__(value, "_number")}
        if issubclass(kind, LIVE):
            return self._keep(value.remote)  # type: ignore[attr-defined]
        if issubclass(kind, Error | Rich):
            return self._keep(object.__getattribute__(value, "_remote"))
        if isinstance(value, BaseException):
            return {"t": serve.ERROR, "v": [kind.__name__, str(value)]}
        if isinstance(value, _DERIVED) and kind.__module__ != "tests":
            return None
        self._own.append(value)
        number = len(self._own) - 1
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
            return {"t": serve.CALLBACK, "v": [number, value.__name__, value.__doc__]}
        return {"t": serve.GUEST, "v": number}

    def _find(self, tag: str, value: Any) -> Any:
        if tag == serve.HANDLE:
            return self._remote(*value)
        if tag == serve.CLASS:
            return self._class(*value)
        if tag == serve.STDLIB:
            return _library_error(*map(str, value))
        if tag == serve.ERROR:
            return self._error(*value)
        if tag == serve.RICH:
            data, remote = (codec.decode(one, self._find) for one in value)
            return self._rich(data, remote)
        if tag == serve.LIVE:
            data, remote = (codec.decode(one, self._find) for one in value)
            return live(data, remote) if type(data) in (list, dict, set) else data
        if tag == serve.GUEST and type(value) is int and value >= 0:
            return self._own[value]
        raise codec.UnfitError(tag)

    def _remote(self, number: Any, kind: Any) -> Remote:
        if type(number) is not int or type(kind) is not str:
            raise codec.UnfitError("no object")
        place = (kind, number)
        if place not in self._remotes:
            of = Callable_ if kind == "call" else Remote
            self._remotes[place] = of(self, serve.HANDLE, number, kind)
        return self._remotes[place]  # type: ignore[no-any-return]

    def _rich(self, data: Any, remote: Any) -> Any:
        if type(data) not in serve.IMMUTABLE or type(remote) not in (Remote, Callable_):
            raise codec.UnfitError("no data of a class of the program")
        place = ("rich", object.__getattribute__(remote, "_value"))
        if place not in self._remotes:
            self._remotes[place] = rich(type(data), data, remote)
        return self._remotes[place]

    def _class(self, number: Any, name: Any, bases: Any) -> type:
        if type(number) is not int or type(name) is not str or not name.isidentifier():
            raise codec.UnfitError("no class")
        place = ("class", number)
        if place not in self._remotes:
            found = [codec.decode(one, self._find) for one in bases]
            own = {"_link": self, "_number": number, "__module__": "solution"}
            self._remotes[place] = _stand_in(name, [one for one in found if _is_class(one)], own)
        return self._remotes[place]  # type: ignore[no-any-return]

    def _error(self, kind: Any, handle: Any, given: Any) -> BaseException:
        of = codec.decode(kind, self._find)
        remote = self._remote(*handle)
        place = ("raised", object.__getattribute__(remote, "_value"))
        if place in self._remotes:
            return self._remotes[place]  # type: ignore[no-any-return]
        if _is_class(of) and issubclass(of, Error):
            made: BaseException = of.__new__(of)
            made.__dict__["_remote"] = remote
        else:
            made = _error_of(of, codec.decode(given, self._find))
        self._remotes[place] = made
        return made


_DERIVED = (*serve.IMMUTABLE, list, dict, set, bytearray, deque)


def _is_class(value: object) -> bool:
    return isinstance(value, type)


def _stand_in(name: str, bases: list[Any], own: dict[str, Any]) -> type:
    """A class for a class of the program, with the exceptions that it derives from."""
    errors = [one for one in bases if issubclass(one, Exception)]
    errors = [one for one in errors if not issubclass(one, StopIteration | StopAsyncIteration)]
    others = [one for one in bases if type(one) is RemoteType and one not in errors]
    if errors or any(issubclass(one, BaseException) for one in bases):
        first = [] if any(issubclass(one, Error) for one in errors) else [Error]
        with contextlib.suppress(TypeError):  # of bases that do not go together
            return RemoteErrorType(name, (*first, *errors), own)
        return RemoteErrorType(name, (Error,), own)
    with contextlib.suppress(TypeError):
        return RemoteType(name, tuple(others), own)
    return RemoteType(name, (), own)


def _library_error(module: str, name: str) -> type:
    """An exception of Python's library that is imported here; the nearest that there is."""
    found = getattr(sys.modules.get(module), name, None)
    fits = isinstance(found, type) and issubclass(found, Exception | SystemExit | KeyboardInterrupt)
    closed = module.partition(".")[0] in ("unittest", "rlvr_code", "tests", "solution", "pytest")
    if not fits or closed or module.partition(".")[0] not in sys.stdlib_module_names:
        return Exception
    return found  # type: ignore[return-value]


def _error_of(kind: Any, given: Any) -> BaseException:
    if not (_is_class(kind) and issubclass(kind, BaseException)) or not isinstance(given, list):
        raise codec.UnfitError("no exception")
    try:
        return kind(*given)  # type: ignore[no-any-return]
    except Exception:
        return serve.exception(kind.__name__, str(given[0]) if given else "")


def _input(op: str, given: list[Any]) -> str:
    """What the tests have put in place of standard input; patched functions too."""
    if op == "input":
        return str(builtins.input(*given))
    if op not in ("read", "readline"):
        raise AttributeError(op)
    return str(getattr(sys.stdin, op)())


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
    link = Link(wire, job["classes"])
    nonce = job["nonce"]
    try:
        for name in ("asyncio", "unittest"):
            if any(name in text for text in (job["setup"], job["late"], *job["tests"])):
                importlib.import_module(name)
        _furnish(link)
        names = Names(link, job["program"])
        dict.update(names, {"__name__": "tests", "__builtins__": builtins} | _modules(job))
        exec(compile(job["setup"], "setup", "exec"), names)
        names.open()
        if job["late"]:
            exec(compile(_guarded(job["late"]), "setup", "exec"), names)
        for number, test in enumerate(job["tests"]):
            link.send(BEGIN, json.dumps([nonce, number]).encode())
            why = _why_not(test, names, link)
            link.send(RESULT, json.dumps([nonce, number, why]).encode())
        link.send(FINISHED, json.dumps([nonce, ""]).encode())
    except BaseException as error:
        link.send(FINISHED, json.dumps([nonce, serve.describe(error)]).encode())
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


def _furnish(link: Link) -> None:
    """Let the library's functions that look into objects know those of the program."""
    try:
        importlib.import_module("pytest")
    except ImportError:
        sys.modules["pytest"] = suite.make_pytest()
    seed = random.seed

    def seed_both(*given: Any, **named: Any) -> None:
        seed(*given, **named)
        link.ask("seed", None, [*given, *named.values()])

    random.seed = seed_both
    if "asyncio" in sys.modules:
        run = sys.modules["asyncio"].run

        def run_any(main: Any, **named: Any) -> Any:
            return run(_waiting(main) if is_remote(main) else main, **named)

        sys.modules["asyncio"].run = run_any  # type: ignore[attr-defined]
    signature = inspect.signature

    def signature_of_any(one: Any, **named: Any) -> Any:
        return link.ask("signature", one, []) if is_remote(one) else signature(one, **named)

    inspect.signature = signature_of_any  # type: ignore[assignment]


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
        return serve.describe(error)[:300]
    return ""


def _guarded(test: str) -> ast.Module:
    """Test code in which an exception out of an assertion is marked: no ``with`` may swallow it."""
    return ast.fix_missing_locations(_Guard().visit(ast.parse(test)))


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
