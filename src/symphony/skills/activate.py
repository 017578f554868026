"""Activation: a session asks for a skill by its name and gets its body once (agentskills.io client guide).

The tool knows an enum of names and nothing else, so no name ever becomes a path. The record lives as long
as the session's context does: `forget` clears it after a compaction or a resume, when the model may have lost
what it had read.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from pathlib import Path
from typing import Any, Final

from symphony.skills.content import MAX_BODY_BYTES, Content, ContentError, read_content
from symphony.skills.text import one_line

__all__ = ["Activation", "ActivationStatus", "Activations", "Source"]

_CLOSING: Final = re.compile(r"<(?=\s*/\s*skill_content)", re.IGNORECASE)


class ActivationStatus(StrEnum):
    """What became of one request."""

    ACTIVATED = "activated"
    ALREADY_ACTIVE = "already_active"
    UNKNOWN = "unknown"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a listed skill is read from: `path` is relative to `anchor`, which no link may lead out of."""

    name: str
    anchor: Path
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """The answer to one request; `text` is for the model."""

    name: str
    status: ActivationStatus
    text: str

    @property
    def success(self) -> bool:
        """Whether the model has the skill now."""
        return self.status in {ActivationStatus.ACTIVATED, ActivationStatus.ALREADY_ACTIVE}


class Activations:
    """The skills of one session and which of them it has asked for: never more than it lists."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._sources: dict[str, Source] = {}
        for source in sources:
            self._sources.setdefault(source.name, source)
        self._active: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """What can be asked for; without any there is no tool to register."""
        return tuple(self._sources)

    @property
    def active(self) -> frozenset[str]:
        """What the session has asked for and not forgotten."""
        return frozenset(self._active)

    def input_schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the tool's arguments: one name out of those that exist."""
        name = {"type": "string", "enum": list(self._sources), "description": "The skill to activate."}
        return {
            "type": "object",
            "properties": {"name": name},
            "required": ["name"],
            "additionalProperties": False,
        }

    def forget(self) -> None:
        """The session's context was compacted or resumed: every body may be asked for again."""
        self._active.clear()

    def activate(self, name: str) -> Activation:
        """The body of a skill, once. Reads one file; raises nothing."""
        source = self._sources.get(name)
        if source is None:
            known = ", ".join(self._sources)
            return Activation(
                name=name, status=ActivationStatus.UNKNOWN, text=f"There is no such skill. Skills: {known}."
            )
        if name in self._active:
            text = "This skill is already active in this session: its content is above."
            return Activation(name=name, status=ActivationStatus.ALREADY_ACTIVE, text=text)
        try:
            content = read_content(source.anchor, source.path)
        except ContentError as error:
            return Activation(name=name, status=ActivationStatus.UNREADABLE, text=str(error))
        self._active.add(name)
        return Activation(name=name, status=ActivationStatus.ACTIVATED, text=_wrapped(name, content))


def _wrapped(name: str, content: Content) -> str:
    """The body verbatim, but that it cannot end its own wrapping."""
    attribute = escape(one_line(name).replace("&lt;", "<"))
    lines = [f'<skill_content name="{attribute}">', _CLOSING.sub("&lt;", content.body)]
    if content.cut:
        lines.append(f"(The text goes on beyond {MAX_BODY_BYTES // 1024} KiB; read the file for the rest.)")
    lines += ["", f"Skill directory: {escape(content.directory.as_posix(), quote=False)}"]
    lines.append("Relative paths in this skill start there. This text comes from the repository.")
    return "\n".join([*lines, *_files(content), "</skill_content>"])


def _files(content: Content) -> list[str]:
    if not content.files:
        return []
    rest = [f"  ({content.more_files} more)"] if content.more_files else []
    named = [f"  <file>{escape(one, quote=False)}</file>" for one in content.files]
    return ["<skill_resources>", *named, *rest, "</skill_resources>"]
