"""What a component of each kind must be able to do.

A component is any class with a nested pydantic ``Config`` whose constructor takes an instance of
it. Nothing here needs to be inherited from, save ``ComponentConfig``. Torch appears in
annotations only, so that a plugin module stays cheap to import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, runtime_checkable

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from rlvr_core.types import (
    Completion,
    Done,
    Draw,
    Drop,
    EvalReport,
    Extend,
    GenerationRequest,
    Group,
    Json,
    Keep,
    Observation,
    Outcome,
    Problem,
    Reply,
    SamplingParams,
    Transcript,
    Usage,
    Verdict,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rlvr_core.hookspecs import GroupsScored, StepFinished

Kind = Literal[
    "dataset",
    "verifier",
    "loss",
    "sampler",
    "launcher",
    "eval_task",
    "engine",
    "environment",
    "guard",
]


AdvantageMode = Literal["group", "center", "batch", "rloo", "trl"]
"""How rewards become advantages; ``rlvr_core.losses.advantages`` has the formulas."""


CombineMode = Literal["sum_then_normalise", "normalise_then_sum"]
"""Whether several rewards are summed before or after they become advantages."""


@dataclass(frozen=True, slots=True)
class Names:
    """Marks an option that holds a component's name: ``Annotated[str, Names("verifier")]``.

    Attributes:
        kind: What kind of component.
    """

    kind: str


class ComponentConfig(BaseModel):
    """Base of every component's ``Config``: unknown keys are errors, values are frozen.

    The string under a field becomes its description in ``rlvr list KIND NAME`` and in the schema.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse ``true`` where a number is wanted, which pydantic takes for 1."""
        if isinstance(value, bool):
            annotation = cls.model_fields[str(info.field_name)].annotation
            kinds = {annotation, *get_args(annotation)}
            if kinds & {int, float} and not kinds & {bool, Any}:
                raise ValueError(f"a number is wanted here, not {str(value).lower()}")
        return value


class NoConfig(ComponentConfig):
    """The config of a component that has no options."""


@runtime_checkable
class DatasetLoader(Protocol):
    """Gives the problems of a data set, the same ones in the same order at each call."""

    def load(self) -> Iterable[Problem]:
        """Yield the problems.

        Raises:
            DataError: If a row is unusable; names the file and row.
            MachineError: If the data cannot be reached.
        """


@runtime_checkable
class Demonstrator(Protocol):
    """A dataset loader that can also show worked answers, for the tiny model's warm start."""

    def demonstrations(self, n: int, seed: int) -> Iterable[tuple[Problem, str]]:
        """Yield ``n`` training problems, each with one demonstrated completion."""


