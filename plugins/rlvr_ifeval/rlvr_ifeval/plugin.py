"""Registers what rlvr-ifeval offers."""

from __future__ import annotations

from rlvr_core.api import Registrar, hookimpl


@hookimpl
def register_datasets(registrar: Registrar) -> None:
    """Add the instruction-following data sets."""
    add = registrar.add
    add("ifeval", "rlvr_ifeval.datasets:Ifeval", summary="IFEval's 541 prompts, for evaluation.")
    add("ifbench", "rlvr_ifeval.datasets:Ifbench", summary="IFBench's 300 prompts, harder.")
    add("rlvr-ifeval", "rlvr_ifeval.datasets:RlvrIfeval", summary="One constraint per prompt.")
    add("mixed-if", "rlvr_ifeval.datasets:MixedIf", summary="Part of AllenAI's mixed set.")
    add("multi-constraints", "rlvr_ifeval.datasets:MultiConstraints", summary="Up to five each.")
    add("synthetic", "rlvr_ifeval.synthetic:Synthetic", summary="Generated, for tiny models.")


@hookimpl
def register_verifiers(registrar: Registrar) -> None:
    """Add the verifiers of constraints."""
    add = registrar.add
    add("ifeval", "rlvr_ifeval.verifiers:Ifeval", summary="All constraints, strict or loose.")
    add("ifbench", "rlvr_ifeval.verifiers:Ifbench", summary="All constraints of IFBench.")
    add("multi", "rlvr_ifeval.verifiers:Multi", summary="The share of constraints followed.")
    add("rlvr", "rlvr_ifeval.verifiers:Rlvr", summary="The one constraint of RLVR-IFEval.")
    add("synthetic", "rlvr_ifeval.synthetic:Verifier", summary="All generated constraints.")


@hookimpl
def register_eval_tasks(registrar: Registrar) -> None:
    """Add the evaluations."""
    add = registrar.add
    heldout = "rlvr_ifeval.synthetic:Heldout"
    add("ifeval", "rlvr_ifeval.evals:Ifeval", summary="IFEval, greedy, strict and loose.")
    add("ifbench", "rlvr_ifeval.evals:Ifbench", summary="IFBench, greedy, strict and loose.")
    add("synthetic-heldout", heldout, summary="Unseen constraints, at temperature 1.")
    add("synthetic-heldout-greedy", f"{heldout}Greedy", summary="Unseen constraints, greedy.")


@hookimpl
def register_commands(registrar: Registrar) -> None:
    """Add ``rlvr ifeval list``."""
    add = registrar.add
    add("list", "rlvr_ifeval.commands:list_constraints", summary="List constraints and arguments.")
