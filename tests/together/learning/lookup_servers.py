"""What ``env/lookup`` asks for, as a server of MCP and one of OpenEnv, by their own packages."""

import re
import sys
import zlib

from rlvr_core.api import Verdict


def number(of):
    return str(zlib.crc32(of.encode()) % 90 + 10)


def right(problem, completion):
    """The reward of conversations with the MCP server, which judges nothing."""
    passed = completion.text.strip() == number(str(problem.spec["of"]))
    return Verdict(float(passed), passed=passed)


def mcp(port):
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("lookup")

    @server.tool()
    def count(of: str) -> str:
        """How many there are."""
        return number(of)

    server.run("streamable-http", port=port)


def openenv(port):
    import uvicorn
    from openenv.core.env_server import (
        Action,
        Environment,
        Observation,
        State,
        create_fastapi_app,
    )

    class Said(Action):
        text: str

    class Heard(Observation):
        text: str = ""

    class Lookup(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self):
            super().__init__()
            self.of, self.steps = "", 0

        def reset(self, seed=None, episode_id=None, **given):
            self.of, self.steps = given["of"], 0
            return Heard(reward=0.0)

        def step(self, action, timeout_s=None, **kwargs):
            self.steps += 1
            asked = re.search(r'"arguments": {"of": "([a-z ]+)"}', action.text)
            if asked is None:
                reward = float(action.text.strip() == number(self.of))
                return Heard(reward=reward, done=True)
            return Heard(text=f"\n<tool_response>\n{number(asked[1])}\n</tool_response>\n")

        @property
        def state(self):
            return State(step_count=self.steps)

    app = create_fastapi_app(Lookup, Said, Heard, max_concurrent_envs=512)
    uvicorn.run(app, port=port, log_level="error")


if __name__ == "__main__":
    {"mcp": mcp, "openenv": openenv}[sys.argv[1]](int(sys.argv[2]))
