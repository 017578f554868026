"""The command line of the simulator."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

from kit.simulator.__main__ import main


def _call(*words: str) -> Result:
    return CliRunner().invoke(main, words, standalone_mode=False)


def test_months_are_told_in_figures() -> None:
    found = _call("--days", "2", "--issues", "8", "--seed", "3", "--profile", "flaky")
    assert found.return_value == 0
    assert "virtual days      2.0 in 1 lives" in found.output
    assert "no rule broken" in found.output
    assert "--seed 3 --days 2 --profile flaky" in found.output


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


def test_schedules_are_shared_among_processes() -> None:
    told = json.loads(_call("--schedules", "7", "--seed", "3", "--jobs", "2", "--json").output)
    alone = json.loads(_call("--schedules", "7", "--seed", "3", "--json").output)
    assert told == alone
    assert told["lives"] >= 7


def test_lives_are_recorded_and_replayed(tmp_path: Path) -> None:
    assert _call("--schedules", "1", "--seed", "3", "--record", str(tmp_path)).return_value == 0
    file = str(tmp_path / "3-1.json")
    assert "no rule broken" in _call("--replay", file).output
    found = _call("--replay", file, "--json", "--step", "harness.broken_steps:doubles_a_run")
    assert found.return_value == 1
    assert json.loads(found.output)["broken"]["invariant"] == "one-run-per-issue"
