"""The board: issues with their blockers, new issues, moves.

It is synchronous, and the command line uses it directly; `tracker` runs it in worker threads.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from msgspec import Struct

from symphony.domain import Blocker, Issue, normalise_state
from symphony.trackers.base import TrackerError
from symphony.trackers.fields import tidy
from symphony.trackers.markdown import document, files
from symphony.trackers.markdown.config import BoardConfig
from symphony.trackers.markdown.errors import busy, malformed, missing, refused, unreachable
from symphony.trackers.markdown.store import BoardFiles, Scan, Store

_REPLACE_ATTEMPTS = 8
_CREATE_ATTEMPTS = 1_000
_MAX_SHOWN_CYCLE = 10
_MAX_DIGITS = 9


# --- blockers --------------------------------------------------------------------------------------------


def find_cycles(blocked_by: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Cycles of issues that block each other.

    Args:
        blocked_by: for each open issue, the open issues that block it; ids that are not a key are ignored.

    Returns:
        For each member of a cycle the ids of the cycle, beginning with the member; for a long cycle the first
        ten and `...`. Of connected cycles at least one is found.
    """
    waiting = {
        issue: [other for other in others if other in blocked_by] for issue, others in blocked_by.items()
    }
    sorter = TopologicalSorter(waiting)
    with suppress(CycleError):
        sorter.prepare()
    stuck = set(waiting)  # in a cycle, or blocked by one
    while free := sorter.get_ready():
        stuck.difference_update(free)
        sorter.done(*free)

    first_blocker = {issue: next(other for other in waiting[issue] if other in stuck) for issue in stuck}
    cycles: dict[str, tuple[str, ...]] = {}
    visited: set[str] = set()
    for start in sorted(stuck):
        path: list[str] = []
        issue = start
        while issue not in visited:
            visited.add(issue)
            path.append(issue)
            issue = first_blocker[issue]
        if issue not in path:  # it led to an earlier path
            continue
        cycle = path[path.index(issue) :]
        for index, member in enumerate(cycle):
            shown = [*cycle[index : index + _MAX_SHOWN_CYCLE], *cycle[:index]][:_MAX_SHOWN_CYCLE]
            cycles[member] = tuple(shown if len(cycle) <= _MAX_SHOWN_CYCLE else [*shown, "..."])
    return cycles


class BoardIssueReader:
    """Makes issues from the fields of files; the scan must contain all blockers.

    Id and identifier are the file stem. `updated_at` is not the time of the file, because a checkout changes
    that. An issue is dispatchable if its state is one of the board's and no blocker is open. An unknown or
    unreadable blocker counts as open.

    `known` caches the issues that depend only on their file, together with its fields.
    """

    def __init__(
        self,
        scan: Scan,
        listing: BoardFiles,
        config: BoardConfig,
        known: dict[str, tuple[document.Fields, Issue]],
    ) -> None:
        self._scan, self._listing, self._config, self._known = scan, listing, config, known
        self._states = set(map(normalise_state, config.states))
        self._terminal = set(map(normalise_state, config.terminal))
        self._cycles = find_cycles(
            {
                issue_id: [self._id_of(name) for name in fields.blocked_by]
                for issue_id, fields in scan.issues.items()
                if fields.blocked_by and not self._is_terminal(fields.state)
            }
        )

    def issue(self, issue_id: str) -> Issue:
        """The issue of a file in the scan."""
        fields = self._scan.issues[issue_id]
        before, known = self._known.get(issue_id, (None, None))
        if known is not None and before is fields:
            return known
        blockers = tuple(map(self._blocker, fields.blocked_by))
        reason = self._objection(issue_id, fields, blockers)
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
            blocked_by=blockers,
            created_at=fields.created,
            updated_at=fields.updated,
        )
        issue = tidy(issue)  # never malformed: `store.id_problem` has checked the id
        if not fields.blocked_by:
            self._known[issue_id] = (fields, issue)
        return issue

    def _is_terminal(self, state: str) -> bool:
        return normalise_state(state) in self._terminal

    def _id_of(self, name: str) -> str:
        return self._listing.by_name.get(name.casefold(), name)

    def _blocker(self, name: str) -> Blocker:
        issue_id = self._id_of(name)
        known = self._scan.issues.get(issue_id)
        return Blocker(id=issue_id, identifier=issue_id, state=None if known is None else known.state)

    def _objection(self, issue_id: str, fields: document.Fields, blockers: Iterable[Blocker]) -> str | None:
        """Why an issue is held back."""
        if self._is_terminal(fields.state):
            return None
        if normalise_state(fields.state) not in self._states:
            return f"state {fields.state!r} is not one of the board's: {', '.join(self._config.states)}"
        if fields.blockers_problem is not None:
            return fields.blockers_problem
        if issue_id in self._cycles:
            cycle = (*self._cycles[issue_id], issue_id)
            return f"blocked by itself in a cycle: {' -> '.join(cycle)}"
        shown = [
            f"{blocker.id} ({blocker.state or self._why_unknown(str(blocker.id))})"
            for blocker in blockers
            if not (blocker.state and self._is_terminal(blocker.state))
            and (blocker.state or str(blocker.id).casefold() not in self._listing.finished)
        ]
        return f"blocked by {', '.join(shown)}" if shown else None

    def _why_unknown(self, issue_id: str) -> str:
        return "unreadable" if issue_id in self._scan.problems else "not on the board"


