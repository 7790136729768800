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
from typing import Any

from rlvr_code.inside import neighbours
from rlvr_code.inside.border import (
    DECIDES,
    READABLE,
    Asks,
    CannotCrossError,
    Data,
    Stands,
    is_remote,
    pickled,
    truth,
    whole,
)
from rlvr_code.inside.operators import OPERATORS, ORDER, UNARY


class Remote(Stands):
    """Stands for a name or an object of the program."""

    __slots__ = ("__weakref__", "_kind", "_link", "_made", "_owner", "_tag", "_value")

    def __new__(
        cls, link: Asks, tag: str, value: Any, kind: str = "", *, made: bool = False
    ) -> Any:
        """Make what stands for an object; ``__init__`` is the object's own."""
        self = object.__new__(cls)
        put = object.__setattr__
        put(self, "_link", link)
        put(self, "_tag", tag)
        put(self, "_value", value)
        put(self, "_kind", kind)
        put(self, "_made", made)
        return self

    def __init__(self, *given: Any, **named: Any) -> None:
        if not given or given[0] is not self._link:  # a test calls it
            self._link.ask("get", self, ["__init__"])(*given, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in READABLE and name not in self._link.mentioned:
            raise AttributeError(name)
        found = self._link.ask("get", self, [name])
        if type(found) is Callable_:  # a method, whose object goes on to stand for the same
            object.__setattr__(found, "_owner", self)
        return found

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

    def __copy__(self) -> Any:
        return of_made(self, self._link.ask("library", None, ["copy", "copy", self]))

    def __deepcopy__(self, memo: Any) -> Any:
        return of_made(self, self._link.ask("library", None, ["copy", "deepcopy", self]))

    def __reduce_ex__(self, version: Any) -> Any:
        return pickled(self, self._link)

    def __dir__(self) -> Any:
        return self._link.ask("dir", self, [])

    def __eq__(self, other: object) -> bool:
        return _equal(self, other)

    def __ne__(self, other: object) -> bool:
        return not _equal(self, other)

    def __contains__(self, value: Any) -> bool:
        if is_remote(value):
            return truth(self._link.ask("contains", self, [value]))
        has = made(self) and self._link.ask("library", None, ["builtins", "hasattr", self, _HAS])
        if not has:
            return any(one is value or one == value for one in self)
        return _agrees(self, "contains", value)

    def __enter__(self) -> Any:
        return self._link.ask("enter", self, [])

    def __exit__(self, kind: Any, error: BaseException | None, trace: object) -> bool:
        return _left(self, "exit", error)

    def __aiter__(self) -> Any:
        return self._link.ask("aiter", self, [])

    async def __anext__(self) -> Any:
        return await Task(self._link, self._link.ask("anext", self, []))

    async def __aenter__(self) -> Any:
        return await Task(self._link, self._link.ask("aenter", self, []))

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: object) -> bool:
        link = self._link
        try:
            swallowed = await Task(link, link.ask("aexit", self, [_shown(error)]))
        except Exception:
            if not _decides(error):
                raise
            return False
        return _may_swallow(error) and bool(swallowed)


class Callable_(Remote):  # noqa: N801
    """Stands for what can be called."""

    __slots__ = ()

    def __call__(self, /, *given: Any, **named: Any) -> Any:
        """Call it in the program's process."""
        return self._link.ask("call", self, list(given), named)


class Task:
    """Something that the program's event loop runs, by turns with the tests'."""

    def __init__(self, link: Asks, task: Any) -> None:
        self._link, self._task = link, task

    def __await__(self) -> Any:
        turns = 0
        try:
            while not truth(self._link.ask("turn", self._task, [turns])):
                turns += 1
                yield  # for others that the tests wait for, and that it may wait for itself
        except BaseException:
            self._link.ask("cancel", self._task, [])
            raise
        return self._link.ask("result", self._task, [])


def _equal(one: Remote, other: object) -> bool:
    if is_remote(other):
        return _agrees(one, "eq", other)
    if type(other) in _SINGLE:
        return False
    if one._kind == "data":  # a list or the like, with methods of its own
        return bool(one._link.ask("data", one, []) == other)
    if made(one):
        return _agrees(one, "eq", other)
    kind = type(other)
    if kind.__module__ == "tests" and one.__class__ is kind:
        return bool(_as_own(one, kind) == other)
    one._link.note("an object of the program was compared with plain data")
    return False


