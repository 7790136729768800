"""The view that a guard has of its run, and the class that guards inherit from.

A guard that has a method ``bind`` is given a ``GuardContext`` once model and engine are there, and
one that has ``preflight`` may look at the prepared run before its model is loaded. A guard that is
a ``StepObserver`` sees what each step computes; ``GuardContext.view`` holds it in a form to read.
``BaseGuard`` is what the guards of rlvr inherit from, and others may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from rlvr_core.api.components import ComponentConfig, Metric, NoConfig, RunWatcher
from rlvr_core.api.errors import RunError
from rlvr_core.api.learning import StepObserver

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from rlvr_core.api.completions import Completion
    from rlvr_core.api.engines import Engine
    from rlvr_core.api.forward import MicroBatch
    from rlvr_core.api.hooks import DataReport, GroupsScored, StepFinished
    from rlvr_core.api.judging import Sampler
    from rlvr_core.api.learning import Loss, LossBatch, LossComputed, LossOutput, Normalizer
    from rlvr_core.api.problems import Problem
    from rlvr_core.api.rollouts import Group

RowKey = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Place of a row's group in the step, its prompt and its tokens."""


@dataclass(slots=True)
class SeenMicroBatch:
    """A micro-batch as its losses saw it, without graphs.

    Attributes:
        micro_batch: The rows of the forward pass.
        normalizer: Denominators of the update.
        losses: Each loss with its batch and output.
        gradient_BT: Gradient that arrived at the log-probs; None before the backward pass.
    """

    micro_batch: MicroBatch
    normalizer: Normalizer
    losses: list[tuple[Loss, LossBatch, LossOutput]]
    gradient_BT: Tensor | None = None

    @property
    def batch(self) -> LossBatch:
        """The batch of the first loss."""
        return self.losses[0][1]


@dataclass(frozen=True, slots=True)
class SeenRow:
    """A row of a micro-batch.

    Attributes:
        key: Which row of the step it is; equal completions of a group have one key.
        mask: Where the loss counts, one per token.
        advantage: What the loss was given.
        share: The share of its completion that the loss counts it for.
    """

    key: RowKey
    mask: tuple[bool, ...]
    advantage: float
    share: float


@dataclass(slots=True)
class StepView:
    """The step in progress, as this process sees it.

    Attributes:
        groups: The groups that the step trains on.
        step: The step, from 0.
        version: Policy version at its start.
        update: Updates before the current one.
        seen: Micro-batches of completions of the current update.
        first_pass: Whether the current update reads its rows for the first time in the step.
    """

    groups: Sequence[Group] = ()
    step: int = 0
    version: int = 0
    update: int = 0
    seen: list[SeenMicroBatch] = field(default_factory=list)
    first_pass: bool = True
    _places: set[int] = field(default_factory=set)
    _fresh: dict[int, bool] = field(default_factory=dict)
    _rows: list[SeenRow] | None = None

    def begin(self, groups: Sequence[Group], step: int, version: int) -> None:
        """Forget the step before."""
        self.groups, self.step, self.version, self.update = groups, step, version, 0
        self.seen, self._rows, self._places, self._fresh = [], None, set(), {}

    def add(self, event: LossComputed) -> None:
        """Keep the numbers of a micro-batch, and the gradient that its backward pass brings."""
        losses = [(loss, batch.detached(), output) for loss, batch, output in event.losses]
        seen = SeenMicroBatch(event.micro_batch, event.normalizer, losses)
        logp_BT = event.losses[0][1].logp_BT
        if logp_BT.requires_grad:
            keep: Callable[[Tensor], None] = partial(setattr, seen, "gradient_BT")
            logp_BT.register_hook(lambda gradient: keep(gradient.detach()))  # type: ignore[no-untyped-call]
        self.seen.append(seen)

    def complete(self) -> None:
        """The gradient of the update is complete."""
        places = {place for one in self.seen for place in one.micro_batch.group_B.tolist()}
        self.first_pass = not places & self._places
        self._places |= places

    def next(self) -> None:
        """The update is over."""
        self.update += 1
        self.seen, self._rows = [], None

    def fresh(self, place: int) -> bool:
        """Whether all completions of a group were sampled under the weights of the step's start."""
        if place not in self._fresh:
            self._fresh[place] = is_fresh(self.groups[place], self.version)
        return self._fresh[place]

    def rows(self) -> Sequence[SeenRow]:
        """Return the rows of the micro-batches of the update; read once for all guards."""
        if self._rows is None:
            self._rows = [row for one in self.seen for row in _rows_of(one)]
        return self._rows


def is_fresh(group: Group, version: int) -> bool:
    """Whether every token of a group was sampled under this version."""
    return group.version == version and not any(
        set(member.completion.token_versions) - {version} for member in group.members
    )


def row_key(place: int, row: Completion) -> RowKey:
    """Return the key of a completion, or of a branch of one, of the group at this place."""
    return (place, row.prompt_ids, row.token_ids)


def _rows_of(seen: SeenMicroBatch) -> Iterator[SeenRow]:
    micro, share_B = seen.micro_batch, seen.normalizer.share_B
    lengths = zip(micro.prompt_ids_SP.tolist(), micro.prompt_len_S.tolist(), strict=True)
    prompts = [tuple(ids[:length]) for ids, length in lengths]
    places = micro.group_B.tolist()
    columns = zip(
        places,
        micro.prompt_of_row_B.tolist(),
        micro.completion_ids_BT.tolist(),
        micro.completion_len_B.tolist(),
        seen.batch.mask_BT.tolist(),
        seen.batch.advantage_B.tolist(),
        [1.0] * len(places) if share_B is None else share_B.tolist(),
        strict=True,
    )
    for place, prompt, ids, length, mask, advantage, share in columns:
        key = (place, prompts[prompt], tuple(ids[:length]))
        yield SeenRow(key, tuple(mask[:length]), advantage, share)


