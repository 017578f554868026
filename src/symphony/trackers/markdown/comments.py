"""Comments of issues, one file each (`SYM-12/comments/<utc>-<author>-<8hex>.md`): branches never conflict.

People and agents only add files; the daemon also edits its own. The text never decides who wrote a comment. A
comment is the daemon's if file name and front matter name the daemon as author and the mark in the name is
derived from the key in the front matter and the id of the issue. Text of agents and people goes through
`add`, which gives it another author and a random mark. So a pasted marker or a file copied from another issue
does not count as the daemon's.
"""

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from symphony.frontmatter import quote
from symphony.trackers.base import TrackerError
from symphony.trackers.markdown import document, files
from symphony.trackers.markdown.errors import busy, malformed, missing, refused, unreachable
from symphony.trackers.markdown.store import id_problem

MAX_BODY_CHARS = 32_000
MAX_COMMENTS = 10_000
MAX_TOTAL_BYTES = 67_108_864
AGENT = "agent"
DAEMON = "symphony"
RESERVED_AUTHORS = frozenset({AGENT, DAEMON})
"""Authors that are not people."""
_SUFFIX = ".md"
_NAME = re.compile(r"\d{8}T\d{6}Z-(?P<author>.+)-(?P<mark>[0-9a-f]{8})")
_MARK_CHARS = 8
_MAX_AUTHOR_CHARS = 40
_ATTEMPTS = 8


# --- file names ------------------------------------------------------------------------------------------


def author_name(author: str) -> str:
    """An author in a file name: at most 40 letters, digits, `.`, `_`; `person` if none is left."""
    return re.sub(r"[^A-Za-z0-9._]+", "_", author).strip("._")[:_MAX_AUTHOR_CHARS] or "person"


def comment_stem(moment: datetime, author: str, mark: str) -> str:
    """`<utc>-<author>-<8hex>`: sorted by name is sorted by time."""
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}-{author}-{mark}"


def author_and_mark(stem: str) -> tuple[str, str] | None:
    """Author and mark in the file name of a comment; `None` for another form of name."""
    match = _NAME.fullmatch(stem)
    return None if match is None else (match["author"], match["mark"])


def is_persons_comment(name: str) -> bool:
    """Whether a file in a comments folder is a person's comment, judged by its name alone."""
    if not name.endswith(_SUFFIX) or name.startswith("."):
        return False
    found = author_and_mark(name.removesuffix(_SUFFIX))
    return found is None or found[0] not in RESERVED_AUTHORS


# --- the store -------------------------------------------------------------------------------------------


