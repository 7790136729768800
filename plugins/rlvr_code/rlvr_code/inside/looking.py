"""What in test code looks into objects: the program does so for objects of its own.

``isinstance`` and the like stand in the place of Python's own in test code; functions of the
library are replaced in its modules.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
import types
import typing
from typing import Any

from rlvr_code.inside import subclasses, things
from rlvr_code.inside.border import is_remote, truth, unpickled
from rlvr_code.inside.link import Link
from rlvr_code.inside.rich import Rich

FUNCTIONS = """
copy.copy copy.deepcopy copy.replace dataclasses.asdict dataclasses.astuple dataclasses.fields
dataclasses.is_dataclass dataclasses.replace inspect.signature inspect.getdoc inspect.getmembers
inspect.getfullargspec inspect.getmro inspect.getsource inspect.getattr_static inspect.getmodule
inspect.getgeneratorstate inspect.getgeneratorlocals inspect.getcoroutinestate inspect.unwrap
inspect.getclosurevars inspect.get_annotations inspect.isabstract inspect.isasyncgen
inspect.isasyncgenfunction inspect.isawaitable inspect.isbuiltin inspect.isclass inspect.iscoroutine
inspect.iscoroutinefunction inspect.isdatadescriptor inspect.isfunction inspect.isgenerator
inspect.isgeneratorfunction inspect.ismethod inspect.ismethoddescriptor inspect.isroutine
asyncio.iscoroutinefunction asyncio.iscoroutine pickle.dumps typing.get_type_hints
typing.get_origin typing.get_args types.resolve_bases weakref.ref weakref.proxy weakref.finalize
weakref.getweakrefcount operator.length_hint
"""
"""Functions of the library that look into an object: into one of the program, the program does."""


METHOD_OF = "__method_of__"
"""Name of the function that test code gets special methods by."""


def remote(value: object) -> bool:
    """Whether something is the program's, if perhaps with data that has come over."""
    return is_remote(value) or isinstance(value, Rich)


def look_there(link: Link) -> None:
    """Have the program do what the library's functions do with its objects."""
    for place in FUNCTIONS.split():
        module, _, name = place.rpartition(".")
        if hasattr(sys.modules.get(module), name):
            _look_there(link, sys.modules[module], name)
    _unpickling(link)
    _writing_json(link)


def _look_there(link: Link, module: Any, name: str) -> None:
    here = getattr(module, name)

    @functools.wraps(here)
    def either(*given: Any, **named: Any) -> Any:
        if any(map(remote, given)):
            return link.ask("library", None, [module.__name__, name, *given], named)
        return here(*given, **named)

    setattr(module, name, either)


class Unpickler(pickle.Unpickler):
    """Reads what may be the program's: only data, and objects that the program makes again."""

    def find_class(self, module: str, name: str) -> Any:
        """A class or function that a pickle names."""
        if (module, name) == (unpickled.__module__, unpickled.__name__):
            return unpickled
        if name in _PICKLED.get(module, ()):
            return super().find_class(module, name)
        if module == "tests":
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == "tests":
                return found
        raise pickle.UnpicklingError(f"cannot cross to the tests: {module}.{name} in a pickle")


_PICKLED = {
    "_codecs": {"encode"},
    "builtins": {"bytearray", "complex", "frozenset", "object", "range", "set", "slice"},
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "copyreg": {"_reconstructor", "__newobj__"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
}
"""What a pickle may name: data, none of which can equal everything."""


def _writing_json(link: Link) -> None:
    """Let JSON be written of a dictionary or list whose class is the program's."""
    json: Any = sys.modules.get("json")
    if json is None:
        return
    refuse = json.JSONEncoder.default

    def default(encoder: Any, value: Any) -> Any:
        if is_remote(value) and object.__getattribute__(value, "_kind") == "data":
            return link.ask("data", value, [])
        return refuse(encoder, value)

    json.JSONEncoder.default = default


def _unpickling(link: Link) -> None:
    def loads(data: Any, /, **named: Any) -> Any:
        if b"solution" in data and unpickled.__name__.encode() not in data:
            return link.ask("library", None, ["pickle", "loads", data], named)
        return Unpickler(io.BytesIO(data), **named).load()

    pickle.loads = loads
    pickle.load = lambda file, **named: loads(file.read(), **named)


def own_builtins(link: Link) -> dict[str, Any]:
    """Python's own functions for test code, which know the program's objects.

    Args:
        link: To the program.
    """

    def is_one(value: Any, kinds: Any) -> bool:
        """Do what ``isinstance`` does."""
        return any(_is_one(link, "isinstance", isinstance, value, kind) for kind in _each(kinds))

    def is_subclass(value: Any, kinds: Any) -> bool:
        """Do what ``issubclass`` does."""
        return any(_is_one(link, "issubclass", issubclass, value, kind) for kind in _each(kinds))

    def has(value: Any, name: str) -> bool:
        """``hasattr``: what stands for an object of the program has more methods than that."""
        if is_remote(value) and name.startswith("__"):
            return truth(link.ask("library", None, ["builtins", "hasattr", value, name]))
        return hasattr(value, name)

    def method_of(value: Any, name: str) -> Any:
        """Get the special method of an object that a test calls by its name."""
        if is_remote(value) and getattr(value, "_made", False):
            return link.ask("get", value, [name])
        return getattr(value, name)

    def own_super(*given: Any) -> Any:
        """Do what ``super`` does."""
        return subclasses.super_of(link, *given)

    found: dict[str, Any] = {"isinstance": is_one, "issubclass": is_subclass, "hasattr": has}
    if "unittest.case" in sys.modules:
        vars(sys.modules["unittest.case"]).update(found)
    return found | {"super": own_super, METHOD_OF: method_of}


def _each(kinds: Any) -> list[Any]:
    if isinstance(kinds, tuple):
        return [kind for one in kinds for kind in _each(one)]
    return list(typing.get_args(kinds)) if isinstance(kinds, types.UnionType) else [kinds]


def _is_one(link: Link, op: str, here: Any, value: Any, kind: Any) -> bool:
    stands = remote(value) and not isinstance(value, BaseException)
    theirs = is_remote(kind) or type(kind) is _Types or not isinstance(kind, type)
    if stands and not theirs and things.of_library(kind):
        return truth(link.ask(op, value, [kind]))
    return bool(here(value, kind))


class _Types(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, type)

    def __subclasscheck__(cls, kind: Any) -> bool:
        return issubclass(kind, type)

    def __call__(cls, *given: Any, **named: Any) -> Any:
        """The class of an object, of one of the program too; or a new class."""
        if len(given) == 1:
            found = given[0].__class__ if remote(given[0]) else type(given[0])
            return Type if found is type else found
        return type(*given, **named)

    def __eq__(cls, other: object) -> bool:
        return other is type or other is cls

    def __hash__(cls) -> int:
        return hash(type)


class Type(type, metaclass=_Types):
    """``type`` in test code."""
