"""The bare mirror of a repository: fetched once per burst, borrowed from by every workspace, never cleaned.

Clones hold no copy of its objects, so none may ever go away: nothing is pruned, collected or repacked, and
`preciousObjects` tells every git so. In it, `refs/remotes/origin/*` is what the repository has and
`refs/heads/symphony/*` is what was delivered from workspaces; fetching cannot touch the latter.
"""

import re
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
from anyio import to_thread

from symphony.domain.disk import is_full, make_room
from symphony.domain.failures import Blame, Category
from symphony.workspaces.files import drop, is_directory, write_atomic
from symphony.workspaces.git import (
    NETWORK_TIMEOUT_MS,
    SAFE_DIRECTORY,
    Git,
    GitError,
    config_value,
    without_credentials,
)
from symphony.workspaces.layout import Layout
from symphony.workspaces.locks import clear_stale_locks, locked
from symphony.workspaces.model import WorkspaceError
from symphony.workspaces.records import read_entries, write_entry
from symphony.workspaces.refs import all_refs
from symphony.workspaces.remote import apart

__all__ = ["Advertised", "Mirror", "Snapshot", "base_of", "parse_advertised", "without_logins"]

_TRACKING = "refs/remotes/origin/"
_DETACHED = "refs/symphony/origin-head"
_SHA256_DIGITS = 64
_LOOK_TIMEOUT_MS = 30_000
_ADDRESS = re.compile(r'(?m)^\turl = "(.*)"$')
_FETCH = ("fetch", "--quiet", "--no-write-fetch-head", "--no-auto-maintenance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """What a repository says it has: where its `HEAD` stands, and its branches."""

    head_branch: str | None = None
    head: str | None = None
    branches: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
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
        self._outcome: Snapshot | WorkspaceError | None = None
        self.path = layout.mirror(repository)

    @property
    def objects(self) -> Path:
        """The object store that clones borrow."""
        return self.path / "objects"

    async def refresh(self) -> Snapshot:
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

    async def look(self) -> Advertised:
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
        return self._not_empty(parse_advertised(answer))

    async def remembered(self) -> Advertised | None:
        """What the repository had at the last refresh, read off the mirror; null where there is none yet."""
        if not await to_thread.run_sync(is_directory, self.path):
            return None
        refs = await to_thread.run_sync(all_refs, self.path, "refs/")
        branches = {
            name.removeprefix(_TRACKING): commit
            for name, commit in refs.items()
            if name.startswith(_TRACKING)
        }
        return Advertised(head=refs.get(_DETACHED), branches=branches)

    async def _refresh(self) -> Snapshot | WorkspaceError:
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

    async def _create(self) -> Advertised:
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

    async def _update(self, path: Path) -> Advertised:
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

    async def _advertised(self, path: Path) -> Advertised:
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
        return self._not_empty(parse_advertised(answer))

    def _not_empty(self, advertised: Advertised) -> Advertised:
        if not advertised.branches and advertised.head is None:
            raise self._empty()
        return advertised

    async def _fetch(self, path: Path, advertised: Advertised) -> None:
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

    def _snapshot(self, advertised: Advertised) -> Snapshot:
        refs = all_refs(self.path, "refs/")
        return Snapshot(
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
            hint=make_room(self.path.parent) if is_full(error) else usual,
        )

    def _empty(self) -> WorkspaceError:
        return WorkspaceError.of(
            Category.WORKSPACE_REPOSITORY,
            f"workspace.repo {without_credentials(self._repository)} has no commit yet",
            hint="make a first commit in it",
            blame=Blame.CONFIG,
        )


def base_of(offer: Advertised | Snapshot, base_branch: str | None, repository: str) -> tuple[str | None, str]:
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


def parse_advertised(answer: bytes) -> Advertised:
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
    return Advertised(head_branch=head_branch, head=head, branches=branches)


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
        address, _ = apart(written)
        if found is None or address == written:
            continue
        cleaned = f"{text[: found.start(1)]}{config_value(address)[1:-1]}{text[found.end(1) :]}"
        write_atomic(config, cleaned.encode("utf-8", "surrogateescape"))
        if not is_directory(layout.mirror(address)):
            path.rename(layout.mirror(address))
            path.symlink_to(layout.mirror(address).name)
    for entry in read_entries(layout):
        if entry.repo is not None and apart(entry.repo)[0] != entry.repo:
            write_entry(layout, replace(entry, repo=apart(entry.repo)[0]))
