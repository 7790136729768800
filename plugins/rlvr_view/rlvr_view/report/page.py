"""Renders the page: one HTML file that loads nothing and runs only its own two scripts.

Text written by a model is untrusted. It reaches the page in two ways only: as text that Jinja
escapes after ``printable`` has made its control characters visible, and in JSON without a single
``<`` that the script passes to plotly as escaped text. Should either fail, the page's content
security policy only allows scripts with the hashes in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import rlvr_core
from rlvr_core.api import Metric
from rlvr_core.toolkit import printable
from rlvr_view.report.accounts import NOT_EXPLAINED
from rlvr_view.report.described import described
from rlvr_view.report.plot import Plot
from rlvr_view.report.plotly_figures import figure, plotly_js
from rlvr_view.report.records import Records
from rlvr_view.report.sections import metric_plots, samples, sections, trouble

_HERE = Path(__file__).parent
FIRST_SHOWN = (
    "kl/mean",
    "entropy/mean",
    "length/mean",
    "loss",
    "grad_norm",
    "lr",
    "clip_fraction/high",
    "mismatch/abs_mean",
)
"""Metrics whose plots are visible at first, where a run has them."""


def page(runs: Sequence[Records]) -> str:
    """Return the page of runs, the one to compare with first.

    Raises:
        MachineError: If plotly is not installed.
    """
    plotly, script = plotly_js(), (_HERE / "report.js").read_text(encoding="utf-8")
    content, figures = _content(runs)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            title=" and ".join(run.label for run in runs),
            version=rlvr_core.__version__,
            made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            policy=_policy(plotly, script),
            style=(_HERE / "report.css").read_text(encoding="utf-8"),
            plotly=plotly,
            script=script,
            data=embedded(figures),
            **content,
        )
    )


def fragment(run: Records) -> dict[str, Any]:
    """Return the body of a run's page, to embed in another page, and the figures of its plots.

    Returns:
        ``links`` to its sections and its ``body`` as HTML, and ``figures``: plotly's JSON by the
        id of the plot, for ``report.js``.
    """
    content, figures = _content([run])
    shown: Any = environment().get_template("parts.html.j2").module
    ends = (content["runs"], content["sections"], content["metrics"])
    return {
        "links": str(shown.links(*ends)),
        "body": str(shown.body(*ends, content["first_shown"])),
        "figures": figures,
    }


def assets() -> dict[str, str]:
    """Return the files that a page with a ``fragment`` needs, by name.

    Raises:
        MachineError: If plotly is not installed.
    """
    files = {
        name: (_HERE / name).read_text(encoding="utf-8") for name in ("report.css", "report.js")
    }
    return {**files, "plotly.js": plotly_js()}


def environment(*folders: Path) -> Environment:
    """Return the Jinja environment: all text is escaped and printable.

    Args:
        folders: Folders with more templates than the report's own.
    """
    templates = Environment(
        loader=FileSystemLoader([*folders, _HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals["described"] = described
    return templates


def _content(runs: Sequence[Records]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the template shows, and the figure of each plot by its id."""
    parts, (each_metric, declared) = sections(runs), metric_plots(runs)
    content = {
        "runs": [_run(run) for run in runs],
        "sections": parts,
        "metrics": [_metric(plot, declared[plot.title], runs) for plot in each_metric],
        "first_shown": [plot for plot in each_metric if plot.title in FIRST_SHOWN],
    }
    plots = [*(plot for section in parts for plot in section.plots), *each_metric]
    return content, {plot.id: figure(plot) for plot in plots}


def embedded(value: Any) -> str:
    """Return JSON for a ``<script type="application/json">`` that cannot end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _shown(value: Any) -> Any:
    """Make each text printable; our own markup has another type and is left as it is."""
    return printable(value) if type(value) is str else value


def _policy(*scripts: str) -> str:
    hashes = (
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
        for script in scripts
    )
    allowed = " ".join(f"'sha256-{hashe}'" for hashe in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _run(run: Records) -> dict[str, Any]:
    return {
        "label": run.label,
        "outcome": run.view.outcome,
        "facts": run.facts,
        "trouble": trouble(run),
        "notes": run.summary["notes"],
        "samples": samples(run),
    }


def _metric(plot: Plot, metric: Metric | None, runs: Sequence[Records]) -> dict[str, Any]:
    return {
        "id": plot.id,
        "name": plot.title,
        "meaning": metric.meaning if metric else NOT_EXPLAINED,
        "unit": metric.unit if metric else "",
        "values": [_range(run, plot.title) for run in runs],
    }


def _range(run: Records, name: str) -> tuple[str, ...]:
    """Return the first, last, lowest and highest value of a metric."""
    known = [value for value in run.metric(name)[1] if value is not None]
    ends = (known[0], known[-1], min(known), max(known)) if known else ()
    return tuple(f"{value:.4g}" for value in ends)
