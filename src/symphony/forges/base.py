"""What the daemon asks of a forge: the same for GitHub, GitLab and Forgejo."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from symphony.domain import Check, PullRequest, SymphonyError


class ForgeError(SymphonyError):
    """A forge did not do what was asked. Whether a write was done is unknown after `status` `None`."""


class Landing(StrEnum):
    """How a change is merged, and what `Forge.arm` did."""

    AUTO = "auto"
    QUEUE = "queue"
    MERGED = "merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeAccess:
    """What a token may do.

    Attributes:
        login: whose it is.
        missing: what it lacks to open, answer and land, in words; empty if nothing is known to be missing.
        limits: what no token can do on this forge, in words.
    """

    login: str
    missing: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()


class Forge(Protocol):
    """One repository. Every method raises `ForgeError`; a read is repeated, a write never is."""

    async def find(self, branch: str) -> Sequence[PullRequest]:
        """All pull requests, open or not, newest first, whose head is this branch of this repository.

        They have no checks, reviews and comments (`complete` is false), and not every forge says here
        whether their authors may write.
        """
        ...

    async def find_onto(self, branch: str) -> Sequence[int]:
        """The numbers of open pull requests, at least of one, that are to be merged into this branch."""
        ...

    async def open(self, *, branch: str, base: str, title: str, body: str, draft: bool) -> int:
        """Open one; its number. Look for an existing one first: `find`."""
        ...

    async def update(self, pull: PullRequest, *, title: str, body: str) -> None:
        """Change the text."""
        ...

    async def observe(self, numbers: Sequence[int], *, fresh: bool = False) -> Mapping[int, PullRequest]:
        """Snapshots by number, without those that do not exist.

        What the forge confirms as unchanged is not sent again, unless a snapshot must be `fresh`: what
        decides on a merge.
        """
        ...

    async def log_tail(self, check: Check) -> str | None:
        """The last 100 lines of a check's log, as plain text without credentials; `None` if it has none."""
        ...

    async def reply(self, pull: PullRequest, thread_id: str, body: str) -> None:
        """Answer in a thread."""
        ...

    async def resolve(self, pull: PullRequest, thread_id: str) -> bool:
        """Mark a thread as resolved; false on a forge where only people can."""
        ...

    async def arm(self, pull: PullRequest, landing: Landing) -> Landing:
        """Let the forge merge it when its rules allow, or at once if they do already.

        The forge refuses if the head is no longer `pull.head_sha`.
        """
        ...

    async def disarm(self, pull: PullRequest) -> None:
        """Take back `arm`."""
        ...

    async def add_labels(self, pull: PullRequest, labels: Sequence[str]) -> None:
        """Add labels, which must exist."""
        ...

    async def request_reviews(self, pull: PullRequest, logins: Sequence[str]) -> None:
        """Ask these accounts to review, besides those who were asked before."""
        ...

    async def access(self) -> ForgeAccess:
        """Whose the token is, and what it may not do; an archived or unknown repository raises."""
        ...
