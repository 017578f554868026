"""Asks a daemon over its control socket: one request, one JSON answer, bounded in time and size.

No proxy, no redirect and no variable of the environment has a say in it. Whatever goes wrong is one of two
things: there is no daemon (`None`), or there is one that does not answer as it should (`UnreachableError`).

    UnreachableError      no connection, no answer in time, half an answer, or an answer that makes no sense
    RefusedError          the daemon answered that it cannot do this, and why
"""

import json
import os
import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import quote, urlencode

import h11
import msgspec

from symphony.cli.control import Control, absence, find_daemon, unreachable
from symphony.cli.exchange import EndlessAnswerError, exchange
from symphony.cli.failures import CommandError, ExitCode, warn
from symphony.domain.decoding import UNREADABLE
from symphony.observability.model import Document, Error, Issue, Prompt, Refresh, Row, State, Verb

__all__ = ["Client", "RefusedError", "check_listener", "needed_daemon", "reach"]

_Document = TypeVar("_Document", bound=Document)

CONNECT_S: Final = 2.0
ANSWER_S: Final = 10.0
PROMPT_S: Final = 60.0
_MAX_BYTES: Final = 64 * 1024 * 1024
_CREDENTIALS: Final = struct.Struct("3i")
_SUCCESS: Final = range(200, 300)
_NOT_FOUND: Final = 404
_UNAVAILABLE: Final = 503
_AGAIN: Final = "try again; if it stays so, look at the daemon's log and restart it"


class _Named(Document, frozen=True):
    """What is looked at first in an answer about an issue."""

    issue_identifier: str | None = None


class RefusedError(CommandError):
    """The daemon cannot do this; `reason` is its code for why, `None` where it gave none."""

    def __init__(self, message: str, *, hint: str, reason: str | None) -> None:
        super().__init__(CommandError.of(message, hint=hint).failure, code=ExitCode.FAILURE)
        self.reason = reason


def reach(workflow: Path, environment: Mapping[str, str]) -> "Client | None":
    """The daemon of a workflow file, ready to be asked; `None` where there is none.

    Raises:
        UnreachableError: there is one, and nobody or somebody else listens on its socket.
    """
    control = find_daemon(workflow, environment)
    if control is None:
        return None
    check_listener(control)
    return Client(control)


def needed_daemon(workflow: Path, environment: Mapping[str, str], *, hint: str) -> "Client":
    """The daemon of a workflow file, for a command that is nothing without one; `hint` is what to do then.

    Raises:
        UnreachableError: there is none, or it cannot be asked.
    """
    if (found := reach(workflow, environment)) is not None:
        return found
    if not workflow.exists():
        raise unreachable(
            f"no daemon is running for {workflow}, and there is no such file",
            hint="go to the repository, or name it with -C DIR or --workflow FILE; `symphony init` makes one",
        )
    if notice := absence(workflow, environment):
        warn(notice)
    raise unreachable(f"no daemon is running for {workflow}", hint=hint)


