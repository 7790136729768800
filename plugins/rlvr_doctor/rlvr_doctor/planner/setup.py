"""Derives the numbers of a run on some GPUs, for the planner's formulas."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr_core.api import AdvantageTraits, ConfigError, LossTraits
from rlvr_doctor.cards import RESERVED, Card
from rlvr_doctor.planner.shape import Adapter, Shape

if TYPE_CHECKING:
    from rlvr_core.toolkit import Resolved

MASTER = 4
"""Bytes of a trained weight, and of its gradient."""
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
SHARED = "servers/vllm-shared"
_MOMENTS = {"core/adamw": 8.0, "algos/adamw-8bit": 2.0, "algos/muon": 4.0}
"""Bytes of state for a trained weight."""


@dataclass(frozen=True, slots=True)
class Micro:
    """A packed micro-batch; the last three numbers are for attention in float32, on padded grids.

    Attributes:
        tokens: Packed tokens: each prompt once, and each completion without its last token.
        loss_tokens: Tokens that reach the LM head.
        keys: Keys of attention; each completion has its prompt's keys before its own.
        query_slots: Queries, including padding.
        key_slots: Keys, including padding.
        mask: Entries of the attention mask.
    """

    tokens: int
    loss_tokens: int
    keys: int
    query_slots: int = 0
    key_slots: int = 0
    mask: int = 0


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine that generates.

    Attributes:
        gpus: Number of GPUs that generate; the trainers' GPUs if ``shared``.
        width: Number of GPUs over which one engine splits the weights.
        shared: Whether it shares the trainers' GPUs.
        own_weights: Whether it has a copy of the weights; else it uses the trainer's model.
        memory: Bytes that it takes on each of its GPUs.
        sleeps: Whether it frees them while the trainer works.
        swaps: Whether its weights move to host memory meanwhile.
        by_host: Whether new weights come through host memory.
        at_once: Largest number of completions that it generates at a time.
    """

    gpus: int
    width: int
    shared: bool
    own_weights: bool
    memory: float
    sleeps: bool
    swaps: bool
    by_host: bool
    at_once: int


