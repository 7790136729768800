"""What train.reference.offload does not go together with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rlvr_core.api import Complaint, ConfigError
from rlvr_core.parallel import ranks

if TYPE_CHECKING:
    from rlvr_core.config.resolve import Resolved


def check_offload(resolved: Resolved) -> None:
    """Refuse to keep a reference in host memory where that saves nothing, or cannot be.

    Args:
        resolved: The configuration.

    Raises:
        ConfigError: Naming each reason.
    """
    config, faults = resolved.config, []
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
