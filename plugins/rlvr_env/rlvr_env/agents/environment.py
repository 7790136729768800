"""The environment ``env/agent``: an agent program is trained by the conversations it has.

The program knows OpenAI's interface alone. What it asks becomes the conversation: its requests are
what the environment says, the model's turns are what it is answered with. So the turns stay the
tokens that were sampled, and what the program adds is encoded behind them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pkgutil import resolve_name
from typing import Annotated, Any, Literal

from pydantic import model_validator

from rlvr_core.api import (
    ComponentConfig,
    ConfigError,
    Done,
    EnvironmentTraits,
    Json,
    MachineError,
    Message,
    Names,
    Observation,
    Problem,
    Reply,
)
from rlvr_core.plugins import files
from rlvr_core.toolkit import tool_format
from rlvr_env.agents.branches import Branch, Branches, Placed, text_of
from rlvr_env.agents.programs import ProgramError, run_command, run_function
from rlvr_env.environments.observations import Branched

_THREADS = 512
"""Functions that run at a time."""


@dataclass(slots=True)
class Talk:
    """A conversation of a program with the model.

    Attributes:
        key: The key that the program was given.
        line: The requests of the conversation.
        program: The task that runs it.
        opening: The messages and tools of its first request.
        request: The request that waits for the model's turn.
        branch: The branch that this request is in.
    """

    key: str
    line: Any
    program: asyncio.Task[None]
    branches: Branches = field(default_factory=Branches)
    opening: Mapping[str, Json] = field(default_factory=dict)
    request: Any = None
    branch: Branch | None = None


class Agent:
    """Starts an agent program for each conversation, and answers its requests by the model."""

    traits = EnvironmentTraits(asynchronous=True)

    class Config(ComponentConfig):
        """Options of ``env/agent``; one of ``command`` and ``function``."""

        command: list[str] | None = None
        """Program and arguments. It finds ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` in its
        environment, and the task on its standard input: ``{"id", "prompt", "tags"}``."""
        function: str | None = None
        """``module:function`` or ``./file.py:function``, seen from the working directory; called in
        a thread, as ``function(task, base_url=..., api_key=...)``."""
        stop: list[str] = []
        """Strings that end a turn, for a model without a chat template to end it."""
        format: Annotated[str, Names("tool_format")] = "hermes"
        """How the model writes calls, where the program offers tools."""
        branches: Literal["one", "many"] = "many"
        """``many``: a request with another history than what was said so far is a branch of its
        own, and a row of its own in training. ``one``: such a request ends the conversation as an
        error."""

        @model_validator(mode="after")
        def _one_program(self) -> Any:
            if (self.command is None) == (self.function is None) or self.command == []:
                raise ValueError("say what the program is: one of command and function")
            return self

    def __init__(self, config: Config) -> None:
        try:
            from rlvr_env.agents.endpoint import Endpoint, message_of, usage_of
        except ImportError as error:
            raise MachineError(
                f"env/agent needs starlette and uvicorn, which do not import: {error}",
                remedy='pip install "rlvr-core[agents]"',
            ) from error
        self._config = config
        self._format = tool_format(config.format)
        self._endpoint, self._message_of, self._usage_of = Endpoint(), message_of, usage_of
        self._starting: asyncio.Lock | None = None
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="agent")
        self._function: Any = None
        if config.function is not None:
            self._function = _imported(config.function)

    def present(self, problem: Problem) -> Problem:
        """Return the problem with the strings that end a turn."""
        return replace(problem, stop=(*problem.stop, *self._config.stop))

    async def start(self, problem: Problem, seed: int) -> Talk:
        """Start the program, and wait for its first request."""
        del seed
        await self._listen()
        key = secrets.token_urlsafe(24)
        line = self._endpoint.open(key)
        talk = Talk(key, line, asyncio.create_task(self._run(problem, key)))
        try:
            placed = await self._next(talk)
            if placed is None:
                raise ProgramError("the agent program ended before it asked the model anything")
        except BaseException:
            await self.close(talk)
            raise
        talk.opening = {"messages": talk.request.messages, "tools": talk.request.tools}
        return talk

    async def step(self, talk: Talk, reply: Reply) -> Observation | Done:
        """Answer the program's request by the model's turn, and wait for its next one."""
        assert talk.branch is not None
        message = self._message_of(reply.text, talk.request.tools, self._format, reply.turn)
        talk.branches.replied(talk.branch, message)
        if not talk.request.answer.done():
            talk.request.answer.set_result((message, self._usage_of(reply)))
        before = talk.branch.number
        placed = await self._next(talk)
        if placed is None:
            return Done()
        new, fresh = placed.new, placed.fresh
        if fresh and self._config.branches == "one":
            raise ProgramError(
                f"the agent program sent a history that is not what was said so far, of "
                f"{len(new)} messages with {text_of(new[-1])!r:.200} at its end: a branch, and "
                f"environment.with.branches 'one' refuses that"
            )
        shown = tuple(map(_shown, new))
        counts = {"requests": 1.0, "branches": float(fresh)}
        if placed.branch.number == before:
            return Observation(shown, counts)
        opening = None
        if fresh and placed.fork is None:
            messages = talk.branches.written(talk.request.messages)
            opening = {"messages": messages, "tools": talk.request.tools}
        return Branched(shown, counts, placed.branch.number, opening, placed.fork)

    async def close(self, talk: Talk) -> None:
        """Refuse further requests and end the program."""
        self._endpoint.close(talk.key)
        waiting = [] if talk.request is None else [talk.request]
        while not talk.line.requests.empty():
            waiting.append(talk.line.requests.get_nowait())
        for request in waiting:
            request.answer.cancel()
        talk.program.cancel()
        await asyncio.wait([talk.program])

    async def _listen(self) -> None:
        if self._starting is None:
            self._starting = asyncio.Lock()
        async with self._starting:
            if not self._endpoint.url:
                await self._endpoint.start()

    async def _run(self, problem: Problem, key: str) -> None:
        prompt: Json = problem.prompt
        if not isinstance(prompt, str):
            prompt = [{"role": message.role, "content": message.content} for message in prompt]
        task = {"id": problem.id, "prompt": prompt, "tags": dict(problem.tags)}
        if self._config.command is not None:
            await run_command(self._config.command, task, self._endpoint.url, key)
        else:
            await run_function(self._function, self._threads, task, self._endpoint.url, key)

    async def _next(self, talk: Talk) -> Placed | None:
        """Wait for the next request; return where it belongs, or None when the program ended."""
        coming = asyncio.ensure_future(talk.line.requests.get())
        try:
            await asyncio.wait([coming, talk.program], return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                talk.program.result()  # raises what the program raised
                return None
        finally:
            coming.cancel()
        talk.request = coming.result()
        placed = talk.branches.place(talk.request.messages, talk.request.tools)
        talk.branch = placed.branch
        return placed


def _imported(function: str) -> Callable[..., Any]:
    """Import a function by file or module.

    Raises:
        ConfigError: If it is not there.
    """
    where = "environment.with.function"
    written = files.parse(function)
    if written is None:
        raise ConfigError(
            f"'{function}' names no function",
            where=where,
            remedy="write module:function, or ./file.py:function",
        )
    imported: Callable[..., Any] = resolve_name(files.target(written, "environment", where))
    return imported


def _shown(message: Json) -> Message:
    return Message("tool" if message["role"] == "tool" else "user", text_of(message))
