"""Reads an evaluation back from its folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from rlvr_core.api import ConfigError
from rlvr_core.eval.store import paired, slug
from rlvr_core.record.view import Metrics


class EvaluationView:
    """The results of an evaluation: the folder that ``rlvr eval`` writes.

    ```python
    results = rlvr_core.evaluate(run, ["math/gsm8k-test"])
    results.metrics["accuracy"], results.value("math/gsm8k-test")
    ```

    Args:
        path: The results folder.

    Raises:
        ConfigError: If it holds no results of an evaluation.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not any(self.path.glob("*/spec.json")):
            raise ConfigError(
                f"'{path}' holds no results of an evaluation",
                remedy="give the folder that rlvr eval wrote, with a folder in it for each task",
            )

    def __repr__(self) -> str:
        return f"<EvaluationView {self.path}: {len(self.tasks)} tasks>"

    @cached_property
    def tasks(self) -> Mapping[str, Mapping[str, Any]]:
        """The summary of each task by name, as printed by ``rlvr eval --json``.

        Empty if it has not finished: the same command goes on with it.
        """
        try:
            text = (self.path / "summary.json").read_text(encoding="utf-8")
            tasks: Mapping[str, Mapping[str, Any]] = json.loads(text)["tasks"]
        except (OSError, ValueError, TypeError, KeyError):
            return {}
        return tasks

    @cached_property
    def metrics(self) -> Metrics:
        """The metrics as a table with one row per task; ``metrics.rows`` has the task names."""
        return Metrics(
            [
                {
                    "task": name,
                    **{metric: each["value"] for metric, each in summary["metrics"].items()},
                }
                for name, summary in self.tasks.items()
            ]
        )

    def rollouts(self) -> Iterator[dict[str, Any]]:
        """Yield every problem with its completions and their verdicts, task by task."""
        for task in self.tasks:
            for completions, judged in paired(self.path / slug(task)):
                rows = [
                    completion | result
                    for completion, result in zip(completions, judged, strict=True)
                ]
                yield {"task": task, "problem_id": rows[0]["problem_id"], "completions": rows}

    def value(self, task: str, metric: str = "accuracy") -> float | None:
        """Return one metric of a task; None if it could not be computed.

        Raises:
            KeyError: If there is no such task or metric.
        """
        value: float | None = self.tasks[task]["metrics"][metric]["value"]
        return value
