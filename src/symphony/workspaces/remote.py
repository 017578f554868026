"""Carries a repository to the host of a run, and the issue's branch back, by git over ssh.

A host has its own bare repository, from which its workspaces are cloned. Only missing objects are sent. On
the way back only the branch of the issue is fetched, and git checks each object. Git LFS objects are sent
separately as tar files.
"""

import re
import tarfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog
from msgspec import Struct

from symphony import to_thread
from symphony.domain import Blame, Category, is_disk_full
from symphony.workspaces.delivery import FETCHED_BASES, Publisher, delivery_failure
from symphony.workspaces.git import Git, GitError, all_refs, common_dir, hint_of, read_ref
from symphony.workspaces.mirror import FETCH_FAR, Mirror
from symphony.workspaces.model import Delivery, WorkspaceError, local_repository
from symphony.workspaces.shadow import copy_lfs_objects

LFS_OBJECTS: Final = "lfs/objects"
"""The directory of LFS objects in a git directory, each at `ab/cd/abcd...` by the SHA-256 of its content."""
_ATTRIBUTES: Final = (".gitattributes", ":(glob)**/.gitattributes")
_POINTER_LINE: Final = "^oid sha256:[0-9a-f]{64}$"
_LFS_NAME: Final = re.compile(r"([0-9a-f]{2})/([0-9a-f]{2})/\1\2[0-9a-f]{60}")
_CHUNK_BYTES: Final = 1024 * 1024

DETACHED_BRANCH: Final = "symphony-base"
"""The branch on the host that stands for a detached `HEAD`."""

_log = structlog.get_logger(__name__)
REMOTE_BASES: Final = "refs/symphony/base/"
"""The prefix of refs for the commits at which branches from hosts left the base branch."""

_PUSH: Final = (
    *("-c", "remote.origin.mirror=false"),
    *("-c", "push.pushOption="),
    *("-c", "core.bigFileThreshold=1m"),  # searching deltas of large files takes minutes
    *("push", "--progress", "--force", "--no-verify", "--no-follow-tags", "--no-signed"),
    "--recurse-submodules=no",
)


