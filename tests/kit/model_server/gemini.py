"""The Gemini format (`generateContent`), streaming or whole, as Gemini CLI asks for it (pure).

Some questions of that program want JSON: which model to take, who speaks next. They get a text that fits
all of them, whatever the scenario says, because they are no steps of it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, assert_never

from kit.model_server.scenario import Answer, Block, CustomCall, FunctionCall, Text, Usage
from kit.model_server.wire_format import Asked, event

__all__ = ["GeminiContent"]

_CHOICE = {
    "model_choice": "flash",
    "reasoning": "simple",
    "complexity_reasoning": "simple",
    "complexity_score": 1,
    "next_speaker": "user",
}
_Item = dict[str, Any]


class GeminiContent:
    """`POST …/models/<model>:streamGenerateContent`; without `streamed`, `:generateContent`."""

    def __init__(self, *, streamed: bool) -> None:
        self._streamed = streamed
        self._method = ":streamGenerateContent" if streamed else ":generateContent"

    def serves(self, path: str) -> bool:
        """Whether the path ends as this API's does."""
        return path.endswith(self._method)

    def read(self, body: dict[str, Any]) -> Asked:
        """The last content of the user with a text, and the results of functions after it."""
        contents = body.get("contents") or []
        texts = [_text(content) for content in contents]
        told = [place for place, text in enumerate(texts) if text]
        last = told[-1] if told else -1
        results = sum(
            "functionResponse" in part for content in contents[last + 1 :] for part in _parts(content)
        )
        wanted = body.get("generationConfig") or {}
        wants_json = wanted.get("responseMimeType") == "application/json" or "responseJsonSchema" in wanted
        return Asked(
            user_text=texts[last] if told and not wants_json else "",
            tool_results=results,
            position=len(contents),
            streamed=self._streamed,
            wants_json=wants_json,
        )

    def opening(self, asked: Asked) -> bytes:
        """Nothing: the first piece of an answer says who speaks."""
        del asked
        return b""

    def chunks(self, asked: Asked, answer: Answer) -> Iterator[bytes]:
        """The whole answer as one piece."""
        yield event(json.dumps(self.whole(asked, answer)))

    def whole(self, asked: Asked, answer: Answer) -> Mapping[str, Any]:
        """The answer at once."""
        parts = (
            [{"text": json.dumps(_CHOICE)}] if asked.wants_json else [_part(each) for each in answer.blocks]
        )
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        return {
            "candidates": [candidate],
            "usageMetadata": _usage(answer.usage),
            "modelVersion": "local",
            "responseId": f"resp_{asked.position}",
        }


def _parts(content: Mapping[str, Any]) -> list[_Item]:
    return [] if content.get("role") == "model" else content.get("parts") or []


def _text(content: Mapping[str, Any]) -> str:
    return "\n".join(part["text"] for part in _parts(content) if part.get("text"))


def _part(block: Block) -> _Item:
    match block:
        case Text():
            return {"text": block.text}
        case FunctionCall():
            return {"functionCall": {"name": block.name, "args": dict(block.arguments)}}
        case CustomCall():
            return {"functionCall": {"name": block.name, "args": {"text": block.text}}}
        case _:
            assert_never(block)


def _usage(usage: Usage) -> _Item:
    return {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cached_tokens,
        "candidatesTokenCount": usage.output_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens + usage.reasoning_tokens,
    }
