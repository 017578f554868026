"""A session of a one-shot agent: a process for each turn, none in between, and no memory but the workspace.

Because no conversation goes on, every turn is told the whole task again; a later one also what has changed.
What the turns of all backends have alike is in `turns`.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread
from typing_extensions import override

from symphony.agents.base import AgentError, SessionRequest, silence_limit
from symphony.agents.command.profiles import Profile, Sign
from symphony.agents.events import (
    Activity,
    AgentEvent,
    EventQueue,
    SessionStarted,
    Text,
    TurnEnded,
    TurnStatus,
    redact,
)
from symphony.agents.process import AgentProcess
from symphony.agents.session import Turns
from symphony.agents.wire import Lines, MalformedLine
from symphony.config import CommandSettings
from symphony.domain import Blame, Category, Failure, session_id

# The files that a one-shot agent is given: the prompt of a turn, and the envelope; for this user alone.


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFiles:
    """A directory of one session, outside of its workspace: a file there would be work of the agent."""

    directory: Path

    @property
    def prompt_file(self) -> Path:
        """The prompt of the turn that runs."""
        return self.directory / "prompt.md"

    @property
    def envelope_file(self) -> Path:
        """The system-level text; empty where there is none."""
        return self.directory / "envelope.md"

    async def write(self, *, prompt: str, envelope: str) -> None:
        """Write both files anew.

        Raises:
            AgentError: `state_directory`.
        """
        for path, text in ((self.prompt_file, prompt), (self.envelope_file, envelope)):
            try:
                await to_thread.run_sync(_write, path, text)
            except OSError as error:
                raise AgentError(_unwritable(error)) from error


@asynccontextmanager
async def papers() -> AsyncIterator[PromptFiles]:
    """The directory, mode 0700, removed at the end with all that is in it.

    Raises:
        AgentError: `state_directory`: it cannot be made.
    """
    try:
        made = await to_thread.run_sync(partial(tempfile.mkdtemp, prefix="symphony-"))
    except OSError as error:
        raise AgentError(_unwritable(error)) from error
    try:
        yield PromptFiles(directory=Path(made))
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(partial(shutil.rmtree, made, ignore_errors=True))


def _write(path: Path, text: str) -> None:
    """A new file each time: what the agent put into its place, or may still hold open, is not written to."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="\n") as file:
        file.write(text)


def _unwritable(error: OSError) -> Failure:
    return Failure(
        category=Category.STATE_DIRECTORY,
        blame=Blame.HOST,
        message=f"the prompt could not be written to a file: {error.strerror or error}",
        hint="see that TMPDIR names a directory that the daemon may write to, with room in it",
    )


# What the end of a one-shot agent means: its exit code, and what it said before (AG12). Pure.


_NOT_FOUND = frozenset({126, 127})
_SIGNALLED = 128  # by which a shell tells of a signal


class Signs:
    """What an agent has told so far of why it cannot work."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._latest: tuple[Sign, str] | None = None

    def hear(self, line: str) -> None:
        """Take a line of its output."""
        if self._profile.worked is not None and self._profile.worked.search(line):
            self._latest = None
        sign = next((sign for sign in self._profile.signs if sign.pattern.search(line)), None)
        if sign is not None:
            self._latest = (sign, line)

    @property
    def failure(self) -> Failure | None:
        """Why it could not work; null where it told nothing of the kind, or went on."""
        if self._latest is None:
            return None
        sign, line = self._latest
        return Failure(
            category=sign.category,
            blame=Blame.CONFIG if sign.ours else Blame.AGENT,
            message=redact(f"the agent said: {line}"),
            retryable=not sign.ours,
            hint=sign.hint,
        )


def result(code: int, last: str, profile: Profile, told: Failure | None = None) -> TurnEnded:
    """The end of a turn by what the agent told of it, else by exit code and last line.

    The shell tells by 126 and 127 that a program cannot be executed or does not exist.
    """
    if told is not None:
        failure = told
    elif code == 0:
        return TurnEnded(status=TurnStatus.COMPLETED)
    elif code in _NOT_FOUND:
        failure = Failure(
            category=Category.AGENT_NOT_FOUND,
            blame=Blame.CONFIG,
            message=redact(_with("the agent's program was not found", last)),
            hint=profile.install_hint,
        )
    else:
        failure = Failure(
            category=Category.TURN_FAILED, blame=Blame.AGENT, message=redact(_with(_ended(code), last))
        )
    return TurnEnded(status=TurnStatus.FAILED, failure=failure)


def _ended(code: int) -> str:
    number = -code if code < 0 else code - _SIGNALLED
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"the agent ended with exit code {code}"
    return f"the agent was ended by {name}"


def _with(text: str, last: str) -> str:
    return f"{text}: {last}" if last else text


# What a one-shot agent prints, as events: a line is a word to people. Sans-IO.
#
# Nothing is known of the meaning of a line, so each is text; of many at once the last ones are told, and
# the others count as signs of life. What steers a terminal is taken out, and of a line that was written
# over, as by a bar of progress, the last state is what counts.


MAX_TEXTS = 32
_MAX_LINE_BYTES = 262_144
_MAX_TEXT_BYTES = 8_192


class Output:
    """The output of one turn."""

    def __init__(self) -> None:
        self._lines = Lines(max_line_bytes=_MAX_LINE_BYTES)
        self._last = ""

    @property
    def last(self) -> str:
        """The last line that is not blank, fit to be shown; empty for none."""
        return self._last

    def receive(self, data: bytes) -> list[AgentEvent]:
        """What a read brought; never nothing, because any output is a sign of life."""
        return self._events(self._lines.receive(data)) or [Activity(count=1)]

    def close(self) -> list[AgentEvent]:
        """What the end leaves: an unfinished line counts as a whole one."""
        return self._events(self._lines.close())

    def _events(self, lines: list[bytes | MalformedLine]) -> list[AgentEvent]:
        quiet = max(0, len(lines) - MAX_TEXTS)
        events: list[AgentEvent] = []
        for line in lines[quiet:]:
            text = "" if isinstance(line, MalformedLine) else _shown(line)
            if text:
                self._last = text
                events.append(Text(message=text))
            else:
                quiet += 1
        return [*([Activity(count=quiet)] if quiet else []), *events]


def _shown(line: bytes) -> str:
    text = line[-_MAX_TEXT_BYTES:].decode("utf-8", "replace")
    if len(line) > _MAX_TEXT_BYTES:
        text = f"…{text}"
    states = [state for state in text.split("\r") if state.strip()]
    return redact(states[-1]) if states else ""


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
        papers: PromptFiles,
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
            await self._process.close_stdin()
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
