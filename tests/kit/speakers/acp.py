"""The scripted agent as a speaker of the Agent Client Protocol: start this module as a program.

Script, faults and memory are the same, because only the line to the client differs: what the client says is
turned into requests of the app-server, and what that says into session updates. A METHOD of a fault is one of
the app-server. Tools of the client are reached by the MCP servers of `session/new`. Further switches make it
like this or that real agent: see `_Manners`.
"""

import argparse
import json
import os
import re
import sys
import threading
from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from kit.speakers import acp_frames as frames
from kit.speakers.tool_client import call_tool
from symphony import __version__
from symphony.testing.scripted_agent import USER_AGENT_NAME
from symphony.testing.scripted_agent.protocol import Faults, Wire, live, read_switches, write_stdout
from symphony.testing.scripted_agent.server import Server

__all__ = ["main"]


_METHOD_NOT_FOUND = -32_601
_INTERNAL = -32_603
_AUTH_REQUIRED = -32_000
_GREETING, _OPENING, _PROMPT = "greeting", "opening", "prompt"
_MODELS = ("small", "large")
_MODES = ("default", "careful")
_IN_FRONT = re.compile(r"<system-context>\n(.*?)\n</system-context>\n", re.DOTALL)
_INSTRUCTIONS = "SCRIPTED_ACP_INSTRUCTIONS"


class _Manners:
    """In which way of the many it speaks the protocol."""

    def __init__(self, argv: list[str]) -> None:
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        add = parser.add_argument
        add("--protocol-version", type=int, default=1)
        add("--agent-version", default=__version__)
        add("--no-login", action="store_true", help="refuse sessions until somebody logs in")
        add("--resume-by", choices=["resume", "load", "broken-load", "none"], default="load")
        add("--usage", choices=["usage", "quota", "none"], default="usage")
        add("--asks-for-files", action="store_true", help="ask the client to write each file, as OpenCode")
        add("--refuse-prompt", metavar="TEXT", help="answer prompts with an error that says this")
        given, self.rest = parser.parse_known_args(argv)
        self.protocol_version: int = given.protocol_version
        self.agent_version: str = given.agent_version
        self.no_login: bool = given.no_login
        self.resume_by: str = given.resume_by
        self.usage: str = given.usage
        self.asks_for_files: bool = given.asks_for_files
        self.refuse_prompt: str | None = given.refuse_prompt

    def capabilities(self) -> dict[str, Any]:
        """What it says that it can."""
        sessions: dict[str, Any] = {"resume": {}} if self.resume_by == "resume" else {}
        return {"loadSession": self.resume_by in {"load", "broken-load"}, "sessionCapabilities": sessions}


