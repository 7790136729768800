"""The hooks that a plugin may implement. The contract of each is in ``docs/plugins.md``.

A plugin is a light module named by an entry point of the group ``rlvr``. It imports only
``rlvr_core.api`` at top level; heavy imports belong in the components it registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pluggy

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr_core.api.components import ComponentConfig, Registrar
    from rlvr_core.api.forward import RowSplit
    from rlvr_core.api.launching import RunMirror, Store
    from rlvr_core.api.learning import Loss
    from rlvr_core.api.problems import Json, Problem
    from rlvr_core.api.rollouts import Conversations, EvalReport, Group
    from rlvr_core.config.model import EnvironmentSection, RunConfig
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.config.tree import Loc
    from rlvr_core.data.prompts import Renderer
    from rlvr_core.plugins.host import Host
    from rlvr_core.step.objective import MakeTeacher
    from rlvr_core.verify.reward import RewardPlan

API_VERSION = 1
"""Incremented when a hook changes incompatibly.

A plugin module says which one it was written for by ``RLVR_API = 1``; leaving it out means 1.
"""

hookspec = pluggy.HookspecMarker("rlvr")
hookimpl = pluggy.HookimplMarker("rlvr")


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run is about to take its first step, or its first after it was resumed."""

    run_dir: Path
    config: Mapping[str, object]
    step: int
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class GroupsScored:
    """The groups of one step, kept and dropped alike, before training on them."""

    step: int
    version: int
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class StepFinished:
    """One step is recorded; ``metrics`` is its line of ``metrics.jsonl``.

    ``timing`` has the seconds of each phase, and ``tokens_per_second``.
    """

    step: int
    version: int
    metrics: Mapping[str, float]
    timing: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EvalFinished:
    """An evaluation inside the run is done."""

    step: int
    task: str
    report: EvalReport


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint is complete on disk."""

    step: int
    path: Path


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run ended: ``finished``, ``stopped`` (early), ``failed`` or ``interrupted``.

    ``reason`` says why a run was stopped before its last step; it is empty otherwise.
    """

    run_dir: Path
    outcome: str
    reason: str = ""


Level = Literal["ok", "note", "warn", "fail"]
"""``note``: information only; ``warn``: doubtful; ``fail``: wrong."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A result of an examination, such as one line of ``rlvr doctor``.

    Attributes:
        id: ``<part>/<name>``, stable.
        level: The verdict.
        text: What was found, in words and numbers.
        remedy: What to do about it; empty if nothing is wrong.
    """

    id: str
    level: Level
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class RunData:
    """Data of a run, for training and evaluation, known before its model is loaded.

    Attributes:
        model: ``model.path`` as configured.
        trained: Problems by the name of what they are trained on in (``the training data``).
        held_out: Problems by eval task.
        max_contaminated: ``eval.max_contaminated``, the accepted share of a task's problems.
        where: File and line of ``eval.tasks``.
        trained_on: Runs and files of rows that the user names as further training data.
        remedy: The option that accepts such problems.
    """

    model: str
    trained: Mapping[str, Sequence[Problem]]
    held_out: Mapping[str, Sequence[Problem]]
    max_contaminated: float
    where: str
    trained_on: tuple[str, ...] = ()
    remedy: str = "eval.max_contaminated"


@dataclass(frozen=True, slots=True)
class DataReport:
    """The findings of a check of the data.

    Attributes:
        name: Key under ``checks`` of ``run.json`` that keeps ``record``.
        record: The findings as JSON.
        lines: Lines printed for the user before the run.
    """

    name: str
    record: Mapping[str, Json]
    lines: tuple[str, ...] = ()


# -- registering: called once at start-up, each plugin with a registrar bound to it --------------


@hookspec
def register_datasets(registrar: Registrar) -> None:
    """Add dataset loaders."""


@hookspec
def register_verifiers(registrar: Registrar) -> None:
    """Add verifiers."""


@hookspec
def register_losses(registrar: Registrar) -> None:
    """Add losses."""


@hookspec
def register_advantages(registrar: Registrar) -> None:
    """Add advantage estimators."""


@hookspec
def register_samplers(registrar: Registrar) -> None:
    """Add samplers."""


@hookspec
def register_launchers(registrar: Registrar) -> None:
    """Add launchers."""


@hookspec
def register_eval_tasks(registrar: Registrar) -> None:
    """Add evaluation tasks."""


@hookspec
def register_engines(registrar: Registrar) -> None:
    """Add generation engines."""


@hookspec
def register_environments(registrar: Registrar) -> None:
    """Add multi-turn environments."""


