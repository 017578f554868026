"""The only place that runs git: a bounded environment, a timeout, and nothing that an agent may have written.

Two postures. *Trusted* commands work on repositories of the operator or of the daemon and see the operator's
own configuration (credential helpers, proxies, `insteadOf`, LFS): without it a private remote cannot be
reached. *Isolated* commands look at what an agent has touched; they see no configuration but that of a git
directory made by the daemon, and may speak no protocol but `file`. In both, hooks, fsmonitor and background
maintenance are off. No command of either kind ever runs with a workspace's own `.git` as its git directory
once an agent has been there (`shadow` shows how).
"""

import errno
import fcntl
import hashlib
import math
import os
import re
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, Self

import anyio
import structlog
from anyio import to_thread

from symphony.domain import BRANCH_PREFIX, PATTERNS_ONLY, Redaction, one_line
from symphony.processes.base import Completed, Host
from symphony.workspaces.files import (
    MOST_ENTRIES,
    copy_regular,
    drop,
    entries_below,
    fingerprint,
    is_directory,
    lines_of,
    make_directory,
    read_if_there,
    read_regular,
    stat_line,
)
from symphony.workspaces.model import Login

LOCAL_TIMEOUT_MS: Final = 120_000
NETWORK_TIMEOUT_MS: Final = 600_000

SAFE_DIRECTORY: Final = "git config --global --add safe.directory"
"""How git is told that a repository of another user may be worked on."""

_MAX_OUTPUT_BYTES: Final = 64 * 1024 * 1024
_MAX_MESSAGE_CHARS: Final = 300
_USERINFO = re.compile(r"(?<=://)[^/\s]+@")  # up to the last @, as a password may hold one
_ADVICE = re.compile(rf"{re.escape(SAFE_DIRECTORY)} [^\n]+")
_INHERITED = re.compile(
    r"PATH|HOME|USER|LOGNAME|TMPDIR|LANG|XDG_CONFIG_HOME|XDG_RUNTIME_DIR|DBUS_SESSION_BUS_ADDRESS"
    r"|SSH_AUTH_SOCK|GIT_SSH|GIT_SSH_COMMAND|GIT_SSH_VARIANT|GIT_SSL_CAINFO|GIT_SSL_CAPATH"
    r"|GIT_CONFIG_(?:GLOBAL|NOSYSTEM|COUNT|KEY_\d+|VALUE_\d+)"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|CURL_CA_BUNDLE|(?:https?|all|no|HTTPS?|ALL|NO)_(?:proxy|PROXY)"
)
_ALWAYS = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GCM_INTERACTIVE": "never",
    "SSH_ASKPASS_REQUIRE": "never",
    "LC_ALL": "C",
}
_ISOLATED = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "0",
    "GIT_ALLOW_PROTOCOL": "file",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
}
_OPTIONS = [
    option
    for setting in (
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "core.untrackedCache=false",
        "protocol.ext.allow=never",
        "submodule.recurse=false",
        "fetch.recurseSubmodules=false",
        "gc.auto=0",
        "maintenance.auto=false",
    )
    for option in ("-c", setting)
]


class GitError(Exception):
    """git did not do what it was asked; the message is one line without credentials.

    `advice` is the command by which git itself says that it could be mended, or None.
    """

    def __init__(self, message: str, *, advice: str | None = None) -> None:
        super().__init__(message)
        self.advice = advice


