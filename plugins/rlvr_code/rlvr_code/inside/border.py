"""What both ends of the tests' border to the program know: who stands beyond it, what may cross."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol


class CannotCrossError(BaseException):
    """A test asks for something that cannot be had across the border; it has failed.

    No exception of the kind that test code catches.
    """


class Asks(Protocol):
    """The connection to the program."""

    mentioned: Collection[str]

    def is_named(self, kind: Any) -> bool:
        """Whether a class is one of the program's that the tests name as such."""

    def ask(
        self, op: str, target: Any, given: list[Any], named: dict[str, Any] | None = ...
    ) -> Any:
        """Have the program do something; what came of it."""

    def note(self, what: str) -> None:
        """Keep what may be why a test fails."""


READABLE = frozenset(
    f"__{name}__"
    for name in """
    name qualname doc module wrapped annotations dict version author slots match_args defaults
    kwdefaults dataclass_fields dataclass_params members isabstractmethod abstractmethods all cause
    context suppress_context notes closure code func self mro bases subclasses orig_bases parameters
    origin args required_keys optional_keys total supertype bound constraints init new call len
    getitem setitem delitem iter next reversed missing eq ne hash lt le gt ge repr str format bool
    add sub mul truediv floordiv mod pow matmul and or xor lshift rshift divmod neg pos abs invert
    radd rsub rmul rtruediv rfloordiv rmod rpow iadd isub imul iand ior ixor contains enter exit
    aenter aexit aiter anext await get set delete set_name post_init init_subclass class_getitem
    getattr setattr delattr getattribute copy deepcopy reduce getstate setstate int float index
    fspath bytes complex round trunc floor ceil del dir sizeof instancecheck subclasscheck prepare
    """.split()  # noqa: SIM905
)
"""Attributes with two underscores that are the program's to answer."""


class Stands:
    """Whatever stands for an object of the program: its class derives from this one."""

    __slots__ = ()


class Data:
    """Plain data that stands for an object of the program, too."""


DECIDES = "decides"
"""Attribute of an exception that makes a test fail, whatever else becomes of it."""


def is_remote(value: object) -> bool:
    """Whether something stands for an object of the program; asks the program nothing."""
    return issubclass(type(value), Stands)


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


_links: list[Asks] = []
"""The connection that pickled objects of the program come back by."""


def pickled(one: Any, link: Asks) -> tuple[Any, tuple[bytes]]:
    """How an object of the program is pickled: by the program."""
    _links[:] = [link]
    return unpickled, (link.ask("library", None, ["pickle", "dumps", one]),)


def unpickled(data: bytes) -> Any:
    """An object that the program has pickled."""
    return _links[0].ask("library", None, ["pickle", "loads", data])
