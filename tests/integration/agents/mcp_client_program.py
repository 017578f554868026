"""An agent in miniature: starts the server it is given, by the client of the protocol's own library."""

import asyncio
import json
import sys
from typing import Any

from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import TextContent


def shown(result: Any) -> dict[str, Any]:
    """What the model would read."""
    content = result.content[0]
    assert isinstance(content, TextContent)
    return {"error": result.isError, "text": content.text}


async def main(argv: list[str]) -> None:
    """List, call, call wrongly, and tell all of it on stdout."""
    server = StdioServerParameters(command=argv[0], args=argv[1:])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        welcome = await session.initialize()
        listed = await session.list_tools()
        good = await session.call_tool("echo", {"text": "grüße \U0001f600"})
        bad = await session.call_tool("echo", {"text": "fail"})
        unknown = await session.call_tool("nothing", {})
        pinged = await session.send_ping()
        try:
            await session.list_resources()
            resources = "listed"
        except McpError as error:
            resources = error.error.message
    told = {
        "server": welcome.serverInfo.name,
        "tools": [{"name": tool.name, "schema": tool.inputSchema} for tool in listed.tools],
        "good": shown(good),
        "bad": shown(bad),
        "unknown": shown(unknown),
        "pinged": pinged is not None,
        "resources": resources,
    }
    sys.stdout.write(json.dumps(told))


asyncio.run(main(sys.argv[1:]))
