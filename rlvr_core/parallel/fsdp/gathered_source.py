"""Source of a sharded policy's weights for engines."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlvr_core.api import Adapter
from rlvr_core.parallel.model import ParallelModel
from rlvr_core.parallel.model_adapter import adapter_of
from rlvr_core.parallel.sharded import whole
from rlvr_core.step.batch import Row, micro_batches
from rlvr_core.step.forward import completion_logprobs

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class GatheredSource:
    """The weights of a policy that is about to be sharded, for engines.

    Args:
        policy: The policy, still whole.
        parallel: Computes it.
        own_copy: Where a whole copy goes, for an engine that samples from the trainer's model;
            None if no engine does.

    Attributes:
        policy: The policy.
    """

    def __init__(
        self, policy: PreTrainedModel, parallel: ParallelModel, own_copy: torch.device | None = None
    ) -> None:
        self.policy = policy
        self._parallel = parallel
        self._replica: Any = None
        if own_copy is not None:  # which parameters are trained is still told
            copied: Any = copy.deepcopy(policy)
            self._replica = copied.to(own_copy)

    @property
    def sharded(self) -> bool:
        """Whether there is no whole copy of the policy: ``module`` cannot be asked for."""
        return self._replica is None

    @property
    def module(self) -> PreTrainedModel:
        """A whole copy of the policy, brought up to date: every process has to ask."""
        assert self._replica is not None, "no engine of this run shares the trainer's model"
        with torch.no_grad():
            pairs = zip(self._replica.parameters(), self.policy.parameters(), strict=True)
            for copied, new in pairs:
                copied.copy_(whole(new))
        replica: PreTrainedModel = self._replica
        return replica

    def logprobs(self, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> list[float]:
        """Log-probs of tokens after a prompt, at temperature 1; every process has to ask."""
        n = len(token_ids)
        row = Row(tuple(prompt_ids), tuple(token_ids), (True,) * n, (0.0,) * n, 0.0)
        device = next(self.policy.parameters()).device
        (batch,) = micro_batches([row], tokens_per_micro_batch=1, device=device)
        with torch.no_grad():
            logp_BT = self._parallel.compute(
                completion_logprobs, self.policy, batch, temperature=1.0
            )
        logps: list[float] = logp_BT[0].tolist()
        return logps

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Full tensors by Hugging Face name; every process has to iterate."""
        return adapter_of(self.policy).merged_tensors(self.policy)

    def adapter(self) -> Adapter:
        """The LoRA adapter alone; every process has to ask."""
        return adapter_of(self.policy).adapter(self.policy)