class Git:
    """Runs git on a host with what of the environment it needs.

    `redaction` masks what git complains of; `login` is for the commands that ask for it.
    """

    def __init__(
        self,
        host: Host,
        environment: Mapping[str, str],
        secret_names: frozenset[str],
        *,
        network_timeout_ms: int = NETWORK_TIMEOUT_MS,
        redaction: Redaction = PATTERNS_ONLY,
        login: Login | None = None,
    ) -> None:
        self._host = host
        self._redaction = redaction
        self.login = login
        self.network_timeout_ms = network_timeout_ms
        self._environment = {
            name: value
            for name, value in environment.items()
            if _INHERITED.fullmatch(name) and name not in secret_names
        }

    async def trusted(
        self,
        *arguments: str | Path,
        cwd: Path | None = None,
        timeout_ms: int = LOCAL_TIMEOUT_MS,
        login: Login | None = None,
    ) -> bytes:
        """Output of a command on a repository that no agent writes to. Raises `GitError`.

        `login` is for one that speaks with the server of that login.
        """
        told = (*(() if login is None else login.options), *arguments)
        env = {} if login is None else login.environment
        return self._output(arguments, await self._run(told, env, cwd, timeout_ms))

    async def isolated(self, *arguments: str | Path, stdin: bytes = b"") -> bytes:
        """Output of a command that sees what an agent wrote. Raises `GitError`."""
        return self._output(arguments, await self._run(arguments, _ISOLATED, None, LOCAL_TIMEOUT_MS, stdin))

    async def holds(self, *arguments: str | Path) -> bool:
        """The answer of an isolated command that says no with exit code 1. Raises `GitError` for others."""
        done = await self._run(arguments, _ISOLATED, None, LOCAL_TIMEOUT_MS)
        if done.exit_code == 1 and not done.timed_out:
            return False
        self._output(arguments, done)
        return True

    def _output(self, arguments: Sequence[str | Path], done: Completed) -> bytes:
        if done.timed_out:
            raise GitError(f"git {_verb(arguments)} did not end in time")
        if done.exit_code != 0:
            advice = _ADVICE.search(done.stderr.decode("utf-8", "replace"))
            raise GitError(f"git {_verb(arguments)}: {self._complaint(done)}", advice=advice and advice[0])
        return done.stdout

    def _complaint(self, done: Completed) -> str:
        """What git said went wrong, on one line: its own words first, then what the other side said."""
        said = self._redaction.text(without_credentials(done.stderr.decode("utf-8", "replace")))
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        own = [line for line in lines if line.startswith(("fatal:", "error:", "!"))]
        remote = [
            line for line in lines if line.removeprefix("remote:").strip() and line.startswith("remote:")
        ]
        return one_line(
            "; ".join([*own, *remote] or lines) or f"exit code {done.exit_code}", _MAX_MESSAGE_CHARS
        )

    async def _run(
        self,
        arguments: Sequence[str | Path],
        env: Mapping[str, str],
        cwd: Path | None,
        timeout_ms: int,
        stdin: bytes = b"",
    ) -> Completed:
        try:
            return await self._host.run(
                ["git", *_OPTIONS, *map(str, arguments)],
                cwd=cwd,
                env={**self._environment, **_ALWAYS, **env},
                timeout_ms=timeout_ms,
                stdin=stdin,
                max_output_bytes=_MAX_OUTPUT_BYTES,
                supervised=timeout_ms > LOCAL_TIMEOUT_MS,
            )
        except OSError as error:
            raise GitError(f"git could not be started: {error}") from error


