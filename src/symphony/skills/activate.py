"""Activation: a session requests a skill by name and gets its body once (agentskills.io client guide).

Names are looked up among the loaded skills and never used as paths. The record of activated skills is cleared
by `forget` after a compaction, because the model may have lost the bodies then. A session that resumes a
conversation takes over the record of the earlier session (`remember`).
"""

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any, Final

from msgspec import Struct

from symphony.frontmatter import FrontMatterError
from symphony.skills import loader
from symphony.skills.catalog import CatalogBlock, render_search, shown_name
from symphony.skills.loader import resolve_anchor
from symphony.skills.model import Skill, SkillOptions, SkillSet, one_line
from symphony.skills.parser import split_file
from symphony.skills.search import search_skills

# --- Reading one skill ---
# As for loading, only regular files inside the anchor are read, up to limits. Bundled files are listed,
# without links, and never read.

MAX_BODY_BYTES: Final = 512 * 1024
MAX_FILES: Final = 100
_MAX_DEPTH: Final = 4
_MAX_ENTRIES: Final = 2_000
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK: Final = 65_536


class ContentError(Exception):
    """The skill cannot be read; the message is one sentence without file content."""


class SkillContent(Struct, frozen=True, kw_only=True):
    """The content of a skill.

    Attributes:
        directory: absolute path of the skill's directory.
        body: the text after the front matter; bytes that are not UTF-8 are replaced.
        cut: whether the body was cut at 512 KiB.
        files: bundled regular files, relative to the directory, with `/`, sorted; at most 100.
        more_files: how many more files were found.
    """

    directory: Path
    body: str
    cut: bool = False
    files: tuple[str, ...] = ()
    more_files: int = 0


def read_content(anchor: Path, path: str) -> SkillContent:
    """The content of the skill whose SKILL.md is at `path`.

    Args:
        anchor: the workspace or another root; no link may lead out of it.
        path: of the SKILL.md, relative to the anchor, with `/`.

    Raises:
        ContentError: the file is gone, unreadable, not a regular file or outside the anchor.
    """
    base, pure = anchor.absolute(), PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise ContentError("The skill's path is not inside the workspace.")
    try:
        with _opened(loader.open_directory(base, pure.parts[:-1])) as directory:
            with _opened(loader.open_file(base, directory, pure.parts)) as file:
                data, cut = _read(file)
            files, more = _bundled(directory, pure.name)
    except loader.OutsideWorkspaceError:
        raise ContentError("The skill is a link that leads out of the workspace.") from None
    except (OSError, ValueError):
        raise ContentError("The skill's SKILL.md cannot be read.") from None
    return SkillContent(
        directory=base.joinpath(*pure.parts[:-1]), body=_body(data), cut=cut, files=files, more_files=more
    )


