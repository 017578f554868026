"""A recording by lines: what `symphony run --record` writes, and `symphony replay` tells a fresh scheduler.

    {"version": 1, "epoch": "d1", "settings": {...}}
    {"at_ms": 0, "input": "Recovered", "fields": {...}, "commands": [{"command": "FetchCandidates", ...}]}

A line per input, written when it was taken, so that a daemon that was killed leaves all but its last moment.
The files of `recording` have the same lines inside one JSON document and no commands; they are read too.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from symphony.domain.redaction import Redaction
from symphony.observability.masking import masked
from symphony.scheduler import machine
from symphony.scheduler.commands import Command
from symphony.scheduler.inputs import Input, SchedulerSettings
from symphony.scheduler.state import State, initial
from symphony.testing.simulator.recording import VERSION, RecordingError, encoded, input_of
from symphony.testing.simulator.referee import Step

__all__ = ["Entry", "Replayed", "Tape", "head_line", "read_tape", "replay_tape", "said", "step_line"]

_HEAD_END = ', "inputs": ['
_END = "]}"
_WRONG = (KeyError, TypeError, ValueError, AttributeError, RecursionError, msgspec.ValidationError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One input and when it came; `commands` are what was said to it, null where nobody wrote that."""

    at_ms: int
    fact: Input
    commands: list[Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tape:
    """What one daemon was told; `cut` says that the last line was half written and is left out."""

    epoch: str
    settings: SchedulerSettings
    entries: tuple[Entry, ...]
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One step taken again: what was said now, and whether that is what was said then (null: not known).

    `crashed` is the error of a step that raised one, and changed nothing.
    """

    number: int
    entry: Entry
    commands: tuple[Command, ...]
    same: bool | None
    crashed: str | None = None


def head_line(state: State, redaction: Redaction) -> str:
    """The first line of a tape, for a daemon that begins with this state."""
    settings = masked(encoded(state.settings), redaction.verbatim)
    return json.dumps({"version": VERSION, "epoch": state.epoch, "settings": settings}, ensure_ascii=False)


def step_line(at_ms: int, fact: Input, commands: Iterable[Command], redaction: Redaction) -> str:
    """The line of one step; secrets are masked, the same one in the same way everywhere."""
    fields = masked(encoded(fact), redaction.verbatim)
    row = {"at_ms": at_ms, "input": type(fact).__name__, "fields": fields}
    return json.dumps({**row, "commands": said(commands, redaction)}, ensure_ascii=False)


def said(commands: Iterable[Command], redaction: Redaction) -> list[Any]:
    """Commands as a tape holds them."""
    rows = [{"command": type(command).__name__, **encoded(command)} for command in commands]
    found: list[Any] = masked(rows, redaction.verbatim)
    return found


def read_tape(text: str) -> Tape:
    """The tape that a text holds.

    Raises:
        RecordingError: it holds none; the message begins with the line that cannot be understood.
    """
    rows = list(_rows(text))
    if not rows:
        raise RecordingError("line 1: the file is empty")
    number, first = rows[0]
    try:
        held = json.loads(f"{first.removesuffix(_HEAD_END)}}}" if first.endswith(_HEAD_END) else first)
        version, epoch = held["version"], str(held["epoch"])
        settings = msgspec.convert(held["settings"], SchedulerSettings) if version == VERSION else None
    except _WRONG as error:
        raise _unknown(number, error) from error
    if settings is None:
        raise RecordingError(f"line {number}: version {version!r} of a recording is not known")
    entries, cut = _entries(rows[1:], ended=text.endswith("\n"))
    return Tape(epoch=epoch, settings=settings, entries=entries, cut=cut)


def _rows(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, without what holds the rows of a document together."""
    for number, line in enumerate(text.split("\n"), 1):
        row = line.strip()
        if row and row != _END:
            yield number, row.removesuffix(",")


def _entries(rows: list[tuple[int, str]], *, ended: bool) -> tuple[tuple[Entry, ...], bool]:
    found = []
    for number, row in rows:
        try:
            found.append(_entry(json.loads(row)))
        except json.JSONDecodeError as error:
            if (number, row) == rows[-1] and not ended:
                return tuple(found), True
            raise _unknown(number, error) from error
        except _WRONG as error:
            raise _unknown(number, error) from error
    return tuple(found), False


def _entry(row: Mapping[str, Any]) -> Entry:
    commands = row.get("commands")
    if commands is not None and not isinstance(commands, list):
        raise TypeError("commands must be a list")
    return Entry(at_ms=int(row["at_ms"]), fact=input_of(row), commands=commands)


def _unknown(number: int, error: Exception) -> RecordingError:
    return RecordingError(f"line {number}: not a line of a recording: {type(error).__name__}: {error}")


def replay_tape(tape: Tape, *, step: Step = machine.step) -> Iterator[Replayed]:
    """Tell a fresh scheduler the same again, and compare what it says; a step that raises changes nothing."""
    state, redaction = initial(tape.settings, epoch=tape.epoch), Redaction()
    for number, entry in enumerate(tape.entries, 1):
        commands: tuple[Command, ...] = ()
        crashed = None
        try:
            state, commands = step(state, entry.fact, entry.at_ms)
        except Exception as error:  # noqa: BLE001 - a broken scheduler is what a replay is there to show
            crashed = f"{type(error).__name__}: {error}"
        same = None if entry.commands is None else said(commands, redaction) == entry.commands
        yield Replayed(number=number, entry=entry, commands=commands, same=same, crashed=crashed)
