"""The objects of the app-server protocol as version 0.169 sends them: threads, turns, items, usage (pure)."""

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

# The switches that make the scripted agent misbehave, so that tests need no broken real agent.
#
# A METHOD is one that the agent receives (`initialize`, `turn/start`; the fault strikes before the answer)
# or one that it sends (`turn/started`, `item/tool/call`; the fault strikes after the line).


class Faults(NamedTuple):
    """The faults to commit; none by default. The switches in `read_switches` explain them."""

    ignore_eof: bool = False
    ignore_sigterm: bool = False
    garbage: bool = False
    split_lines: bool = False
    huge_line: int = 0
    silent_after: str | None = None
    exit_on: str | None = None
    exit_code: int = 1
    stderr_flood: int = 0
    unknown_request: bool = False
    slow_start_ms: int = 0
    own_session_child: bool = False
    pid_file: Path | None = None
    threads: Path | None = None
    refuses: str | None = None
    review: str | None = None


def read_switches(argv: Sequence[str]) -> Faults:
    """Faults from a command line (without the program name); exits with 2 if it is invalid.

    An argument `app-server` is accepted and ignored, so that the agent can replace `codex`.
    """
    if not argv:
        return Faults()
    given = _parser().parse_args(argv)
    method, _, code = (given.exit_on or "").partition(":")
    return Faults(
        ignore_eof=given.ignore_eof,
        ignore_sigterm=given.ignore_sigterm,
        garbage=given.garbage,
        split_lines=given.split_lines,
        huge_line=given.huge_line,
        silent_after=given.silent_after,
        exit_on=method or None,
        exit_code=int(code or 1),
        stderr_flood=given.stderr_flood,
        unknown_request=given.unknown_request,
        slow_start_ms=given.slow_start,
        own_session_child=given.own_session_child,
        pid_file=given.pid_file,
        threads=given.threads,
        refuses=given.refuses,
        review=given.review,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripted_agent", description="An agent without a model.")
    flag, add = "store_true", parser.add_argument
    add("verb", nargs="?", choices=["app-server"], help="accepted and without meaning")
    add("--ignore-eof", action=flag, help="live on when stdin is closed")
    add("--ignore-sigterm", action=flag, help="live on after SIGTERM")
    add("--garbage", action=flag, help="write lines that are no protocol, at start and in each turn")
    add("--split-lines", action=flag, help="write each line in pieces, cut inside characters too")
    add("--huge-line", type=int, default=0, metavar="BYTES", help="say a text of this size in each turn")
    add("--silent-after", metavar="METHOD", help="write nothing more from this method on")
    add("--exit-on", metavar="METHOD[:CODE]", help="end at this method, with code 1 unless given")
    add("--stderr-flood", type=int, default=0, metavar="BYTES", help="write this much to stderr first")
    add("--unknown-request", action=flag, help="send an unknown request to the client, in each turn")
    add("--slow-start", type=int, default=0, metavar="MS", help="read nothing for this long")
    add("--own-session-child", action=flag, help="leave a child in its own session that ignores SIGTERM")
    add("--pid-file", type=Path, metavar="DIR", help="write <pid>.json there for the agent and its child")
    add("--threads", type=Path, metavar="DIR", help="store threads there to resume them later")
    add(
        "--refuses",
        metavar="NAME",
        help="fail each turn with this `codexErrorInfo`, such as usageLimitExceeded",
    )
    add(
        "--review",
        metavar="COMMAND",
        help="follow no script, but call `submit_review`: each line `file:line: text` that COMMAND writes is "
        "a comment, no line is an approval, and after a failure there is no call",
    )
    return parser


# The line between agent and client: JSON objects, requests of the agent, and the wire's faults.


_BETWEEN_PIECES_S = 0.002
_AT_ONCE_BYTES = 65_536
_FIRST_OF_SEVERAL = 0xC0  # from here on, a byte begins a multi-byte UTF-8 sequence
GARBAGE = (
    b"this line is no protocol\n",
    b'{"method": "turn/started", "params": \n',
    b"[1, 2, 3]\n",
    b'"text"\n',
    b'{"method": 7, "params": []}\n',
    b'{"id": {"not": "an id"}, "result": 1}\n',
    b"\xff\xfe\x00\n",
    b"\n",
)


class ClientGoneError(Exception):
    """No answer will come any more."""


class Wire:
    """Writes frames, whole and one at a time, from any thread, and waits for the client's answers."""

    def __init__(
        self, write: Callable[[bytes], None], faults: Faults, *, leave: Callable[[int], None] = os._exit
    ) -> None:
        self._write = write
        self._faults = faults
        self.leave = leave
        self._lock = threading.Lock()
        self._answered = threading.Condition()
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._next_id = 0
        self._mute = False
        self._gone = False

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification, with the time member that the original adds."""
        self._frame({"method": method, "params": params, "emittedAtMs": time.time_ns() // 1_000_000})
        self._strike(method)

    def result(self, request_id: object, result: Mapping[str, Any]) -> None:
        """Answer a request of the client."""
        self._frame({"id": request_id, "result": result})

    def error(self, request_id: object, message: str) -> None:
        """Refuse a request of the client, with the code that the original uses for everything."""
        self._frame({"error": {"code": -32600, "message": message}, "id": request_id})

    def ask(
        self, method: str, params: Mapping[str, Any], gave_up: threading.Event
    ) -> Mapping[str, Any] | None:
        """Ask the client and wait; `None` if `gave_up` was set meanwhile.

        Returns the unchanged answer, with `result` or `error`.

        Raises:
            ClientGoneError: the client has closed its side.
        """
        with self._answered:
            request_id, self._next_id = self._next_id, self._next_id + 1
        self._frame({"method": method, "id": request_id, "params": params})
        self._strike(method)
        with self._answered:
            self._answered.wait_for(lambda: request_id in self._answers or gave_up.is_set() or self._gone)
            if self._gone:
                raise ClientGoneError
            return self._answers.pop(request_id, None)

    def answered(self, frame: Mapping[str, Any]) -> None:
        """Deliver an answer of the client to the code that waits for it; drop an unknown id."""
        if isinstance(frame.get("id"), int):
            with self._answered:
                self._answers[frame["id"]] = frame
                self._answered.notify_all()

    def wake(self, *, gone: bool = False) -> None:
        """Let all waiting threads check again whether to wait."""
        with self._answered:
            self._gone = self._gone or gone
            self._answered.notify_all()

    def received(self, method: str) -> None:
        """Note that the client sent `method`, before anything is answered."""
        self._strike(method)

    def garbage(self) -> None:
        """Write lines that are not part of the protocol, if that is switched on."""
        if self._faults.garbage:
            self._bytes(b"".join(GARBAGE))

    def _strike(self, method: str) -> None:
        if method == self._faults.exit_on:
            self.leave(self._faults.exit_code)
        if method == self._faults.silent_after:
            self._mute = True

    def _frame(self, frame: Mapping[str, Any]) -> None:
        self._bytes(json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")

    def _bytes(self, data: bytes) -> None:
        with self._lock:
            if self._mute:
                return
            if not self._faults.split_lines:
                self._write(data)
                return
            for piece in _pieces(data):
                self._write(piece)
                time.sleep(_BETWEEN_PIECES_S)


def _pieces(data: bytes) -> list[bytes]:
    """Three pieces; the second cut is inside a multi-byte character, if there is one."""
    third = len(data) // 3
    wide = next((at for at, byte in enumerate(data) if byte >= _FIRST_OF_SEVERAL and at > third), third * 2)
    return [data[:third], data[third : wide + 1], data[wide + 1 :]]


def write_stdout(data: bytes) -> None:
    """Write to stdout at once; ignore a reader that is gone."""
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        return


Object = dict[str, Any]
_SANDBOX_TYPES = {
    "read-only": "readOnly",
    "workspace-write": "workspaceWrite",
    "danger-full-access": "dangerFullAccess",
}


def sandbox_policy(mode: object) -> Object | None:
    """The policy object for a mode of `thread/start`; `None` for a mode that does not exist."""
    kind = _SANDBOX_TYPES.get(mode) if isinstance(mode, str) else None
    if kind is None:
        return None
    if kind == "workspaceWrite":
        return {"type": kind, "writableRoots": [], "networkAccess": False}
    return {"type": kind}


def thread(thread_id: str, cwd: str, *, version: str, now_s: int) -> Object:
    """A thread that has just started and lives in memory only."""
    return {
        "id": thread_id,
        "sessionId": thread_id,
        "projectId": None,
        "preview": "",
        "ephemeral": True,
        "modelProvider": "none",
        "createdAt": now_s,
        "updatedAt": now_s,
        "status": {"type": "idle"},
        "path": None,
        "cwd": cwd,
        "cliVersion": version,
        "source": "appServer",
        "turns": [],
    }


def thread_start_result(started: Object, *, approval_policy: object, sandbox: Object) -> Object:
    """The answer to `thread/start`."""
    return {
        "thread": started,
        "model": "none",
        "modelProvider": "none",
        "cwd": started["cwd"],
        "instructionSources": [],
        "approvalPolicy": approval_policy,
        "approvalsReviewer": "user",
        "sandbox": sandbox,
    }


def turn(
    turn_id: str,
    status: str,
    *,
    items: Sequence[Object] = (),
    error: str | None = None,
    info: str = "other",
) -> Object:
    """A turn; `error` is the message of a failed one, `info` its kind."""
    failure = None
    if error is not None:
        failure = {"message": error, "codexErrorInfo": info, "additionalDetails": None}
    view = "summary" if items else "notLoaded"
    return {"id": turn_id, "items": list(items), "itemsView": view, "status": status, "error": failure}


def user_message(item_id: str, text: str) -> Object:
    """A message of the client."""
    content = [{"type": "text", "text": text, "text_elements": []}]
    return {"type": "userMessage", "id": item_id, "clientId": None, "content": content}


def agent_message(item_id: str, text: str) -> Object:
    """A message of the agent to people."""
    return {"type": "agentMessage", "id": item_id, "text": text, "phase": None}


def command_execution(
    item_id: str,
    command: str,
    cwd: str,
    *,
    status: str = "inProgress",
    output: str | None = None,
    exit_code: int | None = None,
    duration_ms: int | None = None,
) -> Object:
    """A command, running or ended."""
    return {
        "type": "commandExecution",
        "id": item_id,
        "command": command,
        "cwd": cwd,
        "processId": None,
        "status": status,
        "commandActions": [{"type": "unknown", "command": command}],
        "aggregatedOutput": output,
        "exitCode": exit_code,
        "durationMs": duration_ms,
    }


def file_change(item_id: str, path: str, *, kind: str, diff: str) -> Object:
    """A file written: `kind` is `add` or `update`; `diff` is the whole text or a unified diff."""
    described = {"type": kind} if kind == "add" else {"type": kind, "move_path": None}
    changes = [{"path": path, "kind": described, "diff": diff}]
    return {"type": "fileChange", "id": item_id, "changes": changes, "status": "inProgress"}


def dynamic_tool_call(
    item_id: str, tool: str, arguments: Mapping[str, Any], *, answer: Mapping[str, Any] | None = None
) -> Object:
    """A call of a client's tool, open or (with the client's answer) ended."""
    success = None if answer is None else bool(answer.get("success"))
    return {
        "type": "dynamicToolCall",
        "id": item_id,
        "namespace": None,
        "tool": tool,
        "arguments": dict(arguments),
        "status": "inProgress" if success is None else "completed" if success else "failed",
        "contentItems": None if answer is None else answer.get("contentItems", []),
        "success": success,
        "durationMs": None,
    }


def token_usage(total: Mapping[str, int], last: Mapping[str, int]) -> Object:
    """`total` counts the thread since its start, `last` the newest step."""
    return {"total": dict(total), "last": dict(last), "modelContextWindow": None}


def rate_limits() -> Object:
    """Limits that are not used up."""
    window = {"usedPercent": 0, "windowDurationMins": 300, "resetsAt": None}
    return {"limitId": "scripted", "limitName": None, "primary": window, "secondary": None, "credits": None}


# The process: reads stdin line by line, and behaves well or badly by its switches.


_DAY_S = "86400"


class Speaker(Protocol):
    """One side of a protocol, fed with the frames of the other."""

    def handle(self, frame: object) -> None:
        """Handle one frame of the client; skip anything else."""
        ...

    def close(self) -> None:
        """End, because the client is gone."""
        ...


def live(faults: Faults, make: Callable[[], Speaker]) -> int:
    """Run until the client closes stdin; SIGTERM ends it as well."""
    signal.signal(signal.SIGTERM, _stay if faults.ignore_sigterm else _leave)
    _note(faults, os.getpid(), "agent", sys.argv)
    if faults.own_session_child:
        _leave_a_child(faults)
    time.sleep(faults.slow_start_ms / 1000)
    _flood(faults.stderr_flood)
    speaker = make()
    try:
        for line in _lines():
            speaker.handle(_frame(line))
        while faults.ignore_eof:
            signal.pause()
    finally:
        speaker.close()
    return 0


def _lines() -> Iterator[bytes]:
    """The lines of stdin. A signal ends the wait for a line, even if it arrives just before the wait."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    rest = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, _AT_ONCE_BYTES)
        if 0 in ready:
            data = os.read(0, _AT_ONCE_BYTES)
            *lines, rest = (rest + data).split(b"\n")
            yield from lines
            if not data:
                return


