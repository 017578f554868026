"""`symphony logs` on journals that the tests write."""

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.commands import call
from harness.journalling import NOW, claim, event, run, written
from kit.facts import changed
from published.schemas import conforms_to
from symphony.cli.commands.logs import IssueLog, LoggedLine, follow, log_text
from symphony.cli.failures import CommandError
from symphony.cli.journal import wait_for_issue
from symphony.cli.main import main
from symphony.daemon.state_dir import StateDirectory, journal_path
from symphony.domain import SymphonyError
from symphony.journal.model import Record, RunRecord, UnusableError
from symphony.journal.reader import open_reader


def test_the_journal_is_looked_for_where_a_daemon_keeps_it(journal: Path) -> None:
    assert journal_path(Path("WORKFLOW.md"), os.environ) == journal


def of_issue(number: int, **changes: Any) -> RunRecord:
    """A run of SYM-1."""
    return changed(run(number), issue_id="id-1", issue_identifier="SYM-1", **changes)


def local(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


HISTORY: tuple[Record, ...] = (
    event(1, run_id=None, message="dispatched"),
    of_issue(1, ended_wall_ms=NOW + 65_001, outcome="failed", reason="port_exit: it went", turn_count=1),
    event(2, run_id="r-1", message="Looking"),
    event(3, run_id=None, message="retried"),
    event(4, run_id="r-1", message="Done \x1b[2J here\nand there"),
    of_issue(2, attempt=1, turn_count=2, commits=1, total_tokens=12_345),
    event(5, run_id="r-2", message="Again"),
    event(6, run_id="r-2", issue=2, message="of another issue"),
)


def test_events_stand_in_their_order_with_local_times_and_the_begin_and_end_of_each_run(
    journal: Path,
) -> None:
    written(journal, *HISTORY)
    assert call("logs", "SYM-1").stdout.splitlines() == [
        f"{local(NOW + 1)}  said                 dispatched",
        f"── run r-1, attempt 1, since {local(NOW + 1)} ──",
        f"{local(NOW + 2)}  said                 Looking",
        f"{local(NOW + 3)}  said                 retried",
        f"{local(NOW + 4)}  said                 Done here and there",
        "── run r-1 failed after 1 min 5 s (it went): 1 turn, 0 commits ──",
        f"── run r-2, attempt 2, since {local(NOW + 2)} ──",
        f"{local(NOW + 5)}  said                 Again",
    ]


def test_the_lines_of_json_have_their_schema(journal: Path) -> None:
    written(journal, *HISTORY)
    lines = [json.loads(line) for line in call("logs", "SYM-1", "--json").stdout.splitlines()]
    for line in lines:
        conforms_to("logs", line)
    assert [line["type"] for line in lines] == [
        *("event", "run_began", "event", "event", "event", "run_ended", "run_began", "event")
    ]
    assert lines[4]["message"] == "Done \x1b[2J here\nand there"
    assert lines[5]["run"]["reason"] == "port_exit: it went"


def test_an_event_after_a_run_stands_after_its_end(journal: Path) -> None:
    ended = of_issue(1, ended_wall_ms=NOW + 5, outcome="succeeded")
    written(journal, ended, event(2, message="words"), event(5, run_id=None, message="claim released"))
    lines = call("logs", "SYM-1").stdout.splitlines()
    assert [line[:5] for line in lines[2:]] == ["── ru", lines[3][:5]]
    assert lines[3].endswith("claim released")


def test_the_last_lines_or_one_run_can_be_selected(journal: Path) -> None:
    written(journal, *HISTORY)
    assert call("logs", "SYM-1", "-n", "1").stdout.splitlines()[-1].endswith("Again")
    assert len(call("logs", "SYM-1", "-n", "1").stdout.splitlines()) == 2
    assert call("logs", "SYM-1", "-n", "0").stdout == call("logs", "SYM-1").stdout
    one = call("logs", "SYM-1", "--run", "r-1").stdout
    assert "retried" not in one
    assert "Looking" in one
    assert "Again" not in one


@pytest.mark.parametrize(
    ("begin", "message", "hint"),
    [
        ("r-", "2 runs of SYM-1 begin with 'r-'", "there are r-2, r-1"),
        ("x", "SYM-1 has no run 'x'", "there are r-2, r-1"),
    ],
)
def test_a_run_id_may_be_shortened_but_must_be_unique(
    journal: Path, begin: str, message: str, hint: str
) -> None:
    written(journal, *HISTORY)
    with pytest.raises(CommandError) as caught:
        call("logs", "SYM-1", "--run", begin)
    assert (caught.value.failure.message, caught.value.failure.hint) == (message, hint)


def test_an_issue_is_found_in_any_case_and_an_unknown_one_is_an_error(journal: Path) -> None:
    written(journal, *HISTORY, claim(4))
    assert call("logs", "sym-1").stdout == call("logs", "SYM-1").stdout
    with pytest.raises(CommandError) as caught:
        call("logs", "OTHER")
    assert caught.value.failure.message == "the journal knows nothing of an issue 'OTHER'"
    assert caught.value.failure.hint == "it knows of SYM-1, SYM-4"
    with pytest.raises(CommandError) as caught:
        call("logs", "SYM-11")
    assert caught.value.failure.hint is not None
    assert caught.value.failure.hint.startswith("did you mean SYM-1")


def test_an_empty_or_missing_journal_is_an_error(journal: Path) -> None:
    with pytest.raises(SymphonyError) as caught:
        call("logs", "SYM-1")
    assert "`symphony init`" in (caught.value.failure.hint or "")
    written(journal)
    with pytest.raises(SymphonyError) as caught:
        call("logs", "SYM-1")
    assert caught.value.failure.hint == "nothing was worked on yet"


def test_a_run_without_a_record_is_still_named(journal: Path) -> None:
    written(journal, event(1, run_id="gone", message="hello"))
    assert call("logs", "SYM-1").stdout.splitlines()[0] == "── run gone ──"
    began = json.loads(call("logs", "SYM-1", "--json").stdout.splitlines()[0])
    conforms_to("logs", began)
    assert began["run"] is None


# --- following ---


def test_following_shows_each_line_once_until_no_daemon_runs(journal: Path) -> None:
    written(journal, of_issue(1), event(1, message="one"))
    log, shown = IssueLog("SYM-1"), list[LoggedLine]()
    with open_reader(journal) as reader:
        shown += log.first_lines(reader, limit=10)
    more: list[tuple[Record, ...]] = [
        (event(2, message="two"),),
        (),
        (of_issue(1, ended_wall_ms=NOW + 9, outcome="succeeded"),),
        (of_issue(2), event(3, run_id="r-2", message="three")),
    ]
    waited: list[float] = []

    def lives() -> bool:
        if more:
            written(journal, *more.pop(0))
            return True
        return False

    follow(log, journal, shown.append, daemon_lives=lives, sleep=waited.append)
    words = [log_text(line) for line in shown]
    assert [line.split("  said ")[-1].strip() for line in words] == [
        f"── run r-1, attempt 1, since {local(NOW + 1)} ──",
        "one",
        "two",
        "── run r-1 succeeded after 0 s: 0 turns, 0 commits ──",
        f"── run r-2, attempt 1, since {local(NOW + 2)} ──",
        "three",
    ]
    assert len(waited) == 4


def test_following_a_removed_journal_ends_with_the_daemon(journal: Path) -> None:
    written(journal, event(1))
    log = IssueLog("SYM-1")
    journal.unlink()
    answers = [True, False]
    follow(log, journal, lambda _: None, daemon_lives=lambda: answers.pop(0), sleep=lambda _: None)
    assert answers == []


def test_more_events_than_one_batch_are_all_shown(journal: Path) -> None:
    written(journal, *(event(number, run_id=f"r-{number // 400}") for number in range(1, 2_300)))
    log = IssueLog("SYM-1")
    with open_reader(journal) as reader:
        lines = [log_text(line) for line in log.first_lines(reader, limit=None)]
    assert sum("message" in line for line in lines) == 2_299
    assert sum("── run" in line for line in lines) == 6


def test_without_a_daemon_following_ends_by_itself(journal: Path) -> None:
    written(journal, *HISTORY)
    assert call("logs", "SYM-1", "-f").stdout == call("logs", "SYM-1").stdout


def test_ctrl_c_ends_following_with_exit_code_0(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    written(journal, *HISTORY)
    monkeypatch.setattr("symphony.cli.commands.logs.follow", interrupted)
    assert call("logs", "SYM-1", "-f").exit_code == 0


def test_following_waits_for_a_daemon_and_for_the_first_event(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alive: list[bool] = []
    comes: list[tuple[Record, ...]] = [
        (),
        (of_issue(1),),
        (event(2, issue=9),),
    ]

    def wait(_: float) -> None:
        if records := comes.pop(0):
            written(journal, *records)
        alive.append(True)  # a daemon has started

    wait_for_issue("SYM-9", journal, daemon_lives=lambda: bool(alive), sleep=wait)
    said = capsys.readouterr()
    assert said.out == ""
    first, second, third = said.err.splitlines()
    assert "no daemon is running" in first
    assert "no daemon is running" not in second
    assert "SYM-1" in third, "the hint names known issues, in case of a typo"
    assert comes == []


def test_a_damaged_journal_is_an_error_once_no_daemon_runs(journal: Path) -> None:
    journal.write_bytes(b"no journal" * 100)
    alive = [True, False]
    with pytest.raises(UnusableError):
        wait_for_issue("SYM-1", journal, daemon_lives=lambda: alive.pop(0), sleep=lambda _: None)
    assert alive == []


# --- stderr ---


def test_the_stderr_of_a_run_is_shown_masked_and_without_control_characters(
    journal: Path, state: Path
) -> None:
    written(journal, *HISTORY)
    text = "first\n\x1b[31mred\x1b[0m token=abcdefgh1234\nlast\r\n"
    StateDirectory(state).stderr_log("r-1").write_text(text)
    assert call("logs", "SYM-1", "--stderr").stdout == "first\nred token=***\nlast\n"
    assert call("logs", "SYM-1", "--stderr", "-n", "1").stdout == "last\n"
    assert call("logs", "SYM-1", "--stderr", "--run", "r-1").stdout.startswith("first")
    with pytest.raises(CommandError, match="there is no stderr of run r-2"):
        call("logs", "SYM-1", "--stderr", "--run", "r-2")


def test_a_missing_stderr_log_is_an_error(journal: Path) -> None:
    written(journal, *HISTORY)
    with pytest.raises(CommandError, match="there is no stderr of any of its runs"):
        call("logs", "SYM-1", "--stderr")


@pytest.mark.parametrize("other", ["-f", "--json"])
def test_stderr_goes_with_neither_follow_nor_json(other: str) -> None:
    done = CliRunner().invoke(main, ["logs", "SYM-1", "--stderr", other])
    assert done.exit_code == 2
