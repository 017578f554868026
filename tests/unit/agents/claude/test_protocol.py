import json
import time
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.agents.claude.protocol import (
    ClaudeCodec,
    ClaudeEvent,
    ControlRequest,
    ControlResponse,
    KeepAlive,
    turn_failure,
)
from symphony.agents.json_fields import decode_object
from symphony.agents.wire import MalformedLine, PlainLine
from symphony.domain import Blame, Category

RESULT = {"subtype": "success", "is_error": True, "api_error_status": None, "terminal_reason": "completed"}


@pytest.mark.parametrize(
    ("changes", "name", "category"),
    [
        (
            {"api_error_status": 401, "result": "Invalid API key"},
            "authentication_failed",
            Category.AGENT_AUTH,
        ),
        ({"api_error_status": 403, "result": "no"}, None, Category.AGENT_AUTH),
        ({"result": "Not logged in · Please run /login"}, None, Category.AGENT_AUTH),
        (
            {"api_error_status": 429, "result": "Request rejected (429)"},
            "rate_limit",
            Category.AGENT_RATE_LIMITED,
        ),
        ({"result": "slow down"}, "rate_limit", Category.AGENT_RATE_LIMITED),
        ({"api_error_status": 400, "result": "Credit balance is too low"}, None, Category.AGENT_USAGE_LIMIT),
        ({"result": "x"}, "billing_error", Category.AGENT_USAGE_LIMIT),
        (
            {"api_error_status": 429, "result": "You've hit your weekly limit"},
            "rate_limit",
            Category.AGENT_USAGE_LIMIT,
        ),
        ({"result": "5-hour limit reached"}, None, Category.AGENT_USAGE_LIMIT),
        ({"terminal_reason": "prompt_too_long", "result": "x"}, None, Category.AGENT_CONTEXT_FULL),
        ({"api_error_status": 400, "result": "Prompt is too long"}, None, Category.AGENT_CONTEXT_FULL),
        ({"api_error_status": 500, "result": "API Error: 500"}, "server_error", Category.AGENT_UNAVAILABLE),
        ({"api_error_status": 529, "result": "API Error: 529"}, None, Category.AGENT_UNAVAILABLE),
        (
            {"result": "Unable to connect (ConnectionRefused)"},
            "unknown",
            Category.AGENT_UNAVAILABLE,
        ),
        ({"api_error_status": 400, "result": "connection error in your text"}, None, Category.TURN_FAILED),
        ({"api_error_status": "401", "result": "odd"}, None, Category.TURN_FAILED),
    ],
)
def test_a_failed_turn_has_a_class(changes: dict[str, Any], name: str | None, category: Category) -> None:
    failure = turn_failure({**RESULT, **changes}, name)
    assert failure.category is category
    assert failure.retryable == (category is not Category.AGENT_AUTH)
    assert bool(failure.hint) == (category in {Category.AGENT_AUTH, Category.AGENT_USAGE_LIMIT})


@pytest.mark.parametrize("name", ["model_not_found", None])
def test_an_unknown_model_blames_the_configuration(name: str | None) -> None:
    failure = turn_failure({**RESULT, "api_error_status": 404, "result": "no model"}, name)
    assert (failure.category, failure.blame) == (Category.TURN_FAILED, Blame.CONFIG)
    assert not failure.retryable
    assert "claude.model" in str(failure.hint)
    assert failure.status == 404


def test_a_limit_that_says_when_it_ends_is_waited_for() -> None:
    def waits_ms(end_s: int) -> int | None:
        result = {**RESULT, "result": f"Claude AI usage limit reached|{end_s}"}
        return turn_failure(result, None).retry_after_ms

    now_s = int(time.time())
    assert 3_000_000 < (waits_ms(now_s + 3_600) or 0) <= 3_600_000
    assert waits_ms(1_749_924_000) == 0


def test_words_are_taken_from_wherever_they_are_and_never_missing() -> None:
    both = {**RESULT, "result": "one", "errors": ["two", 3, " "]}
    assert turn_failure(both, None).message == "one; two"
    nothing = turn_failure({"subtype": "error_max_turns"}, None)
    assert nothing.message == "the turn failed without a message (error_max_turns)"
    assert turn_failure({}, None).message == "the turn failed without a message (no subtype)"


