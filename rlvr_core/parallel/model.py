"""The policy spread over processes: whole in each (DDP), or a part of it in each (FSDP2).

Accelerate brings the processes together and gives them their devices. The policy is wrapped by the
two torch functions that Accelerate itself would call, because its ``prepare`` also takes over the
optimizer and divides by accumulation steps, and both belong to the step, in the open.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from rlvr_core.api.protocols import Adapter
from rlvr_core.builtin.lora.adapter import adapter_of, merged_tensors
from rlvr_core.parallel.ranks import Ranks
from rlvr_core.parallel.sharded import whole
from rlvr_core.step.batch import MicroBatch, Row, micro_batches
from rlvr_core.step.forward import completion_logprobs, prove

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Strategy = Literal["ddp", "fsdp"]
T = TypeVar("T")


class Computed(nn.Module):
    """What is computed of a micro-batch as a module's forward: where DDP and FSDP hook in."""

    def __init__(self, model: PreTrainedModel, **options: Any) -> None:
        super().__init__()
        self.model = model
        # a compiled body must not count as a part of this module
        self._options = [options]

    def forward(self, compute: Callable[..., Any], batch: MicroBatch, **more: Any) -> Any:
        """Call one of the functions of ``rlvr_core.step.forward``."""
        return compute(self.model, batch, **(self._options[0] | more))


@dataclass(frozen=True, slots=True)
class Work:
    """A micro-batch and whether it counts.

    Under FSDP a forward pass needs all processes, so one that has fewer micro-batches than another
    runs some more, whose loss is multiplied by 0.
    """

    batch: MicroBatch
    counts: bool = True


class Spread:
    """Models as several processes compute them.

    Args:
        ranks: The processes.
        strategy: ``ddp`` or ``fsdp``.

    Attributes:
        sharded: Whether each process has but a part of the weights.
    """

    def __init__(self, ranks: Ranks, strategy: Strategy) -> None:
        self.ranks = ranks
        self.sharded = strategy == "fsdp"
        self._modules: dict[Any, Any] = {}

    def add(self, model: PreTrainedModel, *, trained: bool, **options: Any) -> None:
        """Take a model in; ``options`` are for whatever is computed of it.

        With ``fsdp``, its parameters become sharded ones: an optimizer is to be made afterwards.
        """
        module = Computed(model, **options)
        if self.sharded:
            _shard(module)
            self._modules[model] = module
        elif trained:
            from torch.nn.parallel import DistributedDataParallel

            with warnings.catch_warnings():
                # older torch has no other word for it than the one newer torch warns of
                warnings.simplefilter("ignore", FutureWarning)
                # buffers are the same everywhere: nothing that is trained changes them
                self._modules[model] = DistributedDataParallel(
                    module, broadcast_buffers=False, gradient_as_bucket_view=True
                )
        else:
            self._modules[model] = module

    def compute(
        self, compute: Callable[..., T], model: PreTrainedModel, batch: MicroBatch, **more: Any
    ) -> T:
        """``compute`` of a micro-batch under a model that was taken in; all of them have to ask."""
        module = self._modules[model]
        found: T = module(compute, batch, **more)
        if self.sharded and not torch.is_grad_enabled():
            module.reshard()  # no backward pass comes that would
        return found

    def keep_step(self, own: Sequence[Work], rows: Sequence[Row]) -> list[Work]:
        """A process's micro-batches, with idle ones where others have more.

        DDP asks for one at least; FSDP for as many as the process with most has.

        Args:
            own: What it has to do.
            rows: Rows of all processes, the shortest of which makes the idle micro-batch.
        """
        most = max(self.ranks.gather(len(own)))
        missing = (most if self.sharded else min(1, most)) - len(own)
        if missing <= 0:
            return list(own)
        trained = [row for row in rows if any(row.loss_mask)]
        shortest = min(trained, key=lambda row: len(row.prompt_ids) + len(row.token_ids))
        (idle,) = micro_batches([shortest], tokens_per_micro_batch=1)
        return [*own, *(Work(idle, counts=False) for _ in range(missing))]

    @contextlib.contextmanager
    def accumulating(self, model: PreTrainedModel, *, last: bool) -> Iterator[None]:
        """Around forward and backward pass of a micro-batch.

        DDP sums gradients over processes with the last one alone. FSDP does it with each, so that
        no process ever holds more than its part.
        """
        if self.sharded or last:
            yield
            return
        with self._modules[model].no_sync():
            yield


def _shard(module: Computed) -> None:
    """Shard layer by layer; what is in no layer (embedding, last norm, LM head) is one more part.

    Parameters come from the CPU to this process's device on the way, whole but one layer at a time.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    prove(module.model)  # needs a forward pass of its own
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = init_device_mesh(device, (torch.distributed.get_world_size(),))
    layers = set(getattr(module.model, "_no_split_modules", None) or ())
    for child in list(module.modules()):
        if type(child).__name__ in layers:
            fully_shard(child, mesh=mesh)
    # the outermost part stays whole until the backward pass, which needs it first
    fully_shard(module, mesh=mesh, reshard_after_forward=False)


class GatheredSource:
    """The weights of a sharded policy, for engines.

    Attributes:
        policy: The sharded policy.
    """

    def __init__(
        self, policy: PreTrainedModel, replica: PreTrainedModel | None, spread: Spread
    ) -> None:
        self.policy = policy
        self._replica = replica
        self._spread = spread

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
            for own, new in pairs:
                own.copy_(whole(new))
        return self._replica

    def logprobs(self, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> list[float]:
        """Log-probs of tokens after a prompt, at temperature 1; every process has to ask."""
        n = len(token_ids)
        row = Row(tuple(prompt_ids), tuple(token_ids), (True,) * n, (0.0,) * n, 0.0)
        device = next(self.policy.parameters()).device
        (batch,) = micro_batches([row], tokens_per_micro_batch=1, device=device)
        with torch.no_grad():
            logp_BT = self._spread.compute(completion_logprobs, self.policy, batch, temperature=1.0)
        found: list[float] = logp_BT[0].tolist()
        return found

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Full tensors by Hugging Face name; every process has to iterate."""
        return merged_tensors(self.policy)

    def adapter(self) -> Adapter:
        """The LoRA adapter alone; every process has to ask."""
        return adapter_of(self.policy)


def replica_of(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """A whole copy, for an engine that samples from the trainer's model while that is sharded."""
    copied: Any = copy.deepcopy(model)
    replica: PreTrainedModel = copied.to(device)  # which parameters are trained is still told
    return replica
