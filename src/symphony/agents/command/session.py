"""A session of a one-shot agent: a process for each turn, none in between, and no memory but the workspace.

No conversation goes on, so every turn gets the whole task again; a later turn also gets what has changed.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from msgspec import Struct
from typing_extensions import override

from symphony import to_thread
from symphony.agents.base import AgentError, SessionRequest, Turn, silence_limit
from symphony.agents.command.profiles import CommandProfile, FailurePattern
from symphony.agents.event_queue import EventQueue
from symphony.agents.events import Activity, AgentEvent, SessionStarted, Text, TurnEnd, TurnStatus, redact
from symphony.agents.isolation import TRIES, has_failed
from symphony.agents.process import AgentProcess
from symphony.agents.session import TurnSession
from symphony.agents.wire import LineSplitter, MalformedLine
from symphony.config import CommandSettings
from symphony.domain import Blame, Category, Failure, mask_credentials, plain_text, session_id

# --- the output of a turn --------------------------------------------------------------------------------
# Nothing is known about the meaning of a line, so the lines are messages to people: the last line of a read
# is one, and the lines before it another one. Of a line that was overwritten, as by a progress bar, the last
# state counts.

_MAX_LINE_BYTES: Final = 262_144
_NOT_FOUND_EXITS: Final = frozenset({126, 127})  # the shell: not executable, not found
_SIGNAL_EXITS: Final = 128  # the shell adds the number of the signal


class TurnOutput:
    """The output of one turn."""

    def __init__(self, profile: CommandProfile) -> None:
        self._profile = profile
        self._lines = LineSplitter(max_line_bytes=_MAX_LINE_BYTES)
        self._last_line = ""
        self._failure: tuple[FailurePattern, str] | None = None

    def receive(self, data: bytes) -> list[AgentEvent]:
        """Return the events of a read, at least one: any output shows that the agent is alive."""
        return self._events(self._lines.receive(data)) or [Activity(count=1)]

    def close(self) -> list[AgentEvent]:
        """Return the events that the end leaves: an unfinished line counts as a whole one."""
        return self._events(self._lines.close())

    def turn_end(self, exit_code: int, stderr_line: str) -> TurnEnd:
        """Return the end of the turn by a line that showed a failure, else by the exit code."""
        failure = self._failure
        if failure is None and exit_code == 0:
            return TurnEnd(status=TurnStatus.COMPLETED)
        last_line = stderr_line or self._last_line
        details = f": {last_line}" if last_line else ""
        if failure is not None:
            pattern, line = failure
            found = Failure(
                category=pattern.category,
                blame=Blame.CONFIG if pattern.permanent else Blame.AGENT,
                message=redact(f"the agent said: {line}"),
                retryable=not pattern.permanent,
                hint=pattern.hint,
            )
        elif exit_code in _NOT_FOUND_EXITS:
            found = Failure(
                category=Category.AGENT_NOT_FOUND,
                blame=Blame.CONFIG,
                message=redact(f"the agent's program was not found{details}"),
                hint=self._profile.install_hint,
            )
        else:
            text = f"{_describe_exit(exit_code)}{details}"
            found = Failure(category=Category.TURN_FAILED, blame=Blame.AGENT, message=redact(text))
        return TurnEnd(status=TurnStatus.FAILED, failure=found)

    def _events(self, lines: list[bytes | MalformedLine]) -> list[AgentEvent]:
        texts = [text for line in lines if (text := _shown(line))]
        for text in texts:
            self._last_line = redact(text)
            self._look_for_failure(self._last_line)
        activity = len(lines) - len(texts)
        earlier, last = "\n".join(texts[:-1]), texts[-1:]
        return [
            *([Activity(count=activity)] if activity else []),
            *(Text(message=text) for text in (earlier, *last) if text),
        ]

    def _look_for_failure(self, line: str) -> None:
        profile = self._profile
        if profile.progress is not None and profile.progress.search(line):
            self._failure = None
        for failure in profile.failures:
            if failure.pattern.search(line):
                self._failure = (failure, line)
                return


def _shown(line: bytes | MalformedLine) -> str:
    """Return the last state of a line; of a line above the limit its beginning."""
    text = line.excerpt if isinstance(line, MalformedLine) else line.decode("utf-8", "replace")
    states = [state for state in text.split("\r") if state.strip()]
    return mask_credentials(plain_text(states[-1])).rstrip() if states else ""


def _describe_exit(code: int) -> str:
    try:
        name = signal.Signals(-code if code < 0 else code - _SIGNAL_EXITS).name
    except ValueError:
        return f"the agent ended with exit code {code}"
    return f"the agent was ended by {name}"


StartTurn = Callable[[Mapping[str, str]], Awaitable[AgentProcess]]
"""Starts the process of a turn with the values of its placeholders."""

_LAST_BYTES_S: Final = 0.5
_MAX_TITLE_CHARS: Final = 1_000


class CommandSession(TurnSession):
    """An `AgentSession` whose turns are processes, for one task: cancel its turn before calling `stop`.

    Args:
        start: starts the process of a turn.
        settings: decide the model and the limit of silence.
        profile: knows the agent's failures.
        request: what the session is bound to.
        envelope: the system-level text until a turn brings another one, or None.
        files: where prompts are written.
        separate_envelope: the command reads the envelope from its own file; else it precedes the prompt.
    """

    def __init__(
        self,
        start: StartTurn,
        *,
        settings: CommandSettings,
        profile: CommandProfile,
        request: SessionRequest,
        envelope: str | None,
        files: "PromptFiles",
        separate_envelope: bool,
    ) -> None:
        super().__init__(request, EventQueue())
        self._start = start
        self._settings = settings
        self._profile = profile
        self._envelope = envelope
        self._files = files
        self._separate_envelope = separate_envelope
        self._process: AgentProcess | None = None
        self._output = TurnOutput(profile)
        self._task: str | None = None
        self._turn = 0
        self._values: Mapping[str, str] = {}
        self._tries = 0

    @property
    def pid(self) -> int:
        """The process of the latest turn; 0 before the first one."""
        return 0 if self._process is None else self._process.pid

    @override
    async def _begin(self, turn: Turn) -> SessionStarted:
        await self._end()
        self._turn += 1
        self._envelope = turn.envelope.text or self._envelope
        self._output = TurnOutput(self._profile)
        self._events.new_turn()
        prompt = turn.prompt
        if self._task is None:
            self._task = prompt
        else:  # the prompt of a later turn speaks of a conversation that this agent does not remember
            prompt = f"{self._task.rstrip()}\n\n---\n\n{prompt}"
        if not self._separate_envelope and self._envelope:
            prompt = f"{self._envelope.rstrip()}\n\n{prompt}"
        await self._files.write(prompt=prompt, envelope=self._envelope or "")
        identifier, _, issue_title = turn.title.partition(": ")
        self._values = {
            "prompt_file": str(self._files.prompt_file),
            "envelope_file": str(self._files.envelope_file),
            "issue": identifier,
            "title": issue_title[:_MAX_TITLE_CHARS],
            "workspace": str(self._request.cwd),
            "model": self._settings.model or "",
        }
        self._tries = 0
        await self._launch()
        thread, turn_id = self._request.run_id, str(self._turn)
        return SessionStarted(session_id=session_id(thread, turn_id), thread_id=thread, turn_id=turn_id)

    async def _launch(self) -> None:
        values = {name: value.replace("\0", "") for name, value in self._values.items()}
        self._tries += 1
        self._process = await self._start(values)
        with suppress(OSError):
            await self._process.close_stdin()

    @override
    async def _process_inbox(self) -> None:
        """Nothing is read before a turn."""

    @override
    async def _advance(self) -> None:
        process, code = self._process, None
        if process is None:
            raise RuntimeError("no turn has begun")
        with silence_limit(self._settings.turn_timeout_ms):
            data = await _read(process)
            if data:
                self._emit_all(self._output.receive(data))
                return
            code = await process.wait()
        if code is None:  # the limit was missed because this process was suspended
            return
        await self._end()
        last_line = await process.stderr_line()
        if has_failed(code, last_line) and self._tries < TRIES:
            await self._launch()
            return
        self._emit_all(self._output.close())
        self._emit(self._output.turn_end(code, last_line))

    @override
    async def _end(self) -> None:
        if self._process is not None:
            with suppress(OSError):
                await self._process.stop(lambda data: self._emit_all(self._output.receive(data)))

    def _emit_all(self, events: list[AgentEvent]) -> None:
        for event in events:
            self._emit(event)


async def _read(process: AgentProcess) -> bytes:
    """Return the next output; `b""` at its end, or when the agent has ended while others hold its output."""
    data = b""

    async def cancel_at_exit(scope: anyio.CancelScope) -> None:
        await process.wait()
        await anyio.sleep(_LAST_BYTES_S)
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_at_exit, tasks.cancel_scope)
        data = await process.receive()
        tasks.cancel_scope.cancel()
    return data


class PromptFiles(Struct, frozen=True, kw_only=True):
    """The files of one session, outside of its workspace: there they would be work of the agent.

    Attributes:
        prompt_file: the prompt of the running turn.
        envelope_file: the system-level text; empty if there is none.
    """

    prompt_file: Path
    envelope_file: Path

    async def write(self, *, prompt: str, envelope: str) -> None:
        """Write both files again.

        Raises:
            AgentError: `state_directory`.
        """
        for path, text in ((self.prompt_file, prompt), (self.envelope_file, envelope)):
            try:
                await to_thread.run_sync(_write_new, path, text)
            except OSError as error:
                raise _unwritable(error) from error


@asynccontextmanager
async def prompt_files() -> AsyncIterator[PromptFiles]:
    """A private directory for the files, removed at the end with everything in it.

    Raises:
        AgentError: `state_directory`: it cannot be made.
    """
    try:
        directory = Path(await to_thread.run_sync(partial(tempfile.mkdtemp, prefix="symphony-")))
    except OSError as error:
        raise _unwritable(error) from error
    try:
        yield PromptFiles(prompt_file=directory / "prompt.md", envelope_file=directory / "envelope.md")
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(partial(shutil.rmtree, directory, ignore_errors=True))


def _write_new(path: Path, text: str) -> None:
    """Write a new file: an older one may have been replaced by the agent, or may still be open there."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="\n") as file:
        file.write(text)


def _unwritable(error: OSError) -> AgentError:
    failure = Failure(
        category=Category.STATE_DIRECTORY,
        blame=Blame.HOST,
        message=f"the prompt could not be written to a file: {error.strerror or error}",
        hint="see that TMPDIR names a directory that the daemon may write to, with room in it",
    )
    return AgentError(failure)
