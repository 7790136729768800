"""Base classes of components, and protocols of what measures and watches a run.

A component is any class with a nested pydantic ``Config`` whose constructor takes an instance of
it. Nothing here needs to be inherited from, save ``ComponentConfig``. Torch appears in
annotations only, so that a plugin module stays cheap to import.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from rlvr_core.api.errors import PluginError
from rlvr_core.api.hooks import (
    CheckpointSaved,
    EvalFinished,
    GroupsScored,
    RunFinished,
    RunStarted,
    StepFinished,
)
from rlvr_core.api.problems import Json, Problem, SamplingParams
from rlvr_core.api.rollouts import EvalReport, Group


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, or a family of them.

    A component declares those that it reports under names of its own as a class attribute::

        reports = (Metric("cache/hit_rate", "Share of prompts found in the cache.", "share"),)

    Attributes:
        name: Its name; ``<part>`` stands for any text.
        meaning: What it measures, in one sentence.
        unit: Unit of its values.
        better: ``up`` or ``down`` if higher or lower values are better; None if neither is.
    """

    name: str
    meaning: str
    unit: str
    better: Literal["up", "down"] | None = None


Kind = Literal[
    "dataset",
    "verifier",
    "loss",
    "advantage",
    "sampler",
    "launcher",
    "eval_task",
    "engine",
    "environment",
    "guard",
    "tool_format",
    "optimizer",
    "schedule",
    "tracker",
    "transport",
]


@dataclass(frozen=True, slots=True)
class Names:
    """Marks an option that holds a component's name: ``Annotated[str, Names("verifier")]``.

    Attributes:
        kind: What kind of component.
    """

    kind: str


class Registrar(Protocol):
    """The argument of a registering hook: adds components of one kind under one plugin's name."""

    def add(
        self,
        name: str,
        target: str,
        *,
        summary: str,
        models: Sequence[str] = (),
        rank: int | None = None,
    ) -> None:
        """Register a component.

        Args:
            name: Leaf name; the full name becomes ``<plugin>/<name>``.
            target: ``module:attribute``, imported when first used.
            summary: One sentence for ``rlvr list``.
            models: Of a forward path: classes of the models it may serve, such as
                ``LlamaForCausalLM``; it is imported for no other. Empty for any model.
            rank: Of a guard: it is on in every run whose configuration does not switch it off, and
                looks after those of lower rank. Of a fault that sets off several guards, the one
                that explains it should come first. None: it is on where it is named, and looks
                last.

        Raises:
            PluginError: If name, target or summary is malformed, or the name is taken.
        """


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
        """Refuse ``true`` in place of a number, which pydantic would convert to 1."""
        if isinstance(value, bool):
            annotation = cls.model_fields[str(info.field_name)].annotation
            kinds = {annotation, *get_args(annotation)}
            if kinds & {int, float} and not kinds & {bool, Any}:
                raise ValueError(f"a number is wanted here, not {str(value).lower()}")
        return value


class NoConfig(ComponentConfig):
    """The config of a component that has no options."""


def declared_metrics(component: type[Any]) -> tuple[Metric, ...]:
    """The metrics that a component class declares in ``reports``.

    Raises:
        PluginError: If they are something else than a tuple of ``Metric``.
    """
    metrics = getattr(component, "reports", ())
    if isinstance(metrics, tuple) and all(isinstance(metric, Metric) for metric in metrics):
        return metrics
    raise PluginError(
        f"{component.__module__}:{component.__qualname__}.reports is {metrics!r}, not a tuple of "
        "Metric",
        remedy="write reports = (Metric(name, meaning, unit),), from rlvr_core.api",
    )


def config_class(component: type[Any]) -> type[ComponentConfig]:
    """The ``Config`` of a component class; ``NoConfig`` when it has none."""
    config = getattr(component, "Config", NoConfig)
    if not (isinstance(config, type) and issubclass(config, ComponentConfig)):
        raise PluginError(
            f"{component.__module__}.{component.__qualname__}.Config must be a subclass of "
            f"rlvr_core.api.ComponentConfig",
            where=inspect.getfile(component),
        )
    return config


