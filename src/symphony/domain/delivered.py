"""The facts of delivered work. Each fact is defined only here."""

from collections.abc import Sequence
from typing import Annotated, Final, Self

from msgspec import Meta, Struct, structs

from symphony.domain.failures import Failure
from symphony.domain.redaction import Redaction
from symphony.domain.text import plural
from symphony.domain.usage import Count


class FileChange(Struct, frozen=True, kw_only=True):
    """What a branch changes in one file."""

    path: Annotated[str, Meta(description="The new one of a renamed file.")]
    insertions: Annotated[Count, Meta(description="Lines; 0 for a binary file.")]
    deletions: Count


class WorkSize(Struct, frozen=True, kw_only=True):
    """How much a branch changes compared with its base."""

    commits: Annotated[Count, Meta(description="Commits that only this branch has.")] = 0
    files_changed: Count = 0
    insertions: Annotated[Count, Meta(description="Lines added.")] = 0
    deletions: Annotated[Count, Meta(description="Lines removed.")] = 0

    @classmethod
    def of(cls, commits: int, files: Sequence[FileChange]) -> Self:
        """The size of a branch with `commits` commits that change `files`."""
        return cls(
            commits=commits,
            files_changed=len(files),
            insertions=sum(file.insertions for file in files),
            deletions=sum(file.deletions for file in files),
        )

    @property
    def lines(self) -> str:
        """The changed lines for people: `+3 -1`."""
        return f"+{self.insertions} -{self.deletions}"

    @property
    def line(self) -> str:
        """All of it for people: `1 commit, 2 files (+3 -1)`."""
        return f"{plural(self.commits, 'commit')}, {plural(self.files_changed, 'file')} ({self.lines})"


NO_WORK: Final = WorkSize()


class Delivered(Struct, frozen=True, kw_only=True):
    """Work that was delivered."""

    branch: Annotated[str, Meta(description="Where the work is.")]
    head: Annotated[str, Meta(description="The delivered commit.")]
    work: WorkSize = NO_WORK


class DeliveredBranch(Delivered, frozen=True, kw_only=True):
    """Delivered work, and whether it has reached its repositories.

    Attributes:
        branch_failure: why the repository of `workspace.repo` does not have `head` on the branch.
        pushed: whether the remote `origin` has `head`.
        to_push: whether `origin` is to get it; true from the delivery until a push succeeds.
        push_failure: why the last push of it failed.
    """

    branch_failure: Failure | None = None
    pushed: bool = False
    to_push: bool = False
    push_failure: Failure | None = None

    def masked(self, redaction: Redaction) -> Self:
        """A copy whose failures are safe to show."""
        placed, pushed = (
            each and redaction.failure(each) for each in (self.branch_failure, self.push_failure)
        )
        return structs.replace(self, branch_failure=placed, push_failure=pushed)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Why the branch has not reached its repositories."""
        return tuple(each for each in (self.branch_failure, self.push_failure) if each is not None)

    @property
    def is_pending(self) -> bool:
        """Whether a repository still lacks the branch."""
        return self.to_push or bool(self.failures)
