"""Reads a run back from its folder: the one summary behind ``rlvr show``, ``RESULTS.md`` and code.

Only the records are read, so that old, copied, running and damaged runs can be viewed; ``notes``
lists what is missing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from rlvr_core.api import ConfigError, Json
from rlvr_core.record.checkpoints import CheckpointStore
from rlvr_core.record.find import find_run
from rlvr_core.record.jsonl import read_jsonl
from rlvr_core.record.ledger import FATES
from rlvr_core.record.manifest import Manifest, is_alive
from rlvr_core.record.rundir import RunFolder

_AGE = re.compile(r"staleness/(\w+)/(\d+)")


class Metrics(Mapping[str, list[float]]):
    """The metrics of a run as a table: column name -> one number per recorded step.

    ``dict(metrics)`` and ``pandas.DataFrame(dict(metrics))`` work as expected. Columns are ``step``
    (counted from 0), ``version``, and every metric that any step reported; steps that did not
    report it have NaN.

    Attributes:
        rows: The same data by row: one dict per step, with ``step`` and its metrics.
    """

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows = list(rows)
        cells = (cell for row in self.rows for cell in row.items())
        self._names = dict.fromkeys(name for name, value in cells if not isinstance(value, str))

    def __getitem__(self, name: str) -> list[float]:
        if name not in self._names:
            raise KeyError(name)
        return [_float(row.get(name)) for row in self.rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class RunView:
    """The records of one run. Each part is read from the folder on first use, and then cached.

    ```python
    run = RunView("runs/demo-20260101-120000")  # or RunView.find("last")
    run.outcome, run.steps, run.metrics["reward/mean"], run.best()
    ```

    To see what a running run has written since, create a new view.

    Args:
        path: The run's folder.

    Raises:
        ConfigError: If the folder does not exist, or is not a run's.
    """

    def __init__(self, path: str | Path | RunFolder) -> None:
        self.folder = path if isinstance(path, RunFolder) else RunFolder.open(path)

    @classmethod
    def find(cls, text: str = "last", runs_dir: str | Path = "runs") -> RunView:
        """Find the run that ``rlvr show TEXT`` would show.

        Args:
            text: ``last``, a run's name, a prefix of one, or a run's folder.
            runs_dir: Folder of run folders.

        Raises:
            ConfigError: If no run matches, or several do.
        """
        return cls(find_run(text, runs_dir))

    def __repr__(self) -> str:
        return f"<RunView {self.path}: {self.outcome}, {self.steps} steps>"

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder.path

    @property
    def name(self) -> str:
        """The run's name, ``run.name`` of its configuration."""
        return str(self.manifest.get("name") or self.folder.name)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """``run.json``: versions, hardware, data, times; empty if unreadable."""
        try:
            return Manifest.read(self.folder).fields
        except ConfigError:
            return {}

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved configuration; empty if unreadable."""
        try:
            content = yaml.safe_load(self.folder.resolved.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            return {}
        return content if isinstance(content, dict) else {}

    @property
    def outcome(self) -> str:
        """How the run ended.

        ``running``, ``finished``, ``stopped`` (early, see ``reason``), ``failed`` (see ``error``),
        ``interrupted`` or ``unknown``.
        """
        outcome = str(self.manifest.get("outcome", "unknown"))
        return "interrupted" if outcome == "running" and self._alive is False else outcome

    @property
    def error(self) -> str | None:
        """The error that a failed run ended with."""
        return self.manifest.get("error")

    @property
    def reason(self) -> str | None:
        """Why a run stopped before its last step."""
        return self.manifest.get("reason")

    @property
    def steps(self) -> int:
        """Number of training steps done."""
        rows = self.metrics.rows
        return max(int(self.manifest.get("steps") or 0), rows[-1]["step"] + 1 if rows else 0)

    @cached_property
    def metrics(self) -> Metrics:
        """Every metric of every step."""
        steps: dict[int, dict[str, Any]] = {}
        for row in read_jsonl(self.folder.metrics):
            row |= {name: float(text) for name, text in row.pop("non_finite", {}).items()}
            if isinstance(row.get("step"), int):
                steps[row["step"]] = row
        return Metrics([steps[step] for step in sorted(steps)])

    def rollouts(self) -> Iterator[dict[str, Any]]:
        """Yield every recorded group, oldest first; see ``docs/runs.md`` for the fields."""
        return read_jsonl(self.folder.traces / "rollouts.jsonl")

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """Evaluations during the run, oldest first: ``step``, ``task``, ``metrics``, ``n``, ..."""
        return [line for line in read_jsonl(self.folder.evals / "index.jsonl") if "task" in line]

    @cached_property
    def step_seconds(self) -> dict[int, dict[str, float]]:
        """The seconds by phase of each step that has metrics, in the order of the steps.

        A phase such as ``train.forward`` is a part of ``train``. A resumed run has timings of steps
        that were cut away: the newest of each step counts.
        """
        known = {row["step"] for row in self.metrics.rows}
        steps: dict[int, dict[str, float]] = {}
        for line in read_jsonl(self.folder.traces / "timing.jsonl"):
            if "seconds" in line and (line["step"] in known or not known):
                steps[line["step"]] = line["seconds"]
        return dict(sorted(steps.items()))

    @cached_property
    def ledger(self) -> dict[str, Json] | None:
        """Completions of the whole run by fate; None if they were not counted.

        ``drawn``, each fate, ``in_flight``, and ``balanced``: whether the counts add up at every
        step.
        """
        return _ledger(self.metrics.rows)

    @property
    def checkpoints(self) -> list[Path]:
        """Complete checkpoints, newest first."""
        return CheckpointStore(self.folder.checkpoints, 1).complete()

    def best(self) -> Path:
        """Return the checkpoint to use: the best by ``checkpoint.keep_best``, else the newest.

        Raises:
            ConfigError: If the run has no complete checkpoint.
        """
        complete = self.checkpoints
        if not complete:
            raise ConfigError(
                f"run '{self.folder.name}' has no complete checkpoint", where=str(self.path)
            )
        return CheckpointStore(self.folder.checkpoints, 1).best() or complete[0]

    @property
    def notes(self) -> list[str]:
        """Sentences about missing or unusual records."""
        rows = self.metrics.rows
        notes = [] if self.manifest else ["run.json cannot be read"]
        if not rows:
            there = self.folder.metrics.exists()
            state = "has no steps yet" if there else "is missing: no numbers of steps"
            notes.append(f"metrics.jsonl {state}")
        if self.outcome == "running" and self._alive is None:
            host = self.manifest.get("process", {}).get("host")
            notes.append(f"it was running on {host}; whether it still does cannot be seen here")
        if self.manifest.get("outcome") != self.outcome == "interrupted":
            notes.append(
                "its process ended without a record: it was killed, or the machine went down"
            )
        if rows and all("rows" in row for row in rows) and not any(map(_moved, rows)):
            notes.append("no update changed the weights: no group had rewards that differ")
        warnings = map(_warning_line, self.manifest.get("warnings") or ())
        return [*notes, *warnings, *_cut_off(self.evaluations)]

    def summary(self) -> dict[str, Json]:
        """The key results as one JSON object, as printed by ``rlvr show --json``.

        ``heldout`` is there only if held-out problems were evaluated, ``parity`` and ``ledger``
        only if they were recorded, ``staleness`` and ``ledger_by_version`` only if generation ran
        during training. Unknown numbers are None.
        """
        rows, manifest = self.metrics.rows, self.manifest
        seconds, tokens_per_second = self._speed()
        planned = _known(self.config, "train", "steps")
        curves, held_out = self._evaluated()
        parts: dict[str, Json] = {
            "heldout": held_out,
            "parity": _parity(rows),
            "ledger": self.ledger,
            **_staleness(rows),
        }
        return {
            "name": self.name,
            "folder": str(self.path),
            "outcome": self.outcome,
            "error": self.error,
            "reason": self.reason,
            "steps": self.steps,
            "planned_steps": planned if isinstance(planned, int) else None,
            "settings": _settings(self.config),
            "started": manifest.get("started"),
            "resumed": len(manifest.get("resumed") or []),
            "elapsed_seconds": seconds_between(manifest.get("started"), manifest.get("ended")),
            "step_seconds": seconds,
            "tokens_per_second": tokens_per_second,
            "curve": {
                "step": [row["step"] for row in rows],
                "reward": [finite(row.get("reward/mean")) for row in rows],
                "pass_rate": [finite(row.get("pass_rate")) for row in rows],
                "evals": curves,
            },
            "checkpoints": [path.name for path in self.checkpoints],
            **{name: part for name, part in parts.items() if part is not None},
            "notes": self.notes,
        }

    @cached_property
    def _alive(self) -> bool | None:
        return is_alive(self.manifest.get("process", {}))

    def _evaluated(self) -> tuple[list[dict[str, Json]], dict[str, Json] | None]:
        """Return the curve of each task, and held-out results before and after the run."""
        if not self.evaluations:
            return [], None
        from rlvr_core.record.curves import eval_curves, heldout

        return eval_curves(self.evaluations), heldout(self.folder, self.evaluations)

    def _speed(self) -> tuple[float, float | None]:
        """Return the seconds spent in recorded steps, and their completion tokens per second."""
        total = math.fsum(
            value
            for phases in self.step_seconds.values()
            for phase, value in phases.items()
            if "." not in phase
        )
        rows = (row for row in self.metrics.rows if row["step"] in self.step_seconds)
        tokens = sum(row.get("tokens/completion", 0) for row in rows)
        return total, tokens / total if total > 0 and tokens else None


MAX_CUT_OFF = 0.02
"""Share of answers of an evaluation that may be cut off at the token cap."""


def _warning_line(warning: Mapping[str, Json]) -> str:
    at = "" if (step := warning.get("step")) is None else f" (step {step + 1})"
    return f"{warning.get('id')}{at}: {warning.get('text')}"


def _cut_off(evaluations: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say what to do about evaluations of which too many answers were cut off."""
    shares: dict[str, float] = {}
    for line in evaluations:
        share = (line.get("basis") or {}).get("cut_off", 0.0)
        shares[line["task"]] = max(share, shares.get(line["task"], 0.0))
    for task, share in shares.items():
        if share > MAX_CUT_OFF:
            yield (
                f"evaluation {task}: up to {share:.1%} of the answers were cut off at "
                "the token cap; raise max_tokens of the task in eval.tasks"
            )


