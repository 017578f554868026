"""Records and replays a daemon's decisions: `symphony run --record`, `symphony replay`.

A recording is a text of JSON lines, a header and one line per step of the scheduler:

    {"version": 1, "epoch": "d1", "settings": {...}}
    {"at_ms": 0, "input": "Recovered", "fields": {...}, "commands": [{"command": "FetchCandidates", ...}]}

Each line is written right after its step, so a killed daemon loses only its last moment. The same lines
inside one JSON document (`{"version": 1, ..., "inputs": [` and `]}` on lines of their own), with or without
`commands`, can be read too: recordings of simulations have that form.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import structlog
from msgspec import Struct

from symphony.domain import BudgetLimits, Redaction, one_line, plural
from symphony.journal.model import plain
from symphony.observability.redaction import masked
from symphony.scheduler import (
    AgentReported,
    Command,
    Event,
    Notify,
    Polled,
    Recovered,
    Refreshed,
    RefreshIssues,
    RunEnded,
    SchedulerSettings,
    SetTimer,
    SettingsChanged,
    StartRun,
    State,
    StepFunction,
    Timer,
    TimerFired,
    initial_state,
    step,
)
from symphony.scheduler import step as real_step

# Records the inputs and decisions of a daemon.


_log = structlog.get_logger(__name__)
MAX_RECORDING_BYTES: Final = 256 * 1024 * 1024


class DecisionRecorder:
    """Takes the steps of a daemon and records each one.

    A recording ends if it fails or has grown to `max_bytes`, and the log says so once. An input that cannot
    be written is left out and logged. The daemon goes on in both cases.
    """

    def __init__(
        self,
        path: Path,
        descriptor: int,
        *,
        redaction: Callable[[], Redaction],
        max_bytes: int = MAX_RECORDING_BYTES,
    ) -> None:
        self._path = path
        self._descriptor: int | None = descriptor
        self._new_redaction = redaction
        self._redaction: Redaction | None = None
        self._left = max_bytes

    def step(self, state: State, event: Event, now_ms: int) -> tuple[State, tuple[Command, ...]]:
        """Take and record one step of the scheduler; a step that raises is recorded without commands."""
        commands: tuple[Command, ...] = ()
        try:
            after, commands = step(state, event, now_ms)
        finally:
            self._note(state, event, now_ms, commands)
        return after, commands

    def _note(self, state: State, event: Event, now_ms: int, commands: tuple[Command, ...]) -> None:
        if self._descriptor is None:
            return
        try:
            first = self._redaction is None
            if self._redaction is None or isinstance(event, SettingsChanged):
                self._redaction = self._new_redaction()
            if first:
                self._write(header_line(state, self._redaction))
            line = self._line(now_ms, event, commands, self._redaction)
            if line is not None:
                self._write(line)
        except Exception as error:  # noqa: BLE001 - a recording that fails must not stop the work
            self._end(str(error) or type(error).__name__)

    def _line(
        self, now_ms: int, event: Event, commands: tuple[Command, ...], redaction: Redaction
    ) -> str | None:
        """The line of a step; `None`, which is logged, if the input cannot be written as JSON."""
        try:
            return step_line(now_ms, event, commands, redaction)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            reason, name = str(error) or type(error).__name__, type(event).__name__
            _log.warning("recording_skipped", path=str(self._path), input=name, reason=reason)
            return None

    def _write(self, line: str) -> None:
        data = f"{line}\n".encode("utf-8", "surrogatepass")
        if self._descriptor is None:
            return
        if len(data) > self._left:
            self._end("it has reached its largest size")
            return
        self._left -= len(data)
        written = os.write(self._descriptor, data)
        if written < len(data):
            os.write(self._descriptor, data[written:])  # a full disk raises here

    def _end(self, reason: str) -> None:
        _log.warning("recording_stopped", path=str(self._path), reason=reason)
        self.close()

    def close(self) -> None:
        """Close the file; later steps are not recorded."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_VERSION = 1
_DOCUMENT_START, _DOCUMENT_END = ', "inputs": [', "]}"
_WHOLE = (SchedulerSettings, BudgetLimits)  # defaults may change, but the recorded settings must not
_INPUTS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RecursionError, msgspec.ValidationError)
_SHOWN_IDS = 6
_DAY_MS, _HOUR_MS, _MINUTE_MS = 86_400_000, 3_600_000, 60_000


