"""The engine ``checks/openai``: a remote model behind OpenAI's HTTP API.

It takes and returns text, without token ids or log-probs, so it can evaluate but not train.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Annotated, Literal

from pydantic import Field

from rlvr_checks.openai.client import Client, RemoteError, Reply
from rlvr_checks.openai.config import Endpoint
from rlvr_checks.openai.prompts import TextRenderer
from rlvr_core.api import (
    REMOTE,
    EngineContext,
    EngineTraits,
    Generation,
    GenerationRequest,
    Json,
    MachineError,
    Problem,
    RunError,
    SamplingParams,
    WeightSource,
)
from rlvr_core.toolkit import PromptSection

VLLM = "vllm"
"""Owner that a vLLM server reports for its models."""
GIVE_UP = 5
"""Consecutive failed requests after which no further request is sent."""


@dataclass(slots=True)
class _Pending:
    """A submitted request and its answers so far, in the order of its seeds."""

    request: GenerationRequest
    future: Future[tuple[Generation, ...]]
    answers: list[Generation | None]
    missing: int = field(init=False)
    settled: bool = False

    def __post_init__(self) -> None:
        self.missing = len(self.answers)


class OpenAIEngine:
    """Sends several requests at a time to a server, one for each completion."""

    class Config(Endpoint):
        """The server, and how it is used."""

        api: Literal["chat", "completions"] = "chat"
        """``chat`` sends messages to ``/chat/completions``, where the server applies the model's
        template; ``completions`` sends raw text to ``/completions``, for base models."""
        concurrency: Annotated[int, Field(gt=0)] = 16
        """Number of concurrent requests."""
        omit: list[Literal["temperature", "top_p", "seed", "stop"]] = []
        """Settings not to send, for a server that refuses them. The server's defaults apply then;
        without ``stop``, answers are cut here."""
        content_filter: Literal["fail", "answer"] = "fail"
        """How to treat an answer stopped by the server's content filter: ``fail`` the evaluation,
        or use what is left as an ``answer``."""

    traits = EngineTraits(text_only=True, continuous=True)

    def __init__(self, config: Config) -> None:
        self._config = config
        self.traits = replace(type(self).traits, takes_turns=config.api == "chat")
        self._client: Client | None = None
        self._model = ""
        self._models: dict[str, str] = {}
        self._jobs: SimpleQueue[tuple[_Pending, int] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._state = threading.Condition()
        self._open: dict[int, _Pending] = {}
        self._in_a_row = 0
        self._stopped: RunError | None = None

    def renderer(
        self, section: PromptSection, present: Callable[[Problem], Problem]
    ) -> TextRenderer:
        """Return what renders problems in the form that the server takes.

        Raises:
            ConfigError: If the section uses settings that a server does not support.
        """
        return TextRenderer(section, as_chat=self.traits.takes_turns, present=present)

    def start(self, context: EngineContext) -> None:
        """Connect to the server.

        Raises:
            MachineError: If it cannot be reached, or refuses the key.
            ConfigError: If the key is not in the environment.
        """
        self._model = context.model_path.removeprefix(REMOTE)
        self._client = Client(self._config, self._model)
        try:
            self._models = self._client.models()
        except RemoteError as error:
            raise MachineError(str(error), where="engine", remedy=self._remedy(error)) from error

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request; another thread resolves its future.

        Raises:
            RunError: If the engine is not started.
        """
        if self._client is None:
            raise RunError("engine openai is not started")
        pending = _Pending(request, Future(), [None] * len(request.seeds))
        if not request.seeds:
            pending.future.set_result(())
            return pending.future
        with self._state:
            self._open[id(pending)] = pending
        for index in range(len(request.seeds)):
            self._jobs.put((pending, index))
            if len(self._threads) < self._config.concurrency:
                # daemon threads: a server that hangs must not keep this process from ending
                thread = threading.Thread(target=self._work, name="openai", daemon=True)
                self._threads.append(thread)
                thread.start()
        return pending.future

    def drain(self, timeout: float | None = None) -> None:
        """Wait until every request is answered or has failed.

        Raises:
            RunError: If that takes longer than ``timeout`` seconds.
        """
        with self._state:
            if self._state.wait_for(lambda: not self._open, timeout):
                return
            left = list(self._open.values())
            error = RunError(
                f"generation was not finished within {timeout:g} s; {len(left)} requests were left",
                remedy="raise the deadline, or engine.with.concurrency",
            )
            self._stopped = error
        for pending in left:
            self._fail(pending, error)
        raise error

    def load_weights(self, version: int, source: WeightSource) -> None:
        """Always raise: the engine has no weights.

        Raises:
            RunError: Always.
        """
        raise RunError("engine openai cannot take weights: its model is on another machine")

    def sleep(self) -> None:
        """Do nothing: there are no resources to release."""

    def wake(self) -> None:
        """Do nothing: there is nothing to restore."""

    def close(self) -> None:
        """Stop sending requests."""
        self._stopped = self._stopped or RunError("engine openai is closed")
        for _ in self._threads:
            self._jobs.put(None)
        if self._client is not None:
            self._client.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            pending, index = job
            if pending.future.done():
                continue  # another completion of the request failed
            if self._stopped is not None:
                self._fail(pending, self._stopped)
                continue
            try:
                answer = self._ask(pending.request, pending.request.seeds[index])
            except BaseException as error:
                self._fail(pending, error)
            else:
                self._answer(pending, index, answer)

    def _ask(self, request: GenerationRequest, seed: int) -> Generation:
        assert self._client is not None
        fields = self._fields(request.params, seed)
        try:
            if self.traits.takes_turns:
                messages = [{"role": turn.role, "content": turn.content} for turn in request.turns]
                reply = self._client.chat(messages, fields)
            else:
                fields["prompt"] = request.turns[0].content
                reply = self._client.ask("/completions", fields)
        except RemoteError as error:
            failure = RunError(f"request {request.id}: {error}", remedy=self._remedy(error))
            self._in_a_row += error.fault in ("gave_up", "timeout")
            if error.everyone or self._in_a_row >= GIVE_UP:
                self._stopped = self._stopped or failure
            raise failure from error
        self._in_a_row = 0
        return _generation(reply, request, self._config.content_filter)

    def _fields(self, params: SamplingParams, seed: int) -> dict[str, Json]:
        fields: dict[str, Json] = {
            self._config.max_tokens_field: params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
        }
        if params.temperature > 0:
            fields["seed"] = seed % 2**31  # some servers accept no larger seed
        if params.stop:
            fields["stop"] = list(params.stop)
        if params.top_k:
            fields["top_k"] = params.top_k  # not OpenAI's, but supported by vLLM and others
        if self._models.get(self._model) == VLLM:
            # vLLM would otherwise apply the model's own generation config
            fields |= {"top_k": params.top_k or -1, "min_p": 0.0, "repetition_penalty": 1.0}
            fields["include_stop_str_in_output"] = True
            if "seed" in fields:
                fields["seed"] = seed % 2**63  # as in this process, so that both sample the same
        return {name: value for name, value in fields.items() if name not in self._config.omit}

    def _answer(self, pending: _Pending, index: int, answer: Generation) -> None:
        with self._state:
            pending.answers[index] = answer
            pending.missing -= 1
            if pending.missing or pending.future.done():
                return
        answers = tuple(answer for answer in pending.answers if answer is not None)
        self._settle(pending, lambda: pending.future.set_result(answers))

    def _fail(self, pending: _Pending, error: BaseException) -> None:
        self._settle(pending, lambda: pending.future.set_exception(error))

    def _settle(self, pending: _Pending, settle: Callable[[], None]) -> None:
        with self._state:
            if pending.settled:
                return
            pending.settled = True
        settle()
        with self._state:
            del self._open[id(pending)]
            self._state.notify_all()

    def _remedy(self, error: RemoteError) -> Sequence[str]:
        """Return what the user can do about an error."""
        env, again = self._config.api_key_env, "run the same command again: it goes on"
        if error.fault == "unreachable":
            return ("is the server running, and engine.with.base_url right?",)
        if error.fault == "key":
            if env is None:
                return ("name the variable that holds the key: engine.with.api_key_env",)
            return (f"the key in {env} is not accepted",)
        if error.fault == "model":
            some = ", ".join(list(self._models)[:8]) or "of no model it could name"
            return (f"asked for '{self._model}'; the server told: {some}", _VERSION)
        if error.fault == "quota":
            return ("what the key may spend is spent", again)
        if error.fault == "too_long":
            return ("lower the task's max_tokens, or give the server's model a longer context",)
        if error.fault == "refused":
            return ("engine.with.omit leaves out settings that a server refuses",)
        return (again, "or raise engine.with.deadline and retries, or lower concurrency")


_VERSION = "base_url ends with the version of the interface, as in http://localhost:8000/v1"


def _generation(
    reply: Reply, request: GenerationRequest, filtered: Literal["fail", "answer"]
) -> Generation:
    """Convert an answer to a ``Generation``.

    Raises:
        RunError: If it is not a usable answer.
    """
    reason = reply.finish_reason
    if reason == "content_filter" and filtered == "fail":
        raise RunError(
            f"request {request.id}: the server's filter took the answer",
            remedy="engine.with.content_filter=answer takes what is left of it as the answer",
        )
    if reason not in ("stop", "length", "content_filter"):
        raise RunError(f"request {request.id}: the answer ended by '{reason}', which is no end")
    text = _cut(reply.text, request.params.stop)
    ended = reason != "length" or text != reply.text
    return Generation((), (), text, "stop" if ended else "length", 0, reply.usage)


def _cut(text: str, stops: Sequence[str]) -> str:
    """Return the text up to and including the first stop string in it."""
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else text
