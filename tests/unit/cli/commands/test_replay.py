"""`symphony replay` on files, and the recorder that writes them."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner, Result
from structlog.testing import capture_logs

from harness.scheduling import make_issue, make_settings
from published.schemas import conforms_to
from symphony.cli.failures import CommandError
from symphony.cli.main import main
from symphony.cli.serving import recording_to
from symphony.domain import Redaction
from symphony.replay import DecisionRecorder, read_recording
from symphony.replay import replay as replayed
from symphony.scheduler import Polled, Recovered, SettingsChanged, State, StopAsked, initial_state

ROOT = Path(__file__).parents[4]
SECRET = "correct-horse-battery"


@pytest.fixture(autouse=True)
def _log_as_before() -> Any:
    yield
    structlog.reset_defaults()


def live(path: Path, act: Callable[[DecisionRecorder, State], State]) -> State:
    """A short life that is written down."""
    with recording_to(path, lambda: Redaction([SECRET])) as recorder:
        return act(recorder, initial_state(make_settings(), epoch="d1"))


def short(recorder: DecisionRecorder, state: State) -> State:
    state, _ = recorder.step(state, Recovered(), 1_000)
    state, _ = recorder.step(state, Polled(request=1, issues=(make_issue("A", title=f"A {SECRET}"),)), 1_010)
    state, _ = recorder.step(state, SettingsChanged(settings=make_settings(max_concurrent_agents=1)), 1_020)
    return recorder.step(state, StopAsked(), 1_030)[0]


def replay(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["replay", *map(str, arguments)])


def test_what_a_daemon_decided_is_decided_again(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    live(path, short)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    done = replay(path)
    assert done.exit_code == 0, done.output
    told = done.stdout.splitlines()
    assert told[0] == "     1  0d 00:00:01.000 Recovered with 0 workspaces -> FetchCandidates request=1"
    assert told[-1] == "4 inputs, the same decisions as recorded"
    assert (
        replay(path, "--until", "2").stdout.splitlines()[-1]
        == "2 of 4 inputs, the same decisions as recorded"
    )


def test_a_secret_is_in_no_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    live(path, short)
    text = path.read_text(encoding="utf-8")
    assert SECRET not in text
    assert "A ***" in text


def test_other_decisions_are_shown_beside_those_that_were_recorded(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    live(path, short)
    head, first, second, *rest = path.read_text(encoding="utf-8").splitlines()
    changed, silent = json.loads(first), json.loads(second)
    issue = {"issue": {"identifier": "Z-1"}}
    changed["commands"] = [{"command": "StartRun", "run_id": "d1-9", **issue}, "odd \x1b[2J"]
    silent["commands"] = []
    path.write_text(
        "\n".join([head, json.dumps(changed), json.dumps(silent), *rest]) + "\n", encoding="utf-8"
    )
    done = replay(path)
    assert done.exit_code == 1
    assert "recorded: StartRun issue=Z-1 run_id=d1-9\n" in done.stdout
    assert "recorded: odd\n" in done.stdout
    assert "recorded: nothing\n" in done.stdout
    assert done.stdout.splitlines()[-1] == "4 inputs, 2 with other decisions than recorded"
    found = json.loads(replay(path, "--json").stdout)
    assert found["differences"] == [1, 2]
    assert found["steps"][0]["recorded"] == changed["commands"]


def test_the_document_has_its_schema(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    live(path, short)
    done = replay(path, "--json")
    found = json.loads(done.stdout)
    conforms_to("replay", found)
    assert (done.exit_code, found["epoch"], found["inputs"], found["differences"]) == (0, "d1", 4, [])
    assert [step["input"] for step in found["steps"]] == [
        "Recovered",
        "Polled",
        "SettingsChanged",
        "StopAsked",
    ]


def test_a_recording_without_decisions_says_so(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    live(path, short)
    head, *rows = path.read_text(encoding="utf-8").splitlines()
    bare = [{key: value for key, value in json.loads(row).items() if key != "commands"} for row in rows]
    path.write_text("\n".join([head, *map(json.dumps, bare)]) + "\n", encoding="utf-8")
    assert "has no decisions to compare" in replay(path).stdout


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda text: text.replace(b'"Polled"', b'"Pol\xffed"'), "line 3: not text"),
        (lambda text: text.replace(b'"Polled"', b'"Rolled"'), "line 3: not a line of a recording"),
        (lambda _: b"# not one\n", "line 1: not a line of a recording"),
    ],
)
def test_a_damaged_file_is_one_line_with_its_number(
    tmp_path: Path, damage: Callable[[bytes], bytes], complaint: str
) -> None:
    path = tmp_path / "r.jsonl"
    live(path, short)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CommandError) as caught:
        CliRunner().invoke(main, ["replay", str(path)], standalone_mode=False, catch_exceptions=False)
    assert complaint in caught.value.failure.message
    assert caught.value.failure.hint == "a recording is made by `symphony run --record FILE`"


def test_a_last_line_that_is_half_written_is_left_out_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    live(path, short)
    path.write_bytes(path.read_bytes()[:-10])
    done = replay(path)
    assert done.exit_code == 0
    assert "is incomplete and is left out" in done.stderr
    assert done.stdout.splitlines()[-1] == "3 inputs, the same decisions as recorded"


def test_no_file_is_replaced_by_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.write_text("mine")
    with pytest.raises(CommandError) as caught, recording_to(path, Redaction):
        pytest.fail("not reached")
    assert caught.value.code == 2
    assert path.read_text() == "mine"
    with (
        pytest.raises(CommandError, match="cannot be written"),
        recording_to(tmp_path / "no" / "r", Redaction),
    ):
        pytest.fail("not reached")


def test_a_recording_that_is_full_ends_and_the_daemon_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "r"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    recorder = DecisionRecorder(path, descriptor, redaction=Redaction, max_bytes=1_000)
    with capture_logs() as logs:
        after = short(recorder, initial_state(make_settings(), epoch="d1"))
    assert after.drain is not initial_state(make_settings(), epoch="d1").drain
    assert [line["event"] for line in logs] == ["recording_stopped"]
    assert path.stat().st_size <= 1_000
    assert {one.same for one in replayed(read_recording(path.read_text()))} == {True}


def test_a_disk_that_refuses_it_costs_the_recording_only(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    recorder = DecisionRecorder(tmp_path / "r", full, redaction=Redaction)
    with capture_logs() as logs:
        short(recorder, initial_state(make_settings(), epoch="d1"))
    assert [line["reason"] for line in logs] == ["[Errno 28] No space left on device"]


def test_a_step_that_raises_is_written_down_as_one_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("a bug")

    path = tmp_path / "r"
    with recording_to(path, Redaction) as recorder, monkeypatch.context() as patched:
        patched.setattr("symphony.replay.step", broken)
        with pytest.raises(ValueError, match="a bug"):
            recorder.step(initial_state(make_settings(), epoch="d1"), Recovered(), 1)
    (entry,) = read_recording(path.read_text()).steps
    assert entry.commands == []
    (again,) = replayed(read_recording(path.read_text()))
    assert again.same is False