def config_value(text: str) -> str:
    """A value as git's configuration files want it, quoted and escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def without_credentials(address: str) -> str:
    """A repository address, or a text that holds one, without the user and password in it."""
    return _USERINFO.sub("", address)


def _verb(arguments: Sequence[str | Path]) -> str:
    """The first word that is a command and neither an option nor the value of one."""
    words = [str(argument) for argument in arguments]
    while words[0].startswith("-"):
        words = words[2 if words[0] in {"-C", "-c"} else 1 :]
    return words[0]


# Refs of a git directory, read as files: no git runs, so nothing in that directory can make it do anything.
#
# A directory written by an agent may hold anything; whatever is not exactly a ref reads as null. What
# cannot be read, or is too much, raises `OSError`: there may be work behind it that nobody would know of.


_COMMIT = re.compile(rb"(?:[0-9a-f]{40}|[0-9a-f]{64})")
_NAME = re.compile(r"refs/(?!.*(?:\.\.|//|\\|@\{))[^\x00-\x20\x7f~^:?*\[]+")
_MAX_REF_BYTES = 4_096
_MAX_PACKED_BYTES = 16 * 1024 * 1024
_MAX_DEPTH = 5


def common_dir(repository: Path) -> Path | None:
    """The git directory with the branches of an operator's own repository, or None where there is none.

    It is resolved. Linked worktrees share it with their repository; that of a submodule lies in its parent.
    """
    own = repository / ".git"
    if not own.is_dir():
        pointer = (read_regular(own, _MAX_REF_BYTES) or b"").decode("utf-8", "surrogateescape")
        target = pointer.removeprefix("gitdir:").strip()
        own = repository / target if pointer.startswith("gitdir:") else repository
    shared = (read_regular(own / "commondir", _MAX_REF_BYTES) or b"").decode("utf-8", "surrogateescape")
    real = Path(os.path.realpath(own / shared.strip()))
    return real if (real / "objects").is_dir() else None


def packed_refs(git_dir: Path) -> dict[str, str]:
    """The refs of `packed-refs`, for who asks for several: a file of refs of their own hides one of them."""
    found: dict[str, str] = {}
    for line in lines_of(git_dir / "packed-refs", _MAX_PACKED_BYTES):
        object_id, _, name = line.rstrip(b"\r\n").partition(b" ")
        text = name.decode("utf-8", "surrogateescape")
        if _COMMIT.fullmatch(object_id) and _NAME.fullmatch(text):
            found[text] = object_id.decode()
        if len(found) > MOST_ENTRIES:
            raise OSError(errno.EFBIG, f"more than {MOST_ENTRIES} refs", str(git_dir / "packed-refs"))
    return found


def read_ref(git_dir: Path, name: str, packed: Mapping[str, str] | None = None) -> str | None:
    """The object a ref (or `HEAD`) leads to, symbolic refs followed; null where there is none."""
    for _ in range(_MAX_DEPTH):
        content = _loose(git_dir, name)
        target = _symbolic(content)
        if target is None:
            return _commit(content) or (packed_refs(git_dir) if packed is None else packed).get(name)
        name = target
    return None


def branch_of_head(git_dir: Path) -> str | None:
    """The short name of the branch that `HEAD` stands on; null when it is detached or unreadable."""
    target = _symbolic(_loose(git_dir, "HEAD"))
    return target.removeprefix("refs/heads/") if target and target.startswith("refs/heads/") else None


def all_refs(git_dir: Path, prefix: str, packed: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every ref below a prefix such as `refs/heads/`, with the object it leads to; symbolic ones left out."""
    known = packed_refs(git_dir) if packed is None else packed
    found = {name: commit for name, commit in known.items() if name.startswith(prefix)}
    for _, path in entries_below(git_dir / prefix):
        name = f"{prefix}{path}"
        commit = _commit(_loose(git_dir, name)) if _NAME.fullmatch(name) else None
        if commit is not None:
            found[name] = commit
    return dict(sorted(found.items()))


def _loose(git_dir: Path, name: str) -> bytes:
    return (read_if_there(git_dir / name, _MAX_REF_BYTES) or b"").strip()


def _symbolic(content: bytes) -> str | None:
    if not content.startswith(b"ref: "):
        return None
    name = content.removeprefix(b"ref: ").decode("utf-8", "surrogateescape").strip()
    return name if _NAME.fullmatch(name) else None


def _commit(content: bytes) -> str | None:
    return content.decode() if _COMMIT.fullmatch(content) else None


# What in a `.git` could make git run something or look elsewhere, and whether it is still as it was made.
#
# Nothing here is ever executed or obeyed by the daemon, changed or not; a change is worth telling people
# about.


ALTERNATES = "objects/info/alternates"

_WATCHED = ("config", "config.worktree", "commondir", "info/attributes", ALTERNATES)
_MAX_BYTES = 1024 * 1024
_MAX_HOOKS = 200


def hash_watched_files(git_dir: Path) -> dict[str, str]:
    """A hash for each watched file and hook that exists, by its name below the git directory."""
    return {name: _digest(git_dir / name) for name in _names(git_dir)}


def changed_files(git_dir: Path, sealed: Mapping[str, str]) -> tuple[str, ...]:
    """The watched files that were changed, added or removed since they were sealed, sorted."""
    now = hash_watched_files(git_dir)
    return tuple(sorted(name for name in {*now, *sealed} if now.get(name) != sealed.get(name)))


