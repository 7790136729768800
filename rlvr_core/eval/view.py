"""Reads an evaluation back from its folder, as ``RunView`` does for a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from rlvr_core.api import ConfigError, Json
from rlvr_core.eval.store import paired, slug
from rlvr_core.record.rundir import RunFolder
from rlvr_core.record.view import Metrics, RunView

_BESIDE = ("model", "engine", "versions")
"""Keys recorded beside the numbers of each task, equal for all tasks."""


class EvaluationView(RunView):
    """The results of an evaluation: a ``RunView`` of the folder that ``rlvr eval`` writes.

    ```python
    found = rlvr_core.evaluate(run, ["math/gsm8k-test"])
    found.outcome, found.metrics["accuracy"], found.value("math/gsm8k-test")
    ```

    Nothing is trained, so it has no steps, ledger, or checkpoints.

    Args:
        path: The results folder.

    Raises:
        ConfigError: If it holds no results of an evaluation.
    """

    def __init__(self, path: str | Path) -> None:
        self.folder = RunFolder(Path(path))
        if not any(self.path.glob("*/spec.json")):
            raise ConfigError(
                f"'{path}' holds no results of an evaluation",
                remedy="give the folder that rlvr eval wrote, with a folder in it for each task",
            )

    def __repr__(self) -> str:
        return f"<EvaluationView {self.path}: {self.outcome}, {len(self.tasks)} tasks>"

    @cached_property
    def tasks(self) -> Mapping[str, Mapping[str, Any]]:
        """The summary of each task by name, as printed by ``rlvr eval --json``."""
        try:
            text = (self.path / "summary.json").read_text(encoding="utf-8")
            found: Mapping[str, Mapping[str, Any]] = json.loads(text)["tasks"]
        except (OSError, ValueError, TypeError, KeyError):
            return {}
        return found

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.name

    @property
    def manifest(self) -> dict[str, Any]:
        """Model, engine and versions; empty before the first task has finished."""
        first = next(iter(self.tasks.values()), {})
        return {name: first[name] for name in _BESIDE if name in first}

    @property
    def outcome(self) -> str:
        """``finished``, or ``unknown`` if the summary is missing; see ``notes``."""
        return "finished" if self.tasks else "unknown"

    @property
    def steps(self) -> int:
        """0: an evaluation takes no training steps."""
        return 0

    @cached_property
    def metrics(self) -> Metrics:
        """The metrics as a table with one row per task; ``metrics.rows`` has the task names."""
        return Metrics([{"task": line["task"], **line["metrics"]} for line in self.evaluations])

    def rollouts(self) -> Iterator[dict[str, Any]]:
        """Yield every problem with its completions and their verdicts, task by task."""
        for task in self.tasks:
            for completions, judged in paired(self.path / slug(task)):
                rows = [
                    completion | result
                    for completion, result in zip(completions, judged, strict=True)
                ]
                yield {"task": task, "problem_id": rows[0]["problem_id"], "completions": rows}

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """``task``, ``metrics`` and ``n`` (number of problems) of each task."""
        return [
            {
                "task": name,
                "n": summary["n_problems"],
                "metrics": {key: one["value"] for key, one in summary["metrics"].items()},
            }
            for name, summary in self.tasks.items()
        ]

    def best(self) -> Path:
        """Always raise: an evaluation has no checkpoint of its own.

        Raises:
            ConfigError: Always; names the model that was evaluated.
        """
        model = self.manifest.get("model") or {}
        raise ConfigError(
            "an evaluation trains nothing, so it has no checkpoint",
            where=str(self.path),
            remedy=f"the model it evaluated: {model['path']}" if "path" in model else (),
        )

    @property
    def notes(self) -> list[str]:
        """What is missing from the records, in sentences."""
        if self.tasks:
            return []
        return ["summary.json is missing: it has not finished; the same command goes on with it"]

    def summary(self) -> dict[str, Json]:
        """Folder and tasks as one JSON object, as printed by ``rlvr eval --json``."""
        return {"folder": str(self.path), "tasks": self.tasks}

    def value(self, task: str, metric: str = "accuracy") -> float | None:
        """Return one metric of a task; None if it could not be computed.

        Raises:
            KeyError: If there is no such task or metric.
        """
        found: float | None = self.tasks[task]["metrics"][metric]["value"]
        return found
