"""`symphony transcript` on journals and transcripts that the tests write."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.commands import call
from harness.journalling import NOW, run, written
from published.schemas import conforms_to
from symphony.cli.commands.transcript import Reading
from symphony.cli.failures import CommandError
from symphony.cli.main import main
from symphony.journal.model import RunRecord
from symphony.journal.transcripts import (
    ApprovalEntry,
    CommandEntry,
    EditedFile,
    EditEntry,
    MessageEntry,
    PlanEntry,
    ReasoningEntry,
    ToolEntry,
    TranscriptEntry,
    TranscriptPlanStep,
    TranscriptWriter,
    TurnEntry,
    UsageEntry,
    transcript_path,
)

AT = "2026-03-01T12:00:00.000Z"
FILES = (EditedFile(path="a.py", change="update", added=3, removed=1),)
STEPS = (TranscriptPlanStep(text="look", status="completed"),)
STORY: tuple[TranscriptEntry, ...] = (
    TurnEntry(seq=1, at=AT, turn=1, status="started", prompt="Do it.\n" * 20, envelope="## Skills"),
    CommandEntry(seq=2, at=AT, turn=1, command="make", status="started", exit_code=None, output=""),
    MessageEntry(seq=3, at=AT, turn=1, text="I look \x1b[2J[bold]around[/bold].\n\n- and here", left_out=7),
    CommandEntry(
        seq=4, at=AT, turn=1, command="make", status="failed", exit_code=2, output="E: no\n", replaces=2
    ),
    EditEntry(seq=5, at=AT, turn=1, files=FILES, status="completed"),
    ToolEntry(seq=6, at=AT, turn=1, name="board_move", status="completed", arguments="{}", result="ok"),
    PlanEntry(seq=7, at=AT, turn=1, steps=STEPS, text="why"),
    ReasoningEntry(seq=8, at=AT, turn=1, text="Hm."),
    ApprovalEntry(seq=9, at=AT, turn=1, subject="rm -rf /", decision="decline"),
    UsageEntry(seq=10, at=AT, turn=1, input_tokens=1_000, output_tokens=500, total_tokens=1_500),
    TurnEntry(seq=11, at=AT, turn=1, status="completed", cost_usd=0.25),
)


def of_issue(number: int, *, ended: bool = True) -> RunRecord:
    record = replace(run(number), issue_id="id-1", issue_identifier="SYM-1")
    return replace(record, ended_wall_ms=NOW + number, outcome="succeeded") if ended else record


def recorded(journal: Path, run_id: str, *entries: TranscriptEntry) -> None:
    writer = TranscriptWriter(transcript_path(journal.parent, run_id))
    writer.write(entries)
    writer.close()
    assert writer.problem is None


def test_the_latest_run_is_shown_within_eighty_columns_and_steers_no_terminal(journal: Path) -> None:
    written(journal, of_issue(1), of_issue(2))
    recorded(journal, "r-1", MessageEntry(seq=1, at=AT, turn=1, text="of the first run"))
    recorded(journal, "r-2", *STORY)
    done = CliRunner(env={"COLUMNS": "80"}).invoke(main, ["transcript", "sym-1"])
    assert done.exit_code == 0
    shown = done.stdout
    assert "\x1b" not in shown
    assert "of the first run" not in shown
    for words in (
        *("run r-2, turn 1", "## Skills", "14 lines more", "I look [bold]around[/bold].", "- and here"),
        *("7 characters", "make → failed, exit 2", "│ E: no", "a.py +3 -1 → completed", "board_move {}"),
        *("[completed] look", "Hm.", "rm -rf /: declined", "1.5k so far", "completed for 0.2500 USD"),
    ):
        assert words in shown
    assert shown.count("make") == 1  # the entry of its start is replaced
    assert done.stderr == ""


def test_only_entries_with_a_text_are_shown(journal: Path) -> None:
    written(journal, of_issue(1))
    recorded(journal, "r-1", *STORY)
    for text, found in (("MAKE", [2, 4]), ("and here", [3]), ("completed", [5, 6, 7, 11]), ("zebra", [])):
        done = call("transcript", "SYM-1", "--json", "--search", text)
        assert done.exit_code == 0
        assert [json.loads(line)["entry"]["seq"] for line in done.stdout.splitlines()] == found


def test_json_has_every_entry_and_what_is_missing_in_their_schema(journal: Path) -> None:
    written(journal, of_issue(1))
    recorded(journal, "r-1", *STORY[:2], *STORY[4:])
    lines = [json.loads(line) for line in call("transcript", "SYM-1", "--json").stdout.splitlines()]
    for line in lines:
        conforms_to("transcript", line)
        assert line["run_id"] == "r-1"
    assert [line["entry"]["seq"] for line in lines[:-1]] == [1, 2, *range(5, 12)]
    assert lines[-1]["missing"] == "entries 3 to 4 are missing"


def test_a_run_of_which_nothing_is_kept_is_stated_and_no_error(journal: Path) -> None:
    written(journal, of_issue(1))
    done = CliRunner().invoke(main, ["transcript", "SYM-1"])
    assert (done.exit_code, done.stdout) == (0, "")
    assert "retention" in done.stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("transcript", "SYM-1", "--run", "x"), "there are r-1"),
        (("transcript", "OTHER"), "it knows of SYM-1"),
    ],
)
def test_an_unknown_issue_or_run_is_an_error_with_a_hint(
    journal: Path, words: tuple[str, ...], hint: str
) -> None:
    written(journal, of_issue(1))
    with pytest.raises(CommandError) as caught:
        call(*words)
    assert caught.value.failure.hint == hint


def test_following_shows_each_entry_once_and_goes_on_with_the_next_run(journal: Path) -> None:
    written(journal, of_issue(1, ended=False))
    shown: list[tuple[str, int]] = []
    reading = Reading(
        journal, "SYM-1", None, lambda run_id, entry: shown.append((run_id, entry.seq)), lambda *_: None
    )
    writer = TranscriptWriter(transcript_path(journal.parent, "r-1"))

    def start_next_run() -> None:
        written(journal, of_issue(2, ended=False))
        recorded(journal, "r-2", STORY[0])

    steps = [
        lambda: writer.write(STORY[:3]),
        lambda: writer.write(STORY[3:4]),
        start_next_run,
    ]
    lives = [True, True, True, False]
    reading.follow(lambda: lives.pop(0), lambda _: steps.pop(0)())
    assert shown == [("r-1", 1), ("r-1", 2), ("r-1", 3), ("r-1", 4), ("r-2", 1)]


def test_following_one_run_ends_with_it(journal: Path) -> None:
    written(journal, of_issue(1))
    recorded(journal, "r-1", *STORY)
    shown: list[int] = []
    reading = Reading(journal, "SYM-1", "r-1", lambda _, entry: shown.append(entry.seq), lambda *_: None)
    reading.follow(lambda: True, lambda _: pytest.fail("the run has ended"))
    assert shown == list(range(1, 12))
