"""The board as the rest of the program sees it: issues with their blockers judged, new issues, moves.

Synchronous and usable alone (the command line does); `tracker` runs it in worker threads.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from symphony.domain.issue import Issue
from symphony.trackers.base import TrackerError
from symphony.trackers.markdown import files
from symphony.trackers.markdown.config import BoardConfig
from symphony.trackers.markdown.document import (
    Draft,
    Fields,
    MalformedError,
    parse_issue,
    render_issue,
    replace_scalar,
)
from symphony.trackers.markdown.judge import Judge
from symphony.trackers.markdown.numbers import Numbers
from symphony.trackers.markdown.refusals import busy, malformed, missing, refused, unreachable
from symphony.trackers.markdown.store import Listing, Scan, Store

__all__ = ["Board", "Moved", "Snapshot"]

_ATTEMPTS = 8
_CREATE_ATTEMPTS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Usable issues in id order, and the errors of the others by id."""

    issues: tuple[Issue, ...]
    problems: Mapping[str, TrackerError]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
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

    def create(self, draft: Draft, numbers: Numbers | None = None) -> Issue:
        """Write a new issue under the next number; two processes never get the same one.

        `numbers` tells which ones were given out before; without it only the board's folder does.

        Raises:
            TrackerError: the draft is no usable issue, or the folder cannot be written to.
        """
        if not self.config.layout.can_create:
            raise refused(f"{self.config.path} is the board of another program", hint="`backlog task create`")
        data = self._rendered(draft)
        numbers = numbers or Numbers(folder=self.config.path)
        try:
            with files.locked(self.config.path):
                files.sweep(self.config.path)
            with numbers.held():
                issue_id = self._claim(data, numbers)
        except OSError as error:
            raise unreachable(self.config.path, error) from error
        return self.find(issue_id)

    def move(self, issue_id: str, state: str) -> Moved:
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
        return Moved(issue_id=found, before=before, after=target)

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

    def _claim(self, data: bytes, numbers: Numbers) -> str:
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
