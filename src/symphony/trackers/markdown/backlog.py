"""The layout of Backlog.md 1.52: `backlog/tasks/task-12 - Title.md`, states in `backlog/config.yml`.

That program and this daemon work on the same files. Tasks are read as it writes them; the only thing that is
ever written into one is the state, and not one other byte. Titles in file names mean nothing. A task that was
moved to `completed` is over; one that was archived is gone, and Backlog.md removes it from dependencies.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from typing_extensions import override

from symphony.domain.issue import normalise_labels, normalise_state
from symphony.frontmatter import FrontMatterError, Profile, load
from symphony.trackers.markdown import files as board_files
from symphony.trackers.markdown.document import (
    Fields,
    MalformedError,
    Parts,
    blockers,
    described,
    names_in,
    parse_parts,
    required,
)
from symphony.trackers.markdown.layout import Layout

__all__ = ["BacklogLayout", "BacklogSettings", "read_settings"]

CONFIG = "config.yml"
TASKS, COMPLETED, NOTES = "tasks", "completed", ".symphony"
DEFAULT_PREFIX = "task"
DEFAULT_PRIORITIES = ("high", "medium", "low")
_LAST_RANK = 4
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
_MARK = re.compile(r"[ \t]*<!--[ \t]*[A-Z:_-]+:(?:BEGIN|END)[ \t]*-->[ \t]*\r?\n?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogSettings:
    """What `config.yml` says: states in their order, what ids begin with, priorities from the highest on."""

    statuses: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX
    priorities: tuple[str, ...] = DEFAULT_PRIORITIES


def read_settings(folder: Path) -> BacklogSettings:
    """Read `config.yml` in the folder of a board.

    Raises:
        MalformedError: it is no such file.
        OSError: it cannot be read.
    """
    try:
        data = board_files.read(folder / CONFIG, root=folder)
        values = load(data, profile=Profile.TEXT, first_line=1).value
    except board_files.RefusedFileError as error:
        raise MalformedError(1, str(error)) from error
    except FrontMatterError as error:
        raise MalformedError(error.line, error.message) from error
    statuses = _list(values, "statuses")
    if not statuses:
        raise MalformedError(1, "there are no `statuses`")
    prefix = values.get("task_prefix", DEFAULT_PREFIX)
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise MalformedError(1, "`task_prefix` must be a word")
    priorities = tuple(name.lower() for name in _list(values, "priorities"))
    return BacklogSettings(statuses=statuses, prefix=prefix, priorities=priorities or DEFAULT_PRIORITIES)


def _list(values: Mapping[str, Any], key: str) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for name in names_in(values.get(key)) or ():
        if name.strip():
            found.setdefault(normalise_state(name), name.strip())
    return tuple(found.values())


class BacklogLayout(Layout):
    """`task-12 - Title.md` is the issue `TASK-12`; `task-12.1 - Title.md` is its part `TASK-12.1`."""

    state_key = "status"
    can_create = False

    def __init__(self, settings: BacklogSettings) -> None:
        self._settings = settings
        prefix = re.escape(settings.prefix)
        self._name = re.compile(
            rf"({prefix}-\d{{1,9}}(?:\.\d{{1,9}})*)(?: - .*)?\.md", re.IGNORECASE | re.DOTALL
        )

    @override
    def files(self, names: Iterable[str]) -> dict[str, str]:
        """A second file of one task keeps its whole name as id, so that `twins` can tell of both."""
        found: dict[str, str] = {}
        for name in sorted(names):
            match = self._name.fullmatch(name)
            if match is not None:
                issue_id = match[1].upper()
                found[name.removesuffix(".md") if issue_id in found else issue_id] = name
        return found

    @override
    def twins(self, files: Mapping[str, str]) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for issue_id, name in files.items():
            match = self._name.fullmatch(name)
            if match is not None and match[1].upper() != issue_id:
                first = match[1].upper()
                found |= {issue_id: files[first], first: name}
        return found

    @override
    def finished(self, folder: Path) -> frozenset[str]:
        try:
            names = os.listdir(folder.parent / COMPLETED)  # noqa: PTH208 - names are all that is needed
        except FileNotFoundError:
            return frozenset()
        return frozenset(issue_id.casefold() for issue_id in self.files(names))

    @override
    def parse(self, data: bytes, issue_id: str) -> Fields:
        parts = parse_parts(data)
        named = required(parts, "id").strip()
        if named.casefold() != issue_id.casefold():
            raise MalformedError(
                parts.lines.get("id", 1), f"`id` is {named[:80]!r}, not that of the file name"
            )
        blocked_by, problem = blockers(parts.values.get("dependencies"), "dependencies")
        return Fields(
            title=required(parts, "title"),
            state=required(parts, "status").strip(),
            labels=normalise_labels(names_in(parts.values.get("labels")) or ()),
            priority=self._rank(parts),
            assignee=next((name.strip().lstrip("@") for name in self._assignees(parts)), None),
            blocked_by=blocked_by,
            blockers_problem=problem,
            created=_moment(parts.values.get("created_date")),
            updated=_moment(parts.values.get("updated_date")),
            description=described(_MARK.sub("", parts.body)),
        )

    def _rank(self, parts: Parts) -> int | None:
        """1 for the highest of the board's priorities."""
        value = parts.values.get("priority")
        name = value.strip().lower() if isinstance(value, str) else ""
        rank = self._settings.priorities.index(name) + 1 if name in self._settings.priorities else None
        return rank if rank is None or rank <= _LAST_RANK else None

    def _assignees(self, parts: Parts) -> list[str]:
        return [name for name in names_in(parts.values.get("assignee")) or () if name.strip(" @")]


def _moment(value: object) -> datetime | None:
    """A time as Backlog.md writes it: without an offset, and in UTC."""
    if not isinstance(value, str) or not _DATE.fullmatch(value.strip()):
        return None
    try:
        return datetime.fromisoformat(value.strip()).replace(tzinfo=UTC)
    except ValueError:
        return None
