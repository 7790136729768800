"""The data that a report reads from the folder of one run."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from rlvr_core.record.results import facts
from rlvr_core.toolkit import RunView, finite, read_jsonl
from rlvr_view.report.groups import Groups, read_groups


class Records:
    """The records of a run; each part is read on first access.

    Args:
        view: The run.
        label: Name of the run in the report.
        groups: The groups, if already read; None to read the rollouts.
    """

    def __init__(self, view: RunView, label: str, groups: Groups | None = None) -> None:
        self.view = view
        self.label = label
        self._groups = groups

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The run's summary, as printed by ``rlvr show --json``."""
        return self.view.summary()

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The few lines that describe how the run went."""
        return facts(self.summary)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The metrics of each step."""
        return self.view.metrics.rows

    @property
    def metrics(self) -> list[str]:
        """Names of all metrics, in alphabetical order."""
        return sorted(set(self.view.metrics) - {"step", "version"})

    def metric(self, name: str) -> tuple[list[int], list[float | None]]:
        """Return the steps at which a metric was reported, and its values there."""
        rows = [row for row in self.rows if name in row]
        return [row["step"] for row in rows], [finite(row[name]) for row in rows]

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """Every evaluation, with the interval of its accuracy."""
        from rlvr_view.report.paired import evaluation_points

        points: list[dict[str, Any]] = evaluation_points(self.view)
        return points

    @cached_property
    def groups(self) -> Groups:
        """Outcomes and samples of the groups."""
        if self._groups is not None:
            return self._groups
        rollouts = read_jsonl(self.view.folder.traces / "rollouts.jsonl")
        return read_groups(rollouts, self.view.steps)

    @cached_property
    def timing(self) -> dict[int, dict[str, float]]:
        """Seconds by phase of each step that has metrics; a phase with a dot is a part."""
        return self.view.step_seconds


def labels(views: list[RunView]) -> list[str]:
    """Return a name for each run: its folder's, with parent folders where two are equal."""
    names = [view.folder.name for view in views]
    return [
        str(view.path.resolve()) if names.count(name) > 1 else name
        for view, name in zip(views, names, strict=True)
    ]
