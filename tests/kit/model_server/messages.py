"""The Anthropic Messages format, streaming or whole, as Claude Code asks for it (pure)."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, assert_never

from kit.model_server.scenario import Answer, Block, CustomCall, FunctionCall, Text, Usage
from kit.model_server.wire_format import Asked, event

__all__ = ["Messages"]

_DELTA_CHARS = 16
_REMINDER = "<system-reminder>"
_Item = dict[str, Any]


class Messages:
    """`POST …/messages`; counting tokens is another path, and not served."""

    def serves(self, path: str) -> bool:
        """Whether the path ends as this API's does."""
        return path.endswith("/messages")

    def read(self, body: dict[str, Any]) -> Asked:
        """The last text of the user that is no reminder of the agent's own, and the tool results after it."""
        messages = body["messages"]
        parts = [part for message in messages for part in _parts(message)]
        told = [place for place, part in enumerate(parts) if _is_prompt(part)]
        last = told[-1] if told else -1
        results = sum(part.get("type") == "tool_result" for part in parts[last + 1 :])
        text = parts[last]["text"] if told else ""
        streamed = body.get("stream") is True
        return Asked(user_text=text, tool_results=results, position=len(messages), streamed=streamed)

    def opening(self, asked: Asked) -> bytes:
        """`message_start`."""
        message = _message(asked, [], None, Usage())
        return _event("message_start", message=message)

    def chunks(self, asked: Asked, answer: Answer) -> Iterator[bytes]:
        """Each block piece by piece, then why it stopped and what it used."""
        for place, block in enumerate(answer.blocks):
            item = _item(block, f"{asked.position}_{place}")
            empty = {**item, "text": ""} if item["type"] == "text" else {**item, "input": {}}
            yield _event("content_block_start", index=place, content_block=empty)
            for delta in _deltas(item):
                yield _event("content_block_delta", index=place, delta=delta)
            yield _event("content_block_stop", index=place)
        stop = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
        yield _event("message_delta", delta=stop, usage=_usage(answer.usage))
        yield _event("message_stop")

    def whole(self, asked: Asked, answer: Answer) -> Mapping[str, Any]:
        """The message at once, for who did not ask for a stream."""
        items = [_item(block, f"{asked.position}_{place}") for place, block in enumerate(answer.blocks)]
        return _message(asked, items, _stop_reason(answer), answer.usage)


def _parts(message: Mapping[str, Any]) -> list[_Item]:
    content = message.get("content", "")
    if message.get("role") != "user":
        return []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _is_prompt(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "text" and not part["text"].lstrip().startswith(_REMINDER)


def _event(kind: str, **data: Any) -> bytes:
    return event(json.dumps({"type": kind, **data}), kind)


def _message(asked: Asked, content: list[_Item], stop_reason: str | None, usage: Usage) -> _Item:
    return {
        "id": f"msg_{asked.position}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": _usage(usage),
    }


def _item(block: Block, place: str) -> _Item:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case FunctionCall():
            called: _Item = {"name": block.name, "input": dict(block.arguments)}
        case CustomCall():
            called = {"name": block.name, "input": {"text": block.text}}
        case _:
            assert_never(block)
    return {"type": "tool_use", "id": f"toolu_{place}", **called}


def _deltas(item: _Item) -> Iterator[_Item]:
    if item["type"] == "tool_use":
        yield {"type": "input_json_delta", "partial_json": json.dumps(item["input"])}
        return
    text = item["text"]
    for start in range(0, len(text), _DELTA_CHARS):
        yield {"type": "text_delta", "text": text[start : start + _DELTA_CHARS]}


def _stop_reason(answer: Answer) -> str:
    return "end_turn" if all(isinstance(block, Text) for block in answer.blocks) else "tool_use"


def _usage(usage: Usage) -> _Item:
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }
