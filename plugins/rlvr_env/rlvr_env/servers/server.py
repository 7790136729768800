"""Serves an environment component to conversations over WebSockets, hundreds at a time.

Each conversation has its state here as long as its connection lives. Methods of an ordinary
environment run in threads, one a conversation that is being answered; those of an asynchronous one
in the event loop. A connection that ends, however it ends, closes its conversation.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from rlvr_core.api import (
    ChecksProblems,
    ClosesConversations,
    DataError,
    EnvironmentTraits,
    Json,
    JudgesUnfinished,
    Message,
    Observation,
    PresentsProblems,
    Reply,
    traits_of,
)
from rlvr_core.toolkit import describe, plain_verdict
from rlvr_env.environments.observations import plain_answer
from rlvr_env.servers.protocol import (
    HEARTBEAT,
    MAX_FRAME,
    PROTOCOL,
    FrameError,
    field,
    pack,
    problem_from_json,
    unpack,
)

_NOTHING: Any = object()
LONGEST_ERROR = 2000
"""Characters of a failed call that the model reads."""


class _LateError(Exception):
    """A call took too long."""


class _FullError(Exception):
    """There are as many conversations as the server takes."""


class EnvironmentServer:
    """Plays conversations with one environment.

    Args:
        environment: The component.
        name: Full name of the environment.
        timeout: Seconds one call of it may take.
        most: Largest number of conversations at a time.
    """

    def __init__(self, environment: Any, name: str, *, timeout: float, most: int) -> None:
        self._environment, self._name = environment, name
        self._timeout, self._most = timeout, most
        self._traits = traits_of(environment, EnvironmentTraits)
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="conversation")
        self._numbers = itertools.count()
        self._open = 0

    async def run(self, host: str, port: int, ready: Callable[[int], None]) -> None:
        """Serve until the task is cancelled.

        Args:
            host: Address to listen on.
            port: Port; 0 for a free one.
            ready: Called with the port.
        """
        try:
            async with serve(
                self._converse,
                host,
                port,
                ping_interval=HEARTBEAT,
                ping_timeout=HEARTBEAT,
                max_size=MAX_FRAME,
                compression=None,
            ) as server:
                ready(next(iter(server.sockets)).getsockname()[1])
                await server.wait_closed()
        finally:  # after the conversations, which are closed in these threads
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _converse(self, connection: ServerConnection) -> None:
        state = _NOTHING
        try:
            async for frame in connection:
                try:
                    request = unpack(frame)
                    if request["type"] == "open":
                        if state is not _NOTHING:
                            raise FrameError("a connection is one conversation; it is open already")
                        state = await self._start(request)
                        answer = pack("opened", conversation=next(self._numbers))
                    elif request["type"] == "close":
                        state = await self._release(state)
                        answer = pack("closed")
                    else:
                        answer = await self._answer(request, state)
                except FrameError as error:
                    answer = pack("error", status="protocol", detail=str(error))
                except _FullError as error:
                    answer = pack("error", status="full", detail=str(error))
                except _LateError as error:
                    answer = pack("error", status="timeout", detail=str(error))
                except Exception as error:
                    answer = pack("error", status="raised", detail=describe(error))
                await connection.send(answer)
        except ConnectionClosed:
            pass  # lost: its client knows, and does not come back
        finally:
            await self._release(state)

    async def _start(self, request: dict[str, Json]) -> Any:
        problem = problem_from_json(field(request, "problem", dict))
        seed = field(request, "seed", int)
        if self._open >= self._most:
            raise _FullError(f"{self._most} conversations are the most here")
        self._open += 1
        try:
            return await self._call("start", self._environment.start, problem, seed)
        except BaseException:
            self._open -= 1
            raise

    async def _release(self, state: Any) -> Any:
        if state is not _NOTHING:
            self._open -= 1
            if isinstance(self._environment, ClosesConversations):
                await self._call("close", self._environment.close, state)
        return _NOTHING

    async def _answer(self, request: dict[str, Json], state: Any) -> str:
        kind = request["type"]
        if kind == "describe":
            return self._about()
        if kind == "present":
            return await self._present(request)
        if state is _NOTHING:
            if kind in ("resume", "step", "cut"):
                why = "this connection has no conversation; one whose connection broke is lost"
                return pack("error", status="lost", detail=why)
            raise FrameError(f"unknown request '{kind}'")
        if kind == "step":
            return await self._step(request, state)
        if kind == "cut":
            verdict = await self._call(
                "cut", self._environment.cut, state, field(request, "ended", str)
            )
            return pack("verdict", verdict=plain_verdict(verdict))
        raise FrameError(f"unknown request '{kind}'")

    async def _step(self, request: dict[str, Json], state: Any) -> str:
        # a client of an earlier release sends no numbers of tokens
        request = {"prompt_tokens": 0, "completion_tokens": 0, **request}
        names = ("turn", "turns_left", "prompt_tokens", "completion_tokens")
        reply = Reply(field(request, "text", str), *(field(request, name, int) for name in names))
        try:
            observed = await self._call("step", self._environment.step, state, reply)
        except Exception as error:
            if self._traits.on_error == "end":
                raise
            text = self._traits.error_text.replace("{error}", describe(error)[:LONGEST_ERROR])
            said_by = Message(self._traits.role, text.encode(errors="replace").decode())
            observed = Observation((said_by,), {"failed_calls": 1.0})
        answer = plain_answer(observed, self._traits.max_characters)
        return pack("done" if "done" in answer else "observation", **answer)

    def _about(self) -> str:
        environment = self._environment
        offers = {"presents": PresentsProblems, "checks": ChecksProblems, "cuts": JudgesUnfinished}
        return pack(
            "about",
            protocol=PROTOCOL,
            environment=self._name,
            **{name: isinstance(environment, kind) for name, kind in offers.items()},
        )

    async def _present(self, request: dict[str, Json]) -> str:
        problem = problem_from_json(field(request, "problem", dict))
        try:
            if isinstance(self._environment, ChecksProblems):
                await self._in_thread(self._environment.check, problem)
            if isinstance(self._environment, PresentsProblems):
                problem = await self._in_thread(self._environment.present, problem)
        except DataError as error:
            return pack("refused", detail=str(error))
        prompt: Json = problem.prompt
        if not isinstance(prompt, str):
            prompt = [{"role": message.role, "content": message.content} for message in prompt]
        tools = [dict(tool) for tool in problem.tools]
        return pack("presented", prompt=prompt, tools=tools, stop=list(problem.stop))

    async def _in_thread(self, method: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, method, *arguments)

    async def _call(self, what: str, method: Callable[..., Any], *arguments: Any) -> Any:
        clock = asyncio.timeout(self._timeout)
        try:
            async with clock:
                if self._traits.asynchronous:
                    return await method(*arguments)
                return await self._in_thread(method, *arguments)
        except TimeoutError as error:
            if not clock.expired():
                raise
            raise _LateError(f"{what} took longer than {self._timeout:g} s") from error