class RemoteSource(Struct, frozen=True, kw_only=True):
    """The bare repository of a host; `ssh_command` is the `GIT_SSH_COMMAND` for it."""

    address: str
    ssh_command: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a git command that uses it."""
        return {
            "GIT_SSH_COMMAND": self.ssh_command,
            "GIT_SSH_VARIANT": "ssh",
            "GIT_ALLOW_PROTOCOL": "ssh",
        }


class BranchBase(Struct, frozen=True, kw_only=True):
    """Where the branch of an issue begins.

    Attributes:
        base_branch: the base branch on the host.
        base: its commit.
        delivered: the delivered commit of the branch so far.
        start: where it continues in a new workspace; `None` for the base.
    """

    base_branch: str
    base: str
    delivered: str | None
    start: str | None


class Courier:
    """Carries one repository to hosts and branches back."""

    def __init__(self, mirror: Mirror, publisher: Publisher, *, base_branch: str | None) -> None:
        self._mirror = mirror
        self._git = mirror.git
        self._base_branch = base_branch
        self._publisher = publisher

    @property
    def staging(self) -> Path:
        """A directory for temporary files."""
        return self._mirror.layout.staging

    def lfs_stores(self) -> tuple[Path, ...]:
        """The git directories that have Git LFS objects; new ones go to the first. Blocking."""
        local = local_repository(self._mirror.repository)
        own = None if local is None else common_dir(local)
        return (self._mirror.path,) if own is None else (own, self._mirror.path)

    async def lfs_objects(self, commit: str) -> frozenset[str]:
        """The Git LFS objects of the pointer files in a commit."""
        return await objects_of(self._git, self._mirror.path, commit)

    async def begin(self, branch: str) -> BranchBase:
        """Refresh the mirror, and determine where the branch of an issue begins. Raises `WorkspaceError`."""
        refs = await self._mirror.refresh()
        name, base = self._mirror.base(refs, self._base_branch)
        try:
            delivered = await to_thread.run_sync(read_ref, self._mirror.path, f"refs/heads/{branch}")
            start = await self._mirror.branch_start(branch, refs.branches.get(branch))
        except (GitError, OSError) as error:
            raise self._mirror.unreadable(error) from error
        return BranchBase(base_branch=name or DETACHED_BRANCH, base=base, delivered=delivered, start=start)

    async def go_on(self, branch: str, former: str) -> None:
        """Begin the branch of an issue at the delivered commit of its former name, unless the branch exists.

        Raises `WorkspaceError`.
        """
        path = self._mirror.path
        try:
            known = await to_thread.run_sync(read_ref, path, f"refs/heads/{branch}")
            head = await to_thread.run_sync(read_ref, path, f"refs/heads/{former}")
            if known is None and head is not None:
                await self._git.trusted("-C", path, "update-ref", f"refs/heads/{branch}", head, "")
                _log.info("branch_goes_on", branch=branch, former=former)
        except (GitError, OSError) as error:
            raise self._mirror.unreadable(error) from error

    async def send(
        self, source: RemoteSource, branch: str, begun: BranchBase, *, there: Mapping[str, str]
    ) -> None:
        """Send the host the branches and tags of the repository, and the branch of the issue.

        `there` are the refs of the host. If it has all of them, nothing is sent, and git is not started.

        Raises:
            WorkspaceError: `workspace_repository`.
        """
        further = {begun.base_branch: begun.base} | ({branch: begun.start} if begun.start else {})
        try:
            wanted = await to_thread.run_sync(self._shared_refs)
            wanted |= {f"refs/heads/{name}": commit for name, commit in further.items()}
            if wanted.items() <= there.items():
                return
            await self._git.over_network(
                "-C",
                self._mirror.path,
                *_PUSH,
                source.address,
                "+refs/remotes/origin/*:refs/heads/*",
                "^refs/remotes/origin/symphony/*",
                "+refs/tags/*:refs/tags/*",
                f"+{FETCHED_BASES}*:{FETCHED_BASES}*",
                *(f"+{commit}:refs/heads/{name}" for name, commit in further.items()),
                env=source.environment,
            )
        except (GitError, OSError) as error:
            hint = "free space on the host" if is_disk_full(error) else "see `symphony hosts check`"
            raise WorkspaceError.of(
                Category.HOST_UNAVAILABLE,
                f"the repository cannot be sent to the host: {error}",
                hint=hint,
                blame=Blame.HOST,
            ) from error

    def _shared_refs(self) -> dict[str, str]:
        """The refs that `send` sends besides the two branches, by their names on the host; blocking."""
        refs = all_refs(self._mirror.path, "refs/")
        tracking = "refs/remotes/origin/"
        branches = {
            f"refs/heads/{name.removeprefix(tracking)}": commit
            for name, commit in refs.items()
            if name.startswith(tracking) and not name.startswith(f"{tracking}symphony/")
        }
        as_here = ("refs/tags/", FETCHED_BASES)
        return branches | {name: commit for name, commit in refs.items() if name.startswith(as_here)}

    async def fetch(self, source: RemoteSource, branch: str, base: str) -> str | None:
        """Take over the branch of an issue from a host if it continues the delivered commit.

        Any other commit is kept below `refs/symphony/gone/`.

        Returns:
            the commit of the branch there; `None` if the host has no such branch.

        Raises:
            GitError, OSError: it could not be fetched, or has malformed objects.
        """
        path, landing = self._mirror.path, f"refs/symphony/landing/{branch}"
        try:
            await self._git.fetch(
                "-C",
                path,
                "-c",
                "fetch.fsckObjects=true",
                *FETCH_FAR,
                "--no-tags",
                source.address,
                f"+refs/heads/{branch}:{landing}",
                env=source.environment,
            )
        except GitError as error:
            if "couldn't find remote ref" in str(error):
                return None
            raise
        head = await to_thread.run_sync(read_ref, path, landing)
        if head is None:
            return None
        before = await to_thread.run_sync(read_ref, path, f"refs/heads/{branch}")
        ahead = before is None or await self._git.is_ancestor(path, before, head)
        kept = f"refs/heads/{branch}" if ahead else f"refs/symphony/gone/{head}"
        await self._git.isolated("-C", path, "update-ref", kept, head)
        await self._git.isolated("-C", path, "update-ref", "-d", landing)
        if ahead:
            begin = await self._fork_point(base, head)
            await self._git.isolated("-C", path, "update-ref", f"{REMOTE_BASES}{branch}", begin)
        return head

    async def deliver(self, branch: str, head: str | None) -> Delivery:
        """Deliver the fetched branch as if from a workspace; never raises for an error of git or a remote."""
        delivery = Delivery(head=head)
        try:
            found = await to_thread.run_sync(read_ref, self._mirror.path, f"refs/heads/{branch}")
            if head is None or found != head:
                other = "the host does not have the commit that it reported"
                return replace(delivery, failure=delivery_failure(other))
            base = await to_thread.run_sync(read_ref, self._mirror.path, f"{REMOTE_BASES}{branch}")
            return await self._publisher.publish(delivery, branch, head, base)
        except (GitError, OSError) as error:
            hint = hint_of(error, self._mirror.path.parent)
            return replace(delivery, failure=delivery_failure(str(error), hint=hint))

    async def _fork_point(self, base: str, head: str) -> str:
        try:
            found = await self._git.isolated("-C", self._mirror.path, "merge-base", base, head)
        except GitError:  # the histories are unrelated
            return base
        return found.decode().strip()


def lfs_object_name(oid: str) -> str:
    """The path of an object below `LFS_OBJECTS`."""
    return f"{oid[:2]}/{oid[2:4]}/{oid}"


async def objects_of(git: Git, git_dir: Path, commit: str) -> frozenset[str]:
    """The objects of the pointer files in a commit; none if its attributes do not name Git LFS."""
    grep = ("-C", git_dir, "grep", "-h", "-I", "--no-color", "-E")
    try:
        await git.isolated(*grep, "filter=lfs", commit, "--", *_ATTRIBUTES)
        lines = await git.isolated(*grep, _POINTER_LINE, commit)
    except GitError:  # this is how git says that there is none
        return frozenset()
    return frozenset(line.rpartition(":")[2] for line in lines.decode("ascii", "replace").splitlines())


def present_lfs_objects(stores: Sequence[Path], oids: Collection[str]) -> frozenset[str]:
    """The objects that one of the git directories has; blocking."""
    names = {oid: f"{LFS_OBJECTS}/{lfs_object_name(oid)}" for oid in oids}
    return frozenset(oid for oid, name in names.items() if any((store / name).is_file() for store in stores))


def pack_lfs_objects(stores: Sequence[Path], oids: Collection[str], file: Path) -> None:
    """Write objects of the git directories into a tar file; blocking. Raises `OSError`."""
    with tarfile.open(file, "w") as archive:
        for oid in sorted(oids):
            name = lfs_object_name(oid)
            found = next(store for store in stores if (store / LFS_OBJECTS / name).is_file())
            archive.add(found / LFS_OBJECTS / name, arcname=name, recursive=False)


def unpack_lfs_objects(file: Path, staging: Path, target: Path) -> str | None:
    """Copy the objects of a tar file into a git directory, each after a check of its content; blocking.

    Returns:
        as `copy_lfs_objects`.

    Raises:
        OSError, tarfile.TarError: it cannot be read, or there is no room.
    """
    with tarfile.open(file) as archive:
        for member in archive:
            stream = (
                archive.extractfile(member) if member.isreg() and _LFS_NAME.fullmatch(member.name) else None
            )
            if stream is None:
                continue
            path = staging / LFS_OBJECTS / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as out:
                while data := stream.read(_CHUNK_BYTES):
                    out.write(data)
    return copy_lfs_objects(staging, target)
