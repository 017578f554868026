"""The bare mirror of a repository: fetched once per burst, borrowed from by every workspace, never cleaned.

Clones hold no copy of its objects, so none may ever go away: nothing is pruned, collected or repacked, and
`preciousObjects` tells every git so. In it, `refs/remotes/origin/*` is what the repository has and
`refs/heads/symphony/*` is what was delivered from workspaces; fetching cannot touch the latter.
"""

import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
from anyio import to_thread

from symphony.domain import Blame, Category, branch_name, disk_full_hint, is_disk_full
from symphony.workspaces.directories import read_records, write_record
from symphony.workspaces.files import drop, is_directory, write_atomic
from symphony.workspaces.git import (
    NETWORK_TIMEOUT_MS,
    SAFE_DIRECTORY,
    Git,
    GitError,
    all_refs,
    clear_stale_locks,
    config_value,
    locked,
    read_ref,
    without_credentials,
)
from symphony.workspaces.layout import Layout
from symphony.workspaces.model import WorkspaceError, split_login

_TRACKING = "refs/remotes/origin/"
_DETACHED = "refs/symphony/origin-head"
_SHA256_DIGITS = 64
_LOOK_TIMEOUT_MS = 30_000
_ADDRESS = re.compile(r'(?m)^\turl = "(.*)"$')
_FETCH = ("fetch", "--quiet", "--no-write-fetch-head", "--no-auto-maintenance")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRefs:
    """What a repository says it has: where its `HEAD` stands, and its branches."""

    head_branch: str | None = None
    head: str | None = None
    branches: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRefs:
    """What the mirror has of the repository after a refresh; branch and full tag names to object ids."""

    head_branch: str | None
    head: str | None
    branches: Mapping[str, str]
    tags: Mapping[str, str]


