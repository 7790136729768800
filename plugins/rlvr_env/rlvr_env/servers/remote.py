"""The environment ``env/remote``: plays conversations with a server of environments.

Each conversation has a connection of its own. When that breaks, the conversation is lost and fails
with that reason; it is never opened a second time, and never judged.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import field_validator, model_validator

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
from rlvr_core.toolkit import describe, from_plain
from rlvr_env.servers.on_ray import Fleet, RayServers
from rlvr_env.servers.protocol import (
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
        """Options of ``env/remote``."""

        url: str | None = None
        """URL of the server, such as ``ws://10.0.0.7:6810``; or ``ray``."""
        ray: RayServers | None = None
        """Servers that Ray starts on the nodes of a cluster."""
        connect_timeout: float = 10.0
        """Seconds that a connection may take to be made."""

        @field_validator("url")
        @classmethod
        def _websocket(cls, value: str | None) -> str | None:
            parts = urlsplit(value or "ws://ray")
            if parts.scheme not in ("ws", "wss") or not parts.hostname:
                raise ValueError("a URL that begins with ws:// or wss:// is needed")
            return value

        @model_validator(mode="after")
        def _one_place(self) -> Any:
            if (self.url is None) == (self.ray is None):
                raise ValueError("say where the servers are: one of url and ray")
            return self

    def __init__(self, config: Config) -> None:
        self._client, self._sync, self._faults = websockets_for("env/remote")
        self._config = config
        self._about: dict[str, Json] | None = None
        self._presented: dict[str, dict[str, Json]] = {}
        self._fleet: Any = None
        self._places: dict[ClientConnection, int | None] = {}
        self._starting = threading.Lock()
        self._name = config.url or "on Ray"

    def present(self, problem: Problem) -> Problem:
        """Return the problem as the server's environment presents it.

        Raises:
            DataError: If it cannot play the problem.
            MachineError: If the server cannot be reached.
        """
        answer = self._presented.get(problem.id)
        if answer is None:
            answer = self._ask_once(pack("present", problem=problem_to_json(problem)))
            if answer["type"] == "refused":
                raise DataError(f"the server {self._name} refuses {problem.id}: {answer['detail']}")
            self._presented[problem.id] = answer
        prompt = answer["prompt"]
        if not isinstance(prompt, str):
            prompt = tuple(Message(**message) for message in prompt)
        tools, stop = tuple(answer["tools"]), tuple(answer["stop"])
        return replace(problem, prompt=prompt, tools=tools, stop=stop)

    def check(self, problem: Problem) -> None:
        """Have the server's environment check a problem; see ``present``."""
        self.present(problem)

    async def start(self, problem: Problem, seed: int) -> ClientConnection:
        """Open a conversation; its state is its connection."""
        place = await asyncio.to_thread(self._take)
        try:
            url = await asyncio.to_thread(self._url, place)
            connection: ClientConnection = await self._client.connect(
                url,
                open_timeout=self._config.connect_timeout,
                ping_interval=HEARTBEAT,
                ping_timeout=HEARTBEAT,
                max_size=MAX_FRAME,
                compression=None,
            )
        except (OSError, TimeoutError, self._faults.InvalidHandshake) as error:
            self._give_back(place)
            raise ServerFailedError(
                f"the server {self._name} cannot be reached: {describe(error)}"
            ) from error
        except BaseException:
            self._give_back(place)
            raise
        self._places[connection] = place
        try:
            await self._ask(connection, pack("open", problem=problem_to_json(problem), seed=seed))
        except BaseException:
            await self.close(connection)
            raise
        return connection

    async def step(self, connection: ClientConnection, reply: Reply) -> Observation | Done:
        """Send the model's turn; return the answer."""
        answer = await self._ask(connection, pack("step", **asdict(reply)))
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
        self._give_back(self._places.pop(connection, None))
        await connection.close()

    def _take(self) -> int | None:
        """Return the place of a server that Ray has started, for one conversation."""
        if self._config.ray is None:
            return None
        with self._starting:
            if self._fleet is None:
                self._fleet = Fleet(self._config.ray)
        place: int = self._fleet.take()
        return place

    def _give_back(self, place: int | None) -> None:
        if place is not None:
            self._fleet.give_back(place)

    def _url(self, place: int | None) -> str:
        return self._config.url or self._fleet.url(place)

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
                f"the connection to the server {self._name} was lost, and the conversation with "
                f"it: {describe(error)}"
            ) from error
        if answer["type"] == "error":
            status, detail = answer["status"], answer["detail"]
            if status == "timeout":
                raise ServerTimeoutError(f"at the server {self._name}: {detail}")
            raise ServerFailedError(f"the server {self._name} says {status}: {detail}")
        return answer

    def _ask_once(self, frame: str) -> dict[str, Json]:
        """Send a request outside of any conversation, over a new connection."""
        place = self._take()
        url = self._url(place)
        try:
            with self._sync.connect(
                url, open_timeout=self._config.connect_timeout, max_size=MAX_FRAME
            ) as connection:
                if self._about is None:
                    connection.send(pack("describe"))
                    self._about = unpack(connection.recv(self._config.connect_timeout))
                    _check_protocol(url, self._about)
                connection.send(frame)
                answer = unpack(connection.recv(self._config.connect_timeout))
        except (OSError, TimeoutError, self._faults.InvalidHandshake) as error:
            raise MachineError(
                f"the server of environments {url} cannot be reached: {describe(error)}",
                remedy="start it with rlvr env serve NAME, or correct environment.with.url",
            ) from error
        finally:
            self._give_back(place)
        if answer["type"] == "error":
            raise RunError(f"the server {url} says {answer['status']}: {answer['detail']}")
        return answer


def _check_protocol(url: str, about: Any) -> None:
    if about.get("protocol") != PROTOCOL:
        raise MachineError(
            f"{url} speaks protocol {about.get('protocol')} of environments, not {PROTOCOL}",
            remedy="install the same version of rlvr-core at both ends",
        )
