"""Activation: a session asks for a skill by its name and gets its body once (agentskills.io client guide).

The tool knows an enum of names and nothing else, so no name ever becomes a path. The record lives as long
as the session's context does: `forget` clears it after a compaction or a resume, when the model may have lost
what it had read.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from pathlib import Path
from typing import Any, Final

from symphony.skills.catalog import shown_name
from symphony.skills.content import MAX_BODY_BYTES, Content, ContentError, read_content
from symphony.skills.model import Skill, SkillOptions, SkillSet
from symphony.skills.sources import anchored
from symphony.skills.text import one_line

__all__ = ["Activation", "ActivationStatus", "Activations", "Source", "sources_of"]

_CLOSING: Final = re.compile(r"<(?=\s*/\s*skill_content)", re.IGNORECASE)


class ActivationStatus(StrEnum):
    """What became of one request."""

    ACTIVATED = "activated"
    ALREADY_ACTIVE = "already_active"
    UNKNOWN = "unknown"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a listed skill is read from.

    Attributes:
        anchor: absolute; no link may lead out of it.
        path: relative to the anchor.
        shown: the name as the catalog writes it, by which a session asks for the skill; empty for the name.
    """

    name: str
    anchor: Path
    path: str
    shown: str = ""


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


def sources_of(
    skill_set: SkillSet, names: Collection[str], workspace: Path, options: SkillOptions
) -> tuple[Source, ...]:
    """Where the bodies of these skills are: below the workspace they were loaded from, or the user's root.

    Args:
        skill_set: what `load(workspace, options)` gave.
        names: which of them, in whatever order.
        workspace: the directory that they were loaded from.
        options: the same as at the load.
    """
    wanted = frozenset(names)
    return tuple(_source(skill, workspace, options) for skill in skill_set.skills if skill.name in wanted)


def _source(skill: Skill, workspace: Path, options: SkillOptions) -> Source:
    anchor, path = anchored(skill.scope, skill.path, workspace, options)
    return Source(name=skill.name, shown=shown_name(skill.name, options.format), anchor=anchor, path=path)


class Activations:
    """The skills of one session and which of them it has asked for: never more than there are.

    `closed` says that the session has seen all names, so that the tool can tell them as an enum; otherwise it
    learns names from a search.
    """

    def __init__(self, sources: Iterable[Source], *, closed: bool = True) -> None:
        self._sources: dict[str, Source] = {}
        for source in sources:
            self._sources.setdefault(source.shown or source.name, source)
        self._closed = closed
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
        """The JSON Schema of the tool's arguments: one name, out of those that exist."""
        name: dict[str, Any] = {"type": "string", "description": "The skill to activate."}
        if self._closed:
            name["enum"] = list(self._sources)
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
        answer = self.settled(name) or self.read(name)
        self.record(answer)
        return answer

    def settled(self, name: str) -> Activation | None:
        """The answer that needs no file: there is no such skill, or it is active; null for any other name."""
        if name not in self._sources:
            known = f" Skills: {', '.join(self._sources)}." if self._closed else ""
            text = f"There is no such skill.{known}"
            return Activation(name=name, status=ActivationStatus.UNKNOWN, text=text)
        if (name := self._sources[name].name) in self._active:
            text = "This skill is already active in this session: its content is above."
            return Activation(name=name, status=ActivationStatus.ALREADY_ACTIVE, text=text)
        return None

    def read(self, name: str) -> Activation:
        """The body of a skill that exists. Leaves the record alone, so that it may run in another thread."""
        source = self._sources[name]
        try:
            content = read_content(source.anchor, source.path)
        except ContentError as error:
            return Activation(name=source.name, status=ActivationStatus.UNREADABLE, text=str(error))
        text = _wrapped(source.name, content)
        return Activation(name=source.name, status=ActivationStatus.ACTIVATED, text=text)

    def record(self, answer: Activation) -> None:
        """The session was given this answer."""
        if answer.status is ActivationStatus.ACTIVATED:
            self._active.add(answer.name)


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