def _names(git_dir: Path) -> Iterator[str]:
    for name in _WATCHED:
        if _exists(git_dir / name):
            yield name
    try:
        hooks = sorted(name for _, name in islice(entries_below(git_dir / "hooks", into=""), _MAX_HOOKS))
    except OSError:
        yield "hooks"  # nobody sees what is in it
    else:
        yield from (f"hooks/{name}" for name in hooks if not name.endswith(".sample"))
        if (git_dir / "hooks").is_symlink():
            yield "hooks"


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except OSError:
        return False
    return True


def _digest(path: Path) -> str:
    content = read_regular(path, _MAX_BYTES)
    return "not a regular file" if content is None else hashlib.sha256(content).hexdigest()


# Locks between processes, and the lock files of git that a crash leaves.
#
# Of the latter: with one of them in place no ref of that name can ever be written.
#
# git never leaves one by itself. Who made it cannot be told, only that nobody can be using it any more: it
# is older than any command may take, or every command that could have made it is known to have ended. The
# latter is so for the only daemon at a workspace root, at its start: by then it has ended what its
# predecessor left.


_log = structlog.get_logger(__name__)
_STALE_LOCK_S: Final = 2 * NETWORK_TIMEOUT_MS / 1000
_PATIENCE: Final = 100
_PAUSE_S: Final = 0.05


class RootLease:
    """One daemon's use of a workspace root, as others see it; it ends with this object or the process.

    `alone` says whether nobody else was there, and holds until `settle`: who comes meanwhile waits that long.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        weakref.finalize(self, os.close, fd)
        self.alone = self._take(fcntl.LOCK_EX)

    @classmethod
    def at(cls, path: Path) -> Self | None:
        """The use of the root that this file stands for; null where there can be no such file."""
        try:
            return cls(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        except OSError:
            return None

    def settle(self) -> None:
        """Let others in; blocks while another is alone there, for a bounded time: an agent can do as if."""
        for _ in range(_PATIENCE):
            if self._take(fcntl.LOCK_SH):
                break
            time.sleep(_PAUSE_S)

    def _take(self, kind: int) -> bool:
        try:
            fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


@asynccontextmanager
async def locked(path: Path, wait_s: float) -> AsyncIterator[None]:
    """Hold a lock file against other processes; the lock ends with this process at the latest.

    Asked for again and again and never waited for in a thread, because such a wait cannot be cancelled.
    An agent that can read the file can lock it too, so the wait has an end.

    Raises:
        GitError: somebody else has held it all the time.
    """
    await to_thread.run_sync(make_directory, path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with anyio.move_on_after(wait_s) as waiting:
            while not _try_lock(fd):  # noqa: ASYNC110 - another process holds it and can set no event of ours
                await anyio.sleep(_PAUSE_S)
        if waiting.cancelled_caught:
            raise GitError(f"another process has held {path} for {wait_s:g} s")
        yield
    finally:
        os.close(fd)


def clear_stale_locks(git_dir: Path) -> None:
    """Remove locks that are older than any command may take."""
    _clear(git_dir, into="refs", before=time.time() - _STALE_LOCK_S)


def clear_abandoned_locks(git_dir: Path) -> None:
    """Remove all locks of a repository that nobody works with: every command that could have is ended."""
    _clear(git_dir, into="refs")


def clear_branch_locks(repository: Path) -> None:
    """Remove the locks of the branches that are ours in somebody's own repository; others are theirs."""
    git_dir = common_dir(repository)
    if git_dir is not None:
        _clear(git_dir / "refs" / "heads" / BRANCH_PREFIX)


def _clear(top: Path, *, into: str | None = None, before: float = math.inf) -> None:
    """Remove locks older than a moment, as far as what an agent may have made of the directory lets us."""
    try:
        for directory, path in entries_below(top, into=into):
            name = path.rpartition("/")[2]
            if name.endswith(".lock"):
                with suppress(OSError):
                    if os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime < before:
                        os.unlink(name, dir_fd=directory)
    except OSError as error:
        _log.warning("locks_not_cleared", path=str(top), error=str(error))


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# Looking at a workspace's repository without obeying it.
#
# An agent owns its `.git`: configuration, hooks, attributes, alternates and redirects there may start
# programs or point anywhere. So git never runs with it. Instead a *shadow* is made for the moment: a git
# directory of our own with our own configuration, whose refs are copies of the tips we read ourselves,
# whose index is a copy, and whose objects are links to the workspace's packs and loose objects.
# `objects/info` is not linked, because an alternates file or a commit graph in it is the agent's word.


