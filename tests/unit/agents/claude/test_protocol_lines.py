import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.agents.claude.protocol import ClaudeCodec, ControlRequest, ControlResponse, Event, KeepAlive
from symphony.agents.json_fields import decode_object
from symphony.agents.wire import MalformedLine, PlainLine

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
    assert isinstance(first, Event)
    assert (first.type, first.subtype, decode_object(first.raw)["session_id"]) == ("system", "init", "s")
    assert pulse == KeepAlive(2)
    assert isinstance(second, Event)
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
    assert isinstance(last, Event)
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
