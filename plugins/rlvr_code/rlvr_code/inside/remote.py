"""What stands in the tests' process for names, objects and classes of the program.

Each operation on one is done in the program's process, and plain data comes back. What decides
stays here: plain data is compared with plain data only, and by this process. So of an object of the
program these are refused or done here, unless the tests themselves made it of a class that they
name:

- equality with plain data, which is false: a program could give an object that equals everything;
- arithmetic and order with plain data: that would tell the program what is expected;
- a search in it for plain data, which is made here, one element after the other.

Objects of the program are compared with each other by the program, as tests ask for. One that
agrees with everything is taken for equal to nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from rlvr_code.inside.operators import OPERATORS, ORDER, UNARY


class CannotCrossError(BaseException):
    """A test asks for something that cannot be had across the border; it has failed.

    No exception of the kind that test code catches.
    """


class Asks(Protocol):
    """The connection to the program."""

    def ask(
        self, op: str, target: Any, given: list[Any], named: dict[str, Any] | None = ...
    ) -> Any:
        """Have the program do something; what came of it."""

    def note(self, what: str) -> None:
        """Keep what may be why a test fails."""


READABLE = [
    "__name__",
    "__qualname__",
    "__doc__",
    "__module__",
    "__wrapped__",
    "__annotations__",
    "__dict__",
    "__version__",
    "__author__",
    "__slots__",
    "__match_args__",
    "__defaults__",
    "__kwdefaults__",
    "__dataclass_fields__",
    "__dataclass_params__",
    "__members__",
    "__isabstractmethod__",
    "__abstractmethods__",
    "__all__",
    "__cause__",
    "__context__",
    "__notes__",
    "__closure__",
    "__code__",
    "__func__",
    "__self__",
    "__init__",
    "__call__",
    "__len__",
    "__getitem__",
    "__iter__",
    "__next__",
    "__eq__",
    "__add__",
    "__contains__",
    "__mro__",
    "__bases__",
]
"""Attributes with two underscores that are the program's to answer."""


class Stands:
    """Whatever stands for an object of the program: its class derives from this one."""

    __slots__ = ()


class Data:
    """Plain data that stands for an object of the program, too."""


class Remote(Stands):
    """Stands for a name or an object of the program."""

    __slots__ = ("_kind", "_link", "_made", "_tag", "_value")

    def __init__(
        self, link: Asks, tag: str, value: Any, kind: str = "", *, made: bool = False
    ) -> None:
        put = object.__setattr__
        put(self, "_link", link)
        put(self, "_tag", tag)
        put(self, "_value", value)
        put(self, "_kind", kind)
        put(self, "_made", made)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in READABLE:
            raise AttributeError(name)
        return self._link.ask("get", self, [name])

    @property
    def __doc__(self) -> Any:  # type: ignore[override]
        return self._link.ask("get", self, ["__doc__"])

    @property
    def __module__(self) -> Any:  # type: ignore[override]
        return self._link.ask("get", self, ["__module__"])

    def __setattr__(self, name: str, value: Any) -> None:
        self._link.ask("set", self, [name, value])

    def __delattr__(self, name: str) -> None:
        self._link.ask("delattr", self, [name])

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._link.ask("type", self, []) if self._kind != "class" else Remote

    def __iter__(self) -> Iterator[Any]:
        return self._link.ask("iter", self, [])  # type: ignore[no-any-return]

    def __next__(self) -> Any:
        return self._link.ask("next", self, [])

    def __len__(self) -> int:
        return whole(self._link.ask("len", self, []), "length")

    def __hash__(self) -> int:
        return whole(self._link.ask("hash", self, []), "hash")

    def __bool__(self) -> bool:
        # a program that lies here could as well have returned True: ``assert f(x)`` asks no more
        return truth(self._link.ask("true", self, []))

    def __str__(self) -> str:
        return str(self._link.ask("str", self, []))

    def __repr__(self) -> str:
        return str(self._link.ask("repr", self, []))

    def __format__(self, spec: str) -> str:
        return str(self._link.ask("format", self, [spec]))

    def __dir__(self) -> Any:
        return self._link.ask("dir", self, [])

    def __eq__(self, other: object) -> bool:
        return _equal(self, other)

    def __ne__(self, other: object) -> bool:
        return not _equal(self, other)

    def __contains__(self, value: Any) -> bool:
        if is_remote(value):
            return truth(self._link.ask("contains", self, [value]))
        if not self._made:
            return any(one is value or one == value for one in self)
        return _agrees(self, "contains", value)

    def __enter__(self) -> Any:
        return self._link.ask("enter", self, [])

    def __exit__(self, kind: Any, error: BaseException | None, trace: object) -> bool:
        return _left(self, "exit", error)

    def __aiter__(self) -> Any:
        return self._link.ask("aiter", self, [])

    async def __anext__(self) -> Any:
        return self._link.ask("anext", self, [])

    async def __aenter__(self) -> Any:
        return self._link.ask("aenter", self, [])

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: object) -> bool:
        return _left(self, "aexit", error)


class Callable_(Remote):  # noqa: N801
    """Stands for what can be called."""

    __slots__ = ()

    def __call__(self, /, *given: Any, **named: Any) -> Any:
        """Call it in the program's process."""
        return self._link.ask("call", self, list(given), named)