@contextmanager
def _opened(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> tuple[bytes, bool]:
    """The first bytes of a regular file, and whether there are more."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise ContentError("The skill's SKILL.md is not a regular file.")
    data = bytearray()
    while len(data) <= MAX_BODY_BYTES:
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            return bytes(data), False
        data += chunk
    return bytes(data[:MAX_BODY_BYTES]), True


def _body(data: bytes) -> str:
    try:
        found = split_file(data)
    except FrontMatterError:
        found = None
    rest = data if found is None else data[found.fences.body_offset :]
    return rest.decode(errors="replace").replace("\r\n", "\n").strip("\n")


def _bundled(directory: int, own_name: str) -> tuple[tuple[str, ...], int]:
    """The first files of a skill's directory without its SKILL.md, and the number of the others."""
    found = sorted(name for name in _walk(directory, _Budget(), 0, "") if name != own_name)
    return tuple(found[:MAX_FILES]), max(len(found) - MAX_FILES, 0)


@dataclass(slots=True)
class _Budget:
    """The number of directory entries that may still be read."""

    entries: int = _MAX_ENTRIES


def _walk(directory: int, budget: _Budget, depth: int, above: str) -> Iterator[str]:
    for name, kind in _entries(directory, budget):
        if kind == stat.S_IFREG:
            yield f"{above}{name}"
        elif kind == stat.S_IFDIR and depth < _MAX_DEPTH:
            try:
                inner = os.open(name, _DIRECTORY, dir_fd=directory)
            except OSError:
                continue
            with _opened(inner):
                yield from _walk(inner, budget, depth + 1, f"{above}{name}/")


def _entries(directory: int, budget: _Budget) -> list[tuple[str, int]]:
    """Names and kinds of the entries, without hidden and unprintable names; links are not followed."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if budget.entries <= 0:
                break
            budget.entries -= 1
            if not entry.name.startswith(".") and entry.name.isprintable():
                found.append((entry.name, _kind(entry)))
    return sorted(found)


def _kind(entry: os.DirEntry[str]) -> int:
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG
    return stat.S_IFDIR if entry.is_dir(follow_symlinks=False) else 0


# --- Activation ---

_CLOSING: Final = re.compile(r"<(?=\s*/\s*skill_content)", re.IGNORECASE)


class ActivationStatus(StrEnum):
    """Result of one request."""

    ACTIVATED = "activated"
    ALREADY_ACTIVE = "already_active"
    UNKNOWN = "unknown"
    UNREADABLE = "unreadable"


class SkillPath(Struct, frozen=True, kw_only=True):
    """Where a listed skill is read from.

    Attributes:
        anchor: absolute; no link may lead out of it.
        path: relative to the anchor.
        shown: the name as in the catalog, which a session uses; empty if it is `name`.
    """

    name: str
    anchor: Path
    path: str
    shown: str = ""


class Activation(Struct, frozen=True, kw_only=True):
    """The answer to one request; `text` is for the model."""

    name: str
    status: ActivationStatus
    text: str

    @property
    def success(self) -> bool:
        """Whether the model has the body of the skill."""
        return self.status in {ActivationStatus.ACTIVATED, ActivationStatus.ALREADY_ACTIVE}


def sources_of(
    skill_set: SkillSet, names: Collection[str], workspace: Path, options: SkillOptions
) -> tuple[SkillPath, ...]:
    """Where the bodies of these skills are read from.

    Args:
        skill_set: the result of `load(workspace, options)`.
        names: of the skills, in any order.
        workspace: the directory they were loaded from.
        options: the options they were loaded with.
    """
    wanted = frozenset(names)
    return tuple(_source(skill, workspace, options) for skill in skill_set.skills if skill.name in wanted)


def _source(skill: Skill, workspace: Path, options: SkillOptions) -> SkillPath:
    anchor, path = resolve_anchor(skill.scope, skill.path, workspace, options)
    return SkillPath(name=skill.name, shown=shown_name(skill.name, options.format), anchor=anchor, path=path)


class Activations:
    """The skills of one session, and the record of those it has activated.

    If `closed`, the catalog lists all names and the tool's schema has them as an enum. Otherwise the session
    finds names by a search.
    """

    def __init__(self, sources: Iterable[SkillPath], *, closed: bool = True) -> None:
        self._sources: dict[str, SkillPath] = {}
        for source in sources:
            self._sources.setdefault(source.shown or source.name, source)
        self._closed = closed
        self._active: dict[str, str] = {}
        self._remembered: Mapping[str, str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names that can be activated; if there are none, no tool is registered."""
        return tuple(self._sources)

    @property
    def active(self) -> Mapping[str, str]:
        """The skills whose bodies the session has, each with the SHA-256 of what it was given."""
        return {**self._remembered, **self._active}

    def remember(self, given: Mapping[str, str]) -> None:
        """Take over `active` of the session whose conversation this one continues.

        A skill whose text has changed is given again.
        """
        self._remembered = dict(given)

    def input_schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the tool's arguments."""
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
        """Clear the record after a compaction, so that every body can be requested again."""
        self._active.clear()
        self._remembered = {}

    def activate(self, name: str) -> Activation:
        """The body of a skill, once. Reads one file; never raises."""
        answer = self.immediate_answer(name) or self.read(name)
        self.record(answer)
        return answer

    def immediate_answer(self, name: str) -> Activation | None:
        """The answer for an unknown or an active skill; `None` if the file has to be read."""
        if name not in self._sources:
            known = f" Skills: {', '.join(self._sources)}." if self._closed else ""
            text = f"There is no such skill.{known}"
            return Activation(name=name, status=ActivationStatus.UNKNOWN, text=text)
        if (name := self._sources[name].name) in self._active:
            return _already_active(name)
        return None

    def read(self, name: str) -> Activation:
        """Read the body of a known skill. Does not change the record, so it may run in another thread."""
        source = self._sources[name]
        try:
            content = read_content(source.anchor, source.path)
        except ContentError as error:
            return Activation(name=source.name, status=ActivationStatus.UNREADABLE, text=str(error))
        text = _wrapped(source.name, content)
        if self._remembered.get(source.name) == _digest(text):
            return _already_active(source.name)
        return Activation(name=source.name, status=ActivationStatus.ACTIVATED, text=text)

    def record(self, answer: Activation) -> None:
        """Record that the session has received this answer."""
        if answer.status is ActivationStatus.ACTIVATED:
            self._active[answer.name] = _digest(answer.text)


def _already_active(name: str) -> Activation:
    text = "This skill is already active in this session: its content is above."
    return Activation(name=name, status=ActivationStatus.ALREADY_ACTIVE, text=text)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _wrapped(name: str, content: SkillContent) -> str:
    """The body in its XML element; a closing tag in the body is escaped."""
    attribute = escape(one_line(name).replace("&lt;", "<"))
    lines = [f'<skill_content name="{attribute}">', _CLOSING.sub("&lt;", content.body)]
    if content.cut:
        lines.append(f"(The text goes on beyond {MAX_BODY_BYTES // 1024} KiB; read the file for the rest.)")
    lines += ["", f"Skill directory: {escape(content.directory.as_posix(), quote=False)}"]
    lines.append("Relative paths in this skill start there. This text comes from the repository.")
    return "\n".join([*lines, *_files(content), "</skill_content>"])


def _files(content: SkillContent) -> list[str]:
    if not content.files:
        return []
    rest = [f"  ({content.more_files} more)"] if content.more_files else []
    named = [f"  <file>{escape(one, quote=False)}</file>" for one in content.files]
    return ["<skill_resources>", *named, *rest, "</skill_resources>"]


# --- Skills of one session ---

MAX_FOUND: Final = 20
_NOTHING: Final = "No skill matches these words. Try other words, or continue without a skill."


class AvailableSkills(Struct, frozen=True, kw_only=True):
    """The skills that one session can activate.

    Attributes:
        skill_set: with these skills only.
        workspace: the directory they were loaded from.
        options: the options they were loaded and rendered with.
        uses_search: whether none is listed, so that the session has to search.
    """

    skill_set: SkillSet
    workspace: Path
    options: SkillOptions
    uses_search: bool = False

    @classmethod
    def of(
        cls, skill_set: SkillSet, block: CatalogBlock, *, workspace: Path, options: SkillOptions
    ) -> "AvailableSkills | None":
        """The skills that a block makes available; `None` if there are none."""
        if not block.available:
            return None
        available = frozenset(block.available)
        kept = replace(skill_set, skills=tuple(one for one in skill_set.skills if one.name in available))
        return cls(skill_set=kept, workspace=workspace, options=options, uses_search=block.uses_search)

    def activations(self) -> Activations:
        """A new record for one session."""
        names = [skill.name for skill in self.skill_set.skills]
        sources = sources_of(self.skill_set, names, self.workspace, self.options)
        return Activations(sources, closed=not self.uses_search)

    def find(self, query: str, *, limit: int = 10) -> str:
        """The best matches for a query, in the format of the catalog; at most `MAX_FOUND` skills."""
        hits = search_skills(self.skill_set.skills, query, limit=min(limit, MAX_FOUND))
        return render_search(self.skill_set, [hit.skill for hit in hits], self.options) or _NOTHING
