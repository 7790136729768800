"""``env/openenv`` with a server that OpenEnv's own package makes."""

import asyncio
import sys
from pathlib import Path

import pytest

from plugins.rlvr_env.tests.servers.serving import serving
from rlvr_core.api import Done, Message, Problem, Reply, Verdict
from rlvr_env.servers.openenv import OpenEnv, OpenEnvServerError

SERVER = [sys.executable, str(Path(__file__).with_name("openenv_echo.py"))]
PROBLEM = Problem("p", "say", "env/environment", {"w": "x"}, "d")


@pytest.fixture(scope="module")
def url():
    with serving(SERVER) as port:
        yield f"http://127.0.0.1:{port}"


def test_an_environment_of_openenv_plays_conversations_beside_each_other(url):
    config = OpenEnv.Config(
        url=url, action="message", more={"volume": 2}, observation="echoed", reset={"word": "w"}
    )
    env = OpenEnv(config)

    async def play():
        one, two = await asyncio.gather(env.start(PROBLEM, 7), env.start(PROBLEM, 8))
        try:
            said = await env.step(one, Reply("he", 0, 5))
            assert said.messages == (Message("user", "hehe 7 1"),)
            said = await env.step(two, Reply("a", 0, 5))
            assert said.messages == (Message("user", "aa 8 1"),)
            detail = "sum of the server's rewards"
            assert await env.step(one, Reply("end", 1, 4)) == Done(
                Verdict(2.0, passed=True, detail=detail)
            )
            assert await env.cut(two, "max_turns") == Verdict(0.0, passed=False, detail=detail)
            with pytest.raises(OpenEnvServerError, match=r"the OpenEnv server .* says: .*cannot"):
                await env.step(two, Reply("fail", 1, 4))
        finally:
            await env.close(one)
            await env.close(two)

    asyncio.run(play())


def test_a_field_that_observations_lack_and_a_server_that_is_not_there(url):
    env = OpenEnv(OpenEnv.Config(url=url, action="message", observation="text"))

    async def play():
        one = await env.start(PROBLEM, 7)
        try:
            with pytest.raises(OpenEnvServerError, match="no field 'text'; they have: echoed"):
                await env.step(one, Reply("a", 0, 5))
        finally:
            await env.close(one)
        gone = OpenEnv(OpenEnv.Config(url="http://127.0.0.1:1", action="message"))
        with pytest.raises(OpenEnvServerError, match=r"http://127.0.0.1:1 cannot be reached"):
            await gone.start(PROBLEM, 7)

    asyncio.run(play())