class Awaitable_(Remote):  # noqa: N801
    """Stands for what can be awaited."""

    __slots__ = ()

    def __await__(self) -> Any:
        task = self._link.ask("task", self, [])
        turns = 0
        try:
            while not truth(self._link.ask("turn", task, [turns])):
                turns += 1
                yield  # for others that the tests wait for, and that it may wait for itself
        except BaseException:
            self._link.ask("cancel", task, [])
            raise
        return self._link.ask("result", task, [])


class Resumable(Remote):
    """Stands for a generator, which a test resumes to see it end."""

    __slots__ = ()

    def send(self, value: Any) -> Any:
        """Resume it with a value."""
        return self._link.ask("resume", self, ["send", value])

    def throw(self, error: Any) -> Any:
        """Resume it with an exception."""
        return self._link.ask("resume", self, ["throw", error])


class Descriptor(Remote):
    """Stands for a descriptor, which has effect in a class of the tests, too."""

    __slots__ = ()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self._link.ask("descriptor", self, ["__get__", instance, owner])

    def __set__(self, instance: Any, value: Any) -> None:
        self._link.ask("descriptor", self, ["__set__", instance, value])

    def __set_name__(self, owner: Any, name: str) -> None:
        self._link.ask("descriptor", self, ["__set_name__", owner, name])


for _kind in (
    Callable_,
    Awaitable_,
    Resumable,
    Descriptor,
):  # what tests see of them is the program's
    _kind.__doc__ = Remote.__dict__["__doc__"]  # type: ignore[method-assign]
KINDS: dict[str, type[Remote]] = {
    "call": Callable_,
    "await": Awaitable_,
    "generator": Resumable,
    "descriptor": Descriptor,
}


def is_remote(value: object) -> bool:
    """Whether something stands for an object of the program; asks the program nothing."""
    return issubclass(type(value), Stands)


def _equal(one: Remote, other: object) -> bool:
    if is_remote(other):
        return _agrees(one, "eq", other)
    if type(other) in _SINGLE:
        return False
    if one._kind == "data":  # a list or the like, with methods of its own
        return bool(one._link.ask("data", one, []) == other)
    if one._made:
        return _agrees(one, "eq", other)
    one._link.note("an object of the program was compared with plain data")
    return False


_SINGLE = (type(None), type(NotImplemented), type(...))


_MANY = 8
"""Numbers that an object may not all be equal to."""


def _agrees(one: Remote, op: str, other: Any) -> bool:
    """Whether an object says yes, and does not say yes to everything."""
    if not truth(one._link.ask(op, one, [other])):
        return False

    def says(strange: Any) -> bool:
        try:
            return one._link.ask(op, one, [strange]) is not False
        except Exception:
            return False

    # numbers may be equal that are not the same, as those of one remainder are, but not all are
    numbers = (random.getrandbits(90) for _ in range(_MANY))
    if says(lambda: None) or says(f"{random.getrandbits(90)}") or all(map(says, numbers)):
        one._link.note("an object of the program equals, or contains, everything")
        return False
    return True


def _left(one: Remote, op: str, error: BaseException | None) -> bool:
    """The end of a ``with``: the program may not swallow what makes a test fail."""
    try:
        swallowed = one._link.ask(op, one, [error if isinstance(error, Exception) else None])
    except Exception:
        if error is None or not getattr(error, "decides", isinstance(error, AssertionError)):
            raise
        return False
    if error is None or not isinstance(error, Exception) or isinstance(error, AssertionError):
        return False
    return not getattr(error, "decides", False) and bool(swallowed)


def crosses(value: object) -> bool:
    """Whether the program can be asked about something: not about the tests' classes."""
    return not isinstance(value, type) or is_remote(value)


def whole(value: Any, what: str) -> int:
    """What has to be a whole number."""
    if type(value) is not int:
        raise TypeError(f"no {what}")
    return value


def truth(value: Any) -> bool:
    """What has to be true or false."""
    if type(value) is not bool:
        raise TypeError("neither true nor false")
    return value


def _unary(op: str) -> Callable[[Any], Any]:
    def method(self: Remote) -> Any:
        return self._link.ask(op, self, [])

    return method


def _binary(op: str, reflected: bool) -> Callable[[Any, Any], Any]:
    def method(self: Remote, other: Any) -> Any:
        if not (is_remote(other) or issubclass(type(other), Data) or self._made):
            if self._kind == "data":
                data = self._link.ask("data", self, [])
                return OPERATORS[op](other, data) if reflected else OPERATORS[op](data, other)
            raise CannotCrossError(
                f"{op} of an object of the program, which the tests did not make, and plain data"
            )
        return self._link.ask(f"r{op}" if reflected else op, self, [other])

    return method


_ITEMS = {"getitem": "item", "setitem": "setitem", "delitem": "delitem", "round": "round"}


def _item(op: str) -> Callable[..., Any]:
    def method(self: Remote, *given: Any) -> Any:
        return self._link.ask(op, self, list(given))

    return method


for _name in UNARY:
    setattr(Remote, f"__{_name}__", _unary(_name))
for _name in OPERATORS:
    setattr(Remote, f"__{_name}__", _binary(_name, False))
    setattr(Remote, f"__r{_name}__", _binary(_name, True))
    setattr(Remote, f"__i{_name}__", _binary(f"i{_name}", False)) if _name != "divmod" else None
for _name in ORDER:
    setattr(Remote, f"__{_name}__", _binary(_name, False))
for _name, _op in _ITEMS.items():
    setattr(Remote, f"__{_name}__", _item(_op))