def _known(tree: Any, *path: str) -> Json:
    """Return the value at a path of a mapping; None if there is none."""
    for key in path:
        if not isinstance(tree, Mapping) or key not in tree:
            return None
        tree = tree[key]
    return tree


def _settings(resolved: Json) -> dict[str, Json]:
    """Return the settings that people quote of a run, from its configuration alone."""
    losses, sources = _known(resolved, "loss"), _known(resolved, "data", "sources")
    losses = losses if isinstance(losses, list) else [losses]
    sources = sources if isinstance(sources, list) else []
    return {
        "model": _known(resolved, "model", "path"),
        "data": [_known(source, "use") for source in sources],
        "loss": [_known(loss, "use") for loss in losses],
        "lr": _known(resolved, "train", "lr"),
        "prompts_per_step": _known(resolved, "train", "prompts_per_step"),
        "n": _known(resolved, "sampling", "n"),
        "max_tokens": _known(resolved, "sampling", "max_tokens"),
        "seed": _known(resolved, "run", "seed"),
    }


def _parity(lines: Sequence[Mapping[str, Any]]) -> dict[str, Json] | None:
    """Return the largest mean k3 and mean difference that guard ``parity`` found in a step."""
    checked = [line for line in lines if "parity/k3" in line]
    if not checked:
        return None
    names = ("k3", "bias")
    return {name: max(abs(_float(line[f"parity/{name}"])) for line in checked) for name in names}


