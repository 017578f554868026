"""What affects all issues, above the issues of `symphony status`."""

import re
from typing import Any

from harness.pictures import BUDGETS, busy, drawn, status_of
from harness.snapshots import check_snapshot
from symphony.cli.render.status import status_view

CLOSED = {
    "circuit": "closed",
    "failures_in_a_row": 0,
    "until": None,
    "asks_next_at": None,
    "last_error": None,
}
OPEN = {
    "circuit": "open",
    "failures_in_a_row": 4,
    "until": "2026-03-01T12:00:25Z",
    "asks_next_at": None,
    "last_error": "502 Bad Gateway",
}
JOURNAL = {"state": "memory", "reason": "the disk is full", "hint": "make room on /var"}


def picture(document: dict[str, Any], width: int = 120, *, terminal: bool = False) -> str:
    view = status_view(status_of(document), workflow="/app/WORKFLOW.md", width=width)
    return drawn(view, width=width, terminal=terminal)


def test_everything_that_keeps_issues_waiting_stands_above_the_issues() -> None:
    document = busy(paused=True, tracker=OPEN, budgets=BUDGETS, journal=JOURNAL)
    shown = picture(document)
    check_snapshot("status_conditions", shown)
    conditions = shown.split("\n\n")[1]
    hints = re.findall("→ (.*)", conditions)
    assert hints[0] == "symphony resume"
    assert hints[1].startswith("symphony refresh")
    assert hints[-1] == "make room on /var"
    for fact in ("25 s", "4 ", "502 Bad Gateway", "2026-03-01", "5.2M of 5.0M", "The disk is full."):
        assert fact in conditions
    assert "\x1b[33mPaused" in picture(document, terminal=True)


def test_on_a_narrow_terminal_no_condition_is_cut() -> None:
    document = busy(paused=True, tracker=OPEN, budgets=BUDGETS, journal=JOURNAL)
    narrow, wide = picture(document, 40), picture(document)
    assert max(map(len, narrow.splitlines())) <= 40
    assert set(wide.split("\n\n")[1].split()) <= set(narrow.split())


def test_what_is_normal_is_not_shown() -> None:
    plain = picture(busy())
    usual = busy(paused=False, tracker=CLOSED, budgets={**BUDGETS, "max_tokens_per_day": None}, journal=None)
    assert picture(usual) == plain
    assert picture(busy(journal={"state": "ok", "reason": None, "hint": None})) == plain


def test_a_budget_of_the_day_that_is_not_used_up_is_only_counted() -> None:
    shown = picture(busy(budgets={**BUDGETS, "day_tokens": 900}))
    assert "1.2M tokens, 900 of 5.0M today\n" in shown
    assert "used up" not in shown


def test_a_tracker_that_is_tried_again_shows_its_error_once() -> None:
    half = {**OPEN, "circuit": "half_open", "until": None, "failures_in_a_row": 1}
    shown = picture(busy(tracker=half))
    assert re.search(r"asked once more.* 1 request .* 502 Bad Gateway\.\n", shown)
    failure = {"code": "x", "message": "502 Bad Gateway", "hint": None, "where": None}
    told = {"status": "degraded", "poll_failure": failure}
    assert picture(busy(tracker=OPEN, health=told)).count("502 Bad Gateway") == 1


def test_a_journal_of_which_nothing_more_is_known() -> None:
    shown = picture(busy(journal={"state": "memory", "reason": None, "hint": None}))
    assert "The journal cannot be used; a restart forgets what happens now.\n\nBLOCKED" in shown