MAX_ENTRIES: Final = 20_000

_TIP = "refs/heads/tip"
_SHA256_DIGITS = 64
_HEX = frozenset("0123456789abcdef")
_NO_REPOSITORY: Final = ".git is no directory with a repository"
_MAX_INDEX_BYTES = 256 * 1024 * 1024
_MAX_TEXT_BYTES = 1024 * 1024
_FIELDS_BEFORE_PATH = {b"1": 8, b"u": 10, b"?": 1}
_STATUS = ("status", "--porcelain=v2", "-z", "--no-renames", "--untracked-files=all")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefSnapshot:
    """What is told by files alone.

    Attributes:
        problem: why nothing else is known, one line: `.git` is no real directory with real objects, or cannot
            be read; null where it can.
        head: the commit that is checked out.
        head_branch: the short name of the branch that `HEAD` is on; null when detached.
        tips: every local branch and the stash, by full ref name.
        remote_tips: the tracking refs, which are the agent's word.
        changed: watched files that are not as they were made (`hash_watched_files`).
    """

    problem: str | None = None
    head: str | None = None
    head_branch: str | None = None
    tips: Mapping[str, str] = field(default_factory=dict)
    remote_tips: Mapping[str, str] = field(default_factory=dict)
    changed: tuple[str, ...] = ()


def read_ref_snapshot(workspace: Path, sealed: Mapping[str, str] | None) -> RefSnapshot:
    """Read the refs of a workspace; blocking, never raises. Without a seal no change is told."""
    git_dir = workspace / ".git"
    try:
        if not all(stat.S_ISDIR(os.lstat(place).st_mode) for place in (git_dir, git_dir / "objects")):
            return RefSnapshot(problem=_NO_REPOSITORY)
        packed = packed_refs(git_dir)
        stash = read_ref(git_dir, "refs/stash", packed)
        return RefSnapshot(
            head=read_ref(git_dir, "HEAD", packed),
            head_branch=branch_of_head(git_dir),
            tips=all_refs(git_dir, "refs/heads/", packed) | ({"refs/stash": stash} if stash else {}),
            remote_tips=all_refs(git_dir, "refs/remotes/", packed),
            changed=() if sealed is None else changed_files(git_dir, sealed),
        )
    except (FileNotFoundError, NotADirectoryError):
        return RefSnapshot(problem=_NO_REPOSITORY)
    except OSError as error:
        return RefSnapshot(problem=f".git cannot be read: {error.strerror}: {error.filename}")


