"""The command line of the simulator."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kit.simulator.__main__ import _run, main


def _call(*words: str) -> Result:
    return CliRunner().invoke(main, words, standalone_mode=False)


def test_months_are_told_in_figures() -> None:
    found = _call("--days", "2", "--issues", "8", "--seed", "3", "--profile", "flaky")
    assert found.return_value == 0
    assert "virtual days      2.0 in 1 lives" in found.output
    assert "no rule broken" in found.output
    assert "--seed 3 --days 2 --profile flaky" in found.output


def test_the_same_as_json() -> None:
    told = json.loads(_call("--minutes", "300", "--issues", "3", "--json").output)
    assert told["violations"] == []
    assert told["statistics"]["issues"] == 3


def test_a_month_is_the_default() -> None:
    assert "--days 30 " in _call("--issues", "0", "--profile", "calm", "--poll-s", "3600").output


def test_a_broken_rule_gives_exit_code_one_and_the_replay() -> None:
    words = ("--days", "1", "--issues", "4", "--step", "harness.broken_steps:doubles_a_run", "--last", "3")
    found = _call(*words)
    assert found.return_value == 1
    assert "last 3 steps of it:" in found.output
    assert "broken: one-run-per-issue" in found.output
    told = json.loads(_call(*words, "--json").output)
    assert told["violations"][0]["trace"]


def test_the_command_that_is_shown_shows_the_same_again() -> None:
    broken = ("--step", "harness.broken_steps:doubles_a_run")
    first = _call("--schedules", "5", *broken)
    assert first.return_value == 1
    command = next(text for text in first.output.splitlines() if text.startswith("replay:")).split()
    again = _call(*command[command.index("kit.simulator") + 1 :], *broken)
    assert again.output.splitlines()[:3] == first.output.splitlines()[:3]


def test_schedules_are_counted() -> None:
    assert "20 schedules from seed 5" in _call("--schedules", "20", "--seed", "5").output
    told = json.loads(_call("--schedules", "6", "--json").output)
    assert (told["schedules"], told["broken_seeds"]) == (6, [])


def test_schedules_are_shared_among_processes() -> None:
    told = json.loads(_call("--schedules", "7", "--seed", "3", "--jobs", "2", "--json").output)
    alone = json.loads(_call("--schedules", "7", "--seed", "3", "--json").output)
    assert told == alone
    assert told["lives"] >= 7


def test_the_broken_ones_of_all_processes_are_told_in_order() -> None:
    broken = ("--step", "harness.broken_steps:doubles_a_run")
    found = _call("--schedules", "120", "--jobs", "2", "--json", *broken)
    told = json.loads(found.output)
    assert found.return_value == 1
    assert told["broken_seeds"] == sorted(told["broken_seeds"])
    assert [one["seed"] for one in told["broken"]] == told["broken_seeds"][:3]


def test_crash_points_are_a_table() -> None:
    assert "| `before:start` | a claim is kept" in _call("--crash-points").output


def test_a_trace_shows_every_input() -> None:
    for words in (("--minutes", "30", "--issues", "2"), ("--schedules", "1")):
        output = _call(*words, "--trace").output
        assert "Recovered with 0 workspaces -> " in output
        assert "TimerFired poll" in output


def test_lives_are_recorded_and_replayed(tmp_path: Path) -> None:
    assert _call("--schedules", "1", "--seed", "3", "--record", str(tmp_path)).return_value == 0
    file = str(tmp_path / "3-1.json")
    assert "no rule broken" in _call("--replay", file).output
    found = _call("--replay", file, "--json", "--step", "harness.broken_steps:doubles_a_run")
    assert found.return_value == 1
    assert json.loads(found.output)["broken"]["invariant"] == "one-run-per-issue"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--profile", "hurricane"], 2, "hurricane"),
        (["--step", "nowhere:nothing"], 2, "no such function: nowhere:nothing"),
        (["--step", "nothing"], 2, "no such function"),
        (["--schedules", "2", "--jobs", "2", "--trace"], 2, "leave --jobs out"),
        (["--replay", __file__], 1, "not a line of a recording"),
    ],
)
def test_wrong_usage_is_one_line_and_a_hint(
    words: list[str],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["simulator", *words])
    assert _run() == code
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert message in error
    assert hint == "hint: PYTHONPATH=tests python -m kit.simulator --help"


def test_an_interrupt_is_no_stack(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kit.simulator.__main__._months", interrupted)
    monkeypatch.setattr("sys.argv", ["simulator"])
    assert _run() == 130
    assert capsys.readouterr().err.strip() == "stopped"


def test_a_terminal_sees_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    found = _call("--schedules", "3")
    assert "schedules" in found.stderr


def test_help_shows_examples() -> None:
    words = CliRunner().invoke(main, ["--help"]).output
    assert "--seed 4711 --days 30 --profile outage --trace" in words
    assert "Exit code: 0 every rule held" in words
