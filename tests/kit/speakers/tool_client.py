"""A client of MCP, as small as can be: agents that are offered tools by a server start it and ask it."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["call_tool"]


def call_tool(argv: Sequence[str], name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """One call by an MCP server that lives as long as the call."""
    if not argv:
        return {"error": {"message": "there is no server of tools"}}
    opening = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "s", "version": "1"},
    }
    asked = [("initialize", opening), ("tools/call", {"name": name, "arguments": dict(arguments)})]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        answer: dict[str, Any] = {}
        for number, (method, params) in enumerate(asked):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            server.stdin.write(json.dumps(request).encode() + b"\n")
            server.stdin.flush()
            answer = json.loads(server.stdout.readline() or b"{}")
            if number == 0:
                server.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        server.stdin.close()
    if "result" not in answer:
        return {"error": {"message": str(answer.get("error") or "the server of tools is gone")}}
    result = answer["result"]
    return {"result": {"success": not result.get("isError"), "contentItems": result.get("content", [])}}