# --- numbers ---------------------------------------------------------------------------------------------


def next_number(prefix: str, names: Iterable[str]) -> int:
    """One more than the highest number after `<prefix>-` in the names, ignoring case."""
    pattern = re.compile(rf"{re.escape(prefix)}-(\d{{1,{_MAX_DIGITS}}})", re.IGNORECASE | re.ASCII)
    numbers = (pattern.fullmatch(name) for name in names)
    return 1 + max((int(match[1]) for match in numbers if match), default=0)


class IssueNumbers(Struct, frozen=True, kw_only=True):
    """The numbers of a board's issues. No number is used again, even if its file is deleted.

    Attributes:
        folder: has the highest number in `.<prefix>.number`; it outlives the board's folder.
        names: other traces of issues: branches, workspaces, entries of the journal.
    """

    folder: Path
    names: frozenset[str] = frozenset()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Prevent other processes from taking a number meanwhile. Raises `OSError`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with files.locked(self.folder):
            yield

    def next(self, prefix: str, names: frozenset[str]) -> int:
        """The next number; `names` are the file names in the board's folder."""
        return max(next_number(prefix, self.names | names), self._highest(prefix) + 1)

    def note(self, prefix: str, number: int) -> None:
        """Record a number. Errors are ignored, because other traces of it remain."""
        if number > self._highest(prefix):
            with suppress(OSError):
                self.folder.mkdir(parents=True, exist_ok=True)
                self._file(prefix).write_text(f"{number:0{_MAX_DIGITS}}\n", encoding="ascii")

    def _highest(self, prefix: str) -> int:
        try:
            text = files.read(self._file(prefix), root=self.folder).strip()
        except (OSError, files.RefusedFileError):
            return 0
        return int(text) if text.isdigit() and len(text) <= _MAX_DIGITS else 0

    def _file(self, prefix: str) -> Path:
        return self.folder / f".{prefix.casefold()}.number"


# --- the board -------------------------------------------------------------------------------------------


class BoardIssues(Struct, frozen=True, kw_only=True):
    """Valid issues in the order of their ids, and the errors of the others by id."""

    issues: tuple[Issue, ...]
    problems: Mapping[str, TrackerError]


