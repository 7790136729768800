"""Eval tasks of another harness, with their own prompts, kinds of request and graders.

Most tasks only give problems; rlvr prompts, samples and judges. An external task does all of that
itself. Its answers are kept in the same store, so it resumes and is compared like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rlvr_core.api.errors import ConfigError
from rlvr_core.api.types import Estimate, Group, Json, Judged, Problem

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr_core.api.protocols.engine import Engine


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """What a task may ask.

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
    """A problem, what the model was asked, and its judged answers, one for each of ``n``."""

    problem: Problem
    prompt: str
    members: tuple[Judged, ...]


@runtime_checkable
class ExternalTask(Protocol):
    """What an external task has beside ``n``, ``problems`` and ``score`` of an ``EvalTask``."""

    label: str
    """Tells apart several uses of the task; part of its name in results."""
    needs_engine: bool
    """Whether it asks the evaluation's engine; else the model is not loaded."""

    def samples(self) -> bool:
        """Whether ``sampling`` says how answers are drawn; else it is no affair of ours."""

    def identity(self) -> Mapping[str, Json]:
        """What the frozen specification must hold beside options and problems, as versions."""

    def longest(
        self, problems: Sequence[Problem], tokenizer: PreTrainedTokenizerBase, limit: int
    ) -> int:
        """Tokens the engine must have room for; at most ``limit``, which the model has."""

    def answer(self, problems: Sequence[Problem], model: ModelAccess) -> Iterator[ExternalAnswer]:
        """Ask; give each answer as soon as it is there."""

    def estimates(self, groups: Sequence[Group]) -> Mapping[str, Estimate] | None:
        """The metrics with their intervals, in place of all else; None leaves them to the core."""


def refuse_external(name: str, task: object, command: str, instead: str) -> None:
    """Refuse a task that asks for itself where that cannot be done.

    Raises:
        ConfigError: If it is one.
    """
    if isinstance(task, ExternalTask):
        raise ConfigError(
            f"eval task '{name}' asks the model in its own way, which {command} cannot do",
            remedy=instead,
        )
