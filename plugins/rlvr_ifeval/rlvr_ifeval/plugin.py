"""Registers what rlvr-ifeval offers."""

from __future__ import annotations

from rlvr_core.api import Registrar, hookimpl


@hookimpl
def register_datasets(registrar: Registrar) -> None:
    """Add the instruction-following data sets."""
    registrar.add(
        "ifeval",
        "rlvr_ifeval.datasets:Ifeval",
        summary="IFEval's 541 prompts with checkable constraints, for evaluation.",
    )
    registrar.add(
        "ifbench",
        "rlvr_ifeval.datasets:Ifbench",
        summary="IFBench's 300 prompts with harder constraints, for evaluation.",
    )
    registrar.add(
        "rlvr-ifeval",
        "rlvr_ifeval.datasets:RlvrIfeval",
        summary="AllenAI's training prompts with one constraint each.",
    )
    registrar.add(
        "mixed-if",
        "rlvr_ifeval.datasets:MixedIf",
        summary="The instruction-following part of AllenAI's mixed training set.",
    )
    registrar.add(
        "multi-constraints",
        "rlvr_ifeval.datasets:MultiConstraints",
        summary="AllenAI's training prompts with up to five constraints each.",
    )
    registrar.add(
        "synthetic",
        "rlvr_ifeval.synthetic:Synthetic",
        summary="Generated constraints on a few words that a tiny model learns on a CPU.",
    )


@hookimpl
def register_verifiers(registrar: Registrar) -> None:
    """Add the verifiers of constraints."""
    registrar.add(
        "ifeval",
        "rlvr_ifeval.verifiers:Ifeval",
        summary="Every constraint of an IFEval problem is followed, strictly or loosely.",
    )
    registrar.add(
        "ifbench",
        "rlvr_ifeval.verifiers:Ifbench",
        summary="Every constraint of an IFBench problem is followed.",
    )
    registrar.add(
        "multi",
        "rlvr_ifeval.verifiers:Multi",
        summary="The share of a multi-constraint training problem's constraints followed.",
    )
    registrar.add(
        "rlvr",
        "rlvr_ifeval.verifiers:Rlvr",
        summary="The one constraint of an RLVR-IFEval problem is followed.",
    )
    registrar.add(
        "synthetic",
        "rlvr_ifeval.synthetic:Verifier",
        summary="Every constraint of a generated problem is followed.",
    )


@hookimpl
def register_eval_tasks(registrar: Registrar) -> None:
    """Add the evaluations."""
    registrar.add(
        "ifeval",
        "rlvr_ifeval.evals:Ifeval",
        summary="IFEval, greedy: prompt and instruction accuracy, strict and loose.",
    )
    registrar.add(
        "ifbench",
        "rlvr_ifeval.evals:Ifbench",
        summary="IFBench, greedy: prompt and instruction accuracy, strict and loose.",
    )
    registrar.add(
        "synthetic-heldout",
        "rlvr_ifeval.synthetic:Heldout",
        summary="Unseen combinations of generated constraints, sampled at temperature 1.",
    )
    registrar.add(
        "synthetic-heldout-greedy",
        "rlvr_ifeval.synthetic:HeldoutGreedy",
        summary="Unseen combinations of generated constraints, greedy.",
    )


@hookimpl
def register_commands(registrar: Registrar) -> None:
    """Add ``rlvr ifeval list``."""
    registrar.add(
        "list",
        "rlvr_ifeval.commands:list_constraints",
        summary="List the constraints, their arguments and what they ask for.",
    )