def test_no_credential_is_in_a_message() -> None:
    result = {**RESULT, "result": "refused: x-api-key: sk-ant-api03-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}
    assert "sk-ant-api03-aaaa" not in turn_failure(result, None).message


LINES = (
    b'{"type":"system","subtype":"init","session_id":"s"}\n'
    b'{"type":"stream_event","event":{"a":1}}\n'
    b'{"type":"keep_alive"}\n'
    b'{"type":"assistant","message":{"content":[]}}\n'
    b'{"type":"control_request","request_id":"q1","request":{"subtype":"can_use_tool"}}\n'
    b'{"type":"control_response","response":{"subtype":"success","request_id":"r1","response":{"b":2}}}\n'
    b'{"type":"control_response","response":{"subtype":"error","request_id":"r2","error":"no"}}\n'
)


def told(line: bytes) -> Any:
    (message,) = ClaudeCodec().receive(line + b"\n")
    return message


def test_a_stream_becomes_messages_in_order() -> None:
    first, pulse, second, question, reply, refused = ClaudeCodec().receive(LINES)
    assert isinstance(first, ClaudeEvent)
    assert (first.type, first.subtype, decode_object(first.raw)["session_id"]) == ("system", "init", "s")
    assert pulse == KeepAlive(2)
    assert isinstance(second, ClaudeEvent)
    assert second.subtype == ""
    assert question == ControlRequest("q1", msgspec.Raw(b'{"subtype":"can_use_tool"}'))
    assert isinstance(reply, ControlResponse)
    assert (reply.id, reply.error, decode_object(reply.response)) == ("r1", None, {"b": 2})
    assert isinstance(refused, ControlResponse)
    assert (refused.id, refused.error) == ("r2", "no")


@given(st.lists(st.integers(0, len(LINES)), max_size=8))
def test_it_makes_no_difference_how_a_stream_is_cut(cuts: list[int]) -> None:
    codec, found, places = ClaudeCodec(), [], [0, *sorted(cuts), len(LINES)]
    for begin, end in pairwise(places):
        found += codec.receive(LINES[begin:end])
    counted = sum(message.count for message in found if isinstance(message, KeepAlive))
    rest = [message for message in found if not isinstance(message, KeepAlive)]
    assert counted == 2
    assert rest == [message for message in ClaudeCodec().receive(LINES) if not isinstance(message, KeepAlive)]


def test_the_end_of_a_stream_completes_its_last_line() -> None:
    codec = ClaudeCodec()
    assert codec.receive(b'{"type":"result","subtype":"success"}') == []
    (last,) = codec.close()
    assert isinstance(last, ClaudeEvent)
    assert codec.close() == []


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":7}',
        b'{"subtype":"x"}',
        b'{"type":"control_request","request":{}}',
        b'{"type":"control_response","response":7}',
        b'{"type":"system","x":',
    ],
)
def test_what_looks_like_a_message_and_is_none_is_garbled(line: bytes) -> None:
    assert isinstance(told(line), MalformedLine)


def test_other_lines_are_chatter_and_blank_ones_nothing() -> None:
    assert told(b"Update available") == PlainLine("Update available")
    assert isinstance(told(b"[1, 2]"), PlainLine)
    assert ClaudeCodec().receive(b"\n  \n") == []


def test_a_line_above_the_limit_is_garbled() -> None:
    found = ClaudeCodec().receive(b'{"type":"' + b"x" * 11_000_000 + b'"}\n')
    assert [type(message) for message in found] == [MalformedLine]


def test_an_error_without_words_is_one_all_the_same() -> None:
    reply = told(b'{"type":"control_response","response":{"subtype":"error","request_id":"r"}}')
    assert reply.error == "no reason given"


def test_our_lines_are_what_the_agent_reads() -> None:
    codec = ClaudeCodec()
    name, first = codec.request("initialize", hooks={})
    other, _ = codec.request("interrupt")
    assert (name, other) == ("symphony-1", "symphony-2")
    assert json.loads(first) == {
        "type": "control_request",
        "request_id": name,
        "request": {"subtype": "initialize", "hooks": {}},
    }
    assert json.loads(codec.user("héllo"))["message"]["content"] == [{"type": "text", "text": "héllo"}]
    answered = {"subtype": "success", "request_id": "q1", "response": {"behavior": "allow"}}
    assert json.loads(codec.answer("q1", {"behavior": "allow"}))["response"] == answered
    refused = {"subtype": "error", "request_id": "q1", "error": "no"}
    assert json.loads(codec.refuse("q1", "no"))["response"] == refused
    assert codec.user("lone \ud800").endswith(b"\n"), "what cannot be sent stops nothing"


def test_what_is_no_object_is_empty_and_what_is_no_text_is_said() -> None:
    assert decode_object(msgspec.Raw(b"[1]")) == {}
    with pytest.raises(ValueError, match=r".+"):
        decode_object(msgspec.Raw(b'"\xff"'))
