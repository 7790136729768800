"""The configuration of an evaluation: a YAML file, command-line options, or both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from rlvr_core.api import ComponentConfig, ConfigError
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


def read_eval_config(path: Path | None, overrides: Sequence[str]) -> Draft:
    """Read the file, if there is one, and apply ``key.path=value`` options on top.

    Raises:
        ConfigError: If the file or an option cannot be read.
    """
    if path is None:
        return read_draft("the command line", overrides, "{}")
    return read_draft(path, overrides)


def eval_config(draft: Draft, given: Mapping[str, Any]) -> EvalConfig:
    """Return the validated configuration.

    Args:
        draft: What ``read_eval_config`` gave.
        given: Values from the command line by key; they override the file's.

    Raises:
        ConfigError: If keys or values are wrong; reports all faults at once.
    """
    data = _merge(draft.root.plain(), given)
    if "tasks" not in data:
        raise ConfigError(
            "no task is named to evaluate",
            where="--task, or tasks in --config",
            remedy="name one: --task NAME; rlvr list eval_tasks shows them",
        )
    try:
        return checked(EvalConfig, data, draft.root)
    except ConfigError as error:
        raise ConfigError.collect(draft.hide(error.complaints)) from error


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(old, value) if both else value  # type: ignore[arg-type]
    return merged
