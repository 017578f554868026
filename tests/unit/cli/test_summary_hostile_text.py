"""What others wrote stays text: it is no markup of ours and steers no terminal."""

import io

import pytest
from rich.console import Console

from harness.scheduling import make_settings
from symphony.cli.commands.demo import ProgressLines, show_progress
from symphony.cli.failures import CommandError, report, warn
from symphony.cli.summary import IssueSummary, RunSummary, summary_table
from symphony.domain import Failure, Issue
from symphony.scheduler import StartRun, WakeAsked, initial_state

HOSTILE = "Mend [/x] in \x1b[2J\x1b]0;title\x07the parser"
SHOWN = "Mend [/x] in the parser"
ISSUE = Issue(id="A", identifier="A", title=HOSTILE, state="To [/] do\x1b[2J", dispatchable=True)
STATE = initial_state(make_settings(), epoch="e").changed(candidates={"A": ISSUE})
FACT = WakeAsked(reason="test")


def console() -> Console:
    return Console(file=io.StringIO(), width=200, force_terminal=True, color_system=None)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_live_table_shows_a_title_as_it_is() -> None:
    out = console()

    with show_progress(out) as progress:
        progress(STATE, FACT, STATE, ())

    assert SHOWN in written(out)
    assert "\x1b]0" not in written(out)


def test_a_line_of_progress_shows_a_title_as_it_is() -> None:
    out = console()

    ProgressLines(out)(STATE, FACT, STATE, (StartRun(run_id="r", issue=ISSUE, attempt=None),))

    assert written(out) == f"A        started: {SHOWN}\n"


@pytest.mark.parametrize("blocked", [None, CommandError.of("x", hint="y").failure])
def test_the_summary_shows_titles_and_states_as_they_are(blocked: Failure | None) -> None:
    out = console()

    out.print(summary_table(RunSummary(issues={"A": IssueSummary(issue=ISSUE, blocked=blocked)})))

    assert SHOWN in written(out)
    assert "To [/] do" in written(out)
    assert "\x1b[2J" not in written(out)


def test_an_error_is_one_line_without_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    report(CommandError.of("bad\x1b[2J\nnews", hint="do\x07 this"))
    warn("odd\r\nthing\x1b[1m")

    assert capsys.readouterr().err == "error: bad news\nhint: do this\nwarning: odd thing\n"