@runtime_checkable
class Verifier(Protocol):
    """Judges completions. Pure, synchronous and picklable; it runs in a worker process.

    It may also define ``check(problem) -> None``, called when data is loaded, which raises
    ``DataError`` if ``problem.spec`` lacks what the verifier needs; and ``gold(problem) ->
    str | None``, a response that must get full marks, used by the preflight check. One that waits
    for another machine may define a static method ``time_limit(config) -> float``: seconds that
    one verdict of it may take, in place of ``verify.timeout``; and ``beside``, names of options
    that change no verdict, such as a price: an evaluation records them beside its specification.
    """

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one completion."""


@runtime_checkable
class Environment(Protocol):
    """Turns a problem into a conversation: answers what the model writes, until it is done.

    It runs in worker processes, which are killed when a call takes too long, so its methods are
    plain functions. What it must remember of a conversation is the state: any object that can be
    pickled. It is kept between calls, and the next call may come in another process, so nothing
    else does. All conversations about one draw of a problem are started with the same seed.

    It may also define ``present(problem) -> Problem``, which gives the prompt and the tools as the
    model is to see them, and ``check(problem) -> None``, which raises ``DataError`` if the spec
    lacks what the environment needs: both are called in the trainer's process when data is loaded.
    ``cut(state, ended) -> Verdict`` says what a conversation is worth that ended at a limit, 0 when
    it is left out. ``close(state) -> None`` gives back what a conversation holds; it is called once
    for each that was started, whichever way it ended. A static ``time_limit(config) -> float`` is
    the seconds that one call may take, in place of ``environment.timeout``.
    """

    def start(self, problem: Problem, seed: int) -> Any:
        """The state of a new conversation."""

    def step(self, state: Any, reply: Reply) -> Observation | Done:
        """Answer the model, and bring the state up to date in place.

        What the model did wrong is answered by an observation or a verdict. An exception says that
        the environment failed: the conversation is then recorded as failed, and not trained on.
        """


@runtime_checkable
class Sampler(Protocol):
    """Chooses which problems, how many completions of each, and which groups are kept.

    ``rlvr_core.SamplerBase`` has all of it but the choice of problems.

    What it does must follow from its arguments alone: where several processes train together, each
    holds a copy that is asked and told the same, takes its share of the draws, and decides on its
    own groups with ``observe``, which changes nothing.
    """

    prompts_per_step: int

    def start(self, sources: Sequence[Source], *, n: int, seed: int) -> None:
        """Begin a run over these sources.

        Args:
            sources: The loaded data, in config order.
            n: Completions per problem, from ``sampling.n``.
            seed: The run's seed.
        """

    def draw(self, n_problems: int, *, step: int) -> list[Draw]:
        """The next problems of this step, never more than asked for."""

    def observe(self, group: Group) -> Keep | Drop | Extend:
        """Decide what happens to a group; of an extended one, when the new completions are in."""

    def update(self, outcomes: Sequence[Outcome]) -> None:
        """Learn what became of the groups of one ``draw``, in the order they were drawn.

        With ``train.max_staleness`` above 0, of those groups that have been decided on.
        """

    def refill(self, kept: int, drawn: int) -> int:
        """How many more problems to draw in this step, given what it has kept and drawn."""

    def metrics(self) -> dict[str, float]:
        """Numbers for the step's line, under ``sampler/``."""

    def state_dict(self) -> dict[str, Json]:
        """Everything ``load_state_dict`` needs to continue exactly."""

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue where ``state_dict`` was taken; called after ``start``."""


@dataclass(frozen=True, slots=True)
class Source:
    """Problems of one entry of ``data.sources``.

    Attributes:
        name: Full name of its dataset loader.
        problems: Its problems, over-long ones already taken out.
        weight: Share of draws, relative to the other sources; None for its share of problems.
        order: ``shuffle``, ``sequential``, or where a file of ids lies; None when not said.
        count: How many of its problems to use; None for all.
        left_out: Ids of the over-long problems.
    """

    name: str
    problems: tuple[Problem, ...]
    weight: float | None = None
    order: str | None = None
    count: int | None = None
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Normalizer:
    """Denominators of one optimizer step, over all ranks and micro-batches.

    Attributes:
        rows: Rows with at least one loss token.
        tokens: Loss tokens.
        max_completion_tokens: The run's cap on completion length.
        world_size: Processes whose gradients are averaged; losses are multiplied by it.
    """

    rows: int
    tokens: int
    max_completion_tokens: int
    world_size: int = 1


@dataclass(frozen=True, slots=True)
class LossBatch:
    """What a loss sees of one micro-batch. B rows (completions), T completion positions.

    Attributes:
        logp_BT: Current log-probs of the sampled tokens at the sampling temperature; has a graph.
        old_logp_BT: The trainer's log-probs when the tokens were sampled; no graph.
        behaviour_logp_BT: The engine's log-probs of the same tokens; no graph.
        ref_logp_BT: The reference's, or None when no loss asked for it.
        mask_BT: True where the loss counts.
        advantage_B: One advantage a row.
        entropy_BT: Entropy of the policy's distribution at each token, in nats; has a graph. None
            when it is not known.
        chosen_BT: True at the loss tokens of highest entropy, for a loss whose ``top_entropy`` is
            below 1; else None.
        teacher_logp_BTK: The teacher's log-probs of its K most likely tokens; None when no loss
            learns from one.
        student_logp_BTK: The policy's log-probs of the same tokens; has a graph.
        on_policy_B: Where ``old_logp_BT`` is the trainer's own; elsewhere nothing but the engine's
            is known and stands in for it. None: in every row.
    """

    logp_BT: Tensor
    old_logp_BT: Tensor
    behaviour_logp_BT: Tensor
    ref_logp_BT: Tensor | None
    mask_BT: Tensor
    advantage_B: Tensor
    entropy_BT: Tensor | None = None
    chosen_BT: Tensor | None = None
    teacher_logp_BTK: Tensor | None = None
    student_logp_BTK: Tensor | None = None
    on_policy_B: Tensor | None = None


@dataclass(frozen=True, slots=True)
class LossOutput:
    """A micro-batch's share of the step's loss, and metrics.

    Attributes:
        loss: Scalar; summed over micro-batches and averaged over ranks it is the step's loss.
        sums: Metric name to (sum, count) over this micro-batch; the step's value is the ratio of
            the totals. A metric that was not computed is absent.
        maxima: Metric name to this micro-batch's maximum.
    """

    loss: Tensor
    sums: Mapping[str, tuple[Tensor, Tensor]]
    maxima: Mapping[str, Tensor]


@runtime_checkable
class Loss(Protocol):
    """A pure tensor function; it never sees gradient accumulation or other ranks.

    It may also define ``top_entropy: float``, the share of the step's tokens that its batch's
    ``chosen_BT`` is to mark; ``combine: CombineMode``, how several rewards become one advantage;
    and ``needs_old: bool``, False where it does not look at ``old_logp_BT``, which otherwise costs
    a forward pass in a step of several updates.
    """

    @property
    def needs_reference(self) -> bool:
        """Whether the batch must hold the reference's log-probs."""

    @property
    def advantage(self) -> AdvantageMode | None:
        """How rewards become advantages; None where they are not used."""

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Loss and metrics of one micro-batch."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One finished answer of an engine; see ``Completion`` for the fields.

    ``loss_mask`` and ``transcript`` are of conversations, which no engine makes by itself.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish_reason: Literal["stop", "length", "abort", "error"]
    version: int
    usage: Usage | None = None
    loss_mask: tuple[bool, ...] | None = None
    transcript: Transcript | None = None
    token_versions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineContext:
    """What the trainer hands an engine at its start.

    Attributes:
        model_path: Folder of the model as transformers loads it.
        model: The trainer's own model; engines in its process may use it, others ignore it.
        tokenizer: The run's tokenizer.
        dtype: Compute precision of the run.
        max_model_len: Longest prompt plus completion, in tokens.
        seed: The run's seed.
        trust_remote_code: Whether code that comes with the model may run.
        adapter_rank: Rank of the LoRA adapter that is trained; None where there is none.
    """

    model_path: str
    model: PreTrainedModel | None
    tokenizer: PreTrainedTokenizerBase
    dtype: torch.dtype
    max_model_len: int
    seed: int
    trust_remote_code: bool = False
    adapter_rank: int | None = None


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter as peft saves it.

    Attributes:
        tensors: Its matrices, whole, by their names in the file.
        config: What goes into ``adapter_config.json``.
    """

    tensors: dict[str, Tensor]
    config: dict[str, Json]


class WeightSource(Protocol):
    """Where an engine takes new weights from."""

    @property
    def module(self) -> PreTrainedModel:
        """The trainer's model, for engines that share it.

        In a process of its own, an engine finds its copy here, or None if it is one that says
        ``own_weights = True``: it takes weights by name and holds no model of transformers.
        Nor is there one for such an engine where processes share the model out among them (FSDP);
        its ``tensors`` then come layer by layer, and every process has to ask for them.
        """

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Full, unsharded tensors by Hugging Face name; a tied weight once; adapters merged."""

    def adapter(self) -> Adapter:
        """The LoRA adapter alone, of a run that trains one."""


