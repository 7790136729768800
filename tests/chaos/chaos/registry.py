"""Faults, declared before they are measured: what is broken, and what is its right name."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TRANSFORMERS = ("in process", "child")
EVERYWHERE = ("in process", "child", "vllm")
IN_PROCESS = ("in process",)
DTYPES = ("float32", "bfloat16")

WORDS: Mapping[str, tuple[str, ...]] = {
    "parity": ("parity", "log-probs? of (the )?(trainer|engine)", "trainer and engine", "disagree"),
    "sampler": ("temperature", r"top[-_]?[pk]\b", "calibrat", "surprise", "sampl(es|ing) from"),
    "seeds": (r"\bseed", "repeat"),
    "advantages": ("advantage",),
    "loss": ("loss", "ratio", "surrogate", "gradient"),
    "kl": (r"\bkl\b", "reference"),
    "learning": (
        "no weight",
        "no update",
        r"(did|do|has|have) not (move|change)",
        "nothing can be learn",
        r"never (moved|changed|updated)",
        "unchanged",
        "learning rate",
        "frozen",
    ),
    "masks": (
        "mask",
        "loss token",
        "tokens? of the loss",
        "conserv",
        r"\beos\b",
        "end-of-sequence",
    ),
    "sync": ("sync", "fingerprint", r"(stale|old|new) weights", "weights? .*(arriv|differ|engine)"),
    "data": (r"\bdata\b", "gold", "reference answer", "duplicate", "prompt"),
    "tokens": (
        "eos",
        "end-of-sequence",
        r"\bbos\b",
        "template",
        "token(izer| cap)",
        "cut off",
        "stop",
    ),
    "verifier": ("verifier", "canar", r"\breward", "gold"),
    "optimizer": ("optimizer", "update", "learning rate", "gradient", "moment"),
    "hang": ("wait", "hang", "hung", "stuck", "watchdog", "did not (answer|return|come)", "within"),
    "resume": ("resum", "checkpoint", "going on"),
}
"""Per class, patterns of which a message has to match one to name the cause."""


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

    @property
    def used(self) -> bool:
        """Whether the faulty code was used, in any process."""
        return (self.folder / "hits").exists()

    def wrap(self, place: str, make: Callable[[Any], Callable[..., Any]]) -> None:
        """Replace a function or method, named as ``module:attribute``.

        Args:
            place: Where it is looked up when it is called.
            make: From the original to what takes its place.
        """
        module, _, path = place.partition(":")
        owner: Any = importlib.import_module(module)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        original = getattr(owner, name)
        made = make(original)

        def replacement(*args: Any, **more: Any) -> Any:
            self.hit()
            return made(*args, **more)

        setattr(owner, name, replacement)

    def after(self, place: str, change: Callable[..., Any]) -> None:
        """Change what a function gives: ``change(result, *arguments)``."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **more: change(original(*args, **more), *args)

        self.wrap(place, make)

    def set(self, place: str, value: Any) -> None:
        """Put a value in the place of an attribute."""
        module, _, path = place.partition(":")
        owner: Any = importlib.import_module(module)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, name, value)
        self.hit()


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        name: Short and unique.
        what: One sentence.
        cls: Its class, a key of ``WORDS``.
        words: Patterns of which a message has to match one to have the right name.
        install: Breaks the process before the run begins; None for a fault in config or data.
        config: Sections of the config that are the fault.
        data: From the rows of the data set to the faulty ones.
        shape: The healthy shape it is put into.
        backends: The engines it applies to.
        dtypes: The precisions it applies to.
        resume: Whether it strikes when a healthy run is resumed.
        set: 1, or 2 to 25 for a fault that was written later, without a look at the guards; 19 for
            one that is like a mutant.
    """

    name: str
    what: str
    cls: str
    words: tuple[str, ...]
    install: Callable[[Patch], None] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    data: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] | None = None
    shape: str = "base"
    backends: tuple[str, ...] = IN_PROCESS
    dtypes: tuple[str, ...] = DTYPES
    resume: bool = False
    set: int = 1


FAULTS: dict[str, Fault] = {}


def declare(
    cls: str, name: str, what: str, *more_words: str, only: tuple[str, ...] = (), **options: Any
) -> None:
    """Declare a fault.

    Args:
        cls: Its class.
        name: Its name.
        what: One sentence.
        more_words: Patterns beside those of its class.
        only: Patterns in the place of those of its class.
        options: Other attributes of ``Fault``.
    """
    assert name not in FAULTS, name
    words = only or (*WORDS[cls], *more_words)
    FAULTS[name] = Fault(name, what, cls, words, **options)


def fault(cls: str, *more_words: str, **options: Any) -> Callable[[Callable[[Patch], None]], None]:
    """Declare the fault that a function installs; its name and docstring are the fault's."""

    def register(install: Callable[[Patch], None]) -> None:
        name = install.__name__.strip("_").replace("_", "-")
        what = " ".join((install.__doc__ or "").split())
        declare(cls, name, what, *more_words, install=install, **options)

    return register


def later(cls: str, *more_words: str, **options: Any) -> Callable[[Callable[[Patch], None]], None]:
    """Declare a fault of the second set, like ``fault``."""
    return fault(cls, *more_words, set=2, **options)


def third(cls: str, *more_words: str, **options: Any) -> Callable[[Callable[[Patch], None]], None]:
    """Declare a fault of the third set, like ``fault``."""
    return fault(cls, *more_words, set=3, **options)


def load() -> Iterator[Fault]:
    """All faults, in the order of their declaration."""
    from chaos import library

    for module in sorted(info.name for info in pkgutil.iter_modules(library.__path__)):
        importlib.import_module(f"chaos.library.{module}")
    return iter(FAULTS.values())
