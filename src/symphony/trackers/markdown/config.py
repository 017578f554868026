"""What `tracker.provider` and the state lists mean for the Markdown board (TR10)."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from typing_extensions import override

from symphony.domain import normalise_labels, normalise_state
from symphony.frontmatter import FrontMatterError, Profile, load
from symphony.trackers.base import ConfigProblem, TrackerConfigError
from symphony.trackers.markdown import files as board_files
from symphony.trackers.markdown.document import (
    OWN,
    Fields,
    Layout,
    MalformedError,
    Parts,
    blockers,
    described,
    invalid_config,
    names_in,
    parse_parts,
    required,
)

# The layout of Backlog.md 1.52: `backlog/tasks/task-12 - Title.md`, states in `backlog/config.yml`.
#
# That program and this daemon work on the same files. Tasks are read as it writes them; the only thing that
# is ever written into one is the state, and not one other byte. Titles in file names mean nothing. A task
# that was moved to `completed` is over; one that was archived is gone, and Backlog.md removes it from
# dependencies.


CONFIG = "config.yml"
TASKS, COMPLETED, NOTES = "tasks", "completed", ".symphony"
DEFAULT_TASK_PREFIX = "task"
DEFAULT_PRIORITIES = ("high", "medium", "low")
_LAST_RANK = 4
_TASK_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
_MARK = re.compile(r"[ \t]*<!--[ \t]*[A-Z:_-]+:(?:BEGIN|END)[ \t]*-->[ \t]*\r?\n?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogSettings:
    """What `config.yml` says: states in their order, what ids begin with, priorities from the highest on."""

    statuses: tuple[str, ...]
    prefix: str = DEFAULT_TASK_PREFIX
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
    prefix = values.get("task_prefix", DEFAULT_TASK_PREFIX)
    if not isinstance(prefix, str) or not _TASK_PREFIX.fullmatch(prefix):
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


PROVIDER_KEYS = ("path", "prefix", "states", "layout")
OWN_LAYOUT, BACKLOG_LAYOUT = "symphony", "backlog.md"
DEFAULT_BACKLOG = "backlog"
BACKLOG_ACTIVE = ("To Do", "Todo", "In Progress")
DEFAULT_PATH = ".symphony/issues"
DEFAULT_PREFIX = "SYM"
DEFAULT_STATES = ("Backlog", "Todo", "In Progress", "Human Review", "Done", "Cancelled")
DEFAULT_ACTIVE = ("Todo", "In Progress")
DEFAULT_TERMINAL = ("Done", "Cancelled")

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardConfig:
    """Where the board is and what its states mean.

    Attributes:
        path: the folder of the issue files, absolute.
        prefix: what stands before the number of a new id (`SYM` gives `SYM-12`).
        states: every legal state in the order people see them, in the spelling that is written.
        active: states in which an issue is worked on; `terminal`: states in which it is over.
        layout: how issues lie in the folder.
        notes: the folder of the comments, where it is another one.
    """

    path: Path
    prefix: str = DEFAULT_PREFIX
    states: tuple[str, ...] = DEFAULT_STATES
    active: tuple[str, ...] = DEFAULT_ACTIVE
    terminal: tuple[str, ...] = DEFAULT_TERMINAL
    layout: Layout = OWN
    notes: Path | None = None

    @property
    def comments(self) -> Path:
        """Below which folder the comments are."""
        return self.notes or self.path

    @classmethod
    def of(
        cls,
        provider: Mapping[str, Any],
        *,
        base_dir: Path,
        active: Sequence[str] | None = None,
        terminal: Sequence[str] | None = None,
    ) -> "BoardConfig":
        """Read `path`, `prefix` and `states`; relative paths start at `base_dir`, WORKFLOW.md's directory.

        With `layout: backlog.md` the states are those of its `config.yml`, which is read here.

        Other keys are ignored. Without `states` the default states are legal, and with them whatever
        `active` and `terminal` name. Null for `active` or `terminal` stands for those defaults that are
        legal states; an empty list is an empty list: nothing is worked on, or nothing is ever over.

        Raises:
            TrackerConfigError: category `invalid_tracker_config`, every key that does not fit.
        """
        problems: list[ConfigProblem] = []
        layout = provider.get("layout", OWN_LAYOUT)
        if layout == BACKLOG_LAYOUT:
            return cls._of_backlog(provider, base_dir, active, terminal)
        if layout != OWN_LAYOUT:
            problems.append(
                invalid_config("tracker.provider.layout", f"must be {OWN_LAYOUT} or {BACKLOG_LAYOUT}")
            )
        wanted = provider.get("states")
        everything = _unique((*DEFAULT_STATES, *(active or ()), *(terminal or ())))
        states = everything if wanted is None else _states(wanted, problems)
        config = cls(
            path=_path(provider.get("path", DEFAULT_PATH), base_dir, problems),
            prefix=_prefix(provider.get("prefix", DEFAULT_PREFIX), problems),
            states=states,
            active=_chosen("tracker.active_states", active, DEFAULT_ACTIVE, states, problems),
            terminal=_chosen("tracker.terminal_states", terminal, DEFAULT_TERMINAL, states, problems),
        )
        if problems:
            raise TrackerConfigError(problems)
        return config

    @classmethod
    def _of_backlog(
        cls,
        provider: Mapping[str, Any],
        base_dir: Path,
        active: Sequence[str] | None,
        terminal: Sequence[str] | None,
    ) -> "BoardConfig":
        problems: list[ConfigProblem] = []
        folder = _path(provider.get("path", DEFAULT_BACKLOG), base_dir, problems)
        problems.extend(
            invalid_config(
                f"tracker.provider.{key}", f"is not for this layout: {CONFIG} of the board says it"
            )
            for key in ("prefix", "states")
            if key in provider
        )
        if problems:
            raise TrackerConfigError(problems)
        try:
            known = read_settings(folder)
        except (MalformedError, OSError) as error:
            raise TrackerConfigError([_no_backlog(folder / CONFIG, error)]) from error
        states = known.statuses
        config = cls(
            path=folder / TASKS,
            prefix=known.prefix.upper(),
            states=states,
            active=_chosen("tracker.active_states", active, BACKLOG_ACTIVE, states, problems),
            terminal=_chosen("tracker.terminal_states", terminal, states[-1:], states, problems),
            layout=BacklogLayout(known),
            notes=folder / NOTES,
        )
        if problems:
            raise TrackerConfigError(problems)
        return config

    def state(self, text: str) -> str | None:
        """The configured spelling of a state, or null when there is no such state (DM7)."""
        return next((state for state in self.states if normalise_state(state) == normalise_state(text)), None)


def _path(value: object, base_dir: Path, problems: list[ConfigProblem]) -> Path:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        problems.append(invalid_config("tracker.provider.path", "must be the path of a folder"))
        return base_dir
    try:
        return base_dir.absolute() / Path(value).expanduser()
    except RuntimeError as error:
        problems.append(invalid_config("tracker.provider.path", f"cannot be used: {error}"))
        return base_dir


def _no_backlog(file: Path, error: MalformedError | OSError) -> ConfigProblem:
    if isinstance(error, OSError):
        hint = "`backlog init` makes a board; `tracker.provider.path` says where it is"
        what = f"{file}: {error.strerror or type(error).__name__}"
        return invalid_config("tracker.provider.path", f"leads to no board of Backlog.md: {what}", hint=hint)
    what = f"{file}:{error.line}: {error.message}"
    return invalid_config("tracker.provider.path", f"leads to a board that cannot be used: {what}")


def _prefix(value: object, problems: list[ConfigProblem]) -> str:
    if isinstance(value, str) and _PREFIX.fullmatch(value):
        return value
    rule = "must begin with a letter and hold at most 32 letters, digits, `_` and `-`"
    problems.append(invalid_config("tracker.provider.prefix", rule))
    return DEFAULT_PREFIX


def _states(value: object, problems: list[ConfigProblem]) -> tuple[str, ...]:
    """The legal states; empty where they cannot be told, and then nobody is held to them."""
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        problems.append(invalid_config("tracker.provider.states", "must be a list of names"))
        return ()
    states = _unique(value)
    if not states:
        problems.append(invalid_config("tracker.provider.states", "must name at least one state"))
    return states


def _chosen(
    key: str,
    wanted: Sequence[str] | None,
    default: Sequence[str],
    states: Sequence[str],
    problems: list[ConfigProblem],
) -> tuple[str, ...]:
    """The states of one list in their legal spelling; names outside `states` are refused, blanks ignored."""
    legal = {normalise_state(state): state for state in states}
    names = _unique(wanted or ())
    if not legal:
        return names
    unknown = [name for name in names if normalise_state(name) not in legal]
    problems.extend(
        invalid_config(
            key, f"names {name!r}, which is no state of the board", hint=f"states: {', '.join(states)}"
        )
        for name in unknown
    )
    chosen = names
    if wanted is None:
        chosen = tuple(state for state in default if normalise_state(state) in legal)
    if wanted is None and not chosen:
        problems.append(invalid_config(key, "must be set: no state of the board has a default name"))
    return tuple(legal[normalise_state(name)] for name in chosen if name not in unknown)


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """Trimmed names without blanks (DM7) or repeats, in first-seen order and spelling."""
    seen: dict[str, str] = {}
    for name in names:
        if name.strip():
            seen.setdefault(normalise_state(name), name.strip())
    return tuple(seen.values())