def _ledger(lines: Sequence[Mapping[str, Any]]) -> dict[str, Json] | None:
    totals: Counter[str] = Counter()
    balanced, before = True, 0
    for line in lines:
        if "ledger/drawn" not in line:
            continue
        named = {n.removeprefix("ledger/"): n for n in line if n.startswith("ledger/")}
        counts = Counter({short: int(line[name]) for short, name in named.items()})
        after = counts.pop("in_flight", 0)
        settled = sum(counts[fate] for fate in FATES)
        balanced &= before + counts["drawn"] == settled + after
        before = after
        totals.update(counts)
    if not totals:
        return None
    columns = {name: totals[name] for name in ("drawn", *FATES)}
    details = {name: totals[name] for name in sorted(totals) if "/" in name}
    return {"balanced": balanced, **columns, "in_flight": before, **details}


def _staleness(lines: Sequence[Mapping[str, Any]]) -> dict[str, Json]:
    """Return completions trained on by age, and the fates of those of each policy version."""
    ages: Counter[int] = Counter()
    versions: dict[int, Counter[str]] = {}
    for line in lines:
        for name, count in line.items():
            match = _AGE.fullmatch(name)
            if match is None:
                continue
            fate, age = match[1], int(match[2])
            if fate == "reread":  # the ledger counted it when it was first read
                ages[age] += int(count)
                continue
            versions.setdefault(line["version"] - age, Counter())[fate] += int(count)
            if fate == "trained":
                ages[age] += int(count)
    if not versions:
        return {}
    return {
        "staleness": {str(age): ages[age] for age in sorted(ages)},
        "ledger_by_version": {str(v): dict(versions[v]) for v in sorted(versions)},
    }


def finite(value: Any) -> float | None:
    """Return the value if it is a finite number; else None."""
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    return None


def seconds_between(start: Any, end: Any) -> float | None:
    """Return the seconds between two time stamps of ``run.json``.

    Returns None if either is missing, or if the clock was set back so that they are in the wrong
    order.
    """
    try:
        seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    except (TypeError, ValueError):
        return None
    return seconds if seconds >= 0 else None


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _moved(row: Mapping[str, Any]) -> bool:
    """Whether the step's update changed the weights."""
    return bool(row.get("grad_norm"))
