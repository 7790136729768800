"""Registers what rlvr-guards offers."""

from __future__ import annotations

from rlvr_core.api import Registrar, hookimpl


@hookimpl
def register_guards(registrar: Registrar) -> None:
    """Add the guards; those with a rank are on by default, and look between those of the core."""
    registrar.add(
        "preflight",
        "rlvr_guards.preflight:Preflight",
        summary="Tries gold and wrong answers on the verifiers.",
        rank=200,
    )
    registrar.add(
        "completions",
        "rlvr_guards.completions:Completions",
        summary="Compares completions with their tokens.",
        rank=400,
    )
    registrar.add(
        "advantages",
        "rlvr_guards.advantages:Advantages",
        summary="Computes advantages by plain formulas.",
        rank=700,
    )
    registrar.add(
        "kl",
        "rlvr_guards.kl:Kl",
        summary="Checks the reference of the KL term.",
        rank=800,
    )
    registrar.add(
        "loss",
        "rlvr_guards.loss:LossValues",
        summary="Computes losses and their gradients by their formulas.",
        rank=900,
    )
    registrar.add(
        "optimizer",
        "rlvr_guards.optimizer:OptimizerUpdates",
        summary="Computes updates of some weights again.",
        rank=1100,
    )
    registrar.add(
        "seeds",
        "rlvr_guards.seeds:Seeds",
        summary="Compares repeated completions with their probability.",
        rank=1300,
    )
    registrar.add(
        "canaries",
        "rlvr_guards.canaries:Canaries",
        summary="Judges some completions again.",
        rank=1400,
    )
    registrar.add(
        "collapse",
        "rlvr_guards.collapse:Collapse",
        summary="Stops when rewards, lengths or entropy fall apart.",
        rank=1500,
    )
    registrar.add(
        "gpu",
        "rlvr_guards.gpu:GpuGuard",
        summary="Measures a GPU, and tries the largest micro-batch.",
        rank=1700,
    )
    registrar.add(
        "shadow",
        "rlvr_guards.shadow:Shadow",
        summary="How often verifiers of weight 0 disagree.",
    )
