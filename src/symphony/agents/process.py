"""An agent's process: start it, read and write it, and end it with everything it started.

This module knows no protocol. The stop ladder closes stdin, sends SIGTERM and sends SIGKILL, with a grace
period after each. Then it ends what is left: the orphans that this process has adopted. A process that adopts
none ends the processes of the session by identity instead, because tool shells leave the process group and
cannot be found by their ancestors once their parent is dead. Stdout is read all the while: an agent that
cannot write cannot end, and its last output may hold the final token totals.
"""

import os
import re
import shlex
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from msgspec import Struct

from symphony import to_thread
from symphony.agents.environment import UNATTENDED
from symphony.agents.events import redact
from symphony.agents.isolation import Isolation
from symphony.processes.base import Host, HostProcess, Identity
from symphony.processes.table import RUN_ID_VARIABLE

_PLAIN_COMMAND: Final = re.compile(r"\s*([\w./+-][\w./+:@%,-]*)((?:[ \t]+[\w./+:@%,=-]+)*)\s*", re.ASCII)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_EXTEND_PATH: Final = 'PATH="$PATH:$1"; shift'
# fmt: off
_BASH_WORDS: Final = frozenset({
    ".", ":", "alias", "bg", "bind", "break", "builtin", "caller", "cd", "command", "compgen", "complete",
    "compopt", "continue", "declare", "dirs", "disown", "echo", "enable", "eval", "exec", "exit", "export",
    "false", "fc", "fg", "getopts", "hash", "help", "history", "jobs", "kill", "let", "local", "logout",
    "mapfile", "popd", "printf", "pushd", "pwd", "read", "readarray", "readonly", "return", "set", "shift",
    "shopt", "source", "suspend", "test", "times", "trap", "true", "type", "typeset", "ulimit", "umask",
    "unalias", "unset", "wait",
    "if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until", "do", "done", "in",
    "function", "time", "coproc",
})
# fmt: on
"""Builtins and keywords of bash 5, which are not programs."""

_STDERR_TAIL_BYTES: Final = 8_192
_LAST_BYTES_S: Final = 0.5
_SWEEPS: Final = 3  # a process may fork between the look at the table and the signal


class Launch(Struct, frozen=True, kw_only=True):
    """Everything that is needed to start an agent's process.

    Attributes:
        command: a shell command.
        arguments: follow the command, each one word whatever it holds.
        cwd: an existing directory.
        env: all variables of the process.
        stderr_path: the file that receives its stderr.
        secret_names: variables to unset behind the login profile.
        on_spawned: called with the identity of the process before anything is sent to it.
        isolation: what confines the process, or None.
    """

    command: str
    cwd: Path
    env: Mapping[str, str]
    stderr_path: Path
    arguments: tuple[str, ...] = ()
    secret_names: frozenset[str] = frozenset()
    on_spawned: Callable[[Identity], None] | None = None
    isolation: Isolation | None = None


