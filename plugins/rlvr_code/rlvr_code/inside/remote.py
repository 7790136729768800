"""Represents the program in the process of the tests: its functions, classes and exceptions.

Arguments go over as plain data and results come back as plain data. Of a class that the tests name
as such, an object is made there, and its methods are called and its attributes read by plain data,
too. What needs an object itself, such as a comparison, cannot be done here.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterator
from typing import Any, NoReturn

from rlvr_code.inside import codec, errors, frames, serve
from rlvr_code.inside.serve import HANDLE, NAME


class CannotCrossError(BaseException):
    """A test asks for something that is no plain data; it has failed.

    No exception of the kind that test code catches.

    Attributes:
        of_tests: Whether the tests bring it about, whatever the program does.
    """

    def __init__(self, what: str, of_tests: bool) -> None:
        super().__init__(what)
        self.of_tests = of_tests


class Link:
    """The tests' side of the wire to the program.

    Args:
        wire: Its descriptor.
        classes: Names that the tests use as classes.
        text: All test code.
    """

    def __init__(self, wire: int, classes: Collection[str], text: str) -> None:
        self._wire, self._classes, self._text = wire, classes, text
        self._errors = errors.Errors()
        self._lock = threading.Lock()
        self._failed: CannotCrossError | None = None

    def names(self, wanted: Collection[str]) -> dict[str, Any]:
        """Return stand-ins for those of the wanted names that the program has."""
        stand_ins: dict[str, Any] = {}
        for name, (kind, about) in self.ask("names", None, sorted(wanted)).items():
            named = name in self._classes
            if kind == "error" and named:
                stand_ins[name] = self._errors.kind(name, about)
            elif kind == "class" and named:
                stand_ins[name] = Class(self, name)
            elif kind == "data":
                stand_ins[name] = about
            else:
                stand_ins[name] = Function(self, name)
        return stand_ins

    def ask(
        self,
        op: str,
        to: Any,
        given: Any = (),
        named: dict[str, Any] | None = None,
        *,
        keep: bool = False,
    ) -> Any:
        """Have the program do something and return the outcome.

        Args:
            op: What to do.
            to: What it is done to.
            given: Arguments by position.
            named: Arguments by name.
            keep: Whether the result may be an object that stays there.

        Raises:
            BaseException: What the program has raised.
        """
        given = list(given)
        request = {"op": op, "to": to, "args": given, "named": named or {}}
        with self._lock:
            try:
                text = codec.dumps(request | {"keep": keep, "back": True}, _handle)
            except codec.UnfitError as error:
                self.refuse(f"an argument of the tests: {error}", of_tests=True)
            frames.send(self._wire, serve.ASK, text)
            _, body = frames.receive(self._wire)
        find = self._find if keep else _nothing
        try:
            answer = codec.loads(body, find)
            if serve.UNFIT in answer:
                raise codec.UnfitError(answer[serve.UNFIT])
            for at, value in answer.get(serve.CHANGED, ()):
                _become(given[at], value)
            raised = self._errors.made(answer["e"]) if "e" in answer else None
            value = None if raised else answer["v"]
        except (codec.UnfitError, LookupError, TypeError, ValueError, AttributeError) as error:
            self.refuse(f"what the program gives: {error}", of_tests=False)
        if raised is not None:
            raise self._expected(raised)
        return value

    def refuse(self, what: str, *, of_tests: bool) -> NoReturn:
        """Let the current test fail.

        Raises:
            CannotCrossError: Always.
        """
        error = CannotCrossError(what, of_tests)
        self._failed = self._failed or error
        raise error

    def taken(self) -> CannotCrossError | None:
        """Why the current test has failed, whatever else became of it; forgotten afterwards."""
        error, self._failed = self._failed, None
        return error

    def _expected(self, error: BaseException) -> BaseException:
        """An exception; another in the place of one that ends more than a test, unless named."""
        name = type(error).__name__
        ends = isinstance(error, StopIteration | StopAsyncIteration)
        if (ends or not isinstance(error, Exception)) and not re.search(
            rf"\b{re.escape(name)}\b", self._text
        ):
            return RuntimeError(f"{name}: {error}")
        return error

    def _find(self, tag: str, value: Any) -> Any:
        if tag != HANDLE or type(value) is not int:
            raise codec.UnfitError("no value")
        return Instance(self, value, made=False)


def _nothing(tag: str, value: Any) -> Any:
    raise codec.UnfitError("no plain data")


def _handle(value: Any) -> dict[str, Any]:
    """The reference to an object of the program in a request."""
    if isinstance(value, Instance):
        return {"t": HANDLE, "v": object.__getattribute__(value, "_number")}
    if isinstance(value, Function | Class):
        return {"t": NAME, "v": object.__getattribute__(value, "_name")}
    return codec.refuse(value)


def _become(mine: Any, changed: Any) -> None:
    """Make the same changes to an argument as the program has."""
    if type(mine) is not type(changed):
        raise TypeError("an argument has become something else")
    if isinstance(mine, list | bytearray):
        mine[:] = changed
    else:
        mine.clear()
        (mine.update if isinstance(mine, dict | set) else mine.extend)(changed)


class Function:
    """A function of the program: data in, data out."""

    def __init__(self, link: Link, name: str) -> None:
        self._link, self._name = link, name
        self.__name__ = self.__qualname__ = name

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call it there."""
        return self._link.ask("call", self, given, named)


