"""The run's configuration as pydantic models: its keys, their types and defaults.

Cross-field rules live in the validators here; looking up component names and validating their
``with`` belongs to ``resolve.py``, rules across components to ``rules.py``, files and line numbers
to ``load.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from rlvr_core.api import ComponentConfig

Positive = Annotated[int, Field(gt=0)]
Natural = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]

_FSDP_SHARDS = dict.fromkeys(
    ("zero1", "zero2", "zero3", "deepspeed"),
    "write fsdp: it shards weights, gradients and optimizer state, which is all that ZeRO shards",
)
"""Suggestion for each of DeepSpeed's names."""


def _checkpointing(value: object) -> object:
    if not re.fullmatch("auto|none|all|every-([2-9]|[1-9][0-9]+)", str(value)):
        raise ValueError(f"must be auto, none, all, or every-2, every-3 and so on, not {value}")
    return value


class ComponentRef(ComponentConfig):
    """A component by name, with options: ``{use: math/gsm8k, with: {split: train}}``."""

    use: str
    """Full name (``math/boxed``), or the short name if it is unique."""
    with_: dict[str, Any] = Field(default_factory=dict, alias="with")
    """The component's own options; ``rlvr list KIND NAME`` shows them."""

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, value: Any) -> Any:
        return {"use": value} if isinstance(value, str) else value


def _named(section: type[ComponentConfig], value: Any, names: Sequence[str]) -> Any:
    """Fill in the default component's name where a section gives only options."""
    if not isinstance(value, dict):
        return value
    filled = dict(value)
    for name in names:
        given = filled.get(name)
        if isinstance(given, dict) and "use" not in given:
            filled[name] = {"use": section.model_fields[name].default.use, **given}
    return filled


