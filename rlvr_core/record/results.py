"""A run's results for people: its key facts, and ``RESULTS.md``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr_core.record.files import write_atomic
from rlvr_core.record.rundir import RunFolder
from rlvr_core.record.text import brief, printable
from rlvr_core.record.view import RunView


def write_results(folder: RunFolder) -> Path:
    """Write ``RESULTS.md`` from the records, and return its path.

    Raises:
        RunError: If it cannot be written.
    """
    summary = RunView(folder).summary()
    lines = [f"# {_cell(summary['name'])}", "", "| | |", "|---|---|"]
    lines += [f"| {label} | {_cell(value)} |" for label, value in facts(summary)]
    lines += [f"| note | {_cell(note)} |" for note in summary["notes"]]
    if evals := summary["curve"]["evals"]:
        lines += ["", "## Held-out problems", "", "| task | metric | step | value |"]
        lines.append("|---|---|---|---|")
        for curve in evals:
            for step, value in zip(curve["step"], curve["value"], strict=True):
                shown = "" if value is None else brief(value, 4)
                task = f"{_cell(curve['task'])} (temperature {curve['temperature']:g})"
                lines.append(f"| {task} | {_cell(curve['metric'])} | {step} | {shown} |")
    if "ledger" in summary:
        lines += ["", "## Ledger", "", "| fate | completions |", "|---|---|"]
        counts = {name: n for name, n in summary["ledger"].items() if name != "balanced"}
        lines += [f"| {_cell(name)} | {count} |" for name, count in counts.items()]
    lines += ["", f"Show it: `rlvr show {folder.name}`", ""]
    write_atomic(folder.results, "\n".join(lines))
    return folder.results


def facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the few lines that describe how a run went, as label and value."""
    planned = summary["planned_steps"]
    steps = f"{summary['steps']} of {planned}" if planned else f"{summary['steps']}"
    lines = [("outcome", summary["outcome"]), ("steps", steps)]
    if settings := _settings(summary["settings"]):
        lines.append(("settings", settings))
    lines += [(name, str(summary[name])) for name in ("error", "reason") if summary[name]]
    if summary["resumed"]:
        lines.append(("resumed", f"{summary['resumed']} times"))
    lines += _heldout_facts(summary.get("heldout"))
    curve = summary["curve"]
    for name, label in (("reward", "reward"), ("pass_rate", "pass rate")):
        values = [value for value in curve[name] if value is not None]
        if values:
            lines.append((label, f"{brief(values[0])} -> {brief(values[-1])} in training"))
    if "parity" in summary:
        parity = summary["parity"]
        shown = ", ".join(f"{name} {value:.2g}" for name, value in parity.items())
        lines.append(("parity", f"trainer - engine log-prob: {shown}"))
    if "ledger" in summary:
        ledger = summary["ledger"]
        word = "balances" if ledger["balanced"] else "DOES NOT BALANCE"
        lines.append(("ledger", f"{word}: {ledger['drawn']} drawn, {ledger['trained']} trained"))
    if summary["step_seconds"]:
        rate = summary["tokens_per_second"]
        speed = f", {rate:.0f} completion tokens/s" if rate else ""
        lines.append(("time", f"{summary['step_seconds']:.1f} s in steps{speed}"))
    if summary["checkpoints"]:
        lines.append(("checkpoints", ", ".join(summary["checkpoints"])))
    return lines


def _settings(settings: Mapping[str, Any]) -> str:
    """Format the settings in one line; unknown ones are left out."""
    known = {name: value for name, value in settings.items() if value is not None}
    parts = [str(known["model"])] if "model" in known else []
    for name in ("data", "loss"):
        if used := [use for use in known.get(name, ()) if use]:
            parts.append(" + ".join(used))
    if "prompts_per_step" in known and "n" in known:
        parts.append(f"{known['prompts_per_step']} prompts x {known['n']}")
    for name in ("max_tokens", "lr", "seed"):
        if name in known:
            parts.append(f"{name} {known[name]}")
    return ", ".join(parts)


def _heldout_facts(heldout: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if heldout is None:
        return []
    text = f"{_arrow(heldout)} {heldout['metric']} on {heldout['n']} problems of {heldout['task']}"
    text += f", temperature {heldout['temperature']:g}"
    if heldout["before_interval"] or heldout["after_interval"]:
        text += ", 95% intervals"
    facts = [("held out", text)]
    if "greedy" in heldout and heldout["temperature"] > 0:
        facts.append(("greedy", _arrow(heldout["greedy"])))
    return facts


def _arrow(ends: Mapping[str, Any]) -> str:
    return f"{_end(ends, 'before')} -> {_end(ends, 'after')}"


def _end(ends: Mapping[str, Any], name: str) -> str:
    if ends[name] is None:
        return "?"
    interval = ends[f"{name}_interval"]
    text = "" if interval is None else f" ({interval[0]:.3f} to {interval[1]:.3f})"
    return f"{brief(ends[name])}{text}"


def _cell(text: Any) -> str:
    """Escape text for a cell of a Markdown table, where bars, line ends and HTML have a meaning."""
    shown = " ".join(printable(str(text), 2000).split())
    for mark in "\\|<>`[]*_":
        shown = shown.replace(mark, f"\\{mark}")
    return shown
