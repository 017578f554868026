"""Merges a delivered commit into the base branch of the operator's repository.

    is it in the base already? -> does it merge? -> is the base's checkout clean? -> merge -> move the base

A merge is a fast-forward if possible, else a commit with two parents. Git makes it without a checkout. If the
base branch is checked out, `git merge --ff-only` moves it in that checkout and overwrites nothing. Otherwise
`git update-ref` moves it, only from the commit that was merged onto. Only the named commit is merged. An
existing merge is recognised, so a repetition changes nothing.
"""

from enum import StrEnum
from pathlib import Path
from typing import Final

import anyio
from msgspec import Struct

from symphony import to_thread
from symphony.domain import Blame, Category, Failure, plural
from symphony.workspaces.git import DEFAULT_IDENTITY, Git, GitError, hint_of, identity_at, read_ref
from symphony.workspaces.mirror import FETCH, Mirror
from symphony.workspaces.model import WorkspaceError
from symphony.workspaces.rehearsal import BranchRehearsal, Fate, rehearse

_TRIES: Final = 3
_MAX_NAMED: Final = 5
_MERGE: Final = ("merge", "--ff-only", "--no-autostash", "--no-verify-signatures", "--no-stat", "--quiet")


class MergeRefusal(StrEnum):
    """Why nothing is merged."""

    NO_REPOSITORY = "no_repository"
    NO_BASE = "no_base"
    HEAD_MOVED = "head_moved"
    BRANCH_MOVED = "branch_moved"
    CONFLICT = "conflict"
    UNRELATED = "unrelated"
    DIRTY = "dirty"
    IN_THE_WAY = "in_the_way"


class MergeRefusedError(WorkspaceError):
    """Nothing was merged or changed; `code` says why."""

    def __init__(self, failure: Failure, code: MergeRefusal) -> None:
        super().__init__(failure)
        self.code = code

    @classmethod
    def of_code(cls, code: MergeRefusal, message: str, *, hint: str | None = None) -> "MergeRefusedError":
        """The error with its `Failure`."""
        return cls(
            Failure(
                category=Category.WORKSPACE_REPOSITORY,
                blame=Blame.CONFIG,
                message=message,
                hint=hint,
                retryable=False,
            ),
            code,
        )


class Merged(Struct, frozen=True, kw_only=True):
    """A merge: the base branch, its commit, and whether it contained the work before."""

    base: str
    commit: str
    before: bool = False


async def check_merge(
    mirror: Mirror,
    staging: Path,
    local: Path,
    name: str | None,
    base_branch: str | None,
    *,
    branch: str,
    head: str,
) -> Merged | None:
    """The merge if it exists already, `None` if it can be made.

    Raises:
        MergeRefusedError: it cannot be made.
        WorkspaceError: git failed.
    """
    try:
        base = await _base(mirror.git, local, name)
        await _take_over(mirror, local, branch, head)
        if await _is_ancestor(mirror.git, local, head, base.commit):
            return Merged(base=base.name, commit=base.commit, before=True)
        await _check_branch(mirror.git, local, branch, head)
        (found,) = (await rehearse(mirror, staging, {branch: branch}, base_branch)).branches
        _check_fate(found, base.name)
        await _check_clean(mirror.git, base)
    except (GitError, OSError) as error:
        raise _failed(error, local) from error
    return None


async def merge(
    mirror: Mirror, local: Path, name: str | None, *, branch: str, head: str, message: str
) -> Merged:
    """Merge a commit into the base branch `name`; try again if the base moves meanwhile.

    Raises:
        MergeRefusedError: nothing was changed.
        WorkspaceError: git failed.
    """
    git = mirror.git
    try:
        await _take_over(mirror, local, branch, head)
        for left in reversed(range(_TRIES)):
            base = await _base(git, local, name)
            if await _is_ancestor(git, local, head, base.commit):
                return Merged(base=base.name, commit=base.commit, before=True)
            await _check_branch(git, local, branch, head)
            await _check_clean(git, base)
            commit = await _commit(git, local, base, head, message)
            try:
                with anyio.CancelScope(shield=True):  # a git that is ended leaves a checkout half changed
                    await _move(git, local, base, commit)
            except GitError:
                if not left or (await _base(git, local, name)).commit == base.commit:
                    raise
            else:
                return Merged(base=base.name, commit=commit)
    except (GitError, OSError) as error:
        raise _failed(error, local) from error
    raise AssertionError("unreachable")


class _Base(Struct, frozen=True, kw_only=True):
    """The present base branch, and where it is checked out, if anywhere."""

    name: str
    commit: str
    checkout: Path | None

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.name}"


async def _base(git: Git, local: Path, name: str | None) -> _Base:
    shown = b""
    if name is not None:
        form = "--format=%(objectname) %(worktreepath)"
        shown = await git.trusted("-C", local, "for-each-ref", form, f"refs/heads/{name}")
    commit, _, checkout = shown.decode("utf-8", "surrogateescape").rstrip("\n").partition(" ")
    if name is None or not commit or "\n" in checkout:
        raise MergeRefusedError.of_code(
            MergeRefusal.NO_BASE,
            f"{local} has no branch to merge into",
            hint="check a branch out there, or set workspace.base_branch to one of its branches",
        )
    return _Base(name=name, commit=commit, checkout=Path(checkout) if checkout else None)