def _as_own(one: Remote, kind: Any) -> Any:
    """An object of a class that the tests define too, as one of theirs, to be compared by them."""
    found: Any = object.__new__(kind)
    for name, value in dict(one._link.ask("library", None, ["builtins", "vars", one])).items():
        if not str(name).startswith("__"):
            object.__setattr__(found, str(name), value)
    return found


_SINGLE = (type(None), type(NotImplemented), type(...))


_HAS = "__contains__"
_MANY = 8
"""Numbers that an object may not all be equal to."""


def _agrees(one: Remote, op: str, other: Any) -> bool:
    """Whether an object says yes, and does not say yes to everything."""
    if op == "eq" and not is_remote(other):
        return _tells_apart(one, other)
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


def _tells_apart(one: Remote, value: Any) -> bool:
    """Whether an object equals a value, and none that is near it.

    Which of them is expected cannot be seen from the order in which they are asked about.
    """
    near = neighbours.of(value)
    asked = random.sample([value, *near], len(near) + 1)
    yes = []
    for each in asked:
        try:
            if truth(one._link.ask("eq", one, [each])):
                yes.append(each)
        except Exception:
            if each is value:
                raise
    if any(each is not value for each in yes):
        one._link.note("an object of the program equals values that differ")
        return False
    return bool(yes)


def _left(one: Remote, op: str, error: BaseException | None) -> bool:
    """The end of a ``with``: the program may not swallow what makes a test fail."""
    try:
        swallowed = one._link.ask(op, one, [_shown(error)])
    except Exception:
        if not _decides(error):
            raise
        return False
    return _may_swallow(error) and bool(swallowed)


def _shown(error: BaseException | None) -> Exception | None:
    return error if isinstance(error, Exception) else None


def _decides(error: BaseException | None) -> bool:
    """Whether an exception makes a test fail."""
    return error is not None and getattr(error, DECIDES, isinstance(error, AssertionError))


def _may_swallow(error: BaseException | None) -> bool:
    if error is None or not isinstance(error, Exception) or isinstance(error, AssertionError):
        return False
    return not getattr(error, DECIDES, False)


def made(one: Remote) -> bool:
    """Whether an object is the tests' own making, or else of a class that they name."""
    if not one._made and one._kind not in _NO_OBJECTS:
        object.__setattr__(one, "_made", one._link.is_named(one._link.ask("type", one, [])))
    return bool(one._made)


_NO_OBJECTS = ("function", "generator", "class")


def of_made(one: Remote, found: Any) -> Any:
    """What an operator gives of an object that the tests have made: as good as made by them."""
    if one._made:
        mark_made(found)
    return found


def mark_made(found: Any) -> None:
    """Note that an object of the program is one that the tests have made."""
    remote = found if issubclass(type(found), Remote) else getattr(found, "_remote", None)
    if remote is not None and issubclass(type(found), Stands | Data):
        object.__setattr__(remote, "_made", True)


def _unary(op: str) -> Callable[[Any], Any]:
    def method(self: Remote) -> Any:
        return of_made(self, self._link.ask(op, self, []))

    return method


def _binary(op: str, reflected: bool) -> Callable[[Any, Any], Any]:
    def method(self: Remote, other: Any, modulus: Any = None) -> Any:
        if modulus is not None:
            return of_made(self, self._link.ask("pow", self, [other, modulus]))
        if not (is_remote(other) or issubclass(type(other), Data) or made(self)):
            if self._kind == "data":
                data = self._link.ask("data", self, [])
                return OPERATORS[op](other, data) if reflected else OPERATORS[op](data, other)
            raise CannotCrossError(
                f"{op} of an object of the program, which the tests did not make, and plain data"
            )
        return of_made(self, self._link.ask(f"r{op}" if reflected else op, self, [other]))

    return method


_ITEMS = {"getitem": "item", "setitem": "setitem", "delitem": "delitem", "round": "round"}


def _item(op: str) -> Callable[..., Any]:
    def method(self: Remote, *given: Any) -> Any:
        return of_made(self, self._link.ask(op, self, list(given)))

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
