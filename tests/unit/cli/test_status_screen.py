"""`symphony status --watch` on screens that are too small for everything."""

import io
from typing import Any

import pytest

from harness.pictures import busy
from symphony.cli.status_screen import status_screen
from symphony.cli.status_view import console_for, show

SMALL = """\
Daemon healthy  pid 4711 · up 2 h 14 min · next poll in 12 s
2 of 2 slots used · 1 retrying · 1 blocked · 2 waiting · 1.2M tokens

RUNNING   TURN     AGE  SIGN OF LIFE  TOKENS  TITLE
SYM-12       2  14 min  3 s ago        45.2k  Fix the login page
                                              Running the test suite with the n…
and 1 more running; `symphony status` lists all

RETRYING  ATTEMPT  DUE IN  TITLE
SYM-4           3    18 s  Add a dark mode
                           after: turn_failed: it broke

BLOCKED         FOR  TITLE
SYM-9     1 h 5 min  Move the data
                     no progress in 5 attempts
                     → say more in the description

WAITING   STATE  TITLE
SYM-20    Todo   Write the docs
                 all 2 agent slots are in use
and 1 more waiting; `symphony status` lists all
"""


def screen(document: dict[str, Any], width: int, height: int) -> str:
    out = io.StringIO()
    console = console_for(file=out, width=width, height=height)
    show(console, status_screen(console, document, workflow="/app/WORKFLOW.md"))
    return out.getvalue()


def queue(length: int) -> dict[str, Any]:
    row = busy()["waiting"][0]
    return busy(waiting=[{**row, "issue_identifier": f"SYM-{number}"} for number in range(length)])


def test_nothing_is_cut_where_everything_fits() -> None:
    shown = screen(busy(), 80, 24)
    assert len(shown.splitlines()) == 24
    assert "new session cookie" in shown
    assert "…" not in shown
    assert "more" not in shown.replace("say more", "")


def test_each_text_gets_one_line_before_an_issue_is_left_out() -> None:
    shown = screen(busy(), 80, 23)
    assert "Running the test suite with the n…\n" in shown
    assert "SYM-21" in shown
    assert len(shown.splitlines()) == 23


def test_a_small_screen_says_what_it_leaves_out() -> None:
    assert screen(busy(), 80, 22) == SMALL


def test_a_person_who_is_needed_is_told_of_last_of_all() -> None:
    shown = screen(busy(), 80, 8)
    assert "SYM-9" in shown
    assert "→ say more in the description" in shown
    assert not {"RUNNING", "RETRYING", "WAITING"} & set(shown.split()), "the head counts them"


@pytest.mark.parametrize("width", [30, 50, 71, 72, 80, 100, 200])
@pytest.mark.parametrize("height", [8, 12, 24, 40, 60])
@pytest.mark.parametrize("length", [1, 40, 3_000])
def test_the_screen_is_never_too_small(width: int, height: int, length: int) -> None:
    shown = screen(queue(length), width, height).splitlines()
    assert len(shown) <= height
    assert max(map(len, shown)) <= width


def test_a_high_screen_is_used() -> None:
    shown = screen(queue(200), 120, 60)
    assert len(shown.splitlines()) in {59, 60}
    assert "and 157 more waiting" in shown


def test_what_is_wrong_stays_on_the_screen() -> None:
    failure = {"code": "x", "message": "mapping values are not allowed", "hint": "mend it", "where": "/a:3"}
    health = {"status": "degraded", "workflow_failure": failure, "poll_failure": None}
    document = {**queue(200), "health": health}
    shown = screen(document, 80, 24)
    assert "/a:3: mapping values are not allowed" in shown
    assert len(shown.splitlines()) <= 24
