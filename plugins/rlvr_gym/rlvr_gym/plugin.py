"""Registers what rlvr-gym offers."""

from __future__ import annotations

from rlvr_core.api import Registrar, hookimpl


@hookimpl
def register_datasets(registrar: Registrar) -> None:
    """Add the generators."""
    registrar.add(
        "tasks",
        "rlvr_gym.datasets:Tasks",
        summary="Problems of reasoning-gym's generators, by level of difficulty.",
    )


@hookimpl
def register_verifiers(registrar: Registrar) -> None:
    """Add the generators' own scoring."""
    registrar.add(
        "answer",
        "rlvr_gym.verifiers:Answer",
        summary="The scoring of the generator that made the problem.",
    )
