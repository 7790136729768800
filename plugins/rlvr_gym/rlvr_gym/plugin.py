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
    registrar.add(
        "tiny",
        "rlvr_gym.tiny:Tiny",
        summary="Sums of three digits that a tiny model learns on a CPU.",
    )


@hookimpl
def register_verifiers(registrar: Registrar) -> None:
    """Add the generators' own scoring."""
    registrar.add(
        "answer",
        "rlvr_gym.verifiers:Answer",
        summary="The scoring of the generator that made the problem.",
    )


@hookimpl
def register_eval_tasks(registrar: Registrar) -> None:
    """Add the evaluations on held-out problems."""
    registrar.add(
        "heldout",
        "rlvr_gym.evals:Heldout",
        summary="Unseen problems of reasoning-gym's generators.",
    )
    registrar.add(
        "tiny-heldout",
        "rlvr_gym.evals:TinyHeldout",
        summary="Unseen sums of three digits, sampled at temperature 1.",
    )
    registrar.add(
        "tiny-heldout-greedy",
        "rlvr_gym.evals:TinyHeldoutGreedy",
        summary="Unseen sums of three digits, greedy.",
    )


@hookimpl
def register_commands(registrar: Registrar) -> None:
    """Add ``rlvr gym ...``."""
    registrar.add(
        "list", "rlvr_gym.commands:list_them", summary="List the generators, levels and fences."
    )
    registrar.add(
        "show", "rlvr_gym.commands:show", summary="Show a generator's options, levels, an example."
    )
