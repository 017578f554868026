"""The inputs of a simulated life as a file, and such a file judged again by every rule."""

from collections.abc import Iterator

from kit.simulator.referee import Life, Referee
from symphony.domain import Redaction
from symphony.replay import RecordedStep, Recording, header_line, step_line
from symphony.scheduler import State, StepFunction, initial_state, step

__all__ = ["judge", "recording_of", "write"]


def recording_of(life: Life) -> Recording:
    """What a daemon was told in one life."""
    steps = tuple(RecordedStep(at_ms=now_ms, event=fact) for now_ms, fact, _ in life.steps)
    return Recording(epoch=life.first.epoch, settings=life.first.settings, steps=steps)


def write(recording: Recording) -> str:
    """The text of a recording: one JSON document with a line per input, so that a diff can be read."""
    state = initial_state(recording.settings, epoch=recording.epoch)
    head = header_line(state, Redaction()).removesuffix("}")
    rows = ",\n".join(_rows(recording))
    return f'{head}, "inputs": [\n{rows}\n]}}\n'


def _rows(recording: Recording) -> Iterator[str]:
    for recorded in recording.steps:
        yield step_line(recorded.at_ms, recorded.event, None, Redaction())


def judge(recording: Recording, *, step: StepFunction = step) -> State:
    """Tell a fresh scheduler the recorded inputs, with every invariant checked; the state at the end.

    Raises:
        InvariantBrokenError: a rule does not hold.
    """
    referee = Referee(step)
    referee.begin(initial_state(recording.settings, epoch=recording.epoch))
    for recorded in recording.steps:
        referee.tell(recorded.event, recorded.at_ms)
    return referee.state
