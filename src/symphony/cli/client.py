"""Asks a daemon over its control socket: one request, one JSON answer, bounded in time and size.

No proxy, no redirect and no variable of the environment has a say in it. Whatever goes wrong is one of two
things: there is no daemon (`None`), or there is one that does not answer as it should (`UnreachableError`).

    UnreachableError      no connection, no answer in time, half an answer, or an answer that makes no sense
    RefusedError          the daemon answered that it cannot do this, and why
"""

import errno
import json
import os
import socket
import stat
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote, urlencode

import h11
import msgspec

from symphony.api.models import Document, Error, Issue, Prompt, Refresh, Row, State, Verb
from symphony.cli.failures import CommandError, ExitCode, warn
from symphony.daemon.state_dir import LockHolder, locate, parse_lock_holder
from symphony.domain import UNREADABLE
from symphony.processes.table import ProcessTable

# One HTTP request over a Unix socket and its answer, bounded in time and in size.
#
# The protocol is h11's, on a blocking socket: a command that asks a daemon needs no event loop and no pool,
# and importing an HTTP client with all that it can do would take longer than the question.


_PIECE_BYTES: Final = 65_536


class EndlessAnswerError(Exception):
    """The answer is longer than the caller takes."""


def exchange(
    path: Path, method: str, target: str, *, body: bytes | None, limit_s: float, max_bytes: int
) -> tuple[int, bytes]:
    """Status and body of what the server at `path` answers, whatever the status is.

    `limit_s` holds for the whole, from the connection to the last byte, so a drip of bytes does not renew it.

    Raises:
        TimeoutError: the whole answer was not there in time.
        EndlessAnswerError: its body is longer than `max_bytes`.
        OSError: there is no connection, or it broke.
        h11.ProtocolError: the answer is no HTTP, or ends too early.
    """
    deadline = time.monotonic() + limit_s
    connection = h11.Connection(h11.CLIENT)
    status, told = 0, bytearray()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        _bound(wire, deadline)
        wire.connect(os.fsencode(path))
        wire.sendall(b"".join(_request(connection, method, target, body)))
        while True:
            match connection.next_event():
                case h11.Response(status_code=status):
                    pass
                case h11.Data(data=piece):
                    told += piece
                    if len(told) > max_bytes:
                        raise EndlessAnswerError
                case h11.EndOfMessage():
                    return status, bytes(told)
                case _:  # what was received so far is no whole event
                    _bound(wire, deadline)
                    connection.receive_data(wire.recv(_PIECE_BYTES))


def _bound(wire: socket.socket, deadline: float) -> None:
    """Let the next call on the socket take no longer than there is time."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    wire.settimeout(left_s)


def _request(connection: h11.Connection, method: str, target: str, body: bytes | None) -> Iterator[bytes]:
    headers = [
        ("host", "symphony"),
        ("accept", "application/json"),
        ("connection", "close"),
        ("content-length", str(len(body or b""))),
    ]
    if body is not None:
        headers.append(("content-type", "application/json"))
    yield connection.send(h11.Request(method=method, target=target, headers=headers)) or b""
    if body:
        yield connection.send(h11.Data(data=body)) or b""
    yield connection.send(h11.EndOfMessage()) or b""


# Which daemon serves a workflow, by the files in its state directory; nothing is asked of it yet.
#
# A daemon leaves `control.json` (`{"socket", "host", "port", "pid", "workflow"}`) and the file of its
# instance lock behind when it is killed. Both name a process, which counts only if it was there when the
# file was written. The lock itself is never tried: a reader that held it for a moment could keep a daemon
# from starting. Two workflows may be given one state directory: the daemon there is that of the workflow it
# names.


_MAX_FILE_BYTES = 64 * 1024
_SLACK_S = 5.0


class UnreachableError(CommandError):
    """There is a daemon, or there has to be one, and it cannot be asked; exit code 5."""


def unreachable(message: str, *, hint: str) -> UnreachableError:
    """The error with its `Failure` built from the arguments."""
    failure = CommandError.of(message, hint=hint).failure
    return UnreachableError(failure, code=ExitCode.UNREACHABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """How a daemon can be asked.

    Attributes:
        socket: of its HTTP application; a path of this machine.
        pid: its process.
        host, port: where it listens on TCP as well; null where it does not.
        started: when its process began; null where that cannot be told.
        workflow: the real path of the file it serves; null where it does not say.
    """

    socket: Path
    pid: int
    host: str | None = None
    port: int | None = None
    started: datetime | None = None
    workflow: str | None = None

    def serves(self, workflow: Path) -> bool:
        """Whether it is the daemon of this file, as far as it says."""
        return self.workflow is None or self.workflow == os.path.realpath(workflow)


def find_daemon(workflow: Path, environment: Mapping[str, str]) -> Control | None:
    """The daemon that serves a workflow file; null where none does.

    Raises:
        UnreachableError: one seems to, and there is no telling how to ask it.
    """
    directory = locate(workflow, environment)
    try:
        found = _read(directory / "control.json")
        holder = _holder(directory / "lock")
    except OSError as error:
        raise unreachable(
            f"the state directory {directory} cannot be read: {error.strerror or error}",
            hint="run this as the user of the daemon, or set SYMPHONY_STATE_DIR to the daemon's directory",
        ) from error
    if found is not None and _lived(found.pid, directory / "control.json"):
        return found if found.serves(workflow) else None
    if holder is not None:
        raise unreachable(
            f"a daemon (pid {holder}) serves this workflow and offers no control socket",
            hint="it may be starting or ending, so try again in a moment; if it stays so, restart it",
        )
    return None


def absence(workflow: Path, environment: Mapping[str, str]) -> str | None:
    """What is odd about there being no daemon of a workflow; null where nothing is."""
    note = locate(workflow, environment) / "control.json"
    try:
        found = _read(note)
    except OSError:
        return None
    if found is None:
        return None
    alive, ours = _lived(found.pid, note), found.serves(workflow)
    if alive and not ours:
        return (
            f"The daemon of another workflow, {found.workflow} (pid {found.pid}), has the state directory "
            f"{note.parent}; give this one its own SYMPHONY_STATE_DIR"
        )
    if ours and not alive:
        return (
            f"The last daemon (pid {found.pid}) did not end in order; the next `symphony run` ends what it "
            "left running and goes on"
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What a daemon has left in a state directory.

    Attributes:
        pid: its process; `alive` says whether that is still there.
        control: how it can be asked; null where it offers no socket.
        workflow: the real path of the file it serves; null where it does not say.
    """

    pid: int
    alive: bool
    control: Control | None
    workflow: str | None


