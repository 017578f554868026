import json
from typing import Any

import pytest

from kit.model_server import Answer, CustomCall, FunctionCall, Text, Usage, api_error, say
from kit.model_server.messages import Messages
from kit.model_server.wire_format import Asked

ASKED = Asked(user_text="", tool_results=0, position=5)


def events(answer: Answer) -> list[dict[str, Any]]:
    chunks = [Messages().opening(ASKED), *Messages().chunks(ASKED, answer)]
    lines = [chunk.decode().split("\n") for chunk in chunks]
    assert all(len(each) == 4 and each[2:] == ["", ""] for each in lines)
    found = [json.loads(each[1].removeprefix("data: ")) for each in lines]
    assert [each[0] for each in lines] == [f"event: {each['type']}" for each in found]
    return found


def user(*parts: str | dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"role": "user", "content": content}


RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
REMINDER = "<system-reminder>\nDo not forget.\n</system-reminder>"


@pytest.mark.parametrize(
    ("messages", "text", "results"),
    [
        ([], "", 0),
        ([{"role": "user", "content": "plain"}], "plain", 0),
        ([user(REMINDER, "go")], "go", 0),
        (
            [user("go"), {"role": "assistant", "content": [RESULT]}, user(RESULT), user(RESULT, REMINDER)],
            "go",
            2,
        ),
        ([user("old"), user(RESULT, "new"), user(RESULT)], "new", 1),
    ],
)
def test_a_request_is_read_from_its_last_user_text_on(
    messages: list[dict[str, Any]], text: str, results: int
) -> None:
    asked = Messages().read({"messages": messages, "stream": True})
    assert asked == Asked(user_text=text, tool_results=results, position=len(messages))
    assert not Messages().read({"messages": messages}).streamed


def test_only_messages_are_served() -> None:
    assert Messages().serves("/v1/messages")
    assert not Messages().serves("/v1/messages/count_tokens")


def test_a_text_comes_in_pieces_that_add_up() -> None:
    text = "A sentence of more than one piece."
    found = events(say(text))
    kinds = [each["type"] for each in found]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert "".join(each["delta"].get("text", "") for each in found if "delta" in each) == text
    assert found[1]["content_block"] == {"type": "text", "text": ""}
    assert found[-2]["delta"]["stop_reason"] == "end_turn"


def test_calls_carry_their_arguments_and_ids_of_their_place_in_the_conversation() -> None:
    blocks = (Text(text="x"), FunctionCall(name="f", arguments={"a": 1}), CustomCall(name="g", text="p"))
    found = events(Answer(blocks=blocks))
    started = [each["content_block"] for each in found if each["type"] == "content_block_start"]
    assert [block.get("id") for block in started] == [None, "toolu_5_1", "toolu_5_2"]
    given = [each["delta"]["partial_json"] for each in found if "partial_json" in each.get("delta", {})]
    assert [json.loads(one) for one in given] == [{"a": 1}, {"text": "p"}]
    assert found[-2]["delta"]["stop_reason"] == "tool_use"
    assert [block["input"] for block in Messages().whole(ASKED, Answer(blocks=blocks))["content"][1:]] == [
        {"a": 1},
        {"text": "p"},
    ]


def test_usage_is_told_as_this_api_counts() -> None:
    usage = Usage(input_tokens=9, cached_tokens=4, output_tokens=3)
    expected = {
        "input_tokens": 5,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 4,
        "output_tokens": 3,
    }
    assert events(Answer(blocks=(), usage=usage))[-2]["usage"] == expected
    assert Messages().whole(ASKED, Answer(blocks=(), usage=usage))["usage"] == expected


def test_errors_are_worded_as_this_api_words_them() -> None:
    assert api_error(429, "rate_limit_error", "slow").body == {
        "type": "error",
        "error": {"type": "rate_limit_error", "message": "slow"},
    }
