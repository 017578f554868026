import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.agents.json_fields import decode_object
from symphony.agents.wire import (
    MAX_LINE_BYTES,
    ErrorResponse,
    JsonRpcCodec,
    MalformedLine,
    Message,
    PlainLine,
    RequestAnswer,
    Response,
    ServerNotification,
    ServerRequest,
    Suppressed,
)


def only(messages: list[Message]) -> Message:
    assert len(messages) == 1
    return messages[0]


def line(**members: Any) -> bytes:
    return json.dumps(members).encode() + b"\n"


def test_a_message_with_method_only_is_a_notification() -> None:
    message = only(
        JsonRpcCodec().receive(line(method="turn/started", params={"threadId": "t"}, emittedAtMs=1))
    )
    assert isinstance(message, ServerNotification)
    assert (message.method, decode_object(message.params)) == ("turn/started", {"threadId": "t"})


def test_the_two_id_spaces_are_kept_apart() -> None:
    codec = JsonRpcCodec()
    number, _ = codec.request("initialize", {})
    theirs, ours = codec.receive(
        line(id=number, method="item/tool/call", params={}) + line(id=number, result={"a": 1})
    )
    assert isinstance(theirs, ServerRequest)
    assert isinstance(ours, Response)
    assert (theirs.id, theirs.method) == (1, "item/tool/call")
    assert (ours.id, ours.method, decode_object(ours.result)) == (1, "initialize", {"a": 1})


def test_a_refusal_names_the_request_it_answers() -> None:
    codec = JsonRpcCodec()
    number, _ = codec.request("thread/start", {})
    answer = only(codec.receive(line(id=number, error={"code": -32600, "message": "Not initialized"})))
    assert answer == ErrorResponse(number, "thread/start", -32600, "Not initialized")


def test_an_answer_that_nobody_waits_for_has_no_method() -> None:
    answer = only(JsonRpcCodec().receive(line(id="x", result={})))
    assert isinstance(answer, Response)
    assert answer.method == ""


def test_our_lines_carry_no_jsonrpc_member() -> None:
    codec = JsonRpcCodec()
    _, first = codec.request("initialize", {"clientInfo": {"name": "symphony"}})
    second, wire = codec.request("thread/start", {})
    assert json.loads(first) == {
        "method": "initialize",
        "id": 1,
        "params": {"clientInfo": {"name": "symphony"}},
    }
    assert second == 2
    assert wire.endswith(b"\n")
    assert json.loads(codec.notification("initialized")) == {"method": "initialized"}
    assert json.loads(codec.answer("q", RequestAnswer(result={"ok": True}))) == {
        "id": "q",
        "result": {"ok": True},
    }
    refused = codec.answer(0, RequestAnswer(error=(-32601, "no")))
    assert json.loads(refused) == {"id": 0, "error": {"code": -32601, "message": "no"}}


def test_a_lone_surrogate_in_our_text_is_replaced_and_sent() -> None:
    _, wire = JsonRpcCodec().request("turn/start", {"text": "a\ud800b"})
    assert json.loads(wire)["params"] == {"text": "a?b"}


@pytest.mark.parametrize("text", ["WARNING: something", "[1]", "42", '"x"', "null x"])
def test_a_line_that_does_not_begin_with_a_brace_is_chatter(text: str) -> None:
    assert only(JsonRpcCodec().receive(text.encode() + b"\r\n")) == PlainLine(text)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"method": "x"',
        b'{"id": true}',
        b'{"method": 3}',
        b"{}",
        b'{"params": {}}',
        b"  {oops",
        b'{"a": "\xff"',
    ],
)
def test_a_line_that_begins_with_a_brace_and_is_no_message_is_garbled(raw: bytes) -> None:
    assert isinstance(only(JsonRpcCodec().receive(raw + b"\n")), MalformedLine)


def test_hostile_nesting_is_garbled_and_not_a_crash() -> None:
    assert isinstance(only(JsonRpcCodec().receive(b'{"params":' + b"[" * 200_000 + b"\n")), MalformedLine)


def test_excerpts_are_cut_at_a_thousand_characters() -> None:
    chatter, garbled = JsonRpcCodec().receive(b"x" * 5_000 + b"\n{" + b"y" * 5_000 + b"\n")
    assert isinstance(chatter, PlainLine)
    assert isinstance(garbled, MalformedLine)
    assert len(chatter.text) == len(garbled.excerpt) == 1_000


def test_blank_lines_are_nothing() -> None:
    assert JsonRpcCodec().receive(b"\n\r\n  \n") == []


