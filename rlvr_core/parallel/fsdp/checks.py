"""Refuses settings that do not work with several training processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr_core.api import Complaint, ConfigError
from rlvr_core.parallel import ranks

if TYPE_CHECKING:
    from rlvr_core.config.model import RunConfig

_ROWS_SPLIT = "train.context_parallel"


def check_processes(config: RunConfig) -> None:
    """Refuse what is not supported.

    Args:
        config: The run's configuration.

    Raises:
        ConfigError: Naming each setting.
    """
    faults = []
    if ranks.count() > 1 and config.train.parallel == "fsdp" and config.train.compile:
        faults.append(
            Complaint(
                "a model is not compiled under train.parallel: fsdp",
                "train.compile",
                ("set train.compile: false, or train.parallel: ddp",),
            )
        )
    if config.train.context_parallel > 1:
        faults += _of_split_rows(config)
    if faults:
        raise ConfigError.collect(faults)


def _of_split_rows(config: RunConfig) -> list[Complaint]:
    """Refuse settings that do not work with ``train.context_parallel``."""
    model, lora, faults = config.model, config.model.lora, {}
    if config.train.compile:
        faults["train.compile"] = (
            "a compiled model does not exchange keys and values",
            "set train.compile: false",
        )
    if model.attention != "sdpa":
        faults["model.attention"] = (
            f"keys and values are exchanged by the attention sdpa, not by {model.attention}",
            "set model.attention: sdpa",
        )
    if "core/packed" not in model.forward_paths:
        faults["model.forward_paths"] = (
            "it splits packed rows, and model.forward_paths has no core/packed",
            "leave model.forward_paths out",
        )
    if lora is not None and lora.dropout > 0:
        faults["model.lora.dropout"] = (
            "which values are dropped would depend on how tokens are split",
            "set model.lora.dropout: 0",
        )
    return [
        Complaint(f"{_ROWS_SPLIT}: {what}", where, (remedy, f"or set {_ROWS_SPLIT}: 1"))
        for where, (what, remedy) in faults.items()
    ]
