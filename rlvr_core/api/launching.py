"""Launchers, stores of files, and evaluation tasks that another harness runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rlvr_core.api.components import RunObserver
from rlvr_core.api.problems import Json, Problem
from rlvr_core.api.rollouts import Judged

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr_core.api.engines import Engine


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """The job that a launcher starts.

    Attributes:
        arguments: The words after ``rlvr`` that do it, ``run`` first, or ``eval``.
        name: ``run.name``; of an evaluation its model's.
        engine_apart: Whether the config's engine works in processes of its own.
        files: The YAML files the config was read from, the one named in ``arguments`` first.
        references: Values of the config that name files or folders of this machine.
        continues: URI of the runs of an earlier job, with the newest of which this one goes on.
        uris: URIs that the configs name.
        beside: By which config checkpoints are evaluated while the run trains; None: not at all.
        allowed_secrets: Lines of files, as ``FILE:LINE``, that only look like secrets.
    """

    arguments: tuple[str, ...]
    name: str
    engine_apart: bool = False
    files: tuple[Path, ...] = ()
    references: tuple[Reference, ...] = ()
    continues: str = ""
    uris: tuple[str, ...] = ()
    beside: EvaluatedBeside | None = None
    allowed_secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchWords:
    """The command line of ``rlvr launch``, without the launcher's own options.

    Attributes:
        config: The YAML file.
        overrides: ``--set``.
        resume: ``--resume``: a run, or elsewhere an earlier job's.
        display: ``--display``.
        take_over: ``--take-over``.
        evaluate: ``--eval``: the model to evaluate instead of training.
        eval_config: ``--eval-config``: by which config checkpoints are evaluated.
        allowed_secrets: ``--allow-secret``.
    """

    config: Path | None
    overrides: tuple[str, ...] = ()
    resume: str | None = None
    display: str | None = None
    take_over: bool = False
    evaluate: str | None = None
    eval_config: Path | None = None
    allowed_secrets: tuple[str, ...] = ()


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
    """The request of ``rlvr launch --eval-config``: ``rlvr watch --config`` beside the training.

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
    """A plan: what a launcher would do.

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

    One whose job outlives the command is a ``JobLauncher`` of rlvr-cluster too. One whose machines
    do not have this one's files, or that does more than train, has ``prepare`` of
    ``PreparesRequests``: ``remote_request`` of rlvr-cluster makes such requests, searches configs
    for secrets, and resumes earlier jobs.
    """

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """Return the plan. Pure: it starts nothing, and uses no other machine and no network.

        Raises:
            ConfigError: If the options do not fit.
        """

    def submit(self, plan: LaunchPlan) -> int:
        """Carry the plan out; return the run's exit code, or 0 when the job goes on by itself."""


@runtime_checkable
class PreparesRequests(Protocol):
    """A launcher whose class makes its requests, as one does whose machines lack our files."""

    @staticmethod
    def prepare(
        launcher: str, words: LaunchWords, given: Mapping[str, Any]
    ) -> tuple[LaunchRequest, dict[str, Any]]:
        """Return the request and the launcher's options.

        Args:
            launcher: Full name of the launcher.
            words: The command line.
            given: The launcher's options on it.

        Raises:
            ConfigError: If a config is wrong, or something must not leave this machine.
        """


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
    raises then is a ``MachineError``, a ``RefusedError`` if no attempt can help. Calls come from
    several threads.

    One that has ``moved``, the bytes it has moved so far, is not taken for stuck while it grows.
    """

    def list(self, prefix: str = "") -> dict[str, StoredFile]:
        """Return every file whose key begins with the prefix."""

    def folders(self) -> Sequence[str]:
        """Return the names before the first slash of all keys, without reading what is below."""

    def put(self, path: Path, key: str, size: int | None = None, expect: str | None = None) -> str:
        """Store a file; on return the store has been seen to hold exactly this content.

        Comparing with ``expect`` and writing are one act: of several writers that expect the same,
        one succeeds. A call whose own earlier attempt went through, unheard of, has succeeded.

        Args:
            path: The file.
            key: Where it goes.
            size: Only its first bytes, for a file that grows meanwhile.
            expect: Write only if the stored file has this tag, or with "" if there is none; None
                writes over anything.

        Returns:
            The tag of what was stored, as ``list`` gives it.

        Raises:
            FileNotFoundError: If the file is not there, or is taken away meanwhile.
            ChangedError: If the stored file is not what was expected; it is left as it is.
        """

    def get(self, key: str, path: Path, told: Callable[[int], None] | None = None) -> None:
        """Fetch a file; on return it is complete, after an error there is none.

        Args:
            key: The file.
            path: Where it goes; folders are made.
            told: Called with the number of bytes as they arrive.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Delete files; files that do not exist are ignored."""


class RunMirror(RunObserver, ABC):
    """Copies a run's folder to a store while the run goes on."""

    @abstractmethod
    def copying(self, folder: Path, *, fresh: bool) -> AbstractContextManager[None]:
        """Mirror a folder within the block; at its end, copy all that is left.

        Args:
            folder: The run's folder.
            fresh: Whether the run has just started, and was not resumed.
        """


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """The model that a task may use.

    Attributes:
        path: Folder or hub id.
        tokenizer: Its tokenizer; None for a task that loads the model elsewhere.
        engine: Started; None for such a task.
        max_length: Tokens of prompt and answer together; 0 for such a task.
        folder: Of the task's results; it may keep files of its own there.
        seed: Of the evaluation.
        deadline: Seconds any one wait may take.
        say: Told about progress.
    """

    path: str
    tokenizer: PreTrainedTokenizerBase | None
    engine: Engine | None
    max_length: int
    folder: Path
    seed: int
    deadline: float
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ExternalAnswer:
    """A problem, its prompt for the model, and the judged answers, one for each of ``n``."""

    problem: Problem
    prompt: str
    members: tuple[Judged, ...]


@runtime_checkable
class ExternalTask(Protocol):
    """The methods of an external task beyond those of ``EvalTask``."""

    label: str
    """Tells apart several uses of the task; part of its name in results."""

    def samples(self) -> bool:
        """Whether ``sampling`` says how answers are drawn; else it is no affair of ours."""

    def identity(self) -> Mapping[str, Json]:
        """Further content of the frozen specification, such as versions."""

    def longest(
        self, problems: Sequence[Problem], tokenizer: PreTrainedTokenizerBase, limit: int
    ) -> int:
        """Tokens the engine must have room for; at most ``limit``, which the model has."""

    def answer(self, problems: Sequence[Problem], model: ModelAccess) -> Iterator[ExternalAnswer]:
        """Run the task; yield each answer as soon as it is there."""