class RecordingError(ValueError):
    """The text is not a recording; the message begins with the line that cannot be understood."""


class RecordedStep(Struct, frozen=True, kw_only=True):
    """One input with its time, and the resulting commands as JSON; `None` if only the input was recorded."""

    at_ms: int
    event: Event
    commands: list[Any] | None = None


class Recording(Struct, frozen=True, kw_only=True):
    """The inputs of one daemon. `cut` means that the last line was incomplete and is left out."""

    epoch: str
    settings: SchedulerSettings
    steps: tuple[RecordedStep, ...]
    cut: bool = False


class ReplayedStep(Struct, frozen=True, kw_only=True):
    """One step taken again.

    Attributes:
        number: counts from 1.
        commands: the commands of the replayed step.
        same: whether they equal the recorded ones; `None` if no commands were recorded.
        crashed: the error if the step raised; it then changed nothing.
    """

    number: int
    recorded: RecordedStep
    commands: tuple[Command, ...]
    same: bool | None
    crashed: str | None = None


# --- writing ---


def header_line(state: State, redaction: Redaction) -> str:
    """The first line of the recording of a daemon that begins with this state."""
    settings = masked(plain(state.settings, whole=_WHOLE), redaction.verbatim)
    return json.dumps({"version": _VERSION, "epoch": state.epoch, "settings": settings}, ensure_ascii=False)


def step_line(at_ms: int, event: Event, commands: Iterable[Command] | None, redaction: Redaction) -> str:
    """The line of one step; a secret is masked in the same way on every line.

    Raises:
        TypeError, ValueError, RecursionError: the input cannot be written as JSON.
    """
    row: dict[str, Any]
    fields = masked(plain(event, whole=_WHOLE), redaction.verbatim)
    row = {"at_ms": at_ms, "input": type(event).__name__, "fields": fields}
    if commands is not None:
        row["commands"] = commands_as_json(commands, redaction)
    return json.dumps(row, ensure_ascii=False)


def commands_as_json(commands: Iterable[Command], redaction: Redaction) -> list[Any]:
    """Commands in the form of a recording."""
    rows = [{"command": type(command).__name__, **plain(command, whole=_WHOLE)} for command in commands]
    found: list[Any] = masked(rows, redaction.verbatim)
    return found


# --- reading ---


def read_recording(text: str) -> Recording:
    """Read a recording.

    Raises:
        RecordingError: the text is not a recording.
    """
    lines = [
        (number, line.strip().removesuffix(","))
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip() not in {"", _DOCUMENT_END}
    ]
    if not lines:
        raise RecordingError("line 1: the file is empty")
    number, first = lines[0]
    try:
        header = json.loads(
            f"{first.removesuffix(_DOCUMENT_START)}}}" if first.endswith(_DOCUMENT_START) else first
        )
        version, epoch = header["version"], str(header["epoch"])
        settings = msgspec.convert(header["settings"], SchedulerSettings) if version == _VERSION else None
    except _MALFORMED as error:
        raise _malformed(number, error) from error
    if settings is None:
        raise RecordingError(f"line {number}: version {version!r} of a recording is not known")
    steps: list[RecordedStep] = []
    for number, line in lines[1:]:
        try:
            steps.append(_recorded(json.loads(line)))
        except _MALFORMED as error:
            unfinished = isinstance(error, json.JSONDecodeError) and not text.endswith("\n")
            if unfinished and number == lines[-1][0]:
                return Recording(epoch=epoch, settings=settings, steps=tuple(steps), cut=True)
            raise _malformed(number, error) from error
    return Recording(epoch=epoch, settings=settings, steps=tuple(steps))


def _recorded(row: Mapping[str, Any]) -> RecordedStep:
    commands = row.get("commands")
    if commands is not None and not isinstance(commands, list):
        raise TypeError("commands must be a list")
    event: Event = msgspec.convert(row["fields"], _INPUTS[row["input"]])
    return RecordedStep(at_ms=int(row["at_ms"]), event=event, commands=commands)


