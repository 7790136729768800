"""The groups of the largest micro-batch that a run may have, and what is held beside them."""

from __future__ import annotations

import copy
import math
import random
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlvr_core.api import (
    AdvantageOutput,
    AdvantageTraits,
    Completion,
    Group,
    Judged,
    JudgedStep,
    Problem,
    TrainedParameter,
)
from rlvr_core.step.optim import trained_parameters

if TYPE_CHECKING:
    from rlvr_core.api import OptimizerBuilder
    from rlvr_core.config.model import RunConfig

_SIDE = 128
"""Of the matrix whose optimizer state is weighed; smaller ones 8-bit optimizers keep whole."""


class Alternating:
    """Advantages of 1 and -1 in turns, for completions that nobody has judged."""

    traits = AdvantageTraits()

    def __call__(self, step: JudgedStep) -> AdvantageOutput:
        """See ``AdvantageEstimator``."""
        return AdvantageOutput([1.0 - 2.0 * (place % 2) for place in range(len(step.members))])


def worst_groups(config: RunConfig, prompt: int, vocabulary: int, world: int) -> list[Group]:
    """Groups of longest prompts and completions, for two full micro-batches of each process.

    Two, because the second is computed beside the gradient of the first; fewer where a mini-batch
    never has as many groups.

    Args:
        config: The run's configuration.
        prompt: Tokens of the longest prompt.
        vocabulary: Size of the model's vocabulary.
        world: Number of training processes, or of groups of those that split rows.
    """
    n, cap, train = config.sampling.n, config.sampling.max_tokens, config.train
    full = math.ceil(2 * train.tokens_per_micro_batch / (prompt + n * cap))
    count = min(world * full, math.ceil(train.prompts_per_step / train.mini_batches))
    draw = random.Random(0)  # of its own: that of the run must not move

    def ids(length: int) -> tuple[int, ...]:
        return tuple(draw.choices(range(vocabulary), k=length))

    def judged(prompt_ids: tuple[int, ...], reward: float) -> Judged:
        logps, mask = (-1.0,) * cap, (True,) * cap
        done = Completion(prompt_ids, ids(cap), logps, mask, "", "stop")
        return Judged(done, {}, reward, reward > 0)

    found = []
    for place in range(count):
        prompt_ids = ids(prompt)
        members = tuple(judged(prompt_ids, float(k % 2)) for k in range(n))
        problem = Problem(f"rehearsal {place}", "", "none", {}, "rehearsal")
        found.append(Group(problem, members, 0))
    return found


def future_state(model: torch.nn.Module, builder: OptimizerBuilder) -> Tensor:
    """Memory as large as the state that the optimizer will make in its first update."""
    total = 0.0
    weights: dict[bool, float] = {}
    for parameter in trained_parameters(model):
        tensor, hidden = parameter.tensor, parameter.hidden_matrix
        if hidden not in weights:
            weights[hidden] = bytes_per_weight(builder, tensor.device, hidden_matrix=hidden)
        total += weights[hidden] * _held(tensor)
    device = next(model.parameters()).device
    return torch.empty(math.ceil(total / 4), dtype=torch.float32, device=device)


def bytes_per_weight(
    builder: OptimizerBuilder, device: torch.device, *, hidden_matrix: bool
) -> float:
    """Bytes of optimizer state for a weight of a matrix, by an update of a small one."""
    small = torch.nn.Parameter(torch.zeros(_SIDE, _SIDE, device=device))
    given = TrainedParameter("rehearsal", small, hidden_matrix)
    made = copy.copy(builder).build([given], 1e-3)
    small.grad = torch.zeros_like(small)
    made.step()
    values = [one for one in made.state[small].values() if isinstance(one, Tensor)]
    return sum(one.numel() * one.element_size() for one in values if one.numel() > 1) / _SIDE**2


def _held(tensor: Any) -> int:
    """Elements of a parameter that this process holds."""
    from torch.distributed.tensor import DTensor

    return int((tensor.to_local() if isinstance(tensor, DTensor) else tensor).numel())