def shell_argv(
    command: str,
    secret_names: Collection[str],
    *,
    search_path: str | None = None,
    arguments: Sequence[str] = (),
    fixed: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Return the `bash -lc` call of a command, which is not rewritten (specification section 10.1).

    A plain command that is a program gets `exec` in front, so that no shell stays between this process and
    the agent. Anything else (assignments, pipes, functions) runs as it is.

    Args:
        command: a shell command.
        secret_names: variables to unset behind the login profile. A secret that the profile made read-only
            cannot be unset: then the command does not start.
        search_path: the daemon's own PATH, appended to the one that the login profile sets. What the
            operator's terminal finds must be found here too.
        arguments: passed as words of their own behind the command.
        fixed: variables that the login profile must not change.
    """
    whole = f'{command.rstrip()} "$@"' if arguments else command
    names = sorted(name for name in secret_names if _VARIABLE.fullmatch(name))
    lines = [f"unset -v {' '.join(names)} || exit 78"] if names else []
    if fixed:
        lines.append(f"export {' '.join(f'{name}={shlex.quote(value)}' for name, value in fixed.items())}")
    plain = _PLAIN_COMMAND.fullmatch(command)
    if plain is not None and plain[1] not in _BASH_WORDS:
        lines.append(f"declare -F -- {plain[1]} >/dev/null || exec {whole.strip()}")
    lines.append(whole)
    if search_path:
        return ("bash", "-lc", "\n".join([_EXTEND_PATH, *lines]), "bash", search_path, *arguments)
    return ("bash", "-lc", "\n".join(lines), *(("bash", *arguments) if arguments else ()))


class AgentProcess:
    """A running agent. Nothing is read unless a caller asks for it."""

    def __init__(self, host: Host, child: HostProcess, launch: Launch, *, grace_ms: int) -> None:
        self._host = host
        self._child = child
        self._run_id = launch.env.get(RUN_ID_VARIABLE)
        self._isolated = launch.isolation is not None
        self._stderr_path = launch.stderr_path
        self._grace_s = grace_ms / 1000
        self._family: dict[Identity, None] = {}

    @classmethod
    async def start(cls, host: Host, launch: Launch, *, grace_ms: int) -> "AgentProcess":
        """Spawn the agent and call `on_spawned`.

        Raises:
            OSError: bash or the directory is missing, or no process can be made.
        """
        argv = shell_argv(
            launch.command,
            launch.secret_names,
            search_path=launch.env.get("PATH"),
            arguments=launch.arguments,
            fixed={name: launch.env[name] for name in UNATTENDED if name in launch.env},
        )
        if launch.isolation is not None:
            argv = await to_thread.run_sync(partial(launch.isolation.wrap, argv, cwd=launch.cwd))
        child = await host.spawn(argv, cwd=launch.cwd, env=launch.env, stderr_path=launch.stderr_path)
        process = cls(host, child, launch, grace_ms=grace_ms)
        try:
            if launch.on_spawned is not None:
                launch.on_spawned(child.identity)
        except BaseException:
            await process.stop()
            raise
        return process

    @property
    def pid(self) -> int:
        """The process id of the child."""
        return self._child.identity.pid

    @property
    def grace_s(self) -> float:
        """The limit of each step of the stop ladder, in seconds."""
        return self._grace_s

    async def receive(self) -> bytes:
        """Return the next bytes of stdout, `b""` at its end. Safe to cancel."""
        return await self._child.receive()

    async def send(self, data: bytes) -> None:
        """Write to stdin. A dead child raises nothing here: the end of its stdout shows that."""
        with suppress(BrokenPipeError):
            await self._child.send(data)

    async def close_stdin(self) -> None:
        """Close its stdin: nothing more will be sent."""
        await self._child.close_stdin()

    async def wait(self) -> int:
        """Wait for the child to end, even while other processes hold its stdout; return its exit code."""
        return await self._child.wait()

    async def exit_code(self) -> int | None:
        """Return the exit code of a child whose stdout has ended; None if it runs on without one."""
        with anyio.move_on_after(self._grace_s):
            await self._child.wait()
        return self._child.exit_code

    async def stderr_line(self) -> str:
        """Return the last line of its stderr that is not blank, redacted; empty when there is none."""

        def read() -> tuple[int, bytes]:
            with self._stderr_path.open("rb") as stream:
                start = max(self._child.stderr_start, stream.seek(0, os.SEEK_END) - _STDERR_TAIL_BYTES)
                stream.seek(start)
                return start, stream.read(_STDERR_TAIL_BYTES)

        try:
            start, tail = await to_thread.run_sync(read)
        except OSError:
            return ""
        # The ellipsis shows the masking that a secret may be cut there.
        cut = "…" if start > self._child.stderr_start else ""
        lines = [redact(line) for line in (cut + tail.decode("utf-8", "replace")).splitlines()]
        return next((line for line in reversed(lines) if line), "")

    async def stop(self, sink: Callable[[bytes], None] = lambda _: None) -> None:
        """Run the stop ladder; `sink` gets what the agent still writes.

        Not shielded from cancellation. A second call finds nothing left to do. What an agent leaves that ends
        by itself, its subreaper has ended before the end is known.
        """
        await self._child.close_stdin()
        if not await self._wait_and_drain(sink):
            for number in (signal.SIGTERM, signal.SIGKILL):
                self._remember_family()
                self._child.signal(number, self._targets(number))
                if await self._wait_and_drain(sink):
                    break
        await self._sweep()
        with anyio.move_on_after(_LAST_BYTES_S):
            await self._drain(sink)

    def _remember_family(self) -> None:
        """Remember the processes of the session: once their parent is dead, they cannot be found."""
        self._family.update(dict.fromkeys(self._child.descendants()))

    def _targets(self, number: signal.Signals) -> tuple[Identity, ...]:
        """Spare bubblewrap from SIGTERM: it would kill the agent at once."""
        inside = [member for member in self._family if member != self._child.identity]
        return tuple(inside if self._isolated and inside and number is signal.SIGTERM else self._family)

    async def _wait_and_drain(self, sink: Callable[[bytes], None]) -> bool:
        """Read stdout for one grace period; return whether the child has ended."""
        with anyio.move_on_after(self._grace_s):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._drain, sink)
                await self._child.wait()
                tasks.cancel_scope.cancel()
        return self._child.exit_code is not None

    async def _drain(self, sink: Callable[[bytes], None]) -> None:
        while data := await self._child.receive():
            sink(data)

    async def _sweep(self) -> None:
        if not self._child.left_only_orphans():
            for _ in range(_SWEEPS):
                marked = self._host.find_marked([self._run_id]) if self._run_id is not None else ()
                family = dict.fromkeys([*self._family, *marked])
                left = [member for member in family if self._host.is_alive(member)]
                if not left:
                    break
                await self._host.end(left, grace_ms=int(self._grace_s * 1000))
        await self._host.end_orphans()
