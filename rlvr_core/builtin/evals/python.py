"""``rlvr_core.evaluate``: an evaluation from Python, in a script or a notebook."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api.services import Metrics, option, plain, signals_restored
from rlvr_core.builtin.evals.commands.eval_options import Options, open_session, say
from rlvr_core.builtin.evals.store import paired, slug

if TYPE_CHECKING:
    from collections.abc import Callable

    from rlvr_core.api import RunView


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation found, with the members that ``RunView`` has where both have them.

    Attributes:
        path: Folder of its results.
        tasks: The summary of each task by name, as ``rlvr eval --json`` prints it.
        outcome: How it ended: an evaluation that fails raises an error in its place.
    """

    path: Path
    tasks: Mapping[str, Mapping[str, Any]]
    outcome: str = "finished"

    @property
    def metrics(self) -> Metrics:
        """The metrics as a table with one row a task: ``metrics["accuracy"]``, ``metrics.rows``."""
        return Metrics(
            [
                {"task": name, **{key: one["value"] for key, one in summary["metrics"].items()}}
                for name, summary in self.tasks.items()
            ]
        )

    def rollouts(self) -> Iterator[dict[str, Any]]:
        """Every problem with its completions and their verdicts, task by task."""
        for task in self.tasks:
            for said, judged in paired(self.path / slug(task)):
                rows = [one | other for one, other in zip(said, judged, strict=True)]
                yield {"task": task, "problem_id": rows[0]["problem_id"], "completions": rows}

    def value(self, task: str, metric: str = "accuracy") -> float | None:
        """One number; None where it could not be computed.

        Raises:
            KeyError: If there is no such task or metric.
        """
        found: float | None = self.tasks[task]["metrics"][metric]["value"]
        return found


def evaluate(
    model: str | os.PathLike[str] | RunView,
    tasks: Sequence[str | Mapping[str, Any] | type[Any]] = (),
    *,
    config: str | os.PathLike[str] | None = None,
    rewards: Sequence[Callable[..., Any] | str | Mapping[str, Any]] | None = None,
    set: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Evaluation:
    """Evaluate a model or a run on held-out tasks; the same as ``rlvr eval``.

    Args:
        model: A folder, hub id or ``tiny:TASK``, or a run: its newest complete checkpoint.
        tasks: Names of eval tasks, mappings as in YAML (``{"use": …, "with": {…}}``), or classes.
        config: A YAML file of an evaluation.
        rewards: Functions, names of verifiers, or mappings as in YAML, in the place of each
            problem's own verifier.
        set: Values by dotted key, on top: ``{"limit": 100, "engine.use": "transformers"}``.
        out: Folder of the results; ``evals/<model>`` if left out.

    Returns:
        The results.

    Raises:
        RlvrError: What ``rlvr eval`` would say; ``str(error)`` has it all.
    """
    from rlvr_core.builtin.evals.evaluate import check_truncation, write_summary
    from rlvr_core.builtin.evals.evaluate import evaluate as carry_out

    overrides = [option("tasks", list(tasks))] if tasks else []
    overrides += [] if rewards is None else [option("rewards", list(rewards))]
    overrides += [option(key, value) for key, value in (set or {}).items()]
    given = Options(
        tasks=(),
        options=(),
        graders=(),
        config=None if config is None else Path(config),
        overrides=tuple(overrides),
        step=None,
        runs_dir="runs",
        engine=None,
        limit=None,
        seed=None,
        out=None if out is None else Path(out),
        allow_truncation=False,
        trained_on=(),
        allow_contamination=False,
        as_json=False,
    )
    text = plain(model) if isinstance(model, str | os.PathLike) else str(model.path)
    with signals_restored():
        session, folder = open_session(text, given)
        where = given.out or folder
        summaries = carry_out(session, where, say)
        write_summary(where, {"folder": str(where), "tasks": summaries})
    check_truncation(summaries)
    return Evaluation(where, summaries)
