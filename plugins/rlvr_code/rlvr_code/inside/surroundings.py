"""What the program shares with the tests beside objects, in the tests' process.

They have put others in place of functions, and of standard input; what the program prints, warns of
and logs comes to them. ``watch`` is the program's side of it.
"""

from __future__ import annotations

import builtins
import os
import sys
import warnings
from typing import Any

_ENVIRON = dict(os.environ)
PATCHABLE = """
builtins.print time.sleep time.time time.monotonic time.perf_counter random.random random.randint
random.choice random.choices random.shuffle random.sample random.uniform random.randrange
random.gauss sys.argv os.getenv os.listdir os.getcwd os.path.exists os.path.isfile builtins.open
"""
"""Functions that tests put others in place of."""
REAL: dict[str, Any] = {}
"""The functions themselves, by place; kept before the tests begin."""


def environ() -> tuple[tuple[str, str], ...] | None:
    """The environment, if the tests have changed it."""
    return None if os.environ == _ENVIRON else tuple(os.environ.items())


def patched() -> dict[str, Any]:
    """What the tests have put in place of functions of the library, by place."""
    found = {}
    for place, real in REAL.items():
        module, _, name = place.rpartition(".")
        now = getattr(sys.modules[module], name)
        if now is not real:
            found[place] = now
    return found


def write(message: dict[str, Any]) -> None:
    """Write what the program has written meanwhile."""
    for name, text in message.get("written", {}).items():
        getattr(sys, name if name == "stdout" else "stderr").write(str(text))


def levels() -> dict[str, int]:
    """Levels from which on the tests want what loggers say."""
    logging: Any = sys.modules.get("logging")
    if logging is None:
        return {}
    known = logging.Logger.manager.loggerDict.items()
    found = {name: one.level for name, one in known if getattr(one, "level", 0)}
    return found | ({"": logging.root.level} if logging.root.level != logging.WARNING else {})


def tell(what: Any, about: list[Any]) -> None:
    """Warn or log as the program has."""
    if what == "warning":
        kind, text = about
        fits = isinstance(kind, type) and issubclass(kind, Warning)
        warnings.warn(str(text), kind if fits else UserWarning, stacklevel=2)
    elif what == "log":
        import logging

        name, level, text, error, extra = about
        shown = error if isinstance(error, BaseException) else None
        logging.getLogger(str(name)).log(
            int(level), "%s", str(text), exc_info=shown, extra=dict(extra)
        )


def read(op: str, given: list[Any]) -> str:
    """What the tests have put in place of standard input; patched functions too."""
    if op == "input":
        return str(builtins.input(*given))
    if op not in ("read", "readline"):
        raise AttributeError(op)
    return str(getattr(sys.stdin, op)())