class Client:
    """Asks one daemon. Every method raises `UnreachableError`, or `RefusedError` for a refusal."""

    def __init__(
        self,
        control: Control,
        *,
        answer_s: float = ANSWER_S,
        prompt_s: float = PROMPT_S,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        self.control = control
        self._max_bytes = max_bytes
        self._answer_s = answer_s
        self._prompt_s = prompt_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left open: each question has a connection of its own."""

    def state(
        self, *, waiting: int | None = None, states: Iterable[str] = (), reasons: Iterable[str] = ()
    ) -> State:
        """The whole daemon, as `/api/v1/state` tells it.

        At most so many `waiting` issues are listed, and only issues in these states and with these codes;
        a daemon of an earlier version lists all of them.
        """
        asked = [("state", one) for one in states] + [("reason", one) for one in reasons]
        if waiting is not None:
            asked.append(("waiting", str(waiting)))
        query = f"?{urlencode(asked, errors='replace')}" if asked else ""
        return self._told(self._ask("GET", f"/api/v1/state{query}"), State)

    def identifiers(self) -> list[str]:
        """Every issue that the daemon has in hand."""
        state = self.state()
        rows: tuple[Row, ...] = (
            *state.running,
            *state.retrying,
            *state.blocked,
            *state.waiting,
            *state.ready,
        )
        return [row.issue_identifier for row in rows]

    def issue(self, identifier: str) -> Issue | None:
        """One issue, as `/api/v1/<identifier>` tells it; `None` when the daemon does not know it now."""
        answer = self._ask("GET", f"/api/v1/{_segment(identifier)}")
        # An issue that is called like a fixed route gets that route's answer.
        if answer is None:
            return None
        named = self._read(answer, _Named)
        return self._read(answer, Issue) if named.issue_identifier == identifier else None

    def prompt(self, identifier: str) -> Prompt | None:
        """What a dispatch of the issue would send; `None` when the daemon does not know it now."""
        answer = self._ask("GET", f"/api/v1/{_segment(identifier)}/prompt", limit_s=self._prompt_s)
        return None if answer is None else self._read(answer, Prompt)

    def refresh(self) -> Refresh:
        """Have the tracker asked now."""
        return self._told(self._ask("POST", "/api/v1/refresh"), Refresh)

    def order(self, verb: str) -> Verb:
        """Have the daemon itself do something: `web.port.OWN_VERBS`."""
        return self._told(self._ask("POST", f"/api/v1/control/{verb}"), Verb)

    def order_on(self, verb: str, identifier: str, *, text: str | None = None) -> Verb | None:
        """Have it do something about an issue: `web.port.ISSUE_VERBS`; `None` when it does not know it."""
        body = None if text is None else json.dumps({"text": text}).encode()
        answer = self._ask("POST", f"/api/v1/{_segment(identifier)}/{verb}", body=body)
        return None if answer is None else self._read(answer, Verb)

    def _told(self, answer: bytes | None, kind: type[_Document]) -> _Document:
        if answer is None:
            raise self._strange("it does not know the question; is it of another version?")
        return self._read(answer, kind)

    def _read(self, answer: bytes, kind: type[_Document]) -> _Document:
        """The document; what it has beyond what is known here is left out.

        Raises:
            UnreachableError: it is none of this kind.
        """
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.ValidationError as error:
            raise self._strange(
                f"its answer is of another form ({error}); is it of another version?"
            ) from error
        except UNREADABLE as error:
            raise self._strange("its answer is not JSON") from error

    def _ask(
        self, method: str, path: str, *, limit_s: float | None = None, body: bytes | None = None
    ) -> bytes | None:
        """The answer; `None` for 404."""
        limit_s = limit_s or self._answer_s
        try:
            status, told = exchange(
                self.control.socket, method, path, body=body, limit_s=limit_s, max_bytes=self._max_bytes
            )
        except TimeoutError as error:
            raise self._silent(limit_s) from error
        except EndlessAnswerError as error:
            raise self._strange("its answer has no end") from error
        except (OSError, h11.ProtocolError) as error:
            raise unreachable(
                f"the daemon (pid {self.control.pid}) broke off: {error}", hint=_AGAIN
            ) from error
        if status == _NOT_FOUND:
            return None
        if status in _SUCCESS:
            return told
        raise self._refusal(status, told)

    def _refusal(self, status: int, answer: bytes) -> CommandError:
        message, hint, code = f"the daemon answered with status {status}", None, None
        with suppress(*UNREADABLE):
            error = msgspec.json.decode(answer, type=Error).error
            message, hint, code = error.message or message, error.hint or None, error.code
        if status == _UNAVAILABLE:
            return unreachable(message, hint=hint or _AGAIN)
        return RefusedError(message, hint=hint or "the daemon's log may say more", reason=code)

    def _silent(self, limit_s: float) -> CommandError:
        return unreachable(
            f"the daemon (pid {self.control.pid}) did not answer within {limit_s:g} s", hint=_AGAIN
        )

    def _strange(self, what: str) -> CommandError:
        return unreachable(
            f"what listens on {self.control.socket} is no daemon that this program understands: {what}",
            hint=f"look which process has the number {self.control.pid}, and restart the daemon",
        )


def _segment(identifier: str) -> str:
    """An identifier as one segment of a path, whatever it is made of."""
    dots = identifier in {".", ".."}
    return identifier.replace(".", "%2E") if dots else quote(identifier, safe="", errors="replace")


def check_listener(control: Control, owner: int | None = None) -> None:
    """See that the socket is served, and by the process that is said to.

    It has to be a process of `owner` (a user id), of this user unless told otherwise, or of root.

    Raises:
        UnreachableError: nobody or somebody else listens there.
    """
    owner = os.geteuid() if owner is None else owner
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_S)
        try:
            probe.connect(os.fsencode(control.socket))
            pid, uid = _peer(probe)
        except OSError as error:
            raise unreachable(
                f"the daemon (pid {control.pid}) cannot be reached over {control.socket}: "
                f"{error.strerror or error}",
                hint="it may be starting or ending; a daemon of another user can only be asked by that user",
            ) from error
    if pid not in {0, control.pid} or uid not in {owner, 0}:
        raise unreachable(
            f"{control.socket} is served by another process (pid {pid}) than the daemon (pid {control.pid})",
            hint="nothing was asked of it; restart the daemon, which makes the socket anew",
        )


def _peer(connected: socket.socket) -> tuple[int, int]:
    """Process and user at the other end; process 0 is one that cannot be seen from here."""
    pid, uid, _ = _CREDENTIALS.unpack(
        connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return pid, uid