class _AcpWire(Wire):
    """Says the frames of the app-server in the words of the protocol."""

    def __init__(self, manners: _Manners, faults: Faults) -> None:
        super().__init__(write_stdout, faults)
        self._manners = manners
        self._started_with: Mapping[str, int] | None = None
        self._totals: Mapping[str, int] = {}
        self.session_id = ""
        self.servers: list[Mapping[str, Any]] = []
        self.waiting: dict[str, object] = {}

    def tell(self, message: Mapping[str, Any]) -> None:
        """Write one message."""
        line = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False)
        self._bytes(line.encode() + b"\n")

    def refuse(self, request_id: object, code: int, message: str, **data: Any) -> None:
        """Answer a request of the client with an error."""
        error: dict[str, Any] = {"code": code, "message": message}
        self.tell({"id": request_id, "error": {**error, "data": data} if data else error})

    def update(self, **update: Any) -> None:
        """Tell of something in the session."""
        self.tell({"method": "session/update", "params": {"sessionId": self.session_id, "update": update}})

    @override
    def ask(
        self, method: str, params: Mapping[str, Any], gave_up: threading.Event
    ) -> Mapping[str, Any] | None:
        if method == "item/tool/call":
            argv = [word for server in self.servers for word in (server["command"], *server["args"])]
            return {"id": 0, **call_tool(argv, params["tool"], params["arguments"])}
        answer = super().ask(method, params, gave_up)
        if answer is None or method != "item/commandExecution/requestApproval":
            return answer
        return {"id": answer["id"], "result": frames.decision_of(answer)}

    @override
    def _frame(self, frame: Mapping[str, Any]) -> None:
        method, params = frame.get("method"), frame.get("params") or {}
        if method is None:
            self._replied(frame)
        elif "id" in frame:
            asked = {"sessionId": self.session_id, **_question(method, params)}
            self.tell({"id": frame["id"], "method": _QUESTIONS.get(method, method), "params": asked})
        else:
            self._notified(method, params)

    def _replied(self, frame: Mapping[str, Any]) -> None:
        """Of the answers only that to the opening is one that the client waits for."""
        if frame.get("id") != _OPENING:
            return
        request_id = self.waiting.pop(_OPENING)
        if "error" in frame:
            self.refuse(request_id, _INTERNAL, "Internal error", details=frame["error"]["message"])
            return
        self.session_id = frame["result"]["thread"]["id"]
        self.tell({"id": request_id, "result": {"sessionId": self.session_id, **_choices()}})
        self.update(sessionUpdate="available_commands_update", availableCommands=[])

    def _notified(self, method: str, params: Mapping[str, Any]) -> None:
        match method:
            case "item/started" if params["item"]["type"] in {
                "commandExecution",
                "fileChange",
                "dynamicToolCall",
            }:
                self._began(params["item"])
            case "item/completed" if params["item"]["type"] == "agentMessage":
                text = params["item"]["text"]
                for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
                    self.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": piece})
                self.update(sessionUpdate="plan", entries=[])
            case "item/completed" if params["item"]["type"] != "userMessage":
                self.update(**frames.tool_done(params["item"]))
            case "item/commandExecution/outputDelta":
                self.update(sessionUpdate="agent_thought_chunk", content={"type": "text", "text": "…"})
            case "thread/tokenUsage/updated":
                self._counted(params["tokenUsage"])
            case "turn/completed":
                self._ended(params["turn"])
            case _:
                return

    def _began(self, item: Mapping[str, Any]) -> None:
        self.update(**frames.tool_call(item))
        if item["type"] == "fileChange" and self._manners.asks_for_files:
            asked = {"sessionId": self.session_id, "path": item["changes"][0]["path"], "content": ""}
            self.tell({"id": "file", "method": "fs/write_text_file", "params": asked})

    def _counted(self, usage: Mapping[str, Mapping[str, int]]) -> None:
        total, last = usage["total"], usage["last"]
        if self._started_with is None:
            self._started_with = {key: total[key] - last[key] for key in total}
        self._totals = total
        self.update(sessionUpdate="usage_update", used=last["totalTokens"], size=100_000)

    def _ended(self, turn: Mapping[str, Any]) -> None:
        before, self._started_with = self._started_with or {}, None
        used = {key: self._totals[key] - before.get(key, 0) for key in self._totals}
        request_id = self.waiting.pop(_PROMPT, None)
        if request_id is None:
            return
        if turn["status"] == "failed":
            self.refuse(request_id, _INTERNAL, "Internal error", details=turn["error"]["message"])
        else:
            self.tell({"id": request_id, "result": frames.ended(turn, used, self._manners.usage)})


_QUESTIONS = {
    "item/commandExecution/requestApproval": "session/request_permission",
    "item/tool/requestUserInput": "elicitation/create",
}