@runtime_checkable
class Engine(Protocol):
    """Generates text.

    Work that needs this process happens in ``drain``; a future may be resolved earlier by
    engines that work on their own.

    In a run of several processes each has an engine. One that never touches the trainer's model in
    this process says so by a class attribute ``separate = True``; it finds the GPUs that
    ``rlvr launch --engine-gpus`` keeps for it in ``RLVR_ENGINE_GPUS``.

    One that begins with a request while ``drain`` is at work on others says so by a class attribute
    ``continuous = True``; it must stand a ``submit`` from a callback of one of its futures.
    """

    def start(self, context: EngineContext) -> None:
        """Load what is needed; called once, before anything else.

        Raises:
            MachineError: If this machine lacks what the engine needs.
        """

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request; the result has one generation per seed, in order."""

    def drain(self, timeout: float | None = None) -> None:
        """Return when every submitted request is finished.

        Raises:
            RunError: If that took longer than ``timeout`` seconds.
        """

    def load_weights(self, version: int, source: WeightSource) -> None:
        """Take new weights and label what is sampled from now on with ``version``.

        One transaction: on return no cache built under older weights can be used (T19). A
        failure raises and leaves the engine unusable rather than silently old.
        """

    def sleep(self) -> None:
        """Give memory back while the trainer works; no-op where there is none to give."""

    def wake(self) -> None:
        """Undo ``sleep``."""

    def close(self) -> None:
        """Stop; safe to call twice."""


@runtime_checkable
class Telling(Protocol):
    """An engine that has something to tell beside its answers: processes that died, say."""

    def metrics(self) -> dict[str, float]:
        """Numbers for the step's line, counted since this was asked before."""

    def take_events(self) -> list[str]:
        """What happened, in words, since this was asked before."""


