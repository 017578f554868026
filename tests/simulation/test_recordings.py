"""Every bug becomes a recorded list of inputs that is replayed for ever; the files stand in `replays`."""

from pathlib import Path

import pytest

from harness.broken_steps import doubles_a_run
from symphony.scheduler.inputs import ClaimKind, Recovered
from symphony.testing.simulator import (
    InvariantBrokenError,
    RecordingError,
    read,
    replay,
    run_schedule,
    write,
)

REPLAYS = sorted((Path(__file__).parent / "replays").glob("*.json"))


@pytest.mark.parametrize("file", REPLAYS, ids=lambda file: file.stem)
def test_what_went_wrong_once_goes_well_for_ever(file: Path) -> None:
    replay(read(file.read_text("utf-8")))


def test_there_are_recordings_of_restarts_too() -> None:
    told = [read(file.read_text("utf-8")).inputs[0][1] for file in REPLAYS]
    claims = {claim.kind for fact in told if isinstance(fact, Recovered) for claim in fact.claims}
    assert claims >= {ClaimKind.RUNNING, ClaimKind.BLOCKED}


@pytest.mark.parametrize("seed", range(40))
def test_a_recording_holds_everything_that_was_told(seed: int) -> None:
    for life, recording in zip((result := run_schedule(seed)).lives, result.recordings, strict=True):
        again = read(write(recording))
        assert again == recording
        assert replay(again) == life.state


def test_a_replay_judges_every_step() -> None:
    recording = run_schedule(1).recordings[0]
    with pytest.raises(InvariantBrokenError, match="one-run-per-issue"):
        replay(recording, step=doubles_a_run)


LIMITS = '"epoch": "e", "settings": {"active_states": [], "terminal_states": []}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"version": 2}',
        '{"version": 1, "epoch": "e", "settings": {}, "inputs": []}',
        f'{{"version": 1, {LIMITS}, "inputs": [{{}}]}}',
        f'{{"version": 1, {LIMITS}, "inputs": [{{"at_ms": 0, "input": "Nonsense", "fields": {{}}}}]}}',
    ],
)
def test_what_is_no_recording_is_refused(text: str) -> None:
    with pytest.raises(RecordingError):
        read(text)
