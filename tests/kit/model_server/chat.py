"""The OpenAI Chat Completions format, streaming or whole, as OpenCode and aider ask for it (pure)."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, assert_never

from kit.model_server.scenario import Answer, Block, CustomCall, FunctionCall, Text, Usage
from kit.model_server.wire_format import Asked, event

__all__ = ["ChatCompletions"]

_DELTA_CHARS = 16
_CREATED = 1_700_000_000
_MODEL = "local"
_Item = dict[str, Any]


class ChatCompletions:
    """`POST …/chat/completions`."""

    def serves(self, path: str) -> bool:
        """Whether the path ends as this API's does."""
        return path.endswith("/chat/completions")

    def read(self, body: dict[str, Any]) -> Asked:
        """The last message with the role `user`, and the messages of role `tool` after it."""
        messages = body["messages"]
        users = [place for place, message in enumerate(messages) if message.get("role") == "user"]
        last = users[-1] if users else -1
        results = sum(message.get("role") == "tool" for message in messages[last + 1 :])
        text = _text(messages[last]) if users else ""
        streamed = body.get("stream") is True
        return Asked(user_text=text, tool_results=results, position=len(messages), streamed=streamed)

    def opening(self, asked: Asked) -> bytes:
        """A piece that only says who speaks."""
        return _piece(asked, {"role": "assistant", "content": ""})

    def chunks(self, asked: Asked, answer: Answer) -> Iterator[bytes]:
        """Texts piece by piece, calls at once, then why it stopped, what it used, and the end."""
        for block in answer.blocks:
            if isinstance(block, Text):
                for start in range(0, len(block.text), _DELTA_CHARS):
                    yield _piece(asked, {"content": block.text[start : start + _DELTA_CHARS]})
        calls = _calls(asked, answer)
        if calls:
            yield _piece(
                asked, {"tool_calls": [{"index": place, **call} for place, call in enumerate(calls)]}
            )
        yield _piece(asked, {}, _reason(answer))
        yield event(
            json.dumps({**_head(asked, "chat.completion.chunk"), "choices": [], **_usage(answer.usage)})
        )
        yield event("[DONE]")

    def whole(self, asked: Asked, answer: Answer) -> Mapping[str, Any]:
        """The message at once, for who did not ask for a stream."""
        text = "".join(block.text for block in answer.blocks if isinstance(block, Text))
        message: _Item = {"role": "assistant", "content": text or None}
        calls = _calls(asked, answer)
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": _reason(answer)}
        return {**_head(asked, "chat.completion"), "choices": [choice], **_usage(answer.usage)}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if "text" in part)


def _head(asked: Asked, kind: str) -> _Item:
    return {"id": f"chatcmpl_{asked.position}", "object": kind, "created": _CREATED, "model": _MODEL}


def _piece(asked: Asked, delta: _Item, reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return event(json.dumps({**_head(asked, "chat.completion.chunk"), "choices": [choice]}))


def _calls(asked: Asked, answer: Answer) -> list[_Item]:
    called = [block for block in answer.blocks if not isinstance(block, Text)]
    return [
        {"id": f"call_{asked.position}_{place}", "type": "function", "function": _function(block)}
        for place, block in enumerate(called)
    ]


def _function(block: Block) -> _Item:
    match block:
        case FunctionCall():
            return {"name": block.name, "arguments": json.dumps(block.arguments)}
        case CustomCall():
            return {"name": block.name, "arguments": json.dumps({"text": block.text})}
        case Text():
            raise ValueError("a text is no call")
        case _:
            assert_never(block)


def _reason(answer: Answer) -> str:
    return "stop" if all(isinstance(block, Text) for block in answer.blocks) else "tool_calls"


def _usage(usage: Usage) -> _Item:
    return {
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        }
    }
