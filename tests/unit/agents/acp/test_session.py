"""The acp session against an agent in memory: what hardly any real one would say."""

import asyncio
import json
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest

from harness.sessions import briefed
from kit.virtual_time import in_virtual_time, sleep_as_a_machine
from symphony.agents.acp.profiles import profile_of
from symphony.agents.acp.session import AcpSession
from symphony.agents.base import AgentError, Briefing, SessionRequest, Turn
from symphony.agents.event_queue import EventQueue
from symphony.agents.events import (
    AgentEvent,
    InputRequired,
    LogNotice,
    Malformed,
    Text,
    TurnEnd,
    TurnStatus,
    UsageUpdate,
)
from symphony.config import AcpSettings
from symphony.domain import Category, ToolResult, ToolSpec

if TYPE_CHECKING:
    from symphony.agents.process import AgentProcess

pytestmark = pytest.mark.asyncio

Frame = dict[str, Any]
COMPLETED = TurnEnd(status=TurnStatus.COMPLETED)
OPENED: dict[str, Frame] = {
    "initialize": {"protocolVersion": 1},
    "session/new": {"sessionId": "s"},
}


class MemoryProcess:
    """Answers as the table says; a prompt is answered by `says`, line by line."""

    pid = 4242
    grace_s = 0.05

    def __init__(self, *says: Frame | bytes) -> None:
        self.says = says
        self.sent: list[Frame] = []
        self._waiting: deque[bytes] = deque()
        self._news = anyio.Event()

    async def send(self, data: bytes) -> None:
        frame = json.loads(data)
        self.sent.append(frame)
        method = frame.get("method")
        if method in OPENED:
            self._say({"id": frame["id"], "result": OPENED[method]})
        elif method == "session/prompt":
            for each in self.says:
                self._say(
                    {"id": frame["id"], **each} if isinstance(each, dict) and "method" not in each else each
                )

    def _say(self, frame: Frame | bytes) -> None:
        self._waiting.append(frame if isinstance(frame, bytes) else json.dumps(frame).encode() + b"\n")
        self._news.set()

    async def receive(self) -> bytes:
        while not self._waiting:
            self._news = anyio.Event()
            await self._news.wait()
        return self._waiting.popleft()

    async def stop(self, sink: Any) -> None:
        sink(b"")


async def run_tool(*_: object) -> ToolResult:
    return ToolResult.of({})


def made(process: MemoryProcess, *tools: ToolSpec, **values: Any) -> AcpSession:
    settings = AcpSettings(**{"command": "x", **values})
    profile = profile_of(settings)
    assert profile is not None
    request = SessionRequest(
        run_id="r", cwd=Path("/ws"), briefing=briefed(Briefing()), run_tool=run_tool, stderr_path=Path("/e")
    )
    return AcpSession(
        cast("AgentProcess", process),
        settings=settings,
        profile=profile,
        request=request,
        briefing=Briefing(tools=tools),
        events=EventQueue(),
    )


async def turn(*says: Frame | bytes, **values: Any) -> tuple[list[AgentEvent], MemoryProcess]:
    process = MemoryProcess(*says)
    session = made(process, **values)
    await session.start()
    return [event async for event in session.run_turn(Turn(prompt="do"))][1:], process


def update(**values: Any) -> Frame:
    return {"method": "session/update", "params": {"sessionId": "s", "update": values}}


WORDS = update(sessionUpdate="agent_message_chunk", content={"text": "429 Too Many Requests"})


async def test_a_turn_before_the_start_is_a_bug() -> None:
    with pytest.raises(RuntimeError):
        await anext(aiter(made(MemoryProcess()).run_turn(Turn(prompt="x"))))


async def test_updates_of_other_sessions_and_odd_ones_only_count() -> None:
    other = {
        "method": "session/update",
        "params": {
            "sessionId": "child",
            "update": {"sessionUpdate": "agent_message_chunk", "content": {"text": "no"}},
        },
    }
    odd = {"method": "session/update", "params": {"update": 3}}
    broken = b'{"jsonrpc":"2.0","method":"session/update","params":{"x":"\xff"}}\n'
    events, _ = await turn(other, odd, {"method": "new/one"}, broken, {"result": {"stopReason": "end_turn"}})
    assert not any(isinstance(event, Text) for event in events)
    assert events[-1] == COMPLETED
    assert any(isinstance(event, Malformed) for event in events)


