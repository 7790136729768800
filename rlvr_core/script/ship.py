"""How a config names a function or class of the running program, so that other processes find it.

Worker processes do not run the user's script again: what a script or a notebook cell defines is
written, with all that it uses, to a file of its own in the cache.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import dis
import hashlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from rlvr_core.api import ConfigError, MachineError
from rlvr_core.data.uri import cache_folder

_MAIN = "__main__"
_HEADER = "from __future__ import annotations\n"


def reference(component: Any) -> str:
    """Return the text for ``use``: ``file.py:name``, or ``package.module:name``.

    Args:
        component: A function or a class.

    Raises:
        ConfigError: If no other process can have it: a lambda, what is defined inside of another
            function, or what uses an object of the program that is no constant.
        MachineError: If the cache cannot be written.
    """
    if not isinstance(component, FunctionType | type):
        raise ConfigError(
            f"{component!r} is a {type(component).__name__}, not a function or a class",
            remedy="pass a function defined with def, a class, or the name of a component",
        )
    name = component.__qualname__
    if not name.isidentifier():
        inside = "a lambda" if "<lambda>" in name else "defined inside of something else"
        raise ConfigError(
            f"{name} is {inside}, and cannot be sent to worker processes",
            remedy="define it with def at the top of a file or of a notebook cell",
        )
    module = sys.modules.get(component.__module__)
    if module is None or component.__module__ == _MAIN:
        return f"{_written(component)}:{name}"
    if getattr(module, name, None) is not component:
        raise ConfigError(
            f"{component.__module__}.{name} is something else by now, and worker processes import "
            f"it by that name",
            remedy="give it a name of its own",
        )
    file = getattr(module, "__file__", None)
    if "." in component.__module__ or file is None:
        return f"{component.__module__}:{name}"
    path, here = Path(file).absolute(), Path.cwd()
    shown = f"./{path.relative_to(here)}" if path.is_relative_to(here) else str(path)
    return f"{shown}:{name}"


def _written(component: Any) -> Path:
    """Write a definition of the main program and what it uses to the cache; the file."""
    parts: dict[str, str] = {}
    _define(component, parts)
    text = _HEADER + "\n".join(dict.fromkeys(parts.values()))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = cache_folder() / "functions" / digest / f"{component.__name__}.py"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MachineError(
            f"the cache cannot be written: {error.strerror}",
            where=str(path.parent),
            remedy="make it writable, or set XDG_CACHE_HOME to a folder that is",
        ) from error
    return path


def _define(component: Any, parts: dict[str, str]) -> None:
    """Add the source of a definition, after that of everything it uses.

    Args:
        component: A function or class of the main program.
        parts: Source by name; gets more.
    """
    try:
        source = textwrap.dedent(inspect.getsource(component))
    except (OSError, TypeError):
        raise ConfigError(
            f"the source of {component.__qualname__} cannot be found, so it cannot be sent to "
            f"worker processes",
            remedy="put it into a file: rewards=['./my_file.py:name']",
        ) from None
    names = getattr(component, "__globals__", vars(sys.modules[_MAIN]))
    parts[component.__name__] = ""  # so that what calls itself ends here
    for name in _globals_of(source):
        if name in names and name not in parts:
            _provide(name, names[name], component.__qualname__, parts)
    del parts[component.__name__]
    parts[component.__name__] = source


def _provide(name: str, value: Any, user: str, parts: dict[str, str]) -> None:
    """Add what gives ``name`` its value in another process."""
    if isinstance(value, ModuleType):
        parts[name] = f"import {value.__name__} as {name}"
    elif isinstance(value, re.Pattern):
        parts[name] = f"import re as _re; {name} = _re.compile({value.pattern!r}, {value.flags})"
    elif _is_literal(value):
        parts[name] = f"{name} = {value!r}"
    elif _is_importable(value):
        parts[name] = f"from {value.__module__} import {value.__qualname__} as {name}"
    elif isinstance(value, FunctionType | type) and value.__qualname__.isidentifier():
        if value.__name__ not in parts:
            _define(value, parts)
        if name != value.__name__:
            parts[name] = f"{name} = {value.__name__}"
    else:
        raise ConfigError(
            f"{user} uses '{name}', a {type(value).__name__} of this program, which cannot be sent "
            f"to worker processes",
            remedy=[
                "make it inside of the function, or let it be a constant (numbers, text, lists)",
                "or put both into a file: rewards=['./my_file.py:name']",
            ],
        )


def _globals_of(source: str) -> list[str]:
    """Names that a source looks up outside of itself."""
    flags = __future__.annotations.compiler_flag
    code = compile(source, "<definition>", "exec", flags, dont_inherit=True)
    found = (
        str(step.argval)
        for one in _codes(code)
        for step in dis.get_instructions(one)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    )
    return [name for name in dict.fromkeys(found) if not name.startswith("__")]


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _is_literal(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False


def _is_importable(value: Any) -> bool:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not isinstance(module, str) or module == _MAIN or not name.isidentifier():
        return False
    return getattr(sys.modules.get(module, builtins), name, None) is value
