"""Configuration checks made before anything is loaded: settings that do not work together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_core.api import ConfigError, MachineError
from rlvr_core.parallel import ranks

if TYPE_CHECKING:
    from rlvr_core.config.model import RunConfig
    from rlvr_core.config.resolve import Resolved


def check_config(resolved: Resolved, *, uses_reference: bool) -> None:
    """Refuse settings that do not work together, before anything is loaded.

    Args:
        resolved: The configuration.
        uses_reference: Whether a loss or the advantage estimator needs the reference model.

    Raises:
        ConfigError: If settings do not work together.
        MachineError: If no run folder can be created.
        PluginError: If a plugin is missing.
    """
    check_processes(resolved.config)
    check_rewards(resolved.config)
    check_writable(Path(resolved.config.run.dir))
    for name in resolved.config.model.forward_paths:
        resolved.host.entry("forward_path", name, resolved.where(("model", "forward_paths")))
    check_reference(resolved, used=uses_reference)


def check_reference(resolved: Resolved, *, used: bool) -> None:
    """Refuse options of a reference model that is unused, or that is not a model of its own."""
    section = resolved.config.train.reference
    if (section.sync_every or section.offload) and not used:
        does = "move" if section.sync_every else "be offloaded"
        raise ConfigError(
            f"no loss has a KL term, so there is no reference that could {does}",
            where=resolved.where(("train", "reference")),
            remedy="set a loss's beta above 0, or leave train.reference out",
        )
    if section.offload:
        resolved.host.service("core/check-offload")(resolved)


def check_processes(config: RunConfig) -> None:
    """Refuse what is not supported with several training processes.

    Raises:
        ConfigError: If settings do not work together.
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
    """Refuse a reward that is always 0."""
    moves = [ref.weight or (ref.schedule and ref.schedule.to) for ref in config.rewards]
    if not any(moves):
        raise ConfigError(
            "every reward has weight 0: there is nothing to learn from",
            where="rewards",
            remedy="give one of them a weight",
        )


def check_writable(root: Path) -> None:
    """Refuse early a location where no run folder can be created."""
    existing = next(path for path in (root, *root.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise MachineError(
            f"run folders cannot be made in '{root}': '{existing}' is no folder one may write in",
            where="run.dir",
            remedy="set run.dir to one",
        )
