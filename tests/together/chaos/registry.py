"""Faults: what each breaks, and which guard should name it."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

IN_PROCESS = ("in process",)
BOTH = ("in process", "child")
TWO = ("two processes",)
DTYPES = ("float32", "bfloat16")

Rows = list[dict[str, Any]]


class Patch:
    """Changes code in a process that runs one faulty run and then ends.

    Args:
        folder: The run's working directory; each use of the faulty code is noted there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._noted: set[int] = set()

    def hit(self) -> None:
        """Note that the faulty code was used."""
        if os.getpid() not in self._noted:
            self._noted.add(os.getpid())
            with suppress(OSError), (self.folder / "hits").open("a") as file:
                file.write(f"{os.getpid()}\n")

    def wrap(self, place: str, make: Callable[[Any], Callable[..., Any]]) -> None:
        """Replace a function or method, named as ``module:attribute``.

        Args:
            place: Where it is looked up when it is called.
            make: From the original to its replacement.
        """
        owner, name = find(place)
        made = make(getattr(owner, name))

        def replacement(*args: Any, **options: Any) -> Any:
            self.hit()
            return made(*args, **options)

        setattr(owner, name, replacement)

    def after(self, place: str, change: Callable[..., Any]) -> None:
        """Change what a function returns: ``change(result, *arguments)``."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **options: change(original(*args, **options), *args)

        self.wrap(place, make)

    def options(self, place: str, **changed: Any) -> None:
        """Call a function with other keyword arguments."""
        self.wrap(place, lambda original: lambda *args, **given: original(*args, **given | changed))


def find(place: str) -> tuple[Any, str]:
    """The object that holds what ``module:attribute`` names, and its last name."""
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    getattr(owner, name)
    return owner, name


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        name: Short and unique.
        what: One sentence.
        subject: The file it is declared in.
        expects: Guards, each of which is the right one to name it.
        install: Breaks the process before the run begins; None for a fault in config or data.
        config: Sections of the config that are the fault.
        data: From the rows of the data set to the faulty ones.
        shape: The healthy shape it is put into.
        backends: The engines it applies to.
        dtypes: The precisions it applies to.
        resume: Whether it strikes when a healthy run is resumed.
        hangs: Whether something of it never answers.
    """

    name: str
    what: str
    subject: str
    expects: tuple[str, ...]
    install: Callable[[Patch], None] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    data: Callable[[Rows], Rows] | None = None
    shape: str = "base"
    backends: tuple[str, ...] = IN_PROCESS
    dtypes: tuple[str, ...] = DTYPES
    resume: bool = False
    hangs: bool = False


FAULTS: dict[str, Fault] = {}


def fault(*expects: str, **options: Any) -> Callable[[Callable[[Any], Any]], None]:
    """Declare the fault that a function makes; its name and docstring are the fault's.

    Args:
        expects: Guards, each of which is the right one to name it.
        options: Attributes of ``Fault``; ``of_data=True`` if the function changes rows of data.
    """

    def register(function: Callable[[Any], Any]) -> None:
        name = function.__name__.replace("_", "-")
        assert name not in FAULTS, name
        subject = function.__module__.rpartition(".")[2]
        made = {"data" if options.pop("of_data", False) else "install": function}
        what = " ".join((function.__doc__ or "").split())
        FAULTS[name] = Fault(name, what, subject, expects, **made, **options)

    return register


def load() -> list[Fault]:
    """All faults, by subject."""
    from tests.together.chaos import faults

    for module in sorted(info.name for info in pkgutil.iter_modules(faults.__path__)):
        importlib.import_module(f"tests.together.chaos.faults.{module}")
    return list(FAULTS.values())
