"""An environment of the package ``verifiers`` inside rlvr: its rows, its rubric, its turns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from rlvr_core.api import (
    BadCall,
    Completion,
    ComponentConfig,
    ConfigError,
    DataError,
    Done,
    Json,
    MachineError,
    Message,
    Names,
    NoConfig,
    Observation,
    Problem,
    Reply,
    ToolCall,
    Verdict,
)
from rlvr_core.toolkit import tool_format
from rlvr_env.bridges.judging import prompt_of

if TYPE_CHECKING:
    from rlvr_env.bridges.rollout import Played

SECONDS = 60.0
"""Seconds of a verdict: the first one of a process loads the environment and its data."""
NAME = "env/verifiers"
GROUP = "env/verifiers-group"


def load_played(name: str, arguments: Mapping[str, Json]) -> Played:
    """Return an environment, loaded once in this process.

    Raises:
        ConfigError: If it cannot be loaded, or is of a kind that cannot be played.
        MachineError: If verifiers is missing.
    """
    played: Played = _rollout().played(name, json.dumps(dict(arguments), sort_keys=True))
    return played


def _rollout() -> ModuleType:
    """Import the module that plays environments; verifiers takes seconds to import."""
    try:
        from rlvr_env.bridges import rollout
    except ImportError as error:
        raise MachineError(
            f"environments of verifiers need that package, 0.3, which does not import: {error}",
            remedy="pip install 'rlvr-core[verifiers]'",
        ) from error
    return rollout


class Rows:
    """The rows of an environment of verifiers, as problems."""

    class Config(ComponentConfig):
        """Options of ``env/verifiers``."""

        environment: str
        """Id of the environment, whose package is installed: ``gsm8k`` or ``owner/gsm8k``."""
        arguments: dict[str, Any] = Field(default_factory=dict)
        """Arguments of its ``load_environment``."""
        split: Literal["train", "eval"] = "train"
        """The split of its data sets."""
        count: int | None = Field(None, ge=1)
        """How many of its rows; null for all."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems."""
        config = self.config
        played = load_played(config.environment, config.arguments)
        if played.env.rubric.has_group_rewards and not played.single:
            raise ConfigError(
                f"the rubric of '{config.environment}' compares conversations with each other, "
                "which is done for single turns alone",
                where="environment",
            )
        verifier = GROUP if played.env.rubric.has_group_rewards else NAME
        count = config.count or -1
        env = played.env
        rows = env.get_dataset(count) if config.split == "train" else env.get_eval_dataset(count)
        for at, row in enumerate(rows):
            where = f"{config.environment}, {config.split}, row {at}"
            yield Problem(
                id=f"{config.environment}_{config.split}_{row['example_id']}",
                prompt=prompt_of(row["prompt"]),
                verifier=verifier if played.single else "env/environment",
                spec={
                    "environment": config.environment,
                    "arguments": config.arguments,
                    "row": _json(row, where),
                },
                dataset=NAME,
                environment=None if played.single else NAME,
                where=where,
            )


class _RubricBase:
    """Base of the rubrics of single answers and of groups."""

    Config = NoConfig

    def __init__(self, config: NoConfig) -> None:
        del config
        _rollout()  # here, where it is not on a verdict's clock

    @staticmethod
    def time_limit(config: NoConfig) -> float:
        """See ``LimitsTime``."""
        del config
        return SECONDS

    def check(self, problem: Problem) -> None:
        """Refuse a problem that does not come from such an environment.

        Raises:
            DataError: If it does not.
        """
        _check(problem)

    def _score(
        self, problem: Problem, completions: Sequence[Completion], *, group: bool
    ) -> list[Verdict]:
        from rlvr_env.bridges.rollout import single_state

        played = load_played(problem.spec["environment"], problem.spec["arguments"])
        row = problem.spec["row"]
        states = [single_state(played, row, completion.text) for completion in completions]
        return played.score(states, group=group)


class Rubric(_RubricBase):
    """The rubric of an environment of verifiers, for a single answer."""

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one answer."""
        return self._score(problem, [completion], group=False)[0]


class GroupRubric(_RubricBase):
    """The rubric of an environment of verifiers that compares the answers to a problem."""

    def verify_group(self, problem: Problem, completions: Sequence[Completion]) -> list[Verdict]:
        """Judge the answers to a problem."""
        return self._score(problem, completions, group=True)


class Conversations:
    """An environment of verifiers as one of rlvr: it answers turns and runs tools."""

    class Config(ComponentConfig):
        """Options of ``env/verifiers``."""

        format: Annotated[str, Names("tool_format")] = "hermes"
        """How the model writes calls of tools, where the environment has some."""

    def __init__(self, config: Config) -> None:
        self.format = tool_format(config.format)
        _rollout()

    def check(self, problem: Problem) -> None:
        """Refuse a problem of another data set; see ``Rubric``."""
        _check(problem)

    def present(self, problem: Problem) -> Problem:
        """Return the problem with the tools of its environment."""
        played = load_played(problem.spec["environment"], problem.spec["arguments"])
        tools = played.env.tool_defs or []
        schemas = tuple(
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in tools
        )
        stop = self.format.stop if tools and isinstance(problem.prompt, str) else ()
        return replace(problem, tools=schemas, stop=(*problem.stop, *stop))

    def start(self, problem: Problem, seed: int) -> dict[str, Any]:
        """Begin a conversation; the environment draws by chance as it likes, not by ``seed``."""
        del seed
        spec = problem.spec
        state = load_played(spec["environment"], spec["arguments"]).begin(spec["row"])
        return {"environment": spec["environment"], "arguments": spec["arguments"], "state": state}

    def step(self, state: dict[str, Any], reply: Reply) -> Observation | Done:
        """Answer a turn; at the end, the verdict of the rubric."""
        played = load_played(state["environment"], state["arguments"])
        inner = state["state"]
        parsed = self.format.parse(reply.text) if inner["tool_defs"] else []
        calls = [(call.name, call.arguments) for call in parsed if isinstance(call, ToolCall)]
        bad = [call for call in parsed if isinstance(call, BadCall)]
        if bad and not calls:
            # of a call that cannot be read the environment would only see that there is none
            error = Message(self.format.role, f"error: {bad[0].error}")
            return Observation((error,), {"tool_errors": float(len(bad))})
        played.add(inner, reply.text, calls)
        answers = played.answer(inner)
        if answers is None:
            return Done(played.score([inner])[0], {"tool_calls": float(len(calls))})
        roles = {"tool": self.format.role, "system": "user", "user": "user"}
        odd = [role for role, _ in answers if role not in roles]
        if odd:
            raise MachineError(f"the environment speaks as {odd[0]}")
        messages = tuple(Message(roles[role], text) for role, text in answers)
        return Observation(messages, {"tool_calls": float(len(calls))})

    def cut(self, state: dict[str, Any], ended: str) -> Verdict:
        """Score a conversation that ended at a limit, as verifiers does."""
        played = load_played(state["environment"], state["arguments"])
        state["state"]["is_truncated"] = True
        return played.score([state["state"]])[0]


def _check(problem: Problem) -> None:
    if not isinstance(problem.spec.get("row"), Mapping) or "environment" not in problem.spec:
        raise DataError(
            f"{problem.id}: {NAME} judges problems of the data set {NAME} alone",
            where=problem.where,
        )


def _json(row: Mapping[str, Any], where: str) -> dict[str, Json]:
    try:
        plain: dict[str, Json] = json.loads(json.dumps(dict(row), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise DataError(f"the row is no JSON: {error}", where=where) from error
    return plain
