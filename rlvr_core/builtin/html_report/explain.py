"""What each metric of a run means, by the declarations of the kernel and of its components."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlvr_core.api import Metric, RlvrError
from rlvr_core.api.services import load_host

_REPORTING = (
    "step-invariants",
    "known-verdicts",
    "reference-votes",
    "seeds",
    "idle",
    "ahead",
)
"""Services of the core that report metrics in runs whose configuration does not name them."""


def explanations(
    names: Sequence[str], configs: Sequence[Mapping[str, Any]]
) -> dict[str, Metric | None]:
    """Return the declaration of each metric; None where nobody here declares it.

    Args:
        names: Names of metrics.
        configs: The resolved configurations of the runs that reported them.
    """
    glossary = load_host().service("core/glossary")
    told = {name: glossary().lookup(name) for name in names}
    if None in told.values():  # components cost an import each, torch's among them
        whole = glossary(*_components({use for config in configs for use in _named(config)}))
        told = {name: metric or whole.lookup(name) for name, metric in told.items()}
    return told


def _components(named: set[str]) -> Iterator[Any]:
    reporting = {f"core/{name}" for name in _REPORTING}
    for entry in load_host().registry.entries.values():
        wanted = entry.name in reporting if entry.kind == "service" else entry.kind != "command"
        if not wanted or not {entry.name, entry.leaf} & (named | reporting):
            continue
        try:
            yield entry.load()
        except (RlvrError, ImportError):
            continue  # it, or what it needs, is not installed here: its metrics stay unexplained


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
