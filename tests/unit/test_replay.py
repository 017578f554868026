import pytest

from kit.simulator.recording import write
from kit.simulator.schedules import run_schedule
from symphony.domain import Redaction
from symphony.replay import RecordingError, header_line, read_recording, replay, step_line
from symphony.scheduler import Command, Event, State, step

PLAIN = Redaction()


def lines(seed: int) -> list[str]:
    """One simulated life as a daemon would record it."""
    life = run_schedule(seed).lives[0]
    told = [step_line(now_ms, fact, commands, PLAIN) for now_ms, fact, commands in life.steps]
    return [header_line(life.first, PLAIN), *told]


@pytest.mark.parametrize("seed", range(8))
def test_a_recorded_life_is_decided_the_same_again(seed: int) -> None:
    text = "\n".join(lines(seed)) + "\n"
    replayed = list(replay(read_recording(text)))
    assert replayed
    assert {one.same for one in replayed} == {True}
    assert [one.number for one in replayed] == list(range(1, len(replayed) + 1))


def test_recordings_of_the_simulator_are_read_too_and_hold_nothing_to_compare() -> None:
    result = run_schedule(3)
    recording = result.recordings[0]
    again = read_recording(write(recording))
    assert again == recording
    replayed = list(replay(again))
    assert {one.same for one in replayed} == {None}
    assert [one.commands for one in replayed] == [said for _, _, said in result.lives[0].steps]


def test_another_decision_is_a_difference_and_a_crash_changes_nothing() -> None:
    def forgetful(state: State, fact: Event, now_ms: int) -> tuple[State, tuple[Command, ...]]:
        after, commands = step(state, fact, now_ms)
        if len(commands) > 1:
            raise ValueError("too much")
        return after, commands

    replayed = list(replay(read_recording("\n".join(lines(1)) + "\n"), step=forgetful))
    (first, *_) = [one for one in replayed if one.crashed]
    assert (first.crashed, first.commands, first.same) == ("ValueError: too much", (), False)


@pytest.mark.parametrize(
    ("number", "line", "told"),
    [
        (1, "{", "line 1: not a line of a recording: JSONDecodeError"),
        (1, '{"version": 2, "epoch": "x"}', "line 1: version 2 of a recording is not known"),
        (1, "[]", "line 1: not a line of a recording: TypeError"),
        (3, '{"at_ms": 1, "input": "Nobody", "fields": {}}', "line 3: not a line of a recording: KeyError"),
        (3, '{"at_ms": 1, "input": "Polled", "fields": {}}', "line 3: not a line of a recording: Validation"),
        (3, '{"at_ms": 1, "input": "StopAsked", "fields": {}, "commands": 1}', "line 3: not a line"),
        (3, "nothing", "line 3: not a line of a recording: JSONDecodeError"),
        (3, "[" * 100_000, "line 3: not a line of a recording: RecursionError"),
    ],
)
def test_a_damaged_line_is_named_by_its_number(number: int, line: str, told: str) -> None:
    good = lines(1)
    text = "\n".join([*good[: number - 1], line, *good[number:]]) + "\n"
    with pytest.raises(RecordingError) as caught:
        read_recording(text)
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("text", ["", "\n\n", "]}\n"])
def test_an_empty_file_is_no_recording(text: str) -> None:
    with pytest.raises(RecordingError, match="line 1: the file is empty"):
        read_recording(text)


def test_only_the_last_line_of_a_daemon_that_was_killed_may_be_half_written() -> None:
    whole = "\n".join(lines(1)) + "\n"
    recording = read_recording(whole[:-20])
    assert recording.cut
    assert len(recording.steps) == len(read_recording(whole).steps) - 1
    assert not read_recording(whole).cut
