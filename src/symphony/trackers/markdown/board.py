"""The board as the rest of the program sees it: issues with their blockers judged, new issues, moves.

Synchronous and usable alone (the command line does); `tracker` runs it in worker threads.
"""

import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path

from symphony.domain import Blocker, Issue, normalise_state
from symphony.trackers.base import TrackerError
from symphony.trackers.fields import tidy
from symphony.trackers.markdown import files
from symphony.trackers.markdown.config import BoardConfig
from symphony.trackers.markdown.document import (
    Draft,
    Fields,
    Layout,
    MalformedError,
    busy,
    id_problem,
    malformed,
    missing,
    next_number,
    parse_issue,
    refused,
    render_issue,
    replace_scalar,
    unreachable,
)

# Reading the board's folder: which issues are there, and what each file says right now.
#
# A file is parsed again only when its metadata changed. A file changed a moment ago is never remembered,
# because a second change in the same clock tick would leave the metadata as it was: for a fifth of a second
# where the file system tells fractions of seconds, whose ticks are 10 ms at most, else for two seconds.
# Total bounds: 20,000 issue files and 256 MB per reading; beyond them the reading fails rather than showing
# less.


MAX_FILES = 20_000
MAX_TOTAL_BYTES = 268_435_456
_SECOND_NS = 1_000_000_000
_SETTLED_NS = _SECOND_NS // 5
_COARSELY_SETTLED_NS = 2 * _SECOND_NS

_signature = attrgetter("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
"""What differs once a file has changed."""
_Known = tuple[object, Fields]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The issue files of one moment by id.

    `ids` are sorted, and `files` tells their files. `twins` are ids that cannot be told from another, with
    the name of the other's file. `by_name` tells the id of a name without case. `finished` are ids (case
    folded) that are over and elsewhere.
    """

    ids: tuple[str, ...]
    files: Mapping[str, str]
    twins: Mapping[str, str]
    by_name: Mapping[str, str]
    finished: frozenset[str]

    def named(self, text: str) -> str | None:
        """The id that a person means, whatever its case."""
        if text in self.files:
            return text
        return next((issue_id for issue_id in self.ids if issue_id.casefold() == text.casefold()), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What was read: usable issues, and for the others the error that says where and why."""

    issues: Mapping[str, Fields]
    problems: Mapping[str, TrackerError]


@dataclass(slots=True)
class _Reading:
    issues: dict[str, Fields] = field(default_factory=dict)
    problems: dict[str, TrackerError] = field(default_factory=dict)
    bytes_read: int = 0