def _question(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    match method:
        case "item/commandExecution/requestApproval":
            return frames.permission(params)
        case "item/tool/requestUserInput":
            return {"mode": "form", "message": params["questions"][0]["question"]}
        case _:
            return {}


def _choices() -> dict[str, Any]:
    models = [{"value": name, "name": name} for name in _MODELS]
    modes = [{"id": name, "name": name} for name in _MODES]
    model = {
        "id": "model",
        "name": "Model",
        "category": "model",
        "type": "select",
        "currentValue": _MODELS[0],
        "options": models,
    }
    return {"modes": {"currentModeId": _MODES[0], "availableModes": modes}, "configOptions": [model]}


class _Client:
    """Turns what a client of the protocol says into requests of the app-server."""

    def __init__(self, manners: _Manners, faults: Faults) -> None:
        self._manners = manners
        self._wire = _AcpWire(manners, faults)
        self._server = Server(self._wire, faults)
        self._turn_id: str | None = None

    def close(self) -> None:
        """The client is gone."""
        self._server.close()

    def handle(self, frame: object) -> None:
        """Take one frame of the client; what is none is skipped."""
        if not isinstance(frame, dict):
            return
        method, params = frame.get("method"), frame.get("params") or {}
        if method is None:
            self._wire.answered(frame)
            return
        match method:
            case "initialize":
                self._greet(frame["id"])
            case "session/new" | "session/load" | "session/resume":
                self._open(method, frame["id"], params)
            case "session/prompt":
                self._prompt(frame["id"], params)
            case "session/cancel":
                self._server.interrupt()
            case "session/set_mode":
                self._wire.tell({"id": frame["id"], "result": {}})
            case "session/set_config_option":
                options = _choices()["configOptions"]
                chosen = [{**option, "currentValue": params["value"]} for option in options]
                self._wire.tell({"id": frame["id"], "result": {"configOptions": chosen}})
            case _:
                self._wire.refuse(frame.get("id"), _METHOD_NOT_FOUND, f"Method not found: {method}")

    def _greet(self, request_id: object) -> None:
        self._send("initialize", _GREETING, capabilities={"experimentalApi": True})
        result = {
            "protocolVersion": self._manners.protocol_version,
            "agentInfo": {"name": USER_AGENT_NAME, "version": self._manners.agent_version},
            "agentCapabilities": self._manners.capabilities(),
            "authMethods": [],
        }
        self._wire.tell({"id": request_id, "result": result})

    def _open(self, method: str, request_id: object, params: Mapping[str, Any]) -> None:
        if self._manners.no_login:
            self._wire.refuse(request_id, _AUTH_REQUIRED, "Authentication required")
            return
        if method == "session/load" and self._manners.resume_by == "broken-load":
            self._wire.refuse(request_id, _INTERNAL, "Internal error", details="No previous sessions found")
            return
        self._wire.servers = params.get("mcpServers") or []
        self._wire.waiting[_OPENING] = request_id
        resumed = method != "session/new"
        if method == "session/load":
            self._wire.session_id = params["sessionId"]
            told = {"type": "text", "text": "what was said in an earlier process"}
            self._wire.update(sessionUpdate="agent_message_chunk", content=told)
        ids = {"threadId": params["sessionId"]} if resumed else {}
        text = _system_text(params)
        self._send(
            "thread/resume" if resumed else "thread/start",
            _OPENING,
            cwd=params["cwd"],
            **ids,
            **({"systemText": text} if text or not resumed else {}),
        )

    def _prompt(self, request_id: object, params: Mapping[str, Any]) -> None:
        if self._manners.refuse_prompt is not None:
            text = self._manners.refuse_prompt
            self._wire.refuse(request_id, _INTERNAL, "Internal error", details=text)
            return
        self._wire.waiting[_PROMPT] = request_id
        told = _IN_FRONT.match("".join(part.get("text", "") for part in params["prompt"]))
        if told is not None:
            self._server.instruct(params["sessionId"], told[1])
        self._send("turn/start", "turn", threadId=params["sessionId"], input=params["prompt"])

    def _send(self, method: str, request_id: str, **params: Any) -> None:
        self._server.handle({"method": method, "id": request_id, "params": params})


def _system_text(params: Mapping[str, Any]) -> str:
    """What came as system-level text in one of the ways of the real agents."""
    told = (params.get("_meta") or {}).get("systemPrompt") or {}
    file = os.environ.get(_INSTRUCTIONS)
    if file:
        with open(file, encoding="utf-8") as stream:  # noqa: PTH123 - the path is a plain text here
            return stream.read()
    return str(told.get("append", ""))


def main(argv: list[str]) -> int:
    """Run until the client closes stdin."""
    manners = _Manners(argv)
    faults = read_switches(manners.rest)
    return live(faults, lambda: _Client(manners, faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