class RunSection(ComponentConfig):
    """Name, place and seed."""

    name: str = Field(default="run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the run; its folder is ``<dir>/<name>-<time>``."""
    dir: str = "runs"
    """Folder that holds run folders, relative to the working directory."""
    mirror: str | None = None
    """URI to which the run's folder is copied during the run, such as ``s3://bucket/runs``.
    Checkpoints are kept there by the rules of ``checkpoint``."""
    seed: Natural = 0
    """Everything random in the run derives from it."""
    identity: bool = True
    """Hash what the run is made of (model, tokenizer, prompts as rendered, code of core and
    plugins) into ``run.json`` and the checkpoints, for ``rlvr diff`` and for resuming."""
    accept_changed: list[Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")]] = []
    """When a run is resumed: component files and verifiers that may differ from those of the steps
    so far, each by the first digits of its SHA-256. The error that refuses one names them."""
    timeout: Annotated[float, Field(gt=0)] = 3600.0
    """Seconds that any one wait (generation, verdicts) may take before the run stops."""


class LoraSection(ComponentConfig):
    """Low-rank adapters: the model's weights stay as they are, small matrices beside them learn."""

    rank: Positive = 16
    """Inner size of an adapter's two matrices."""
    alpha: Positive = 32
    """An adapter's product is multiplied by ``alpha / rank``."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of an adapter's inputs that is dropped in the training pass, and in no other."""
    target_modules: Literal["all-linear"] | Annotated[list[str], Field(min_length=1)] = "all-linear"
    """Layers that get an adapter, by name or its last part; ``all-linear`` leaves out the LM
    head."""


class ModelSection(ComponentConfig):
    """The model to train, and its precision."""

    path: str
    """Folder, hub id, URI that a plugin opens (``s3://bucket/model``), or ``tiny:TASK`` for a tiny
    model made on first use."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Compute precision of trainer and engine; master weights and optimizer are float32."""
    attention: Literal["sdpa", "eager", "flash_attention_2", "flash_attention_3"] = "sdpa"
    """Attention implementation of transformers in the trainer."""
    forward_paths: tuple[str, ...] = ("core/packed",)
    """Faster forward passes than padding every row, tried in this order on the models that they
    support; ``[]`` always uses the model's own forward."""
    revision: str | None = None
    """Hub revision; ignored for folders."""
    trust_remote_code: bool = False
    """Run code that comes with the model. Leave it off unless you trust the author."""
    lora: LoraSection | None = None
    """Train LoRA adapters (with peft) instead of the whole model; null trains all weights."""


class SplitSection(ComponentConfig):
    """A held-out share of a source's problems, chosen by a hash of each problem's id."""

    heldout: Annotated[float, Field(gt=0, lt=1)]
    """Share of the problems that is not trained on."""
    seed: Natural = 0
    """Another seed holds out other problems."""


class SourceRef(ComponentRef):
    """One data source."""

    split: SplitSection | None = None
    """Train on all but a held-out share; the eval task ``core/dataset`` with the same ``split``
    evaluates on that share."""

    weight: Annotated[float, Field(gt=0)] | None = None
    """Share of draws relative to the other sources; without weights, all problems are one pool."""
    order: Annotated[str, Field(min_length=1)] | None = None
    """For the sampler ``mixture``: ``shuffle``, ``sequential``, or a file of problem ids."""
    count: Positive | None = None
    """For the sampler ``mixture``: use only this many of its problems, the first in its order."""
    advantage_scale: Annotated[float, Field(gt=0)] = 1.0
    """Factor on the advantages of its problems, and therefore on the size of their gradient."""


class LossRef(ComponentRef):
    """One term of the loss."""

    weight: Annotated[float, Field(gt=0)] = 1.0
    """Factor of this term in the sum."""
    data: ComponentRef | None = None
    """Dataset loader of a loss that learns from given answers; null uses ``data.sources``."""


class EngineRef(ComponentRef):
    """The engine that generates completions."""

    transport: ComponentRef = ComponentRef(use="auto")
    """How weights are sent to an engine in other processes; ``auto`` uses the engine's preferred
    transport."""


class PromptSection(ComponentConfig):
    """How problems are rendered to token ids, in training and evaluation alike."""

    chat_template: Literal["auto", "always", "never"] = "auto"
    """``auto`` decides from the problem and the tokenizer, reports its choice, and stores it with
    each checkpoint."""
    system: str | None = None
    """System message (chat) or text before the prompt (raw); null for none. An empty text counts as
    a system message."""
    prefix: str | None = None
    """Text the answer begins with, given to the model as part of the prompt."""
    template_options: dict[str, bool | int | float | str] = {}
    """Variables passed to the chat template, such as ``enable_thinking: false``."""

    @model_validator(mode="after")
    def _options_have_a_template(self) -> PromptSection:
        if self.template_options and self.chat_template == "never":
            raise ValueError("template_options have no effect with chat_template: never")
        return self


class DataSection(ComponentConfig):
    """Where problems come from."""

    sources: list[SourceRef] = Field(min_length=1)
    """Dataset loaders, each with options."""
    prompt: PromptSection = PromptSection()
    """How problems become prompts."""
    cache_uri: str | None = None
    """Where Hub datasets are looked for first, such as ``s3://bucket/datasets``: ``OWNER/NAME`` is
    expected in the folder ``OWNER--NAME/CONFIG/SPLIT``, written by ``save_to_disk``."""
    max_prompt_tokens: Positive = 1024
    """Problems with longer prompts are left out, counted and reported."""
    max_overlong_share: Fraction = 0.05
    """Share of over-long prompts above which the run refuses to start."""


class SamplingSection(ComponentConfig):
    """How completions are drawn in training."""

    n: Positive = 8
    """Completions per problem."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Sampling temperature; every log-prob in the loss is computed at it too."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus sampling: probability mass to sample from; 1.0 turns it off."""
    top_k: Natural = 0
    """Sample only from this many most probable tokens; 0 turns it off."""
    max_tokens: Positive = 512
    """Cap on a completion, in tokens."""
    stop: list[Annotated[str, Field(min_length=1)]] = []
    """Strings that end a completion, in addition to each problem's own."""


class RewardSchedule(ComponentConfig):
    """A reward's weight that changes linearly."""

    to: float
    """Weight at the end of the schedule."""
    steps: Positive
    """Steps until that weight is reached."""


class RewardRef(ComponentRef):
    """One verifier in the reward. ``use: auto`` uses each problem's own verifier."""

    weight: float = 1.0
    """Factor of its score in the sum that is the reward."""
    schedule: RewardSchedule | None = None
    """Changes the weight over the run."""


class EnvironmentSection(ComponentRef):
    """Multi-turn conversations: the environment that plays a problem, and the limits of each."""

    use: str = "auto"
    """``auto``: each problem is played by the environment that it names, if any. A name: that
    environment plays every problem."""
    max_turns: Positive = 8
    """Turns the model may write in one conversation."""
    max_turn_tokens: Positive | None = None
    """Tokens the model may write in one turn; null: as many as the conversation has left. The whole
    conversation, tokens of the environment included, is limited by ``sampling.max_tokens``."""
    timeout: Annotated[float, Field(gt=0)] = 30.0
    """Seconds one answer of the environment may take; after that its process is killed and the
    conversation counts as failed."""
    straggler_timeout: Annotated[float, Field(ge=0)] = 5.0
    """Seconds that conversations which are ready wait for slower environments, so that all are
    generated in one batch. A run whose environments always answer within it is reproducible bit by
    bit; lower it where tools often hang."""
    workers: Positive = 4
    """Processes that environments run in."""
    concurrent: Positive = 256
    """Conversations in progress at a time."""


class VerifySection(ComponentConfig):
    """The pool of verifier processes."""

    pool: ComponentRef | None = None
    """Place of the processes; null: on this machine. ``ray-pool``: in actors on the nodes of a Ray
    cluster."""
    workers: Positive = 2
    """Worker processes; with a ``pool`` those of each of its places."""
    timeout: Annotated[float, Field(gt=0)] = 10.0
    """Seconds one verdict may take, from the moment the worker begins it."""
    memory_mb: Positive = 2048
    """Memory a worker may take beyond what it holds when idle, in MiB."""
    max_error_rate: Fraction = 0.05
    """Share of verdicts with status error or timeout above which the run stops."""


class ReferenceSection(ComponentConfig):
    """The reference model, which the KL term of a loss keeps the policy close to."""

    sync_every: Positive | None = None
    """Optimizer updates between two syncs of the reference with the policy; null: never, the
    reference stays the model that the run began with."""
    ema: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the policy's weights in the reference at a sync: 1 copies the policy, less keeps an
    exponential moving average (in float32)."""
    offload: bool = False
    """Keep the weights of its layers in host memory and move each layer to the GPU while it
    computes. Only for a frozen reference that is a separate model on a GPU; not with
    ``parallel: fsdp``."""

    @model_validator(mode="after")
    def _what_is_offloaded_stays(self) -> ReferenceSection:
        if self.offload and self.sync_every is not None:
            raise ValueError("offload is for a frozen reference, not for a reference that moves")
        return self

    @model_validator(mode="after")
    def _ema_needs_sync(self) -> ReferenceSection:
        if self.sync_every is None and self.ema != 1.0:
            raise ValueError("ema has no effect without sync_every: a reference that never moves")
        return self


class TrainSection(ComponentConfig):
    """The training step: optimisation on the groups collected for it."""

    steps: Positive
    """Steps of the run."""
    prompts_per_step: Positive = 64
    """Problems whose groups are trained on in one step."""
    mini_batches: Positive = 1
    """Number of mini-batches that a step's groups are split into; a group is never split. Each
    makes one optimizer update. A step with fewer groups makes fewer updates."""
    num_iterations: Positive = 1
    """Passes of a step over its groups; the ratio of every update is relative to the policy at the
    beginning of the step."""
    lr: Annotated[float, Field(gt=0)] = 1e-6
    """Peak learning rate."""
    optimizer: ComponentRef = ComponentRef(use="adamw")
    """The optimizer."""
    warmup_steps: Natural = 30
    """Steps of linear warm-up to the peak learning rate; if not set, 30 or a tenth of ``steps``,
    whichever is less."""
    lr_schedule: ComponentRef = ComponentRef(use="constant")
    """Learning-rate schedule after the warm-up."""
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """Gradients are clipped to this norm; null turns clipping off."""
    tokens_per_micro_batch: Positive = 16384
    """Maximum tokens in one forward pass: prompts, completions and padding together."""
    gradient_checkpointing: Annotated[str, BeforeValidator(_checkpointing)] = "auto"
    """Layers whose activations are computed again in the backward pass, for less memory and more
    time: ``all``, ``every-N`` for every N-th layer (``every-2``: half of them), or ``none``.
    ``auto`` takes as few layers as the GPU's free memory allows, by the formulas of ``rlvr plan``;
    on a CPU it is ``none``."""
    compile: bool = False
    """Compile the model with ``torch.compile``."""
    parallel: Annotated[
        Literal["ddp", "fsdp"], Field(json_schema_extra={"instead_of": _FSDP_SHARDS})
    ] = "ddp"
    """Share of the model in each process: ``ddp`` the whole model, ``fsdp`` (FSDP2) a shard of
    its weights, gradients and optimizer state. With one process there is no difference."""
    shard_size: Positive | None = None
    """Processes that share one copy under ``parallel: fsdp``, a divisor of their number; each such
    set of processes in a row has a copy (HSDP). null: one copy for all of them. On several
    machines, the processes of one machine: then no weights are gathered between machines."""
    context_parallel: Positive = 1
    """Processes in a row that split the tokens of each micro-batch, a divisor of their number; 1:
    none. Each holds the activations of its tokens alone, so that a row may be about as many times
    longer."""
    reference: ReferenceSection = ReferenceSection()
    """The reference model, used by losses with ``beta`` above 0."""
    max_staleness: Natural = 0
    """0: generation and training alternate. Above 0: generation continues during training, in a
    process of its own, and a group was sampled at most this many updates before the step that
    trains on it begins. It must be at least ``mini_batches * num_iterations``, the updates of one
    step, times the sampler's ``max_reads``."""
    in_flight: Literal["drain", "abort", "keep"] = "drain"
    """With ``max_staleness``, what happens to unfinished requests at a weight sync: ``drain``
    finishes them first, ``abort`` samples them again with the new weights, ``keep`` continues them,
    so that their tokens have mixed versions."""
    mask_truncated: bool = False
    """Leave completions that hit the token cap out of the loss (they stay in the baseline)."""
    max_nonfinite_steps: Natural = 5
    """Consecutive steps that may be skipped because the gradient of every update was non-finite;
    one more stops the run."""

    @property
    def updates_per_step(self) -> int:
        """Optimizer updates of a step that has a group for every mini-batch."""
        return self.mini_batches * self.num_iterations

    @model_validator(mode="before")
    @classmethod
    def _default_components(cls, value: Any) -> Any:
        """Let ``optimizer: {with: {...}}`` set options of the default component."""
        return _named(cls, value, ("optimizer", "lr_schedule"))

    @model_validator(mode="before")
    @classmethod
    def _short_runs_warm_up_briefly(cls, value: Any) -> Any:
        if isinstance(value, dict) and "warmup_steps" not in value:
            steps = value.get("steps")
            if isinstance(steps, int) and not isinstance(steps, bool):
                return value | {"warmup_steps": min(30, max(steps, 0) // 10)}
        return value

    @model_validator(mode="after")
    def _shards_are_of_fsdp(self) -> TrainSection:
        if self.shard_size is not None and self.parallel != "fsdp":
            raise ValueError("shard_size has no effect without parallel: fsdp")
        return self

    @model_validator(mode="after")
    def _background_options_matter(self) -> TrainSection:
        if self.max_staleness == 0 and self.in_flight != "drain":
            raise ValueError(
                f"in_flight: {self.in_flight} has no effect with max_staleness: 0: nothing is "
                f"generated while training runs; set max_staleness to 1 or more"
            )
        return self

    @model_validator(mode="after")
    def _staleness_spans_a_step(self) -> TrainSection:
        if 0 < self.max_staleness < self.updates_per_step:
            raise ValueError(
                f"max_staleness ({self.max_staleness}) is below the {self.updates_per_step} "
                f"updates of a step (mini_batches * num_iterations): what is sampled while one "
                f"step trains would be too old for the next; set it to {self.updates_per_step}, "
                f"or to 0"
            )
        return self

    @model_validator(mode="after")
    def _warmup_fits(self) -> TrainSection:
        if self.warmup_steps >= self.steps and self.steps > 1 and self.warmup_steps > 0:
            raise ValueError(
                f"warmup_steps ({self.warmup_steps}) must be below steps ({self.steps}): the peak "
                f"learning rate would never be reached"
            )
        return self


class EarlyStopSection(ComponentConfig):
    """Early stopping: ends the run when a metric stops improving."""

    metric: str = Field(pattern=r"^.+:[^:]+$")
    """``TASK:METRIC`` of ``eval.tasks``."""
    patience: Positive = 3
    """Evaluations in a row without an improvement after which the run stops."""
    min_delta: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """An evaluation counts as an improvement if the metric changes by more than this."""
    direction: Literal["maximize", "minimize"] | None = None
    """Whether the metric improves by rising or by falling, for ``checkpoint.keep_best`` as well;
    null: as its task declares, or by rising."""


class EvalSection(ComponentConfig):
    """Evaluation on held-out problems, before the first step, during the run and at its end."""

    tasks: list[ComponentRef] = []
    """Eval tasks."""
    every: Natural = 0
    """Steps between evaluations; 0 for only the first and the last."""
    early_stop: EarlyStopSection | None = None
    """Ends the run when a metric no longer improves."""
    max_contaminated: Fraction = 0.001
    """Share of a task's problems that may be in the training data; above it the run stops."""

    @model_validator(mode="after")
    def _early_stop_has_evaluations(self) -> EvalSection:
        if self.early_stop is not None and self.every == 0:
            raise ValueError("early_stop needs evaluations on the way: set eval.every")
        return self


class CheckpointSection(ComponentConfig):
    """When checkpoints are written, and which are kept."""

    every: Natural = 20
    """Steps between checkpoints; 0 for only the last."""
    keep: Positive = 3
    """Number of newest checkpoints to keep."""
    keep_best: str | None = Field(default=None, pattern=r"^.+:[^:]+$")
    """``TASK:METRIC`` of ``eval.tasks``: a checkpoint is saved at each new best value, the largest
    or, of a metric that should fall, the smallest, and the best one is kept."""


class GuardRef(ComponentRef):
    """One guard; the list is merged by name with the guards that are on by default."""

    off: bool = False
    """Leave this guard out; ``{use: defaults, off: true}`` leaves out all that are on by
    default."""

    @model_validator(mode="after")
    def _defaults_are_only_switched_off(self) -> GuardRef:
        if self.use == "defaults" and (self.with_ or not self.off):
            raise ValueError("defaults can only be switched off: {use: defaults, off: true}")
        return self


class MetaSection(ComponentConfig):
    """Lineage of this configuration, stored with the run."""

    version: str | None = None
    """Your version of this configuration."""
    based_on: str | None = None
    """The configuration that it is based on."""
    notes: str | None = None
    """Free text."""


class RunConfig(ComponentConfig):
    """The configuration of one run."""

    meta: MetaSection = MetaSection()
    run: RunSection = RunSection()
    model: ModelSection
    data: DataSection
    sampler: ComponentRef = ComponentRef(use="shuffle")
    """Chooses problems, how many completions each gets, and which groups are kept."""
    sampling: SamplingSection = SamplingSection()
    rewards: list[RewardRef] = Field(default=[RewardRef(use="auto")], min_length=1)
    """Verifiers whose weighted sum is the reward."""
    verify: VerifySection = VerifySection()
    environment: EnvironmentSection = EnvironmentSection()
    engine: EngineRef = EngineRef(use="auto")
    """Generates completions; ``auto`` chooses when the run starts, and reports the choice and the
    reason."""
    advantage: ComponentRef = ComponentRef(use="auto")
    """How rewards become advantages; ``auto`` uses the estimator that the loss was published with:
    ``center`` for ``dr_grpo``, ``group`` for the others on rewards."""
    loss: LossRef | Annotated[list[LossRef], Field(min_length=1)] = LossRef(use="grpo")
    """The loss to minimise; a list is a weighted sum."""
    train: TrainSection
    eval: EvalSection = EvalSection()
    checkpoint: CheckpointSection = CheckpointSection()
    guards: list[GuardRef] = []
    """Guards with options of their own, further ones, and defaults that are off; those that are not
    named here are on with their default options."""
    plugins: dict[str, dict[str, Any]] = {}
    """Options of plugins that observe a run through hooks, by plugin name; see the plugin's own
    documentation."""
    track: list[ComponentRef] = []
    """Trackers that receive each step's metrics, in addition to ``metrics.jsonl``."""

    @model_validator(mode="before")
    @classmethod
    def _default_components(cls, value: Any) -> Any:
        """Let ``loss: {with: {...}}`` set options of the default component."""
        return _named(cls, value, ("sampler", "environment", "engine", "advantage", "loss"))

    @property
    def losses(self) -> dict[tuple[str | int, ...], LossRef]:
        """The terms of the loss by their place in the configuration."""
        if isinstance(self.loss, list):
            return {("loss", index): ref for index, ref in enumerate(self.loss)}
        return {("loss",): self.loss}
