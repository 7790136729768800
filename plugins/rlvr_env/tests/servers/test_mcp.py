"""``env/mcp``: an MCP server's tools in conversations, with a real server of the package mcp."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from plugins.rlvr_env.tests.servers.serving import serving
from rlvr_core.api import ConfigError, Done, MachineError, Message, Problem, Reply
from rlvr_env.servers.mcp import Mcp

SERVER = [sys.executable, str(Path(__file__).with_name("mcp_counter.py"))]
PROBLEM = Problem("p", "How many?", "core/exact", {}, "d")


def call(name, **arguments):
    return f'<tool_call>{{"name": "{name}", "arguments": {json.dumps(arguments)}}}</tool_call>'


@pytest.fixture(scope="module")
def url():
    with serving(SERVER) as port:
        yield f"http://127.0.0.1:{port}/mcp"


def test_tools_of_a_server_over_http_are_those_of_the_conversation(url):
    env = Mcp(Mcp.Config(url=url))
    shown = env.present(PROBLEM)
    assert [tool["function"]["name"] for tool in shown.tools] == ["count", "fail"]
    parameters = shown.tools[0]["function"]["parameters"]
    assert parameters["required"] == ["of"]
    assert parameters["properties"]["of"]["type"] == "string"

    async def play():
        state = await env.start(PROBLEM, 1)
        try:
            said = [
                await env.step(state, Reply(text, 0, 9))
                for text in (
                    call("count", of="cats"),
                    call("fail", why="broken tool") + call("count", of="ants"),
                    call("count"),
                    call("cuont", of="x"),
                )
            ]
            assert await env.step(state, Reply("four", 4, 5)) == Done()
        finally:
            await env.close(state)
        return said

    first, second, third, fourth = asyncio.run(play())
    assert first.messages == (Message("tool", "4 cats, call 1"),)
    assert first.counts == {"tool_calls": 1, "tool_errors": 0}
    assert second.messages[0].content.startswith("error of the server: ")
    assert "broken tool" in second.messages[0].content
    assert second.messages[1].content == "4 ants, call 2"
    assert second.counts == {"tool_calls": 2, "tool_errors": 1}
    assert third.messages[0].content == "error: count needs the argument 'of'"
    assert fourth.messages[0].content == "error: there is no tool 'cuont'; there is: count, fail"


def test_each_conversation_has_a_process_of_a_server_over_stdio_and_its_death_is_the_servers():
    env = Mcp(Mcp.Config(command=[*SERVER, "stdio"], tell="prompt", tools=["count", "fail"]))
    shown = env.present(PROBLEM)
    assert shown.prompt.startswith("You may call these functions:")
    assert shown.prompt.endswith("\n\nHow many?")
    assert shown.stop == ("</tool_call>",)

    async def play():
        one, two = await asyncio.gather(env.start(PROBLEM, 1), env.start(PROBLEM, 1))
        try:
            for state in (one, two):  # a counter each
                said = await env.step(state, Reply(call("count", of="cats"), 0, 9))
                assert said.messages[0].content == "4 cats, call 1"
            with pytest.raises(Exception, match=r"MCP server .*mcp_counter.py stdio is lost"):
                await env.step(one, Reply(call("fail", why="die"), 1, 8))
            said = await env.step(two, Reply(call("count", of="cats"), 1, 8))
            assert said.messages[0].content == "4 cats, call 2"
        finally:
            await env.close(one)
            await env.close(two)

    asyncio.run(play())


def test_servers_and_tools_that_are_not_there(url):
    with pytest.raises(ConfigError, match="has no tool 'cuont'; it has: count, fail"):
        Mcp(Mcp.Config(url=url, tools=["cuont"])).present(PROBLEM)
    with pytest.raises(MachineError, match="MCP server false does not list its tools"):
        Mcp(Mcp.Config(command=["false"])).present(PROBLEM)
