"""An environment of the package ``verifiers``, driven one turn at a time, and its rubric.

It does what ``MultiTurnEnv.rollout`` of verifiers 0.3 does, with the model's turns given from
outside. A reward function that raises is 0 there, with a line in the log; here it is an error.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NoReturn

import verifiers as vf
from verifiers.clients import Client
from verifiers.types import AssistantMessage, Response, ResponseMessage, ToolCall
from verifiers.utils.message_utils import maybe_normalize_messages

from rlvr_core.api import ConfigError, Json, MachineError, Verdict
from rlvr_core.script.train import signals_restored


class NoModel(Client):  # type: ignore[misc]
    """The client of a rollout whose turns come from rlvr; it refuses every request."""

    def __init__(self) -> None:
        super().__init__(None)

    def _refuse(self) -> NoReturn:
        raise MachineError("the environment asks a model, which rlvr does not give it")

    def setup_client(self, config: Any) -> Any:
        """Refuse."""
        self._refuse()

    async def to_native_tool(self, tool: Any) -> Any:
        """Refuse."""
        self._refuse()

    async def to_native_prompt(self, messages: Any) -> Any:
        """Refuse."""
        self._refuse()

    async def get_native_response(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse."""
        self._refuse()

    async def raise_from_native_response(self, response: Any) -> None:
        """Refuse."""

    async def from_native_response(self, response: Any) -> Any:
        """Refuse."""
        self._refuse()

    async def close(self) -> None:
        """Do nothing."""


class Played:
    """An environment, with a loop that its coroutines run in.

    Attributes:
        env: The environment.
    """

    def __init__(self, name: str, arguments: Mapping[str, Json]) -> None:
        with signals_restored():  # an environment takes Ctrl-C for itself
            try:
                self.env = vf.load_environment(name, **arguments)
            except Exception as error:
                cause = error.__cause__ or error
                raise ConfigError(
                    f"the verifiers environment '{name}' cannot be loaded: "
                    f"{type(cause).__name__}: {cause}",
                    where="environment",
                    remedy="install its package, and look at the arguments of its load_environment",
                ) from error
        if not isinstance(self.env, vf.MultiTurnEnv):
            raise ConfigError(
                f"the verifiers environment '{name}' is a {type(self.env).__name__}, and what is "
                "played here is a SingleTurnEnv, MultiTurnEnv or ToolEnv",
                where="environment",
            )
        self._loop = asyncio.new_event_loop()
        self._faults: list[str] = []
        _watch(self.env.rubric, self._faults)

    @property
    def single(self) -> bool:
        """Whether there is one answer, and nothing after it."""
        return isinstance(self.env, vf.SingleTurnEnv)

    def begin(self, row: Mapping[str, Json]) -> Any:
        """Return the state of a new rollout.

        Raises:
            MachineError: If the environment fails, or changes the prompt that the model has seen.
        """
        state = self._run(self.env.init_state(dict(row), NoModel(), "rlvr"))
        before = _plain(state["prompt"])
        changed = self._run(self.env.setup_state(state))
        state = state if changed is None else changed
        if _plain(state["prompt"]) != before:
            raise MachineError(
                "the environment writes the prompt in setup_state, when the model has been given "
                "the one of its data set"
            )
        for name in ("usage_tracker", "usage"):  # of the model's tokens; cannot be pickled
            state.pop(name, None)
        return state

    def add(self, state: Any, text: str, calls: Sequence[tuple[str, Mapping[str, Json]]]) -> None:
        """Add a turn of the model, and of the calls of tools that it makes."""
        turn = len(state["trajectory"])
        tools = [
            ToolCall(id=f"call_{turn}_{i}", name=name, arguments=json.dumps(dict(given)))
            for i, (name, given) in enumerate(calls)
        ]
        message = ResponseMessage(
            content=text, tool_calls=tools or None, finish_reason="stop", is_truncated=False
        )
        response = Response(id=f"turn_{turn}", created=0, model="rlvr", message=message)
        prompt = state["prompt"]
        if state["trajectory"]:
            prompt = state.pop("rlvr_prompt")
        self._run(self.env.add_model_response(state, prompt, response))

    def answer(self, state: Any) -> list[tuple[str, str]] | None:
        """Return role and text of each message that answers the last turn; None at the end.

        Raises:
            MachineError: If it fails, or rewrites earlier messages.
        """
        if self._run(self.env.is_completed(state)):
            return None
        try:
            prompt = self._run(self.env.get_prompt_messages(state))
        except vf.Error as error:
            raise MachineError(f"the environment failed: {error!r}") from error
        prompt = maybe_normalize_messages(prompt, field_name="prompt_messages")
        if state.get("final_env_response") is not None:
            self._run(self.env.is_completed(state))
            return None
        last = state["trajectory"][-1]
        before = [*last["prompt"], *last["completion"]]
        if _plain(prompt[: len(before)]) != _plain(before) or len(prompt) == len(before):
            raise MachineError("the environment rewrites earlier turns, or says nothing")
        state["rlvr_prompt"] = prompt
        return [(message.role, _text(message.content)) for message in prompt[len(before) :]]

    def score(self, states: Sequence[Any], *, group: bool = False) -> list[Verdict]:
        """Score finished rollouts, of one row together where the rubric compares them."""
        for state in states:
            self._run(self.env.cleanup(state))
        self._faults.clear()
        rubric = self.env.rubric
        if group:
            self._run(rubric.score_group(list(states)))
        else:
            for state in states:
                self._run(rubric.score_rollout(state))
        for state in states:
            self._run(rubric.cleanup(state))
        if self._faults:
            return [Verdict(None, "error", detail=self._faults[0])] * len(states)
        return [self._verdict(state) for state in states]

    def _verdict(self, state: Any) -> Verdict:
        reward = float(state["reward"])
        passed = reward >= self.env.pass_threshold
        return Verdict(reward, passed=passed, parts=dict(state["metrics"] or {}))

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)


