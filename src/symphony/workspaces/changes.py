"""Reads what a delivered branch changes: its commits, its files, and the lines of some files.

It reads only the mirror, and runs no program that a repository names. Two calls are enough for a change of
any size: one lists the files with their counts, the other returns the lines of the files that a page shows.
File names are bytes from NUL-separated lists, because a name can contain line breaks.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from symphony.characters import visible_name
from symphony.workspaces.git import Git, GitError

MAX_FILES: Final = 5_000
"""How many files of a change are listed at most."""
MAX_COMMITS: Final = 100
"""How many commits of a change are listed at most."""
MAX_LISTING_BYTES: Final = 16_777_216
"""The largest file list of a change, in bytes: about 80,000 files."""
MAX_LINE_BYTES: Final = 1_048_576
"""Git does not compare the lines of larger files."""
_FAR: Final = "400"  # git compares each removed file with each new one to find renames
_OPTIONS: Final = ("-c", f"core.bigFileThreshold={MAX_LINE_BYTES}", "--literal-pathspecs")
_DIFF: Final = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--find-renames", f"-l{_FAR}")
_LIST: Final = ("--raw", "--numstat", "--no-abbrev", "-z")
_PATCH: Final = ("--patch", "--no-prefix", "--full-index")
_LOG: Final = ("log", "-z", "--no-show-signature", "--format=%H%x00%an%x00%aI%x00%s")
_GITLINK: Final = "160000"
_TYPE_CHANGED: Final = "T"


class Commit(Struct, frozen=True, kw_only=True):
    """A commit of a change; author and subject are untrusted text, `at` is as git writes it."""

    commit: str
    author: str
    at: str
    subject: str


class ComparedFile(Struct, frozen=True, kw_only=True):
    """A file of a change.

    Attributes:
        status: git's letter: `A` added, `M` modified, `D` deleted, `R` renamed, `C` copied, `T` another type.
        path: its new name in one line; invisible characters and bytes that are not UTF-8 are escaped.
        old_path: its old name if that differs.
        old, new: the object ids of its content; zeros if there is none.
        modes: before and after.
        insertions, deletions: changed lines; `None` for a binary or large file, whose lines git does not
            compare.
        names: both names in git's form.
    """

    status: str
    path: str
    old_path: str | None
    old: str
    new: str
    modes: tuple[str, str]
    insertions: int | None
    deletions: int | None
    names: tuple[bytes, bytes]

    @property
    def is_link(self) -> bool:
        """Whether it is a link to a commit of another repository."""
        return _GITLINK in self.modes


class BranchChange(Struct, frozen=True, kw_only=True):
    """The change between two commits.

    Attributes:
        branch: its name.
        start: the commit at which the branch began.
        since: the commit to compare with: `start`, or an earlier head.
        head: the last delivered commit, or an earlier one.
        last: the last delivered commit.
        commits: the newest first.
        files: in git's order.
        files_left_out: how many more files there are.
    """

    branch: str
    start: str
    since: str
    head: str
    last: str
    commits: tuple[Commit, ...]
    files: tuple[ComparedFile, ...]
    files_left_out: int = 0

    @property
    def between(self) -> tuple[str, str, str, str]:
        """The start of the branch, both compared commits, and the last delivery."""
        return self.start, self.since, self.head, self.last


async def read_change(
    git: Git, mirror: Path, *, branch: str, start: str, since: str, head: str, last: str
) -> BranchChange:
    """List commits and files between `since` and `head`.

    Raises:
        GitError: git failed, or there are too many files.
    """
    ask = (*_OPTIONS, "-C", mirror, *_DIFF, *_LIST, since, head, "--")
    listed = await git.isolated(*ask, max_output_bytes=MAX_LISTING_BYTES)
    if len(listed) >= MAX_LISTING_BYTES:
        raise GitError(
            f"{branch} changes too many files to list them: see git diff --stat {since}...{branch}"
        )
    files = list(parse_listing(listed))
    log = (*_LOG, f"--max-count={MAX_COMMITS}", head, "--not", since, "--")
    return BranchChange(
        branch=branch,
        start=start,
        since=since,
        head=head,
        last=last,
        commits=tuple(parse_log(await git.isolated("-C", mirror, *log))),
        files=tuple(files[:MAX_FILES]),
        files_left_out=max(len(files) - MAX_FILES, 0),
    )


async def read_patches(
    git: Git,
    mirror: Path,
    change: BranchChange,
    files: Sequence[ComparedFile],
    *,
    context: int,
    max_bytes: int,
) -> dict[ComparedFile, bytes]:
    """The patches of some files, each with `context` lines around its changes, at most `max_bytes` together.

    Patches that are cut off are missing. Raises `GitError`.
    """
    if not files:
        return {}
    names = [os.fsdecode(name) for file in files for name in dict.fromkeys(file.names)]
    what = (change.since, change.head, "--", *names)
    listed = await git.isolated(*_OPTIONS, "-C", mirror, *_DIFF, *_LIST, *what)
    content = await git.isolated(
        *_OPTIONS, "-C", mirror, *_DIFF, *_PATCH, f"-U{context}", *what, max_output_bytes=max_bytes
    )
    if len(content) >= max_bytes:  # a cut line may contain half a secret, which would not be masked
        content = content[: content.rfind(b"\n") + 1]
    # Both have the files in the same order. No line of a file begins like a header: each has a sign.
    parts = iter((b"\n" + content).split(b"\ndiff --git ")[1:])
    wanted, found = {file.names: file for file in files}, dict[ComparedFile, bytes]()
    for entry in parse_listing(listed):
        own = list(islice(parts, 2 if entry.status == _TYPE_CHANGED else 1))
        if own and entry.names in wanted:
            found[wanted[entry.names]] = b"\n".join(own)
    return found


async def read_content(git: Git, mirror: Path, object_id: str, *, max_bytes: int) -> bytes:
    """The first bytes of a file by its object id. Raises `GitError`."""
    return await git.isolated("-C", mirror, "cat-file", "blob", object_id, max_output_bytes=max_bytes)


def parse_listing(output: bytes) -> Iterator[ComparedFile]:
    """Parse the output of `git diff --raw --numstat --no-abbrev -z`.

    First comes `:mode mode id id status NUL path NUL` for each file, with a second path if it is renamed or
    copied, and then `added TAB removed TAB path NUL`, or `added TAB removed TAB NUL old NUL new NUL`. Parsing
    stops at a truncated record.
    """
    fields = iter(output.split(b"\0"))
    raw = list[tuple[list[str], bytes, bytes]]()
    field = next(fields, b"")
    while field.startswith(b":"):
        head = field[1:].decode("ascii", "replace").split(" ")
        name = next(fields, b"")
        raw.append((head, name, next(fields, b"") if head[-1][:1] in {"R", "C"} else name))
        field = next(fields, b"")
    for head, old, new in raw:
        added, _, rest = field.partition(b"\t")
        removed, tab, path = rest.partition(b"\t")
        if not tab or len(head) != 5:  # noqa: PLR2004 - see the docstring
            return
        if not path:
            next(fields, b""), next(fields, b"")
        field = next(fields, b"")
        yield ComparedFile(
            status=head[4][:1],
            path=visible_name(new),
            old_path=None if old == new else visible_name(old),
            old=head[2],
            new=head[3],
            modes=(head[0], head[1]),
            insertions=_count(added),
            deletions=_count(removed),
            names=(old, new),
        )


def _count(lines: bytes) -> int | None:
    return int(lines) if lines.isdigit() else None


def parse_log(output: bytes) -> Iterator[Commit]:
    """Parse the output of `git log -z` with four fields of each commit."""
    fields = iter(output.decode("utf-8", "replace").split("\0"))
    for commit, author, at, subject in zip(fields, fields, fields, fields, strict=False):
        yield Commit(commit=commit, author=author, at=at, subject=subject)
