"""The tests' end of the wire to the program, and what stands there for the program's objects."""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable, Collection
from typing import Any
from weakref import ref

from rlvr_code.inside import (
    callbacks,
    codec,
    contexts,
    decimals,
    errors,
    frames,
    guests,
    kinds,
    serve,
    shared,
    subclasses,
    surroundings,
    things,
)
from rlvr_code.inside.border import DECIDES, CannotCrossError
from rlvr_code.inside.remote import Callable_, Remote, mark_made
from rlvr_code.inside.remote_kinds import KINDS
from rlvr_code.inside.rich import Rich, rich
from rlvr_code.inside.stand_ins import (
    DERIVED,
    Error,
    RemoteType,
    error_of,
    is_class,
    library_class,
    stand_in,
)


class GoneError(BaseException):
    """The program has ended, or broken the protocol."""


class Link:
    """The connection to the program.

    Args:
        wire: Its descriptor.
        classes: Names that the tests use as those of classes; of them alone objects are the tests'
            own making.
        given: Finds a class of the tests that the program has, too, by its name.
    """

    def __init__(
        self,
        wire: int,
        classes: Collection[str] = (),
        given: Callable[[str], Any] = lambda name: None,
    ) -> None:
        self._wire = wire
        self._classes = frozenset(classes)
        self._given = given
        self._made_by: set[int] = set()
        self._own: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._remotes: dict[tuple[str, int], Any] = {}
        self._errors: dict[Any, Any] = {}
        self._shared = shared.Shared(0)
        self._reads = False
        self._lock = threading.RLock()
        self.notes: list[str] = []
        self._handles: dict[int, ref[Remote]] = {}
        self._dropped: list[int] = []
        self._levels: dict[str, int] = {}
        self.stored: Callable[[], dict[str, Any]] = dict
        self.rebound: Callable[[str], None] = lambda name: None
        self.methods: list[Any] = []
        self.crossed = False
        self._decimals = decimals.Decimals()
        self.contexts = contexts.Numbers()
        self.mentioned: Collection[str] = frozenset()
        self.named: Collection[str] = frozenset()
        self.failed: BaseException | None = None

    def send(self, kind: bytes, body: bytes) -> None:
        """Send a frame."""
        frames.send(self._wire, kind, body)

    def note(self, what: str) -> None:
        """Keep what may be why a test fails."""
        if what not in self.notes:
            self.notes.append(what)

    def is_named(self, kind: Any) -> bool:
        """Whether a class is one of the program's that the tests name as such."""
        if not issubclass(type(kind), RemoteType):
            return False
        return type.__getattribute__(kind, "_number") in self._made_by

    def derived(self, kind: Any, bases: Any, number: int) -> None:
        """Keep what stands for a class that the program has made for the tests."""
        type.__setattr__(kind, "_number", number)
        self._remotes["class", number] = kind
        if any(map(self.is_named, bases)):
            self._made_by.add(number)

    def handle(self, number: int) -> Remote:
        """What stands for an object of the program with this number."""
        return self._remote(number, "call")

    def value(self, name: str) -> Any:
        """What a name of the program stands for now.

        Raises:
            NameError: If it has none such.
        """
        return self.ask("name", Callable_(self, serve.NAME, name, "call"), [])

    def name(self, name: str) -> Any:
        """What a name of the program stands for now; a name it does not have, too, until asked."""
        try:
            found = self.value(name)
        except NameError:
            return Callable_(self, serve.NAME, name, "call")
        if issubclass(type(found), RemoteType) and name in self._classes:
            self._made_by.add(type.__getattribute__(found, "_number"))
        return found

    def ask(
        self, op: str, target: Any, given: list[Any], named: dict[str, Any] | None = None
    ) -> Any:
        """Have the program do something; what came of it.

        Raises:
            GoneError: If there is no program any more.
        """
        with self._lock:
            quiet = self._reads
            asked = {
                "quiet": quiet,
                "op": op,
                "to": target,
                "args": tuple(given),
                "named": tuple((named or {}).items()),
                "tests": True,
                "patched": tuple(surroundings.patched().items()),
                "context": self.contexts.here(),
                "decimal": self._decimals.news(),
                "environ": surroundings.environ(),
            }
            if not quiet:  # what is being read may still name what would be dropped
                asked |= self._news()
            try:
                body = self._dumps(asked, quiet)
            except codec.UnfitError as error:
                raise CannotCrossError(str(error)) from None
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
            found = self._understand(op, body)
        if op == "make" and self.is_named(target):
            mark_made(found)
        return found

    def _news(self) -> dict[str, Any]:
        """What the program does not know yet: names that tests have set, and what they let go."""
        news: dict[str, Any] = {}
        if made := self.contexts.news():
            news["contexts"] = tuple(made)
        if stored := self.stored():
            news["globals"] = tuple(stored.items())
        levels = surroundings.levels()
        if levels != self._levels:
            news["levels"], self._levels = tuple(levels.items()), levels
        if self._dropped:
            news["dropped"] = tuple(self._dropped)
            self._dropped.clear()
        return news

    def _loads(self, body: bytes) -> Any:
        outer, self._reads = self._reads, True
        try:
            return codec.loads(body, self._find)
        finally:
            self._reads = outer

    def _dumps(self, fields: dict[str, Any], quiet: bool) -> bytes:
        """A message; a quiet one is sent while another is being read, which may tell of changes."""
        well = False
        try:
            pen = codec.Pen(self._keep, self._shared)
            sync = {} if quiet else {shared.SYNC: self._shared.changes(pen)}
            body = codec.dumps(codec.Fields(sync | fields), self._keep, self._shared)
            well = True
            return body
        finally:
            self._shared.sent(well)

    def _understand(self, op: str, body: bytes) -> Any:
        try:
            answer = self._loads(body)
            surroundings.write(answer)
            self._decimals.learn(answer.get("decimal"))
            for what, *about in answer.get("told", ()):
                surroundings.tell(what, about)
            for name in answer.get("rebound", ()):
                self.rebound(str(name))
            if "e" not in answer:
                return answer["v"]
            kind, text, _, raised = answer["e"]
        except (codec.UnfitError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise GoneError("the program broke the protocol") from error
        if not isinstance(raised, BaseException):
            raised = errors.exception(str(kind), str(text))
        stops = isinstance(raised, StopIteration | StopAsyncIteration)
        if stops and op not in _MAY_STOP and type(raised).__name__ not in self.named:
            # it would end the loop of a test that calls the program in ``map``, before any result
            raised = RuntimeError(f"the program raised {type(raised).__name__}: {text}")
        raise raised

    def _called_back(self, body: bytes) -> None:
        try:
            asked = self._loads(body)
            surroundings.write(asked)
            number, op, given, named = asked["ask"]
            named = dict(named)
            if number == -1:
                one: Any = None
            else:
                one = self._own[number]
        except (codec.UnfitError, LookupError, TypeError, ValueError) as error:
            raise GoneError("the program broke the protocol") from error
        try:
            found = (
                surroundings.read(op, given)
                if number == -1
                else guests.apply(one, op, given, named)
            )
            answer = self._dumps({"v": found}, bool(asked.get("quiet")))
        except (GoneError, CannotCrossError):
            raise
        except BaseException as error:
            if getattr(error, DECIDES, False) and any(one is own for own in self.methods):
                self.failed = error  # whatever the program's classes make of it
            answer = self._dumps({"e": error}, bool(asked.get("quiet")))
        self.send(serve.BACK_ANSWER, answer)

    def _keep(self, value: object) -> dict[str, Any] | None:
        kind = type(value)
        if issubclass(kind, Remote):
            put = object.__getattribute__
            return {"t": put(value, "_tag"), "v": put(value, "_value")}
        if issubclass(kind, RemoteType):
            return {"t": serve.HANDLE, "v": type.__getattribute__(value, "_number")}
        if issubclass(kind, Error | Rich):
            return self._keep(object.__getattribute__(value, "_remote"))
        if isinstance(value, BaseException):
            given = [codec.encode(one, codec.Pen(self._keep, self._shared)) for one in value.args]
            told = [self._number(value), self._raising(kind), given, str(value)[:1000]]
            return {"t": serve.ERROR, "v": told}
        if isinstance(value, type) and issubclass(value, BaseException):
            return self._raising(value)  # type: ignore[no-any-return]
        if isinstance(value, type) and things.of_library(value):
            return {"t": serve.STDLIB, "v": [value.__module__, value.__qualname__]}
        if isinstance(value, DERIVED) and kind.__module__ != "tests":
            return None
        pen = codec.Pen(self._keep, self._shared)
        parts = subclasses.wrapped(value)
        if parts is not None:
            return {"t": subclasses.WRAPPED, "v": [parts[0], codec.encode(tuple(parts[1]), pen)]}
        self.crossed = True
        number = self._number(value)
        if isinstance(value, type):
            return kinds.told(number, value, pen)
        if issubclass(kind, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
            return {"t": serve.CALLBACK, "v": callbacks.told(number, value, pen)}
        if self._given(kind.__name__) is kind:  # the program has this class, too
            return {"t": serve.GUEST, "v": [number, kinds.told_given(kind)]}
        own = -1 if things.of_library(kind) else self._number(kind)
        return {"t": serve.GUEST, "v": [number, kinds.told(own, kind, pen)]}

    def _number(self, value: object) -> int:
        """The same for the same object of the tests, and for the same method of it."""
        key: Any = id(value)
        if isinstance(value, types.MethodType):
            key = (id(value.__self__), id(value.__func__))
        elif isinstance(value, types.BuiltinMethodType) and value.__self__ is not None:
            key = (id(value.__self__), value.__name__)
        if key not in self._numbers:
            self._own.append(value)
            self._numbers[key] = len(self._own) - 1
        return self._numbers[key]

    def _raising(self, kind: Any) -> Any:
        """A class of exceptions: one of Python's, of the program's, or what it derives from."""
        if issubclass(type(kind), RemoteType):
            return {"t": serve.HANDLE, "v": type.__getattribute__(kind, "_number")}
        if kind.__module__ == "builtins":
            return {"t": "type", "v": kind.__name__}
        of = [self._raising(one) for one in kind.__bases__ if issubclass(one, BaseException)]
        return {"t": serve.RAISING, "v": [self._number(kind), kind.__name__, of]}

    def _find(self, tag: str, value: Any) -> Any:
        if tag == serve.HANDLE:
            return self._remote(*value)
        if tag in (shared.NEW, shared.SAME, shared.SYNC):
            return self._shared.read(tag, value, self._find)
        if tag == serve.CLASS:
            return self._class(*value)
        if tag == serve.STDLIB:
            return library_class(*map(str, value))
        if tag == serve.ERROR:
            return self._error(*value)
        if tag == serve.RICH:
            data, remote = (codec.decode(one, self._find) for one in value)
            return self._rich(data, remote)
        if tag == serve.GUEST and type(value) is int and value >= 0:
            return self._own[value]
        if tag == serve.NOTED and type(value[0]) is int and value[0] >= 0:
            error = self._own[value[0]]
            if isinstance(error, BaseException):
                error.__notes__ = list(codec.decode(value[1], self._find))
            return error
        raise codec.UnfitError(tag)

    def _remote(self, number: Any, kind: Any) -> Remote:
        if type(number) is not int or type(kind) is not str:
            raise codec.UnfitError("no object")
        self.crossed = self.crossed or kind != "function"
        known = self._handles.get(number)
        found = None if known is None else known()
        if found is None:
            found = KINDS.get(kind, Remote)(self, serve.HANDLE, number, kind)
            self._handles[number] = ref(found, lambda _: self._drop(number))
            if number in self._dropped:
                self._dropped.remove(number)
        return found

    def _drop(self, number: int) -> None:
        """The tests do not hold an object of the program any more."""
        known = self._handles.get(number)
        if known is not None and known() is None:
            del self._handles[number]
            self._dropped.append(number)

    def _rich(self, data: Any, remote: Any) -> Any:
        if type(data) not in codec.IMMUTABLE or not issubclass(type(remote), Remote):
            raise codec.UnfitError("no data of a class of the program")
        place = ("rich", object.__getattribute__(remote, "_value"))
        if place not in self._remotes:
            self._remotes[place] = rich(type(data), data, remote)
        return self._remotes[place]

    def _class(self, number: Any, name: Any, bases: Any) -> type:
        if type(number) is not int or type(name) is not str or not name.isidentifier():
            raise codec.UnfitError("no class")
        place = ("class", number)
        if isinstance(self._given(name), type):
            return self._given(name)  # type: ignore[no-any-return]
        if place not in self._remotes:
            found = [codec.decode(one, self._find) for one in bases]
            own = {"_link": self, "_number": number, "__module__": "solution"}
            self._remotes[place] = stand_in(name, [one for one in found if is_class(one)], own)
        return self._remotes[place]  # type: ignore[no-any-return]

    def _error(self, kind: Any, handle: Any, given: Any, about: Any) -> BaseException:
        of = codec.decode(kind, self._find)
        remote = self._remote(*handle)
        place = ("raised", object.__getattribute__(remote, "_value"))
        if place not in self._remotes:
            self._remotes[place] = error_of(of, codec.decode(given, self._find), remote)
            self._remotes["error", place[1]] = remote  # the exception itself stays the same one
        made: BaseException = self._remotes[place]
        if isinstance(made, Error):
            made.args = tuple(codec.decode(given, self._find))
        if "cause" in about:
            made.__cause__ = self._other(about["cause"])
            made.__context__ = self._other(about["context"])
        made.__suppress_context__ = about["suppress"] is True
        for name, coded in about["has"]:
            value = codec.decode(
                coded, self._find
            )  # in any case: it may have come for the first time
            own = type(name) is str and not name.startswith("_") and name != DECIDES
            if isinstance(made, Error):  # what its class does not have of Python is the program's
                own = own and any(hasattr(one, name) for one in _of_python(type(made)))
            if own or name == "__notes__":
                with contextlib.suppress(AttributeError, TypeError):
                    BaseException.__setattr__(made, name, value)
        return made

    def _other(self, error: Any) -> BaseException | None:
        """The cause or context of an exception."""
        found = None if error is None else codec.decode(error, self._find)
        return found if isinstance(found, BaseException) else None


_MAY_STOP = ("next", "resume", "result")


def _of_python(kind: type) -> list[type]:
    """The bases of a class that are Python's own, without asking the program."""
    mro = type.__getattribute__(kind, "__mro__")
    return [one for one in mro if type(one) is type and one is not object]
