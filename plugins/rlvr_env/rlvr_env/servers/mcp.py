"""The environment ``env/mcp``: the tools of an MCP server are those of the conversation.

Each conversation has a session of its own with the server: a process of its own where the server
is a command, a connection where it has a URL. A turn without a call ends the conversation, and
verifiers judge it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import model_validator

from rlvr_core.api import (
    BadCall,
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
    Tool,
    ToolCall,
)
from rlvr_core.toolkit import describe, tool_format

if TYPE_CHECKING:
    from mcp import Client, StdioServerParameters


class McpServerError(Exception):
    """An MCP server failed; the message names it."""


@dataclass(slots=True)
class Session:
    """A conversation's session with the server, in a task that opens and closes it."""

    client: Client
    end: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Mcp:
    """Calls the tools of an MCP server, over stdio or streamable HTTP."""

    traits = EnvironmentTraits(asynchronous=True)

    class Config(ComponentConfig):
        """Options of ``env/mcp``; one of ``command`` and ``url``."""

        command: list[str] | None = None
        """Program and arguments of a server that speaks over its standard input and output."""
        env: dict[str, str] = {}
        """Environment variables of that program, beside ``PATH``, ``HOME`` and the like."""
        url: str | None = None
        """URL of a server that uses streamable HTTP: ``http://127.0.0.1:8000/mcp``."""
        tools: list[str] | None = None
        """The tools that the model may call; null: all that the server lists."""
        format: Annotated[str, Names("tool_format")] = "hermes"
        """How the model writes calls."""
        tell: Literal["template", "prompt", "nothing"] = "template"
        """How the model learns of the tools: by its chat template, before the prompt, or not."""
        answer: str = "{answer}"
        """Text around an answer of a tool, for prompts without a chat template."""
        start_timeout: float = 30.0
        """Seconds that the server may take to list its tools at the start of a run."""

        @model_validator(mode="after")
        def _one_server(self) -> Any:
            if (self.command is None) == (self.url is None) or self.command == []:
                raise ValueError("say where the server is: one of command and url")
            return self

    def __init__(self, config: Config) -> None:
        try:
            import mcp
            from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT
        except ImportError as error:
            raise MachineError(
                f"env/mcp needs the package mcp, which does not import: {error}",
                remedy='pip install "rlvr-core[mcp]"',
            ) from error
        self._mcp, self._closed, self._late = mcp, CONNECTION_CLOSED, REQUEST_TIMEOUT
        self._config = config
        self._format = tool_format(config.format)
        self._tools: dict[str, tuple[Tool, Json]] | None = None

    @property
    def _name(self) -> str:
        return f"MCP server {self._config.url or ' '.join(self._config.command or ())}"

    def tools(self) -> Mapping[str, tuple[Tool, Json]]:
        """Return the tools that the server lists, by name, each with its whole schema.

        Raises:
            MachineError: If the server does not answer.
            ConfigError: If it has none of a name in ``tools``.
        """
        if self._tools is None:
            listed = _in_thread(self._list())
            wanted = self._config.tools
            for name in wanted or ():
                if name not in listed:
                    raise ConfigError(
                        f"the {self._name} has no tool '{name}'; it has: {', '.join(listed)}",
                        where="environment.with.tools",
                    )
            self._tools = {n: tool for n, tool in listed.items() if wanted is None or n in wanted}
        return self._tools

    def present(self, problem: Problem) -> Problem:
        """Return the problem with the server's tools, and the strings that end a call."""
        tools, tell = self.tools(), self._config.tell
        if tell == "template":
            schemas = (*problem.tools, *(schema for _, schema in tools.values()))
            return replace(problem, tools=schemas)
        stop = (*problem.stop, *self._format.stop)
        if tell == "nothing":
            return replace(problem, stop=stop)
        description = self._format.describe([tool for tool, _ in tools.values()])
        prompt = problem.prompt
        if isinstance(prompt, str):
            return replace(problem, prompt=f"{description}\n\n{prompt}", stop=stop)
        return replace(problem, prompt=(Message("system", description), *prompt), stop=stop)

    async def start(self, problem: Problem, seed: int) -> Session:
        """Open a session with the server."""
        del problem, seed
        session = Session(self._client())
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        session.task = asyncio.create_task(self._hold(session, ready))
        try:
            await ready
        except BaseException:
            session.end.set()
            session.task.cancel()
            raise
        return session

    async def step(self, session: Session, reply: Reply) -> Observation | Done:
        """Make the calls of a turn, in order; a turn without one is the answer."""
        calls = self._format.parse(reply.text)
        if not calls:
            return Done()
        texts, errors = [], 0
        for call in calls:
            text, failed = await self._answer(session, call)
            texts.append(self._config.answer.replace("{answer}", text))
            errors += failed
        messages = tuple(Message(self._format.role, text) for text in texts)
        return Observation(
            messages, {"tool_calls": float(len(calls)), "tool_errors": float(errors)}
        )

    async def close(self, session: Session) -> None:
        """End the session, and the server's process where it has one."""
        session.end.set()
        if session.task is not None:
            await asyncio.wait([session.task])

    async def _answer(self, session: Session, call: ToolCall | BadCall) -> tuple[str, bool]:
        if isinstance(call, BadCall):
            return f"error: {call.error}", True
        known = self.tools()
        if call.name not in known:
            return f"error: there is no tool '{call.name}'; there is: {', '.join(known)}", True
        fault = known[call.name][0].fault(call.arguments)
        if fault is not None:
            return f"error: {fault}", True
        try:
            result = await session.client.call_tool(call.name, dict(call.arguments))
        except self._mcp.MCPError as error:
            if error.code in (self._closed, self._late):
                raise McpServerError(f"the {self._name} is lost: {error}") from error
            return f"error of the server: {error}", True
        text = "\n".join(
            block.text if block.type == "text" else f"[{block.type}]" for block in result.content
        )
        return (f"error of the server: {text}" if result.is_error else text), bool(result.is_error)

    def _client(self) -> Client:
        config = self._config
        at: str | StdioServerParameters
        if config.command is not None:
            program, *arguments = config.command
            at = self._mcp.StdioServerParameters(
                command=program, args=arguments, env=config.env or None
            )
        else:
            assert config.url is not None
            at = config.url
        return self._mcp.Client(at)

    async def _hold(self, session: Session, ready: asyncio.Future[None]) -> None:
        """Open the session, and close it in the same task: its scopes are bound to one."""
        try:
            async with session.client:
                ready.set_result(None)
                await session.end.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(
                    McpServerError(f"the {self._name} does not start: {_innermost(error)}")
                )

    async def _list(self) -> dict[str, tuple[Tool, Json]]:
        tools: dict[str, tuple[Tool, Json]] = {}
        try:
            async with asyncio.timeout(self._config.start_timeout), self._client() as client:
                cursor = None
                while True:
                    page = await client.list_tools(cursor=cursor)
                    for tool in page.tools:
                        tools[tool.name] = _converted(tool)
                    cursor = page.next_cursor
                    if not cursor:
                        return tools
        except Exception as error:
            raise MachineError(
                f"the {self._name} does not list its tools: {_innermost(error)}",
                where="environment.with",
                remedy="start it by hand and see what it says",
            ) from error


def _converted(listed: Any) -> tuple[Tool, Json]:
    schema = dict(listed.input_schema)
    properties = schema.get("properties") or {}
    required = schema.get("required") or ()
    optional = tuple(name for name in properties if name not in required)
    tool = Tool(listed.name, listed.description or "", properties, optional)
    function = {"name": listed.name, "description": tool.description, "parameters": schema}
    return tool, {"type": "function", "function": function}


def _innermost(error: BaseException) -> str:
    """Describe the first real error in groups of them, as task groups raise."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return describe(error)


def _in_thread(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end; the caller's thread may have an event loop of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
