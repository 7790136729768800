"""AdamW with moments of 8 bits, by bitsandbytes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rlvr_core.api import MachineError
from rlvr_core.step.optim import AdamWConfig

if TYPE_CHECKING:
    import torch

    from rlvr_core.api import TrainedParameter


class AdamW8bit:
    """Block-wise quantised moments, Dettmers et al., arXiv:2110.02861: 2 bytes a weight, not 8.

    Parameters of fewer than 4096 elements keep moments of 32 bits.

    Raises:
        MachineError: If bitsandbytes is not installed.
    """

    Config = AdamWConfig

    def __init__(self, config: AdamWConfig) -> None:
        if find_spec("bitsandbytes") is None:
            raise MachineError(
                "optimizer algos/adamw-8bit needs bitsandbytes, which is not installed",
                where="train.optimizer",
                remedy="pip install 'rlvr-core[adamw-8bit]', or set train.optimizer: adamw",
            )
        self.config = config

    def build(self, parameters: Sequence[TrainedParameter], lr: float) -> torch.optim.Optimizer:
        """See ``OptimizerBuilder``."""
        import bitsandbytes

        made: torch.optim.Optimizer = bitsandbytes.optim.AdamW8bit(
            [parameter.tensor for parameter in parameters],
            lr=lr,
            betas=self.config.betas,
            eps=self.config.eps,
            weight_decay=self.config.weight_decay,
        )
        return made