@runtime_checkable
class EvalTask(Protocol):
    """A data set split with frozen sampling and metrics.

    Its traits are ``EvalTaskTraits``.
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

    A guard that remembers earlier steps is ``Stateful``: its state is saved in checkpoints. One
    that is also a ``RunWatcher`` is notified of the start of the run, with its configuration, and
    of evaluations. ``BaseGuard`` is both, and a ``StepObserver``.
    """

    def on_groups(self, event: GroupsScored) -> None:
        """Called with each step's groups before the optimizer step."""

    def on_step(self, event: StepFinished) -> None:
        """Called with each step's metrics."""


@runtime_checkable
class Stateful(Protocol):
    """A component whose state is saved in checkpoints, so that a resumed run continues exactly."""

    def state_dict(self) -> dict[str, Json]:
        """Return all that ``load_state_dict`` needs, as JSON."""

    def load_state_dict(self, state: dict[str, Json]) -> None:
        """Restore the state that ``state_dict`` returned."""


@runtime_checkable
class Reporter(Protocol):
    """A guard, tracker or optimizer that has numbers of its own for the metrics of a step.

    Its class declares them: ``reports = (Metric("drift/mean", "What it says.", "its unit"),)``.
    """

    def report(self) -> Mapping[str, float]:
        """Return numbers by name; called once a step, after the update and before ``on_step``."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The run that a tracker shows.

    Attributes:
        folder: The run's folder; a tracker's files go into a folder of their own there.
        name: The folder's name, which no other run has.
        config: The resolved configuration, without secrets.
    """

    folder: Path
    name: str
    config: Mapping[str, Json]


@runtime_checkable
class Tracker(Protocol):
    """Shows a run's metrics elsewhere; lives in the run's first process.

    Its constructor raises ``MachineError`` when a package is missing, so that a run fails before
    its first step. One that fails later is reported, and the run goes on without it:
    ``metrics.jsonl`` has everything.
    """

    def start(self, run: TrackedRun, step: int) -> None:
        """Begin to show a run, or continue with a resumed one.

        Args:
            run: The run.
            step: The first step to come. Above 0, or in a folder that a tracker began before, the
                run was resumed: steps from this one on may have been shown already, and must not
                be shown twice.
        """

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Show the metrics of a step; values may be infinite or NaN."""

    def close(self) -> None:
        """Send everything that is still buffered, and stop."""


class RunWatcher:
    """Is told of a run what is not of its steps. Each method does nothing unless overridden.

    All calls come from the thread that trains. What a watcher raises ends the run, which is what a
    guard does on purpose.
    """

    def phase(self, label: str) -> None:
        """The run now does this, or waits for it."""

    def run_started(self, event: RunStarted) -> None:
        """The first step is about to be taken, or the first after a resume."""

    def eval_finished(self, event: EvalFinished) -> None:
        """An evaluation is done."""

    def checkpoint_saved(self, event: CheckpointSaved) -> None:
        """A checkpoint is complete on disk."""

    def run_finished(self, event: RunFinished) -> None:
        """The run has ended, well or badly."""


class RunObserver(RunWatcher):
    """Receives all events of a run, in their order, as a display does."""

    def plan(self, lines: Sequence[str]) -> None:
        """The run is about to load its model; ``lines`` say what it is going to do."""

    def message(self, text: str) -> None:
        """Something the user should know."""

    def groups_scored(self, event: GroupsScored) -> None:
        """The groups of a step have their rewards; the step has not trained on them yet."""

    def step_finished(self, event: StepFinished) -> None:
        """A step is done."""

    def close(self) -> None:
        """Release what is held: a terminal, a file; safe to call twice."""
