"""The switches that make the scripted agent misbehave, so that tests need no broken real agent.

A METHOD is one that the agent receives (`initialize`, `turn/start`; the fault strikes before the answer) or
one that it sends (`turn/started`, `item/tool/call`; the fault strikes after the line).
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Faults", "read_switches"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Which faults to commit; the default is none. Meanings stand at the switches in `read_switches`."""

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


def read_switches(argv: Sequence[str]) -> Faults:
    """Faults from a command line (without the program name); exits with 2 when it is not understood.

    An argument `app-server` is accepted and means nothing, so that the agent can stand in for `codex`.
    """
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
    add("--unknown-request", action=flag, help="ask the client something nobody knows, in each turn")
    add("--slow-start", type=int, default=0, metavar="MS", help="read nothing for this long")
    add("--own-session-child", action=flag, help="leave a child in its own session that ignores SIGTERM")
    add("--pid-file", type=Path, metavar="DIR", help="write <pid>.json there for the agent and its child")
    add("--threads", type=Path, metavar="DIR", help="remember threads there, so that they can be resumed")
    add(
        "--refuses",
        metavar="NAME",
        help="fail each turn with this `codexErrorInfo`, such as usageLimitExceeded",
    )
    return parser
