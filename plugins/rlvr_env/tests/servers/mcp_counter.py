"""An MCP server with a counter of its own and a tool that fails."""

import os
import sys

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("counter")
total = 0


@server.tool()
def count(of: str) -> str:
    """How many there are."""
    global total
    total += 1
    return f"{len(of)} {of}, call {total}"


@server.tool()
def fail(why: str = "no reason") -> str:
    """Fail."""
    if why == "die":
        os._exit(3)
    raise ToolError(why)


if __name__ == "__main__":
    if sys.argv[1:] == ["stdio"]:
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[1]))
