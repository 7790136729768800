"""Registers what rlvr-algos offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr_core.api import Registrar, hookimpl

if TYPE_CHECKING:  # ``rlvr --help`` reads the commands below, and must not wait for torch
    from collections.abc import Mapping, Sequence

    from transformers import PreTrainedTokenizerBase

    from rlvr_core.api import Loss, Problem
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.config.tree import Loc
    from rlvr_core.data.prompts import Renderer
    from rlvr_core.step.objective import MakeTeacher


@hookimpl
def register_losses(registrar: Registrar) -> None:
    """Add the losses."""
    registrar.add(
        "gmpo",
        "rlvr_algos.losses:GMPO",
        summary="Geometric mean of a completion's clipped ratios.",
    )
    registrar.add(
        "vespo",
        "rlvr_algos.losses:VESPO",
        summary="One smooth weight a completion, largest near the ratio 1.",
    )
    registrar.add(
        "cispo",
        "rlvr_algos.losses:CISPO",
        summary="Bounded ratio as a weight: no token's gradient is ever cut off.",
    )
    registrar.add(
        "sapo",
        "rlvr_algos.losses:SAPO",
        summary="A smooth gate on the ratio in the place of a clip.",
    )
    registrar.add(
        "luspo",
        "rlvr_algos.losses:LUSPO",
        summary="Clipped surrogate summed over each completion: no discount for long ones.",
    )
    registrar.add(
        "reinforce",
        "rlvr_algos.losses:REINFORCE",
        summary="The plain policy gradient; the ratio is a weight of at most 1.",
    )
    registrar.add(
        "gkd",
        "rlvr_algos.distillation.losses:GKD",
        summary="On-policy distillation from a frozen teacher.",
    )
    registrar.add(
        "opsd",
        "rlvr_algos.distillation.losses:OPSD",
        summary="On-policy self-distillation: the policy with a prompt that tells more.",
    )


@hookimpl
def register_advantages(registrar: Registrar) -> None:
    """Add the advantages."""
    registrar.add(
        "reinforce_plus_plus",
        "rlvr_algos.advantages:ReinforcePlusPlus",
        summary="REINFORCE++: normalised over the step's tokens, with the KL in the reward.",
    )
    registrar.add(
        "maxrl",
        "rlvr_algos.advantages:MaxRL",
        summary="MaxRL: (R - mean) / mean of the group, towards the likelihood of success.",
    )
    registrar.add(
        "pass_at_k",
        "rlvr_algos.advantages:PassAtK",
        summary="Maximises the best of k completions instead of the mean.",
    )


@hookimpl
def register_optimizers(registrar: Registrar) -> None:
    """Add the optimizers."""
    registrar.add(
        "adamw-8bit",
        "rlvr_algos.adamw8bit:AdamW8bit",
        summary="AdamW with moments of 8 bits; needs bitsandbytes.",
    )
    registrar.add(
        "muon",
        "rlvr_algos.muon:Muon",
        summary="Orthogonalised momentum for hidden matrices, AdamW for the rest.",
    )


@hookimpl
def make_teachers(
    resolved: Resolved,
    losses: Mapping[Loc, Loss],
    tokenizer: PreTrainedTokenizerBase,
    renderer: Renderer,
    problems: Sequence[Problem],
) -> Mapping[Loc, MakeTeacher]:
    """Distillation."""
    from rlvr_algos.distillation.teacher import teachers_of

    return teachers_of(resolved, losses, tokenizer, renderer, problems)
