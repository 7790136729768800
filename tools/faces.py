"""The public names as text: one line a name and member, for the frozen list and ``docs/api.md``."""

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

_HEAD = """# The public face: what is promised, and how it changes

Written by `tools/docs.py`; the lists below come from the code.

A plugin imports `rlvr_core.api` and nothing else of the core, first-party plugins included
(`make check` holds it):

- **`rlvr_core.api`** has the types, protocols, hooks, base classes and errors that components are
  written with. Importing it loads neither torch nor pydantic; a name is loaded when it is first
  used.
- **`rlvr_core.api.services`** has what the kernel can do for a plugin that is more than one
  component: reading data, rendering prompts, judging, the files of a run.
- **`rlvr_core.testing`** has the conformance checks and fixtures for a plugin's own tests.

What is promised, for versions 0.x:

1. A name in `rlvr_core.api` stays, and keeps its meaning, within a minor version (0.2.x). A minor
   version may change it; `CHANGELOG.md` then says what changed and what to write instead.
2. Names in `rlvr_core.api.services` may also change in a minor version, and more readily.
3. Fields may be added to types, keyword arguments with a default to functions, and methods with a
   default to base classes at any time. The order of fields is no contract: construct with keywords.
4. When a hook changes in a way that old plugins cannot stand, `API_VERSION` goes up, and a plugin
   that was written for an older one (`RLVR_API` in its module) is refused, with that as the reason.
5. Everything else under `rlvr_core` is internal, whether or not it begins with an underscore.

A test compares these names, their fields and their signatures with the list in
`tests/plugins/public_api.txt`. Whoever changes the face changes that list in the same commit:
`python tools/docs.py` writes it.
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
    """The page ``docs/api.md``."""
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
