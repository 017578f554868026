"""The values that this layer hands out, and the one exception it raises."""

from dataclasses import dataclass
from pathlib import Path

from symphony.domain.disk import is_full, make_room
from symphony.domain.failures import Blame, Category, Failure, SymphonyError
from symphony.workspaces.changes import Changes

__all__ = [
    "Delivery",
    "ProgressMark",
    "Removal",
    "Workspace",
    "WorkspaceError",
    "WorkspaceRecord",
    "cannot_be_made",
    "invalid_cwd",
    "vanished",
]


class WorkspaceError(SymphonyError):
    """A workspace could not be made, checked or prepared."""

    @classmethod
    def of(
        cls,
        category: Category,
        message: str,
        *,
        hint: str | None = None,
        blame: Blame = Blame.WORKSPACE,
        retryable: bool = True,
    ) -> "WorkspaceError":
        """The error with its `Failure` built from the arguments."""
        return cls(Failure(category=category, blame=blame, message=message, hint=hint, retryable=retryable))


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The directory in which an issue is worked on (DM14).

    Attributes:
        key: its name below the root.
        path: absolute, symlinks resolved.
        branch: the issue's branch; null where hooks populate the directory.
        base_commit: the commit on which the branch was begun; null where it is not known.
        created_now: whether this very call made it.
    """

    key: str
    path: Path
    branch: str | None
    base_commit: str | None
    created_now: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceRecord:
    """Whose workspace a directory is; remembered beside it, so that old ones can be cleaned up (WS13)."""

    issue_id: str
    identifier: str
    key: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressMark:
    """Equal marks mean: neither a new commit nor a changed tree in between (RT5)."""

    head: str | None
    tree: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What became of the commits in a workspace.

    Attributes:
        branch: where the work was delivered to; null where hooks populate the directory.
        head: the commit that stands for the work; null where it cannot be told.
        commits: how many commits `head` is ahead of the base; 0 where it cannot be told.
        changes: what changed between the base and `head`; `None` where it cannot be told.
        delivered: whether the mirror has `head`, so that nothing committed can be lost with the directory.
        pushed: whether `origin` has it, as far as we know.
        failure: why the work could not be delivered and is in the workspace only; null where it was, or where
            there is none.
        push_failure: why `origin` does not have it although it was to be pushed.
        warnings: one line for people each.
    """

    branch: str | None
    head: str | None
    commits: int = 0
    changes: Changes | None = None
    delivered: bool = False
    pushed: bool = False
    failure: Failure | None = None
    push_failure: Failure | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Whether a workspace was removed; `kept_reason` says why an existing one was not."""

    removed: bool
    kept_reason: str | None = None


def cannot_be_made(path: Path, error: OSError) -> WorkspaceError:
    """The error of a workspace that the system refuses."""
    usual = f"see that this user may read and write {path} and the directory that it is in"
    return WorkspaceError.of(
        Category.WORKSPACE_PREPARE_FAILED,
        f"workspace {path} cannot be made: {error}",
        hint=make_room(path.parent) if is_full(error) else usual,
    )


def invalid_cwd(path: Path, reason: str) -> WorkspaceError:
    """The error of a launch outside of a workspace (WS4); `reason` ends the sentence."""
    return WorkspaceError.of(
        Category.INVALID_WORKSPACE_CWD,
        f"no agent may be started in {path}: {reason}",
        blame=Blame.AGENT,
        retryable=False,
    )


def vanished(path: Path) -> Failure:
    """Why a run failed during which somebody took its workspace away."""
    return Failure(
        category=Category.WORKSPACE_VANISHED,
        blame=Blame.WORKSPACE,
        message=f"the workspace {path} was deleted while the agent worked in it",
        hint="the next attempt makes it anew, from what was delivered before; see what cleans up there",
    )
