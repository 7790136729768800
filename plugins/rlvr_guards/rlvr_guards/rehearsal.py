"""Tries the largest micro-batch of a run before its first rollout, and leaves nothing behind.

What does not fit is then known in the first minute and not when, hours later, the completions have
grown. Weights, optimizer, loss scale, random numbers and metrics are as if it had never been.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlvr_core.algorithm.estimate import Estimator
from rlvr_core.api import (
    AdvantageOutput,
    AdvantageTraits,
    Completion,
    Group,
    Judged,
    JudgedStep,
    LossComputed,
    MachineError,
    Problem,
    StepObserver,
    TrainedParameter,
)
from rlvr_core.guards.tensors import local
from rlvr_core.step.model import enable_checkpointing
from rlvr_core.step.optim import Update, trained_parameters

if TYPE_CHECKING:
    from rlvr_core.api import OptimizerBuilder
    from rlvr_core.config.model import RunConfig

GIB = 2**30

_SIDE = 128
"""Of the matrix whose optimizer state is weighed; smaller ones 8-bit optimizers keep whole."""


class Alternating:
    """Advantages of 1 and -1 in turns, for completions that nobody has judged."""

    traits = AdvantageTraits()

    def __call__(self, step: JudgedStep) -> AdvantageOutput:
        """See ``AdvantageEstimator``."""
        return AdvantageOutput([1.0 - 2.0 * (place % 2) for place in range(len(step.members))])


class NoUpdates:
    """An optimizer that takes gradients and never applies them.

    Args:
        inner: The run's.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def backward(self, loss: torch.Tensor) -> None:
        """See ``Optimizer.backward``."""
        self._inner.backward(loss)

    def step(self, step: int) -> Update:
        """Leave everything as it is."""
        return Update(grad_norm=0.0, applied=False)


class Largest(StepObserver):
    """Notes the largest micro-batch.

    Attributes:
        tokens: Its tokens, prompts once.
    """

    def __init__(self) -> None:
        self.tokens = 0

    def loss_computed(self, event: LossComputed) -> None:
        """See ``StepObserver``."""
        self.tokens = max(self.tokens, tokens_of(event.micro_batch))


