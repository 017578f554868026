"""Asks a daemon over its control socket: one request, one JSON answer, bounded in time and size.

The protocol is the standard library's, on a blocking socket: one request needs neither an event loop nor a
connection pool, and importing httpx takes longer than asking. Proxies, redirects and environment variables
have no effect.
"""

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, IncompleteRead
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import structs
from typing_extensions import Buffer, override

from symphony.api import models, routes
from symphony.cli.endpoint import Endpoint, UnreachableError, absence_notice, check_listener, find_daemon
from symphony.cli.failures import CommandError, ExitCode, warn
from symphony.domain import ALL_ISSUES, DECODE_ERRORS, Selection

_Document = TypeVar("_Document", bound=models.Document)

_ANSWER_S: Final = 10.0
_PROMPT_S: Final = 60.0
_CREATE_S: Final = 130.0  # a daemon tries it twice
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_SUCCESS: Final = range(200, 300)
_NOT_FOUND: Final = 404
_UNAVAILABLE: Final = 503
_TRY_AGAIN: Final = "try again; if that does not help, look at the daemon's log and restart it"
_OTHER_VERSION: Final = "is it of another version?"


class RefusedError(CommandError):
    """The daemon answered that it cannot do this; `reason` is its error code, if it gave one."""

    def __init__(self, message: str, *, hint: str, reason: str | None) -> None:
        super().__init__(CommandError.of(message, hint=hint).failure, code=ExitCode.FAILURE)
        self.reason = reason


def connect(workflow: Path, environment: Mapping[str, str]) -> "Client | None":
    """A client of the daemon that serves a workflow file; None if no daemon does.

    Raises:
        UnreachableError: a daemon serves it, but nothing or another process listens on its socket.
    """
    endpoint = find_daemon(workflow, environment)
    if endpoint is None:
        return None
    check_listener(endpoint)
    return Client(endpoint)


def require_daemon(workflow: Path, environment: Mapping[str, str], *, hint: str) -> "Client":
    """As `connect`, for a command that is useless without a daemon; `hint` says what to do without one.

    Raises:
        UnreachableError: no daemon serves the workflow, or it cannot be asked.
    """
    if (client := connect(workflow, environment)) is not None:
        return client
    if not workflow.exists():
        raise UnreachableError(
            f"no daemon is running for {workflow}, and there is no such file",
            hint="go to the repository, or name it with -C DIR or --workflow FILE; `symphony init` makes one",
        )
    if notice := absence_notice(workflow, environment):
        warn(notice)
    raise UnreachableError(f"no daemon is running for {workflow}", hint=hint)