class MoveResult(Struct, frozen=True, kw_only=True):
    """A move; `before` equals `after` if there was nothing to do."""

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
        self._known: dict[str, tuple[document.Fields, Issue]] = {}

    def all(self) -> BoardIssues:
        """Every issue. Raises `TrackerError` if the folder cannot be read."""
        listing = self.store.listing()
        for deleted in self._known.keys() - listing.files.keys():
            self._known.pop(deleted, None)
        return self._snapshot(self.store.scan(listing, listing.files), listing, listing.files)

    def some(self, ids: Collection[str]) -> BoardIssues:
        """These issues, read together with their blockers; unknown ids are omitted.

        Raises:
            TrackerError: the folder cannot be read.
        """
        listing = self.store.listing_of(ids)
        wanted = [issue_id for issue_id in dict.fromkeys(ids) if issue_id in listing.files]
        return self._snapshot(self._scan_with_blockers(listing, wanted), listing, wanted)

    def find(self, name: str) -> Issue:
        """The issue that a person names, ignoring case.

        Raises:
            TrackerError: it does not exist, or its file is malformed.
        """
        listing = self.store.listing_of([name])
        issue_id = self._find(name, listing)
        snapshot = self._snapshot(self._scan_with_blockers(listing, [issue_id]), listing, [issue_id])
        for problem in snapshot.problems.values():
            raise problem
        if not snapshot.issues:
            raise missing(f"there is no issue {issue_id!r} in {self.config.path} any more")
        return snapshot.issues[0]

    def create(self, draft: document.IssueDraft, numbers: IssueNumbers | None = None) -> Issue:
        """Write a new issue under the next number; two processes never get the same one.

        A draft with a `key` is written once: an issue with this key is returned as it is. `numbers` has the
        numbers used so far; without it only the board's folder counts.

        Raises:
            TrackerError: the draft is not a valid issue, or the folder cannot be written to.
        """
        if not self.config.layout.can_create:
            raise refused(f"{self.config.path} is the board of another program", hint="`backlog task create`")
        self.known_state(draft.state)
        try:
            data = document.render_issue(draft, self.now())
            document.parse_issue(data)
        except (ValueError, document.MalformedError) as error:
            raise refused(f"the issue cannot be written: {error}") from error
        if len(data) > files.MAX_FILE_BYTES:
            raise refused("the issue is larger than 1 MB", hint="put large material into the repository")
        numbers = numbers or IssueNumbers(folder=self.config.path)
        try:
            with files.locked(self.config.path):
                files.sweep(self.config.path)
            with numbers.locked():
                issue_id = self._with_key(draft.key) or self._create_file(data, numbers)
        except OSError as error:
            raise unreachable(self.config.path, error) from error
        return self.find(issue_id)

    def _with_key(self, key: str | None) -> str | None:
        if key is None:
            return None
        listing = self.store.listing()
        scan = self.store.scan(listing, listing.files)
        return next((issue_id for issue_id, fields in scan.issues.items() if fields.key == key), None)

    def _create_file(self, data: bytes, numbers: IssueNumbers) -> str:
        prefix = self.config.prefix
        names = frozenset(path.name.removesuffix(".md") for path in self.config.path.iterdir())
        first = numbers.next(prefix, names)
        for number in range(first, first + _CREATE_ATTEMPTS):
            issue_id = f"{prefix}-{number}"
            if files.create(self.store.path(issue_id), data):
                numbers.note(prefix, number)
                return issue_id
        raise busy(self.config.path, _CREATE_ATTEMPTS)

    def move(self, name: str, state: str) -> MoveResult:
        """Move an issue; only the bytes of its state change.

        Raises:
            TrackerError: the issue or state does not exist, the file is malformed, or others keep changing
                it.
        """
        target = self.legal_state(state)
        listing = self.store.listing_of([name])
        issue_id = self._find(name, listing)
        self.store.check_name(issue_id, listing)
        path = self.store.path(issue_id)
        try:
            with files.locked(self.config.path):
                if self.store.has_unfinished_writes:
                    files.sweep(self.config.path)
                before = self._replace_state(issue_id, path, target)
        except FileNotFoundError as error:
            raise missing(f"there is no issue {issue_id!r} in {self.config.path} any more") from error
        except document.MalformedError as error:
            raise malformed(path, error.line, error.message, issue_id=issue_id) from error
        except files.RefusedFileError as error:
            raise malformed(path, 1, str(error), issue_id=issue_id) from error
        except OSError as error:
            raise unreachable(path, error) from error
        return MoveResult(issue_id=issue_id, before=before, after=target)

    def _replace_state(self, issue_id: str, path: Path, target: str) -> str:
        for _ in range(_REPLACE_ATTEMPTS):
            data = self.store.read(issue_id)
            before = self.store.parse(issue_id, data).state
            if before == target:
                return before
            changed = document.replace_scalar(data, self.config.layout.state_key, target)
            if files.replace(path, changed, expected=data, root=self.config.path):
                return before
        raise busy(path, _REPLACE_ATTEMPTS)

    def legal_state(self, name: str) -> str:
        """The configured spelling of a state. Raises `TrackerError` that lists the states."""
        state = self.config.state(name)
        if state is None:
            raise refused(f"there is no state {name[:80]!r}", hint=f"states: {', '.join(self.config.states)}")
        return state

    def known_state(self, name: str) -> str:
        """As `legal_state`, but also accepts states in which issues already are."""
        if (state := self.config.state(name)) is None:
            stood = (issue.state for issue in self.all().issues)
            state = next((one for one in stood if normalise_state(one) == normalise_state(name)), None)
        return self.legal_state(name) if state is None else state

    def _find(self, name: str, listing: BoardFiles) -> str:
        issue_id = listing.find(name)
        if issue_id is None:
            raise missing(f"there is no issue {name[:80]!r} in {self.config.path}")
        return issue_id

    def _scan_with_blockers(self, listing: BoardFiles, ids: Iterable[str]) -> Scan:
        """These issues and, through any number of steps, the issues that block them."""
        found = Scan()
        pending = list(ids)
        while pending:
            scan = self.store.scan(listing, pending)
            found.issues |= scan.issues
            found.problems |= scan.problems
            names = (name for fields in scan.issues.values() for name in fields.blocked_by)
            blockers = dict.fromkeys(listing.by_name.get(name.casefold()) for name in names)
            pending = [
                issue_id
                for issue_id in blockers
                if issue_id and issue_id not in found.issues and issue_id not in found.problems
            ]
        return found

    def _snapshot(self, scan: Scan, listing: BoardFiles, ids: Iterable[str]) -> BoardIssues:
        reader = BoardIssueReader(scan, listing, self.config, self._known)
        return BoardIssues(
            issues=tuple(reader.issue(issue_id) for issue_id in ids if issue_id in scan.issues),
            problems={issue_id: scan.problems[issue_id] for issue_id in ids if issue_id in scan.problems},
        )
