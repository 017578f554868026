"""Tools that a tracker offers to an agent session and the daemon executes (specification 10.5; AG17, TR9)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as advertised to the model; `input_schema` is a JSON Schema object."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The answer to one tool call; `text` is what the model reads.

    `read_only` says that the call changed nothing. `commented` says that it wrote a comment, so that the
    daemon need not write one of its own.
    """

    success: bool
    text: str
    read_only: bool = False
    commented: bool = False

    @classmethod
    def of(
        cls, payload: Mapping[str, Any], *, read_only: bool = False, commented: bool = False
    ) -> "ToolResult":
        """A successful answer that carries `payload` as JSON."""
        text = json.dumps(payload, ensure_ascii=False)
        return cls(success=True, text=text, read_only=read_only, commented=commented)

    @classmethod
    def error(cls, message: str, **details: Any) -> "ToolResult":
        """A structured failure (AG18): `{"error": {"message": ..., ...}}`; the session goes on."""
        return cls(
            success=False, text=json.dumps({"error": {"message": message, **details}}, ensure_ascii=False)
        )
