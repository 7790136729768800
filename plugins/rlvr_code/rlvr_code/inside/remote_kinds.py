"""What stands for objects of the program that Python treats in a way of their own."""

from __future__ import annotations

import collections.abc
import datetime
import types
from typing import Any

from rlvr_code.inside.remote import Callable_, Remote, Task


class Function(Callable_):
    """Stands for a function, which is a method in a class of the tests."""

    __slots__ = ()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)


class Awaitable_(Remote):  # noqa: N801
    """Stands for what can be awaited."""

    __slots__ = ()

    def __await__(self) -> Any:
        return Task(self._link, self._link.ask("task", self, [])).__await__()


class Resumable(Remote):
    """Stands for a generator, which a test resumes to see it end."""

    __slots__ = ()

    def send(self, value: Any) -> Any:
        """Resume it with a value."""
        return self._link.ask("resume", self, ["send", value])

    def throw(self, *error: Any) -> Any:
        """Resume it with an exception, or with class, exception and traceback."""
        return self._link.ask("resume", self, ["throw", *error[:2]])


class Getter(Remote):
    """Stands for a descriptor, which has effect in a class of the tests, too."""

    __slots__ = ()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self._link.ask("descriptor", self, ["__get__", instance, owner])

    def __set_name__(self, owner: Any, name: str) -> None:
        self._link.ask("descriptor", self, ["__set_name__", owner, name])


class CallableGetter(Getter, Callable_):
    """Stands for one that can be called, as a decorator that is a class makes."""

    __slots__ = ()


class Descriptor(Getter):
    """Stands for a descriptor that is asked before an object's own attributes."""

    __slots__ = ()

    def __set__(self, instance: Any, value: Any) -> None:
        self._link.ask("descriptor", self, ["__set__", instance, value])

    def __delete__(self, instance: Any) -> None:
        self._link.ask("descriptor", self, ["__delete__", instance])


class Zone(Remote, datetime.tzinfo):
    """Stands for a time zone of a class of the program, which the library asks for its offset."""

    __slots__ = ()

    def utcoffset(self, when: Any) -> Any:
        """Return the offset from UTC."""
        return self._link.ask("get", self, ["utcoffset"])(when)

    def dst(self, when: Any) -> Any:
        """Return the daylight saving."""
        return self._link.ask("get", self, ["dst"])(when)

    def tzname(self, when: Any) -> Any:
        """Return the name."""
        return self._link.ask("get", self, ["tzname"])(when)

    def fromutc(self, when: Any) -> Any:
        """Return the local time of a time in UTC."""
        return self._link.ask("get", self, ["fromutc"])(when)


class Alias(Callable_):
    """Stands for a class with its type arguments, from which classes of the tests may derive."""

    __slots__ = ()

    def __mro_entries__(self, bases: Any) -> tuple[Any, ...]:
        return tuple(self._link.ask("library", self, ["types", "resolve_bases", (self,)]))


class Mapping_(Remote):  # noqa: N801
    """Stands for a mapping, which patterns match as one."""

    __slots__ = ()


class Sequence_(Remote):  # noqa: N801
    """Stands for a sequence, which patterns match as one."""

    __slots__ = ()


collections.abc.Mapping.register(Mapping_)
collections.abc.Sequence.register(Sequence_)
KINDS: dict[str, type[Remote]] = {
    "mapping": Mapping_,
    "sequence": Sequence_,
    "call": Callable_,
    "function": Function,
    "await": Awaitable_,
    "generator": Resumable,
    "alias": Alias,
    "zone": Zone,
    "get": Getter,
    "callget": CallableGetter,
    "descriptor": Descriptor,
}
for _kind in KINDS.values():  # what tests see of them is the program's
    _kind.__doc__ = Remote.__dict__["__doc__"]  # type: ignore[method-assign]
