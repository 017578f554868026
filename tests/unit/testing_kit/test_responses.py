import json
from typing import Any

import pytest

from kit.model_server import (
    Answer,
    CustomCall,
    FunctionCall,
    Text,
    Usage,
    edit_and_commit,
    patch,
    rate_limit_headers,
    say,
)
from kit.model_server.responses import Responses
from kit.model_server.wire_format import Asked

ASKED = Asked(user_text="", tool_results=0, position=5)


def events(answer: Answer) -> list[dict[str, Any]]:
    chunks = [Responses().opening(ASKED), *Responses().chunks(ASKED, answer)]
    lines = [chunk.decode().split("\n") for chunk in chunks]
    assert all(len(each) == 4 and each[2:] == ["", ""] for each in lines)
    found = [json.loads(each[1].removeprefix("data: ")) for each in lines]
    assert [each[0] for each in lines] == [f"event: {each['type']}" for each in found]
    return found


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


@pytest.mark.parametrize(
    ("items", "asked"),
    [
        ([], Asked(user_text="", tool_results=0, position=0)),
        (
            [user("old"), {"type": "function_call_output"}, user("new")],
            Asked(user_text="new", tool_results=0, position=3),
        ),
        (
            [
                user("go"),
                {"type": "function_call"},
                {"type": "function_call_output"},
                {"type": "custom_tool_call_output"},
                {"type": "message", "role": "assistant", "content": []},
            ],
            Asked(user_text="go", tool_results=2, position=5),
        ),
        ([{"role": "user", "content": "plain"}], Asked(user_text="plain", tool_results=0, position=1)),
    ],
)
def test_a_request_is_read_from_its_last_user_text_on(items: list[dict[str, Any]], asked: Asked) -> None:
    assert Responses().read({"input": items}) == asked


def test_a_text_comes_in_pieces_that_add_up() -> None:
    text = "A sentence of more than one piece."
    found = events(say(text))
    kinds = [each["type"] for each in found]
    assert kinds[:2] == ["response.created", "response.output_item.added"]
    assert kinds[-2:] == ["response.output_item.done", "response.completed"]
    assert "".join(each.get("delta", "") for each in found) == text
    assert kinds.count("response.output_text.delta") > 1
    assert found[1]["item"]["content"] == []
    assert found[-1]["response"]["output"] == [found[-2]["item"]]


def test_calls_carry_their_arguments_and_ids_of_their_place_in_the_conversation() -> None:
    answer = Answer(
        blocks=(
            Text(text="x"),
            FunctionCall(name="f", arguments={"a": 1}),
            CustomCall(name="apply_patch", text="p"),
        )
    )
    done = [each["item"] for each in events(answer) if each["type"] == "response.output_item.done"]
    assert [item.get("call_id") for item in done] == [None, "call_5_1", "call_5_2"]
    assert (done[1]["type"], done[1]["name"], json.loads(done[1]["arguments"])) == (
        "function_call",
        "f",
        {"a": 1},
    )
    assert (done[2]["type"], done[2]["input"]) == ("custom_tool_call", "p")


def test_usage_is_in_the_last_event() -> None:
    usage = Usage(input_tokens=9, cached_tokens=4, output_tokens=3, reasoning_tokens=1)
    assert events(Answer(blocks=(), usage=usage))[-1]["response"]["usage"] == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 12,
    }


def test_ready_made_steps_say_what_they_are_for() -> None:
    wrapped = patch("*** Add File: a\n+a\n").blocks[0]
    assert isinstance(wrapped, CustomCall)
    assert wrapped.text == "*** Begin Patch\n*** Add File: a\n+a\n*** End Patch\n"
    scenario = edit_and_commit("a", "b", "c", last=(say("moved"),))
    assert scenario[2:] == (say("moved"), say("Done."))
    assert rate_limit_headers(primary_used_percent=42.5, reset_at_s=7) == {
        "x-codex-primary-used-percent": "42.5",
        "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": "7",
    }
