"""The scripted agent as a speaker of Claude Code's stream of JSON lines: start this module as a program.

Script, faults and memory are the same, because only the line to the client differs: what the client says is
turned into requests of the app-server, and what that says into Claude's events. A METHOD of a fault is one
of the app-server. Tools of the client are reached as Claude does it, by the MCP server of `--mcp-config`.
"""

import argparse
import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typing_extensions import override

from kit.speakers import claude_frames as frames
from kit.speakers.tool_client import call_tool
from symphony.testing.scripted_agent.protocol import Faults, Wire, live, read_switches, write_stdout
from symphony.testing.scripted_agent.server import Server

__all__ = ["main"]


_VERSION = "2.1.197 (scripted agent; no model)"
_OPENING = "opening"


class _Options:
    """What Claude's own arguments say; those that mean nothing here are not looked at."""

    def __init__(self, argv: list[str]) -> None:
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        for name in ("--session-id", "--resume", "--append-system-prompt", "--mcp-config"):
            parser.add_argument(name)
        given, _ = parser.parse_known_args(argv)
        self.thread_id = str(given.resume or given.session_id)
        self.resumed = given.resume is not None
        self.system_text = given.append_system_prompt or ""
        servers = json.loads(given.mcp_config)["mcpServers"] if given.mcp_config else {}
        self.tools: tuple[str, ...] = ()
        for server in servers.values():
            self.tools = (server["command"], *server["args"])


class _ClaudeWire(Wire):
    """Says the frames of the app-server in Claude's words."""

    def __init__(self, options: _Options, faults: Faults) -> None:
        super().__init__(write_stdout, faults)
        self._options = options
        self._totals: Mapping[str, int] = {}
        self._before: Mapping[str, int] | None = None
        self.greeting: object = None
        self.turn_id: str | None = None

    def reply(self, request_id: str) -> None:
        """Answer a request of the client that has no counterpart."""
        self._line(frames.control_response(request_id, {}))

    @override
    def ask(
        self, method: str, params: Mapping[str, Any], gave_up: threading.Event
    ) -> Mapping[str, Any] | None:
        if method == "item/tool/call":
            return {"id": 0, **call_tool(self._options.tools, params["tool"], params["arguments"])}
        return super().ask(method, params, gave_up)

    @override
    def _frame(self, frame: Mapping[str, Any]) -> None:
        for each in self._said(frame):
            self._line({**each, "session_id": self._options.thread_id})

    def _line(self, message: Mapping[str, Any]) -> None:
        self._bytes(json.dumps(message, ensure_ascii=False).encode() + b"\n")

    def _said(self, frame: Mapping[str, Any]) -> list[dict[str, Any]]:
        method, params = frame.get("method"), frame.get("params") or {}
        if method is not None and "id" in frame:
            asked = frames.question(method, params)
            return [{"type": "control_request", "request_id": str(frame["id"]), "request": asked}]
        if method is None:
            return self._replied(frame)
        return self._notified(method, params)

    def _replied(self, frame: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Of the answers only that to the opening is one to Claude's client."""
        if frame.get("id") != _OPENING:
            return []
        if "error" in frame:
            text = f"No conversation found with session ID: {self._options.thread_id}"
            failed = frames.result({"status": "failed", "error": {"message": text}}, {})
            return [{**failed, "subtype": "error_during_execution"}]
        account = {"apiProvider": "scripted"}
        return [frames.control_response(self.greeting, {"models": [], "account": account})]

    def _notified(self, method: str, params: Mapping[str, Any]) -> list[dict[str, Any]]:
        match method:
            case "turn/started":
                self.turn_id = params["turn"]["id"]
                return [{"type": "system", "subtype": "init", "mcp_servers": []}]
            case "item/started":
                return frames.items_started(params["item"])
            case "item/completed":
                return frames.tool_result(params["item"])
            case "thread/tokenUsage/updated":
                return self._counted(params["tokenUsage"])
            case "turn/completed":
                return [frames.result(params["turn"], self._totals)]
            case _:
                return [{"type": "stream_event"}] if method.endswith("elta") else []

    def _counted(self, usage: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
        """Totals of a thread become totals of the process, which begin with nothing."""
        total, last = usage["total"], usage["last"]
        if self._before is None:
            repeated = self._options.resumed  # by which a resumed thread begins
            self._before = total if repeated else {key: total[key] - last[key] for key in total}
        self._totals = {key: total[key] - self._before[key] for key in total}
        return []


class _Client:
    """Turns what Claude's client says into requests of the app-server."""

    def __init__(self, options: _Options, faults: Faults) -> None:
        self._options = options
        self._wire = _ClaudeWire(options, faults)
        self._server = Server(self._wire, faults)

    def close(self) -> None:
        """The client is gone."""
        self._server.close()

    def handle(self, frame: object) -> None:
        """Take one frame of the client; what is none is skipped."""
        if not isinstance(frame, dict):
            return
        match frame.get("type"):
            case "user":
                content = frame["message"]["content"]
                self._send("turn/start", "turn", threadId=self._options.thread_id, input=content)
            case "control_request":
                self._asked(frame["request_id"], frame["request"])
            case "control_response":
                response = frame["response"]
                self._wire.answered({"id": int(response["request_id"]), **frames.answer_of(response)})
            case _:
                return

    def _asked(self, request_id: str, request: Mapping[str, Any]) -> None:
        if request["subtype"] == "initialize":
            self._open(request_id)
            return
        self._wire.reply(request_id)
        if request["subtype"] == "interrupt":
            self._send("turn/interrupt", "interrupt", turnId=self._wire.turn_id)

    def _open(self, request_id: str) -> None:
        options, self._wire.greeting = self._options, request_id
        self._send("initialize", "first", capabilities={"experimentalApi": True})
        self._send(
            "thread/resume" if options.resumed else "thread/start",
            _OPENING,
            threadId=options.thread_id,
            cwd=str(Path.cwd()),
            systemText=options.system_text,
        )

    def _send(self, method: str, request_id: str, **params: Any) -> None:
        self._server.handle({"method": method, "id": request_id, "params": params})


def main(argv: list[str]) -> int:
    """Run until the client closes stdin; what stands before `--print` are switches of ours."""
    if "--version" in argv:
        write_stdout(f"{_VERSION}\n".encode())
        return 0
    cut = argv.index("--print") if "--print" in argv else len(argv)
    faults, options = read_switches(argv[:cut]), _Options(argv[cut:])
    return live(faults, lambda: _Client(options, faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