async def _take_over(mirror: Mirror, local: Path, branch: str, head: str) -> None:
    """Bring the commit into the local repository; no ref of it changes."""
    ref = f"refs/heads/{branch}"
    found = await to_thread.run_sync(read_ref, mirror.path, ref)
    if found != head:
        raise MergeRefusedError.of_code(
            MergeRefusal.HEAD_MOVED, f"{branch} is at {(found or 'nothing')[:12]} now and not at {head[:12]}"
        )
    await mirror.git.trusted("-C", local, *FETCH, "--no-tags", mirror.path, ref)


async def _is_ancestor(git: Git, local: Path, ancestor: str, commit: str) -> bool:
    count = await git.trusted("-C", local, "rev-list", "--count", "--max-count=1", ancestor, "--not", commit)
    return count.strip() == b"0"


async def _check_branch(git: Git, local: Path, branch: str, head: str) -> None:
    """Nothing is merged while the branch has commits of a person that no review shows."""
    shown = await git.trusted("-C", local, "for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}")
    commit = shown.decode().strip()
    if commit and not await _is_ancestor(git, local, commit, head):
        raise MergeRefusedError.of_code(
            MergeRefusal.BRANCH_MOVED,
            f"{branch} in {local} is at {commit[:12]}, which no run delivered; {head[:12]} is reviewed",
            hint=f"merge it by hand, or set the branch to {head[:12]} and approve again",
        )


def _check_fate(found: BranchRehearsal, base: str) -> None:
    if found.fate is Fate.UNRELATED:
        raise MergeRefusedError.of_code(
            MergeRefusal.UNRELATED, f"{found.branch} and {base} have no commit in common"
        )
    if found.fate is Fate.CONFLICTS:
        files = [file.path for conflict in found.conflicts for file in conflict.files]
        raise _conflict(found.branch, base, files)


def _conflict(branch: str, base: str, files: list[str]) -> MergeRefusedError:
    where = f" in {', '.join(files[:_MAX_NAMED])}" if files else ""
    more = f" and {plural(len(files) - _MAX_NAMED, 'more file')}" if len(files) > _MAX_NAMED else ""
    return MergeRefusedError.of_code(
        MergeRefusal.CONFLICT,
        f"{branch} conflicts with {base}{where}{more}",
        hint=f"send it back to be brought up to date with {base}, or merge it by hand",
    )


async def _check_clean(git: Git, base: _Base) -> None:
    """Raise `MergeRefusedError` if the checkout of the base has changes."""
    if base.checkout is None:
        return
    status = await git.trusted(
        "-C", base.checkout, "status", "--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=none"
    )
    names = [entry[3:].decode("utf-8", "backslashreplace") for entry in status.split(b"\0") if entry]
    if names:
        raise MergeRefusedError.of_code(
            MergeRefusal.DIRTY,
            f"{base.checkout}, where {base.name} is checked out, has changes that are not committed: "
            f"{', '.join(names[:_MAX_NAMED])}",
            hint="commit or stash them, and approve again",
        )


async def _commit(git: Git, local: Path, base: _Base, head: str, message: str) -> str:
    """The commit to which the base moves."""
    if await _is_ancestor(git, local, base.commit, head):
        return head
    try:
        merged = await git.trusted("-C", local, "merge-tree", "--write-tree", base.commit, head)
    except GitError as error:  # this is how git reports a conflict
        raise _conflict(head[:12], base.name, []) from error
    named = {**DEFAULT_IDENTITY, **await identity_at(git, local)}
    author = [option for key, value in named.items() for option in ("-c", f"{key}={value}")]
    tree, parents = merged.split()[0].decode(), ("-p", base.commit, "-p", head)
    made = await git.trusted("-C", local, *author, "commit-tree", tree, *parents, "-m", message)
    return made.decode().strip()


async def _move(git: Git, local: Path, base: _Base, commit: str) -> None:
    if base.checkout is None:
        note = ("-m", "symphony: approved")
        await git.trusted("-C", local, "update-ref", *note, base.ref, commit, base.commit)
        return
    on = (await git.trusted("-C", base.checkout, "symbolic-ref", "HEAD")).decode().strip()
    if on != base.ref:
        raise GitError(f"{base.checkout} is on {on} now")
    try:
        await git.trusted("-C", base.checkout, *_MERGE, commit)
    except GitError as error:
        now = await git.trusted("-C", local, "rev-parse", base.ref)
        if now.decode().strip() != base.commit:
            raise
        raise MergeRefusedError.of_code(
            MergeRefusal.IN_THE_WAY,
            f"{base.checkout}, where {base.name} is checked out, cannot take the change: {error}",
            hint="move the files that are in the way, and approve again",
        ) from error


def _failed(error: Exception, local: Path) -> WorkspaceError:
    return WorkspaceError.of(
        Category.WORKSPACE_REPOSITORY,
        f"the work could not be merged: {error}",
        hint=hint_of(error, local, f"see whether git works in {local}"),
    )
