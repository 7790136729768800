"""Registers what rlvr-gym offers."""

from __future__ import annotations

from rlvr_core.api import Registrar, hookimpl


@hookimpl
def register_datasets(registrar: Registrar) -> None:
    """Add the generators."""
    add = registrar.add
    add("tasks", "rlvr_gym.datasets:Tasks", summary="Problems of generators, by difficulty.")
    add("tiny", "rlvr_gym.tiny:Tiny", summary="Sums of three digits, for tiny models.")


@hookimpl
def register_verifiers(registrar: Registrar) -> None:
    """Add the generators' own scoring."""
    add = registrar.add
    add("answer", "rlvr_gym.verifiers:Answer", summary="The scoring of the generator.")


@hookimpl
def register_eval_tasks(registrar: Registrar) -> None:
    """Add the evaluations on held-out problems."""
    add = registrar.add
    add("heldout", "rlvr_gym.evals:Heldout", summary="Unseen problems of generators.")
    add("tiny-heldout", "rlvr_gym.evals:TinyHeldout", summary="Unseen sums, sampled.")
    add("tiny-heldout-greedy", "rlvr_gym.evals:TinyHeldoutGreedy", summary="Unseen sums, greedy.")


@hookimpl
def register_commands(registrar: Registrar) -> None:
    """Add ``rlvr gym ...``."""
    add = registrar.add
    add("list", "rlvr_gym.commands:list_them", summary="List the generators and fences.")
    add("show", "rlvr_gym.commands:show", summary="Show options, levels, an example.")
