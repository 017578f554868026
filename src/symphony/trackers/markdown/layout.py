"""How issues are stored in the board's folder: which file is which issue, and how to read it.

`BoardLayout` is Symphony's own: `SYM-12.md` is the issue `SYM-12`. `BacklogLayout` is the layout of
Backlog.md 1.52: `backlog/tasks/task-12 - Title.md`, with the states in `backlog/config.yml`. Both programs
work on the same files. The daemon reads tasks as that program writes them, and changes only their state.
Titles in file names have no meaning. A task in `completed` is over. An archived task counts as deleted, and
Backlog.md removes it from dependencies.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct
from typing_extensions import override

from symphony.domain import normalise_labels
from symphony.frontmatter import FrontMatterError, Profile, load
from symphony.trackers.base import unique
from symphony.trackers.markdown import document, files


def is_issue_file(name: str) -> bool:
    """Whether a file of this name can be an issue. Dot files are temporary, `README.md` is for people."""
    return name.endswith(".md") and not name.startswith(".") and name.lower() != "readme.md"


class BoardLayout:
    """`SYM-12.md` is the issue `SYM-12`.

    Attributes:
        state_key: the key of the state.
        can_create: whether the daemon creates issues here; false for the layout of another program.
    """

    state_key = "state"
    can_create = True

    def files(self, names: Iterable[str]) -> dict[str, str]:
        """The file of each issue, by id."""
        return {name[:-3]: name for name in names if is_issue_file(name)}

    def twins(self, files: Mapping[str, str]) -> Mapping[str, str]:
        """For each id that equals another one on some file systems, the file of the other one.

        Ids that differ only by case are one file on some machines and two on others.
        """
        by_case: dict[str, str] = {}
        twins: dict[str, str] = {}
        for issue_id in sorted(files):
            first = by_case.setdefault(issue_id.casefold(), issue_id)
            if first != issue_id:
                twins.setdefault(first, files[issue_id])
                twins[issue_id] = files[first]
        return twins

    def finished(self, folder: Path) -> frozenset[str]:
        """The case-folded ids of issues that are over and stored elsewhere. Raises `OSError`."""
        del folder
        return frozenset()

    def parse(self, data: bytes, issue_id: str) -> document.Fields:
        """Parse an issue file. Raises `MalformedError`."""
        del issue_id
        return document.parse_issue(data)


OWN = BoardLayout()


# --- Backlog.md ------------------------------------------------------------------------------------------

BACKLOG_CONFIG = "config.yml"
BACKLOG_TASKS, BACKLOG_COMMENTS = "tasks", ".symphony"
_COMPLETED = "completed"
_MAX_RANK = 4
_TASK_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
_SECTION_MARK = re.compile(r"[ \t]*<!--[ \t]*[A-Z:_-]+:(?:BEGIN|END)[ \t]*-->[ \t]*\r?\n?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?")


class BacklogSettings(Struct, frozen=True, kw_only=True):
    """`config.yml`: states in order, the prefix of ids, and priorities from the highest on."""

    statuses: tuple[str, ...]
    prefix: str
    priorities: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path) -> "BacklogSettings":
        """Read `config.yml` in the folder of a board.

        Raises:
            MalformedError: the file does not fit.
            OSError: it cannot be read.
        """
        try:
            data = files.read(folder / BACKLOG_CONFIG, root=folder)
            values = load(data, profile=Profile.TEXT, first_line=1).value
        except files.RefusedFileError as error:
            raise document.MalformedError(1, str(error)) from error
        except FrontMatterError as error:
            raise document.MalformedError(error.line, error.message) from error
        parts = document.IssueFileParts(values=values, lines={}, body="")
        statuses = unique(parts.names("statuses") or ())
        prefix = values.get("task_prefix", "task")
        if not statuses:
            raise document.MalformedError(1, "there are no `statuses`")
        if not isinstance(prefix, str) or not _TASK_PREFIX.fullmatch(prefix):
            raise document.MalformedError(1, "`task_prefix` must be a word")
        priorities = tuple(map(str.lower, unique(parts.names("priorities") or ())))
        return cls(statuses=statuses, prefix=prefix, priorities=priorities or ("high", "medium", "low"))


class BacklogLayout(BoardLayout):
    """`task-12 - Title.md` is the issue `TASK-12`; `task-12.1 - Title.md` is its part `TASK-12.1`."""

    state_key = "status"
    can_create = False

    def __init__(self, settings: BacklogSettings) -> None:
        self._settings = settings
        self._name = re.compile(
            rf"({re.escape(settings.prefix)}-\d{{1,9}}(?:\.\d{{1,9}})*)(?: - .*)?\.md",
            re.IGNORECASE | re.DOTALL,
        )

    @override
    def files(self, names: Iterable[str]) -> dict[str, str]:
        """As `BoardLayout.files`.

        A second file of a task gets its whole name as id, so that `twins` can report both.
        """
        found: dict[str, str] = {}
        for name in sorted(names):
            if match := self._name.fullmatch(name):
                issue_id = match[1].upper()
                found[name.removesuffix(".md") if issue_id in found else issue_id] = name
        return found

    @override
    def twins(self, files: Mapping[str, str]) -> Mapping[str, str]:
        twins: dict[str, str] = {}
        for issue_id, name in files.items():
            match = self._name.fullmatch(name)
            if match is not None and match[1].upper() != issue_id:
                first = match[1].upper()
                twins |= {issue_id: files[first], first: name}
        return twins

    @override
    def finished(self, folder: Path) -> frozenset[str]:
        try:
            names = [path.name for path in (folder.parent / _COMPLETED).iterdir()]
        except FileNotFoundError:
            return frozenset()
        return frozenset(issue_id.casefold() for issue_id in self.files(names))

    @override
    def parse(self, data: bytes, issue_id: str) -> document.Fields:
        parts = document.parse_parts(data)
        named = parts.required("id").strip()
        if named.casefold() != issue_id.casefold():
            message = f"`id` is {named[:80]!r}, not that of the file name"
            raise document.MalformedError(parts.lines.get("id", 1), message)
        blocked_by, problem = parts.blockers("dependencies")
        assignees = (name.strip().lstrip("@") for name in parts.names("assignee") or () if name.strip(" @"))
        return document.Fields(
            title=parts.required("title"),
            state=parts.required("status").strip(),
            labels=normalise_labels(parts.names("labels") or ()),
            priority=self._rank(parts.values.get("priority")),
            assignee=next(assignees, None),
            blocked_by=blocked_by,
            blockers_problem=problem,
            created=_backlog_time(parts.values.get("created_date")),
            updated=_backlog_time(parts.values.get("updated_date")),
            description=document.description_of(_SECTION_MARK.sub("", parts.body)),
        )

    def _rank(self, value: object) -> int | None:
        """The rank of a priority, from 1 for the board's highest to 4."""
        name = value.strip().lower() if isinstance(value, str) else ""
        ranked = self._settings.priorities[:_MAX_RANK]
        return ranked.index(name) + 1 if name in ranked else None


def _backlog_time(value: object) -> datetime | None:
    """A time as Backlog.md writes it: in UTC, without an offset."""
    if not isinstance(value, str) or not _DATE.fullmatch(value.strip()):
        return None
    try:
        return datetime.fromisoformat(value.strip()).replace(tzinfo=UTC)
    except ValueError:
        return None
