"""The lines that `symphony run` shows on a terminal."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from symphony.observability.console import WORDS, PeopleLines

PAGE = Path(__file__).parents[3] / "docs" / "log-events.md"
ESCAPES = re.compile(r"\x1b\[[0-9]*m")


class Tty(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


def line(event: str, level: str = "info", **fields: Any) -> str:
    return PeopleLines(io.StringIO())({"event": event, "level": level, **fields})


def words(event: str, level: str = "info", **fields: Any) -> str:
    return line(event, level, **fields)[20:]


RETRY = {"attempt": 1, "attempt_number": 2, "attempt_limit": 5, "delay_ms": 20_000}


def test_a_line_has_the_local_time_the_issue_and_words() -> None:
    shown = line("turn_started", issue_identifier="SYM-1", turn=2, pid=7, session_id="x")
    assert re.fullmatch(r"\d\d:\d\d:\d\d  SYM-1     turn 2", shown)


@pytest.mark.parametrize(
    ("event", "fields", "told"),
    [
        (
            "run_started",
            {"title": "Do it", "attempt_number": 1, "agent_reason": "the default"},
            "started: Do it",
        ),
        (
            "run_started",
            {**RETRY, "title": "T", "agent_reason": "the default"},
            "started: T (attempt 2 of 5)",
        ),
        ("run_ended", {"outcome": "succeeded", "turns": 2, "commits": 1}, "ended: 2 turns, 1 commit"),
        (
            "run_ended",
            {"outcome": "no_progress", "turns": 1, "commits": 0},
            "no progress after 1 turn, 0 commits",
        ),
        ("run_retrying", {**RETRY, "reason": "x: y"}, "retry in 20 s (attempt 2 of 5), because: y"),
        ("run_retrying", {**RETRY, "delay_ms": 80_000, "reason": "no slot"}, "1 min 20 s"),
        ("issue_blocked", {"reason": "no_progress: why"}, "blocked: why"),
        ("issue_moved", {"state": "In Progress"}, "moved to In Progress"),
    ],
)
def test_what_people_care_about_has_words(event: str, fields: dict[str, Any], told: str) -> None:
    assert told in words(event, **fields)


def test_who_works_on_it_is_told_where_it_is_not_the_default() -> None:
    told = words("run_started", title="T", attempt_number=1, agent="opus", agent_reason="label review")
    assert told == "started: T (by opus: label review)"


@pytest.mark.parametrize(
    "event", ["skills_listed", "tool_called", "comment_posted", "turn_ended", "a_new_event"]
)
def test_what_goes_well_and_is_no_news_is_left_to_the_log(event: str) -> None:
    assert line(event, names=["a"]) == ""


@pytest.mark.parametrize("level", ["warning", "error", "critical"])
def test_every_warning_and_error_is_shown(level: str) -> None:
    shown = line("new_trouble", level, reason="it broke", hint="mend it", path="/a", number=3, session_id="x")
    assert shown[20:].splitlines()[0] == "new trouble: /a: it broke: number 3"
    assert shown.endswith("→ mend it")


def test_a_crash_shows_its_stack() -> None:
    shown = line("run_crashed", "error", exception="Traceback:\n  one\x1b[2J\n  two")
    assert [text.strip() for text in shown.splitlines()[1:]] == ["Traceback:", "one", "two"]
    assert "\x1b" not in shown


def test_a_reason_is_told_once() -> None:
    lines = PeopleLines(io.StringIO())
    ended = {"event": "run_ended", "level": "warning", "outcome": "failed", "turns": 1, "commits": 0}
    again = {"event": "run_retrying", "level": "info", "issue_identifier": "SYM-1", **RETRY, "reason": "a: b"}
    assert lines({**ended, "issue_identifier": "SYM-1", "reason": "a: b", "hint": "h"}).endswith("commits: b")
    assert lines(again).endswith("retry in 20 s (attempt 2 of 5)")
    assert lines(again).endswith("because: b"), "now it is news again"


def test_a_bad_skill_is_told_once() -> None:
    lines = PeopleLines(io.StringIO())
    bad = {
        "event": "skill_problem",
        "level": "warning",
        "path": "a/SKILL.md:1",
        "code": "missing_name",
        "hint": "h",
    }
    assert "a/SKILL.md:1" in lines(bad)
    assert lines(bad) == ""
    assert lines({**bad, "code": "invalid_yaml"}) != ""
    assert lines({**bad, "code": "odd", "level": "debug"}) == ""


def test_text_of_others_is_one_line_and_steers_nothing() -> None:
    hostile = "a\x1b[2J\nb\u202ec\x07"
    shown = line(
        "run_started", title=hostile, issue_identifier=hostile, attempt_number=1, agent_reason=hostile
    )
    assert len(shown.splitlines()) == 1
    assert shown.isprintable()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_are_for_terminals_that_have_them(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = {"event": "turn_started", "level": "info", "issue_identifier": "SYM-1", "turn": 1}
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert ESCAPES.search(PeopleLines(Tty())(event))
    assert not ESCAPES.search(PeopleLines(io.StringIO())(event))
    monkeypatch.setenv(name, value)
    assert not ESCAPES.search(PeopleLines(Tty())(event))


def test_every_event_with_words_is_an_event_of_the_log() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in WORDS if f"| `{name}` |" not in page] == []
