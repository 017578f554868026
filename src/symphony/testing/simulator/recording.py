"""Recorded inputs as a file: what a daemon was told, to be replayed against any later scheduler (DESIGN 4).

    {"version": 1, "epoch": "d1", "settings": {...}, "inputs": [
    {"at_ms": 0, "input": "Recovered", "fields": {...}}, ...]}

One line per input, so that a diff can be read. A replay checks every invariant of one moment again.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from symphony.journal.codec import plain
from symphony.scheduler import machine
from symphony.scheduler.inputs import Input, SchedulerSettings
from symphony.scheduler.state import State, initial
from symphony.testing.simulator.referee import Life, Referee, Step

__all__ = ["VERSION", "Recording", "RecordingError", "encoded", "input_of", "read", "replay", "write"]

VERSION = 1
_WHOLE = (SchedulerSettings,)  # their defaults may change; what a daemon decided by must not
_INPUTS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in get_args(Input)}


class RecordingError(ValueError):
    """The text is not a recording; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One daemon's life as it was told to the scheduler: `inputs` are pairs of virtual ms and fact."""

    epoch: str
    settings: SchedulerSettings
    inputs: tuple[tuple[int, Input], ...]

    @classmethod
    def of(cls, life: Life) -> "Recording":
        """What a daemon was told in one life."""
        inputs = tuple((now_ms, fact) for now_ms, fact, _ in life.steps)
        return cls(epoch=life.first.epoch, settings=life.first.settings, inputs=inputs)


def write(recording: Recording) -> str:
    """The text of a recording."""
    head = {
        "version": VERSION,
        "epoch": recording.epoch,
        "settings": encoded(recording.settings),
    }
    start = json.dumps(head, ensure_ascii=False, sort_keys=True)[:-1]
    rows = ",\n".join(
        json.dumps(
            {"at_ms": now_ms, "input": type(fact).__name__, "fields": encoded(fact)},
            ensure_ascii=False,
        )
        for now_ms, fact in recording.inputs
    )
    return f'{start}, "inputs": [\n{rows}\n]}}\n'


def encoded(value: Any) -> Any:
    """JSON of a value, as recordings hold it."""
    return plain(value, whole=_WHOLE)


def read(text: str) -> Recording:
    """The recording that a text holds.

    Raises:
        RecordingError: it holds none, or one of another version.
    """
    try:
        held = json.loads(text)
        if held["version"] != VERSION:
            raise RecordingError(f"version {held['version']!r} of a recording is not known")
        inputs = tuple(_inputs(held["inputs"]))
        settings = msgspec.convert(held["settings"], SchedulerSettings)
        return Recording(epoch=str(held["epoch"]), settings=settings, inputs=inputs)
    except (KeyError, TypeError, json.JSONDecodeError, msgspec.ValidationError) as error:
        raise RecordingError(f"not a recording: {type(error).__name__}: {error}") from error


def _inputs(rows: Iterable[Mapping[str, Any]]) -> Iterable[tuple[int, Input]]:
    for row in rows:
        yield int(row["at_ms"]), input_of(row)


def input_of(row: Mapping[str, Any]) -> Input:
    """The fact of a row. Raises `KeyError`, `TypeError` or `msgspec.ValidationError`."""
    fact: Input = msgspec.convert(row["fields"], _INPUTS[row["input"]])
    return fact


def replay(recording: Recording, *, step: Step = machine.step) -> State:
    """Tell a fresh scheduler the recorded inputs, with every invariant checked; the state at the end.

    Raises:
        InvariantBrokenError: a rule does not hold.
    """
    referee = Referee(step)
    referee.begin(initial(recording.settings, epoch=recording.epoch))
    for now_ms, fact in recording.inputs:
        referee.tell(fact, now_ms)
    return referee.state
