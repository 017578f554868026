"""Asks a daemon over its control socket: one request, one JSON answer, bounded in time and size.

No proxy, no redirect and no variable of the environment has a say in it. Whatever goes wrong is one of two
things: there is no daemon (null), or there is one that does not answer as it should (`UnreachableError`).

    UnreachableError      no connection, no answer in time, half an answer, or an answer that makes no sense
    RefusedError          the daemon answered that it cannot do this, and why
"""

import json
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from symphony.cli.control import Control, find_daemon, unreachable
from symphony.cli.failures import CommandError, ExitCode

__all__ = ["Client", "Document", "RefusedError", "check_listener", "reach"]

Document = dict[str, Any]

CONNECT_S: Final = 2.0
ANSWER_S: Final = 10.0
PROMPT_S: Final = 60.0
_MAX_BYTES: Final = 64 * 1024 * 1024
# A connection that is used again may be one that the daemon closes at this moment; a new one costs nothing.
_ONE_QUESTION_EACH: Final = httpx.Limits(max_keepalive_connections=0)
_CREDENTIALS: Final = struct.Struct("3i")
_NOT_FOUND: Final = 404
_UNAVAILABLE: Final = 503
_AGAIN: Final = "try again; if it stays so, look at the daemon's log and restart it"


class RefusedError(CommandError):
    """The daemon cannot do this; `reason` is its code for why."""

    def __init__(self, message: str, *, hint: str, reason: str) -> None:
        super().__init__(CommandError.of(message, hint=hint).failure, code=ExitCode.FAILURE)
        self.reason = reason


def reach(workflow: Path, environment: Mapping[str, str]) -> "Client | None":
    """The daemon of a workflow file, ready to be asked; null where there is none.

    Raises:
        UnreachableError: there is one, and nobody or somebody else listens on its socket.
    """
    control = find_daemon(workflow, environment)
    if control is None:
        return None
    check_listener(control)
    return Client(control)


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
        self._http = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(control.socket), limits=_ONE_QUESTION_EACH),
            base_url="http://symphony",
            headers={"accept": "application/json", "accept-encoding": "identity", "connection": "close"},
            timeout=httpx.Timeout(answer_s, connect=CONNECT_S),
            follow_redirects=False,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def state(self) -> Document:
        """The whole daemon, as `/api/v1/state` tells it."""
        return self._told(self._ask("GET", "/api/v1/state"))

    def issue(self, identifier: str) -> Document | None:
        """One issue, as `/api/v1/<identifier>` tells it; null when the daemon does not know it now."""
        answer = self._ask("GET", f"/api/v1/{_segment(identifier)}")
        # An issue that is called like a fixed route gets that route's answer.
        return answer if answer is not None and answer.get("issue_identifier") == identifier else None

    def prompt(self, identifier: str) -> Document | None:
        """What a dispatch of the issue would send; null when the daemon does not know it now."""
        return self._ask("GET", f"/api/v1/{_segment(identifier)}/prompt", limit_s=self._prompt_s)

    def refresh(self) -> Document:
        """Have the tracker asked now."""
        return self._told(self._ask("POST", "/api/v1/refresh"))

    def order(self, verb: str) -> Document:
        """Have the daemon itself do something: `web.port.OWN_VERBS`."""
        return self._told(self._ask("POST", f"/api/v1/control/{verb}"))

    def order_on(self, verb: str, identifier: str, *, text: str | None = None) -> Document | None:
        """Have it do something about an issue: `web.port.ISSUE_VERBS`; null when it does not know it now."""
        body = None if text is None else json.dumps({"text": text}).encode()
        return self._ask("POST", f"/api/v1/{_segment(identifier)}/{verb}", body=body)

    def _told(self, answer: Document | None) -> Document:
        if answer is None:
            raise self._strange("it does not know the question; is it of another version?")
        return answer

    def _ask(
        self, method: str, path: str, *, limit_s: float | None = None, body: bytes | None = None
    ) -> Document | None:
        """The answer; null for 404."""
        limit_s = limit_s or self._answer_s
        try:
            status, told = self._exchange(method, path, limit_s, body)
        except httpx.TimeoutException as error:
            raise self._silent(limit_s) from error
        except httpx.HTTPError as error:
            raise unreachable(
                f"the daemon (pid {self.control.pid}) broke off: {error}", hint=_AGAIN
            ) from error
        if status == _NOT_FOUND:
            return None
        document = self._parsed(told)
        if httpx.codes.is_success(status):
            return document
        raise self._refusal(status, document)

    def _exchange(self, method: str, path: str, limit_s: float, body: bytes | None) -> tuple[int, bytes]:
        """Status and body. The limit holds for the whole, because a drip of bytes never times out."""
        until, told = time.monotonic() + limit_s, bytearray()
        kind = None if body is None else {"content-type": "application/json"}
        limit = httpx.Timeout(limit_s, connect=CONNECT_S)
        with self._http.stream(method, path, content=body, headers=kind, timeout=limit) as answer:
            for chunk in answer.iter_raw():
                told += chunk
                if len(told) > self._max_bytes:
                    raise self._strange("its answer has no end")
                if time.monotonic() > until:
                    raise self._silent(limit_s)
            return answer.status_code, bytes(told)

    def _parsed(self, body: bytes) -> Document:
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise self._strange("its answer is not JSON") from error
        if not isinstance(document, dict):
            raise self._strange("its answer is not a JSON object")
        return document

    def _refusal(self, status: int, document: Document) -> CommandError:
        error = document.get("error")
        told = error if isinstance(error, dict) else {}
        message, hint = (
            str(told.get("message") or f"the daemon answered with status {status}"),
            told.get("hint"),
        )
        if status == _UNAVAILABLE:
            return unreachable(message, hint=str(hint or _AGAIN))
        hint = str(hint or "the daemon's log may say more")
        return RefusedError(message, hint=hint, reason=str(told.get("code")))

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
