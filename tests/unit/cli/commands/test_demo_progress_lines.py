import io
import re

import pytest
from rich.console import Console
from rich.live import Live
from rich.table import Table

from harness.observing import ObservedStory
from harness.scheduling import make_failure, make_issue
from symphony.cli.commands.demo import ProgressTable, show_progress
from symphony.cli.summary import RunSummary, summary_table
from symphony.domain import Category
from symphony.scheduler import OperatorAction, OperatorAsked, Outcome, OutcomeKind, RunEnded

HOSTILE = "[/] [red]x[/red] \x1b[2J two\nlines"


def recording(*, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), record=True, width=100, force_terminal=terminal)


def told(*titles: str) -> list[str]:
    """The lines that a small story gives: one failed attempt, then one of two turns."""
    console = recording()
    with show_progress(console) as progress:
        story = ObservedStory(progress, *(make_issue(str(n), title=one) for n, one in enumerate(titles, 1)))
        story.begin()
        story.fails(failure=make_failure("it broke"))
        story.advance(20_000)
        story.streams()
        story.turn_ends()
        story.streams()
        story.report(commits=1)
        outcome = Outcome(kind=OutcomeKind.SUCCEEDED, progress=True)
        story.tell(RunEnded(run_id=story.run_id(), outcome=outcome))
        story.tell(RunEnded(run_id="gone", outcome=outcome))
    return console.export_text().splitlines()


def test_each_milestone_is_one_line() -> None:
    assert told("Greet") == [
        "SYM-1    started: Greet",
        "SYM-1    failed (it broke), 0 commits on its branch",
        "SYM-1    started: Greet",
        "SYM-1    turn 2",
        "SYM-1    finished, 1 commit on its branch",
    ]


def test_a_block_a_question_and_a_pause_are_one_line_each() -> None:
    console = recording()
    needs = make_failure("it asks", category=Category.TURN_INPUT_REQUIRED, hint="answer it")
    with show_progress(console) as progress:
        story = ObservedStory(progress, make_issue("1"), make_issue("2")).begin()
        for issue_id, question in (("1", "Which\n[red]colour?"), ("2", None)):
            outcome = Outcome(kind=OutcomeKind.INPUT_REQUIRED, failure=needs, question=question)
            story.tell(RunEnded(run_id=story.run_id(issue_id), outcome=outcome))
        for verb in (OperatorAction.PAUSE, OperatorAction.PAUSE, OperatorAction.RESUME):
            story.tell(OperatorAsked(action=verb))
    words = ("blocked:", "paused:", "resumed:")
    assert [line for line in console.export_text().splitlines() if any(word in line for word in words)] == [
        "SYM-1    blocked: it asks, which asks: Which [red]colour? → answer it",
        "SYM-2    blocked: it asks → answer it",
        "         paused: nothing new starts before `symphony resume`",
        "         resumed: issues are started again",
    ]


def test_the_table_says_that_the_daemon_is_paused() -> None:
    console = recording(terminal=True)
    live = Live(console=console, auto_refresh=False)
    story = ObservedStory(ProgressTable(live), make_issue("1")).begin()
    assert shown(live).caption is None
    story.tell(OperatorAsked(action=OperatorAction.PAUSE))
    assert str(shown(live).caption).startswith("paused: nothing new starts")


def shown(live: Live) -> Table:
    assert isinstance(live.renderable, Table)
    return live.renderable


def test_a_long_or_odd_title_stays_one_line_and_is_no_markup() -> None:
    lines = told(HOSTILE + "x" * 200)
    assert len(lines) == 5
    assert lines[0].startswith("SYM-1    started: [/] [red]x[/red] two lines")
    assert lines[0].endswith("x" * 200)


@pytest.fixture
def table() -> tuple[Console, str]:
    """The last picture of a table that saw a waiting, a failing and an ended issue."""
    console = recording(terminal=True)
    live = Live(console=console, auto_refresh=False)
    story = ObservedStory(
        ProgressTable(live),
        make_issue("1", title="First", priority=1),
        make_issue("2", title=HOSTILE, priority=2),
        make_issue("3", title="Third", priority=3),
        max_concurrent_agents=2,
    )
    story.begin()
    story.streams("1", last_message="says\nhello")
    story.put("2", state="Done")
    story.advance(30_000)
    story.ends("2")
    story.advance(5_000)
    console.print(shown(live))
    return console, console.export_text()


def test_the_table_shows_who_runs_and_who_has_ended(table: tuple[Console, str]) -> None:
    lines = {found[0]: line for line in table[1].splitlines() if (found := re.findall(r"SYM-\d", line))}
    assert "running" in lines["SYM-1"]
    assert "says hello" in lines["SYM-1"]
    assert "ended" in lines["SYM-2"]
    assert "no longer active" in lines["SYM-2"]
    assert "[/] [red]x" in lines["SYM-2"], "what a board says is no markup"
    assert "running" in lines["SYM-3"], "in the slot that became free"


# --- the summary at the end ---


def summed_up(title: str, states: dict[str, str] | None = None, *, block: bool = False) -> str:
    tally = RunSummary()
    story = ObservedStory(tally, make_issue("2", title="Second"), make_issue("1", title=title)).begin()
    story.streams("1", turn_count=1, branch="symphony/SYM-1", commits=3)
    kind = OutcomeKind.INPUT_REQUIRED if block else OutcomeKind.SUCCEEDED
    failure = make_failure() if block else None
    outcome = Outcome(kind=kind, failure=failure, progress=True)
    story.tell(RunEnded(run_id=story.run_id("1"), outcome=outcome))
    console = recording()
    console.print(summary_table(tally, states))
    return console.export_text()


def test_the_summary_has_one_row_per_issue_in_order() -> None:
    rows = [line.strip("│ ").split() for line in summed_up("Greet").splitlines() if "SYM-" in line]
    cells = [[cell for cell in row if cell != "│"] for row in rows]
    assert cells[0] == ["SYM-1", "Greet", "Todo", "1", "1", "3", "symphony/SYM-1"]
    assert cells[1] == ["SYM-2", "Second", "Todo", "1", "0", "0"]


def test_a_known_final_state_goes_before_the_one_of_the_last_look() -> None:
    text = summed_up("Greet", {"SYM-1": "Done"})
    assert "Done" in text
    assert text.count("Todo") == 1


def test_a_blocked_issue_is_marked() -> None:
    assert "Todo (blocked)" in summed_up("Greet", block=True)


def test_a_title_with_brackets_does_not_break_the_summary() -> None:
    assert "[/] [red]x[/red] two" in " ".join(summed_up(HOSTILE).split())
