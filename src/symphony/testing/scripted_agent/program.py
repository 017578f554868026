"""A process that reads stdin line by line, and keeps or breaks the promises of a good child."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from symphony.testing.scripted_agent.faults import Faults

__all__ = ["Speaker", "live"]

_DAY_S = "86400"


class Speaker(Protocol):
    """One side of a protocol, fed with the frames of the other."""

    def handle(self, frame: object) -> None:
        """Take one frame of the client; what is none is skipped."""
        ...

    def close(self) -> None:
        """The client is gone."""
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
        for line in sys.stdin.buffer:
            speaker.handle(_frame(line))
        while faults.ignore_eof:
            signal.pause()
    finally:
        speaker.close()
    return 0


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
    """Start a sleeper that is in no group of ours; it inherits that SIGTERM is ignored."""
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