async def test_a_pause_after_many_requests_completes_with_a_word() -> None:
    events, _ = await turn({"result": {"stopReason": "max_turn_requests", "usage": {"totalTokens": 3}}})
    assert events[-1] == COMPLETED
    assert any(isinstance(event, LogNotice) and "paused" in event.message for event in events)
    assert any(isinstance(event, UsageUpdate) for event in events)


async def test_an_answer_that_cannot_be_read_is_a_failed_turn() -> None:
    events, _ = await turn(b'{"jsonrpc":"2.0","id":3,"result":{"stopReason":"\xff"}}\n')
    ended = events[-1]
    assert isinstance(ended, TurnEnd)
    assert ended.status is TurnStatus.FAILED


async def test_an_error_in_words_fails_the_turn_where_the_profile_says_so() -> None:
    answer = {"result": {"stopReason": "end_turn"}}
    events, _ = await turn(WORDS, answer, profile="codex-acp")
    ended = events[-1]
    assert isinstance(ended, TurnEnd)
    assert ended.failure is not None
    assert ended.failure.category is Category.AGENT_RATE_LIMITED
    events, _ = await turn(WORDS, answer)
    assert events[-1] == COMPLETED


async def test_a_permission_that_cannot_be_read_is_refused() -> None:
    broken = b'{"jsonrpc":"2.0","id":"p","method":"session/request_permission","params":{"x":"\xff"}}\n'
    events, process = await turn(broken, {"result": {"stopReason": "end_turn"}})
    assert events[-1] == COMPLETED
    answered = next(frame for frame in process.sent if frame.get("id") == "p")
    assert answered["error"]["code"] == -32_602


async def test_a_tool_of_the_daemon_is_granted_although_approvals_block() -> None:
    options = [{"optionId": "yes", "kind": "allow_once"}, {"optionId": "no", "kind": "reject_once"}]
    call = {"toolCallId": "c", "title": "mcp__symphony__board_comment"}
    asked = {
        "id": "p",
        "method": "session/request_permission",
        "params": {"toolCall": call, "options": options},
    }
    process = MemoryProcess(asked, {"result": {"stopReason": "end_turn"}})
    tool = ToolSpec(name="board_comment", description="", input_schema={})
    session = made(process, tool, on_approval="block")
    await session.start()
    events = [event async for event in session.run_turn(Turn(prompt="do"))]
    assert events[-1] == COMPLETED
    answer = next(frame for frame in process.sent if frame.get("id") == "p")
    assert answer["result"] == {"outcome": {"outcome": "selected", "optionId": "yes"}}


async def test_after_a_question_the_turn_is_cancelled_and_its_end_waited_for() -> None:
    asked = {"id": "p", "method": "session/request_permission", "params": {"toolCall": {"title": "t"}}}
    process = MemoryProcess(asked)
    session = made(process, on_approval="block")
    await session.start()
    events = [event async for event in session.run_turn(Turn(prompt="do"))]
    assert isinstance(events[-1], InputRequired)
    assert await session.stop() == ()
    assert process.sent[-1]["method"] == "session/cancel"
    assert await session.stop() == ()


@in_virtual_time
async def test_a_machine_that_slept_is_not_silence() -> None:
    session = made(MemoryProcess(), turn_timeout_ms=5_000)
    await session.start()
    running = aiter(session.run_turn(Turn(prompt="do")))
    await anext(running)
    begun_s = anyio.current_time()
    asyncio.get_running_loop().call_later(1, sleep_as_a_machine, 3_600)
    with pytest.raises(AgentError) as caught:
        await anext(running)
    assert caught.value.failure.category is Category.TURN_TIMEOUT
    assert anyio.current_time() - begun_s > 3_604, "the silence of the agent began anew"
