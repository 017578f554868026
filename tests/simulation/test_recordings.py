"""Every bug becomes a recorded list of inputs that is replayed for ever; the files stand in `replays`."""

from pathlib import Path

import pytest

from harness.broken_steps import doubles_a_run
from kit.simulator import InvariantBrokenError, judge, run_schedule, write
from symphony.replay import RecordingError, read_recording
from symphony.scheduler import ClaimKind, Recovered

REPLAYS = sorted((Path(__file__).parent / "replays").glob("*.json"))


@pytest.mark.parametrize("file", REPLAYS, ids=lambda file: file.stem)
def test_what_went_wrong_once_goes_well_for_ever(file: Path) -> None:
    judge(read_recording(file.read_text("utf-8")))


def test_there_are_recordings_of_restarts_too() -> None:
    told = [read_recording(file.read_text("utf-8")).steps[0].event for file in REPLAYS]
    claims = {claim.kind for fact in told if isinstance(fact, Recovered) for claim in fact.claims}
    assert claims >= {ClaimKind.RUNNING, ClaimKind.BLOCKED}


@pytest.mark.parametrize("seed", range(40))
def test_a_recording_holds_everything_that_was_told(seed: int) -> None:
    for life, recording in zip((result := run_schedule(seed)).lives, result.recordings, strict=True):
        again = read_recording(write(recording))
        assert again == recording
        assert judge(again) == life.state


def test_a_replay_judges_every_step() -> None:
    recording = run_schedule(1).recordings[0]
    with pytest.raises(InvariantBrokenError, match="one-run-per-issue"):
        judge(recording, step=doubles_a_run)


LIMITS = '"epoch": "e", "settings": {"active_states": [], "terminal_states": []}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"version": 2}',
        '{"version": 1, "epoch": "e", "settings": {}, "inputs": []}',
        f'{{"version": 1, {LIMITS}, "inputs": [\n{{}}\n]}}',
        f'{{"version": 1, {LIMITS}, "inputs": [\n{{"at_ms": 0, "input": "Nonsense", "fields": {{}}}}\n]}}',
    ],
)
def test_what_is_no_recording_is_refused(text: str) -> None:
    with pytest.raises(RecordingError):
        read_recording(text)