def tokens_of(batch: Any) -> int:
    """Tokens of a micro-batch that the model is given, prompts once; no device is waited for."""
    return int(batch.host.prompt_len_S.sum() + batch.host.fed_lengths().sum())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rehearsal found.

    Attributes:
        tokens: Of the largest micro-batch.
        peak: Most bytes that tensors took.
        error: The first line of the error if memory ran out; else empty.
    """

    tokens: int
    peak: int
    error: str = ""


def rehearse(trainer: Any, config: RunConfig, prompt: int) -> Outcome:
    """Compute loss and gradient of the largest micro-batches, and forget them.

    Args:
        trainer: The policy's trainer.
        config: The run's configuration.
        prompt: Tokens of the longest prompt.
    """
    optimizer, largest, error = trainer.optimizer, Largest(), ""
    vocabulary = trainer.model.config.get_text_config().vocab_size
    apart = trainer.ranks.world // config.train.context_parallel
    groups = worst_groups(config, prompt, vocabulary, apart)
    objective = trainer.objective
    if objective.estimator is not None:
        objective = replace(objective, estimator=Estimator("rehearsal", Alternating()))
    one_update = {"mini_batches": 1, "num_iterations": 1}
    other = replace(
        trainer,
        objective=objective,
        optimizer=NoUpdates(optimizer),
        observer=largest,
        train=config.train.model_copy(update=one_update),
        max_completion_tokens=config.sampling.max_tokens,
    )
    on_gpu = trainer.model.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    with torch.random.fork_rng([trainer.model.device] if on_gpu else []):
        try:
            # held while the gradient is made, as from the second update on
            held = None if optimizer.inner.state else future_state(trainer.model, optimizer.builder)
            other.update(groups, 0, 0)
            del held
        except torch.OutOfMemoryError as exhausted:
            error = str(exhausted).strip().splitlines()[0]
        finally:
            for parameter in optimizer.parameters:
                parameter.grad = None
    peak = torch.cuda.max_memory_allocated() if on_gpu else 0
    gc.collect()
    if on_gpu:  # an engine that wakes up needs the room
        torch.cuda.empty_cache()
    return Outcome(largest.tokens, peak, error)


def check(trainer: Any, config: RunConfig, prompt: int) -> str:
    """Rehearse, and say how much room is left.

    Raises:
        MachineError: If it does not fit; says which settings were tried that do.
    """
    outcome = rehearse(trainer, config, prompt)
    total = torch.cuda.mem_get_info()[1]
    if not outcome.error:
        return (
            f"the largest micro-batch ({outcome.tokens:,} tokens) fits: {outcome.peak / GIB:.1f} "
            f"of {total / GIB:.1f} GiB"
        )
    cap, budget = config.sampling.max_tokens, config.train.tokens_per_micro_batch
    raise MachineError(
        f"the largest micro-batch that this run may have does not fit on the GPU: {budget:,} "
        f"tokens, prompts of {prompt:,} and completions of {cap:,}; {outcome.peak / GIB:.1f} of "
        f"{total / GIB:.1f} GiB were taken when it said: {outcome.error}",
        where="train.tokens_per_micro_batch",
        remedy=(
            *remedies(trainer, config, prompt),
            "rlvr plan CONFIG --gpu NAME computes what else would fit",
            "guards: [{use: guards/gpu, with: {memory: false}}] goes on without trying; then it "
            "fails when completions are long",
        ),
    )


def remedies(trainer: Any, config: RunConfig, prompt: int) -> list[str]:
    """Try smaller settings, and return those that fit, in words.

    With several processes nothing is tried: they would have to agree on who ran out of memory.
    """
    budget, longest = config.train.tokens_per_micro_batch, prompt + config.sampling.max_tokens
    if trainer.ranks.world > 1:
        lower = f"lower train.tokens_per_micro_batch, to {max(longest, budget // 2)} for example"
        split = 2 * config.train.context_parallel
        if trainer.ranks.world % split or trainer.compiled is not None:
            return [lower]
        return [lower, f"train.context_parallel: {split} splits each row over {split} GPUs"]
    smaller = list(_halves(budget, longest))
    settings = _first_fit(trainer, config, prompt, smaller, "")
    can_recompute = trainer.compiled is None and config.train.gradient_checkpointing != "all"
    if can_recompute:
        with contextlib.suppress(MachineError):  # a model that does not know how
            enable_checkpointing(trainer.model, "all")
            tries = [budget] if settings else [budget, *smaller]
            more = "train.gradient_checkpointing: all"
            settings += _first_fit(trainer, config, prompt, tries, more)
    if settings:
        return settings
    return [
        f"no smaller budget down to {longest} tokens, one completion at its longest, fits either: "
        "lower sampling.max_tokens or data.max_prompt_tokens, use model.lora, or more GPUs with "
        "train.parallel: fsdp"
    ]


def _halves(budget: int, least: int) -> Iterator[int]:
    while budget > least:
        budget = max(least, budget // 2)
        yield budget


def _first_fit(
    trainer: Any, config: RunConfig, prompt: int, budgets: list[int], more: str
) -> list[str]:
    """The largest of these budgets that fits; ``more`` is what else was set."""
    for budget in budgets:
        train = config.train.model_copy(update={"tokens_per_micro_batch": budget})
        outcome = rehearse(trainer, config.model_copy(update={"train": train}), prompt)
        if not outcome.error:
            setting = f"train.tokens_per_micro_batch: {budget}"
            if more:
                same = budget == config.train.tokens_per_micro_batch
                setting = more if same else f"{more} with {setting}"
            return [f"set {setting}: tried just now, it fits ({outcome.peak / GIB:.1f} GiB)"]
    return []


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

    groups = []
    for place in range(count):
        prompt_ids = ids(prompt)
        members = tuple(judged(prompt_ids, float(k % 2)) for k in range(n))
        problem = Problem(f"rehearsal {place}", "", "none", {}, "rehearsal")
        groups.append(Group(problem, members, 0))
    return groups


def future_state(model: torch.nn.Module, builder: OptimizerBuilder) -> Tensor:
    """Memory as large as the state that the optimizer will make in its first update."""
    total = 0.0
    weights: dict[bool, float] = {}
    for parameter in trained_parameters(model):
        tensor, hidden = parameter.tensor, parameter.hidden_matrix
        if hidden not in weights:
            weights[hidden] = bytes_per_weight(builder, tensor.device, hidden_matrix=hidden)
        total += weights[hidden] * local(tensor).numel()
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
    values = [value for value in made.state[small].values() if isinstance(value, Tensor)]
    return sum(value.nbytes for value in values if value.numel() > 1) / _SIDE**2
