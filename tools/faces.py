"""The public names as text: one line a name and member, for the frozen list and the site."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any, get_origin

from pydantic import BaseModel

from rlvr_core import api, testing  # noqa: F401
from rlvr_core.api import services

FACES: tuple[ModuleType, ...] = (api, services)

_SIMPLE = (bool, float, int, str, tuple, type(None))
"""Values whose ``repr`` is the same in every process."""

_HEAD = """# Public names

Written by `tools/docs.py` from the code. [plugins.md](../plugins.md#what-is-promised) says what is
promised of these names, and how they change.
"""


def frozen() -> str:
    """One line for each public name and each of its public members."""
    return "".join(
        f"{line}\n"
        for face in FACES
        for name in sorted(face.__all__)
        for line in _lines(f"{face.__name__}.{name}", getattr(face, name))
    )


def stub(face: ModuleType) -> str:
    """The ``.pyi`` of a face: its names, for type checkers."""
    lines = [f'"""{inspect.getdoc(face)}"""\n']
    for home, names in sorted(face._HOMES.items()):
        lines += [
            f"from rlvr_core.{home} import {name} as {name}" for name in sorted(names.split())
        ]
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page of the public names."""
    parts = [_HEAD]
    for face in FACES:
        parts.append(f"## `{face.__name__}`\n\n| name | what it is |\n|---|---|")
        parts += [
            f"| `{name}` | {_summary(getattr(face, name))} |" for name in sorted(face.__all__)
        ]
        parts.append("")
    return "\n".join(parts)


def _summary(value: Any) -> str:
    if not (inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)):
        return f"`{_plain(value)}`".replace("|", "\\|")
    return (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def _plain(value: Any) -> str:
    if get_origin(value) is not None:
        return str(value)
    return repr(value) if isinstance(value, _SIMPLE) else f"a {type(value).__name__}"


def _lines(path: str, value: Any) -> Iterator[str]:
    if inspect.ismodule(value):
        yield f"{path}: module"
    elif inspect.isclass(value):
        yield f"{path}: class({', '.join(base.__name__ for base in value.__bases__)})"
        yield from (f"{path}.{member}" for member in sorted(_members(value)))
    elif inspect.isroutine(value):
        yield f"{path}{_signature(value)}"
    else:
        yield f"{path} = {_plain(value)}"


def _members(cls: type[Any]) -> Iterator[str]:
    if dataclasses.is_dataclass(cls):
        yield from (f"{field.name}: {field.type}" for field in dataclasses.fields(cls))
    elif issubclass(cls, BaseModel):
        yield from (f"{name}: {field.annotation}" for name, field in cls.model_fields.items())
    else:
        found = inspect.get_annotations(cls).items()
        yield from (f"{name}: {kind}" for name, kind in found if not name.startswith("_"))
    for name, member in vars(cls).items():
        if name.startswith("_") and name != "__call__":
            continue
        if isinstance(member, property):
            yield f"{name}: {inspect.get_annotations(member.fget or _members).get('return')}"
        elif inspect.isfunction(member) or isinstance(member, classmethod | staticmethod):
            yield f"{name}{_signature(getattr(cls, name))}"


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except ValueError:  # of C code
        return "(...)"
    shown = [
        each
        if each.default is each.empty or isinstance(each.default, _SIMPLE)
        else each.replace(default=...)
        for each in signature.parameters.values()
    ]
    return str(signature.replace(parameters=shown))