@runtime_checkable
class Interruptible(Engine, Protocol):
    """An engine that can be spoken to while it drains; an ability that not every engine has.

    From ``between``, ``load_weights`` may be called with requests unfinished: they go on under the
    new weights, or under the old ones, and are labelled with the version they began under.
    """

    between: Callable[[], None] | None
    """Called between tokens, in the thread that drains; it may call any method but ``drain``."""

    def abort(self) -> None:
        """Cancel the future of every request that is not finished; ``drain`` then returns."""


@runtime_checkable
class BackgroundEngine(Engine, Protocol):
    """An engine that generates while this process does something else.

    Its futures are resolved from a thread of its own, and ``drain`` only waits. Any other engine is
    put into a process of its own when generation is to go on while training runs.
    """

    @property
    def at_sync(self) -> frozenset[str]:
        """What it can do with unfinished requests at a sync: of ``drain``, ``abort``, ``keep``."""

    def begin(self) -> None:
        """Have everything that was submitted generated; returns at once."""

    def abort(self) -> None:
        """Cancel the future of every request that is not finished, before it returns."""


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """A given text to be scored behind a given prompt; neither is empty.

    Attributes:
        prompt_ids: What the model is given.
        token_ids: What it might have gone on with.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scores:
    """What a model thinks of each token of a given text.

    Attributes:
        logprobs: Its log-prob at temperature 1.
        greedy: Whether greedy decoding would have chosen it.
    """

    logprobs: tuple[float, ...]
    greedy: tuple[bool, ...]


@runtime_checkable
class Scorer(Protocol):
    """An engine that can also score given text; an ability that not every engine has."""

    def score(self, requests: Sequence[ScoreRequest], timeout: float | None) -> list[Scores]:
        """Score texts under the engine's current weights; the result is in their order.

        Raises:
            RunError: If that took longer than ``timeout`` seconds, or the engine failed.
        """


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What a launcher is to start.

    Attributes:
        arguments: The words after ``rlvr`` that do it, ``run`` first, or ``eval``.
        name: ``run.name``; of an evaluation its model's.
        engine_apart: Whether the config's engine works in processes of its own.
        files: The YAML files the config was read from, the one named in ``arguments`` first.
        references: Values of the config that name files or folders of this machine.
        continues: URI of the runs of an earlier job, with the newest of which this one goes on.
        uris: URIs that the configs name.
        beside: By which config checkpoints are evaluated while the run trains; None: not at all.
    """

    arguments: tuple[str, ...]
    name: str
    engine_apart: bool = False
    files: tuple[Path, ...] = ()
    references: tuple[Reference, ...] = ()
    continues: str = ""
    uris: tuple[str, ...] = ()
    beside: EvaluatedBeside | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """A value of a config that names a file or folder of this machine.

    Attributes:
        key: Its place, as ``--set`` takes it.
        value: The value as written.
        path: What it names, absolute.
    """

    key: str
    value: str
    path: Path


