"""What a run refuses before it loads anything: parts of a config that do not go together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_core.api import Complaint, ConfigError, MachineError, Verifier
from rlvr_core.parallel import ranks

if TYPE_CHECKING:
    from rlvr_core.api import SamplerTraits
    from rlvr_core.config.model import RunConfig
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.verify.reward import RewardPlan


def check_reference(resolved: Resolved) -> None:
    """Refuse what is asked of a reference that does not exist, or not as a model of its own."""
    import torch

    config = resolved.config
    section = config.train.reference
    losses = [resolved.build("loss", ref) for ref in config.losses.values()]
    estimator = resolved.advantage()
    used = any(loss.traits.needs_reference for loss in losses) or (
        estimator is not None and resolved.build("advantage", estimator).traits.needs_reference_kl
    )
    if (section.sync_every or section.offload) and not used:
        does = "move" if section.sync_every else "be offloaded"
        raise ConfigError(
            f"no loss has a KL term, so there is no reference that could {does}",
            where=resolved.where(("train", "reference")),
            remedy="set a loss's beta above 0, or leave train.reference out",
        )
    if not section.offload:
        return
    faults = []
    if config.model.lora is not None:
        faults.append(
            "under LoRA the reference is the policy without its adapter, and takes no memory"
        )
    if ranks.count() > 1 and config.train.parallel == "fsdp":
        faults.append("with train.parallel: fsdp each process has but a part of every layer")
    if not torch.cuda.is_available():
        faults.append("this run computes on the CPU, so its weights are in host memory already")
    if faults:
        where = resolved.where(("train", "reference", "offload"))
        raise ConfigError.collect(
            [Complaint(fault, where, ("set offload: false",)) for fault in faults]
        )


def check_forward_paths(resolved: Resolved) -> None:
    """Refuse a forward path that no plugin has registered."""
    for name in resolved.config.model.forward_paths:
        resolved.host.entry("forward_path", name, resolved.where(("model", "forward_paths")))


def check_processes(config: RunConfig) -> None:
    """Refuse what several processes cannot do together.

    Raises:
        ConfigError: If parts of the config do not go together.
    """
    strategy = config.train.parallel
    if ranks.count() == 1 or strategy == "ddp":
        return
    if config.train.compile:
        raise ConfigError(
            f"a model is not compiled under train.parallel: {strategy}",
            where="train.compile",
            remedy="set train.compile: false, or train.parallel: ddp",
        )


def check_rewards(config: RunConfig) -> None:
    """Refuse a reward that is 0 whatever the model does."""
    moves = [ref.weight or (ref.schedule and ref.schedule.to) for ref in config.rewards]
    if not any(moves):
        raise ConfigError(
            "every reward has weight 0: there is nothing to learn from",
            where="rewards",
            remedy="give one of them a weight",
        )


def check_comparing(plan: RewardPlan, sampler: SamplerTraits) -> None:
    """Refuse to draw groups in parts where a verifier compares the completions of a group."""
    comparing = [
        name for name, verifier in plan.verifiers.items() if not isinstance(verifier, Verifier)
    ]
    if comparing and sampler.max_completions:
        raise ConfigError(
            f"{', '.join(comparing)} compares the completions of a group, and adaptive sampling "
            "draws a group in parts, each judged by itself",
            where="sampler",
            remedy="take the option adaptive out",
        )


def check_writable(root: Path) -> None:
    """Refuse early a place where no run folder can be made."""
    existing = next(path for path in (root, *root.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise MachineError(
            f"run folders cannot be made in '{root}': '{existing}' is no folder one may write in",
            where="run.dir",
            remedy="set run.dir to one",
        )
