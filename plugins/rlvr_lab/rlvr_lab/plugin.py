"""Registers what rlvr-lab offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr_core.api import Registrar, hookimpl

if TYPE_CHECKING:  # ``rlvr --help`` reads the commands below, and must not wait for torch
    from collections.abc import Sequence

    from rlvr_core.api import DataReport, Problem, RunData
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.verify.reward import RewardPlan


@hookimpl
def register_eval_tasks(registrar: Registrar) -> None:
    """Add the eval tasks."""
    registrar.add(
        "lm_eval",
        "rlvr_lab.lm_eval.task:LmEval",
        summary="A task of lm-evaluation-harness, with its own prompts, through our engines.",
    )


@hookimpl
def register_trackers(registrar: Registrar) -> None:
    """Add the trackers."""
    registrar.add(
        "trackio",
        "rlvr_lab.trackers.trackio:Trackio",
        summary="Trackio, a dashboard on this machine.",
    )
    registrar.add(
        "mlflow",
        "rlvr_lab.trackers.mlflow:MLflow",
        summary="A tracking server of MLflow, or its files.",
    )


@hookimpl
def register_commands(registrar: Registrar) -> None:
    """Add the commands."""
    registrar.add(
        "compare",
        "rlvr_lab.commands.compare:compare",
        summary="Compare two evaluations problem by problem.",
    )
    registrar.add(
        "passk",
        "rlvr_lab.commands.passk:passk",
        summary="Measure pass@k, and how hard each problem is.",
    )
    registrar.add(
        "regrade",
        "rlvr_lab.commands.regrade:regrade",
        summary="Judge stored completions by another verifier.",
    )
    registrar.add(
        "calibrate",
        "rlvr_lab.calibration.command:calibrate",
        summary="Measure the judges of a config before a run trains on them.",
    )
    registrar.add(
        "export",
        "rlvr_lab.export.command:export_",
        summary="Write a checkpoint's model or adapter, merged.",
    )
    registrar.add(
        "watch",
        "rlvr_lab.commands.watch:watch",
        summary="Evaluate checkpoints of a run as they appear.",
    )


@hookimpl
def calibrate_judges(
    problems: Sequence[Problem], plan: RewardPlan, resolved: Resolved
) -> DataReport:
    """By answers whose right verdict is known."""
    from rlvr_lab.calibration.gate import calibrated

    return calibrated(problems, plan, resolved)


@hookimpl
def check_data(data: RunData) -> DataReport | None:
    """Look for held-out problems in the training data, where any are held out."""
    if not data.held_out:
        return None
    from rlvr_lab.contamination.check import check_run

    return check_run(data)
