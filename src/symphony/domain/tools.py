"""Tools that a tracker offers to an agent session and the daemon executes (specification 10.5; AG17, TR9)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ToolResult", "ToolSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as advertised to the model; `input_schema` is a JSON Schema object."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The answer to one tool call; `text` is what the model reads."""

    success: bool
    text: str

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "ToolResult":
        """A successful answer that carries `payload` as JSON."""
        return cls(success=True, text=json.dumps(payload, ensure_ascii=False))

    @classmethod
    def error(cls, message: str, **details: Any) -> "ToolResult":
        """A structured failure (AG18): `{"error": {"message": ..., ...}}`; the session goes on."""
        return cls(
            success=False, text=json.dumps({"error": {"message": message, **details}}, ensure_ascii=False)
        )
