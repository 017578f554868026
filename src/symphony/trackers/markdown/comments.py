"""Comments of an issue, one file each: `SYM-12/comments/<utc>-<author>-<8hex>.md`. Branches never conflict.

People and agents only ever add files. The daemon also edits its own. Whose a comment is never depends on
its text: it is the daemon's only if file name and front matter name it as author *and* the mark in the name
is derived from the key in the front matter and from this issue's id. Text that an agent or a person writes
goes through `add`, which gives them another author and a random mark, so a pasted marker does not make a
comment ours; a file of ours copied to another issue is not ours either.
"""

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from symphony.frontmatter import quote
from symphony.trackers.base import TrackerError
from symphony.trackers.markdown import files
from symphony.trackers.markdown.document import (
    COMMENT_SUFFIX,
    COMMENTS,
    DAEMON,
    MalformedError,
    author_name,
    busy,
    comment_author,
    comment_stem,
    id_problem,
    instant,
    malformed,
    missing,
    parse_parts,
    refused,
    render,
    replace_body,
    timestamp,
    unreachable,
)

MAX_BODY_CHARS = 32_000
MAX_NOTES = 10_000
MAX_TOTAL_BYTES = 67_108_864
_ATTEMPTS = 8
_MARK_CHARS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredComment:
    """One comment. `id` is the stem of its file; `key` is set only on those that are the daemon's."""

    id: str
    author: str
    created: datetime | None
    body: str
    key: str | None


