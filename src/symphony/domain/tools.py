"""Tools that a tracker offers to an agent and the daemon executes (specification section 10.5)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as the model sees it; `input_schema` is a JSON Schema object."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The answer to one tool call.

    Attributes:
        text: what the model reads.
        read_only: the call changed nothing.
        commented: the call posted a comment, so the daemon posts none itself.
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
        """A failure as `{"error": {"message": ..., ...}}`; the session continues."""
        return cls(
            success=False, text=json.dumps({"error": {"message": message, **details}}, ensure_ascii=False)
        )
