"""A session of a one-shot agent: a process for each turn, none in between, and no memory but the workspace.

Because no conversation goes on, every turn is told the whole task again; a later one also what has changed.
What the turns of all backends have alike is in `turns`.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import anyio
from typing_extensions import override

from symphony.agents.base import SessionRequest
from symphony.agents.command.output import Output
from symphony.agents.command.papers import Papers
from symphony.agents.command.profiles import Profile
from symphony.agents.command.results import Signs, result
from symphony.agents.events import AgentEvent, SessionStarted, Text
from symphony.agents.process import AgentProcess
from symphony.agents.queue import EventQueue
from symphony.agents.silence import silence_limit
from symphony.agents.turns import Turns
from symphony.config.settings import CommandSettings
from symphony.domain.failures import Failure
from symphony.domain.ids import session_id

__all__ = ["CommandSession", "Start"]

Start = Callable[[Mapping[str, str]], Awaitable[AgentProcess]]
"""Starts the process of a turn with these placeholders filled in."""

_LAST_BYTES_S = 0.5
_MAX_TITLE_CHARS = 1_000


class CommandSession(Turns):
    """An `AgentSession` of turns that are processes; for one task: cancel its turn before calling `stop`.

    `separate` says that the envelope has a file of its own; else it stands before the prompt.
    """

    def __init__(
        self,
        start: Start,
        *,
        settings: CommandSettings,
        profile: Profile,
        request: SessionRequest,
        envelope: str,
        papers: Papers,
        separate: bool,
    ) -> None:
        super().__init__(EventQueue())
        self._start = start
        self._settings = settings
        self._profile = profile
        self._request = request
        self._envelope = envelope
        self._papers = papers
        self._separate = separate
        self._process: AgentProcess | None = None
        self._output = Output()
        self._signs = Signs(profile)
        self._task: str | None = None
        self._turn = 0

    @property
    def pid(self) -> int:
        """The process of the latest turn; 0 before the first one."""
        return 0 if self._process is None else self._process.pid

    @property
    def resume_refused(self) -> Failure | None:
        """Null: nobody is told that a session could go on."""
        return None

    @property
    def thread_id(self) -> None:
        """`None`: it remembers no conversation."""
        return

    # --- a turn ------------------------------------------------------------------------------------------

    @override
    async def _begin(self, prompt: str, title: str) -> SessionStarted:
        await self._end()
        self._turn += 1
        self._output, self._signs = Output(), Signs(self._profile)
        self._events.new_turn()
        told = self._told(prompt)
        if not self._separate and self._envelope:
            told = f"{self._envelope.rstrip()}\n\n{told}"
        await self._papers.write(prompt=told, envelope=self._envelope)
        self._process = await self._start(self._values(title))
        with suppress(OSError):
            await self._process.close_input()
        thread, turn = self._request.run_id, str(self._turn)
        return SessionStarted(session_id=session_id(thread, turn), thread_id=thread, turn_id=turn)

    def _told(self, prompt: str) -> str:
        """The prompt of a later turn speaks of a conversation that this agent has forgotten."""
        if self._task is None:
            self._task = prompt
            return prompt
        return f"{self._task.rstrip()}\n\n---\n\n{prompt}"

    def _values(self, title: str) -> dict[str, str]:
        """What the placeholders stand for; `title` is `<identifier>: <title>`."""
        issue, _, name = title.partition(": ")
        values = {
            "prompt_file": str(self._papers.prompt_file),
            "envelope_file": str(self._papers.envelope_file),
            "issue": issue,
            "title": name[:_MAX_TITLE_CHARS],
            "workspace": str(self._request.cwd),
            "model": self._settings.model or "",
        }
        return {key: value.replace("\0", "") for key, value in values.items()}

    @override
    async def _catch_up(self) -> None:
        """Nothing is read before its turn."""

    @override
    async def _advance(self) -> None:
        process = self._process
        if process is None:
            raise RuntimeError("no turn has begun")
        data, code = b"", None
        with silence_limit(self._settings.turn_timeout_ms):
            data = await _read(process)
            if not data:
                code = await process.ended()
        if data:
            self._hear(self._output.receive(data))
        elif code is not None:
            await self._conclude(process, code)

    async def _conclude(self, process: AgentProcess, code: int) -> None:
        """The program has ended: hear what it still wrote, end what it left running, tell the result."""
        await self._end()
        self._hear(self._output.close())
        last = await process.stderr_line() or self._output.last
        self._events.emit(result(code, last, self._profile, self._signs.failure))

    @override
    async def _end(self) -> None:
        if self._process is not None:
            with suppress(OSError):
                await self._process.stop(lambda data: self._hear(self._output.receive(data)))

    def _hear(self, events: list[AgentEvent]) -> None:
        for event in events:
            if isinstance(event, Text):
                self._signs.hear(event.message)
            self._events.emit(event)


async def _read(process: AgentProcess) -> bytes:
    """The next output; `b""` at its end, and when the program has ended though others hold its output."""
    data = b""

    async def watch(scope: anyio.CancelScope) -> None:
        await process.ended()
        await anyio.sleep(_LAST_BYTES_S)
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, tasks.cancel_scope)
        data = await process.receive()
        tasks.cancel_scope.cancel()
    return data