@dataclass(frozen=True, slots=True)
class GuardContext:
    """The run that a guard watches, in one of its processes.

    Attributes:
        config: The run's configuration, with full component names and all options.
        trainer: The policy's trainer: model, reference, losses, optimizer, precision.
        engine: What generates, without what plays conversations on it.
        sampler: Chooses the problems.
        judge: Judges completions in the run's pool.
        problems: The training problems by id.
        tokenizer: The run's tokenizer.
        ranks: The processes of the run.
        room: Tokens of prompt and completion together that the engine has room for.
        longest_prompt: Tokens of the longest prompt.
        say: Tells the user.
        phase: Says what the run is waiting for.
        record: Keeps findings in ``run.json``.
        view: The step in progress, for guards that are a ``StepObserver``.
    """

    config: Any
    trainer: Any
    engine: Engine
    sampler: Sampler
    judge: Any
    problems: Mapping[str, Problem]
    tokenizer: Any
    ranks: Any
    room: int
    longest_prompt: int
    say: Callable[[str], None]
    phase: Callable[[str], None]
    record: Callable[[DataReport], None]
    view: StepView


@runtime_checkable
class BindsToRun(Protocol):
    """A guard that wants to know the run."""

    def bind(self, context: GuardContext) -> None:
        """Called once, before the first step, and before a checkpoint is loaded."""


@runtime_checkable
class LooksBeforeRun(Protocol):
    """A guard that looks at a run before its model is loaded."""

    def preflight(self, prepared: Any) -> Sequence[str]:
        """Return lines for the user; raises ``RlvrError`` to refuse the run."""


OFTEN, EVERY = 8, 10
"""First steps of a process in each of which the costlier checks are made; later in one of so
many."""


class BaseGuard(RunWatcher, StepObserver):
    """What a guard inherits from: it is told all that a guard can be told of a run.

    Each method does nothing unless overridden.

    Attributes:
        name: Its full name, ``plugin/leaf``.
        numbers: The numbers of the step, for its line.
        due: Whether this step makes the checks that are not made in each.
    """

    name: ClassVar[str]
    reports: ClassVar[tuple[Metric, ...]] = ()
    Config: type[ComponentConfig] = NoConfig
    context: GuardContext

    def __init__(self, config: ComponentConfig) -> None:
        self.numbers: dict[str, float] = {}
        self.due = True
        self._said: set[str] = set()
        self._first: int | None = None

    def bind(self, context: GuardContext) -> None:
        """See ``BindsToRun``."""
        self.context = context

    @property
    def view(self) -> StepView:
        """The step in progress."""
        return self.context.view

    @property
    def compute_dtype(self) -> torch.dtype:
        """The dtype of the trainer's forward pass."""
        dtype: torch.dtype = self.context.trainer.precision.compute
        return dtype

    def is_due(self, step: int) -> bool:
        """Whether this step makes the checks that are not made in each."""
        self._first = step if self._first is None else self._first
        return step - self._first < OFTEN or step % EVERY == 0

    def begin(self, step: int) -> None:
        """Forget the numbers of the step before, and note whether this one is looked at."""
        self.numbers, self.due = {}, self.is_due(step)

    def on_groups(self, event: GroupsScored) -> None:
        """See ``Guard``."""

    def on_step(self, event: StepFinished) -> None:
        """See ``Guard``."""

    def report(self) -> Mapping[str, float]:
        """Return the numbers of the step. See ``Reporter``."""
        return self.numbers

    def say_once(self, text: str) -> None:
        """Tell the user what the guard does not look at, once in a process."""
        self._once(f"guard {_leaf(self.name)}: {text}")

    def warn_once(self, text: str) -> None:
        """Warn of what the guard found doubtful, once in a process."""
        see = _see(self.name)
        self._once(f"warning: guard {_leaf(self.name)}: {text}{see and f'; {see}'}")

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.context.say(text)

    def fault(self, step: int, what: str, *remedy: str) -> RunError:
        """Return the error that ends the run.

        Args:
            step: The step, from 0.
            what: What was measured, with its band.
            remedy: What to do, by the likely cause.
        """
        return RunError(
            f"guard {_leaf(self.name)}: {what}",
            where=f"step {step + 1}",
            remedy=(*filter(None, remedy), how_to_switch_off(self.name)),
        )

    def raise_first(self, step: int, fault: str, remedy: str = "") -> None:
        """Raise what a process found, in all of them; a collective.

        Args:
            step: The step, from 0.
            fault: What is wrong, with its remedy behind a line break; empty if nothing is.
            remedy: What to do if the text has none.
        """
        for text in self.context.ranks.gather(fault):
            if text:
                what, _, advice = text.partition("\n")
                raise self.fault(step, what, advice or remedy)


def how_to_switch_off(name: str) -> str:
    """Return the line that ends every message of a guard, given its full name."""
    off = f"guards: [{{use: {name}, off: true}}] turns it off"
    return "; ".join(filter(None, (_see(name), off)))


def _leaf(name: str) -> str:
    return name.rpartition("/")[2]


def _see(name: str) -> str:
    """Return where a guard is described; those of other plugins have no page here."""
    plugin, _, leaf = name.partition("/")
    return f"see rlvr docs guards#{leaf}" if plugin in ("core", "guards") else ""
