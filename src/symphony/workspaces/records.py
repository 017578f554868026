"""What is remembered of each workspace beside it: whose it is, how it was made, and whether it is whole.

A record is written before its directory, so that a crash leaves a record without a whole workspace and never
a half-made workspace that looks whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from symphony.domain.decoding import UNREADABLE
from symphony.domain.failures import Category
from symphony.workspaces.files import (
    is_directory,
    make_directory,
    read_present,
    read_regular,
    write_atomic,
)
from symphony.workspaces.layout import Layout, check_key
from symphony.workspaces.model import WorkspaceError, WorkspaceRecord

__all__ = ["Entry", "read_entries", "read_entry", "write_entry"]

_MAX_BYTES = 1024 * 1024
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One record.

    Attributes:
        issue_id: the dispatch identity.
        identifier: what the key was derived from.
        key: the name of the directory.
        ready: whether it was populated and `after_create` succeeded.
        repo: the repository it was populated from; null where hooks populate it.
        branch: the issue's branch, with `repo`.
        base_commit: where the branch began, with `repo` and if known.
        owner: the user whose directory it became, `after_create` included; null where that was not seen.
        tenant: the workflow file whose workspace it is (`tenants`); None where that is not known.
        sealed: watched files of its `.git` as they were made (`seal`); null if that was not seen.
    """

    issue_id: str
    identifier: str
    key: str
    ready: bool
    repo: str | None = None
    branch: str | None = None
    base_commit: str | None = None
    owner: int | None = None
    tenant: str | None = None
    sealed: Mapping[str, str] | None = None

    def record(self, layout: Layout) -> WorkspaceRecord:
        """What the outside needs of it."""
        path = layout.workspace(self.key)
        return WorkspaceRecord(issue_id=self.issue_id, identifier=self.identifier, key=self.key, path=path)


def read_entry(layout: Layout, key: str) -> Entry | None:
    """The record of a key; null where there is none that can be read, which is logged.

    Raises:
        WorkspaceError: the file system knows no case, and the record is that of a key in another case.
    """
    path = layout.record(key)
    entry = _parse(path, content) if (content := _content(path)) is not None else None
    if entry is None or entry.key == key:
        return entry
    if entry.key.lower() == key.lower():
        raise WorkspaceError.of(
            Category.WORKSPACE_UNSAFE_KEY,
            f"workspace {key} would be the one of {entry.key}: the file system makes no difference by case",
            hint="rename one of the two issues, or set workspace.root to another file system",
            retryable=False,
        )
    return _own(layout, path, entry)


def read_entries(layout: Layout) -> tuple[Entry, ...]:
    """Every readable record; the others are skipped with a warning each."""
    paths = sorted(layout.records.glob("*.json")) if is_directory(layout.records) else []
    entries = (_own(layout, path, _parse(path, read_regular(path, _MAX_BYTES) or b"")) for path in paths)
    return tuple(entry for entry in entries if entry is not None)


def write_entry(layout: Layout, entry: Entry, *, new: bool = False) -> None:
    """Write a record as a whole; it outlives the machine.

    With `new` there is none yet that could be read, and one that another daemon writes meanwhile stays.

    Raises:
        OSError: it cannot be written, or another daemon was first.
    """
    path, data = layout.record(entry.key), msgspec.json.format(msgspec.json.encode(entry), indent=1)
    try:
        write_atomic(path, data, new=new)
    except FileExistsError:
        if _parse(path, _content(path) or b"") is not None:
            raise
        write_atomic(path, data)  # it is damaged
    except FileNotFoundError:  # the directory, and there nearly always is one
        make_directory(path.parent)
        write_atomic(path, data)


def _content(path: Path) -> bytes | None:
    """What a record holds, which is nothing where it is no plain file; null where there is none."""
    try:
        return read_present(path, _MAX_BYTES) or b""
    except FileNotFoundError:
        return None
    except OSError:
        return b"" if path.exists() else None


def _parse(path: Path, content: bytes) -> Entry | None:
    try:
        entry = msgspec.json.decode(content, type=Entry)
        check_key(entry.key)
    except (*UNREADABLE, WorkspaceError) as error:
        _log.warning("workspace_record_skipped", path=str(path), error=str(error).splitlines()[0])
        return None
    return entry


def _own(layout: Layout, path: Path, entry: Entry | None) -> Entry | None:
    """The entry, if it stands in the file of its key."""
    if entry is not None and layout.record(entry.key) != path:
        _log.warning("workspace_record_skipped", path=str(path), error=f"it is about {entry.key}")
        return None
    return entry