def traces(directory: Path, owner: int) -> Traces | None:
    """The daemon of a state directory, whatever it serves; null where none is that has not ended in order.

    What does not belong to the user `owner` counts for nothing.

    Raises:
        OSError: the directory cannot be read.
    """
    note, lock = directory / "control.json", directory / "lock"
    found, holder = _read(note, owner), _named(lock, owner)
    if found is not None and (holder is None or holder.pid == found.pid):
        workflow = found.workflow or (holder.workflow if holder else None)
        return Traces(pid=found.pid, alive=_lived(found.pid, note), control=found, workflow=workflow)
    if holder is not None:
        alive = _lived(holder.pid, lock)
        return Traces(pid=holder.pid, alive=alive, control=None, workflow=holder.workflow)
    return None


def _read(path: Path, owner: int | None = None) -> Control | None:
    """What the file says; null where there is none, or nothing sensible in it. Raises `OSError`."""
    try:
        return _typed(json.loads(content_of(path, owner)))
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, RecursionError):
        return None


def content_of(path: Path, owner: int | None = None) -> bytes:
    """The beginning of a file; empty for what is none, such as a pipe, or is not of the user `owner`.

    Raises:
        OSError: it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        facts = os.fstat(handle)
        if stat.S_ISDIR(facts.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        ours = stat.S_ISREG(facts.st_mode) and owner in {None, facts.st_uid}
        return os.read(handle, _MAX_FILE_BYTES) if ours else b""
    finally:
        os.close(handle)


def _typed(raw: Mapping[str, Any]) -> Control:
    socket, pid, host, port = raw["socket"], raw["pid"], raw.get("host"), raw.get("port")
    workflow = raw.get("workflow")
    sensible = isinstance(socket, str) and socket.startswith("/") and isinstance(pid, int) and pid > 0
    if not sensible or "\0" in socket:
        raise ValueError("not the note of a daemon")
    return Control(
        socket=Path(socket),
        pid=pid,
        host=host if isinstance(host, str) else None,
        port=port if isinstance(port, int) else None,
        started=ProcessTable().started_at(pid),
        workflow=workflow if isinstance(workflow, str) else None,
    )


def _holder(lock: Path) -> int | None:
    """The process that took the instance lock last, if it is still there. Raises `OSError`."""
    holder = _named(lock)
    return holder.pid if holder is not None and _lived(holder.pid, lock) else None


def _named(lock: Path, owner: int | None = None) -> LockHolder | None:
    """Who stands in the lock file. Raises `OSError`."""
    try:
        return parse_lock_holder(content_of(lock, owner))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _lived(pid: int, written: Path) -> bool:
    """Whether the process was there when the file was written, and is: else its number is another's now."""
    started = ProcessTable().started_at(pid)
    if started is None:
        return False
    try:
        return started.timestamp() <= written.stat().st_mtime + _SLACK_S
    except OSError:
        return False


_Document = TypeVar("_Document", bound=Document)

CONNECT_S: Final = 2.0
ANSWER_S: Final = 10.0
PROMPT_S: Final = 60.0
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
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
        max_bytes: int = _MAX_ANSWER_BYTES,
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
        """Have the daemon itself do something: `api.interface.DAEMON_ACTIONS`."""
        return self._told(self._ask("POST", f"/api/v1/control/{verb}"), Verb)

    def order_on(self, verb: str, identifier: str, *, text: str | None = None) -> Verb | None:
        """Act on an issue: `api.interface.ISSUE_ACTIONS`; `None` when the daemon does not know it."""
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
