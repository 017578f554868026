"""What a terminal shows, be it narrow, dumb or interrupted."""

import io
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from harness.scheduling import Story, make_issue
from symphony.cli.commands.demo import ProgressLines, ProgressTable, show_progress
from symphony.cli.commands.run import print_drain_message
from symphony.cli.main import main, program_name
from symphony.cli.summary import IssueSummary, RunSummary, summary_table
from symphony.scheduler import DrainAsked, OperatorAction, OperatorAsked


def _console(width: int = 100, term: str = "xterm") -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=True, _environ={"TERM": term})


@pytest.mark.parametrize(("width", "titles"), [(60, False), (80, True)])
def test_titles_give_way_on_a_narrow_terminal(width: int, titles: bool) -> None:  # noqa: FBT001 - a parameter
    entry = IssueSummary(issue=make_issue("DEMO-1", title="Greet"), branch="symphony/DEMO-1")
    console = _console(width)
    console.print(summary_table(RunSummary(issues={"DEMO-1": entry}), width=width))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert ("Title" in text) == titles
    assert "Attempts" in text
    assert "…" not in text


def test_a_dumb_terminal_gets_lines_because_it_cannot_redraw() -> None:
    for console, kind in (
        (_console(), ProgressTable),
        (_console(term="dumb"), ProgressLines),
        (Console(file=io.StringIO()), ProgressLines),
    ):
        with show_progress(console) as progress:
            assert isinstance(progress, kind)


def test_ctrl_c_says_what_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    story = Story(make_issue("1", identifier="SYM-1"), drain_timeout_ms=5_000).begin()
    before = story.state
    story.tell(DrainAsked())
    print_drain_message(before, DrainAsked(), story.state, ())
    print_drain_message(story.state, DrainAsked(), story.state, ())
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "The turns of SYM-1 may end first (at most 5 s); Ctrl-C stops them now."


def test_an_operators_drain_names_no_limit(capsys: pytest.CaptureFixture[str]) -> None:
    story = Story(make_issue("1", identifier="SYM-1")).begin().streams()
    before, drain = story.state, OperatorAsked(action=OperatorAction.DRAIN)
    story.tell(drain)
    print_drain_message(before, drain, story.state, ())
    assert capsys.readouterr().err == "The turns of SYM-1 may end first; Ctrl-C stops them now.\n"


def test_ctrl_c_says_nothing_when_nothing_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    story = Story().begin()
    before = story.state
    story.tell(DrainAsked())
    print_drain_message(before, DrainAsked(), story.state, ())
    assert capsys.readouterr().err == ""


def test_the_program_is_called_by_its_path_where_no_name_leads_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "a b" / "symphony"), "demo"])
    assert program_name() == shlex.quote(f"{tmp_path}/a b/symphony")
    monkeypatch.setattr(sys, "argv", ["__main__.py"])
    assert program_name() == "symphony"


def test_the_first_help_has_examples_and_whole_sentences() -> None:
    text = CliRunner().invoke(main, ["--help"]).output
    assert "symphony demo" in text.split("Examples:")[1]
    assert "..." not in text.split("Start:")[1]
