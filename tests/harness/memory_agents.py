"""Sessions of every backend with an agent in memory, whose every byte is in the hands of a test."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.lowlevel

from harness.sessions import briefed
from symphony.agents.acp.profiles import profile_of
from symphony.agents.acp.session import AcpSession
from symphony.agents.base import AgentError, AgentSession, Briefing, SessionRequest, Turn
from symphony.agents.claude.session import ClaudeSession
from symphony.agents.codex.session import CodexSession
from symphony.agents.event_queue import EventQueue
from symphony.agents.events import AgentEvent
from symphony.config import AcpSettings, ClaudeSettings, CodexSettings
from symphony.domain import ToolResult, ToolSpec
from symphony.scheduler import Thread

if TYPE_CHECKING:
    from symphony.agents.process import AgentProcess

__all__ = [
    "BRIEFING",
    "KINDS",
    "Agent",
    "Frame",
    "MemoryProcess",
    "begins_a_turn",
    "line",
    "proper",
    "saying",
    "the_end",
    "turn",
]


Frame = dict[str, Any]
Agent = Callable[[Frame], Iterable[bytes]]
"""What an agent says to each line that it is sent."""


class MemoryProcess:
    """An agent whose words are made by `agent` from each line it is sent; they come in pieces of `size`."""

    pid = 4242
    grace_s = 0.05

    def __init__(self, agent: Agent, *, size: Callable[[], int] = lambda: 262_144) -> None:
        self._agent = agent
        self._size = size
        self._said = bytearray()
        self.sent: list[Frame] = []

    async def send(self, data: bytes) -> None:
        for line in data.splitlines():
            frame = json.loads(line)
            self.sent.append(frame)
            for said in self._agent(frame):
                self._said += said

    async def receive(self) -> bytes:
        """The next piece; the agent ends when it has no more to say."""
        await anyio.lowlevel.checkpoint()
        size = self._size()
        data = bytes(self._said[:size])
        del self._said[:size]
        return data

    async def stop(self, sink: Callable[[bytes], None]) -> None:
        sink(bytes(self._said))
        self._said.clear()

    async def exit_code(self) -> int | None:
        return 0

    async def stderr_line(self) -> str:
        return ""


async def run_tool(name: str, arguments: Mapping[str, Any]) -> ToolResult:
    return ToolResult.of({"name": name, "arguments": arguments})


BRIEFING = Briefing(envelope="x", tools=(ToolSpec(name="tool", description="", input_schema={}),))


def request(resume: Thread | None = None) -> SessionRequest:
    return SessionRequest(
        run_id="r",
        cwd=Path("/ws"),
        briefing=briefed(BRIEFING),
        run_tool=run_tool,
        stderr_path=Path("/stderr"),
        resume=resume,
    )


def codex(process: MemoryProcess, resume: Thread | None = None, **settings: Any) -> CodexSession:
    return CodexSession(
        cast("AgentProcess", process),
        settings=CodexSettings(**settings),
        request=request(resume),
        cwd=Path("/ws"),
        events=EventQueue(),
    )


async def cannot_relaunch(envelope: str) -> "AgentProcess":
    raise NotImplementedError(envelope)


def claude(process: MemoryProcess, resume: Thread | None = None, **settings: Any) -> ClaudeSession:
    return ClaudeSession(
        cast("AgentProcess", process),
        settings=ClaudeSettings(**settings),
        request=request(resume),
        thread_id="s",
        resumed=resume is not None,
        relaunch=cannot_relaunch,
        events=EventQueue(),
    )


def acp(process: MemoryProcess, resume: Thread | None = None, **settings: Any) -> AcpSession:
    chosen = AcpSettings(command="x", **settings)
    profile = profile_of(chosen)
    assert profile is not None
    return AcpSession(
        cast("AgentProcess", process),
        settings=chosen,
        profile=profile,
        request=request(resume),
        briefing=BRIEFING,
        events=EventQueue(),
    )


_MAKERS = {"codex": codex, "claude": claude, "acp": acp}
KINDS = tuple(_MAKERS)


def line(frame: object) -> bytes:
    return json.dumps(frame).encode() + b"\n"


def proper(frame: Frame) -> list[Frame]:
    """The answers of a well-behaved agent to whatever a session asks on its way into a turn."""
    name, method = frame.get("id"), frame.get("method")
    if frame.get("type") == "control_request":
        body = {"subtype": "success", "request_id": frame["request_id"], "response": {}}
        return [{"type": "control_response", "response": body}]
    found: dict[object, Any] = {
        "initialize": {"protocolVersion": 1, "userAgent": "x/1", "agentCapabilities": {}},
        "thread/start": {"thread": {"id": "th"}},
        "thread/resume": {"thread": {"id": "th"}},
        "turn/start": {"turn": {"id": "tu"}},
        "session/new": {"sessionId": "s"},
    }
    return [{"id": name, "result": found[method]}] if method in found else []


def begins_a_turn(frame: Frame) -> bool:
    return frame.get("method") in {"turn/start", "session/prompt"} or frame.get("type") == "user"


def the_end(frame: Frame) -> list[Frame]:
    """How a well-behaved agent of each kind ends the turn that the frame began."""
    if frame.get("method") == "turn/start":
        return [{"method": "turn/completed", "params": {"turn": {"id": "tu", "status": "completed"}}}]
    if frame.get("method") == "session/prompt":
        return [{"id": frame["id"], "result": {"stopReason": "end_turn"}}]
    return [{"type": "result", "subtype": "success"}]


def saying(*frames: object) -> Agent:
    """An agent that behaves well but for what it says in its turn."""

    def agent(frame: Frame) -> list[bytes]:
        said = [each if isinstance(each, bytes) else line(each) for each in frames]
        rest = the_end(frame) if begins_a_turn(frame) else []
        return [*map(line, proper(frame)), *(said if begins_a_turn(frame) else []), *map(line, rest)]

    return agent


async def turn(
    kind: str, agent: Agent, *, size: Callable[[], int] = lambda: 262_144, **settings: Any
) -> tuple[list[AgentEvent], AgentError | None]:
    """The events of a whole session of one turn, and what it ended with."""
    session = cast("Any", _MAKERS[kind](MemoryProcess(agent, size=size), **settings))
    events: list[AgentEvent] = []
    failed = None
    with anyio.fail_after(60):
        try:
            await session.start()
            async for event in cast("AgentSession", session).run_turn(Turn(prompt="go", title="SYM-1: x")):
                events.append(event)  # noqa: PERF401 - those before an error count too
        except AgentError as error:
            failed = error
        events += await session.stop()
    return events, failed
