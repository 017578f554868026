"""Reads the issues in the board's folder.

A file is parsed again only if its metadata changed. A file that changed a moment ago is not remembered.

A scan fails beyond 20,000 issue files or 256 MB; it never returns only a part.
"""

import os
import stat
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from symphony.domain import UnsafeKeyError, issues_named, workspace_key
from symphony.files import has_settled, is_draft, signature
from symphony.trackers.base import TrackerError
from symphony.trackers.markdown import files
from symphony.trackers.markdown.document import Fields, MalformedError
from symphony.trackers.markdown.errors import malformed, refused, unreachable
from symphony.trackers.markdown.layout import BoardLayout

MAX_FILES = 20_000
MAX_TOTAL_BYTES = 268_435_456


def id_problem(stem: str) -> str | None:
    """Why the stem of a file name cannot be an id."""
    if stem != stem.strip() or not stem:
        return "the file name begins or ends with a space"
    if not stem.isprintable():
        return "the file name has control or undecodable characters"
    try:
        workspace_key(stem)
    except UnsafeKeyError as error:
        return str(error)
    return None


class BoardFiles(Struct, frozen=True, kw_only=True):
    """The issue files at one moment.

    Attributes:
        files: file names by id, sorted.
        twins: ids that equal another one on some file systems, with the file name of the other one.
        by_name: ids by case-folded name.
        unusable: why the file name alone makes an issue unusable, by id.
        finished: case-folded ids of issues that are over and stored elsewhere.
    """

    files: Mapping[str, str]
    twins: Mapping[str, str]
    by_name: Mapping[str, str]
    unusable: Mapping[str, str]
    finished: frozenset[str]

    def find(self, name: str) -> str | None:
        """The id that a person means, ignoring case, or by number alone if only one issue has that number."""
        meant = (name,) if name in self.files else issues_named(name, self.files)
        return meant[0] if len(meant) == 1 else None


@dataclass(slots=True, kw_only=True)
class Scan:
    """The result of a scan: the fields of valid issues, and the errors of the others."""

    issues: dict[str, Fields] = field(default_factory=dict)
    problems: dict[str, TrackerError] = field(default_factory=dict)


class Store:
    """The issue files of one folder. Threads may share it; at worst a file is read twice.

    Attributes:
        has_unfinished_writes: whether the last listing showed a temporary file, of a write or of a crash.
    """

    def __init__(self, folder: Path, layout: BoardLayout) -> None:
        self.folder = folder
        self._layout = layout
        self._parsed: dict[str, tuple[object, Fields]] = {}
        self._files: Mapping[str, str] = {}
        self._listed: tuple[Collection[str], BoardFiles] | None = None
        self.has_unfinished_writes = False

    def path(self, issue_id: str) -> Path:
        """The file of an issue; only for ids of a listing, or made by the board."""
        return self.folder / self._files.get(issue_id, f"{issue_id}.md")

    def listing(self) -> BoardFiles:
        """List the folder.

        Raises:
            TrackerError: the folder cannot be read, or holds more than 20,000 issues.
        """
        try:
            names = os.listdir(self.folder)  # noqa: PTH208 - texts; so many paths cost the collector much
            finished = self._layout.finished(self.folder)
        except OSError as error:
            raise unreachable(self.folder, error) from error
        settled = frozenset(name for name in names if not is_draft(name))
        self.has_unfinished_writes = len(settled) < len(names)
        if self._listed is not None and self._listed[0] == settled and self._listed[1].finished == finished:
            return self._listed[1]  # sorting and folding the names of a large board takes long
        by_id = self._layout.files(settled)
        found = {issue_id: by_id[issue_id] for issue_id in sorted(by_id)}
        if len(found) > MAX_FILES:
            raise refused(f"{self.folder} holds {len(found)} issues, more than {MAX_FILES}")
        self._files = found
        for deleted in [issue_id for issue_id in tuple(self._parsed) if issue_id not in found]:
            self._parsed.pop(deleted, None)
        listed = BoardFiles(
            files=found,
            twins=self._layout.twins(found),
            by_name={issue_id.casefold(): issue_id for issue_id in found},
            unusable={issue_id: problem for issue_id in found if (problem := id_problem(issue_id))},
            finished=finished,
        )
        self._listed = settled, listed
        return listed

    def listing_of(self, ids: Collection[str]) -> BoardFiles:
        """The last listing if it has all these ids and their files still exist, else a new one.

        A file that is new since the last listing is found by the poll that it causes.

        Raises:
            TrackerError: as `listing`.
        """
        if self._listed is not None:
            listed = self._listed[1]
            names = [listed.files.get(issue_id) for issue_id in ids]
            if all(name is not None and os.path.lexists(f"{self.folder}{os.sep}{name}") for name in names):
                return listed
        return self.listing()

    def scan(self, listing: BoardFiles, ids: Iterable[str]) -> Scan:
        """Read these ids; those that are not in the listing, or deleted since, are omitted.

        Raises:
            TrackerError: the file system failed, or there is more than 256 MB to read.
        """
        scan, bytes_read = Scan(), 0
        for issue_id in dict.fromkeys(ids):
            if issue_id not in listing.files:
                continue
            try:
                self.check_name(issue_id, listing)
                # This runs for each file at each poll, and is faster with a text than with a Path.
                info = os.lstat(f"{self.folder}{os.sep}{listing.files[issue_id]}")
                known = self._parsed.get(issue_id)
                if known is not None and known[0] == signature(info):
                    scan.issues[issue_id] = known[1]
                    continue
                started_ns = time.time_ns()
                data = self.read(issue_id)
                bytes_read += len(data)
                scan.issues[issue_id] = fields = self.parse(issue_id, data)
                if not stat.S_ISLNK(info.st_mode) and has_settled(info, started_ns):
                    self._parsed[issue_id] = (signature(info), fields)
            except FileNotFoundError:
                continue
            except TrackerError as error:
                scan.problems[issue_id] = error
            except OSError as error:
                raise unreachable(self.path(issue_id), error) from error
            if bytes_read > MAX_TOTAL_BYTES:
                raise refused(f"{self.folder} holds more than {MAX_TOTAL_BYTES} bytes of issues")
        return scan

    def check_name(self, issue_id: str, listing: BoardFiles) -> None:
        """Raise `TrackerError` if the file name alone makes an issue unusable."""
        name = listing.files[issue_id]
        if problem := listing.unusable.get(issue_id):
            raise malformed(self.folder / name, 1, problem, issue_id=issue_id, hint="rename the file")
        if issue_id in listing.twins:
            other = listing.twins[issue_id]
            how = "differs only by case" if name.casefold() == other.casefold() else "has it too"
            text = f"duplicate id: {self.folder / other} {how}"
            raise malformed(self.folder / name, 1, text, issue_id=issue_id)

    def read(self, issue_id: str) -> bytes:
        """The bytes of an issue file.

        Raises:
            TrackerError: the file may not be read.
            OSError: it is deleted, or the file system failed.
        """
        path = self.path(issue_id)
        try:
            return files.read(path, root=self.folder)
        except files.RefusedFileError as error:
            raise malformed(path, 1, str(error), issue_id=issue_id) from error
        except PermissionError as error:
            raise malformed(path, 1, error.strerror or "not readable", issue_id=issue_id) from error

    def parse(self, issue_id: str, data: bytes) -> Fields:
        """The fields of an issue file. Raises `TrackerError` with `path:line` if it is malformed."""
        try:
            return self._layout.parse(data, issue_id)
        except MalformedError as error:
            raise malformed(self.path(issue_id), error.line, error.message, issue_id=issue_id) from error
