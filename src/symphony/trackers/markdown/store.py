"""Reading the board's folder: which issues are there, and what each file says right now.

A file is parsed again only when its metadata changed. A file changed a moment ago is never remembered,
because a second change in the same clock tick would leave the metadata as it was: for a fifth of a second
where the file system tells fractions of seconds, whose ticks are 10 ms at most, else for two seconds.
Total bounds: 20,000 issue files and 256 MB per reading; beyond them the reading fails rather than showing
less.
"""

import os
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

from symphony.trackers.base import TrackerError
from symphony.trackers.markdown import files
from symphony.trackers.markdown.document import Fields, MalformedError
from symphony.trackers.markdown.layout import Layout
from symphony.trackers.markdown.names import id_problem
from symphony.trackers.markdown.refusals import malformed, refused, unreachable

__all__ = ["MAX_FILES", "MAX_TOTAL_BYTES", "Listing", "Scan", "Store"]

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