def _frame(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _stay(*_: object) -> None:
    """Outlive the signal."""


def _leave(*_: object) -> None:
    raise SystemExit(0)


def _flood(size: int) -> None:
    line = b"scripted agent: this line fills the error stream\n"
    sys.stderr.buffer.write((line * (size // len(line) + 1))[:size])
    sys.stderr.buffer.flush()


def _leave_a_child(faults: Faults) -> None:
    """Start a sleeper in a process group of its own that ignores SIGTERM."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    argv = ["sleep", _DAY_S]
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(argv, start_new_session=True, stdin=quiet, stdout=quiet, stderr=quiet)
    signal.signal(signal.SIGTERM, before)
    _note(faults, child.pid, "child", argv)


def _note(faults: Faults, pid: int, role: str, argv: list[str]) -> None:
    """Write `<pid>.json` whole or not at all: pid, role, run id, argv, cwd."""
    if faults.pid_file is None:
        return
    facts = {
        "pid": pid,
        "role": role,
        "run_id": os.environ.get("SYMPHONY_RUN_ID"),
        "argv": argv,
        "cwd": str(Path.cwd()),
    }
    faults.pid_file.mkdir(parents=True, exist_ok=True)
    unfinished = faults.pid_file / f".{pid}.tmp"
    unfinished.write_text(json.dumps(facts), "utf-8")
    unfinished.replace(faults.pid_file / f"{pid}.json")