@dataclass(frozen=True, slots=True)
class Setup:
    """A run on some GPUs; bytes and tokens are per GPU unless stated otherwise.

    Attributes:
        card: The GPU.
        trainers: Number of GPUs that train.
        engine: The engine that generates.
        shape: Sizes of the model.
        adapter: Sizes of the LoRA adapter; None if the whole model is trained.
        trained: Number of trained parameters.
        dtype: Data type of the computation.
        every: The backward pass recomputes the activations of every n-th layer; 0 for none.
        compiled: Whether layers are compiled.
        fsdp: Whether the trainers hold shards.
        shard_size: Number of trainers that share one copy; None for all of them.
        split: Number of trainers that split the tokens of each micro-batch.
        scored: Whether log-probs of a reference are computed.
        reference: Whether a reference model is held for them; with LoRA the base model serves.
        offload: Whether the reference model is held in host memory.
        moments: Bytes of optimizer state for a trained parameter.
        budget: ``train.tokens_per_micro_batch``.
        prompts: Problems of a step, on all GPUs.
        n: Completions of each problem.
        prompt: Maximum length of a prompt in tokens.
        completion: Maximum length of a completion in tokens.
        mean_prompt: Mean length of a prompt, for the time.
        mean_completion: Mean length of a completion, for the time.
        steps: Number of steps of the run.
        overlapped: Whether generation and training overlap.
        passes: How often a step trains on its completions.
        updates: Optimizer updates of a step.
        checkpoints: Most checkpoints on disk at a time, including the one being written.
    """

    card: Card
    trainers: int
    engine: Engine
    shape: Shape
    adapter: Adapter | None
    trained: int
    dtype: str
    every: int
    compiled: bool
    fsdp: bool
    shard_size: int | None
    split: int
    scored: bool
    reference: bool
    offload: bool
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
    checkpoints: int

    @property
    def recomputed(self) -> int:
        """Layers whose activations are computed again, the first of all among them."""
        return -(-self.shape.layers // self.every) if self.every else 0

    @property
    def last_recomputed(self) -> bool:
        """Whether the last layer is one of them."""
        return self.every > 0 and (self.shape.layers - 1) % self.every == 0

    @property
    def half(self) -> bool:
        """Whether 16 bits are computed with, and attention is flash attention."""
        return self.dtype != "float32"

    @property
    def width(self) -> int:
        """Bytes of a number that is computed with."""
        return BYTES[self.dtype]

    @property
    def rounded(self) -> bool:
        """Whether shards are gathered rounded, and gradients of gathered weights as narrow."""
        return self.fsdp and self.dtype == "bfloat16"

    @property
    def autocast(self) -> bool:
        """Whether products round what they are given: the rest is float32."""
        return self.half and not self.rounded

    @property
    def stream(self) -> int:
        """Bytes of a number of the residual stream: float32 where the embedding is."""
        return self.width if self.rounded or self.adapter else 4

    @property
    def whole_width(self) -> int:
        """Bytes of a whole weight, and of its gradient before it is summed over the GPUs."""
        return self.width if self.rounded else MASTER

    @property
    def buckets(self) -> bool:
        """Whether DDP keeps room for all gradients, between steps too."""
        return self.trainers > 1 and not self.fsdp

    @property
    def shards(self) -> int:
        """Number of GPUs that the weights are split over."""
        return (self.shard_size or self.trainers) if self.fsdp else 1

    @property
    def rows(self) -> int:
        """Completions that one GPU, or those that split them, train on in a step, at most."""
        return math.ceil(self.prompts * self.n * self.split / self.trainers)

    @property
    def entry(self) -> int:
        """Bytes of the keys and values of one token."""
        return 2 * self.width * self.shape.keys * self.shape.layers

    def worst_micro(self) -> Micro:
        """Return the fullest micro-batch, of completions near the cap.

        A completion that alone exceeds the budget gets a micro-batch of its own.
        """
        longest = self.prompt + self.completion
        rows = 1
        while rows < self.rows and self._positions(rows + 1) <= self.budget:
            rows += 1
        prompts = math.ceil(rows / self.n)
        tokens = max(min(self.budget, self._positions(self.rows)), longest)
        most = self.completion if longest > self.budget else tokens
        slots = prompts * self.prompt + rows * self.completion
        width = self.prompt + self.completion
        if self.split > 1:
            return self._own_part(tokens, min(most, self.rows * self.completion), prompts, rows)
        return Micro(
            tokens=tokens,
            loss_tokens=min(most, self.rows * self.completion),
            keys=tokens + rows * self.prompt,
            query_slots=slots,
            key_slots=slots + rows * self.prompt,
            mask=rows * self.completion * width,
        )

    def _own_part(self, tokens: int, loss_tokens: int, prompts: int, rows: int) -> Micro:
        """Return one GPU's part of a micro-batch that GPUs split: two pieces of each text.

        The last keys of the two together are one piece more than the whole text's, and both see
        the prompt. Grids are as wide as the longest piece.
        """
        pieces, width = 2 * (prompts + rows), self.prompt + self.completion
        piece = math.ceil(max(self.prompt, self.completion) / (2 * self.split))
        return Micro(
            tokens=math.ceil(tokens / self.split),
            loss_tokens=math.ceil(loss_tokens / self.split),
            keys=math.ceil(tokens * (1 + 1 / (2 * self.split))) + 2 * rows * self.prompt,
            query_slots=pieces * piece,
            key_slots=pieces * width,
            mask=pieces * piece * width,
        )

    def _positions(self, rows: int) -> int:
        return rows * self.completion + math.ceil(rows / self.n) * self.prompt

    @property
    def several_micros(self) -> bool:
        """Whether a step may have more than one micro-batch."""
        return self._positions(self.rows) > self.budget

    @property
    def micros(self) -> int:
        """Micro-batches of a step on one GPU, of completions of mean length."""
        return max(1, math.ceil(self.step_tokens * self.split / self.budget))

    @property
    def step_tokens(self) -> float:
        """Packed tokens that one GPU trains on in a step, of mean length."""
        whole = self.rows * self.mean_completion + self.rows / self.n * self.mean_prompt
        return whole / self.split

    @property
    def loss_tokens(self) -> float:
        """Tokens with a log-prob that one GPU trains on in a step, of mean length."""
        return self.rows * self.mean_completion / self.split


def setup_of(
    resolved: Resolved,
    card: Card,
    count: int,
    engine_gpus: int | None,
    shape: Shape,
    adapter: Adapter | None,
    mean: float | None,
) -> tuple[Setup, list[str]]:
    """Compute the numbers of a configuration.

    Args:
        resolved: The configuration.
        card: The GPU.
        count: Total number of GPUs.
        engine_gpus: Number of them that ``rlvr launch --engine-gpus`` would reserve.
        shape: Sizes of the model.
        adapter: Sizes of the LoRA adapter, if there is one.
        mean: Mean tokens of a completion; None for half the cap.

    Returns:
        The numbers, and the assumptions made.

    Raises:
        ConfigError: If the number of GPUs does not fit the servers or the step.
    """
    config = resolved.config
    notes: list[str] = []
    train, cap = config.train, config.sampling.max_tokens
    engine = _engine(resolved, card, count, engine_gpus, shape, notes)
    more = bool(config.engine.with_.get("urls")) or config.engine.use == "cluster/ray"
    trainers = count if engine.shared or more else count - engine.gpus
    if trainers > train.prompts_per_step * config.sampling.n * train.context_parallel:
        raise ConfigError(
            f"{trainers} GPUs train, and a step has {train.prompts_per_step} prompts of "
            f"{config.sampling.n} completions: some would get none",
            where="--count",
            remedy="lower --count, or raise train.prompts_per_step",
        )
    if trainers % (train.shard_size or 1):
        raise ConfigError(
            f"{trainers} GPUs that train cannot be sets of {train.shard_size}",
            where="train.shard_size",
            remedy="choose a divisor of their number, or another --count",
        )
    if trainers % train.context_parallel:
        raise ConfigError(
            f"{trainers} GPUs that train cannot be groups of {train.context_parallel}",
            where="train.context_parallel",
            remedy="choose a divisor of their number, or another --count",
        )
    if train.parallel == "fsdp" and trainers == 1:
        notes.append("train.parallel: fsdp shares nothing out where one GPU trains")
    trained = shape.params if adapter is None else adapter.params
    needs = _needs_reference(resolved, notes)
    written = train.steps // config.checkpoint.every + 1 if config.checkpoint.every else 1
    kept = min(config.checkpoint.keep, written) + (config.checkpoint.keep_best is not None)
    if config.model.lora is not None and config.model.lora.dropout > 0:
        notes.append("what model.lora.dropout drops is not counted")
    if "core/packed" not in config.model.forward_paths:
        notes.append("rows are counted packed, though model.forward_paths leaves core/packed out")
    if train.context_parallel > 1:
        notes.append("train.context_parallel: no GPU has measured memory or time with it")
    if train.compile:
        notes.append("train.compile: time leaves out the compilation")
    if mean is None:
        notes.append("completions are taken to be half of sampling.max_tokens long (--mean-tokens)")
    return Setup(
        card=card,
        trainers=trainers,
        engine=engine,
        shape=shape,
        adapter=adapter,
        trained=trained,
        dtype=config.model.dtype,
        every=every_of(train.gradient_checkpointing),
        compiled=train.compile,
        fsdp=train.parallel == "fsdp" and trainers > 1,
        shard_size=train.shard_size,
        split=train.context_parallel,
        scored=needs,
        reference=needs and adapter is None,
        offload=train.reference.offload,
        moments=_moments(train.optimizer.use, shape, adapter, notes),
        budget=train.tokens_per_micro_batch,
        prompts=train.prompts_per_step,
        n=config.sampling.n,
        prompt=config.data.max_prompt_tokens,
        completion=cap,
        mean_prompt=config.data.max_prompt_tokens / 2,
        mean_completion=cap / 2 if mean is None else mean,
        steps=train.steps,
        overlapped=train.max_staleness > 0,
        passes=train.num_iterations,
        updates=train.updates_per_step,
        checkpoints=kept + 1,
    ), notes


def _engine(
    resolved: Resolved,
    card: Card,
    count: int,
    engine_gpus: int | None,
    shape: Shape,
    notes: list[str],
) -> Engine:
    config = resolved.config
    use, options = config.engine.use, config.engine.with_
    if use == "cluster/ray":
        return _actors(resolved, card, count, notes)
    serving, ahead = use == "servers/vllm-server", config.train.max_staleness > 0
    if engine_gpus is not None and not (serving or ahead):
        raise ConfigError(
            "the config's engine works inside the training processes",
            where="--engine-gpus",
            remedy="leave it out, or choose an engine with processes of its own",
        )
    if use == "core/transformers" and not ahead:
        notes.append("core/transformers generates slower than the vLLM that its time is that of")
        return Engine(count, 1, True, False, 0.0, True, False, False, 2**31)
    if use == "auto":
        notes.append("engine: auto is taken as core/vllm with its defaults")
    elif use not in ("core/vllm", SHARED, "servers/vllm-server"):
        notes.append(f"the engine {use} is taken as core/vllm with its defaults")
    memory = (options.get("gpu_memory_utilization") or (0.9 if serving else 0.5)) * card.memory
    gpus, wide = count, _shards(options, count) if use == SHARED and not ahead else 1
    if serving:
        gpus, wide = _servers(options, count, engine_gpus)
        if options.get("urls"):
            notes.append("each of engine.with.urls is taken as one GPU more of the same kind")
    elif engine_gpus is not None:
        if 2 * engine_gpus != count:  # an engine that works ahead has one GPU for each that trains
            raise ConfigError(
                f"of {count} GPUs {engine_gpus} are for engines, and as many have to train",
                where="--engine-gpus",
                remedy=f"--count {2 * engine_gpus}, or engine: servers/vllm-server",
            )
        gpus = engine_gpus
    if options.get("kv_cache_mb"):
        weights = BYTES[config.model.dtype] * shape.params / wide
        memory = weights + RESERVED + options["kv_cache_mb"] * 2**20
    apart = serving or engine_gpus is not None
    sleeps = bool(options.get("sleep", True)) and not ahead
    return Engine(
        gpus=gpus,
        width=wide,
        shared=not apart,
        own_weights=True,
        memory=memory,
        sleeps=apart or sleeps,
        swaps=not apart and sleeps and options.get("sleep_level", 1) == 1,
        by_host=ahead and not serving,
        at_once=options.get("max_num_seqs") or options.get("max_in_flight") or 256,
    )


def _actors(resolved: Resolved, card: Card, count: int, notes: list[str]) -> Engine:
    """Rollout actors of Ray, which have GPUs beside those of ``count`` that train."""
    options: dict[str, Any] = resolved.config.engine.with_
    each = int(options.get("actors") or 1) * math.ceil(options.get("gpus") or 1)
    notes.append(
        f"rollout actors are taken as {count * each} GPUs more of the same kind, with vLLM on them"
    )
    inner = options.get("engine")
    given = (inner.get("with") or {}) if isinstance(inner, dict) else {}
    return Engine(
        gpus=count * each,
        width=1,
        shared=False,
        own_weights=True,
        memory=(given.get("gpu_memory_utilization") or 0.5) * card.memory,
        sleeps=True,
        swaps=False,
        by_host=True,
        at_once=int(options.get("max_in_flight") or 256),
    )


def _shards(options: dict[str, Any], count: int) -> int:
    """Return the number of GPUs over which an engine splits its weights.

    Raises:
        ConfigError: If the GPUs do not divide into engines.
    """
    wide = int(options.get("tensor_parallel_size") or 2)
    if count % wide:
        raise ConfigError(
            f"{count} GPUs do not divide into engines of {wide}",
            where="engine.with.tensor_parallel_size",
            remedy=f"--count {-(-count // wide) * wide}, or set a divisor of {count}",
        )
    return wide


def _servers(options: dict[str, Any], count: int, engine_gpus: int | None) -> tuple[int, int]:
    """Return the number of GPUs of all servers, and of each.

    Raises:
        ConfigError: If they are too many, or do not divide into servers.
    """
    if options.get("urls"):
        return len(options["urls"]), 1
    wide = int(options.get("tensor_parallel") or 1)
    gpus = engine_gpus if engine_gpus and not options.get("gpus") else servers_of(options)
    if gpus % wide or (options.get("servers") or gpus // wide) * wide != gpus:
        raise ConfigError(
            f"{gpus} engine GPUs do not divide into servers of {wide}",
            where="engine.with",
            remedy="servers x tensor_parallel has to be the number of engine GPUs",
        )
    if gpus >= count:
        raise ConfigError(
            f"the servers take {gpus} GPUs, and there are {count}: none is left to train",
            where="engine.with",
            remedy=f"--count {gpus + 1} or more, or engine: core/vllm, which shares them",
        )
    return gpus, wide


def servers_of(options: dict[str, Any]) -> int:
    """Return the number of GPUs of the servers that a run starts."""
    given = options.get("gpus")
    if given is not None:
        return len(given)
    return int((options.get("servers") or 1) * (options.get("tensor_parallel") or 1))


def _needs_reference(resolved: Resolved, notes: list[str]) -> bool:
    config = resolved.config
    traits = [resolved.components[loc].traits(LossTraits) for loc in config.losses]
    if any(trait.teacher is not None for trait in traits):
        notes.append("a teacher model of a loss is not counted")
    estimator = resolved.components.get(("advantage",))
    of_estimator = None if estimator is None else estimator.traits(AdvantageTraits)
    return any(trait.needs_reference for trait in traits) or (
        of_estimator is not None and of_estimator.needs_reference_kl
    )


def _moments(use: str, shape: Shape, adapter: Adapter | None, notes: list[str]) -> float:
    """Return the bytes of optimizer state for a trained parameter."""
    moments = _MOMENTS.get(use)
    if moments is None:
        notes.append(f"the optimizer {use} is taken to hold what AdamW does")
        return _MOMENTS["core/adamw"]
    if use == "algos/muon" and adapter is None:  # AdamW for what is in no layer
        moments += 4.0 * shape.outer_params / shape.params
    return moments


def every_of(which: str) -> int:
    """Return ``Setup.every`` for ``train.gradient_checkpointing``; of ``auto`` that of ``none``."""
    if which in ("auto", "none"):
        return 0
    return 1 if which == "all" else int(which.removeprefix("every-"))
