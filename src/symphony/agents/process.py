"""An agent's process: how it is launched, read and written, and how all of it is ended (AG1, AG20, AG21).

Knows nothing of any protocol. The stop ladder is: record the descendants, close stdin, SIGTERM, SIGKILL, a
grace period each; then whatever of the family is left is swept by identity, because tool shells leave the
process group and a dead parent hides them. Stdout is read all the while: an agent that cannot write cannot
end, and its last words may hold the final token totals.
"""

import re
import signal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread

from symphony.agents.events import redact
from symphony.agents.isolation import Isolation
from symphony.processes.base import Host, HostProcess, Identity
from symphony.processes.table import RUN_ID_VARIABLE

Sink = Callable[[bytes], None]

_PLAIN_COMMAND = re.compile(r"\s*([\w./+-][\w./+:@%,-]*)((?:[ \t]+[\w./+:@%,=-]+)*)\s*", re.ASCII)
_OF_THE_SHELL = frozenset(
    [
        ".",
        ":",
        "alias",
        "bg",
        "bind",
        "break",
        "builtin",
        "caller",
        "cd",
        "command",
        "compgen",
        "complete",
        "compopt",
        "continue",
        "declare",
        "dirs",
        "disown",
        "echo",
        "enable",
        "eval",
        "exec",
        "exit",
        "export",
        "false",
        "fc",
        "fg",
        "getopts",
        "hash",
        "help",
        "history",
        "jobs",
        "kill",
        "let",
        "local",
        "logout",
        "mapfile",
        "popd",
        "printf",
        "pushd",
        "pwd",
        "read",
        "readarray",
        "readonly",
        "return",
        "set",
        "shift",
        "shopt",
        "source",
        "suspend",
        "test",
        "times",
        "trap",
        "true",
        "type",
        "typeset",
        "ulimit",
        "umask",
        "unalias",
        "unset",
        "wait",
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "case",
        "esac",
        "for",
        "select",
        "while",
        "until",
        "do",
        "done",
        "in",
        "function",
        "time",
        "coproc",
    ]
)
"""Builtins and keywords of bash 5: none of them is a program where it stands alone."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_STDERR_TAIL_BYTES = 8_192
_LAST_BYTES_S = 0.5
_WIDEN_PATH = 'PATH="$PATH:$1"; shift'
_SWEEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start: a shell command string, where, with which variables, and who must be told.

    `arguments` follow the command, each a word of its own whatever it holds.
    """

    command: str
    cwd: Path
    env: Mapping[str, str]
    stderr_path: Path
    secret_names: frozenset[str] = frozenset()
    on_spawned: Callable[[Identity], None] | None = None
    isolation: Isolation | None = None
    arguments: tuple[str, ...] = ()


def shell_argv(
    command: str,
    secret_names: Collection[str],
    *,
    search_path: str | None = None,
    arguments: Sequence[str] = (),
) -> tuple[str, ...]:
    """`bash -lc` of the command, never rewritten, with secrets unset behind the login profile (AG1, AG20).

    A secret that a profile made read-only cannot be unset: then the command does not start at all. `exec`
    stands before a plain command that is a program, so that no shell stays between us and the agent; anything
    else (assignments, pipes, functions) runs as it is. To ask `type` what a word is would cost a process.

    `search_path` is the daemon's own PATH: many a login profile sets PATH anew, and what the operator's
    terminal finds must be found here too, after what the profile names. `arguments` are handed over beside
    the command, which only says where they go: at its end.
    """
    whole = f'{command.rstrip()} "$@"' if arguments else command
    names = sorted(name for name in secret_names if _VARIABLE.fullmatch(name))
    lines = [f"unset -v {' '.join(names)} || exit 78"] if names else []
    plain = _PLAIN_COMMAND.fullmatch(command)
    if plain is not None and plain[1] not in _OF_THE_SHELL:
        lines.append(f"declare -F -- {plain[1]} >/dev/null || exec {whole.strip()}")
    if not search_path:
        words = ("bash", *arguments) if arguments else ()
        return ("bash", "-lc", "\n".join([*lines, whole]), *words)
    return ("bash", "-lc", "\n".join([_WIDEN_PATH, *lines, whole]), "bash", search_path, *arguments)