class Class:
    """A class of the program."""

    def __init__(self, link: Link, name: str) -> None:
        self._link, self._name = link, name
        self.__name__ = self.__qualname__ = name

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Make an object there."""
        number = self._link.ask("make", self, given, named)
        return Instance(self._link, int(number), made=True)

    def __getattr__(self, name: str) -> Any:
        return _attribute(self._link, self, name)

    def __instancecheck__(self, instance: object) -> bool:
        self._link.refuse("isinstance with a class of the program", of_tests=True)

    def __subclasscheck__(self, subclass: type) -> bool:
        self._link.refuse("issubclass with a class of the program", of_tests=True)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> Any:
        self._link.refuse("a class derived from one of the program", of_tests=True)


class Instance:
    """An object of the program, by its number there.

    One that the tests have made of a class answers what a container does; one that a method or an
    attribute gave has only attributes and methods, since it is unknown whether it should be data.
    """

    def __init__(self, link: Link, number: int, *, made: bool) -> None:
        for name, value in (("_link", link), ("_number", number), ("_made", made)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        return _attribute(self._link, self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._link.ask("setattr", self, [name, value])

    def __delattr__(self, name: str) -> None:
        self._link.ask("delattr", self, [name])

    def __len__(self) -> int:
        return _sized(self._answer("len"))

    def __bool__(self) -> bool:
        return self._answer("bool") is True

    def __str__(self) -> str:
        return _words(self._answer("str"))

    def __repr__(self) -> str:
        return _words(self._answer("repr"))

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._answer("items")))

    def __getitem__(self, key: Any) -> Any:
        return self._answer("getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._answer("setitem", key, value)

    def __delitem__(self, key: Any) -> None:
        self._answer("delitem", key)

    def _answer(self, op: str, *given: Any) -> Any:
        if not self._made:
            self._link.refuse("an object of the program where data is wanted", of_tests=False)
        return self._link.ask(op, self, given, keep=True)


def _sized(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("no length")
    return value


def _words(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("no text")
    return value


def _attribute(link: Link, of: Any, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    is_method, value = link.ask("attribute", of, [name], keep=True)
    if not is_method:
        return value
    return lambda *given, **named: link.ask("method", of, [name, *given], named, keep=True)


def _refused(name: str) -> Any:
    def operator(self: Instance, *given: Any) -> NoReturn:
        link: Link = self._link
        link.refuse(f"{name} of an object of the program", of_tests=self._made)

    return operator


_OPERATORS = """
eq ne lt le gt ge hash contains add sub mul truediv floordiv mod pow matmul and or xor lshift
rshift divmod radd rsub rmul rtruediv rfloordiv rmod rpow rand ror rxor neg pos abs invert int
float complex index round trunc floor ceil enter exit aenter aexit aiter anext await next reversed
call format iadd isub imul copy deepcopy reduce_ex fspath bytes
"""
for _name in _OPERATORS.split():
    setattr(Instance, f"__{_name}__", _refused(f"__{_name}__"))
