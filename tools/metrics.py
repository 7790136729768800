"""The page of what every metric means, from the declarations."""

from __future__ import annotations

import re

from rlvr_core.api import Metric
from rlvr_core.api.components import declared_metrics
from rlvr_core.plugins.host import load_host
from rlvr_core.record.metrics import core_metrics

_HEAD = """\
# Every metric

Written by `tools/docs.py` from `rlvr_core/record/metrics.toml` and what the built-in components
declare. [runs.md](../runs.md#metrics) says how metrics are recorded, and which to look at first.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, metrics in core_metrics().items():
        parts.append(f"\n## {title}\n\n| metric | meaning | unit |\n|---|---|---|\n")
        parts += [f"{_row(metric)}\n" for metric in metrics]
    parts.append(
        "\n## Components\n\n| metric | meaning | unit | reported by |\n|---|---|---|---|\n"
    )
    parts += [f"{_row(metric)} {', '.join(by)} |\n" for metric, by in _of_components().items()]
    return "".join(parts)


def _of_components() -> dict[Metric, list[str]]:
    """What the built-in components declare, each with the components that report it."""
    found: dict[Metric, list[str]] = {}
    entries = [one for one in load_host({}).registry.entries.values() if one.plugin == "core"]
    for entry in sorted(entries, key=lambda one: (str(one.kind), one.name)):
        if entry.kind == "command":
            continue
        part = "part" if entry.kind == "service" else str(entry.kind).replace("_", " ")
        for metric in declared_metrics(entry.load()):
            found.setdefault(metric, []).append(f"{part} `{entry.leaf}`")
    return found


def _row(metric: Metric) -> str:
    return f"| `{metric.name}` | {_escape(metric.meaning)} | {metric.unit} |"


def _escape(text: str) -> str:
    """Bars would end a table's cell, angle brackets would be taken for HTML."""
    return re.sub(r"<(\w+)>", r"`<\1>`", text).replace("|", "\\|")