@hookspec
def register_guards(registrar: Registrar) -> None:
    """Add guards."""


@hookspec
def register_tool_formats(registrar: Registrar) -> None:
    """Add tool formats."""


@hookspec
def register_optimizers(registrar: Registrar) -> None:
    """Add optimizers."""


@hookspec
def register_schedules(registrar: Registrar) -> None:
    """Add learning-rate schedules."""


@hookspec
def register_trackers(registrar: Registrar) -> None:
    """Add trackers."""


@hookspec
def register_transports(registrar: Registrar) -> None:
    """Add weight transports."""


@hookspec
def register_forward_paths(registrar: Registrar) -> None:
    """Add faster ways to compute models of some architecture."""


@hookspec
def register_commands(registrar: Registrar) -> None:
    """Add click commands; they appear under ``rlvr <plugin> <command>``."""


@hookspec
def register_verifier_pools(registrar: Registrar) -> None:
    """Add places for the processes of verifiers, for ``verify.pool``."""


# -- configuring: called before a run begins, of a plugin that the config names under `plugins` ----


@hookspec
def configure(options: ComponentConfig) -> None:
    """The plugin's options in ``plugins: {NAME: {...}}``: the ``Config`` of its module."""


# -- observing: told what happened, unable to change it ------------------------------------------


@hookspec
def run_started(event: RunStarted) -> None:
    """A run begins."""


@hookspec
def groups_scored(event: GroupsScored) -> None:
    """The groups of a step have their rewards."""


@hookspec
def step_finished(event: StepFinished) -> None:
    """A step is done and recorded."""


@hookspec
def eval_finished(event: EvalFinished) -> None:
    """An evaluation is done."""


@hookspec
def checkpoint_saved(event: CheckpointSaved) -> None:
    """A checkpoint is complete."""


@hookspec
def run_finished(event: RunFinished) -> None:
    """A run has ended, well or badly."""


# -- asking: the first answer that is not None counts --------------------------------------------


@hookspec(firstresult=True)
def open_uri(uri: str, cache: Path) -> Path | None:
    """A local path with the content of ``uri``, or None if the scheme is not this plugin's."""


@hookspec(firstresult=True)
def open_store(uri: str) -> Store | None:
    """The files under ``uri``, where none need be yet, or None if the scheme is not its own."""


@hookspec(firstresult=True)
def locate_model(reference: str) -> Path | None:
    """The folder of a model that is created or fetched first (``tiny:TASK``), or None."""


@hookspec(firstresult=True)
def locate_run(env: Mapping[str, str]) -> Path | None:
    """The folder runs belong in on a managed machine, or None if this is not one."""


@hookspec(firstresult=True)
def plan_conversations(
    section: EnvironmentSection, problems: Sequence[Problem], host: Host
) -> Conversations | None:
    """Return what plays multi-turn conversations; called if the run has an environment."""


@hookspec(firstresult=True)
def make_teachers(
    resolved: Resolved,
    losses: Mapping[Loc, Loss],
    tokenizer: PreTrainedTokenizerBase,
    renderer: Renderer,
    problems: Sequence[Problem],
) -> Mapping[Loc, MakeTeacher] | None:
    """Check the teachers of a run's losses; return what loads each, by the loss's location."""


@hookspec(firstresult=True)
def split_rows(config: RunConfig) -> RowSplit | None:
    """What splits rows over processes, for ``train.context_parallel``."""


@hookspec(firstresult=True)
def mirror_run(
    uri: str, open_store: Callable[[str], Store], keep: int, say: Callable[[str], None]
) -> RunMirror | None:
    """Return the object that copies a run's folder to the store at ``run.mirror``."""


@hookspec(firstresult=True)
def choose_checkpointing(resolved: Resolved, model_path: str) -> DataReport | None:
    """Choose what ``train.gradient_checkpointing: auto`` means on a GPU: ``choice``, and why."""


@hookspec(firstresult=True)
def calibrate_judges(
    problems: Sequence[Problem], plan: RewardPlan, resolved: Resolved
) -> DataReport | None:
    """Measure the judges of a run before it trains on them; raise ``RunError`` to refuse one."""


# -- asking: everybody's answer counts -----------------------------------------------------------


@hookspec
def examine() -> Sequence[Finding]:
    """Return findings of ``rlvr doctor`` about this machine, for this plugin."""
    return ()


@hookspec
def check_data(data: RunData) -> DataReport | None:
    """Look at a run's data before it starts; raise ``ConfigError`` to refuse the run."""
    return None