class Store:
    """The issue files of one folder. Threads may share it: the worst case is reading a file twice.

    `unfinished` tells whether the last listing showed a file that is being written, or was when we crashed.
    """

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.folder = folder
        self._layout = layout
        self._place = f"{folder}{os.sep}"
        self._known: dict[str, _Known] = {}
        self._files: Mapping[str, str] = {}
        self.unfinished = False

    def path(self, issue_id: str) -> Path:
        """The file of an issue; only for ids that came out of a listing or were made by us."""
        return self.folder / self._files.get(issue_id, f"{issue_id}.md")

    def listing(self) -> Listing:
        """List the folder.

        Raises:
            TrackerError: the folder cannot be read, or holds more than 20,000 issues.
        """
        try:
            names = os.listdir(self.folder)  # noqa: PTH208 - names are all that is needed
            finished = self._layout.finished(self.folder)
        except OSError as error:
            raise unreachable(self.folder, error) from error
        found = self._layout.files(names)
        listing = Listing(
            ids=tuple(sorted(found)),
            files=found,
            twins=self._layout.twins(found),
            by_name={issue_id.casefold(): issue_id for issue_id in found},
            finished=finished,
        )
        self.unfinished = any(map(files.is_temporary, names))
        self._files = found
        for gone in [issue_id for issue_id in tuple(self._known) if issue_id not in found]:
            self._known.pop(gone, None)
        if len(listing.ids) > MAX_FILES:
            raise refused(f"{self.folder} holds {len(listing.ids)} issues, more than {MAX_FILES}")
        return listing

    def scan(self, listing: Listing, wanted: Iterable[str]) -> Scan:
        """Read the wanted ids of a listing; ids that are not in it, or gone since, are left out.

        Raises:
            TrackerError: the file system failed, or there is more than 256 MB to read.
        """
        reading = _Reading()
        for issue_id in dict.fromkeys(wanted):
            if issue_id in listing.files:
                self._take(issue_id, listing, reading)
        return Scan(issues=reading.issues, problems=reading.problems)

    def bytes_of(self, issue_id: str) -> bytes:
        """The file's bytes now.

        Raises:
            TrackerError: the file is refused; `FileNotFoundError` passes through.
        """
        path = self.path(issue_id)
        try:
            return files.read(path, root=self.folder)
        except files.RefusedFileError as error:
            raise malformed(path, 1, str(error), issue_id=issue_id) from error
        except PermissionError as error:
            raise malformed(path, 1, error.strerror or "not readable", issue_id=issue_id) from error

    def parse(self, issue_id: str, data: bytes) -> Fields:
        """The fields in `data`. Raises `TrackerError` with `path:line` when it is malformed."""
        try:
            return self._layout.parse(data, issue_id)
        except MalformedError as error:
            raise malformed(self.path(issue_id), error.line, error.message, issue_id=issue_id) from error

    def _take(self, issue_id: str, listing: Listing, reading: _Reading) -> None:
        try:
            self.check_name(issue_id, listing)
            seen = os.lstat(f"{self._place}{listing.files[issue_id]}")  # asked for every file at every poll
            signature, known = _signature(seen), self._known.get(issue_id)
            if known is None or known[0] != signature:
                known = self._read(issue_id, seen, reading)
            reading.issues[issue_id] = known[1]
        except FileNotFoundError:
            return
        except TrackerError as error:
            reading.problems[issue_id] = error
        except OSError as error:
            raise unreachable(self.path(issue_id), error) from error
        if reading.bytes_read > MAX_TOTAL_BYTES:
            raise refused(f"{self.folder} holds more than {MAX_TOTAL_BYTES} bytes of issues")

    def check_name(self, issue_id: str, listing: Listing) -> None:
        """Whether the name alone makes an issue unusable. Raises `TrackerError` that says why."""
        own, problem = listing.files[issue_id], id_problem(issue_id)
        if problem is not None:
            raise malformed(self.folder / own, 1, problem, issue_id=issue_id, hint="rename the file")
        if issue_id not in listing.twins:
            return
        other = listing.twins[issue_id]
        how = "differs only by case" if own.casefold() == other.casefold() else "has it too"
        problem = f"duplicate id: {self.folder / other} {how}"
        raise malformed(self.folder / own, 1, problem, issue_id=issue_id)

    def _read(self, issue_id: str, seen: os.stat_result, reading: _Reading) -> _Known:
        started_ns = time.time_ns()
        data = self.bytes_of(issue_id)
        reading.bytes_read += len(data)
        now_known = _signature(seen), self.parse(issue_id, data)
        if not stat.S_ISLNK(seen.st_mode) and _is_settled(seen, started_ns):
            self._known[issue_id] = now_known
        return now_known


def _is_settled(seen: os.stat_result, now_ns: int) -> bool:
    """Whether a change from now on will show. The change time tells the clock's grain: nobody can set it."""
    grain_ns = _SETTLED_NS if seen.st_ctime_ns % _SECOND_NS else _COARSELY_SETTLED_NS
    return max(seen.st_mtime_ns, seen.st_ctime_ns) < now_ns - grain_ns


# Which issues wait for others: blockers, and cycles among them. Pure (TR6).


_TOLD = 10


