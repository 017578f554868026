import json
from typing import Any

import pytest

from symphony.agents.mcp.server import PROTOCOL_VERSIONS, cancelled_request, respond, tool_answer
from symphony.agents.session import RefusedCall, ToolCall
from symphony.agents.wire import JsonRpcCodec, RequestAnswer, ServerNotification, ServerRequest
from symphony.domain import ToolResult, ToolSpec

LOOK = ToolSpec(name="look", description="Look.", input_schema={"type": "object", "properties": {}})


def asked(method: str, params: Any = None) -> ServerRequest:
    line = json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
    (message,) = JsonRpcCodec().receive(line.encode() + b"\n")
    assert isinstance(message, ServerRequest)
    return message


def told(method: str, params: Any = None) -> ServerNotification:
    (message,) = JsonRpcCodec().receive(json.dumps({"method": method, "params": params}).encode() + b"\n")
    assert isinstance(message, ServerNotification)
    return message


def result(method: str, params: Any = None) -> dict[str, Any]:
    reply = respond(asked(method, params), [LOOK])
    assert isinstance(reply, RequestAnswer)
    assert reply.result is not None
    return dict(reply.result)


@pytest.mark.parametrize("version", PROTOCOL_VERSIONS)
def test_a_known_version_of_the_protocol_is_spoken(version: str) -> None:
    welcome = result("initialize", {"protocolVersion": version, "capabilities": {}})
    assert welcome["protocolVersion"] == version
    assert welcome["capabilities"] == {"tools": {}}
    assert welcome["serverInfo"]["name"] == "symphony"


@pytest.mark.parametrize("asked_for", ["1999-01-01", None, 3, ["2025-06-18"]])
def test_for_any_other_version_the_newest_is_offered(asked_for: object) -> None:
    assert result("initialize", {"protocolVersion": asked_for})["protocolVersion"] == PROTOCOL_VERSIONS[0]


def test_the_tools_are_listed_whatever_came_before() -> None:
    listed = result("tools/list")
    assert listed == {"tools": [{"name": "look", "description": "Look.", "inputSchema": LOOK.input_schema}]}


def test_a_ping_is_answered() -> None:
    assert result("ping") == {}


def test_a_call_is_handed_on_with_its_arguments() -> None:
    call = respond(asked("tools/call", {"name": "look", "arguments": {"at": "it"}}), [LOOK])
    assert call == ToolCall(name="look", arguments={"at": "it"})
    assert respond(asked("tools/call", {"name": "look"}), [LOOK]) == ToolCall(name="look", arguments={})


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"name": "delete_all"}, "unsupported tool delete_all"),
        ({"name": 3}, "unsupported tool 3"),
        ({}, "unsupported tool None"),
        ({"name": "look", "arguments": [1]}, "must be an object"),
    ],
)
def test_a_call_that_cannot_be_run_is_answered_for_the_model(params: Any, words: str) -> None:
    refused = respond(asked("tools/call", params), [LOOK])
    assert isinstance(refused, RefusedCall)
    reply = tool_answer(refused.result)
    assert reply.result is not None
    assert reply.result["isError"] is True
    assert words in reply.result["content"][0]["text"]


@pytest.mark.parametrize("method", ["resources/list", "prompts/list", "logging/setLevel", "x\ny"])
def test_whatever_else_is_asked_is_not_found(method: str) -> None:
    reply = respond(asked(method), [LOOK])
    assert isinstance(reply, RequestAnswer)
    assert reply.error is not None
    assert reply.error[0] == -32601
    assert "\n" not in reply.error[1]


def test_unreadable_parameters_are_refused() -> None:
    (request, note) = JsonRpcCodec().receive(
        b'{"id":1,"method":"tools/call","params":{"name":"\xff"}}\n'
        b'{"method":"notifications/cancelled","params":{"requestId":"\xff"}}\n'
    )
    assert isinstance(request, ServerRequest)
    assert isinstance(note, ServerNotification)
    reply = respond(request, [LOOK])
    assert isinstance(reply, RequestAnswer)
    assert reply.error is not None
    assert reply.error[0] == -32602
    assert cancelled_request(note) is None


def test_a_result_is_text() -> None:
    reply = tool_answer(ToolResult(success=True, text="done"))
    assert reply.result == {"content": [{"type": "text", "text": "done"}], "isError": False}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (told("notifications/cancelled", {"requestId": 4}), 4),
        (told("notifications/cancelled", {"requestId": "a"}), "a"),
        (told("notifications/cancelled", {"requestId": None}), None),
        (told("notifications/cancelled", [1]), None),
        (told("notifications/initialized"), None),
    ],
)
def test_a_call_taken_back_is_named(message: ServerNotification, expected: object) -> None:
    assert cancelled_request(message) == expected
