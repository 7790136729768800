"""What a run's folder says of the run.

Reads records only, so that old, copied, running and half-broken folders can be shown; what is
missing is said in ``notes``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from rlvr_core.api.errors import ConfigError
from rlvr_core.api.types import Json
from rlvr_core.record.checkpoints import CheckpointStore
from rlvr_core.record.evaluations import eval_curves, finite, heldout, read_evaluations
from rlvr_core.record.jsonl import read_jsonl
from rlvr_core.record.ledger import FATES
from rlvr_core.record.manifest import Manifest, is_alive, seconds_between
from rlvr_core.record.rundir import RunFolder


def summarise(folder: RunFolder) -> dict[str, Json]:
    """Everything worth knowing of a run, as JSON.

    ``heldout`` is there only where held-out problems were evaluated, ``parity`` and ``ledger`` only
    where they were recorded, ``staleness`` and ``ledger_by_version`` only where generation went on
    while training ran. A number that is not known is None.
    """
    notes: list[str] = []
    manifest = _manifest(folder, notes)
    lines = read_metrics(folder)
    evals = read_evaluations(folder)
    if not lines:
        notes.append("metrics.jsonl has no steps yet" if folder.metrics.exists() else _NO_METRICS)
    seconds, tokens_per_second = _speed(folder, lines)
    started = manifest.get("started")
    resolved = _resolved(folder)
    steps = _known(resolved, "train", "steps")
    summary: dict[str, Json] = {
        "name": manifest.get("name") or folder.name,
        "folder": str(folder.path),
        "outcome": _outcome(manifest, notes),
        "error": manifest.get("error"),
        "reason": manifest.get("reason"),
        "steps": max(int(manifest.get("steps") or 0), lines[-1]["step"] + 1 if lines else 0),
        "planned_steps": steps if isinstance(steps, int) else None,
        "settings": _settings(resolved),
        "started": started,
        "resumed": len(manifest.get("resumed") or []),
        "elapsed_seconds": seconds_between(started, manifest.get("ended")),
        "step_seconds": seconds,
        "tokens_per_second": tokens_per_second,
        "curve": {
            "step": [line["step"] for line in lines],
            "reward": [finite(line.get("reward/mean")) for line in lines],
            "pass_rate": [finite(line.get("pass_rate")) for line in lines],
            "evals": eval_curves(evals),
        },
        "checkpoints": [path.name for path in CheckpointStore(folder.checkpoints, 1).complete()],
    }
    counted = bool(lines) and all("rows" in line for line in lines)
    if counted and not any(line.get("grad_norm") for line in lines):
        notes.append("no update changed the weights: no group had rewards that differ")
    for name, part in (
        ("heldout", heldout(folder, evals)),
        ("parity", _parity(lines)),
        ("ledger", _ledger(lines)),
        *_staleness(lines),
    ):
        if part is not None:
            summary[name] = part
    summary["notes"] = notes
    return summary


def read_metrics(folder: RunFolder) -> list[dict[str, Any]]:
    """Lines of ``metrics.jsonl`` by step, numbers that were not finite put back."""
    steps: dict[int, dict[str, Any]] = {}
    for line in read_jsonl(folder.metrics):
        odd = line.pop("non_finite", {})
        if isinstance(odd, dict):
            line |= {name: _float(text) for name, text in odd.items()}
        if isinstance(line.get("step"), int):
            steps[line["step"]] = line
    return [steps[step] for step in sorted(steps)]


_NO_METRICS = "metrics.jsonl is missing: no numbers of steps"


def _manifest(folder: RunFolder, notes: list[str]) -> dict[str, Any]:
    try:
        return Manifest.read(folder).fields
    except ConfigError as error:
        notes.append(error.complaints[0].what)
        return {}


def _outcome(manifest: Mapping[str, Any], notes: list[str]) -> str:
    outcome = manifest.get("outcome")
    if outcome not in ("running", "finished", "stopped", "failed", "interrupted"):
        return "unknown"
    process = manifest.get("process")
    if outcome != "running" or not isinstance(process, dict):
        return str(outcome)
    alive = is_alive(process)
    if alive is None:
        host = process.get("host")
        notes.append(f"it was running on {host}; whether it still does cannot be seen from here")
    elif not alive:
        notes.append("its process is gone without a word: killed, or the machine went down")
        return "interrupted"
    return "running"


def _resolved(folder: RunFolder) -> Json:
    """The run's whole configuration, as far as it can be read."""
    try:
        return yaml.safe_load(folder.resolved.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None


def _known(found: Any, *path: str) -> Json:
    """The value at a path of a mapping; None where there is no such path."""
    for key in path:
        if not isinstance(found, Mapping) or key not in found:
            return None
        found = found[key]
    return found


def _settings(resolved: Json) -> dict[str, Json]:
    """What people quote of a run, from its configuration alone (T85)."""
    losses, sources = _known(resolved, "loss"), _known(resolved, "data", "sources")
    losses = losses if isinstance(losses, list) else [losses]
    sources = sources if isinstance(sources, list) else []
    return {
        "model": _known(resolved, "model", "path"),
        "data": [_known(source, "use") for source in sources],
        "loss": [_known(loss, "use") for loss in losses],
        "lr": _known(resolved, "train", "lr"),
        "prompts_per_step": _known(resolved, "sampler", "with", "prompts_per_step"),
        "n": _known(resolved, "sampling", "n"),
        "max_tokens": _known(resolved, "sampling", "max_tokens"),
        "seed": _known(resolved, "run", "seed"),
    }


def _speed(folder: RunFolder, lines: Sequence[Mapping[str, Any]]) -> tuple[float, float | None]:
    """Seconds spent in the steps that there are, and completion tokens a second over them."""
    spent: dict[int, float] = {}
    for line in read_jsonl(folder.traces / "timing.jsonl"):
        phases = line.get("seconds")
        if isinstance(line.get("step"), int) and isinstance(phases, dict):
            whole = (_float(value) for name, value in phases.items() if "." not in name)
            spent[line["step"]] = math.fsum(value for value in whole if math.isfinite(value))
    if lines:  # a resumed run has the times of steps that were cut away, and may not be there yet
        spent = {step: spent[step] for step in spent.keys() & {line["step"] for line in lines}}
    total = math.fsum(spent.values())
    tokens = sum(line.get("tokens/completion", 0) for line in lines if line["step"] in spent)
    return total, tokens / total if total > 0 and tokens else None


def _parity(lines: Sequence[Mapping[str, Any]]) -> dict[str, Json] | None:
    """The worst over all checks of a run."""
    checked = [line for line in lines if "parity/mean" in line and "parity/max" in line]
    if not checked:
        return None
    return {name: max(_float(line[f"parity/{name}"]) for line in checked) for name in _PARITY}


_PARITY = ("mean", "max")


def _ledger(lines: Sequence[Mapping[str, Any]]) -> dict[str, Json] | None:
    counted = [line for line in lines if "ledger/drawn" in line]
    if not counted:
        return None
    totals = dict.fromkeys(("drawn", *FATES), 0)
    details: dict[str, int] = {}
    balanced, before = True, 0
    for line in counted:
        settled = sum(int(line.get(f"ledger/{fate}", 0)) for fate in FATES)
        after = int(line.get("ledger/in_flight", 0))
        balanced &= before + int(line["ledger/drawn"]) == settled + after
        before = after
        for name in totals:
            totals[name] += int(line.get(f"ledger/{name}", 0))
        for name, count in line.items():
            if name.startswith("ledger/") and name.count("/") == 2:
                key = name.removeprefix("ledger/")
                details[key] = details.get(key, 0) + int(count)
    return {"balanced": balanced, **totals, "in_flight": before, **dict(sorted(details.items()))}


_AGE = re.compile(r"staleness/(\w+)/(\d+)")


def _staleness(lines: Sequence[Mapping[str, Any]]) -> list[tuple[str, dict[str, Json] | None]]:
    """Readings of completions by age, and what became of those of each policy version."""
    ages: Counter[int] = Counter()
    versions: dict[int, Counter[str]] = {}
    for line in lines:
        for name, count in line.items():
            found = _AGE.fullmatch(name)
            if found is None or not isinstance(line.get("version"), int):
                continue
            fate, age = found[1], int(found[2])
            if fate == "reread":  # the ledger has it since it was read first
                ages[age] += int(count)
                continue
            versions.setdefault(line["version"] - age, Counter())[fate] += int(count)
            if fate == "trained":
                ages[age] += int(count)
    if not versions:
        return []
    return [
        ("staleness", {str(age): ages[age] for age in sorted(ages)}),
        ("ledger_by_version", {str(v): dict(versions[v]) for v in sorted(versions)}),
    ]


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
