"""Reading the board's folder: which issues are there, and what each file says right now.

A file is parsed again only when its metadata changed. A file changed within the last two seconds is never
remembered, because a second change in the same clock tick would leave the metadata as it was.
Total bounds: 20,000 issue files and 256 MB per reading; beyond them the reading fails rather than showing
less.
"""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from symphony.trackers.base import TrackerError
from symphony.trackers.markdown import files
from symphony.trackers.markdown.document import Fields, MalformedError, parse_issue
from symphony.trackers.markdown.names import case_twins, id_problem, is_issue_file
from symphony.trackers.markdown.refusals import malformed, refused, unreachable

__all__ = ["MAX_FILES", "MAX_TOTAL_BYTES", "Listing", "Scan", "Store"]

MAX_FILES = 20_000
MAX_TOTAL_BYTES = 268_435_456
_SETTLED_NS = 2_000_000_000

Signature = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The issue files of one moment by id, and those ids whose name alone makes them unusable.

    `present` is the same as `ids`, to look one up in; `by_name` tells the id of a name without case.
    """

    ids: tuple[str, ...] = ()
    twins: Mapping[str, str] = field(default_factory=dict)
    present: frozenset[str] = frozenset()
    by_name: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, stems: tuple[str, ...]) -> Self:
        """What follows from the names of the files."""
        return cls(
            ids=stems,
            twins=case_twins(stems),
            present=frozenset(stems),
            by_name={stem.casefold(): stem for stem in stems},
        )

    def named(self, text: str) -> str | None:
        """The id that a person means, whatever its case."""
        if text in self.present:
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

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._place = f"{folder}{os.sep}"
        self._known: dict[str, tuple[Signature, Fields]] = {}
        self.unfinished = False
        self._names: list[str] | None = None
        self._listing = Listing()

    def path(self, issue_id: str) -> Path:
        """The file of an issue; only for ids that came out of a listing or were made by us."""
        return self.folder / f"{issue_id}.md"

    def listing(self) -> Listing:
        """List the folder.

        Raises:
            TrackerError: the folder cannot be read, or holds more than 20,000 issues.
        """
        try:
            names = os.listdir(self.folder)  # noqa: PTH208 - names are all that is needed
        except OSError as error:
            raise unreachable(self.folder, error) from error
        hidden = [name for name in names if name.startswith(".")]
        self.unfinished = any(map(files.is_temporary, hidden))
        shown = [name for name in names if not name.startswith(".")] if hidden else names
        if shown != self._names:  # hardly ever; what follows from the names is known otherwise
            ids = tuple(sorted([name[:-3] for name in shown if name.endswith(".md") and is_issue_file(name)]))
            self._forget(ids)
            self._listing, self._names = Listing.of(ids), shown
        listing = self._listing
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
            if issue_id in listing.present:
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
            return parse_issue(data)
        except MalformedError as error:
            raise malformed(self.path(issue_id), error.line, error.message, issue_id=issue_id) from error

    def _take(self, issue_id: str, listing: Listing, reading: _Reading) -> None:
        try:
            self._check_name(issue_id, listing)
            reading.issues[issue_id] = self._fields(issue_id, reading)
        except FileNotFoundError:
            return
        except TrackerError as error:
            reading.problems[issue_id] = error
        except OSError as error:
            raise unreachable(self.path(issue_id), error) from error
        if reading.bytes_read > MAX_TOTAL_BYTES:
            raise refused(f"{self.folder} holds more than {MAX_TOTAL_BYTES} bytes of issues")

    def _check_name(self, issue_id: str, listing: Listing) -> None:
        problem = id_problem(issue_id)
        if problem is not None:
            raise malformed(self.path(issue_id), 1, problem, issue_id=issue_id, hint="rename the file")
        if issue_id in listing.twins:
            other = self.path(listing.twins[issue_id])
            raise malformed(
                self.path(issue_id), 1, f"duplicate id: {other} differs only by case", issue_id=issue_id
            )

    def _fields(self, issue_id: str, reading: _Reading) -> Fields:
        seen = os.lstat(f"{self._place}{issue_id}.md")  # asked for every file at every poll
        signature = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
        known = self._known.get(issue_id)
        if known is not None and known[0] == signature:
            return known[1]
        started_ns = time.time_ns()
        data = self.bytes_of(issue_id)
        reading.bytes_read += len(data)
        fields = self.parse(issue_id, data)
        if not self.path(issue_id).is_symlink() and max(signature[3:]) < started_ns - _SETTLED_NS:
            self._known[issue_id] = (signature, fields)
        return fields

    def _forget(self, stems: Iterable[str]) -> None:
        for gone in set(self._known).difference(stems):
            self._known.pop(gone, None)