class Shadow:
    """A momentary git directory over a workspace; made by `open_shadow`."""

    def __init__(self, git: Git, git_dir: Path, workspace: Path) -> None:
        self._git = git
        self._workspace = workspace
        self.git_dir = git_dir
        self.tip = _TIP

    async def point_at(self, commit: str) -> None:
        """Put the shadow's one branch on another commit."""
        await to_thread.run_sync((self.git_dir / _TIP).write_text, f"{commit}\n")

    async def status(self) -> bytes:
        """Uncommitted changes and untracked files; empty when there are none. Raises `GitError`, `OSError`.

        The index is copied for it here, as a delivery needs none. Submodules are compared by the commit that
        is checked out in them. git would look for edits in them by running itself under their configuration,
        which is the agent's too.
        """
        await to_thread.run_sync(_copy_index, self._workspace / ".git", self.git_dir)
        return await self._git.isolated(
            f"--git-dir={self.git_dir}",
            f"--work-tree={self._workspace}",
            "-C",
            self._workspace,
            *_STATUS,
            "--ignore-submodules=dirty",
        )

    async def tree_mark(self) -> str:
        """A hash that changes with the uncommitted state of the tree. Raises `GitError`, `OSError`."""
        status = await self.status()
        return await to_thread.run_sync(_mark_of, self._workspace, status)

    async def submodules(self) -> tuple[Path, ...]:
        """Checked-out repositories that the index knows as submodules, after `status`. Raises `GitError`."""
        listing = await self._git.isolated(f"--git-dir={self.git_dir}", "ls-files", "--stage", "-z")
        links = (entry.partition(b"\t")[2] for entry in listing.split(b"\0") if entry.startswith(b"160000 "))
        paths = [self._workspace / link.decode("utf-8", "surrogateescape") for link in links]
        return await to_thread.run_sync(_checked_out, paths)

    async def small_blobs(self, ids: Iterable[bytes], limit: int) -> dict[bytes, bytes]:
        """The content of those objects that are blobs of at most `limit` bytes. Raises `GitError`."""
        cat = (f"--git-dir={self.git_dir}", "cat-file")
        asked = b"".join(one + b"\n" for one in dict.fromkeys(ids))
        listing = await self._git.isolated(*cat, "--batch-check", stdin=asked)
        told = [line.split(b" ") for line in listing.splitlines()]
        small = [line[0] for line in told if line[1] == b"blob" and int(line[2]) <= limit]
        return {one: await self._git.isolated(*cat, "blob", one.decode()) for one in small}

    async def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Whether one commit is contained in the other. Raises `GitError`."""
        return await self._git.holds(
            f"--git-dir={self.git_dir}", "merge-base", "--is-ancestor", ancestor, descendant
        )

    async def within(self, commit: str, known: Collection[str]) -> bool:
        """Whether the commit is contained in one of those that are known. Raises `GitError`."""
        beyond = await self._git.isolated(
            f"--git-dir={self.git_dir}",
            "rev-list",
            "--max-count=1",
            "--stdin",
            stdin="\n".join([commit, *(f"^{one}" for one in known), ""]).encode(),
        )
        return not beyond


@asynccontextmanager
async def open_shadow(
    git: Git,
    staging: Path,
    workspace: Path,
    tip: str | None,
    *,
    sealed: Mapping[str, str] | None,
    objects: Path | None = None,
) -> AsyncIterator[Shadow]:
    """A shadow whose `HEAD` is `tip`; gone when the context ends.

    `objects` is the object store that the workspace was made to borrow. The workspace's own alternates file
    is followed only while it is as it was sealed.
    """
    git_dir = Path(await to_thread.run_sync(lambda: tempfile.mkdtemp(dir=staging, prefix="shadow-")))
    try:
        await to_thread.run_sync(_build, git_dir, workspace / ".git", tip, sealed, objects)
        yield Shadow(git, git_dir, workspace)
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(drop, git_dir)


def _borrowed(own: Path, sealed: Mapping[str, str] | None, objects: Path | None) -> list[str]:
    lines = [] if objects is None else [str(objects)]
    if sealed and ALTERNATES in sealed and ALTERNATES not in changed_files(own, sealed):
        text = (read_regular(own / ALTERNATES, _MAX_TEXT_BYTES) or b"").decode("utf-8", "surrogateescape")
        lines += [str(own / "objects" / line) for line in text.splitlines() if line and line[0] not in '#"']
    return list(dict.fromkeys(lines))


def _build(
    git_dir: Path, own: Path, tip: str | None, sealed: Mapping[str, str] | None, lender: Path | None
) -> None:
    objects = git_dir / "objects"
    for directory in (git_dir / "refs" / "heads", git_dir / "info", objects / "info"):
        directory.mkdir(parents=True)
    (git_dir / "config").write_text(_config(tip))
    (git_dir / "HEAD").write_text(f"{tip or 'ref: refs/heads/unborn'}\n")
    if tip is not None:
        (git_dir / _TIP).write_text(f"{tip}\n")
    for store in _stores(own / "objects"):
        (objects / store.name).symlink_to(store)
    (objects / "info" / "alternates").write_bytes(
        b"".join(line.encode("utf-8", "surrogateescape") + b"\n" for line in _borrowed(own, sealed, lender))
    )


def _copy_index(own: Path, git_dir: Path) -> None:
    copy_regular(own / "index", git_dir / "index", _MAX_INDEX_BYTES)
    copy_regular(own / "info" / "exclude", git_dir / "info" / "exclude", _MAX_TEXT_BYTES)


def _config(tip: str | None) -> str:
    sha256 = tip is not None and len(tip) == _SHA256_DIGITS
    return f"[core]\n\trepositoryformatversion = {int(sha256)}\n\tfilemode = true\n\tbare = false\n" + (
        "[extensions]\n\tobjectFormat = sha256\n" if sha256 else ""
    )


def _stores(objects: Path) -> Iterator[Path]:
    """The directories that hold objects: packs, and loose ones by the first two digits of their ids."""
    for _, name in entries_below(objects, into=""):
        loose = len(name) == len("00") and set(name) <= _HEX
        if (loose or name == "pack") and is_directory(objects / name):
            yield objects / name


def _checked_out(paths: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(path for path in paths if (path / ".git").exists())


def _mark_of(workspace: Path, status: bytes) -> str:
    """The status itself, and for each file in it what stands for its content."""
    digest = hashlib.sha256(status)
    for entry in [entry for entry in status.split(b"\0") if entry][:MAX_ENTRIES]:
        name = entry.split(b" ", _FIELDS_BEFORE_PATH.get(entry[:1], 1))[-1]
        path = workspace / name.decode("utf-8", "surrogateescape")
        digest.update(stat_line(path, name))
        if name.endswith(b"/") and is_directory(path):
            digest.update(fingerprint(path, max_entries=MAX_ENTRIES).encode())
    return digest.hexdigest()


# Git LFS objects that an agent committed: a fetch brings their pointers out of a workspace, and not them.
#
# They are copied from the store of the workspace to that of the local repository, or of the mirror, from
# which later workspaces are filled without a download. An object is called by the SHA-256 of its content,
# which is looked at: the store is the agent's. All of it blocks; callers run it in a thread.


MAX_POINTER_BYTES: Final = 1_024
"""A blob that is larger is no pointer."""

_OBJECTS: Final = "lfs/objects"
_POINTER: Final = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-[^\n]*\n)*oid sha256:([0-9a-f]{64})\nsize (\d+)\n"
)
_OBJECT: Final = re.compile(r"([0-9a-f]{2})/([0-9a-f]{2})/\1\2[0-9a-f]{60}")


def copy_lfs_objects(own: Path, git_dir: Path) -> str | None:
    """Copy what another git directory does not have yet from a workspace's own.

    Returns:
        why some of them may be in the workspace only, one line; None where all were copied.
    """
    left = 0
    try:
        for directory, path in _objects(own / _OBJECTS):
            target = git_dir / _OBJECTS / path
            if not target.exists():
                left += not _copied(directory, target)
    except OSError as error:
        return f"Git LFS objects could not be copied to {git_dir / _OBJECTS}: {error.strerror or error}"
    return f"{left} Git LFS objects are not what they are called" if left else None


def is_content_of(pointer: bytes, path: Path) -> bool:
    """Whether a file holds what a pointer stands for. Raises `OSError`."""
    found = _POINTER.fullmatch(pointer)
    if found is None:
        return False
    with os.fdopen(_open(path), "rb") as opened:
        info = os.fstat(opened.fileno())
        if not stat.S_ISREG(info.st_mode) or info.st_size != int(found[2]):
            return False
        return hashlib.file_digest(opened, "sha256").hexdigest() == found[1].decode()


def _open(path: str | Path, directory: int | None = None) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)


def _objects(store: Path) -> Iterator[tuple[int, str]]:
    """The objects, `ab/cd/abcd...`, as `entries_below` tells them, and raising as it does."""
    for directory, path in entries_below(store) if is_directory(store.parent) else ():
        if _OBJECT.fullmatch(path):
            found = os.stat(path.rpartition("/")[2], dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                yield directory, path


def _copied(directory: int, target: Path) -> bool:
    """Whether the object of that name was what it is called, and was copied. Raises `OSError`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=target.parent)
    draft = Path(name)
    try:
        with os.fdopen(fd, "w+b") as copy, os.fdopen(_open(target.name, directory), "rb") as opened:
            shutil.copyfileobj(opened, copy)
            copy.flush()
            os.fsync(copy.fileno())
            copy.seek(0)
            if hashlib.file_digest(copy, "sha256").hexdigest() != target.name:
                return False
        draft.chmod(0o644)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return True
