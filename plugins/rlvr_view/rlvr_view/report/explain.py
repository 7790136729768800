"""Looks up what each metric means in the declarations of the kernel and of components."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlvr_core.api import Metric, RlvrError
from rlvr_core.toolkit import load_host


def explanations(
    names: Sequence[str], configs: Sequence[Mapping[str, Any]]
) -> dict[str, Metric | None]:
    """Return the declaration of each metric; None if no installed component declares it.

    Args:
        names: Names of metrics.
        configs: The resolved configurations of the runs that reported them.
    """
    from rlvr_core.record.metrics import run_glossary as glossary

    declared = {name: glossary().lookup(name) for name in names}
    if None in declared.values():  # each component must be imported, some with torch
        full_glossary = glossary(
            *_components({use for config in configs for use in _named(config)})
        )
        declared = {name: metric or full_glossary.lookup(name) for name, metric in declared.items()}
    return declared


def _components(configured: set[str]) -> Iterator[Any]:
    for entry in load_host().registry.entries.values():
        if entry.kind == "command" or not {entry.name, entry.leaf} & configured:
            continue
        try:
            yield entry.load()
        except (RlvrError, ImportError):
            continue  # it or a dependency is not installed here: its metrics stay unexplained


def _named(value: Any) -> Iterator[str]:
    """Yield every component that a configuration names."""
    if isinstance(value, Mapping):
        if isinstance(value.get("use"), str):
            yield value["use"]
        for child in value.values():
            yield from _named(child)
    elif isinstance(value, list):
        for child in value:
            yield from _named(child)
