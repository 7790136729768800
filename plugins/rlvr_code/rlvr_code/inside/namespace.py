"""The names that test code sees: its own, Python's, and those that the program answers."""

from __future__ import annotations

import builtins
import types
from collections.abc import Collection
from typing import Any

from rlvr_code.inside.border import is_remote
from rlvr_code.inside.link import Link
from rlvr_code.inside.remote import Remote


class Names(dict[str, Any]):
    """The names of test code; those of the program are looked up there when they are used.

    Args:
        link: To the program.
        program: Names that are the program's.
        declared: Names that functions of the tests set for the top level. The program learns their
            values once the tests have read them from it.
        stored: Those whose values it learns in any case.
    """

    def __init__(
        self,
        link: Link,
        program: Collection[str],
        declared: Collection[str] = (),
        stored: Collection[str] = (),
    ) -> None:
        super().__init__()
        self._link, self._program, self._open = link, frozenset(program), False
        self._known: dict[str, Any] = {}
        self._declared = frozenset(declared) & self._program
        self._shown = set(stored)
        link.stored, link.rebound = self._stored, self._rebound

    def open(self) -> None:
        """Take the program's names from the program, whatever the setup has defined."""
        self._open = True
        for name in self._program:
            self.pop(name, None)

    def __missing__(self, name: str) -> Any:
        if not self._open or name not in self._program:
            raise KeyError(name)
        found = self._link.name(name)
        self._shown.add(name)
        if is_remote(found) and type(found) is not Remote:
            self._known[name] = self[name] = found  # a function or class; values may change
        return found

    def _stored(self) -> dict[str, Any]:
        """The program's names that the tests have set since it was asked for the last time."""
        found = {}
        for name in self._declared & self._shown:
            if name in self and self[name] is not self._known.get(name):
                found[name] = self.pop(name)
        return found

    def _rebound(self, name: str) -> None:
        if name in self._known and self.get(name) is self._known.pop(name):
            del self[name]


class Builtins(dict[str, Any]):
    """Python's own names, then those of the program: the body of a class looks nowhere else."""

    def __init__(self, names: Names, own: dict[str, Any]) -> None:
        super().__init__(own, __import__=builtins.__import__)
        self._names = names

    def __missing__(self, name: str) -> Any:
        return vars(builtins)[name] if name in vars(builtins) else self._names[name]


class TestModule(types.ModuleType):
    """The tests as a module, in which the library looks for what their classes name."""

    def __init__(self, names: Names) -> None:
        super().__init__("tests")
        types.ModuleType.__setattr__(self, "_names", names)

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return self._names

    def __getattr__(self, name: str) -> Any:
        try:
            return self._names[name]
        except KeyError:
            raise AttributeError(name) from None


class Solution(types.ModuleType):
    """The program as a module, for tests that import it."""

    def __init__(self, link: Link) -> None:
        super().__init__("solution")
        self.__dict__["__link"] = link

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self.__dict__["__link"].value(name)
        except NameError:
            raise AttributeError(name) from None

    def __delattr__(self, name: str) -> None:
        self.__dict__["__link"].ask("unglobal", None, [name])

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__["__link"].ask("global", None, [name, value])
