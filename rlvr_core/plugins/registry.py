"""The components of all installed packages, by kind and name.

Targets are strings, imported only when a component is used: listing imports nothing.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, get_args

from rlvr_core.api import ConfigError, Kind, PluginError, RlvrError
from rlvr_core.plugins import discovery, files, functions
from rlvr_core.plugins.discovery import Place

NAME = re.compile(r"[a-z0-9][a-z0-9._-]*\Z")
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z")

KINDS: tuple[Kind, ...] = get_args(Kind)
_PLURALS: dict[str, str] = {
    kind: f"{kind}s" for kind in (*KINDS, "command", "forward_path", "verifier_pool")
} | {"loss": "losses"}
REGISTERING = {f"register_{plural}": kind for kind, plural in _PLURALS.items()}
"""The registering hooks, each with the kind of component that it registers."""


def plural(kind: str) -> str:
    """Return the plural of a kind, as for ``rlvr list``: ``losses``, ``eval_tasks``."""
    return _PLURALS[kind]


def kind_words(kind: str) -> str:
    """Return the kind as written in a sentence: ``eval task``."""
    return kind.replace("_", " ")


def parse_kind(text: str) -> Kind | None:
    """Parse a kind from ``verifier``, ``verifiers`` or ``eval-tasks``; None if unknown."""
    word = text.lower().replace("-", "_")
    return next((kind for kind in KINDS if word in (kind, _PLURALS[kind])), None)


loaded: dict[tuple[str, str], Entry] = {}
"""Loaded components that are not the core's, by module and attribute of their target."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered component.

    Attributes:
        kind: Its kind.
        name: Full name, ``plugin/leaf``.
        target: ``module:attribute`` of its class.
        summary: One sentence.
        plugin: Name of the plugin that registered it (``core`` for built-ins); empty when the user
            named it by its file or module.
        registered: File and line of its registration.
        models: For a forward path: the model classes it may serve; empty for any.
        rank: For a guard: its place among those that are on by default; None if it is not.
    """

    kind: Kind | str
    name: str
    target: str
    summary: str
    plugin: str
    registered: Place = discovery.NOWHERE
    models: tuple[str, ...] = ()
    rank: int | None = None

    @property
    def leaf(self) -> str:
        """The short name, without the plugin's."""
        return self.name.partition("/")[2]

    @property
    def help(self) -> str:
        """Remedy for a fault of the component."""
        return f"see: rlvr plugins show {self.plugin}" if self.plugin else "fix it there"

    @property
    def owner(self) -> str:
        """The component and where it comes from, for messages."""
        of = f" of plugin {self.plugin}" if self.plugin else ""
        return f"{kind_words(self.kind)} '{self.name}'{of}"

    def load(self) -> Any:
        """Import the component's class; a plain function is wrapped in one.

        Raises:
            ConfigError: If the user named it by file or module and it is not a component of this
                kind.
            PluginError: If its module or attribute cannot be imported.
        """
        module, _, attribute = self.target.partition(":")
        if self.plugin != discovery.CORE:
            loaded[module, attribute] = self
        try:
            imported = importlib.import_module(module)
            if not self.plugin:
                component = files.attribute(imported, attribute, self.name, "")
                component = functions.component(self.kind, component)
                functions.check_kind(self.kind, self.name, component, "")
                return component
            return functions.component(self.kind, getattr(imported, attribute))
        except (RlvrError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a module may even call sys.exit
            if not self.plugin:
                raise files.failed(self.name, module, error) from error
            place = discovery.of_error(error, module.partition(".")[0])
            raise PluginError(
                f"{kind_words(self.kind)} '{self.name}' failed to load: "
                f"{type(error).__name__}: {error}",
                where=str(self.registered if place.file in ("", __file__) else place),
                remedy=f"its target is {self.target}; see: rlvr plugins show {self.plugin}",
            ) from error

    @contextmanager
    def named(self, failed: str, where: str = "") -> Iterator[None]:
        """Convert exceptions of a plugin's code into errors that name the component.

        An exception in a component of the core is a bug and passes unchanged.

        Args:
            failed: What failed, worded to follow the component's name: ``could not be closed``.
            where: Where the user named the component, for messages.

        Raises:
            PluginError: If the block raises anything other than an ``RlvrError``.
        """
        try:
            yield
        except (RlvrError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a component may even call sys.exit
            if self.plugin == discovery.CORE:
                raise
            what = " ".join(f"{self.owner} {failed}: {type(error).__name__}: {error}".split())
            place = self.place(error)
            named = [f"it was named at {where}"] if where and place else []
            raise PluginError(what, where=place or where, remedy=[*named, self.help]) from error

    def place(self, error: BaseException) -> str:
        """Return the innermost line of its package in a traceback; empty if there is none."""
        return str(discovery.of_error(error, self.target.partition(":")[0].partition(".")[0]))


@dataclass(slots=True)
class Registry:
    """All entries, by kind and full name."""

    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Add one entry.

        Raises:
            PluginError: If the name is taken.
        """
        key = (str(entry.kind), entry.name)
        if key in self.entries:
            raise PluginError(
                f"{entry.kind} '{entry.name}' is registered twice, as "
                f"{self.entries[key].target} and as {entry.target}",
                remedy="rename one of them",
            )
        self.entries[key] = entry

    def of(self, kind: str) -> Iterator[Entry]:
        """Yield the entries of a kind, sorted by full name."""
        return iter(sorted((e for e in self.entries.values() if e.kind == kind), key=_by_name))

    def find(self, kind: str, name: str) -> Entry | None:
        """Return the entry with this full or short name; None if there is none.

        Raises:
            ConfigError: If several plugins use this short name.
        """
        if "/" in name:
            return self.entries.get((kind, name))
        owners = [entry for entry in self.of(kind) if entry.leaf == name]
        if len(owners) > 1:
            raise ConfigError(
                f"{kind_words(kind)} '{name}' is ambiguous",
                remedy="write one of: " + ", ".join(entry.name for entry in owners),
            )
        return owners[0] if owners else None


def _by_name(entry: Entry) -> str:
    return entry.name


@dataclass(frozen=True, slots=True)
class PluginRegistrar:
    """The ``Registrar`` passed to a plugin's hooks."""

    registry: Registry
    kind: str
    plugin: str

    def add(
        self,
        name: str,
        target: str,
        *,
        summary: str,
        models: Sequence[str] = (),
        rank: int | None = None,
    ) -> None:
        """Register a component; see ``Registrar``."""
        if not NAME.match(name):
            raise PluginError(
                f"{self.plugin}: bad {self.kind} name {name!r}",
                remedy="use lower-case letters, digits, '.', '_' and '-'; the plugin's name is "
                "added in front",
            )
        if not _TARGET.match(target):
            raise PluginError(
                f"{self.plugin}: bad target {target!r} of {self.kind} {name!r}",
                remedy="write it as 'package.module:Class'",
            )
        if not summary.strip() or "\n" in summary:
            raise PluginError(
                f"{self.plugin}: bad summary {summary!r} of {self.kind} {name!r}",
                remedy="write one sentence on one line",
            )
        if rank is not None and self.kind != "guard":
            raise PluginError(
                f"{self.plugin}: {self.kind} {name!r} has a rank, and only guards have one",
                remedy="leave it out",
            )
        caller = sys._getframe(1)
        place = Place(caller.f_code.co_filename, caller.f_lineno)
        full = f"{self.plugin}/{name}"
        self.registry.add(
            Entry(self.kind, full, target, summary, self.plugin, place, tuple(models), rank)
        )
