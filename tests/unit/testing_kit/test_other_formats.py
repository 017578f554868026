"""The model server's formats for agents that speak neither of the first two: chat completions and Gemini."""

import json
from typing import Any

import pytest

from kit.model_server import Answer, CustomCall, FunctionCall, Text, Usage
from kit.model_server.chat import ChatCompletions
from kit.model_server.gemini import GeminiContent

ANSWER = Answer(
    blocks=(
        Text(text="Hello there, all of you."),
        FunctionCall(name="write", arguments={"path": "a"}),
        CustomCall(name="patch", text="x"),
    ),
    usage=Usage(),
)
SAID = Answer(blocks=(Text(text="Done."),))


def chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


def events(chunks: list[bytes]) -> list[Any]:
    lines = [chunk.decode().removeprefix("data: ").strip() for chunk in chunks]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_a_chat_is_read_from_its_last_user_on() -> None:
    body = chat(
        {"role": "system", "content": "s"},
        {"role": "user", "content": "[[old]]"},
        {"role": "tool", "content": "1"},
        {"role": "user", "content": [{"type": "text", "text": "[[new]]"}, {"type": "image"}]},
        {"role": "assistant", "content": None},
        {"role": "tool", "content": "2"},
        stream=True,
    )
    asked = ChatCompletions().read(body)
    assert (asked.user_text, asked.tool_results, asked.position, asked.streamed) == ("[[new]]", 1, 6, True)
    nobody = ChatCompletions().read(chat({"role": "system", "content": "s"}))
    assert (nobody.user_text, nobody.streamed) == ("", False)


def test_a_chat_answers_in_pieces() -> None:
    wire = ChatCompletions()
    asked = wire.read(chat({"role": "user", "content": "x"}, stream=True))
    found = events([wire.opening(asked), *wire.chunks(asked, ANSWER)])
    assert found[-1] == "[DONE]"
    deltas = [event["choices"][0]["delta"] for event in found[:-1] if event["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content") or "" for delta in deltas) == "Hello there, all of you."
    calls = next(delta["tool_calls"] for delta in deltas if "tool_calls" in delta)
    assert [call["function"]["name"] for call in calls] == ["write", "patch"]
    assert json.loads(calls[1]["function"]["arguments"]) == {"text": "x"}
    assert found[-3]["choices"][0]["finish_reason"] == "tool_calls"
    assert found[-2]["usage"]["total_tokens"] == 110


def test_a_chat_answers_at_once() -> None:
    wire = ChatCompletions()
    asked = wire.read(chat({"role": "user", "content": "x"}))
    whole = wire.whole(asked, ANSWER)
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    said = wire.whole(asked, SAID)
    assert said["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "Done."},
        "finish_reason": "stop",
    }
    assert wire.serves("/v1/chat/completions")


def content(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


@pytest.mark.parametrize("streamed", [True, False])
def test_gemini_is_read_from_its_last_words_on(*, streamed: bool) -> None:
    wire = GeminiContent(streamed=streamed)
    body = {
        "contents": [
            content("user", {"text": "context"}),
            content("user", {"text": "[[old]]"}),
            content("model", {"text": "[[no]]"}),
            content("user", {"text": "[[new]]"}),
            content("model", {"functionCall": {}}),
            content("user", {"functionResponse": {}}),
        ]
    }
    asked = wire.read(body)
    assert (asked.user_text, asked.tool_results, asked.streamed) == ("[[new]]", 1, streamed)
    assert wire.serves("/v1beta/models/m:streamGenerateContent") is streamed
    assert wire.serves("/v1beta/models/m:generateContent") is not streamed
    assert wire.read({}).user_text == ""


def test_gemini_answers_in_one_piece() -> None:
    wire = GeminiContent(streamed=True)
    asked = wire.read({"contents": [content("user", {"text": "x"})]})
    (found,) = events(list(wire.chunks(asked, ANSWER)))
    parts = found["candidates"][0]["content"]["parts"]
    assert parts[0] == {"text": "Hello there, all of you."}
    assert parts[1] == {"functionCall": {"name": "write", "args": {"path": "a"}}}
    assert parts[2] == {"functionCall": {"name": "patch", "args": {"text": "x"}}}
    assert found["usageMetadata"]["totalTokenCount"] == 112
    assert wire.opening(asked) == b""


@pytest.mark.parametrize("wanted", [{"responseMimeType": "application/json"}, {"responseJsonSchema": {}}])
def test_gemini_answers_its_own_questions_with_json(wanted: dict[str, Any]) -> None:
    wire = GeminiContent(streamed=False)
    asked = wire.read({"contents": [content("user", {"text": "[[x]]"})], "generationConfig": wanted})
    assert asked.user_text == ""
    text = wire.whole(asked, SAID)["candidates"][0]["content"]["parts"][0]["text"]
    assert json.loads(text)["model_choice"]