@pytest.mark.conformance("A-7")
def test_a_line_of_ten_mebibytes_is_read() -> None:
    empty = len(line(method="m", params={"t": ""}))
    wire = line(method="m", params={"t": "x" * (MAX_LINE_BYTES - empty + 1)})
    assert len(wire) == MAX_LINE_BYTES + 1  # the line break does not count
    codec = JsonRpcCodec()
    messages = [
        m for start in range(0, len(wire), 65_536) for m in codec.receive(wire[start : start + 65_536])
    ]
    assert isinstance(only(messages), ServerNotification)


def test_a_longer_line_is_garbled_once_and_the_next_line_is_read() -> None:
    codec = JsonRpcCodec(max_line_bytes=100)
    wire = b'{"method":"m","params":"' + b"x" * 500 + b'"}\n' + line(method="next")
    messages = [m for start in range(0, len(wire), 7) for m in codec.receive(wire[start : start + 7])]
    assert [type(m) for m in messages] == [MalformedLine, ServerNotification]
    assert isinstance(messages[0], MalformedLine)
    assert messages[0].excerpt.startswith("line of 526 bytes exceeds the limit of 100 bytes: {")


def test_a_longer_line_in_one_piece_is_garbled_too() -> None:
    messages = JsonRpcCodec(max_line_bytes=20).receive(b"{" + b"x" * 50 + b"\n" + line(method="n"))
    assert [type(m) for m in messages] == [MalformedLine, ServerNotification]


def test_an_unfinished_line_counts_when_the_stream_ends() -> None:
    codec = JsonRpcCodec()
    assert codec.receive(b'{"method":"m"}') == []
    assert isinstance(only(codec.close()), ServerNotification)
    assert codec.close() == []


def test_params_that_are_no_object_read_as_empty() -> None:
    first, second = JsonRpcCodec().receive(b'{"method":"m","params":[1]}\n{"method":"m"}\n')
    assert isinstance(first, ServerNotification)
    assert isinstance(second, ServerNotification)
    assert decode_object(first.params) == decode_object(second.params) == {}


def test_params_that_are_not_utf8_are_a_value_error() -> None:
    message = only(JsonRpcCodec().receive(b'{"method":"m","params":{"t":"\xff"}}\n'))
    assert isinstance(message, ServerNotification)
    with pytest.raises(ValueError, match="utf-8"):
        decode_object(message.params)


def comparable(message: Message) -> object:
    if isinstance(message, ServerNotification | ServerRequest):
        return (message.method, bytes(message.params))
    return message


@pytest.mark.conformance("A-7")
@given(
    lines=st.lists(
        st.one_of(
            st.binary(max_size=40).filter(lambda b: b"\n" not in b),
            st.builds(lambda t: line(method="m", params={"t": t})[:-1], st.text(max_size=20)),
        ),
        max_size=8,
    ),
    cuts=st.lists(st.integers(min_value=1, max_value=9), min_size=1, max_size=50),
)
def test_for_any_chunking_the_messages_are_the_same(lines: list[bytes], cuts: list[int]) -> None:
    wire = b"".join(entry + b"\n" for entry in lines)
    whole = JsonRpcCodec(max_line_bytes=64).receive(wire)
    codec, pieces, position, turn = JsonRpcCodec(max_line_bytes=64), [], 0, 0
    while position < len(wire):
        step = cuts[turn % len(cuts)]
        pieces += codec.receive(wire[position : position + step])
        position, turn = position + step, turn + 1
    shown = [comparable(m) for m in pieces if not isinstance(m, MalformedLine)]
    assert shown == [comparable(m) for m in whole if not isinstance(m, MalformedLine)]
    assert len(pieces) == len(whole)


def test_muted_notifications_are_counted_in_their_place() -> None:
    codec = JsonRpcCodec()
    codec.suppress("item/delta")
    quiet, loud = b'{"method":"item/delta","params":{}}', b'{"method":"turn/started","params":{}}'
    asked = b'{"method":"item/delta","id":1,"params":{}}'
    told = codec.receive(b"\n".join([quiet, quiet, loud, quiet, asked, b"not json", quiet, b""]))
    assert [
        message.count if isinstance(message, Suppressed) else type(message).__name__ for message in told
    ] == [
        2,
        "ServerNotification",
        1,
        "ServerRequest",
        "PlainLine",
        1,
    ]


def test_an_agent_cannot_make_us_remember_methods_without_end() -> None:
    codec = JsonRpcCodec()
    for number in range(1_000):
        codec.suppress(f"item/{number}")
    told = codec.receive(b'{"method":"item/1","params":{}}\n{"method":"item/999","params":{}}\n')
    assert [type(message).__name__ for message in told] == ["Suppressed", "ServerNotification"]
