"""The configuration of an evaluation: a YAML file, command-line options, or both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from rlvr_core.api import Complaint, ComponentConfig, ConfigError
from rlvr_core.config.layers import assign
from rlvr_core.config.load import Draft, checked, read_draft
from rlvr_core.config.model import (
    ComponentRef,
    EnvironmentSection,
    Fraction,
    ModelSection,
    Natural,
    Positive,
    PromptSection,
    RewardRef,
    VerifySection,
)
from rlvr_core.config.tree import Mark, Node, made


class EvalConfig(ComponentConfig):
    """One evaluation: a model and its tasks."""

    model: ModelSection
    """The model; for a checkpoint, the run's dtype is used."""
    tasks: list[ComponentRef] = Field(min_length=1)
    """Eval tasks, each with its options."""
    prompt: PromptSection = PromptSection()
    """How problems are rendered; for a checkpoint, the run's settings are used."""
    graders: list[ComponentRef] = []
    """Further verifiers that judge the completions without affecting score or outcome."""
    rewards: list[RewardRef] = Field(default=[RewardRef(use="auto")], min_length=1)
    """Verifiers whose weighted sum is the score, as in a run; the first decides what passes."""
    engine: ComponentRef = ComponentRef(use="auto")
    """Generates completions; ``auto`` chooses as in a run, and ``openai`` for ``openai:NAME``."""
    environment: EnvironmentSection = EnvironmentSection()
    """Plays problems as conversations; for a checkpoint, the run's settings are used."""
    verify: VerifySection = VerifySection()
    """The pool of verifier processes."""
    plugins: dict[str, dict[str, Any]] = {}
    """Options of plugins that use hooks, as in a run; for a checkpoint, those of the run's plugins
    that are installed here."""
    limit: Positive | None = None
    """Use only this many problems of each task, from the start."""
    seed: Natural = 0
    """Seed for sampling at temperatures above 0."""
    max_truncated: Fraction = 0.02
    """Share of completions at the token cap above which a result counts as spoilt by truncation."""
    trained_on: list[str] = []
    """Runs, or files of JSON rows with ``id`` or ``prompt``, that the model was trained on; the run
    that a checkpoint belongs to need not be named."""
    max_contaminated: Fraction = 0.001
    """Largest share of a task's problems that may have been trained on."""
    deadline: float = Field(default=86400.0, gt=0)
    """Seconds that any one wait (for generation or verdicts) may take."""

    @model_validator(mode="before")
    @classmethod
    def _default_engine(cls, value: Any) -> Any:
        """Let ``engine: {with: {...}}`` set options of the engine that ``auto`` chooses."""
        engine = value.get("engine") if isinstance(value, dict) else None
        if isinstance(engine, dict) and "use" not in engine:
            return {**value, "engine": {"use": "auto", **engine}}
        return value

    @field_validator("rewards")
    @classmethod
    def _weights_stay(cls, value: list[RewardRef]) -> list[RewardRef]:
        if any(ref.schedule is not None for ref in value):
            raise ValueError("an evaluation has no steps over which a weight could move")
        return value

    @model_validator(mode="after")
    def _nothing_is_trained(self) -> EvalConfig:
        if self.model.lora is not None:
            raise ValueError(
                "model.lora says how to train adapters; to evaluate one, name its folder as "
                "model.path"
            )
        return self


@dataclass(frozen=True, slots=True)
class Asked:
    """The user's input, before defaults are filled in.

    Attributes:
        root: The file's content with the options applied on top; empty without a file.
        draft: The file's draft; None without a file.
    """

    root: Node
    draft: Draft | None

    def has(self, *loc: str) -> bool:
        """Whether the user set this key."""
        return self.root.find(loc) is not None

    def config(self, given: Mapping[str, Any]) -> EvalConfig:
        """Return the validated configuration.

        Args:
            given: Values from the command line by key; they override the file's.

        Raises:
            ConfigError: If keys or values are wrong; reports all faults at once.
        """
        data = _merge(self.root.plain(), given)
        if "tasks" not in data:
            raise ConfigError(
                "no task is named to evaluate",
                where=f"--task, or tasks of {self.draft.path}" if self.draft else "--task",
                remedy="name one: --task NAME; rlvr list eval_tasks shows them",
            )
        try:
            return checked(EvalConfig, data, self.root)
        except ConfigError as error:
            faults = self.draft.hide(error.complaints) if self.draft else error.complaints
            raise ConfigError.collect(faults) from error


def read_eval_config(path: Path | None, overrides: Sequence[str]) -> Asked:
    """Read the file, if there is one, and apply ``key.path=value`` options on top.

    Raises:
        ConfigError: If the file or an option cannot be read.
    """
    if path is not None:
        draft = read_draft(path, overrides)
        return Asked(draft.root, draft)
    root = made({}, Mark("the command line"))
    faults: list[Complaint] = []
    for option in overrides:
        try:
            assign(root, option)
        except ConfigError as error:
            faults.extend(error.complaints)
    if faults:
        raise ConfigError.collect(faults)
    return Asked(root, None)


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(old, value) if both else value  # type: ignore[arg-type]
    return merged