class CommentStore:
    """The comments below one board folder."""

    def __init__(self, folder: Path, *, now: Callable[[], datetime]) -> None:
        self.folder = folder
        self.now = now

    def read(self, issue_id: str) -> tuple[list[StoredComment], list[TrackerError]]:
        """All comments, oldest first, and why others could not be read.

        Their order is that of `created`, which tells what was said before a question from what was said to
        it; a comment that tells no time is as old as its file.

        Raises:
            TrackerError: the folder cannot be read, or holds more than 10,000 comments or 64 MB.
        """
        notes: list[tuple[datetime, StoredComment]] = []
        problems: list[TrackerError] = []
        total = 0
        for path in self._paths(issue_id):
            try:
                data = files.read(path, root=self.folder)
                note = _note(issue_id, path, data)
                written = note.created or datetime.fromtimestamp(path.lstat().st_mtime, UTC)
                notes.append((written, note))
            except FileNotFoundError:
                continue
            except (MalformedError, files.RefusedFileError) as error:
                problems.append(malformed(path, getattr(error, "line", 1), str(error)))
                continue
            except OSError as error:
                raise unreachable(path, error) from error
            total += len(data)
            if total > MAX_TOTAL_BYTES:
                raise refused(f"{issue_id} has more than {MAX_TOTAL_BYTES} bytes of comments")
        notes.sort(key=lambda one: (one[0], one[1].key is None, one[1].id))
        return [note for _, note in notes], problems

    def place(self, issue_id: str) -> Path:
        """The folder of an issue's comments, whether it is there or not."""
        return self.folder / issue_id / COMMENTS

    def add(self, issue_id: str, body: str, *, author: str) -> str:
        """Add a comment by a person or an agent and return its id.

        Raises:
            TrackerError: an empty or overlong body, a reserved author, or the file cannot be written.
        """
        if author_name(author) == DAEMON:
            raise refused(f"{DAEMON!r} is the daemon's own name")
        return self._create(issue_id, body, author=author, key=None)

    def put(self, issue_id: str, body: str, *, key: str, note_id: str | None) -> str:
        """Write the daemon's own comment: replace `note_id`, or the one that has this key, or make one.

        Raises:
            TrackerError: `note_id` is gone or not the daemon's, or the file cannot be written.
        """
        mine = [note for note in self.read(issue_id)[0] if note.key is not None]
        if note_id is None:
            note_id = next((note.id for note in mine if note.key == key), None)
        elif note_id not in {note.id for note in mine}:
            raise missing(f"{issue_id} has no comment {note_id[:80]!r} of the daemon's")
        if note_id is None:
            return self._create(issue_id, body, author=DAEMON, key=key)
        self._edit(issue_id, note_id, body)
        return note_id

    def _paths(self, issue_id: str) -> list[Path]:
        place, stands = self._place(issue_id)
        if not stands:
            return []
        try:
            names = sorted(os.listdir(place))  # noqa: PTH208 - names are all that is needed
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreachable(place, error) from error
        names = [name for name in names if name.endswith(COMMENT_SUFFIX) and not name.startswith(".")]
        if len(names) > MAX_NOTES:
            raise refused(f"{issue_id} has {len(names)} comments, more than {MAX_NOTES}")
        return [place / name for name in names]

    def _place(self, issue_id: str) -> tuple[Path, bool]:
        """The folder of an issue's comments, not to be reached through a link, and whether it is there."""
        if "/" in issue_id or issue_id in {"", ".", ".."} or id_problem(issue_id) is not None:
            raise missing(f"there is no issue {issue_id[:80]!r} in {self.folder}")
        place = self.place(issue_id)
        for step in (place.parent, place):
            try:
                mode = os.lstat(step).st_mode
            except FileNotFoundError:
                return place, False
            except OSError as error:
                raise unreachable(place, error) from error
            if stat.S_ISLNK(mode):
                raise malformed(step, 1, "a link is not followed here", hint="replace it by a folder")
        return place, True

    def _create(self, issue_id: str, body: str, *, author: str, key: str | None) -> str:
        data = self._rendered(body, author=author, key=key)
        place, stands = self._place(issue_id)
        try:
            if not stands:
                place.mkdir(parents=True, exist_ok=True)
            with files.locked(place):
                files.sweep(place)
                found = None if key is None else self._keyed(issue_id, key)
                return found or self._claim(place, data, issue_id=issue_id, author=author, key=key)
        except OSError as error:
            raise unreachable(place, error) from error

    def _keyed(self, issue_id: str, key: str) -> str | None:
        """The comment with this key that another process made since we looked."""
        return next((note.id for note in self.read(issue_id)[0] if note.key == key), None)

    def _claim(self, place: Path, data: bytes, *, issue_id: str, author: str, key: str | None) -> str:
        for _ in range(_ATTEMPTS):
            mark = secrets.token_hex(_MARK_CHARS // 2) if key is None else _mark(issue_id, key)
            stem = comment_stem(self.now(), author_name(author), mark)
            if files.create(place / f"{stem}{COMMENT_SUFFIX}", data):
                return stem
        raise busy(place, _ATTEMPTS)

    def _edit(self, issue_id: str, note_id: str, body: str) -> None:
        path = self._place(issue_id)[0] / f"{note_id}{COMMENT_SUFFIX}"
        _checked(body)
        try:
            with files.locked(path.parent):
                files.sweep(path.parent)
                self._rewrite(path, body)
        except FileNotFoundError as error:
            raise missing(f"the comment {note_id} of {issue_id} is gone") from error
        except MalformedError as error:
            raise malformed(path, error.line, error.message) from error
        except files.RefusedFileError as error:
            raise malformed(path, 1, str(error)) from error
        except OSError as error:
            raise unreachable(path, error) from error

    def _rewrite(self, path: Path, body: str) -> None:
        for _ in range(_ATTEMPTS):
            data = files.read(path, root=self.folder)
            changed = replace_body(data, body)
            if changed == data or files.replace(path, changed, expected=data, root=self.folder):
                return
        raise busy(path, _ATTEMPTS)

    def _rendered(self, body: str, *, author: str, key: str | None) -> bytes:
        _checked(body)
        try:
            lines = {"author": quote(author), "created": timestamp(self.now(), exact=True)}
            if key is not None:
                lines["key"] = quote(key)
            return render(lines, body)
        except ValueError as error:
            raise refused(f"the comment cannot be written: {error}") from error


def _checked(body: str) -> None:
    if not body.strip():
        raise refused("a comment needs some text")
    if len(body) > MAX_BODY_CHARS:
        raise refused(f"a comment holds at most {MAX_BODY_CHARS} characters, this one has {len(body)}")
    if any("\ud800" <= char <= "\udfff" for char in body):
        raise refused("the comment is not valid Unicode")


def _mark(issue_id: str, key: str) -> str:
    return hashlib.sha256(f"symphony-comment-v1\0{issue_id}\0{key}".encode()).hexdigest()[:_MARK_CHARS]


def _note(issue_id: str, path: Path, data: bytes) -> StoredComment:
    stem = path.name.removesuffix(COMMENT_SUFFIX)
    parts = parse_parts(data)
    author, key = parts.values.get("author"), parts.values.get("key")
    named = comment_author(stem)
    mine = isinstance(key, str) and author == DAEMON and named == (DAEMON, _mark(issue_id, key))
    return StoredComment(
        id=stem,
        author=author if isinstance(author, str) else "unknown",
        created=instant(parts.values.get("created")),
        body=re.sub(r"\r\n?", "\n", parts.body).strip("\n"),
        key=key if mine and isinstance(key, str) else None,
    )