class StoredComment(Struct, frozen=True, kw_only=True):
    """One comment. `id` is the stem of its file; only comments of the daemon have a `key`."""

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

    def path(self, issue_id: str) -> Path:
        """The folder of an issue's comments, which need not exist."""
        return self.folder / issue_id / "comments"

    def read(self, issue_id: str) -> tuple[list[StoredComment], list[TrackerError]]:
        """All comments, oldest first, and why others could not be read.

        They are sorted by `created`, so that replies come after their question. A comment without a time
        counts as old as its file.

        Raises:
            TrackerError: the folder cannot be read, or holds more than 10,000 comments or 64 MB.
        """
        found: list[tuple[datetime, StoredComment]] = []
        problems: list[TrackerError] = []
        total = 0
        for path in self._paths(issue_id):
            try:
                data = files.read(path, root=self.folder)
                comment = _parse(issue_id, path, data)
                created = comment.created or datetime.fromtimestamp(path.lstat().st_mtime, UTC)
            except FileNotFoundError:
                continue
            except (document.MalformedError, files.RefusedFileError) as error:
                problems.append(malformed(path, getattr(error, "line", 1), str(error)))
                continue
            except OSError as error:
                raise unreachable(path, error) from error
            found.append((created, comment))
            total += len(data)
            if total > MAX_TOTAL_BYTES:
                raise refused(f"{issue_id} has more than {MAX_TOTAL_BYTES} bytes of comments")
        found.sort(key=lambda each: (each[0], each[1].key is None, each[1].id))
        return [comment for _, comment in found], problems

    def _paths(self, issue_id: str) -> list[Path]:
        folder, exists = self._folder(issue_id)
        if not exists:
            return []
        try:
            names = sorted(path.name for path in folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreachable(folder, error) from error
        names = [name for name in names if name.endswith(_SUFFIX) and not name.startswith(".")]
        if len(names) > MAX_COMMENTS:
            raise refused(f"{issue_id} has {len(names)} comments, more than {MAX_COMMENTS}")
        return [folder / name for name in names]

    def _folder(self, issue_id: str) -> tuple[Path, bool]:
        """The folder of an issue's comments, which no link may lead to, and whether it exists."""
        if "/" in issue_id or issue_id in {"", ".", ".."} or id_problem(issue_id) is not None:
            raise missing(f"there is no issue {issue_id[:80]!r} in {self.folder}")
        folder = self.path(issue_id)
        for step in (folder.parent, folder):
            try:
                mode = os.lstat(step).st_mode
            except FileNotFoundError:
                return folder, False
            except OSError as error:
                raise unreachable(folder, error) from error
            if stat.S_ISLNK(mode):
                raise malformed(step, 1, "a link is not followed here", hint="replace it by a folder")
        return folder, True

    def add(self, issue_id: str, body: str, *, author: str) -> str:
        """Add a comment of a person or an agent, and return its id.

        Raises:
            TrackerError: an empty or overlong body, a reserved author, or the file cannot be written.
        """
        if author_name(author) == DAEMON:
            raise refused(f"{DAEMON!r} is the daemon's own name")
        return self._create(issue_id, body, author=author, key=None)

    def put(self, issue_id: str, body: str, *, key: str, comment_id: str | None) -> str:
        """Write a comment of the daemon: replace this one, or the one with this key, or create one.

        Raises:
            TrackerError: the comment is deleted or not the daemon's, or the file cannot be written.
        """
        if comment_id is None:
            comment_id = self._with_key(issue_id, key)
        elif not any(comment.id == comment_id and comment.key for comment in self.read(issue_id)[0]):
            raise missing(f"{issue_id} has no comment {comment_id[:80]!r} of the daemon's")
        if comment_id is None:
            return self._create(issue_id, body, author=DAEMON, key=key)
        self._edit(issue_id, comment_id, body)
        return comment_id

    def _with_key(self, issue_id: str, key: str) -> str | None:
        return next((comment.id for comment in self.read(issue_id)[0] if comment.key == key), None)

    def _create(self, issue_id: str, body: str, *, author: str, key: str | None) -> str:
        _check(body)
        try:
            values = {"author": quote(author), "created": document.timestamp(self.now(), exact=True)}
            if key is not None:
                values["key"] = quote(key)
            data = document.render(values, body)
        except ValueError as error:
            raise refused(f"the comment cannot be written: {error}") from error
        folder, exists = self._folder(issue_id)
        try:
            if not exists:
                folder.mkdir(parents=True, exist_ok=True)
            with files.locked(folder):
                files.sweep(folder)
                if key is not None and (found := self._with_key(issue_id, key)):
                    return found  # the draft of another process
                for _ in range(_ATTEMPTS):
                    mark = secrets.token_hex(_MARK_CHARS // 2) if key is None else _mark(issue_id, key)
                    stem = comment_stem(self.now(), author_name(author), mark)
                    if files.create(folder / f"{stem}{_SUFFIX}", data):
                        return stem
        except OSError as error:
            raise unreachable(folder, error) from error
        raise busy(folder, _ATTEMPTS)

    def _edit(self, issue_id: str, comment_id: str, body: str) -> None:
        _check(body)
        path = self._folder(issue_id)[0] / f"{comment_id}{_SUFFIX}"
        try:
            with files.locked(path.parent):
                files.sweep(path.parent)
                for _ in range(_ATTEMPTS):
                    data = files.read(path, root=self.folder)
                    changed = document.replace_body(data, body)
                    if changed == data or files.replace(path, changed, expected=data, root=self.folder):
                        return
        except FileNotFoundError as error:
            raise missing(f"the comment {comment_id} of {issue_id} is gone") from error
        except document.MalformedError as error:
            raise malformed(path, error.line, error.message) from error
        except files.RefusedFileError as error:
            raise malformed(path, 1, str(error)) from error
        except OSError as error:
            raise unreachable(path, error) from error
        raise busy(path, _ATTEMPTS)


def _check(body: str) -> None:
    """Raise `TrackerError` for a body that cannot be written."""
    if not body.strip():
        raise refused("a comment needs some text")
    if len(body) > MAX_BODY_CHARS:
        raise refused(f"a comment has at most {MAX_BODY_CHARS} characters, this one has {len(body)}")
    if any("\ud800" <= char <= "\udfff" for char in body):
        raise refused("the comment is not valid Unicode")


def _mark(issue_id: str, key: str) -> str:
    return hashlib.sha256(f"symphony-comment-v1\0{issue_id}\0{key}".encode()).hexdigest()[:_MARK_CHARS]


def _parse(issue_id: str, path: Path, data: bytes) -> StoredComment:
    stem = path.name.removesuffix(_SUFFIX)
    parts = document.parse_parts(data)
    author, key = parts.values.get("author"), parts.values.get("key")
    is_daemons = (
        isinstance(key, str) and author == DAEMON and author_and_mark(stem) == (DAEMON, _mark(issue_id, key))
    )
    return StoredComment(
        id=stem,
        author=author if isinstance(author, str) else "unknown",
        created=document.instant(parts.values.get("created")),
        body=re.sub(r"\r\n?", "\n", parts.body).strip("\n"),
        key=str(key) if is_daemons else None,
    )