class Client:
    """Asks one daemon; each request has its own connection.

    Every method raises `UnreachableError` for a missing, late, incomplete or malformed answer, and
    `RefusedError` for a refusal.
    """

    def __init__(
        self, endpoint: Endpoint, *, answer_s: float = _ANSWER_S, max_bytes: int = _MAX_ANSWER_BYTES
    ) -> None:
        self.endpoint = endpoint
        self._answer_s = answer_s
        self._max_bytes = max_bytes

    def state(self, only: Selection = ALL_ISSUES) -> models.State:
        """The state with the selected issues; a daemon of an earlier version sends all of them."""
        query = [("state", state) for state in only.states] + [("reason", code) for code in only.codes]
        if only.text:
            query.append(("q", only.text))
        if only.limit is not None:
            query.append(("waiting", str(only.limit)))
        return self._known(self._ask(routes.STATE, query=query))

    def identifiers(self) -> list[str]:
        """Identifiers of all issues that the daemon knows now."""
        state = self.state()
        groups = (state.running, state.retrying, state.blocked, state.waiting, state.ready)
        return [row.issue_identifier for rows in groups for row in rows]

    def issue(self, identifier: str) -> models.Issue | None:
        """One issue; None if the daemon does not know it now."""
        body = self._fetch(routes.ISSUE.verb, routes.ISSUE.url(identifier))
        # An issue with the name of a fixed route, such as `state`, gets the answer of that route.
        if body is None or self._decode(body, _Identified).issue_identifier != identifier:
            return None
        return self._decode(body, routes.ISSUE.answered)

    def prompt(self, identifier: str, phase: str | None = None) -> models.Prompt | None:
        """What a dispatch of the issue would send; None if the daemon does not know the issue now."""
        query = [] if phase is None else [("phase", phase)]
        return self._ask(routes.PROMPT, identifier, query=query, timeout_s=_PROMPT_S)

    def rehearse(self, identifiers: Sequence[str]) -> models.Rehearsal:
        """Which branches of these issues merge together, or of all ready ones."""
        query = [("issue", one) for one in identifiers]
        return self._known(self._ask(routes.REHEARSAL, query=query, timeout_s=_PROMPT_S))

    def review(
        self, identifier: str, *, reviewer: str, since: str | None, until: str | None = None
    ) -> models.Review | None:
        """The change of an issue, which counts as shown; None if there is no such issue, branch or commit."""
        commits = (("since", since), ("until", until))
        query = [("reviewer", reviewer), *((name, value) for name, value in commits if value is not None)]
        return self._ask(routes.REVIEW, identifier, query=query, timeout_s=_PROMPT_S)

    def decide(self, given: models.ReviewGiven, identifier: str) -> models.ReviewOutcome | None:
        """Send work back or approve it; None if the daemon does not know the issue."""
        return self._ask(routes.DECIDE, identifier, body=msgspec.to_builtins(given), timeout_s=_PROMPT_S)

    def create_issue(self, given: models.NewIssue) -> models.CreatedIssue:
        """Create an issue at the tracker."""
        body = structs.asdict(given)
        return self._known(self._ask(routes.CREATE_ISSUE, body=body, timeout_s=_CREATE_S))

    def schedules(self) -> models.Schedules:
        """The schedules of recurring issues."""
        return self._known(self._ask(routes.SCHEDULES))

    def run_schedule(self, name: str) -> models.CreatedIssue | None:
        """File an issue of a schedule now; None if there is no such schedule."""
        return self._ask(routes.RUN_SCHEDULE, body={"name": name}, timeout_s=_CREATE_S)

    def refresh(self) -> models.Refresh:
        """Poll the tracker now."""
        return self._known(self._ask(routes.REFRESH))

    def open_page(self) -> models.Link:
        """A link that signs one browser in; the daemon opens a port for it if it has none."""
        return self._known(self._ask(routes.OPEN))

    def act(self, verb: str) -> models.Verb:
        """Run an operator action on the daemon itself: pause, resume or drain."""
        return self._known(self._ask(routes.ON_DAEMON[verb]))

    def outbox(self) -> models.Outbox:
        """The writes to outside services that are not done yet."""
        return self._known(self._ask(routes.OUTBOX))

    def change_outbox(self, verb: str, key: str) -> models.Outbox | None:
        """Retry or drop jobs; `None` if there are no such jobs."""
        return self._ask(routes.ON_OUTBOX[verb], body={"key": key})

    def act_on_issue(self, verb: str, identifier: str, *, text: str | None = None) -> models.Verb | None:
        """Run an operator action on an issue; None if the daemon does not know the issue now."""
        body = None if text is None else {"state" if verb == "move" else "text": text}
        return self._ask(routes.ON_ISSUE[verb], identifier, body=body)

    def feedback(self, given: models.Stars, identifier: str) -> models.Feedback | None:
        """Store feedback on an issue; None if the daemon does not know it."""
        return self._ask(routes.FEEDBACK, identifier, body=structs.asdict(given))

    def _ask(
        self,
        row: routes.Resource[_Document],
        segment: str = "",
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Mapping[str, object] | None = None,
        timeout_s: float | None = None,
    ) -> _Document | None:
        """The document of a route, `segment` in place of its placeholder; None for 404."""
        url = row.url(segment) + (f"?{urlencode(query, errors='replace')}" if query else "")
        sent = None if body is None else json.dumps(body).encode()
        answer = self._fetch(row.verb, url, body=sent, timeout_s=timeout_s)
        return None if answer is None else self._decode(answer, row.answered)

    def _known(self, answer: _Document | None) -> _Document:
        """The answer of a route that every daemon has."""
        if answer is None:
            raise self._not_understood(f"it does not know the request; {_OTHER_VERSION}")
        return answer

    def _fetch(
        self, method: str, path: str, *, body: bytes | None = None, timeout_s: float | None = None
    ) -> bytes | None:
        """The body of a successful answer; None for 404."""
        pid, timeout_s = self.endpoint.pid, timeout_s or self._answer_s
        try:
            status, answer = self._exchange(method, path, body, timeout_s)
        except TimeoutError as error:
            message = f"the daemon (pid {pid}) did not answer within {timeout_s:g} s"
            raise UnreachableError(message, hint=_TRY_AGAIN) from error
        except (OSError, HTTPException) as error:
            raise UnreachableError(f"the daemon (pid {pid}) broke off: {error}", hint=_TRY_AGAIN) from error
        if status == _NOT_FOUND:
            return None
        if status in _SUCCESS:
            return answer
        message, hint, code = f"the daemon answered with status {status}", None, None
        with suppress(*DECODE_ERRORS):
            refusal = msgspec.json.decode(answer, type=models.Error).error
            message, hint, code = refusal.message or message, refusal.hint or None, refusal.code
        if status == _UNAVAILABLE:
            raise UnreachableError(message, hint=hint or _TRY_AGAIN)
        raise RefusedError(message, hint=hint or "the daemon's log may say more", reason=code)

    def _exchange(self, method: str, path: str, body: bytes | None, timeout_s: float) -> tuple[int, bytes]:
        """Status and body of the answer.

        `timeout_s` covers everything from the connection to the last byte, so a slow drip of bytes does not
        extend it.

        Raises:
            TimeoutError: the answer was not complete in time.
            OSError: the connection cannot be made, or broke.
            HTTPException: the answer is not HTTP, or ends too early.
            UnreachableError: the answer is too long.
        """
        headers = {"Accept": "application/json", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        with closing(_Connection(self.endpoint.socket, timeout_s)) as connection:
            with suppress(BrokenPipeError):  # it may refuse before it has read the body; its answer says why
                connection.request(method, path, body, headers)
            with connection.getresponse() as response:
                answer = response.read(self._max_bytes + 1)
                if len(answer) > self._max_bytes:
                    raise self._not_understood("its answer has no end")
                unlimited = response.length is None  # also if it broke off before its body
                if response.length or (unlimited and not answer):
                    raise IncompleteRead(answer, response.length)
                return response.status, answer

    def _decode(self, answer: bytes, kind: type[_Document]) -> _Document:
        """The document; unknown fields, as a later daemon may send them, are ignored."""
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.ValidationError as error:
            raise self._not_understood(f"its answer has another form ({error}); {_OTHER_VERSION}") from error
        except DECODE_ERRORS as error:
            raise self._not_understood("its answer is not JSON") from error

    def _not_understood(self, reason: str) -> UnreachableError:
        return UnreachableError(
            f"what listens on {self.endpoint.socket} is not a daemon of this program: {reason}",
            hint=f"look which process has the number {self.endpoint.pid}, and restart the daemon",
        )


class _Connection(HTTPConnection):
    """A connection to a Unix socket; `timeout_s` covers all that is done with it."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("symphony")
        self._path = path
        self._deadline = time.monotonic() + timeout_s

    @override
    def connect(self) -> None:
        self.sock = _Socket(self._deadline)
        self.sock.connect(os.fsencode(self._path))


class _Socket(socket.socket):
    """A Unix socket that gives up at a time of the monotonic clock, in seconds, also between small pieces."""

    def __init__(self, deadline: float) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM)
        self._deadline = deadline
        self._limit_next_call()

    @override
    def recv_into(self, buffer: Buffer, nbytes: int = 0, flags: int = 0) -> int:
        self._limit_next_call()
        return super().recv_into(buffer, nbytes, flags)

    def _limit_next_call(self) -> None:
        remaining_s = self._deadline - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        self.settimeout(remaining_s)


class _Identified(models.Document, frozen=True):
    """The identifier in an answer about an issue; other answers have none."""

    issue_identifier: str | None = None
