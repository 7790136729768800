"""OpenAI's chat interface in front of the conversations of a run.

One server for all conversations of an environment; the key that a program is given says which
conversation it speaks in. A request waits until the model's turn is there.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from rlvr_core.api import BadCall, Json, Reply, ToolFormat
from rlvr_env.agents.branches import text_of

MODEL = "rlvr"
"""Name of the model; requests may name any."""


@dataclass(slots=True)
class PendingRequest:
    """A request of the program that waits for the model.

    Attributes:
        messages: The messages of the request.
        tools: The tools of the request.
        answer: The message that it is answered with, and its ``usage``, once the model has spoken.
    """

    messages: list[Json]
    tools: list[Json]
    answer: asyncio.Future[tuple[Json, Json]]


@dataclass(slots=True)
class Line:
    """The requests of one conversation, in the order they came."""

    requests: asyncio.Queue[PendingRequest] = field(default_factory=asyncio.Queue)


class Endpoint:
    """The server; to be used in one event loop."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}
        self._numbers = itertools.count()
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port of this machine."""
        routes = [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/models", self._models, methods=["GET"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes),
            log_level="error",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._task = asyncio.create_task(self._server._serve([listening]))
        while not self._server.started:
            await asyncio.sleep(0.01)

    def open(self, key: str) -> Line:
        """Take requests with this key."""
        self._lines[key] = Line()
        return self._lines[key]

    def close(self, key: str) -> None:
        """Refuse further requests with this key."""
        self._lines.pop(key, None)

    async def _models(self, request: Request) -> Response:
        del request
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _chat(self, request: Request) -> Response:
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        line = self._lines.get(key)
        if line is None:
            return _refused(401, "this key belongs to no conversation that goes on")
        try:
            body = json.loads(await request.body())
            messages, tools = body["messages"], body.get("tools") or []
            for message in messages:
                text_of(message)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return _refused(400, f"the request cannot be read: {error!r}")
        for name, only in (("n", 1), ("logprobs", False), ("tool_choice", "auto")):
            if body.get(name) not in (None, only):
                return _refused(400, f"{name} is {only} here, not {body[name]!r}")
        if not messages or messages[-1].get("role") == "assistant":
            return _refused(400, "messages end with one of the user or of a tool")
        pending = PendingRequest(messages, tools, asyncio.get_running_loop().create_future())
        line.requests.put_nowait(pending)
        try:
            answer = await pending.answer
        except asyncio.CancelledError:
            if not pending.answer.cancelled():
                raise
            return _refused(409, "the conversation is over: it reached a limit of the run")
        whole = self._completion(body, *answer)
        if body.get("stream"):
            usage = bool((body.get("stream_options") or {}).get("include_usage"))
            return StreamingResponse(_streamed(whole, usage=usage), media_type="text/event-stream")
        return JSONResponse(whole)

    def _completion(self, body: Json, message: Json, usage: Json) -> dict[str, Json]:
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        return {
            "id": f"chatcmpl-{next(self._numbers)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body.get("model", MODEL),
            "choices": [
                {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
            ],
            "usage": usage,
        }


async def _streamed(whole: dict[str, Json], *, usage: bool) -> AsyncIterator[str]:
    """Yield the answer as server-sent events: message, end, and usage if requested.

    OpenAI sends the usage in a last chunk without choices.
    """
    choice = whole["choices"][0]
    delta = dict(choice["message"])
    if delta.get("tool_calls"):
        delta["tool_calls"] = [
            {"index": index, **call} for index, call in enumerate(delta["tool_calls"])
        ]
    common = {**whole, "object": "chat.completion.chunk", "usage": None}
    for piece, reason in ((delta, None), ({}, choice["finish_reason"])):
        chunk = {"index": 0, "delta": piece, "finish_reason": reason}
        yield f"data: {json.dumps({**common, 'choices': [chunk]})}\n\n"
    if usage:
        yield f"data: {json.dumps({**common, 'choices': [], 'usage': whole['usage']})}\n\n"
    yield "data: [DONE]\n\n"


def message_of(text: str, tools: list[Json], form: ToolFormat, number: int) -> dict[str, Json]:
    """Return the message that a program gets for a turn of the model.

    Args:
        text: The turn.
        tools: The tools that the program offered; without any, text stays text.
        form: How the model writes calls.
        number: Number of the turn in its conversation, for the ids of calls.
    """
    message: dict[str, Any] = {"role": "assistant", "content": text}
    calls = form.parse(text) if tools else []
    if calls and not any(isinstance(call, BadCall) for call in calls):
        message["tool_calls"] = [
            {
                "id": f"call_{number}_{index}",
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(dict(call.arguments), ensure_ascii=False),
                },
            }
            for index, call in enumerate(calls)
            if not isinstance(call, BadCall)
        ]
    return message


def usage_of(reply: Reply) -> dict[str, int] | None:
    """Return a turn's tokens as OpenAI counts them; None if the engine does not say them."""
    if not reply.completion_tokens:
        return None
    counts = {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
    }
    return {**counts, "total_tokens": sum(counts.values())}


def _refused(status: int, why: str) -> JSONResponse:
    error = {"message": why, "type": "invalid_request_error", "code": status}
    return JSONResponse({"error": error}, status_code=status)
