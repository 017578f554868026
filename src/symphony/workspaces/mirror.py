"""The bare mirror of a repository, and the clones that borrow its objects.

One fetch of the mirror serves all callers that wait for it. Clones have no copy of its objects, so the mirror
is never pruned, collected or repacked; `preciousObjects` enforces that. In it, `refs/remotes/origin/*` are
the branches of the repository, and `refs/heads/symphony/*` the branches delivered from workspaces. A fetch
cannot change the latter.
"""

import re
import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import msgspec
from msgspec import Struct

from symphony import to_thread
from symphony.domain import Blame, Category, branch_name, disk_full_hint
from symphony.files import write_atomic
from symphony.workspaces.files import is_directory, temporary_directory
from symphony.workspaces.git import (
    LOCKED,
    NETWORK_TIMEOUT_MS,
    SAFE_DIRECTORY,
    Git,
    GitError,
    all_refs,
    config_value,
    hint_of,
    identity_at,
    identity_config,
    read_ref,
    repository_config,
    without_credentials,
    write_git_dir,
)
from symphony.workspaces.layout import Layout
from symphony.workspaces.locks import clear_fetch_locks, clear_stale_locks, locked
from symphony.workspaces.model import WorkspaceError, local_repository, split_login
from symphony.workspaces.ownership import read_records, write_record

_OPTIONS: Final = ("--no-write-fetch-head", "--no-auto-maintenance", "--no-prune", "--no-prune-tags")
FETCH: Final = ("fetch", "--quiet", *_OPTIONS)
FETCH_FAR: Final = ("fetch", "--progress", *_OPTIONS)
"""Options for a fetch from a server, whose progress shows headway (`Git.fetch`)."""
UNCHECKED: Final = ("-c", "fetch.fsckObjects=false")
"""Options against the user's object checks: a mirror takes all objects of its repository."""

_TRACKING: Final = "refs/remotes/origin/"
_DETACHED_HEAD: Final = "refs/symphony/origin-head"
_LOOK_TIMEOUT_S: Final = 30.0
_ENDING_S: Final = 3.0
"""How long a git may still run after the daemon that started it has been killed."""
_URL_LINE = re.compile(r'(?m)^\turl = "(.*)"$')


class RemoteRefs(Struct, frozen=True, kw_only=True):
    """Refs of a repository: the branch and commit of `HEAD`, branches by short and tags by full name.

    Git refused the newest commits of the `refused` branches, because the repository is shallow.
    """

    head_branch: str | None = None
    head: str | None = None
    branches: Mapping[str, str] = msgspec.field(default_factory=dict)
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)
    refused: frozenset[str] = frozenset()


def parse_ls_remote(output: bytes) -> RemoteRefs:
    """Parse the output of `git ls-remote --symref` for `HEAD` and the branches."""
    head_branch, head, branches = None, None, {}
    for line in output.decode("utf-8", "surrogateescape").splitlines():
        left, _, name = line.partition("\t")
        if name == "HEAD" and left.startswith("ref: refs/heads/"):
            head_branch = left.removeprefix("ref: refs/heads/")
        elif name == "HEAD":
            head = left
        elif name.startswith("refs/heads/"):
            branches[name.removeprefix("refs/heads/")] = left
    return RemoteRefs(head_branch=head_branch, head=head, branches=branches)


