"""The metrics a run may report: the core's (``metrics.toml``) and those components declare."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rlvr_core.api import Metric, PluginError
from rlvr_core.api.components import declared_metrics
from rlvr_core.plugins.registry import loaded


class Glossary:
    """Descriptions of metrics, by name.

    Args:
        metrics: The known metrics; ``<part>`` in a name stands for any text.

    Attributes:
        fixed: Metrics whose names have no ``<part>``.
    """

    def __init__(self, metrics: Iterable[Metric]) -> None:
        every = list(metrics)
        self.fixed = {metric.name: metric for metric in every if "<" not in metric.name}
        self._families = [
            (re.compile(re.sub(r"<\w+>", ".+", metric.name)), metric)
            for metric in every
            if "<" in metric.name
        ]

    def lookup(self, name: str) -> Metric | None:
        """Return the metric of this name, or its family; None if it is not described."""
        if name in self.fixed:
            return self.fixed[name]
        families = (metric for pattern, metric in self._families if pattern.fullmatch(name))
        return next(families, None)


def core_metrics() -> dict[str, tuple[Metric, ...]]:
    """Return the core's metrics, by section of the generated page of metrics."""
    table = tomllib.loads(Path(__file__).with_name("metrics.toml").read_text(encoding="utf-8"))
    return {
        section: tuple(Metric(name, *about) for name, about in rows.items())
        for section, rows in table.items()
    }


@cache
def _core() -> Glossary:
    return run_glossary()


@cache
def _declared(component: Any) -> Glossary:
    return Glossary(declared_metrics(component))


def lookup(name: str) -> Metric | None:
    """Return the core's metric of this name; see ``Glossary.lookup``."""
    return _core().lookup(name)


def run_glossary(*components: type[Any]) -> Glossary:
    """Build the glossary of the core's metrics and those of the given components."""
    declared = [metric for component in components for metric in declared_metrics(component)]
    return Glossary([*declared, *(each for rows in core_metrics().values() for each in rows)])


def check_declared(component: object, names: Iterable[str], *, core: bool = False) -> None:
    """Refuse metrics that a component reports without having declared them.

    Args:
        component: The instance that reports them.
        names: Names of the reported metrics.
        core: Whether it may report the core's metrics too, as losses do.

    Raises:
        PluginError: If one is undeclared; names the component, its file, and the declaration it
            needs.
    """
    cls: Any = type(component)
    glossary = _declared(cls)
    unknown = sorted(
        name for name in names if not (glossary.lookup(name) or (core and lookup(name)))
    )
    if unknown:
        who = f"{cls.__module__}:{cls.__qualname__} reports a metric that it does not declare"
        raise undeclared(unknown, who, _place(cls))


def undeclared(names: Sequence[str], what: str, where: str) -> PluginError:
    """Build the error for metrics that were reported and not declared."""
    return PluginError(
        f"{what}: {', '.join(names)}",
        where=where,
        remedy="declare it in the class that reports it: "
        f'reports = (Metric("{names[0]}", "What it says.", "its unit"),)',
    )


def reported(component: object, values: Any, prefix: str = "") -> dict[str, float]:
    """Validate the metrics that a component reports; return them by full name.

    Args:
        component: The instance that reports them.
        values: The value it returned.
        prefix: Prefix of each name.

    Raises:
        PluginError: If it is not a mapping from names to numbers, or a name is undeclared or
            already taken.
    """
    try:
        named = {f"{prefix}{name}": float(value) for name, value in values.items()}
    except (AttributeError, TypeError, ValueError, RuntimeError):
        raise misuse(component, f"reports {values!r:.80}", "give numbers by metric name") from None
    check_declared(component, named)
    if taken := sorted(name for name in named if name in _core().fixed):
        raise misuse(component, f"reports a metric of rlvr's: {', '.join(taken)}", "rename it")
    return named


def misuse(component: object, what: str, remedy: str) -> PluginError:
    """Build the error for a component whose return value is unusable, with its file and line."""
    cls = type(component)
    entry = loaded.get((cls.__module__, cls.__qualname__))
    name = entry.owner if entry else f"{cls.__module__}:{cls.__qualname__}"
    return PluginError(f"{name} {what}", where=_place(cls), remedy=remedy)


def _place(component: type[Any]) -> str:
    """Return file and line of a class; its module if there is no source."""
    try:
        return f"{inspect.getsourcefile(component)}:{inspect.getsourcelines(component)[1]}"
    except OSError:  # a generated class around a function
        return inspect.getfile(component)
    except TypeError:
        return component.__module__