class Mirror:
    """One bare mirror; share it between the workspaces of a repository.

    `fresh_ms`: a refresh begun this short before it is asked for serves the asker too.
    """

    def __init__(
        self,
        git: Git,
        layout: Layout,
        repository: str,
        *,
        fresh_ms: int = 2_000,
        lock_wait_s: float = NETWORK_TIMEOUT_MS / 1000,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._git = git
        self._staging = layout.staging
        self._repository = repository
        self._fresh_s = fresh_ms / 1000
        self._lock_wait_s = lock_wait_s
        self._now_s = now_s
        self._lock = anyio.Lock()
        self._begun_s = float("-inf")
        self._outcome: MirrorRefs | WorkspaceError | None = None
        self.path = layout.mirror(repository)

    @property
    def objects(self) -> Path:
        """The object store that clones borrow."""
        return self.path / "objects"

    async def refresh(self) -> MirrorRefs:
        """Bring the mirror up to date, at most once per burst and one at a time, other processes included.

        Raises:
            WorkspaceError: `workspace_repository`, also for those who only waited for a refresh that failed.
        """
        asked_s = self._now_s()
        async with self._lock:
            if self._outcome is None or self._begun_s < asked_s - self._fresh_s:
                self._outcome, self._begun_s = None, self._now_s()
                self._outcome = await self._refresh()
        if isinstance(self._outcome, WorkspaceError):
            raise WorkspaceError(self._outcome.failure) from self._outcome
        return self._outcome

    async def look(self) -> RemoteRefs:
        """What the repository offers, asked without a mirror: can it be reached, has it a commit?

        Raises:
            WorkspaceError: `workspace_repository`, with a hint.
        """
        try:
            answer = await self._git.trusted(
                "ls-remote",
                "--symref",
                "--",
                self._repository,
                "HEAD",
                "refs/heads/*",
                timeout_ms=_LOOK_TIMEOUT_MS,
                login=self._git.login,
            )
        except (GitError, OSError) as error:
            raise self.unreadable(error) from error
        return self._not_empty(parse_ls_remote(answer))

    async def remembered(self) -> RemoteRefs | None:
        """What the repository had at the last refresh, read off the mirror; null where there is none yet."""
        if not await to_thread.run_sync(is_directory, self.path):
            return None
        refs = await to_thread.run_sync(all_refs, self.path, "refs/")
        branches = {
            name.removeprefix(_TRACKING): commit
            for name, commit in refs.items()
            if name.startswith(_TRACKING)
        }
        return RemoteRefs(head=refs.get(_DETACHED), branches=branches)

    async def _refresh(self) -> MirrorRefs | WorkspaceError:
        try:
            async with locked(self.path.with_suffix(".lock"), self._lock_wait_s):
                if not await to_thread.run_sync(is_directory, self.path):
                    advertised = await self._create()
                else:
                    advertised = await self._update(self.path)
                return await to_thread.run_sync(self._snapshot, advertised)
        except (GitError, OSError) as error:
            await to_thread.run_sync(clear_stale_locks, self.path)
            return self.unreadable(error)
        except WorkspaceError as error:
            return error

    async def _create(self) -> RemoteRefs:
        """Make the mirror aside and rename it into place, so that a half-made one is never found."""
        half = Path(await to_thread.run_sync(lambda: tempfile.mkdtemp(dir=self._staging)))
        try:
            await self._init(half, "sha1")
            advertised = await self._advertised(half)
            if any(len(commit) == _SHA256_DIGITS for commit in advertised.branches.values()):
                await to_thread.run_sync(drop, half)
                await self._init(half, "sha256")
            await self._fetch(half, advertised)
            await to_thread.run_sync(half.rename, self.path)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(drop, half)
            raise
        return advertised

    async def _init(self, path: Path, object_format: str) -> None:
        await self._git.trusted(
            "init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", path
        )
        await to_thread.run_sync((path / "config").write_text, self._config(object_format))

    def _config(self, object_format: str) -> str:
        return (
            "[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = true\n"
            "[extensions]\n\tpreciousObjects = true\n"
            + (f"\tobjectFormat = {object_format}\n" if object_format != "sha1" else "")
            + "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n"
            f'[remote "origin"]\n\turl = {config_value(self._repository)}\n'
            f"\tfetch = +refs/heads/*:{_TRACKING}*\n"
        )

    async def _update(self, path: Path) -> RemoteRefs:
        advertised = await self._advertised(path)
        known = await to_thread.run_sync(all_refs, path, "refs/")
        wanted = {f"{_TRACKING}{name}": commit for name, commit in advertised.branches.items()}
        if advertised.head is not None:
            wanted[_DETACHED] = advertised.head
        if not wanted.items() <= known.items():
            await self._make_way(path, known, wanted)
            await self._fetch(path, advertised)
        return advertised

    async def _make_way(self, path: Path, known: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        """Move a stale ref `a` aside when the repository now has `a/b`, or the other way round.

        Its commit stays referenced under its own id.
        """
        parents = {name[:end] for name in wanted for end, letter in enumerate(name) if letter == "/"}
        for name, commit in known.items():
            if name.startswith(_TRACKING) and name not in wanted:
                above = {name[:end] for end, letter in enumerate(name) if letter == "/"}
                if name in parents or above & wanted.keys():
                    await self._git.trusted("-C", path, "update-ref", f"refs/symphony/gone/{commit}", commit)
                    await self._git.trusted("-C", path, "update-ref", "-d", name)

    async def _advertised(self, path: Path) -> RemoteRefs:
        answer = await self._git.trusted(
            "-C",
            path,
            "ls-remote",
            "--symref",
            "origin",
            "HEAD",
            "refs/heads/*",
            timeout_ms=self._git.network_timeout_ms,
            login=self._git.login,
        )
        return self._not_empty(parse_ls_remote(answer))

    def _not_empty(self, advertised: RemoteRefs) -> RemoteRefs:
        if not advertised.branches and advertised.head is None:
            raise self._empty()
        return advertised

    async def _fetch(self, path: Path, advertised: RemoteRefs) -> None:
        refspecs = [f"+refs/heads/*:{_TRACKING}*"]
        if advertised.head is not None:
            refspecs.append(f"+HEAD:{_DETACHED}")
        await self._git.trusted(
            "-C",
            path,
            *_FETCH,
            "origin",
            *refspecs,
            timeout_ms=self._git.network_timeout_ms,
            login=self._git.login,
        )

    def _snapshot(self, advertised: RemoteRefs) -> MirrorRefs:
        refs = all_refs(self.path, "refs/")
        return MirrorRefs(
            head_branch=advertised.head_branch,
            head=None if advertised.head is None else refs.get(_DETACHED),
            branches={
                name: refs[_TRACKING + name] for name in advertised.branches if _TRACKING + name in refs
            },
            tags={name: commit for name, commit in refs.items() if name.startswith("refs/tags/")},
        )

    def unreadable(self, error: Exception) -> WorkspaceError:
        """The error for a repository that git could not read or fetch.

        One of another user is no outage: git says what has to be done before it looks at it.
        """
        advice = error.advice if isinstance(error, GitError) else None
        if advice is not None:
            # Delivery asks git for the repository itself, and not only for its git directory.
            both = dict.fromkeys((advice, f"{SAFE_DIRECTORY} {shlex.quote(self._repository)}"))
            return WorkspaceError.of(
                Category.WORKSPACE_REPOSITORY,
                f"workspace.repo {without_credentials(self._repository)} cannot be read: {error}",
                hint=f"as the user of the daemon: `{' && '.join(both)}`; or give the repository to that user",
                blame=Blame.CONFIG,
            )
        usual = "check workspace.repo, the network and git's login by `git ls-remote` on this machine"
        return WorkspaceError.of(
            Category.WORKSPACE_REPOSITORY,
            f"workspace.repo {without_credentials(self._repository)} cannot be fetched: {error}",
            hint=disk_full_hint(self.path.parent) if is_disk_full(error) else usual,
        )

    def _empty(self) -> WorkspaceError:
        return WorkspaceError.of(
            Category.WORKSPACE_REPOSITORY,
            f"workspace.repo {without_credentials(self._repository)} has no commit yet",
            hint="make a first commit in it",
            blame=Blame.CONFIG,
        )


def base_of(
    offer: RemoteRefs | MirrorRefs, base_branch: str | None, repository: str
) -> tuple[str | None, str]:
    """The base branch's name (null for a detached `HEAD`) and commit.

    Raises:
        WorkspaceError: `workspace_repository`: there is no such branch.
    """
    name = base_branch or offer.head_branch
    commit = offer.head if name is None else offer.branches.get(name)
    if commit is None:
        raise WorkspaceError.of(
            Category.WORKSPACE_REPOSITORY,
            f"workspace.repo {without_credentials(repository)} has no branch {name or 'at HEAD'}",
            hint="set workspace.base_branch to one of its branches",
            blame=Blame.CONFIG,
        )
    return name, commit


def parse_ls_remote(answer: bytes) -> RemoteRefs:
    """What `git ls-remote --symref` printed for `HEAD` and the branches."""
    head_branch, head, branches = None, None, {}
    for line in answer.decode("utf-8", "surrogateescape").splitlines():
        left, _, name = line.partition("\t")
        if name == "HEAD" and left.startswith("ref: refs/heads/"):
            head_branch = left.removeprefix("ref: refs/heads/")
        elif name == "HEAD":
            head = left
        elif name.startswith("refs/heads/"):
            branches[name.removeprefix("refs/heads/")] = left
    return RemoteRefs(head_branch=head_branch, head=head, branches=branches)


def without_logins(layout: Layout) -> None:
    """Take logins out of the addresses in configurations of mirrors and in records, where they once stood.

    Such a mirror gets the name it would have now; clones find it under both. Blocking; raises `OSError`.
    """
    for path in layout.mirrors.glob("*.git"):
        config = path / "config"
        if path.is_symlink() or not config.is_file():
            continue
        text = config.read_text(encoding="utf-8", errors="surrogateescape")
        found = _ADDRESS.search(text)
        written = "" if found is None else re.sub(r"\\(.)", r"\1", found[1])
        address, _ = split_login(written)
        if found is None or address == written:
            continue
        cleaned = f"{text[: found.start(1)]}{config_value(address)[1:-1]}{text[found.end(1) :]}"
        write_atomic(config, cleaned.encode("utf-8", "surrogateescape"))
        if not is_directory(layout.mirror(address)):
            path.rename(layout.mirror(address))
            path.symlink_to(layout.mirror(address).name)
    for entry in read_records(layout):
        if entry.repo is not None and split_login(entry.repo)[0] != entry.repo:
            write_record(layout, replace(entry, repo=split_login(entry.repo)[0]))


# Populating a new workspace from the mirror (WS14): borrowed objects, one branch, in place only when whole.
#
# The clone is written by hand, file by file, because then its `.git` holds exactly what we know it to hold
# and one git process is enough: the checkout itself.


_DEFAULT_IDENTITY = {"name": "Symphony Agent", "email": "symphony@localhost"}
_IDENTITY_LINE = re.compile(r"user\.(name|email) (.+)")
_LITTLE_BYTES = 64 * 1024 * 1024  # as `symphony doctor` judges it


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a new workspace's branch begins, and the commit at which it left the base."""

    branch: str
    start: str
    base_commit: str


async def begins_at(
    delivered: str | None, there: str | None, contains: Callable[[str, str], Awaitable[bool]]
) -> str | None:
    """The commit on which an issue's branch goes on; null where it has none and begins at the base.

    Args:
        delivered: where it was delivered to, in the mirror.
        there: where the repository has it, which counts once it holds what was delivered.
        contains: whether the first commit holds the second one.
    """
    start = delivered or there
    if start is not None and there is not None and start != there and await contains(there, start):
        return there
    return start


def _hint(error: Exception, root: Path) -> str | None:
    """What to do about a checkout that failed; blocking. git does not always say that the disk is full."""
    if is_disk_full(error) or shutil.disk_usage(root).free < _LITTLE_BYTES:
        return disk_full_hint(root)
    return None


class Checkout:
    """Makes workspaces from one mirror."""

    def __init__(self, git: Git, layout: Layout, mirror: Mirror, repository: str) -> None:
        self._git = git
        self._staging = layout.staging
        self._mirror = mirror
        self._repository = repository

    async def create(self, key: str, target: Path, base_branch: str | None) -> Origin:
        """Populate `target`, which must not exist or be an empty directory.

        Raises:
            WorkspaceError: `workspace_repository` (unreachable, empty, no such branch) or
                `workspace_prepare_failed` (the checkout itself).
        """
        snapshot = await self._mirror.refresh()
        base_name, base = base_of(snapshot, base_branch, self._repository)
        half = Path(await to_thread.run_sync(lambda: tempfile.mkdtemp(dir=self._staging, prefix="clone-")))
        try:
            origin = await self._origin(snapshot, branch_name(key), base)
            config = self._config(origin, await self._identity())
            await to_thread.run_sync(self._write_clone, half / "tree", snapshot, base_name, origin, config)
            await self._fill(half / "tree")
            await to_thread.run_sync((half / "tree").rename, target)
        except (GitError, OSError) as error:
            raise WorkspaceError.of(
                Category.WORKSPACE_PREPARE_FAILED,
                f"workspace {key} cannot be populated: {error}",
                hint=await to_thread.run_sync(_hint, error, target.parent),
            ) from error
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(drop, half)
        return origin

    async def _origin(self, snapshot: MirrorRefs, branch: str, base: str) -> Origin:
        """Begin at the base, or go on where this branch was delivered before."""
        delivered = await to_thread.run_sync(read_ref, self._mirror.path, f"refs/heads/{branch}")
        there = snapshot.branches.get(branch)
        start = await begins_at(delivered, there, self._contains)
        if start is None:
            return Origin(branch=branch, start=base, base_commit=base)
        return Origin(branch=branch, start=start, base_commit=await self._fork_point(base, start))

    async def _contains(self, commit: str, ancestor: str) -> bool:
        return await self._git.holds("-C", self._mirror.path, "merge-base", "--is-ancestor", ancestor, commit)

    async def _fork_point(self, base: str, start: str) -> str:
        """The base itself where the histories have nothing in common."""
        try:
            found = await self._git.isolated("-C", self._mirror.path, "merge-base", base, start)
        except GitError:
            return base
        return found.decode().strip()

    async def _identity(self) -> Mapping[str, str]:
        """The operator's git identity, ours where there is none.

        It is written into the clone, because an agent need not run under the operator's home.
        """
        try:
            listing = await self._git.trusted(
                "-C", self._mirror.path, "config", "--get-regexp", r"^user\.(name|email)$"
            )
        except GitError:  # git's way to say that there is none
            return _DEFAULT_IDENTITY
        found = _IDENTITY_LINE.findall(listing.decode("utf-8", "replace"))
        return {**_DEFAULT_IDENTITY, **dict(found)}

    def _config(self, origin: Origin, identity: Mapping[str, str]) -> str:
        sha256 = len(origin.start) == _SHA256_DIGITS
        address = config_value(without_credentials(self._repository))
        return (
            f"[core]\n\trepositoryformatversion = {int(sha256)}\n\tfilemode = true\n\tbare = false\n"
            "\tlogallrefupdates = true\n"
            + ("[extensions]\n\tobjectFormat = sha256\n" if sha256 else "")
            + f'[remote "origin"]\n\turl = {address}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
            f'[branch "{origin.branch}"]\n\tremote = origin\n\tmerge = refs/heads/{origin.branch}\n'
            "[user]\n"
            f"\tname = {config_value(identity['name'])}\n\temail = {config_value(identity['email'])}\n"
        )

    def _write_clone(
        self, tree: Path, snapshot: MirrorRefs, base_name: str | None, origin: Origin, config: str
    ) -> None:
        """A git directory that stands on the branch, with an empty index."""
        own = tree / ".git"
        branch = own / "refs" / "heads" / origin.branch
        tracking = own / "refs" / "remotes" / "origin"
        for directory in (branch.parent, tracking, own / "objects" / "info", own / "objects" / "pack"):
            directory.mkdir(parents=True)
        refs = {f"refs/remotes/origin/{name}": commit for name, commit in snapshot.branches.items()}
        lines = [f"{commit} {name}\n" for name, commit in {**refs, **snapshot.tags}.items()]
        contents = {
            own / "config": config,
            own / "HEAD": f"ref: refs/heads/{origin.branch}\n",
            own / "objects" / "info" / "alternates": f"{self._mirror.objects}\n",
            own / "packed-refs": "".join(lines),
            branch: f"{origin.start}\n",
        }
        if base_name is not None:
            contents[tracking / "HEAD"] = f"ref: refs/remotes/origin/{base_name}\n"
        for path, content in contents.items():
            path.write_text(content, encoding="utf-8", errors="surrogateescape")

    async def _fill(self, tree: Path) -> None:
        await self._git.trusted(
            f"--git-dir={tree / '.git'}", f"--work-tree={tree}", "-C", tree, "read-tree", "-m", "-u", "HEAD"
        )