def find_cycles(blocked_by: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The cycle that an issue is in, for issues in one; every set of cycles gets at least one of them told.

    Args:
        blocked_by: for each open issue the open issues that block it; ids that are no key are ignored.

    Returns:
        For each member of a found cycle: the ids of that cycle, beginning with the member itself; of a long
        one the first ten, and then `...`.
    """
    stuck = _never_free(blocked_by)
    following = {issue: next(other for other in blocked_by[issue] if other in stuck) for issue in stuck}
    cycles: dict[str, tuple[str, ...]] = {}
    visited: set[str] = set()
    for start in sorted(stuck):
        ring = _walk(start, following, visited)
        for index, issue in enumerate(ring):
            cycles[issue] = _told(ring, index)
    return cycles


def _told(ring: tuple[str, ...], index: int) -> tuple[str, ...]:
    head = ring[index : index + _TOLD]
    head = (*head, *ring[: min(index, _TOLD - len(head))])
    return head if len(ring) <= _TOLD else (*head, "...")


def _never_free(blocked_by: Mapping[str, Sequence[str]]) -> set[str]:
    """Issues that stay blocked when everything that can be finished has been finished."""
    waiting = {
        issue: {other for other in others if other in blocked_by} for issue, others in blocked_by.items()
    }
    dependents: dict[str, list[str]] = {}
    for issue, others in waiting.items():
        for other in others:
            dependents.setdefault(other, []).append(issue)
    free = [issue for issue, others in waiting.items() if not others]
    while free:
        done = free.pop()
        free.extend(_released(done, dependents.get(done, ()), waiting))
        del waiting[done]
    return set(waiting)


def _released(done: str, dependents: Iterable[str], waiting: Mapping[str, set[str]]) -> list[str]:
    released = []
    for issue in dependents:
        waiting[issue].discard(done)
        if not waiting[issue]:
            released.append(issue)
    return released


def _walk(start: str, following: Mapping[str, str], visited: set[str]) -> tuple[str, ...]:
    """Follow the first blocker from `start`; the ring that closes, or nothing where it was walked before."""
    path: dict[str, None] = {}
    issue = start
    while issue not in visited:
        visited.add(issue)
        path[issue] = None
        issue = following[issue]
    if issue not in path:
        return ()
    members = list(path)
    return tuple(members[members.index(issue) :])


# From what files say to issues: blockers are resolved and it is decided who may be dispatched. Pure (TR6).
#
# Mapping (TR10): `id` and `identifier` are the file stem; `updated_at` stays null, because a file's time is
# that of its last checkout and not of a change; `blocked_by` is looked up whatever its case. An issue is
# dispatchable when its state is one of the board's and no blocker is open; a blocker that is unknown or
# unreadable counts as open, one that is finished and was put elsewhere does not.


class Judge:
    """Turns what files say into issues; `scan` must hold whatever blocks them."""

    def __init__(self, scan: Scan, listing: Listing, config: BoardConfig) -> None:
        self._scan = scan
        self._config = config
        self._states = {normalise_state(state) for state in config.states}
        self._terminal = {normalise_state(state) for state in config.terminal}
        self._finished = listing.finished
        self._by_name = listing.by_name
        waiting = {
            issue_id: fields
            for issue_id, fields in scan.issues.items()
            if fields.blocked_by and not self._is_terminal(fields.state)
        }
        self._cycles = find_cycles(
            {
                issue_id: [self._resolve(name) for name in fields.blocked_by]
                for issue_id, fields in waiting.items()
            }
        )

    def issue(self, issue_id: str) -> Issue:
        """The normalised issue of a file that is in the scan."""
        fields = self._scan.issues[issue_id]
        reason = self._reason(issue_id, fields)
        issue = Issue(
            id=issue_id,
            identifier=issue_id,
            title=fields.title,
            state=fields.state,
            dispatchable=reason is None,
            not_dispatchable_reason=reason,
            description=fields.description,
            priority=fields.priority,
            assignee_id=fields.assignee,
            labels=fields.labels,
            blocked_by=tuple(self._blocker(name) for name in fields.blocked_by),
            created_at=fields.created,
            updated_at=fields.updated,
        )
        return tidy(issue)  # an id is one line already: `names.id_problem`

    def _is_terminal(self, state: str) -> bool:
        return normalise_state(state) in self._terminal

    def _resolve(self, name: str) -> str:
        return self._by_name.get(name.casefold(), name)

    def _blocker(self, name: str) -> Blocker:
        issue_id = self._resolve(name)
        known = self._scan.issues.get(issue_id)
        return Blocker(id=issue_id, identifier=issue_id, state=None if known is None else known.state)

    def _reason(self, issue_id: str, fields: Fields) -> str | None:
        if self._is_terminal(fields.state):
            return None
        if normalise_state(fields.state) not in self._states:
            return f"state {fields.state!r} is not one of the board's: {', '.join(self._config.states)}"
        if fields.blockers_problem is not None:
            return fields.blockers_problem
        if issue_id in self._cycles:
            ring = self._cycles[issue_id]
            return f"blocked by itself in a cycle: {' -> '.join((*ring, issue_id))}"
        reasons = [self._open(blocker) for blocker in map(self._blocker, fields.blocked_by)]
        told = [reason for reason in reasons if reason is not None]
        return f"blocked by {', '.join(told)}" if told else None

    def _open(self, blocker: Blocker) -> str | None:
        if blocker.state is None and (blocker.id or "").casefold() in self._finished:
            return None
        if blocker.state is None:
            unreadable = blocker.id in self._scan.problems
            return f"{blocker.id} ({'unreadable' if unreadable else 'not on the board'})"
        return None if self._is_terminal(blocker.state) else f"{blocker.id} ({blocker.state})"


# Which numbers were given to issues of a board, so that none is given again, also when its file is deleted.
#
# The highest one is written down in a small file: one for each prefix, in a folder that outlasts the
# board's. What else carries an identifier (branches, workspaces, the journal) is told by whoever knows it.


_MAX_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueNumbers:
    """The numbers of one board.

    Attributes:
        folder: where the highest number is written down, in `<prefix>.number`.
        names: other names of issues that there are or were.
    """

    folder: Path
    names: frozenset[str] = frozenset()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from giving out a number meanwhile. Raises `OSError`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with files.locked(self.folder):
            yield

    def next(self, prefix: str, names: frozenset[str]) -> int:
        """The next number; `names` are those in the board's folder."""
        return max(next_number(prefix, self.names | names), self._noted(prefix) + 1)

    def note(self, prefix: str, number: int) -> None:
        """Write down that a number was given out; best effort, as it is not the only trace of it."""
        if number > self._noted(prefix):
            with suppress(OSError):
                self.folder.mkdir(parents=True, exist_ok=True)
                self._file(prefix).write_text(f"{number:0{_MAX_DIGITS}}\n", encoding="ascii")

    def _noted(self, prefix: str) -> int:
        try:
            text = files.read(self._file(prefix), root=self.folder).strip()
        except (OSError, files.RefusedFileError):
            return 0
        return int(text) if text.isdigit() and len(text) <= _MAX_DIGITS else 0

    def _file(self, prefix: str) -> Path:
        return self.folder / f".{prefix.casefold()}.number"


_ATTEMPTS = 8
_CREATE_ATTEMPTS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Usable issues in id order, and the errors of the others by id."""

    issues: tuple[Issue, ...]
    problems: Mapping[str, TrackerError]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveResult:
    """A state change; `before` equals `after` when there was nothing to do."""

    issue_id: str
    before: str
    after: str


class Board:
    """One board folder with its configuration."""

    def __init__(
        self, config: BoardConfig, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.config = config
        self.now = now
        self.store = Store(config.path, config.layout)

    def all(self) -> Snapshot:
        """Every issue. Raises `TrackerError` when the folder cannot be read."""
        listing = self.store.listing()
        return self._snapshot(self.store.scan(listing, listing.ids), listing, listing.ids)

    def some(self, ids: Collection[str]) -> Snapshot:
        """These issues, read with all that blocks them; ids that are not there are left out.

        Raises:
            TrackerError: the folder cannot be read.
        """
        listing = self.store.listing()
        wanted = [issue_id for issue_id in dict.fromkeys(ids) if issue_id in listing.files]
        return self._snapshot(self._closure(listing, wanted), listing, wanted)

    def find(self, text: str) -> Issue:
        """The issue a person names, whatever the case.

        Raises:
            TrackerError: it is not there, or its file is malformed.
        """
        listing = self.store.listing()
        issue_id = self._named(text, listing)
        snapshot = self._snapshot(self._closure(listing, (issue_id,)), listing, (issue_id,))
        for problem in snapshot.problems.values():
            raise problem
        if not snapshot.issues:
            raise missing(f"there is no issue {issue_id!r} in {self.config.path} any more")
        return snapshot.issues[0]

    def create(self, draft: Draft, numbers: IssueNumbers | None = None) -> Issue:
        """Write a new issue under the next number; two processes never get the same one.

        `numbers` tells which ones were given out before; without it only the board's folder does.

        Raises:
            TrackerError: the draft is no usable issue, or the folder cannot be written to.
        """
        if not self.config.layout.can_create:
            raise refused(f"{self.config.path} is the board of another program", hint="`backlog task create`")
        data = self._rendered(draft)
        numbers = numbers or IssueNumbers(folder=self.config.path)
        try:
            with files.locked(self.config.path):
                files.sweep(self.config.path)
            with numbers.held():
                issue_id = self._claim(data, numbers)
        except OSError as error:
            raise unreachable(self.config.path, error) from error
        return self.find(issue_id)

    def move(self, issue_id: str, state: str) -> MoveResult:
        """Put an issue into another state; only the bytes of that value change.

        Raises:
            TrackerError: no such issue or state, a malformed file, or a file that others keep changing.
        """
        target = self.legal_state(state)
        listing = self.store.listing()
        found = self._named(issue_id, listing)
        self.store.check_name(found, listing)
        path = self.store.path(found)
        try:
            with files.locked(self.config.path):
                if self.store.unfinished:
                    files.sweep(self.config.path)
                before = self._rewrite_state(found, path, target)
        except FileNotFoundError as error:
            raise missing(f"there is no issue {found!r} in {self.config.path} any more") from error
        except OSError as error:
            raise unreachable(path, error) from error
        return MoveResult(issue_id=found, before=before, after=target)

    def legal_state(self, text: str) -> str:
        """The configured spelling of a state. Raises `TrackerError` that lists the states."""
        state = self.config.state(text)
        if state is None:
            raise refused(f"there is no state {text[:80]!r}", hint=f"states: {', '.join(self.config.states)}")
        return state

    def _named(self, text: str, listing: Listing) -> str:
        issue_id = listing.named(text)
        if issue_id is None:
            raise missing(f"there is no issue {text[:80]!r} in {self.config.path}")
        return issue_id

    def _rendered(self, draft: Draft) -> bytes:
        self.legal_state(draft.state)
        try:
            data = render_issue(draft, self.now())
            parse_issue(data)
        except (ValueError, MalformedError) as error:
            raise refused(f"the issue cannot be written: {error}") from error
        if len(data) > files.MAX_FILE_BYTES:
            raise refused("the issue is larger than 1 MB", hint="put large material into the repository")
        return data

    def _claim(self, data: bytes, numbers: IssueNumbers) -> str:
        names = frozenset(path.name.removesuffix(".md") for path in self.config.path.iterdir())
        number = numbers.next(self.config.prefix, names)
        for candidate in range(number, number + _CREATE_ATTEMPTS):
            issue_id = f"{self.config.prefix}-{candidate}"
            if files.create(self.store.path(issue_id), data):
                numbers.note(self.config.prefix, candidate)
                return issue_id
        raise busy(self.config.path, _CREATE_ATTEMPTS)

    def _rewrite_state(self, issue_id: str, path: Path, target: str) -> str:
        for _ in range(_ATTEMPTS):
            data = self.store.bytes_of(issue_id)
            before = self.store.parse(issue_id, data).state
            if before == target:
                return before
            try:
                changed = replace_scalar(data, self.config.layout.state_key, target)
                if files.replace(path, changed, expected=data, root=self.config.path):
                    return before
            except MalformedError as error:
                raise malformed(path, error.line, error.message, issue_id=issue_id) from error
            except files.RefusedFileError as error:
                raise malformed(path, 1, str(error), issue_id=issue_id) from error
        raise busy(path, _ATTEMPTS)

    def _closure(self, listing: Listing, wanted: Iterable[str]) -> Scan:
        """The wanted issues and, through any number of steps, the issues that block them."""
        issues: dict[str, Fields] = {}
        problems: dict[str, TrackerError] = {}
        pending = list(wanted)
        while pending:
            scan = self.store.scan(listing, pending)
            issues.update(scan.issues)
            problems.update(scan.problems)
            named = (
                listing.by_name.get(name.casefold())
                for fields in scan.issues.values()
                for name in fields.blocked_by
            )
            pending = [issue_id for issue_id in dict.fromkeys(named) if issue_id and issue_id not in issues]
            pending = [issue_id for issue_id in pending if issue_id not in problems]
        return Scan(issues=issues, problems=problems)

    def _snapshot(self, scan: Scan, listing: Listing, wanted: Iterable[str]) -> Snapshot:
        judge = Judge(scan, listing, self.config)
        ids = list(wanted)
        return Snapshot(
            issues=tuple(judge.issue(issue_id) for issue_id in ids if issue_id in scan.issues),
            problems={issue_id: scan.problems[issue_id] for issue_id in ids if issue_id in scan.problems},
        )
