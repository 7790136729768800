"""The page of everything that a config can name, with its options."""

from __future__ import annotations

from collections.abc import Iterator

from config_reference import cell, default_cell

from rlvr_core.api import config_class
from rlvr_core.config.keys import Key, component_keys
from rlvr_core.config.tree import COMPONENTS, dotted
from rlvr_core.plugins.discovery import CORE, FIRST_PARTY
from rlvr_core.plugins.host import load_host
from rlvr_core.plugins.registry import KINDS, Entry, kind_words, plural

_HEAD = """# Every component

Written by `tools/docs.py` from the components themselves. A component is
named in a config by `use`, and its options stand in `with`. `rlvr list KIND` prints a table of what
is installed, other packages' components included; `rlvr list KIND NAME` says more of one, with an
example.
"""


def page() -> str:
    """The page: a section for each kind, of a table and of the options of those that have any."""
    ours = {CORE, *FIRST_PARTY}
    registry = load_host().registry
    parts = [_HEAD]
    for kind in KINDS:
        entries = [entry for entry in registry.of(kind) if entry.plugin in ours]
        if entries:
            parts += _kind(kind, entries)
    return "\n".join(parts)


def _kind(kind: str, entries: list[Entry]) -> Iterator[str]:
    words = kind_words(plural(kind))
    yield f"## {words.capitalize()}\n"
    place = next((loc for loc, named in COMPONENTS.items() if named == kind), ())
    if place:
        yield f"Named in `{dotted(place).removesuffix('.*')}`.\n"
    yield "| name | what it is |\n|---|---|"
    yield from (f"| `{entry.name}` | {cell(entry.summary)} |" for entry in entries)
    yield ""
    for entry in entries:
        keys = component_keys(config_class(entry.load()), ())
        if keys:
            yield f"### {kind_words(kind)} `{entry.name}`\n"
            yield "| option | takes | default | meaning |\n|---|---|---|---|"
            yield from (_row(key) for key in keys)
            yield ""


def _row(key: Key) -> str:
    name = key.path.removeprefix("with.")
    default = "" if key.section and not key.required else default_cell(key)
    return f"| `{name}` | {cell(key.type)} | {default} | {cell(key.description)} |"
