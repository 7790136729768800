"""What every installed package offers, by kind and name.

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
from rlvr_core.host import discovery, files, functions
from rlvr_core.host.discovery import Place

NAME = re.compile(r"[a-z0-9][a-z0-9._-]*\Z")
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z")

KINDS: tuple[Kind, ...] = get_args(Kind)
_PLURALS: dict[str, str] = {
    kind: f"{kind}s" for kind in (*KINDS, "command", "service", "forward_path")
} | {"loss": "losses"}
REGISTERING = {f"register_{plural}": kind for kind, plural in _PLURALS.items()}
"""Each registering hook and the kind of what it registers."""


def plural(kind: str) -> str:
    """The kind as ``rlvr list`` takes it: ``verifiers``, ``losses``, ``eval_tasks``."""
    return _PLURALS[kind]


def kind_words(kind: str) -> str:
    """The kind as it is said in a sentence: ``eval task``."""
    return kind.replace("_", " ")


def parse_kind(text: str) -> Kind | None:
    """The kind meant by ``verifier``, ``verifiers`` or ``eval-tasks``; None if there is none."""
    word = text.lower().replace("-", "_")
    return next((kind for kind in KINDS if word in (kind, _PLURALS[kind])), None)


loaded: dict[tuple[str, str], Entry] = {}
"""Components that are not the core's and were loaded, by module and attribute of their target."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered component.

    Attributes:
        kind: What it is.
        name: Full name, ``plugin/leaf``.
        target: ``module:attribute`` of its class.
        summary: One sentence.
        plugin: Name of the plugin that registered it (``core`` for built-ins); empty when the user
            named it by its file or module.
        registered: The line that registered it.
        models: Of a forward path: classes of the models it may serve; empty for any.
    """

    kind: Kind | str
    name: str
    target: str
    summary: str
    plugin: str
    registered: Place = discovery.NOWHERE
    models: tuple[str, ...] = ()

    @property
    def leaf(self) -> str:
        """The short name."""
        return self.name.partition("/")[2]

    @property
    def help(self) -> str:
        """Where to look when something about it is wrong."""
        return f"see: rlvr plugins show {self.plugin}" if self.plugin else "mend it there"

    @property
    def owner(self) -> str:
        """It and where it comes from, for messages."""
        of = f" of plugin {self.plugin}" if self.plugin else ""
        return f"{kind_words(self.kind)} '{self.name}'{of}"

    def load(self) -> Any:
        """Import the component's class; a plain function becomes one.

        Raises:
            ConfigError: If the user named it by file or module, and it is not what it should be.
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
        """Raise what a plugin's code raises as an error that names the component.

        An exception in a component of the core is a bug, and is left as it is.

        Args:
            failed: What went wrong, as it follows the component's name: ``could not be closed``.
            where: Where the user named the component, for messages.

        Raises:
            PluginError: If the code in the block raises what is no error for users.
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
        """The innermost line of its package that an error came through; empty if there is none."""
        return str(discovery.of_error(error, self.target.partition(":")[0].partition(".")[0]))


@dataclass(slots=True)
class Registry:
    """Entries by kind and full name."""

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
        """Entries of a kind, by full name."""
        return iter(sorted((e for e in self.entries.values() if e.kind == kind), key=_by_name))

    def find(self, kind: str, name: str) -> Entry | None:
        """The entry with this full or short name, or None.

        Raises:
            ConfigError: If a short name belongs to several plugins.
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
    """The ``Registrar`` that a plugin's hooks are given."""

    registry: Registry
    kind: str
    plugin: str

    def add(self, name: str, target: str, *, summary: str, models: Sequence[str] = ()) -> None:
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
        caller = sys._getframe(1)
        place = Place(caller.f_code.co_filename, caller.f_lineno)
        full = f"{self.plugin}/{name}"
        self.registry.add(
            Entry(self.kind, full, target, summary, self.plugin, place, tuple(models))
        )
