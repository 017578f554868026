"""What the web layer needs of a daemon: questions, a trigger, the verbs. The runtime implements it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

__all__ = [
    "ISSUE_VERBS",
    "MAX_ANSWER_CHARS",
    "OWN_VERBS",
    "Document",
    "HookAnswer",
    "HookDeniedError",
    "Hooks",
    "Operator",
    "RefreshAnswer",
    "RefusedError",
    "UnavailableError",
    "VerbAnswer",
]

Document = dict[str, Any]

ISSUE_VERBS = ("stop", "retry", "unblock", "answer")
"""What may be asked of one issue."""
OWN_VERBS = ("pause", "resume", "drain")
"""What may be asked of the daemon itself."""
MAX_ANSWER_CHARS = 20_000
"""How long an answer to an agent's question may be."""


class UnavailableError(Exception):
    """The daemon cannot answer now, which makes a 503 (AP5, AP7).

    `code` is `snapshot_timeout`, `snapshot_unavailable` or `orchestrator_unavailable`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class RefusedError(Exception):
    """A verb does not fit the present state, which makes a 409.

    `code` is stable, `message` and `hint` (what to do instead, or null) are for people.
    """

    def __init__(self, code: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbAnswer:
    """A verb was accepted; `message` says in one line what happens now."""

    verb: str
    issue_identifier: str | None
    message: str
    requested_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshAnswer:
    """A poll was asked for; `coalesced` means that it shares one that is under way or due (SC15)."""

    coalesced: bool
    requested_at: datetime


class Operator(Protocol):
    """What people may ask of a daemon. Every document it gives is fit to be shown: secrets are masked."""

    async def state(self) -> Document:
        """The state of the daemon, `observability.documents.state_document`.

        Raises:
            UnavailableError: there is no state yet or no more, or it took too long.
        """
        ...

    async def issue(self, identifier: str) -> Document | None:
        """One issue, `observability.documents.issue_document`; null when it is not known.

        Raises:
            UnavailableError: as `state`.
        """
        ...

    async def prompt(self, identifier: str) -> Document | None:
        """What a dispatch of the issue would send now; null when it is not known. No side effects.

        Raises:
            UnavailableError: as `state`.
            SymphonyError: what would fail the dispatch as well.
        """
        ...

    def refresh(self) -> RefreshAnswer:
        """Poll and reconcile as soon as possible.

        Raises:
            UnavailableError: the daemon does not poll (any more).
        """
        ...

    async def act(self, verb: str, identifier: str | None, text: str | None = None) -> VerbAnswer | None:
        """Do what an operator asks for; null when the issue is not known.

        `verb` is one of `ISSUE_VERBS` with an identifier, or one of `OWN_VERBS` with null. `text` is the
        answer to a question. What is asked for afterwards already shows what the verb did.

        Raises:
            RefusedError: it does not fit the present state.
            UnavailableError: as `refresh`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAnswer:
    """What a tracker is told that sent something: `accepted`, `duplicate`, `ignored` or `handshake`."""

    status: str
    code: int = 202
    headers: Mapping[str, str] = field(default_factory=dict)


class HookDeniedError(Exception):
    """A delivery is not taken; `status` is the one of HTTP, `code` is stable."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class Hooks(Protocol):
    """What trackers may tell a daemon. Names of headers are in lower case."""

    def open(self) -> bool:
        """Whether anything is taken at all."""
        ...

    def admit(self, tracker: str, headers: Mapping[str, str]) -> HookAnswer | None:
        """Judge a delivery before its body is read; null where it is to be read. Raises `HookDeniedError`."""
        ...

    def take(self, tracker: str, headers: Mapping[str, str], body: bytes) -> HookAnswer:
        """Take a delivery. Raises `HookDeniedError`."""
        ...
