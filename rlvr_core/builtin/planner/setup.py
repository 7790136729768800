"""What the planner's formulas are given: a run on some GPUs, in numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr_core.api import AdvantageTraits, ConfigError, LossTraits
from rlvr_core.builtin.planner.cards import CARDS, Card
from rlvr_core.builtin.planner.shape import Shape

if TYPE_CHECKING:
    from rlvr_core.api.services import Resolved

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_KNOWN = ("core/vllm", "core/vllm-server")


@dataclass(frozen=True, slots=True)
class Micro:
    """A micro-batch, packed.

    Attributes:
        tokens: Packed tokens: each prompt once, and of each completion all but the last.
        loss_tokens: Tokens that reach the LM head.
        keys: Keys of attention, where each completion has its prompt's before its own.
    """

    tokens: int
    loss_tokens: int
    keys: int


@dataclass(frozen=True, slots=True)
class Setup:
    """A run on some GPUs; bytes and tokens are of one GPU unless said otherwise.

    Attributes:
        card: The GPU.
        trainers: GPUs that train.
        generators: GPUs that generate; the trainers' own if ``shared``.
        shared: Whether engine and trainer share their GPUs.
        share: Part of a card that the engine takes.
        sleeps: Whether the engine gives it back while the trainer works.
        shape: The model.
        trained: Trained parameters, fewer than the model's with LoRA.
        width: Bytes of a number in the compute dtype.
        checkpointing: Whether activations are computed again in the backward pass.
        fsdp: Whether the trainers hold shards.
        scored: Whether log-probs of a reference are computed.
        reference: Whether a reference model is held for them; with LoRA the base is it.
        offload: Whether it is held in host memory.
        lora: Whether an adapter is trained.
        moments: Bytes of optimizer state for a trained parameter.
        budget: ``train.tokens_per_micro_batch``.
        prompts: Problems of a step, on all GPUs.
        n: Completions of each.
        prompt: Most tokens of a prompt.
        completion: Most tokens of a completion.
        mean_prompt: Tokens of a prompt, for the time.
        mean_completion: Tokens of a completion, for the time.
        steps: Of the run.
        overlapped: Whether generation goes on beside training.
        passes: Times that a step trains on its completions.
        updates: Optimizer updates of a step.
        keep: Checkpoints that are kept.
    """

    card: Card
    trainers: int
    generators: int
    shared: bool
    share: float
    sleeps: bool
    shape: Shape
    trained: int
    width: int
    checkpointing: bool
    fsdp: bool
    scored: bool
    reference: bool
    offload: bool
    lora: bool
    moments: float
    budget: int
    prompts: int
    n: int
    prompt: int
    completion: int
    mean_prompt: float
    mean_completion: float
    steps: int
    overlapped: bool
    passes: int
    updates: int
    keep: int

    @property
    def shards(self) -> int:
        """Number of GPUs that the weights are split over."""
        return self.trainers if self.fsdp else 1

    @property
    def rows(self) -> int:
        """Completions that one GPU trains on in a step, at most."""
        return math.ceil(self.prompts * self.n / self.trainers)

    def worst_micro(self) -> Micro:
        """The fullest micro-batch: completions of the longest kind, and short prompts if they fit.

        A completion that alone exceeds the budget gets a micro-batch of its own.
        """
        longest = self.prompt + self.completion
        rows = 1
        while rows < self.rows and self._positions(rows + 1) <= self.budget:
            rows += 1
        prompts = math.ceil(rows / self.n)
        most = self.rows * self.completion + math.ceil(self.rows / self.n) * self.prompt
        tokens = max(min(self.budget, most), longest)
        loss = max(min(tokens, self.rows * self.completion), self.completion)
        return Micro(tokens, loss, tokens + (rows - prompts) * self.prompt)

    def _positions(self, rows: int) -> int:
        return rows * self.completion + math.ceil(rows / self.n) * self.prompt

    @property
    def micros(self) -> int:
        """Micro-batches of a step on one GPU, of completions of mean length."""
        return max(1, math.ceil(self.step_tokens / self.budget))

    @property
    def step_tokens(self) -> float:
        """Packed tokens that one GPU trains on in a step, of mean length."""
        return self.rows * self.mean_completion + self.rows / self.n * self.mean_prompt


def setup_of(
    resolved: Resolved, gpu: str, count: int, shape: Shape, trained: int, mean: float | None
) -> tuple[Setup, list[str]]:
    """Put a configuration into numbers.

    Args:
        resolved: The configuration.
        gpu: A name of ``CARDS``.
        count: GPUs in all.
        shape: The model's sizes.
        trained: Parameters that are trained.
        mean: Mean tokens of a completion; None for half the cap.

    Returns:
        The numbers, and what had to be assumed for them.

    Raises:
        ConfigError: If the GPUs are too few for the servers that the configuration asks for.
    """
    config, notes = resolved.config, []
    card, train, options = CARDS[gpu], config.train, config.engine.with_
    serving = config.engine.use == "core/vllm-server"
    if config.engine.use == "auto":
        notes.append("engine: auto is taken as core/vllm with its defaults")
    elif config.engine.use not in _KNOWN:
        notes.append(f"the engine {config.engine.use} is taken as core/vllm with its defaults")
    generators, trainers = count, count
    if serving and not options.get("urls"):
        wide = options.get("tensor_parallel") or 1
        given = options.get("gpus")
        servers = options.get("servers") or (max(1, len(given) // wide) if given else 1)
        generators = servers * wide
        trainers = count - generators
        if trainers < 1:
            raise ConfigError(
                f"the servers take {generators} GPUs, and there are {count}: none is left to train",
                where="engine.with",
                remedy=f"--count {generators + 1} or more",
            )
    elif serving:
        generators = len(options["urls"])
        notes.append("each of engine.with.urls is taken as one GPU more of the same kind")
    overlapped = train.max_staleness > 0
    traits = [resolved.components[loc].traits(LossTraits) for loc in config.losses]
    lora = config.model.lora is not None
    estimator = resolved.components.get(("advantage",))
    of_estimator = None if estimator is None else estimator.traits(AdvantageTraits)
    needs = any(one.needs_reference for one in traits)
    needs = needs or (of_estimator is not None and of_estimator.needs_reference_kl)
    if any(one.teacher is not None for one in traits):
        notes.append("a teacher model of a loss is not counted")
    moments = {"core/adamw": 8.0, "core/adamw-8bit": 2.0, "core/muon": 4.0}.get(train.optimizer.use)
    if moments is None:
        moments = 8.0
        notes.append(f"the optimizer {train.optimizer.use} is taken to hold what AdamW does")
    elif train.optimizer.use == "core/muon":
        outer = 0 if lora else shape.outer_params
        moments += 4.0 * outer / trained
    if config.model.dtype == "float32":
        notes.append("in float32 attention and time are estimated as if in bfloat16")
    if lora:
        notes.append("memory with LoRA was not compared with the stand-in")
    if mean is None:
        notes.append("completions are taken to be half of sampling.max_tokens long (--mean-tokens)")
    mean_completion = config.sampling.max_tokens / 2 if mean is None else mean
    return Setup(
        card=card,
        trainers=trainers,
        generators=generators,
        shared=not serving,
        share=options.get("gpu_memory_utilization") or (0.9 if serving else 0.5),
        sleeps=bool(options.get("sleep", True)) and not overlapped,
        shape=shape,
        trained=trained,
        width=BYTES[config.model.dtype],
        checkpointing=train.gradient_checkpointing,
        fsdp=train.parallel == "fsdp" and trainers > 1,
        scored=needs,
        reference=needs and not lora,
        offload=train.reference.offload,
        lora=lora,
        moments=moments,
        budget=train.tokens_per_micro_batch,
        prompts=train.prompts_per_step,
        n=config.sampling.n,
        prompt=config.data.max_prompt_tokens,
        completion=config.sampling.max_tokens,
        mean_prompt=config.data.max_prompt_tokens / 2,
        mean_completion=mean_completion,
        steps=train.steps,
        overlapped=overlapped,
        passes=train.num_iterations,
        updates=train.updates_per_step,
        keep=config.checkpoint.keep,
    ), notes
