"""Registers what rlvr-doctor offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr_core.api import Registrar, hookimpl

if TYPE_CHECKING:  # ``rlvr --help`` reads the commands below, and must not wait for torch
    from rlvr_core.api import DataReport
    from rlvr_core.toolkit import Resolved


@hookimpl
def register_commands(registrar: Registrar) -> None:
    """Add the commands."""
    registrar.add(
        "data",
        "rlvr_doctor.datacheck.command:data",
        summary="Check task sets.",
    )
    registrar.add(
        "models",
        "rlvr_doctor.modelcheck.command:models",
        summary="Check a model's files.",
    )
    registrar.add(
        "plan",
        "rlvr_doctor.planner.command:plan",
        summary="Compute the memory and time of a run on GPUs.",
    )
    registrar.add(
        "doctor",
        "rlvr_doctor.command:doctor",
        summary="Examine a config or the GPUs, or list what this machine has.",
    )
    registrar.add(
        "selftest",
        "rlvr_doctor.examination.command:selftest",
        summary="Test that training works with a config's model and data.",
    )


@hookimpl
def choose_checkpointing(resolved: Resolved, model_path: str) -> DataReport:
    """Choose ``train.gradient_checkpointing`` by planned memory."""
    from rlvr_doctor.planner.checkpointing import choose_for_run

    return choose_for_run(resolved, model_path)