class Mirror:
    """One bare mirror; share it between the workspaces of a repository.

    Args:
        git: runs git.
        layout: where the mirror is.
        repository: its address or path, without a login.
        lock_wait_s: how long to wait for another process that refreshes the mirror.
        now_s: monotonic clock.
        borrowed: an object store whose objects a new mirror need not fetch.
    """

    def __init__(
        self,
        git: Git,
        layout: Layout,
        repository: str,
        *,
        lock_wait_s: float = NETWORK_TIMEOUT_MS / 1000,
        now_s: Callable[[], float] = time.monotonic,
        borrowed: Path | None = None,
    ) -> None:
        self.git = git
        self.layout = layout
        self.repository = repository
        self.path = layout.mirror(repository)
        self._lock_wait_s = lock_wait_s
        self._now_s = now_s
        self._borrowed = () if borrowed is None else (borrowed,)
        self._lock = anyio.Lock()
        self._started_s = float("-inf")
        self._outcome: RemoteRefs | WorkspaceError | None = None

    @property
    def objects(self) -> Path:
        """The object store that clones borrow."""
        return self.path / "objects"

    async def refresh(self) -> RemoteRefs:
        """Update the mirror, one process at a time.

        All callers that ask during a refresh share the next one, because that includes everything pushed
        before they asked.

        Returns:
            the refs of the mirror, including tags.

        Raises:
            WorkspaceError: `workspace_repository`, also for all callers that waited for the failed refresh.
        """
        requested_s = self._now_s()
        async with self._lock:
            if self._outcome is None or self._started_s < requested_s:
                self._outcome, self._started_s = None, self._now_s()
                self._outcome = await self._refresh()
        if isinstance(self._outcome, WorkspaceError):
            raise WorkspaceError(self._outcome.failure) from self._outcome
        return self._outcome

    async def look(self) -> RemoteRefs:
        """The present refs of the repository, without using the mirror.

        Raises:
            WorkspaceError: `workspace_repository`: it is unreachable or has no commit.
        """
        try:
            with anyio.fail_after(_LOOK_TIMEOUT_S):
                return await self._ls_remote(Path("/"))
        except TimeoutError as error:
            raise self.unreadable(GitError("git ls-remote did not end in time")) from error
        except (GitError, OSError) as error:
            raise self.unreadable(error) from error

    async def remembered(self) -> RemoteRefs | None:
        """The refs of the repository at the last refresh, from the mirror; `None` if there is no mirror."""
        if not await to_thread.run_sync(is_directory, self.path):
            return None
        refs = await to_thread.run_sync(all_refs, self.path, "refs/")
        branches = {
            name.removeprefix(_TRACKING): commit
            for name, commit in refs.items()
            if name.startswith(_TRACKING)
        }
        return RemoteRefs(head=refs.get(_DETACHED_HEAD), branches=branches)

    def base(self, refs: RemoteRefs, base_branch: str | None) -> tuple[str | None, str]:
        """Name (`None` for a detached `HEAD`) and commit of the base branch.

        Raises:
            WorkspaceError: `workspace_repository`: there is no such branch, or it is out of date.
        """
        name = base_branch or refs.head_branch
        if (name or "HEAD") in refs.refused:
            where = f"`git -C {shlex.quote(self.repository)} fetch --unshallow`"
            there = "run `git fetch --unshallow` there, or let it be a whole clone"
            raise WorkspaceError.of(
                Category.WORKSPACE_REPOSITORY,
                f"{self._shown} is shallow: git does not fetch the newest commit of {name or 'HEAD'}",
                hint=there if local_repository(self.repository) is None else where,
                blame=Blame.CONFIG,
                retryable=False,
            )
        commit = refs.head if name is None else refs.branches.get(name)
        if commit is None:
            raise WorkspaceError.of(
                Category.WORKSPACE_REPOSITORY,
                f"{self._shown} has no branch {name or 'at HEAD'}",
                hint="set workspace.base_branch to one of its branches",
                blame=Blame.CONFIG,
            )
        return name, commit

    async def branch_start(self, branch: str, offered: str | None, git_dir: Path | None = None) -> str | None:
        """The commit at which an issue's branch continues; `None` if it starts at the base.

        Merged work is not continued, because it is in the base.

        Args:
            branch: the delivered branch.
            offered: the branch in the repository. It is used once it contains the delivered commit.
            git_dir: has both commits; the mirror itself if `None`.
        """
        delivered, merged = await to_thread.run_sync(self._delivered, branch)
        delivered, offered = (None if each == merged else each for each in (delivered, offered))
        if delivered is None or offered is None or delivered == offered:
            return delivered or offered
        is_newer = await self.git.is_ancestor(git_dir or self.path, delivered, offered)
        return offered if is_newer else delivered

    def _delivered(self, branch: str) -> tuple[str | None, str | None]:
        """The delivered commit of the branch, and its last commit that is known to be merged."""
        return read_ref(self.path, f"refs/heads/{branch}"), read_ref(
            self.path, f"refs/symphony/merged/{branch}"
        )

    def unreadable(self, error: Exception) -> WorkspaceError:
        """The error for a repository that git could not read or fetch.

        For a repository of another user, git names the command that makes it readable.
        """
        advice = error.advice if isinstance(error, GitError) else None
        if advice is not None:
            # Delivery opens the repository itself, and not only its git directory.
            both = dict.fromkeys((advice, f"{SAFE_DIRECTORY} {shlex.quote(self.repository)}"))
            return WorkspaceError.of(
                Category.WORKSPACE_REPOSITORY,
                f"{self._shown} cannot be read: {error}",
                hint=f"as the user of the daemon: `{' && '.join(both)}`; or give the repository to that user",
                blame=Blame.CONFIG,
            )
        usual = "check workspace.repo, the network and git's login by `git ls-remote` on this machine"
        return WorkspaceError.of(
            Category.WORKSPACE_REPOSITORY,
            f"{self._shown} cannot be fetched: {error}",
            hint=hint_of(error, self.path.parent, usual),
        )

    @property
    def _shown(self) -> str:
        return f"workspace.repo {without_credentials(self.repository)}"

    async def _ls_remote(self, where: Path) -> RemoteRefs:
        output = await self.git.over_network(
            *("-C", where),
            "ls-remote",
            "--symref",
            "--",
            self.repository,
            "HEAD",
            "refs/heads/*",
            login=self.git.login,
        )
        refs = parse_ls_remote(output)
        if not refs.branches and refs.head is None:
            raise WorkspaceError.of(
                Category.WORKSPACE_REPOSITORY,
                f"{self._shown} has no commit yet",
                hint="make a first commit in it",
                blame=Blame.CONFIG,
            )
        return refs

    async def _refresh(self) -> RemoteRefs | WorkspaceError:
        try:
            async with locked(self.path.with_suffix(".lock"), self._lock_wait_s):
                known = await to_thread.run_sync(all_refs, self.path, "refs/")
                if await to_thread.run_sync(is_directory, self.path):
                    offered = await self._update(known)
                else:
                    offered = await self._create()
                refs = await to_thread.run_sync(all_refs, self.path, "refs/")
        except (GitError, OSError) as error:
            await to_thread.run_sync(clear_stale_locks, self.path)
            return self.unreadable(error)
        except WorkspaceError as error:
            return error
        fetched = {name: refs.get(_TRACKING + name) for name in offered.branches}
        # Commits pushed after the listing are newer than the known ones, not refused.
        refused = {
            name
            for name, commit in self._mirror_refs(offered).items()
            if commit != refs.get(name) == known.get(name)
        }
        return RemoteRefs(
            head_branch=offered.head_branch,
            head=None if offered.head is None else refs.get(_DETACHED_HEAD),
            branches={name: commit for name, commit in fetched.items() if commit is not None},
            tags={name: commit for name, commit in refs.items() if name.startswith("refs/tags/")},
            refused=frozenset(
                "HEAD" if name == _DETACHED_HEAD else name.removeprefix(_TRACKING) for name in refused
            ),
        )

    async def _create(self) -> RemoteRefs:
        """Create the mirror in the staging directory and rename it when it is complete."""
        async with temporary_directory(self.layout.staging, "mirror-") as path:
            write = partial(write_git_dir, path, self._config(None), borrowed=self._borrowed)
            await to_thread.run_sync(write)
            offered = await self._ls_remote(path)
            example = next(iter(offered.branches.values()), offered.head)
            await to_thread.run_sync((path / "config").write_text, self._config(example))
            await self._fetch(path, offered)
            await to_thread.run_sync(path.rename, self.path)
        return offered

    def _config(self, commit: str | None) -> str:
        """Configuration of the mirror; it names `origin`, because user settings may depend on its address."""
        return (
            f"{repository_config(commit, bare=True, precious=True)}"
            "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n"
            f'[remote "origin"]\n\turl = {config_value(self.repository)}\n'
            f"\tfetch = +refs/heads/*:{_TRACKING}*\n"
        )

    @staticmethod
    def _mirror_refs(offered: RemoteRefs) -> dict[str, str]:
        """The refs of the mirror after a fetch of the offered refs."""
        head = {} if offered.head is None else {_DETACHED_HEAD: offered.head}
        return {f"{_TRACKING}{name}": commit for name, commit in offered.branches.items()} | head

    async def _update(self, known: Mapping[str, str]) -> RemoteRefs:
        offered = await self._ls_remote(self.path)
        wanted = self._mirror_refs(offered)
        if not wanted.items() <= known.items():
            await self._remove_conflicts(known, wanted)
            try:
                await self._fetch(self.path, offered)
            except GitError as error:
                if LOCKED.search(error.output) is None:
                    raise
                await anyio.sleep(_ENDING_S)
                await to_thread.run_sync(clear_fetch_locks, self.path)
                await self._fetch(self.path, offered)
        return offered

    async def _remove_conflicts(self, known: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        """Remove a stale ref `a` if the repository now has `a/b`, or the other way round.

        Its commit stays referenced by another ref.
        """
        parents = {name[:end] for name in wanted for end, letter in enumerate(name) if letter == "/"}
        for name, commit in known.items():
            if name.startswith(_TRACKING) and name not in wanted:
                above = {name[:end] for end, letter in enumerate(name) if letter == "/"}
                if name in parents or above & wanted.keys():
                    kept = f"refs/symphony/gone/{commit}"
                    await self.git.trusted("-C", self.path, "update-ref", kept, commit)
                    await self.git.trusted("-C", self.path, "update-ref", "-d", name)

    async def _fetch(self, path: Path, offered: RemoteRefs) -> None:
        await self.git.fetch(
            "-C",
            path,
            *UNCHECKED,
            *FETCH_FAR,
            "--",
            self.repository,
            f"+refs/heads/*:{_TRACKING}*",
            *([] if offered.head is None else [f"+HEAD:{_DETACHED_HEAD}"]),
            login=self.git.login,
        )


def remove_stored_logins(layout: Layout) -> None:
    """Remove logins from mirror configurations and records that an earlier version wrote; blocking.

    Such a mirror gets its present name. Its old name becomes a link to it, because clones refer to it.
    Raises `OSError`.
    """
    for path in layout.mirrors.glob("*.git"):
        config = path / "config"
        if path.is_symlink() or not config.is_file():
            continue
        text = config.read_text(encoding="utf-8", errors="surrogateescape")
        found = _URL_LINE.search(text)
        stored = "" if found is None else re.sub(r"\\(.)", r"\1", found[1])
        address, _ = split_login(stored)
        if found is None or address == stored:
            continue
        cleaned = f"{text[: found.start(1)]}{config_value(address)[1:-1]}{text[found.end(1) :]}"
        write_atomic(config, cleaned.encode("utf-8", "surrogateescape"), mode=0o600, durable=True)
        if not is_directory(layout.mirror(address)):
            path.rename(layout.mirror(address))
            path.symlink_to(layout.mirror(address).name)
    for record in read_records(layout):
        if record.repo is not None and split_login(record.repo)[0] != record.repo:
            write_record(layout, msgspec.structs.replace(record, repo=split_login(record.repo)[0]))


# --- Clones ---
# A clone is written file by file. So the content of its `.git` is known, and one git process is enough: the
# checkout.

_LOW_SPACE_BYTES = 64 * 1024 * 1024  # the same limit as in `symphony doctor`


class BranchOrigin(Struct, frozen=True, kw_only=True):
    """Where the branch of a new workspace starts, and the commit at which it left the base branch."""

    branch: str
    start: str
    base_commit: str


async def create_clone(mirror: Mirror, key: str, target: Path, base_branch: str | None) -> BranchOrigin:
    """Populate `target`, which must not exist or be an empty directory.

    Raises:
        WorkspaceError: `workspace_repository` (unreachable, empty, no such branch) or
            `workspace_prepare_failed` (the checkout itself).
    """
    git = mirror.git
    refs = await mirror.refresh()
    base_name, base = mirror.base(refs, base_branch)
    try:
        async with temporary_directory(mirror.layout.staging, "clone-") as staging:
            origin = await _origin(mirror, refs, branch_name(key), base)
            identity = await identity_at(git, local_repository(mirror.repository) or mirror.path)
            tree = staging / "tree"
            await to_thread.run_sync(_write_git_dir, mirror, tree / ".git", refs, base_name, origin, identity)
            await _check_out(git, tree)
            await to_thread.run_sync(tree.rename, target)
    except (GitError, OSError) as error:
        # Git does not always say that the disk is full.
        usage = await to_thread.run_sync(shutil.disk_usage, target.parent)
        is_full = usage.free < _LOW_SPACE_BYTES
        hint = disk_full_hint(target.parent) if is_full else hint_of(error, target.parent)
        raise WorkspaceError.of(
            Category.WORKSPACE_PREPARE_FAILED, f"workspace {key} cannot be populated: {error}", hint=hint
        ) from error
    return origin


async def check_out(
    mirror: Mirror, target: Path, branch: str, commit: str, *, objects: Path | None = None
) -> None:
    """Populate `target` with a commit that the mirror has; nothing is fetched.

    With `objects` another object store has the commit.

    Raises:
        GitError, OSError: the checkout failed.
    """
    origin = BranchOrigin(branch=branch, start=commit, base_commit=commit)
    await to_thread.run_sync(_write_git_dir, mirror, target / ".git", RemoteRefs(), None, origin, {}, objects)
    await _check_out(mirror.git, target)


async def _check_out(git: Git, tree: Path) -> None:
    """Write the files of `HEAD`, through the filters of the operator's configuration."""
    where = (f"--git-dir={tree / '.git'}", f"--work-tree={tree}", "-C", tree)
    await git.trusted(*where, "read-tree", "-m", "-u", "HEAD")


async def _origin(mirror: Mirror, refs: RemoteRefs, branch: str, base: str) -> BranchOrigin:
    """Continue at an earlier delivery of this branch, or start at the base."""
    start = await mirror.branch_start(branch, refs.branches.get(branch))
    if start is None:
        return BranchOrigin(branch=branch, start=base, base_commit=base)
    try:
        fork_point = await mirror.git.isolated("-C", mirror.path, "merge-base", base, start)
    except GitError:  # the histories are unrelated
        return BranchOrigin(branch=branch, start=start, base_commit=base)
    return BranchOrigin(branch=branch, start=start, base_commit=fork_point.decode().strip())


def _write_git_dir(
    mirror: Mirror,
    git_dir: Path,
    refs: RemoteRefs,
    base_name: str | None,
    origin: BranchOrigin,
    identity: Mapping[str, str],
    objects: Path | None = None,
) -> None:
    """A git directory that is on the issue's branch, with an empty index."""
    branch_file = git_dir / "refs" / "heads" / origin.branch
    tracking = git_dir / "refs" / "remotes" / "origin"
    address = config_value(without_credentials(mirror.repository))
    config = (
        f"{repository_config(origin.start)}[core]\n\tlogallrefupdates = true\n"
        f'[remote "origin"]\n\turl = {address}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
        f'[branch "{origin.branch}"]\n\tremote = origin\n\tmerge = refs/heads/{origin.branch}\n'
        f"{identity_config(identity)}"
    )
    packed = {f"{_TRACKING}{name}": commit for name, commit in refs.branches.items()}
    packed.update(refs.tags)
    head = f"ref: refs/heads/{origin.branch}"
    write_git_dir(git_dir, config, head=head, borrowed=[objects or mirror.objects])
    contents = {
        git_dir / "packed-refs": "".join(f"{commit} {name}\n" for name, commit in packed.items()),
        branch_file: f"{origin.start}\n",
    }
    if base_name is not None:
        contents[tracking / "HEAD"] = f"ref: {_TRACKING}{base_name}\n"
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", errors="surrogateescape")
