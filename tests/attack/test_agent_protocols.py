"""An agent that breaks its protocol, in whatever way, costs its own run and nothing else.

Its session goes on or ends with an `AgentError`; nothing else is raised, and what waits is bounded.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest

from harness.memory_agents import (
    BRIEFING,
    KINDS,
    Agent,
    Frame,
    begins_a_turn,
    line,
    proper,
    saying,
    the_end,
    turn,
)
from symphony.agents.acp.protocol import Updates
from symphony.agents.base import AgentError
from symphony.agents.command.profiles import CommandProfile
from symphony.agents.command.session import TurnOutput
from symphony.agents.event_queue import (
    MAX_PAYLOAD_BYTES,
    MAX_QUEUED_CHARS,
    MAX_TEXT_CHARS,
    MAX_TOKENS_PER_TURN,
    EventQueue,
)
from symphony.agents.events import (
    AgentEvent,
    InputRequired,
    ItemStarted,
    Malformed,
    RateLimits,
    Text,
    TurnEnd,
    TurnStatus,
    UsageUpdate,
    describe_event,
)
from symphony.agents.json_fields import MAX_DEPTH
from symphony.agents.mcp.server import cancelled_request, respond, tool_answer
from symphony.agents.run_stats import RunStats
from symphony.agents.session import ToolCall
from symphony.agents.wire import JsonRpcCodec, RequestAnswer, ServerNotification, ServerRequest
from symphony.domain import Category, Tokens, ToolResult

Rounds = Callable[..., Iterator[Random]]

_WORDS = (
    "method id params result error type subtype request request_id response message content text usage "
    "total tokenUsage totalTokens inputTokens input_tokens output_tokens outputTokens modelUsage "
    "total_cost_usd rateLimits rate_limit_info limitId primary secondary credits threadId turnId thread "
    "turn th tu s status completed failed interrupted item exitCode command commandActions arguments path "
    "changes server tool update sessionUpdate sessionId agent_message_chunk tool_call tool_call_update "
    "user_message_chunk plan toolCallId toolCall rawInput rawOutput _meta terminal_exit exit_code kind "
    "execute title locations options optionId allow_once stopReason end_turn refusal code data willRetry "
    "codexErrorInfo httpStatusCode commandExecution agentMessage fileChange mcpToolCall dynamicToolCall "
    "contextCompaction assistant user system init api_retry compact_boundary success tool_use tool_result "
    "tool_use_id name input is_error api_error_status terminal_reason aborted control_request "
    "control_response can_use_tool AskUserQuestion questions question label answers parent_tool_use_id "
    "mcp_servers symphony requestId requiresInput input_required protocolVersion agentInfo "
    "agentCapabilities loadSession modes configOptions category"
)
_METHODS = (
    "item/started item/completed thread/tokenUsage/updated account/rateLimits/updated turn/started "
    "turn/completed turn/failed turn/cancelled turn/input_required turn/other error warning model/rerouted "
    "thread/compacted other item/commandExecution/requestApproval execCommandApproval item/tool/call "
    "item/permissions/requestApproval item/tool/requestUserInput mcpServer/elicitation/request "
    "currentTime/read session/update session/request_permission elicitation/create fs/read_text_file "
    "initialize ping tools/list tools/call notifications/cancelled"
)
_TYPES = "assistant user result rate_limit_event system control_request control_response stream_event"
WORDS, METHODS, TYPES = _WORDS.split(), _METHODS.split(), _TYPES.split()
HUGE = 10**4299
NAMES: tuple[Any, ...] = ("symphony-1", "q", 7)
IDS: tuple[Any, ...] = ("a", HUGE, -1, None, [], *range(90, 99))


def judge(events: list[AgentEvent], failed: AgentError | None) -> None:
    """All that is known of a session can be shown, written down and added up."""
    progress = RunStats()
    for event in events:
        progress.add(event)
        describe_event(event)
        json.dumps(msgspec.to_builtins(event))
        match event:
            case RateLimits(payload=payload):
                assert len(msgspec.json.encode(payload)) <= MAX_PAYLOAD_BYTES
            case Text(message=message):
                assert len(message) <= MAX_TEXT_CHARS
            case _:
                pass
    told = progress.snapshot()
    assert all(0 <= count <= MAX_TOKENS_PER_TURN for count in msgspec.to_builtins(told.facts.tokens).values())
    assert failed is None or failed.failure.line
    if failed is None:
        assert any(isinstance(event, TurnEnd | InputRequired) for event in events)


# --- any JSON at all -------------------------------------------------------------------------------------


LEAVES = (None, True, False, 0, 1, -1, 2**31, 2**53, 2**63, -(2**63) - 1, 0.5, 1e308, "", "\u202e\x1b[2J\x00")
RARE = (HUGE, "x" * 9_000, "9" * 5_000)


def leaf(random: Random) -> object:
    chance = random.random()
    return random.choice(RARE if chance < 0.02 else LEAVES if chance < 0.5 else WORDS)


def nested(depth: int, inner: object) -> object:
    for number in range(depth):
        inner = {"x": inner} if number % 2 else [inner]
    return inner


def value(random: Random, depth: int) -> object:
    """Any JSON value; its keys and words are those that the protocols know."""
    chance = random.random()
    if chance < 0.004:
        return nested(random.choice([20, 70, 300, 800]), leaf(random))
    if depth == 0 or chance < 0.3:
        return leaf(random)
    if chance < 0.45:
        return [value(random, depth - 1) for _ in range(random.randrange(4))]
    return fields(random, depth, *random.choices(WORDS, k=random.randrange(6)))


def fields(random: Random, depth: int, *names: str) -> Frame:
    """An object with these members, each of which is what it is called for, or anything."""
    known = {"type": WORDS, "status": WORDS, "kind": WORDS, "subtype": WORDS, "sessionUpdate": WORDS}
    return {
        name: random.choice(known[name])
        if name in known and random.random() < 0.8
        else value(random, depth - 1)
        for name in names
    }


def message(random: Random, kind: str) -> bytes:
    """A line that means something to the client of an agent, more or less; or none at all."""
    chance = random.random()
    if chance < 0.03:
        return random.randbytes(random.randrange(60)) + b"\n"
    if chance < 0.06:
        return line(value(random, 3))[: random.randrange(1, 40)] + b"\n"
    some = random.choices(WORDS, k=2)
    match kind:
        case "claude":
            inner = {"content": [fields(random, 3, "type", "id", "input", "name", "content", *some)]}
            if random.random() < 0.5:
                inner |= fields(random, 3, "id", "usage", *some)
            frame = {"type": random.choice(TYPES), "subtype": random.choice(WORDS), "message": inner}
            names = ("rate_limit_info", "modelUsage", "usage", "total_cost_usd", "request", *some)
            frame |= fields(random, 4, *random.sample(names, 3))
            frame["request_id"] = random.choice(NAMES)
        case "acp":
            update = fields(random, 4, "sessionUpdate", "toolCallId", "kind", "status", "content", *some)
            update |= fields(random, 4, *random.sample(["title", "rawInput", "rawOutput", "locations"], 2))
            update["sessionUpdate"] = random.choice([*WORDS[-60:], "tool_call", "tool_call_update"])
            frame = {"method": random.choice(["session/update", "session/update", *METHODS])}
            frame["params"] = {
                "sessionId": "s",
                "update": update,
                "toolCall": update,
                **fields(random, 3, *some),
            }
        case _:
            item = fields(
                random, 4, "type", *random.sample(["arguments", "command", "status", "exitCode"], 3)
            )
            turn_of = fields(random, 3, "status", "error", "usage", "type", *some)
            ours = {"threadId": "th", "item": item, "turn": turn_of, "name": "tool", "arguments": item}
            names = (
                "tokenUsage",
                "rateLimits",
                "error",
                "type",
                "message",
                "questions",
                "permissions",
                *some,
            )
            frame = {"method": random.choice(METHODS), "params": ours | fields(random, 4, *names)}
    if kind != "claude" and random.random() < 0.3:
        frame["id"] = random.choice(IDS)
    if kind != "claude" and random.random() < 0.05:
        return line(
            {"id": random.choice([1, 2, 3, 99, HUGE]), random.choice(["result", "error"]): item_or(random)}
        )
    return line(frame)


def item_or(random: Random) -> object:
    return random.choice([None, 3, [], fields(random, 3, "code", "message", "data", "thread", "sessionId")])


def hostile(random: Random, kind: str) -> Agent:
    """An agent that answers most of the time, and says anything in between."""

    def agent(frame: Frame) -> list[bytes]:
        said = [message(random, kind) for _ in range(random.randrange(8))]
        if random.random() < 0.95:
            said += map(line, proper(frame))
        if begins_a_turn(frame):
            said += [message(random, kind) for _ in range(30)]
            said += map(line, the_end(frame) if random.random() < 0.8 else [])
        return said

    return agent


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_an_agent_says_its_session_goes_on_or_ends_with_a_typed_error(
    kind: str, rounds: Rounds
) -> None:
    for random in rounds(8):
        posture = random.choice(["accept", "decline", "block"])
        size = partial(random.randrange, 1, random.choice([200, 5_000, 262_144]))
        events, failed = await turn(kind, hostile(random, kind), size=size, on_approval=posture)
        judge(events, failed)


def test_an_mcp_client_gets_an_answer_to_whatever_it_asks(rounds: Rounds) -> None:
    for random in rounds(10):
        codec, tools = JsonRpcCodec(versioned=True), BRIEFING.tools
        for _ in range(40):
            for heard in codec.receive(message(random, "codex")):
                if isinstance(heard, ServerRequest):
                    answer = respond(heard, tools)
                    if isinstance(answer, ToolCall):
                        assert answer.name == "tool"
                    reply = answer if isinstance(answer, RequestAnswer) else tool_answer(ToolResult.of({}))
                    codec.answer(heard.id, reply)
                elif isinstance(heard, ServerNotification):
                    cancelled_request(heard)


def test_whatever_a_command_prints_is_text_of_bounded_length(rounds: Rounds) -> None:
    for random in rounds(10):
        output = TurnOutput(CommandProfile())
        for _ in range(30):
            for event in output.receive(random.choice([message(random, "acp"), random.randbytes(200)])):
                judge([event, TurnEnd(status=TurnStatus.COMPLETED)], None)


# --- what it does on purpose -----------------------------------------------------------------------------


def deep(levels: int) -> Any:
    return nested(levels, 1)


ODD = {
    "codex": [
        {"method": "turn/other", "params": {"type": {}}},
        {"method": "turn/completed", "params": {"turn": {"type": []}, "type": {}}},
        {"method": "item/started", "params": {"item": {"type": "mcpToolCall", "arguments": deep(900)}}},
        {"method": "item/completed", "params": {"item": {"type": "commandExecution", "exitCode": HUGE}}},
        {"id": HUGE, "method": "currentTime/read", "params": {}},
        {"id": 99, "result": {}},
        {"id": 1, "result": {"thread": {"id": "other"}}},
    ],
    "claude": [
        {"type": "assistant", "message": {"id": deep(900), "content": [{"type": "tool_use"}]}},
        {"type": "result", "subtype": "success", "total_cost_usd": HUGE},
        {"type": "control_response", "response": {"subtype": "success", "request_id": "symphony-1"}},
        {"type": "control_request", "request_id": "q", "request": {"subtype": deep(300)}},
        {"type": "user", "message": {"content": [{"tool_use_id": deep(40)}]}},
    ],
    "acp": [
        {"method": "session/update", "params": {"update": {"sessionUpdate": "tool_call", "status": {}}}},
        {"method": "session/update", "params": {"update": {"sessionUpdate": "plan", "rawInput": deep(900)}}},
        {"id": HUGE, "method": "session/request_permission", "params": {}},
        {"id": 1, "result": {"sessionId": "other"}},
        {"id": 99, "error": {"code": HUGE, "message": "x"}},
    ],
}  # fmt: skip


@pytest.mark.asyncio
@pytest.mark.parametrize(("kind", "frame"), [(kind, frame) for kind, said in ODD.items() for frame in said])
async def test_a_message_of_wrong_types_or_of_no_end_costs_itself_alone(kind: str, frame: Frame) -> None:
    events, failed = await turn(kind, saying(frame))
    judge(events, failed)
    assert failed is None


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_that_nests_deeper_than_the_bound_is_malformed(kind: str) -> None:
    frames = {
        "codex": {"method": "item/started", "params": {"item": deep(MAX_DEPTH)}},
        "claude": {"type": "assistant", "message": deep(MAX_DEPTH)},
        "acp": {"method": "session/update", "params": {"update": deep(MAX_DEPTH)}},
    }
    events, failed = await turn(kind, saying(frames[kind]))
    assert failed is None
    assert sum(isinstance(event, Malformed) for event in events) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", KINDS)
async def test_an_agent_that_closes_in_the_middle_of_a_line_ends_its_session_alone(kind: str) -> None:
    def agent(frame: Frame) -> list[bytes]:
        begun = frame.get("method") == "session/prompt" or frame.get("type") == "user"
        return [b'{"half": "'] if begun else [line(answer) for answer in proper(frame)]

    _, failed = await turn(kind, agent)
    assert failed is not None
    assert failed.failure.category is Category.PORT_EXIT


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", KINDS)
async def test_a_line_without_end_is_dropped_and_the_turn_goes_on(kind: str) -> None:
    events, failed = await turn(kind, saying(b'{"x": "' + b"x" * 11_000_000 + b'"}\n'))
    judge(events, failed)
    assert failed is None
    assert max(len(repr(event)) for event in events) < 10_000


def test_words_that_nobody_takes_are_bounded_and_tokens_are_not_lost() -> None:
    queue, usage = EventQueue(), UsageUpdate(absolute=False, tokens=Tokens(1, 1, 2))
    for _ in range(1_000):
        queue.emit(Text(message="x" * 100_000))
        queue.emit(usage)
    progress, chars = RunStats(), 0
    for event in queue.drain():
        progress.add(event)
        chars += len(event.message) if isinstance(event, Text) else 0
    assert chars <= MAX_QUEUED_CHARS + 100_000
    assert progress.facts.tokens.total_tokens == 2_000


@pytest.mark.asyncio
async def test_an_acp_agent_cannot_fill_the_memory_with_calls_that_it_never_ends() -> None:
    long = {"sessionUpdate": "tool_call", "title": "x" * 50_000, "rawInput": {"a": "x" * 50_000}}
    updates = [{**long, "toolCallId": str(number)} for number in range(50)]
    held = Updates()
    for update in updates:
        held.translate(update)
    events = [event for n in range(50) for event in held.translate({**updates[n], "status": "completed"})]
    started = [event for event in events if isinstance(event, ItemStarted)]
    assert len(started) == 50
    assert max(len(event.arguments) for event in started) <= 8_000