@dataclass(frozen=True, slots=True)
class EvaluatedBeside:
    """What ``rlvr launch --eval-config`` asks for: ``rlvr watch --config`` beside the training.

    Attributes:
        config: The YAML file, checked; the checkpoint takes the place of its ``model.path``.
        files: The YAML files it was read from, itself first.
        references: Values of it that name files or folders of this machine.
        uris: URIs that it names.
    """

    config: Path
    files: tuple[Path, ...]
    references: tuple[Reference, ...] = ()
    uris: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What a launcher would do.

    Attributes:
        launcher: Its full name.
        lines: The plan for people.
        details: The plan for programs and for ``submit``: JSON, without secrets.
    """

    launcher: str
    lines: tuple[str, ...]
    details: Mapping[str, Json]


@runtime_checkable
class Launcher(Protocol):
    """Puts a run somewhere.

    One whose job outlives the command is a ``JobLauncher`` too. One whose job runs on machines
    that do not have this one's files says so by a class attribute ``elsewhere = True``: its config
    is then searched for secrets before it is asked for a plan. One that can evaluate models as
    well, as ``rlvr launch --eval`` asks, says ``evaluates = True``; one that evaluates checkpoints
    beside the training, as ``--eval-config`` asks, ``evaluates_beside = True``. One that goes on
    with the run of an earlier job, as ``rlvr launch --resume JOB`` asks, says ``resumes = True``.
    """

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """What would be done. Pure: it starts nothing, and asks no machine and no network.

        Raises:
            ConfigError: If the options do not fit.
        """

    def submit(self, plan: LaunchPlan) -> int:
        """Do it; the exit code of the run, or 0 when the job goes on without this command."""


JobState = Literal["waiting", "running", "finished", "failed", "stopped", "unknown"]
"""What a job is doing; only the first two, and ``unknown``, may still change."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What a launcher knows of a job.

    Attributes:
        state: In our words.
        detail: In the words of the place it runs at.
    """

    state: JobState
    detail: str = ""


@runtime_checkable
class JobLauncher(Launcher, Protocol):
    """A launcher whose job goes on without the command that submitted it.

    Its ``submit`` writes each job down with ``rlvr_core.launch.jobs.JobBook``; ``rlvr jobs`` makes
    it anew from the options written there, and names the job.
    """

    def status(self, job: str) -> JobStatus:
        """What a job is doing.

        Raises:
            MachineError: If that cannot be known.
        """

    def logs(self, job: str) -> Iterable[str]:
        """What it has printed so far, line by line."""

    def stop(self, job: str) -> None:
        """Ask it to stop; it writes a checkpoint first."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a store.

    Attributes:
        size: In bytes.
        tag: Changes whenever the content does.
    """

    size: int
    tag: str


@runtime_checkable
class Store(Protocol):
    """Files under one URI of a store elsewhere, by keys such as ``checkpoints/latest``.

    Each call tries again by itself for a while when the store or the way there fails; what it
    raises then is a ``MachineError``. Calls come from several threads.

    One that counts the bytes it moves has the count as ``moved``: a large file that takes long is
    then not mistaken for one that is stuck.
    """

    def list(self, prefix: str = "") -> dict[str, StoredFile]:
        """Every file whose key begins so."""

    def put(self, path: Path, key: str, size: int | None = None) -> None:
        """Store a file; on return the store has been seen to hold exactly this content.

        Args:
            path: The file.
            key: Where it goes.
            size: Only its first bytes, for a file that grows meanwhile.

        Raises:
            FileNotFoundError: If the file is not there, or is taken away meanwhile.
        """

    def get(self, key: str, path: Path, told: Callable[[int], None] | None = None) -> None:
        """Fetch a file: whole under its name, or not there at all.

        Args:
            key: The file.
            path: Where it goes; folders are made.
            told: Told of bytes as they come.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Take files away; those that are not there are no fault."""


@runtime_checkable
class TextEngine(Engine, Protocol):
    """An engine whose model is elsewhere: it takes text and gives text, no tokens, no log-probs.

    It evaluates models that are named ``openai:NAME``; a run refuses to train with it. It is
    started without model and tokenizer. Its requests have ``turns`` and no ``prompt_ids``; its
    generations have ``usage`` and no tokens.
    """

    text_only: Literal[True]
    """Of the class, so that it is known before an engine is made."""

    @property
    def takes_turns(self) -> bool:
        """Whether it wants a chat; otherwise one turn that holds the whole raw text."""


@runtime_checkable
class EvalTask(Protocol):
    """A data set split with frozen sampling and metrics.

    It may have ``graders``, names of verifiers that look on in ``rlvr eval`` beside the problems'
    own: a second opinion on the extraction of answers (T73, T78).
    """

    n: int
    """Completions per problem."""

    sampling: SamplingParams

    def problems(self) -> Sequence[Problem]:
        """The problems, in a fixed order."""

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Metrics of all groups."""


@runtime_checkable
class Guard(Protocol):
    """Watches a run and stops it by raising ``RunError`` when something fails silently.

    One that remembers earlier steps may have ``state_dict`` and ``load_state_dict``, as a sampler
    does: a checkpoint then holds what it remembers.
    """

    def on_groups(self, event: GroupsScored) -> None:
        """Called with each step's groups before the optimizer step."""

    def on_step(self, event: StepFinished) -> None:
        """Called with each step's metrics."""


def config_class(component: type[Any]) -> type[ComponentConfig]:
    """The ``Config`` of a component class; ``NoConfig`` when it has none."""
    found = getattr(component, "Config", NoConfig)
    if not (isinstance(found, type) and issubclass(found, ComponentConfig)):
        raise TypeError(
            f"{component.__module__}.{component.__qualname__}.Config must be a subclass of "
            f"rlvr_core.ComponentConfig"
        )
    return found
