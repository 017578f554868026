"""What a daemon in the process of a test gets: scripted agents as threads, and a clock that skips delays.

All of the daemon is real, and so are git, hooks and the commands of the agent: a script means the same as in
a process. An agent behind a pipe or a sandbox, and one that has to misbehave as a process does, is a process.
"""

import asyncio
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

import anyio
from anyio import to_thread
from typing_extensions import override

from symphony.daemon.clock import monotonic_ms
from symphony.processes.base import HostProcess, Identity
from symphony.processes.local import LocalHost
from symphony.scheduler import Command, Event, State
from symphony.testing.scripted_agent.protocol import ClientGoneError, Faults, Wire, read_switches
from symphony.testing.scripted_agent.server import Server

__all__ = ["ScriptedHost", "SkippingClock"]

T = TypeVar("T")
_PROGRAM = ["-m", "symphony.testing.scripted_agent"]
_OF_NO_PROCESS = 2**22  # Linux gives no process a number from here on
_numbers = count(_OF_NO_PROCESS)


class SkippingClock:
    """The monotonic clock, which skips the wait for the next retry while no agent runs; an `Observer`."""

    def __init__(self) -> None:
        self._skipped_ms = 0

    def now_ms(self) -> int:
        return monotonic_ms() + self._skipped_ms

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        del before, fact, commands
        waits = [retry.due_ms - self.now_ms() for retry in after.retrying.values() if not retry.refreshing]
        if waits and not after.running:
            self._skipped_ms += max(min(waits), 0)


class ScriptedHost(LocalHost):
    """This machine, on which the scripted agent is a thread; a `Host` for `serve` and `Service`."""

    @override
    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stderr_path: Path,
        supervised: bool = True,
    ) -> HostProcess:
        faults = await to_thread.run_sync(_faults, argv)
        if faults is None:
            return await super().spawn(argv, cwd=cwd, env=env, stderr_path=stderr_path, supervised=supervised)
        return _Agent(faults, env)


def _faults(argv: Sequence[str]) -> Faults | None:
    """How the scripted agent of this command misbehaves; None for what needs a process."""
    if list(argv[:2]) != ["bash", "-lc"]:
        return None
    command = argv[2].splitlines()[-1]
    words = shlex.split(command)
    if shlex.join(words) != command:  # a pipe, a variable, another command behind it
        return None
    while words and words[0].startswith("PYTHONPATH="):
        del words[0]
    if words[:3] != [sys.executable, *_PROGRAM]:
        return None
    faults = read_switches(words[3:])
    as_process = faults.ignore_eof or faults.ignore_sigterm or faults.own_session_child or faults.pid_file
    return None if as_process or faults.stderr_flood or faults.slow_start_ms else faults


class _Agent:
    """A `HostProcess` whose lines a thread answers."""

    def __init__(self, faults: Faults, env: Mapping[str, str]) -> None:
        self.identity = Identity(boot_id="thread", pid=next(_numbers), started=0.0)
        self.exit_code: int | None = None
        self.stderr_start = 0
        self._loop = asyncio.get_running_loop()
        self._changed = anyio.Event()
        self._said = bytearray()
        self._heard: SimpleQueue[bytes | None] = SimpleQueue()
        wire = Wire(lambda data: self._tell(self._say, data), faults, leave=self._leave)
        self._server = Server(wire, faults, env=env)
        Thread(target=self._live, daemon=True).start()

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        while not self._said and self.exit_code is None:
            await self._changed.wait()
        data = bytes(self._said[:max_bytes])
        del self._said[:max_bytes]
        return data

    async def send(self, data: bytes) -> None:
        if self.exit_code is not None:
            raise BrokenPipeError
        self._heard.put(data)

    async def close_stdin(self) -> None:
        self._heard.put(None)

    async def wait(self) -> int:
        while self.exit_code is None:
            await self._changed.wait()
        return self.exit_code

    def descendants(self) -> tuple[Identity, ...]:
        return (self.identity,)

    def left_only_orphans(self) -> bool:
        return True

    def signal(self, number: int, targets: Sequence[Identity]) -> None:
        if self.identity in targets:
            self._end(-number)

    # --- in the thread ---

    def _live(self) -> None:
        with suppress(ClientGoneError):
            while (data := self._heard.get()) is not None:
                for line in data.splitlines():
                    self._server.handle(json.loads(line))
        self._server.close()
        self._tell(self._end, 0)

    def _leave(self, code: int) -> None:
        self._tell(self._end, code)
        raise ClientGoneError  # ends the thread, or that of the turn

    def _tell(self, act: Callable[[T], None], what: T) -> None:
        with suppress(RuntimeError):  # the loop of a daemon that has ended is closed
            self._loop.call_soon_threadsafe(act, what)

    # --- in the loop of the daemon ---

    def _say(self, data: bytes) -> None:
        if self.exit_code is None:
            self._said += data
            self._change()

    def _end(self, code: int) -> None:
        if self.exit_code is None:
            self.exit_code = code
            self._heard.put(None)
            self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
