"""The environment ``env/openenv``: plays with a server of OpenEnv, over its WebSocket.

It speaks OpenEnv's frames (``reset``, ``step``, ``close``) and needs none of its packages. The turn
of the model goes into one field of the action; what the model reads is one field of the
observation, or the whole as JSON. Rewards are summed up; the conversation is done when the server
says so.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from pydantic import field_validator

from rlvr_core.api import (
    ComponentConfig,
    Done,
    EnvironmentTraits,
    Json,
    Message,
    Observation,
    Problem,
    Reply,
    Verdict,
)
from rlvr_core.toolkit import describe
from rlvr_env.servers.protocol import HEARTBEAT, MAX_FRAME, websockets_for

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection


class OpenEnvServerError(Exception):
    """A server of OpenEnv failed; the message names it."""


@dataclass(slots=True)
class Episode:
    """An episode at the server, and the sum of its rewards so far."""

    connection: ClientConnection
    reward: float = 0.0


class OpenEnv:
    """An environment that an OpenEnv server at ``url`` plays."""

    traits = EnvironmentTraits(asynchronous=True)

    class Config(ComponentConfig):
        """Options of ``env/openenv``."""

        url: str
        """URL of the server, such as ``http://127.0.0.1:8000``."""
        action: str
        """Field of the action that the model's turn goes into."""
        more: dict[str, Json] = {}
        """Further fields of every action."""
        observation: str | None = None
        """Field of the observation that the model reads; null: the whole, as JSON."""
        reset: dict[str, str] = {}
        """Arguments of ``reset`` beside the seed: the field of a problem's spec that each is."""
        pass_at: float | None = None
        """Sum of rewards from which a conversation has passed; null: any above 0."""
        role: Literal["user", "tool"] = "user"
        """Role of the observation's message."""
        connect_timeout: float = 10.0
        """Seconds that a connection may take to be made."""

        @field_validator("url")
        @classmethod
        def _a_server(cls, value: str) -> str:
            parts = urlsplit(value)
            if parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname:
                raise ValueError("a URL that begins with http:// or ws:// is needed")
            return value.rstrip("/")

    def __init__(self, config: Config) -> None:
        self._client, _, self._faults = websockets_for("env/openenv")
        self._config = config

    async def start(self, problem: Problem, seed: int) -> Episode:
        """Connect, and reset the environment with the seed."""
        config = self._config
        try:
            connection: ClientConnection = await self._client.connect(
                f"ws{config.url.removeprefix('http').removeprefix('ws')}/ws",
                open_timeout=config.connect_timeout,
                ping_interval=HEARTBEAT,
                ping_timeout=HEARTBEAT,
                max_size=MAX_FRAME,
            )
        except (OSError, TimeoutError, self._faults.InvalidHandshake) as error:
            raise OpenEnvServerError(
                f"the OpenEnv server {config.url} cannot be reached: {describe(error)}"
            ) from error
        given = {name: problem.spec[field] for name, field in config.reset.items()}
        try:
            await self._ask(connection, "reset", {"seed": seed % 2**31, **given})
        except BaseException:
            await connection.close()
            raise
        return Episode(connection)

    async def step(self, episode: Episode, reply: Reply) -> Observation | Done:
        """Make the model's turn an action; return what the server observed."""
        config = self._config
        action = {**config.more, config.action: reply.text}
        answer = await self._ask(episode.connection, "step", action)
        reward = answer.get("reward")
        if reward is not None:
            episode.reward += float(reward)
        if not math.isfinite(episode.reward):
            raise OpenEnvServerError(f"the OpenEnv server {config.url} gave the reward {reward}")
        if answer.get("done"):
            return Done(self._verdict(episode))
        seen = answer.get("observation") or {}
        if config.observation is None:
            text = json.dumps(seen, ensure_ascii=False)
        elif config.observation in seen:
            text = str(seen[config.observation])
        else:
            raise OpenEnvServerError(
                f"the observations of {config.url} have no field '{config.observation}'; they "
                f"have: {', '.join(seen)}"
            )
        return Observation((Message(config.role, text),))

    async def cut(self, episode: Episode, ended: str) -> Verdict:
        """Return the reward so far: many of these environments never end themselves."""
        del ended
        return self._verdict(episode)

    async def close(self, episode: Episode) -> None:
        """End the episode."""
        try:
            await episode.connection.send(json.dumps({"type": "close"}))
        except self._faults.ConnectionClosed:
            return
        await episode.connection.close()

    def _verdict(self, episode: Episode) -> Verdict:
        bar, reward = self._config.pass_at, episode.reward
        passed = reward > 0 if bar is None else reward >= bar
        return Verdict(reward, passed=passed, detail="sum of the server's rewards")

    async def _ask(self, connection: ClientConnection, kind: str, data: Json) -> dict[str, Json]:
        try:
            await connection.send(json.dumps({"type": kind, "data": data}))
            answer = json.loads(await connection.recv())
        except self._faults.ConnectionClosed as error:
            raise OpenEnvServerError(
                f"the connection to the OpenEnv server {self._config.url} was lost: "
                f"{describe(error)}"
            ) from error
        content = answer.get("data") or {}
        if answer.get("type") == "error":
            raise OpenEnvServerError(
                f"the OpenEnv server {self._config.url} says: {content.get('message')} "
                f"({content.get('code')})"
            )
        fields: dict[str, Json] = content
        return fields
