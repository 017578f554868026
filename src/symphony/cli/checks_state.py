"""Checks of `symphony doctor` on what daemons have left: the state directory and all that is in it."""

import os
import stat
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from symphony.cli.checkup import Finding, failed, fine, in_thread, odd
from symphony.cli.client import reach
from symphony.cli.control import UnreachableError, absence, find_daemon
from symphony.cli.failures import CommandError
from symphony.cli.leftovers import kept_workspaces
from symphony.cli.nearest import nearest
from symphony.daemon.bound import Bound
from symphony.daemon.state_place import instance_of
from symphony.journal.reader import checkup
from symphony.observability.model import State
from symphony.processes.local import LocalHost

__all__ = [
    "check_journal",
    "check_lock",
    "check_processes",
    "check_state_directory",
    "check_workspaces",
]

_OTHERS: Final = 0o077
_AHEAD_MS: Final = 300_000
_SHOWN: Final = 5


async def check_state_directory(path: Path) -> list[Finding]:
    """Whose it is, who can read it, and whether it can be written."""
    return await in_thread(_state_directory, path)


def _state_directory(path: Path) -> list[Finding]:
    name = "state_directory"
    try:
        unusable = _why_unusable(path, path.stat())
    except FileNotFoundError:
        parent = nearest(path)
        if os.access(parent, os.W_OK | os.X_OK):
            return [fine(name, f"{path} is made by the first `symphony run`")]
        unusable = f"{path} cannot be made: {parent} cannot be written by this user"
    except OSError as error:
        unusable = f"{path} cannot be used: {error.strerror}"
    if unusable is not None:
        hint = "run this as the user of the daemon, or set SYMPHONY_STATE_DIR to a directory of this user"
        return [failed(name, CommandError.of(unusable, hint=hint).failure, hint=hint)]
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        text = f"{path} can be read by others (mode {mode:04o})"
        return [odd(name, text, hint=f"chmod 700 {path}")]
    return [fine(name, f"{path} is private to this user")]


def _why_unusable(path: Path, facts: os.stat_result) -> str | None:
    if not stat.S_ISDIR(facts.st_mode):
        return f"{path} is no directory"
    if facts.st_uid != os.geteuid():
        return f"{path} belongs to another user (uid {facts.st_uid})"
    return None if os.access(path, os.W_OK | os.X_OK) else f"{path} cannot be written"


async def check_lock(workflow: Path, environment: Mapping[str, str]) -> list[Finding]:
    """Who serves the workflow, and whether it answers; a lock of a dead daemon is free."""
    return await in_thread(partial(_lock, workflow, environment))


def _lock(workflow: Path, environment: Mapping[str, str]) -> list[Finding]:
    client = reach(workflow, environment)
    if client is None:
        notice = absence(workflow, environment)
        if notice is None:
            return [fine("lock", "no daemon holds it")]
        return [odd("lock", notice, hint="`symphony status` tells more")]
    with client:
        state, pid = client.state(waiting=0), client.control.pid
    return _told_by(state, pid)


def _told_by(state: State, pid: int) -> list[Finding]:
    """What a daemon says of itself."""
    status, journal = state.health.status, state.journal
    found = [fine("lock", f"a daemon (pid {pid}) holds it, and answers")]
    if status != "ok":
        text = f"a daemon (pid {pid}) holds it, and says of itself: {status}"
        found = [odd("lock", text, hint="`symphony status` says why")]
    if journal is not None and journal.state == "memory":
        text = f"the daemon (pid {pid}) keeps its journal in memory alone: {journal.reason}"
        found.append(odd("lock", text, hint=journal.hint or "`symphony status` says why"))
    return found


async def check_journal(path: Path) -> list[Finding]:
    """Whether what is remembered can be read; a daemon works without it, and forgets at its end."""
    return await in_thread(_journal, path)


def _journal(path: Path) -> list[Finding]:
    name = "journal"
    found = checkup(path)
    if not found.present:
        told = [fine(name, f"{path} is begun by the first `symphony run`")]
    elif found.failure is not None:
        hint = "move it away; a new one costs the history and nothing else"
        told = [odd(name, found.failure.message, hint=found.failure.hint or hint)]
    else:
        size = f"{found.bytes / 1024**2:.1f} MiB"
        held = f"runs: {found.runs}, claims: {found.claims}"
        told = [fine(name, f"{path} is sound ({held}, {size})")]
    if found.newest_wall_ms is not None and found.newest_wall_ms > time.time() * 1000 + _AHEAD_MS:
        hint = "the clock was set back, or was wrong before; times of then are told as they were written"
        told.append(odd(name, "its newest record lies in the future", hint=hint))
    if found.aside:
        text = f"{len(found.aside)} damaged before and set aside, such as {found.aside[-1]}"
        told.append(
            odd(name, text, hint="delete what nobody wants to look at; `symphony clean` does in time")
        )
    return told


async def check_processes(workflow: Path, environment: Mapping[str, str], state_dir: Path) -> list[Finding]:
    """What a daemon that is dead has left running."""
    return await in_thread(partial(_processes, workflow, environment, state_dir))


def _processes(workflow: Path, environment: Mapping[str, str], state_dir: Path) -> list[Finding]:
    try:
        if find_daemon(workflow, environment) is not None:
            return [fine("processes", "those of the runs belong to the daemon")]
    except UnreachableError:
        return [fine("processes", "there is a daemon, though it cannot be asked: they may be its own")]
    left = LocalHost(instance=instance_of(state_dir)).find_left()
    if not left:
        return [fine("processes", "no dead daemon has left any")]
    pids = sorted(one.pid for one in left)
    shown = ", ".join(map(str, pids[:_SHOWN])) + (" …" if len(pids) > _SHOWN else "")
    text = f"a dead daemon has left {len(pids)} running: {shown}"
    return [odd("processes", text, hint="the next `symphony run` ends them before it starts anything")]


async def check_workspaces(bound: Bound | None) -> list[Finding]:
    """Workspaces of issues that are over."""
    if bound is None:
        hint = "mend WORKFLOW.md first, then run this again"
        return [odd("workspaces", "not looked at, because WORKFLOW.md cannot be used", hint=hint)]
    found = await kept_workspaces(bound)
    ended = [one for one in found if one.ended]
    if not ended:
        return [fine("workspaces", f"{len(found)} there, none of an issue that is over")]
    names = ", ".join(one.record.identifier for one in ended[:_SHOWN])
    text = f"{len(ended)} of {len(found)} are of issues that are over: {names}"
    return [odd("workspaces", text, hint="`symphony clean --dry-run` says which can go, and why others stay")]