def _malformed(number: int, error: Exception) -> RecordingError:
    return RecordingError(f"line {number}: not a line of a recording: {type(error).__name__}: {error}")


# --- replay ---


def replay(recording: Recording, *, step: StepFunction = real_step) -> Iterator[ReplayedStep]:
    """Give a fresh scheduler the recorded inputs, and compare its commands with the recorded ones."""
    state, redaction = initial_state(recording.settings, epoch=recording.epoch), Redaction()
    for number, recorded in enumerate(recording.steps, 1):
        commands: tuple[Command, ...] = ()
        crashed = None
        try:
            state, commands = step(state, recorded.event, recorded.at_ms)
        except Exception as error:  # noqa: BLE001 - a broken scheduler is what a replay is there to show
            crashed = f"{type(error).__name__}: {error}"
        same = None
        if recorded.commands is not None:
            same = commands_as_json(commands, redaction) == recorded.commands
        yield ReplayedStep(number=number, recorded=recorded, commands=commands, same=same, crashed=crashed)


# --- a step as a line for people ---


def describe_step(now_ms: int, event: Event, commands: Iterable[Command]) -> str:
    """One line: the moment, the input and the commands that answered it, without log messages."""
    words = ", ".join(_command_text(command) for command in commands if not isinstance(command, Notify))
    return f"{moment_text(now_ms)}  {_event_text(event)}{' -> ' + words if words else ''}"


def moment_text(now_ms: int) -> str:
    """Milliseconds since the start as `12d 03:45:07.089`."""
    day, rest = divmod(now_ms, _DAY_MS)
    hour, rest = divmod(rest, _HOUR_MS)
    minute, rest = divmod(rest, _MINUTE_MS)
    return f"{day:3}d {hour:02}:{minute:02}:{rest // 1000:02}.{rest % 1000:03}"


def _event_text(event: Event) -> str:
    match event:
        case Polled() | Refreshed():
            shown = ", ".join(f"{issue.id} {issue.state!r}" for issue in event.issues[:_SHOWN_IDS])
            words = f"{event.request}: {one_line(shown)}{_more(len(event.issues))}"
        case AgentReported():
            words = f"{event.run_id} {event.report.stage.value} events={event.report.event_count}"
        case RunEnded():
            outcome = event.outcome
            reason = f" ({one_line(outcome.failure.line)})" if outcome.failure else ""
            words = f"{event.run_id} {outcome.kind.value}{reason} progress={outcome.progress}"
        case TimerFired():
            words = f"{_timer_text(event.timer)} #{event.token}"
        case Recovered():
            words = f"with {plural(len(event.workspaces), 'workspace')}"
        case SettingsChanged():
            words = f"slots={event.settings.max_concurrent_agents} poll={event.settings.poll_interval_ms}"
        case _:
            words = _fields_text(event)
    return f"{type(event).__name__} {words}".rstrip()


def _timer_text(timer: Timer) -> str:
    return f"{timer.kind.value} {timer.id}".rstrip()


def _command_text(command: Command) -> str:
    name = type(command).__name__
    match command:
        case StartRun():
            return f"{name} {command.run_id} {command.issue.identifier} attempt={command.attempt}"
        case SetTimer():
            due = moment_text(command.due_ms).strip()
            return f"{name} {_timer_text(command.timer)} #{command.token} at {due}"
        case RefreshIssues():
            ids = sorted(command.ids)
            return f"{name} {command.request}: {' '.join(ids[:_SHOWN_IDS])}{_more(len(ids))}"
        case _:
            return f"{name} {_fields_text(command)}".rstrip()


def _fields_text(value: object) -> str:
    """The short fields of an input or a command: numbers, names and failures."""
    found = []
    kind = type(value)
    for name in getattr(kind, "__struct_fields__", getattr(kind, "__dataclass_fields__", ())):
        field = getattr(value, name)
        if isinstance(field, str | int):
            found.append(f"{name}={one_line(str(field), 60)}")
        elif hasattr(field, "line"):
            found.append(one_line(str(field.line), 80))
    return " ".join(found)


def _more(count: int) -> str:
    return f" and {count - _SHOWN_IDS} more" if count > _SHOWN_IDS else ""