class AgentProcess:
    """A running agent. Reads are pulled: nothing is read unless somebody asks."""

    def __init__(
        self, host: Host, child: HostProcess, launch: Launch, *, grace_ms: int, stderr_start: int = 0
    ) -> None:
        self._host = host
        self._child = child
        self._run_id = launch.env.get(RUN_ID_VARIABLE)
        self._stderr_path = launch.stderr_path
        self._stderr_start = stderr_start
        self._grace_s = grace_ms / 1000
        self._enclosed = launch.isolation is not None
        self._family: dict[Identity, None] = {}

    @classmethod
    async def start(cls, host: Host, launch: Launch, *, grace_ms: int) -> "AgentProcess":
        """Spawn the agent and tell `on_spawned` who it is.

        Raises:
            OSError: bash or the directory is missing, or no process can be made.
        """
        argv = shell_argv(
            launch.command,
            launch.secret_names,
            search_path=launch.env.get("PATH"),
            arguments=launch.arguments,
        )
        if launch.isolation is not None:
            argv = await to_thread.run_sync(partial(launch.isolation.enclose, argv, cwd=launch.cwd))
        start = await to_thread.run_sync(_size_of, launch.stderr_path)
        child = await host.spawn(argv, cwd=launch.cwd, env=launch.env, stderr_path=launch.stderr_path)
        process = cls(host, child, launch, grace_ms=grace_ms, stderr_start=start)
        try:
            if launch.on_spawned is not None:
                launch.on_spawned(child.identity)
        except BaseException:
            await process.stop(_ignore)
            raise
        return process

    @property
    def pid(self) -> int:
        """The process id of the child."""
        return self._child.identity.pid

    @property
    def grace_s(self) -> float:
        """How long each step of the stop ladder may take, in seconds."""
        return self._grace_s

    async def receive(self) -> bytes:
        """Next bytes of stdout; `b""` at its end. Safe to cancel."""
        return await self._child.receive()

    async def send(self, data: bytes) -> None:
        """Write to stdin. A child that is gone is not an error here: the end of its stdout says so."""
        with suppress(BrokenPipeError):
            await self._child.send(data)

    async def close_stdin(self) -> None:
        """End its stdin: nothing more will be sent."""
        await self._child.close_stdin()

    async def ended(self) -> int:
        """Wait for the child itself, whoever else still holds its stdout; its exit code."""
        return await self._child.wait()

    async def exit_code(self) -> int | None:
        """The exit code of a child whose stdout has ended; null when it lives on without one."""
        with anyio.move_on_after(self._grace_s):
            await self._child.wait()
        return self._child.exit_code

    async def stderr_line(self) -> str:
        """The last line of its stderr that is not blank, redacted; empty when there is none."""
        try:
            async with await anyio.open_file(self._stderr_path, "rb") as stream:
                start = max(self._stderr_start, await stream.seek(0, 2) - _STDERR_TAIL_BYTES)
                await stream.seek(start)
                tail = await stream.read(_STDERR_TAIL_BYTES)
        except OSError:
            return ""
        before = "…" if start > self._stderr_start else ""  # by which masking knows a part of a secret
        lines = [redact(line) for line in (before + tail.decode("utf-8", "replace")).splitlines()]
        return next((line for line in reversed(lines) if line), "")

    async def stop(self, sink: Sink) -> None:
        """End the process and its family; `sink` gets what it still writes.

        Not shielded; a second call finds nothing left to do.
        """
        self._record(self._child.descendants())
        await self._child.close_stdin()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                self._record(self._child.descendants())
                self._child.signal(number, self._addressed(number))
            if await self._ended(sink):
                break
        await self._sweep()
        with anyio.move_on_after(_LAST_BYTES_S):
            await self._drain(sink)

    def _addressed(self, number: signal.Signals) -> tuple[Identity, ...]:
        """Who gets a signal. What encloses an agent would answer SIGTERM by killing it at once."""
        inside = [member for member in self._family if member != self._child.identity]
        return tuple(inside if self._enclosed and inside and number is signal.SIGTERM else self._family)

    def _record(self, found: Iterable[Identity]) -> None:
        """Remember who belongs to it; who left it is found before a signal and by the sweep."""
        self._family.update(dict.fromkeys(found))

    async def _ended(self, sink: Sink) -> bool:
        with anyio.move_on_after(self._grace_s):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._drain, sink)
                await self._child.wait()
                tasks.cancel_scope.cancel()
        return self._child.exit_code is not None

    async def _drain(self, sink: Sink) -> None:
        while data := await self._child.receive():
            sink(data)

    async def _sweep(self) -> None:
        for _ in range(_SWEEPS):  # a process may fork between the look and the signal
            left = self._left()
            if not left:
                break
            await self._host.end(left, grace_ms=int(self._grace_s * 1000))
        await self._host.end_orphans()

    def _left(self) -> list[Identity]:
        marked = self._host.find_marked([self._run_id]) if self._run_id is not None else ()
        return [member for member in dict.fromkeys([*self._family, *marked]) if self._host.is_alive(member)]


def _ignore(data: bytes) -> None:
    """The sink of a process that has said nothing of interest."""


def _size_of(path: Path) -> int:
    """The size of a file in bytes, 0 where there is none; blocking."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
