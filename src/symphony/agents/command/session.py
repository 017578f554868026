"""A session of a one-shot agent: a process for each turn, none in between, and no memory but the workspace.

Because no conversation goes on, every turn is told the whole task again; a later one also what has changed.
There is no background task: `run_turn` reads the agent while somebody iterates over it. No cancel scope spans
a `yield`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress

import anyio

from symphony.agents.base import AgentError, SessionRequest
from symphony.agents.command.output import Output
from symphony.agents.command.papers import Papers
from symphony.agents.command.profiles import Profile
from symphony.agents.command.results import Signs, result
from symphony.agents.events import AgentEvent, SessionStarted, Text, TurnEnded
from symphony.agents.process import AgentProcess
from symphony.agents.queue import EventQueue
from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.ids import session_id
from symphony.workflow.settings import CommandSettings

__all__ = ["CommandSession", "Start"]

Start = Callable[[Mapping[str, str]], Awaitable[AgentProcess]]
"""Starts the process of a turn with these placeholders filled in."""

_OVERSLEPT_S = 10.0
_LAST_BYTES_S = 0.5
_MAX_TITLE_CHARS = 1_000


class CommandSession:
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
        papers: Papers,
        separate: bool,
    ) -> None:
        self._start = start
        self._settings = settings
        self._profile = profile
        self._request = request
        self._papers = papers
        self._separate = separate
        self._process: AgentProcess | None = None
        self._output = Output()
        self._signs = Signs(profile)
        self._events = EventQueue()
        self._task: str | None = None
        self._turn = 0
        self._stop_lock = anyio.Lock()
        self._stopping = False

    @property
    def pid(self) -> int:
        """The process of the latest turn; 0 before the first one."""
        return 0 if self._process is None else self._process.pid

    @property
    def resume_refused(self) -> Failure | None:
        """Null: nobody is told that a session could go on."""
        return None

    async def run_turn(self, prompt: str, *, title: str) -> AsyncIterator[AgentEvent]:
        """Run one turn; the last event is `TurnEnded`.

        Raises:
            AgentError: `agent_not_found`: not even a shell; `turn_timeout` (silence); `state_directory`.
        """
        yield await self._begin(prompt, title)
        while True:
            while self._events:
                event = self._events.take()
                yield event
                if isinstance(event, TurnEnded):
                    return
            await self._advance()

    async def stop(self) -> tuple[AgentEvent, ...]:
        """End what runs; returns what nobody has seen yet, once."""
        with anyio.CancelScope(shield=True):
            async with self._stop_lock:
                if not self._stopping:
                    self._stopping = True
                    await self._end_process()
        return self._events.drain()

    # --- a turn ------------------------------------------------------------------------------------------

    async def _begin(self, prompt: str, title: str) -> SessionStarted:
        await self._end_process()
        self._turn += 1
        self._output, self._signs = Output(), Signs(self._profile)
        self._events.forget_ends()
        envelope = self._request.envelope or ""
        told = self._told(prompt)
        if not self._separate and envelope:
            told = f"{envelope.rstrip()}\n\n{told}"
        await self._papers.write(prompt=told, envelope=envelope)
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

    async def _advance(self) -> None:
        """Read once; any output restarts the silence limit (AG9).

        A limit that is noticed far too late says that the machine slept, not that the agent was silent.
        """
        process = self._process
        if process is None:
            raise RuntimeError("no turn has begun")
        limit_ms = self._settings.turn_timeout_ms
        deadline = anyio.current_time() + limit_ms / 1000
        data, code = b"", None
        with anyio.move_on_at(deadline) as silence:
            data = await _read(process)
            if not data:
                code = await process.ended()
        if data:
            self._hear(self._output.receive(data))
        elif code is not None:
            await self._conclude(process, code)
        elif silence.cancelled_caught and anyio.current_time() - deadline < _OVERSLEPT_S:
            message = f"the agent has been silent for {limit_ms} ms"
            raise AgentError(Failure(category=Category.TURN_TIMEOUT, blame=Blame.AGENT, message=message))

    async def _conclude(self, process: AgentProcess, code: int) -> None:
        """The program has ended: hear what it still wrote, end what it left running, tell the result."""
        await self._end_process()
        self._hear(self._output.close())
        last = await process.stderr_line() or self._output.last
        self._events.emit(result(code, last, self._profile, self._signs.failure))

    async def _end_process(self) -> None:
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