def single_state(played: Played, row: Mapping[str, Json], text: str) -> Any:
    """Return the state of a rollout of one turn."""
    state = played.begin(row)
    played.add(state, text, ())
    played.answer(state)
    return state


@functools.cache
def played(name: str, arguments: str) -> Played:
    """Return an environment, loaded once in a process; ``arguments`` as JSON."""
    return Played(name, json.loads(arguments))


def _watch(rubric: Any, faults: list[str]) -> None:
    """Record the errors of reward functions; the rubric itself would make them 0."""
    for inner in rubric.rubrics if isinstance(rubric, vf.RubricGroup) else ():
        _watch(inner, faults)
    rubric.funcs = [
        _watched(function, faults) if weight else function
        for function, weight in zip(rubric.funcs, rubric.weights, strict=True)
    ]


def _watched(function: Any, faults: list[str]) -> Any:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            score = function(*args, **kwargs)
            return await score if inspect.isawaitable(score) else score
        except Exception as error:
            faults.append(f"{call.__name__}: {type(error).__name__}: {error}")
            raise

    return call


def _plain(messages: Any) -> list[Json]:
    return [
        message.model_dump() if isinstance(message, _MESSAGE) else message for message in messages
    ]


_MESSAGE = AssistantMessage.__mro__[1]
"""The base class of the messages of verifiers."""


def _text(content: Any) -> str:
    """Return a message's text.

    Raises:
        MachineError: If it has parts that are none.
    """
    if isinstance(content, str):
        return content
    texts = []
    for part in content or ():
        fields = part if isinstance(part, dict) else part.model_dump()
        if fields.get("type") != "text":
            raise MachineError(f"the environment answers with {fields.get('type')}, not text")
        texts.append(str(fields["text"]))
    return "".join(texts)
