"""The environment ``core/remote``: plays conversations with a server of environments.

Each conversation has a connection of its own. When that breaks, the conversation is lost and fails
with that reason; it is never opened a second time, and nobody judges it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import field_validator

from rlvr_core.api import (
    ComponentConfig,
    DataError,
    Done,
    EnvironmentTraits,
    Json,
    MachineError,
    Message,
    Observation,
    Problem,
    Reply,
    RunError,
    Verdict,
)
from rlvr_core.api.services import describe, from_plain
from rlvr_core.builtin.env_servers.protocol import (
    HEARTBEAT,
    MAX_FRAME,
    PROTOCOL,
    pack,
    problem_to_json,
    unpack,
    websockets_for,
)

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection


class ServerFailedError(Exception):
    """The server of an environment failed a request; the message says whose fault it is."""


class ServerTimeoutError(TimeoutError):
    """The environment took too long, by its server's own clock."""


class Remote:
    """An environment in a server of its own, at ``url``; see ``rlvr env serve``."""

    traits = EnvironmentTraits(asynchronous=True)

    class Config(ComponentConfig):
        """Options of ``core/remote``."""

        url: str
        """Where the server is, such as ``ws://10.0.0.7:6810``."""
        connect_timeout: float = 10.0
        """Seconds that a connection may take to be made."""

        @field_validator("url")
        @classmethod
        def _websocket(cls, value: str) -> str:
            parts = urlsplit(value)
            if parts.scheme not in ("ws", "wss") or not parts.hostname:
                raise ValueError("a URL that begins with ws:// or wss:// is needed")
            return value

    def __init__(self, config: Config) -> None:
        self._client, self._sync, self._faults = websockets_for("core/remote")
        self._config = config
        self._about: dict[str, Json] | None = None
        self._presented: dict[str, dict[str, Json]] = {}

    def present(self, problem: Problem) -> Problem:
        """Return the problem as the server's environment presents it.

        Raises:
            DataError: If it cannot play the problem.
            MachineError: If the server cannot be reached.
        """
        found = self._presented.get(problem.id)
        if found is None:
            found = self._ask_once(pack("present", problem=problem_to_json(problem)))
            if found["type"] == "refused":
                raise DataError(f"{self._config.url} refuses {problem.id}: {found['detail']}")
            self._presented[problem.id] = found
        prompt = found["prompt"]
        if not isinstance(prompt, str):
            prompt = tuple(Message(**message) for message in prompt)
        tools, stop = tuple(found["tools"]), tuple(found["stop"])
        return replace(problem, prompt=prompt, tools=tools, stop=stop)

    def check(self, problem: Problem) -> None:
        """Have the server's environment check a problem; see ``present``."""
        self.present(problem)

    async def start(self, problem: Problem, seed: int) -> ClientConnection:
        """Open a conversation; its state is its connection."""
        try:
            connection: ClientConnection = await self._client.connect(
                self._config.url,
                open_timeout=self._config.connect_timeout,
                ping_interval=HEARTBEAT,
                ping_timeout=HEARTBEAT,
                max_size=MAX_FRAME,
                compression=None,
            )
        except (OSError, TimeoutError, self._faults.InvalidHandshake) as error:
            raise ServerFailedError(
                f"the server {self._config.url} cannot be reached: {describe(error)}"
            ) from error
        try:
            await self._ask(connection, pack("open", problem=problem_to_json(problem), seed=seed))
        except BaseException:
            await connection.close()
            raise
        return connection

    async def step(self, connection: ClientConnection, reply: Reply) -> Observation | Done:
        """Send the model's turn; return the answer."""
        frame = pack("step", text=reply.text, turn=reply.turn, turns_left=reply.turns_left)
        answer = await self._ask(connection, frame)
        if answer["type"] == "done":
            plain = answer["done"]
            return Done(None if plain is None else from_plain(plain), answer["counts"])
        messages = tuple(Message(role, text) for role, text in answer["messages"])
        return Observation(messages, answer["counts"])

    async def cut(self, connection: ClientConnection, ended: str) -> Verdict:
        """Return the server's verdict on a conversation that was cut off; 0 if it has none."""
        if not self._offers("cuts"):
            return Verdict(0.0, passed=False, detail=f"not finished: {ended}")
        answer = await self._ask(connection, pack("cut", ended=ended))
        return from_plain(answer["verdict"])

    async def close(self, connection: ClientConnection) -> None:
        """End the conversation; the server closes it, too, when the connection ends."""
        await connection.close()

    def _offers(self, what: str) -> bool:
        if self._about is None:
            self._about = self._ask_once(pack("describe"))
        return bool(self._about[what])

    async def _ask(self, connection: ClientConnection, frame: str) -> dict[str, Json]:
        try:
            await connection.send(frame)
            answer = unpack(await connection.recv())
        except self._faults.ConnectionClosed as error:
            raise ServerFailedError(
                f"the connection to {self._config.url} was lost, and the conversation with it: "
                f"{describe(error)}"
            ) from error
        if answer["type"] == "error":
            status, detail = answer["status"], answer["detail"]
            if status == "timeout":
                raise ServerTimeoutError(f"at {self._config.url}: {detail}")
            raise ServerFailedError(f"the server {self._config.url} says {status}: {detail}")
        return answer

    def _ask_once(self, frame: str) -> dict[str, Json]:
        """Ask what belongs to no conversation, over a connection of its own."""
        try:
            with self._sync.connect(
                self._config.url, open_timeout=self._config.connect_timeout, max_size=MAX_FRAME
            ) as connection:
                if self._about is None:
                    connection.send(pack("describe"))
                    self._about = unpack(connection.recv(self._config.connect_timeout))
                    _check_protocol(self._config.url, self._about)
                connection.send(frame)
                answer = unpack(connection.recv(self._config.connect_timeout))
        except (OSError, TimeoutError, self._faults.InvalidHandshake) as error:
            raise MachineError(
                f"the server of environments {self._config.url} cannot be reached: "
                f"{describe(error)}",
                remedy="start it with rlvr env serve NAME, or correct environment.with.url",
            ) from error
        if answer["type"] == "error":
            raise RunError(
                f"the server {self._config.url} says {answer['status']}: {answer['detail']}"
            )
        return answer


def _check_protocol(url: str, about: Any) -> None:
    if about.get("protocol") != PROTOCOL:
        raise MachineError(
            f"{url} speaks protocol {about.get('protocol')} of environments, not {PROTOCOL}",
            remedy="install the same version of rlvr-core at both ends",
        )
