"""A tiny MCP server on stdio with one tool, `ask`, that asks a person before it answers.

Its argument is the mode of the question: `form` or `url`. The tool's result is what came back.
"""

import json
import sys
from typing import Any

_QUESTIONS = {
    "form": {
        "mode": "form",
        "message": "Which colour?",
        "requestedSchema": {
            "type": "object",
            "properties": {"colour": {"type": "string"}},
            "required": ["colour"],
        },
    },
    "url": {
        "mode": "url",
        "message": "Sign in there",
        "url": "https://login.example.invalid/",
        "elicitationId": "e1",
    },
}
_TOOL = {"name": "ask", "description": "Ask", "inputSchema": {"type": "object", "properties": {}}}


def _send(**frame: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\n")
    sys.stdout.flush()


def _greeting(frame: dict[str, Any]) -> dict[str, Any]:
    return {
        "protocolVersion": frame["params"]["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "asker", "version": "1"},
    }


def main(mode: str) -> None:
    """Serve until stdin ends."""
    called = None
    for line in sys.stdin:
        frame = json.loads(line)
        match frame.get("method"):
            case "initialize":
                _send(id=frame["id"], result=_greeting(frame))
            case "tools/list":
                _send(id=frame["id"], result={"tools": [_TOOL]})
            case "tools/call":
                called = frame["id"]
                _send(id="question", method="elicitation/create", params=_QUESTIONS[mode])
            case None if frame.get("id") == "question":
                told = json.dumps(frame.get("result") or frame.get("error"))
                _send(id=called, result={"content": [{"type": "text", "text": f"came back: {told}"}]})
            case None:
                pass
            case _ if "id" in frame:
                _send(id=frame["id"], result={})


if __name__ == "__main__":
    main(sys.argv[1])
