"""The live view of `symphony status --watch`, without a terminal."""

import io
import os
import pty
import re
import signal
import sys
import termios
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType
from typing_extensions import override

from harness.chronicle import populated
from harness.pictures import known, needing_people, of_files, status_of
from harness.snapshots import check_snapshot
from symphony.cli.commands.status import StatusView, View, watch
from symphony.cli.documents import KnownIssue, Status
from symphony.cli.endpoint import UnreachableError
from symphony.cli.formatting import console_for
from symphony.cli.queries import Queries
from symphony.domain import ALL_ISSUES, Selection


class FakeQueries(Queries):
    """Answers what the test says, and remembers what it was asked."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        super().__init__(Path("/srv/app/WORKFLOW.md"), {})
        self.document = document
        self.asked: list[Selection] = []
        self.runs = True
        self.error: UnreachableError | None = None

    @override
    def daemon_runs(self) -> bool:
        return self.runs

    @override
    def state(self, only: Selection = ALL_ISSUES) -> Status:
        self.asked.append(only)
        if self.error is not None:
            raise self.error
        return status_of(self.document)

    @override
    def issue(self, identifier: str) -> KnownIssue | None:
        return known(populated().issue("SYM-1"), issue_identifier=identifier)


class Shown:
    """A view of a size, and what it draws."""

    def __init__(self, document: Mapping[str, Any], width: int = 80, height: int = 24) -> None:
        self.queries = FakeQueries(document)
        self.out = io.StringIO()
        self.console = console_for(
            file=self.out, width=width, height=height, force_terminal=True, color_system="standard"
        )
        self.view = StatusView(self.queries, ALL_ISSUES, self.console, state_dir=Path("/s"))

    def press(self, *keys: str) -> list[bool]:
        return [self.view.press(key) for key in keys]

    def picture(self, *, reversed_too: bool = False) -> str:
        self.view.fetch()
        self.out.truncate(self.out.seek(0))
        self.console.print(self.view.draw(self.console))
        text = self.out.getvalue()
        text = text if reversed_too else re.sub(r"\x1b\[[0-9;]*m", "", text)
        return "".join(
            f"{line.rstrip()}\n" for line in re.sub(r"\d\d:\d\d:\d\d", "12:00:00", text).splitlines()
        )


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_a_screen_begins_with_what_needs_a_person(width: int, height: int) -> None:
    shown = Shown(needing_people(), width, height).picture()
    check_snapshot(f"watch_{width}", shown)
    assert len(shown.splitlines()) == height
    headings = [line.split("  ")[0] for line in shown.splitlines() if re.match("[A-Z]{4,}", line)]
    sections = ["QUESTIONS", "BLOCKED", "READY FOR REVIEW", "RUNNING", "RETRYING", "WAITING"]
    assert headings == sections[: len(headings)]
    assert "RUNNING" in headings
    assert 'symphony answer SYM-31 "…"' in shown, "no advice is cut before its command"
    assert "The session cookie was wrong" in shown, "what the agent says goes before what it does"


def test_keys_select_and_explain_an_issue_and_lead_back() -> None:
    shown = Shown(needing_people())
    shown.picture()
    assert shown.press("j", "down", "k") == [False] * 3
    assert "7;31mSYM-31" in shown.picture(reversed_too=True), "the first issue is selected"
    assert shown.press("up", "enter") == [False, True]
    assert "SYM-31  Title 1" in shown.picture()
    assert shown.press("j", "escape") == [False, True]
    assert "QUESTIONS" in shown.picture()
    shown.press("?")
    assert "suspend" in shown.picture()
    shown.press("?", "q")
    assert shown.view.ended


def test_a_filter_asks_the_daemon_while_it_is_typed() -> None:
    shown = Shown(needing_people())
    shown.picture()
    assert shown.press("/", "q", "é", "x", "backspace") == [False, True, True, True, True]
    assert shown.picture().splitlines()[-1] == "/qé_"
    assert shown.queries.asked[-1] == Selection(limit=24, text="qé")
    shown.press("enter")
    assert shown.picture().splitlines()[-1].startswith("/qé   escape")
    assert shown.press("/", "ctrl-u", "\x01", "up", "escape", "escape") == [
        False,
        True,
        False,
        False,
        False,
        True,
    ]
    assert not shown.view.ended
    shown.picture()
    assert shown.queries.asked[-1].text == ""


def test_a_daemon_that_goes_away_is_said_above_the_last_picture() -> None:
    shown = Shown(needing_people())
    shown.picture()
    shown.queries.error = UnreachableError("the daemon broke off", hint="try again")
    lost = shown.picture().splitlines()
    assert lost[1:4] == ["The status cannot be read: the daemon broke off", "→ try again", ""]
    assert len(lost) == 24
    assert any(line.startswith("SYM-31") for line in lost)
    shown.queries.error = None
    assert "cannot be read" not in shown.picture()


def test_without_a_daemon_the_tracker_is_not_asked_at_every_look() -> None:
    shown = Shown(of_files(needing_people()))
    shown.queries.runs = False
    for _ in range(3):
        assert "No daemon is running" in shown.picture()
    assert len(shown.queries.asked) == 1
    shown.queries.runs = True
    shown.picture()
    assert len(shown.queries.asked) == 2


def test_no_size_is_too_small_for_a_screen_and_what_others_wrote_stays_text() -> None:
    hostile = "Mend [/x] \x1b[2J\x1b]0;title\x07 two\nlines \u202e"
    document = needing_people()
    for kind in ("running", "retrying", "blocked", "waiting", "ready"):
        for row in document[kind]:
            row.update(title=hostile, issue_identifier=hostile)
            row.update({name: hostile for name in ("last_words", "summary", "question") if name in row})
    for width, height in ((20, 3), (50, 8), (80, 24), (200, 60)):
        shown = Shown(document, width, height)
        shown.press("/", *"\u202e\x1b", "enter")
        text = shown.picture()
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
        lines = text.splitlines()
        assert len(lines) == height
        assert max(map(len, lines)) <= width


# --- the terminal ---


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal on stdin; what is written to it was typed."""
    master, slave = pty.openpty()
    with os.fdopen(slave) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield master
        os.close(master)


class Failing:
    """A view that raises."""

    def __init__(self, *, fetch: bool) -> None:
        self.ended = False
        self.fails_in_fetch = fetch

    def fetch(self) -> None:
        if self.fails_in_fetch:
            raise ZeroDivisionError

    def draw(self, console: Console) -> RenderableType:
        del console
        if not self.fails_in_fetch:
            raise ZeroDivisionError
        return ""

    def press(self, key: str) -> bool:
        del key
        return False


@pytest.mark.parametrize("fetch", [True, False])
def test_a_fault_restores_the_terminal_and_the_handlers_of_signals(keyboard: int, *, fetch: bool) -> None:
    before = termios.tcgetattr(keyboard)
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGTSTP)]
    out = io.StringIO()
    view: View = Failing(fetch=fetch)
    with pytest.raises(ZeroDivisionError):
        watch(view, console_for(file=out, force_terminal=True), interval_s=60)
    assert termios.tcgetattr(keyboard) == before
    assert out.getvalue().endswith("\x1b[?1049l\x1b[?25h") or out.getvalue().endswith("\x1b[?25h\x1b[?1049l")
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGTSTP)] == handlers
