"""The actor of a run on a node of a Ray cluster: runs commands there, with their stdin, stdout and stderr.

The bridge makes one for each run, and it holds the slot of the run. Each command ends with the actor. The
actor ends when no bridge has called it for a while, so that a daemon that never returns leaves nothing
behind.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

_CHUNK_BYTES: Final = 1_048_576
_BUFFER_BYTES: Final = 2 * _CHUNK_BYTES
_NEWS_S: Final = 10.0
_LAST_BYTES_S: Final = 1.0
_OF_RAY: Final = frozenset({"OMP_NUM_THREADS", "PYTHONBREAKPOINT", "SPT_NOENV"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorFacts:
    """An actor's Python, and whether its node asks for tokens."""

    python: str
    auth_mode: str


@dataclass(slots=True)
class _Command:
    process: asyncio.subprocess.Process
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    taken: asyncio.Event = field(default_factory=asyncio.Event)
    exit_code: int | None = None

    def take(self) -> tuple[bytes, bytes]:
        """The output since the last call, which makes room for more."""
        taken = bytes(self.stdout), bytes(self.stderr)
        self.changed.clear()
        self.stdout.clear()
        self.stderr.clear()
        self.taken.set()
        return taken


class RunActor:
    """Runs shell commands, each with its own key. The bridge calls all methods.

    Args:
        settings: the settings of its bridge. A bridge with other settings makes a new actor.
        silence_s: after this time without a call it ends with everything it started.
    """

    def __init__(self, settings: str, silence_s: float) -> None:
        self._settings = settings
        self._silence_s = silence_s
        self._called_s = time.monotonic()
        self._commands: dict[str, _Command] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        threading.Thread(target=self._watch, daemon=True).start()

    async def begin(self, settings: str) -> ActorFacts | None:
        """End what an earlier bridge left; `None` if this actor was made by other settings."""
        self.ping()
        if settings != self._settings:
            return None
        for key in tuple(self._commands):
            await self.end(key)
        return ActorFacts(
            python=sys.executable,
            auth_mode=os.environ.get("RAY_AUTH_MODE", ""),
        )

    def ping(self) -> None:
        """Show that the bridge is alive."""
        self._called_s = time.monotonic()

    async def start(self, key: str, command: str) -> None:
        """Start a command with the variables of this process, but none of Ray's, such as the token."""
        self.ping()
        pipe = asyncio.subprocess.PIPE
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("RAY_") and name not in _OF_RAY
        }
        process = await asyncio.create_subprocess_exec(
            *("setpriv", "--pdeathsig", "KILL", "sh", "-c", command),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            limit=_CHUNK_BYTES,
            cwd="/",
            env=kept,
            start_new_session=True,
        )
        self._commands[key] = running = _Command(process)
        task = asyncio.get_running_loop().create_task(self._carry(running))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def write(self, key: str, data: bytes) -> None:
        """Write to stdin once it takes more; no data closes it. Ignored if the command no longer reads."""
        self.ping()
        command = self._commands.get(key)
        if command is None:  # its exit code is on the way to the bridge
            return
        stdin = command.process.stdin
        assert stdin is not None  # noqa: S101 - a pipe
        with suppress(BrokenPipeError, ConnectionResetError):
            if data:
                stdin.write(data)
                await stdin.drain()
            else:
                stdin.close()

    async def read(self, key: str) -> tuple[bytes, bytes, int | None]:
        """The output of the command on stdout and stderr since the last call; waits briefly for news.

        The exit code comes last, when the command has ended and nothing is left to read.
        """
        self.ping()
        command = self._commands[key]
        with suppress(TimeoutError):
            await asyncio.wait_for(command.changed.wait(), _NEWS_S)
        stdout, stderr = command.take()
        if stdout or stderr or command.exit_code is None:
            if command.exit_code is not None:
                command.changed.set()
            return stdout, stderr, None
        self._commands.pop(key, None)
        return b"", b"", command.exit_code

    async def end(self, key: str) -> None:
        """End a command whose output is not read any more, and everything in its session."""
        self.ping()
        command = self._commands.pop(key, None)
        if command is not None and command.exit_code is None:
            with suppress(ProcessLookupError):
                os.killpg(command.process.pid, signal.SIGKILL)
            while command.exit_code is None:
                command.take()
                await command.changed.wait()

    async def _carry(self, command: _Command) -> None:
        """Read both outputs, with a limit on unfetched output; then wait for the end."""

        async def pump(stream: asyncio.StreamReader | None, into: bytearray) -> None:
            assert stream is not None  # noqa: S101 - a pipe
            while data := await stream.read(_CHUNK_BYTES):
                into += data
                command.changed.set()
                while len(into) >= _BUFFER_BYTES:
                    command.taken.clear()
                    await command.taken.wait()

        process, loop = command.process, asyncio.get_running_loop()
        pumps = {
            loop.create_task(pump(process.stdout, command.stdout)),
            loop.create_task(pump(process.stderr, command.stderr)),
        }
        while pumps:
            _, pumps = await asyncio.wait(pumps, timeout=_LAST_BYTES_S)
            full = max(len(command.stdout), len(command.stderr)) >= _BUFFER_BYTES
            if pumps and process.returncode is not None and not full:
                with suppress(ProcessLookupError):  # processes that it left behind hold its outputs open
                    os.killpg(process.pid, signal.SIGKILL)
                await asyncio.wait(pumps, timeout=_LAST_BYTES_S)
                break
        for task in pumps:
            task.cancel()
        # `wait` may wait for the outputs too.
        command.exit_code = await process.wait() if process.returncode is None else process.returncode
        command.changed.set()

    def _watch(self) -> None:
        while (left_s := self._called_s + self._silence_s - time.monotonic()) > 0:
            time.sleep(left_s)
        os._exit(0)
