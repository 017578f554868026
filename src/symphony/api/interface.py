"""What the web layer needs of a daemon: questions, a trigger, the verbs. The runtime implements it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from symphony.api.models import Issue, Prompt, Refresh, State, Verb
from symphony.domain import ALL_ISSUES, Selection

ISSUE_ACTIONS = ("stop", "retry", "unblock", "answer")
"""What may be asked of one issue."""
DAEMON_ACTIONS = ("pause", "resume", "drain")
"""What may be asked of the daemon itself."""
MAX_ANSWER_CHARS = 20_000
"""How long an answer to an agent's question may be."""


class UnavailableError(Exception):
    """The daemon cannot answer now, which makes a 503.

    `code` is `snapshot_timeout`, `snapshot_unavailable` or `orchestrator_unavailable`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ConflictError(Exception):
    """A verb does not fit the present state, which makes a 409.

    `code` is stable, `message` and `hint` (what to do instead, or null) are for people.
    """

    def __init__(self, code: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


class Operator(Protocol):
    """What people may ask of a daemon. Every document it gives is fit to be shown: secrets are masked."""

    async def state(self, only: Selection = ALL_ISSUES) -> State:
        """The state of the daemon; rows of those issues only.

        Raises:
            UnavailableError: there is no state yet or no more, or it took too long.
        """
        ...

    async def issue(self, identifier: str) -> Issue | None:
        """One issue; `None` when it is not known.

        Raises:
            UnavailableError: as `state`.
        """
        ...

    async def prompt(self, identifier: str) -> Prompt | None:
        """What a dispatch of the issue would send now; `None` when it is not known. No side effects.

        Raises:
            UnavailableError: as `state`.
            SymphonyError: what would fail the dispatch as well.
        """
        ...

    def refresh(self) -> Refresh:
        """Poll and reconcile as soon as possible; a refresh may share a poll that is under way or due.

        Raises:
            UnavailableError: the daemon does not poll (any more).
        """
        ...

    async def act(self, verb: str, identifier: str | None, text: str | None = None) -> Verb | None:
        """Do what an operator asks for; `None` when the issue is not known.

        `verb` is one of `ISSUE_ACTIONS` with an identifier, or one of `DAEMON_ACTIONS` without. `text` is the
        answer to a question. What is asked for afterwards already shows what the verb did.

        Raises:
            ConflictError: it does not fit the present state.
            UnavailableError: as `refresh`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookAnswer:
    """What a tracker is told that sent something: `accepted`, `duplicate`, `ignored` or `handshake`."""

    status: str
    code: int = 202
    headers: Mapping[str, str] = field(default_factory=dict)


class WebhookDeniedError(Exception):
    """A delivery is not taken; `status` is the one of HTTP, `code` is stable."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class WebhookReceiver(Protocol):
    """What trackers may tell a daemon. Names of headers are in lower case."""

    def open(self) -> bool:
        """Whether anything is taken at all."""
        ...

    def admit(self, tracker: str, headers: Mapping[str, str]) -> WebhookAnswer | None:
        """Judge a delivery before its body is read; `None` to read it. Raises `WebhookDeniedError`."""
        ...

    def take(self, tracker: str, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """Take a delivery. Raises `WebhookDeniedError`."""
        ...
