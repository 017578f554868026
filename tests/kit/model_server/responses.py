"""The OpenAI Responses format, always streaming, as Codex asks for it (pure)."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, assert_never

from kit.model_server.scenario import Answer, Block, CustomCall, FunctionCall, Text, Usage
from kit.model_server.wire_format import Asked, event

__all__ = ["Responses"]

_DELTA_CHARS = 16
_Item = dict[str, Any]


class Responses:
    """`POST …/responses`."""

    def serves(self, path: str) -> bool:
        """Whether the path ends as this API's does."""
        return path.endswith("/responses")

    def read(self, body: dict[str, Any]) -> Asked:
        """The last message with the role `user`, and the items after it whose type ends in `_output`."""
        items = body["input"]
        users = [place for place, item in enumerate(items) if item.get("role") == "user"]
        last = users[-1] if users else -1
        results = sum(str(item.get("type", "")).endswith("_output") for item in items[last + 1 :])
        text = _text(items[last]) if users else ""
        return Asked(user_text=text, tool_results=results, position=len(items))

    def opening(self, asked: Asked) -> bytes:
        """`response.created`."""
        return _event("response.created", response=_response(asked, "in_progress"))

    def chunks(self, asked: Asked, answer: Answer) -> Iterator[bytes]:
        """Each item added, its text piece by piece, done; then `response.completed` with everything."""
        for place, item in enumerate(_items(asked, answer)):
            empty = {**item, "content": []} if item["type"] == "message" else item
            yield _event("response.output_item.added", output_index=place, item=empty)
            yield from _deltas(place, item)
            yield _event("response.output_item.done", output_index=place, item=item)
        yield _event("response.completed", response=self.whole(asked, answer))

    def whole(self, asked: Asked, answer: Answer) -> Mapping[str, Any]:
        """The completed response."""
        output = _items(asked, answer)
        return _response(asked, "completed") | {"output": output, "usage": _usage(answer.usage)}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content", "")
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if "text" in part)


def _event(kind: str, **data: Any) -> bytes:
    return event(json.dumps({"type": kind, **data}), kind)


def _response(asked: Asked, status: str) -> _Item:
    return {"id": f"resp_{asked.position}", "object": "response", "status": status}


def _items(asked: Asked, answer: Answer) -> list[_Item]:
    return [_item(block, f"{asked.position}_{place}") for place, block in enumerate(answer.blocks)]


def _item(block: Block, place: str) -> _Item:
    match block:
        case Text():
            content = [{"type": "output_text", "text": block.text}]
            return {"type": "message", "id": f"msg_{place}", "role": "assistant", "content": content}
        case FunctionCall():
            arguments = json.dumps(block.arguments)
            space = {} if block.namespace is None else {"namespace": block.namespace}
            return _call("function_call", place, block.name) | {"arguments": arguments} | space
        case CustomCall():
            return _call("custom_tool_call", place, block.name) | {"input": block.text}
        case _:
            assert_never(block)


def _call(kind: str, place: str, name: str) -> _Item:
    return {"type": kind, "id": f"item_{place}", "call_id": f"call_{place}", "name": name}


def _deltas(place: int, item: _Item) -> Iterator[bytes]:
    if item["type"] != "message":
        return
    text = item["content"][0]["text"]
    for start in range(0, len(text), _DELTA_CHARS):
        yield _event(
            "response.output_text.delta",
            item_id=item["id"],
            output_index=place,
            content_index=0,
            delta=text[start : start + _DELTA_CHARS],
        )


def _usage(usage: Usage) -> _Item:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
