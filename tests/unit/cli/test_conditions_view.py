"""What holds everything up, on a terminal: letter by letter."""

from pathlib import Path
from typing import Any

import pytest

from harness.chronicle import populated
from harness.pictures import NOW, busy, drawn, known, merged, status_of
from symphony.cli.commands.explain import explain_view
from symphony.cli.documents import KnownIssue
from symphony.cli.render.reasons import explained
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
BUDGETS = {
    "day": "2026-03-01",
    "day_tokens": 5_200_000,
    "max_tokens_per_day": 5_000_000,
    "max_tokens_per_issue": 200_000,
    "max_turns_per_issue": 30,
    "max_turns_without_progress": 2,
    "max_attempts_without_progress": 3,
}
JOURNAL = {"state": "memory", "reason": "the disk is full", "hint": "make room on /var"}

ALL = """\
Daemon healthy  pid 4711 · up 2 h 14 min · next poll in 12 s
2 of 2 slots used · 1 retrying · 1 blocked · 2 waiting · 1.2M tokens, 5.2M of 5.0M today

Paused: nothing new starts, what runs goes on.
  → symphony resume
The tracker is left alone for 25 s: 4 questions in a row failed.
  502 Bad Gateway
  → symphony refresh asks at once, unless the tracker itself asked to be left alone
The budget of 2026-03-01 is used up: 5.2M of 5.0M tokens.
  → wait for the next day (UTC), or raise agent.budget.max_tokens_per_day
The disk is full.
  → make room on /var

"""


def picture(document: dict[str, Any], width: int = 120, *, terminal: bool = False) -> str:
    view = status_view(status_of(document), workflow="/app/WORKFLOW.md", width=width)
    return drawn(view, width=width, terminal=terminal)


def test_everything_that_holds_work_up_stands_above_the_issues() -> None:
    document = busy(paused=True, tracker=OPEN, budgets=BUDGETS, journal=JOURNAL)
    assert picture(document).startswith(ALL)
    assert "\x1b[33mPaused" in picture(document, terminal=True)


def test_on_a_narrow_terminal_nothing_of_it_is_cut() -> None:
    document = busy(paused=True, tracker=OPEN, budgets=BUDGETS, journal=JOURNAL)
    shown = picture(document, 40)
    assert max(map(len, shown.splitlines())) <= 40
    assert set(ALL.split()) - {"healthy"} <= set(shown.split())


def test_what_is_as_usual_is_not_said() -> None:
    plain = picture(busy())
    usual = busy(paused=False, tracker=CLOSED, budgets={**BUDGETS, "max_tokens_per_day": None}, journal=None)
    assert picture(usual) == plain
    assert picture(busy(journal={"state": "ok", "reason": None, "hint": None})) == plain


def test_a_budget_of_the_day_that_is_not_used_up_is_only_counted() -> None:
    shown = picture(busy(budgets={**BUDGETS, "day_tokens": 900}))
    assert "1.2M tokens, 900 of 5.0M today\n" in shown
    assert "used up" not in shown


def test_a_tracker_that_is_tried_again_is_said_so_and_its_error_once() -> None:
    half = {**OPEN, "circuit": "half_open", "until": None, "failures_in_a_row": 1}
    shown = picture(busy(tracker=half))
    assert "The tracker is asked once more, after 1 question in a row failed.\n  502 Bad Gateway\n" in shown
    failure = {"code": "x", "message": "502 Bad Gateway", "hint": None, "where": None}
    told = {"status": "degraded", "poll_failure": failure}
    assert picture(busy(tracker=OPEN, health=told)).count("502 Bad Gateway") == 1


def test_a_journal_of_which_nothing_more_is_known() -> None:
    shown = picture(busy(journal={"state": "memory", "reason": None, "hint": None}))
    assert "The journal cannot be used; a restart forgets what happens now.\n\nRUNNING" in shown


# --- questions ---


def blocked(**fields: Any) -> dict[str, Any]:
    (row,) = busy()["blocked"]
    return busy(blocked=[merged(row, fields)])


@pytest.mark.parametrize(
    ("fields", "words", "way"),
    [
        (
            {"question": "Which colour?", "error": "it asks: Which colour?"},
            "it asks: Which colour?",
            'answer it by a comment on the issue, or: symphony answer SYM-9 "…"',
        ),
        (
            {"question": "Which\ncolour?"},
            "no progress in 5 attempts; it asks: Which colour?",
            'answer it by a comment on the issue, or: symphony answer SYM-9 "…"',
        ),
        (
            {"question": "Q", "error": "Q", "failure": {"hint": 'symphony answer SYM-9 "yes"'}},
            "Q",
            'symphony answer SYM-9 "yes"',
        ),
        ({"failure": {"hint": None}}, "no progress", "have it tried again: symphony unblock SYM-9"),
        (
            {"failure": {"hint": None}, "issue_identifier": "a b"},
            "no progress",
            "have it tried again: symphony unblock 'a b'",
        ),
    ],
)
def test_a_blocked_issue_shows_the_question_and_the_command_that_helps(
    fields: dict[str, Any], words: str, way: str
) -> None:
    shown = picture(blocked(**fields), 160)
    assert words in shown
    assert f"→ {way}\n" in shown


# --- one issue ---


def issue(**fields: Any) -> KnownIssue:
    (row,) = busy()["blocked"]
    identity = {name: row[name] for name in ("issue_id", "issue_identifier", "title")}
    none = {"last_error": None, "skills": None, "workspace": {"path": None}, "attempts": {"runs_started": 0}}
    usual = merged(populated().issue("SYM-3"), {**identity, **none, "generated_at": NOW, "blocked": row})
    return known(usual, **fields)


def picture_of(issue: KnownIssue, width: int = 100) -> str:
    return drawn(explain_view(issue, explained(issue), state_dir=Path("/s")), width=width)


def test_an_explanation_tells_what_is_used_of_which_budget() -> None:
    document = issue(budgets=BUDGETS, spent={"tokens": 210_000, "turns": 12})
    shown = picture_of(document)
    assert "budget  210.0k of 200.0k tokens, 12 of 30 turns used\n" in shown
    assert "today   5.2M of 5.0M tokens used\n" in shown
    assert "The budget of 2026-03-01 is used up" in shown
    none = {**BUDGETS, "max_tokens_per_issue": None, "max_tokens_per_day": None}
    shown = picture_of(issue(budgets=none, spent={"tokens": 1, "turns": 2}))
    assert "budget  2 of 30 turns used\n" in shown
    assert "today" not in shown
    assert "budget" not in picture_of(issue(budgets={**none, "max_turns_per_issue": None}))


def test_an_explanation_shows_the_question_and_every_way_on() -> None:
    block = {"error": "the agent asks", "question": "Which colour?\nRed or blue?", "failure": {"hint": None}}
    shown = picture_of(issue(blocked=block))
    assert "It waits for a person: the agent asks.\n" in shown
    assert 'symphony answer SYM-9 "…"; or change its state' in shown
    assert "asks    Which colour? Red or blue?\n" in shown


def test_a_way_on_is_not_told_twice() -> None:
    hint = "run `symphony unblock SYM-9`, or change the issue's state, labels, title or description"
    assert explained(issue(blocked={"error": "used up", "failure": {"hint": hint}})).advice == hint


def test_an_explanation_tells_that_a_run_went_on_with_what_was_begun() -> None:
    run = populated().issue("SYM-1")["running"]
    for resumed, words in (
        (
            {"reason": "interrupted", "thread_id": "t-1"},
            "after it was interrupted: the conversation t-1 goes on",
        ),
        ({"reason": "answered", "thread_id": None}, "after it was answered: anew, told what was asked"),
    ):
        shown = picture_of(issue(status="running", running={**run, "resumed_from": resumed}, blocked=None))
        assert words in shown
    assert "resumed" not in picture_of(issue(status="running", running=run, blocked=None))


def test_a_retry_under_a_pause_does_not_say_when_it_begins() -> None:
    retry = {**populated().issue("SYM-2")["retry"], "error": "it broke"}
    document = issue(status="retrying", retry=retry, blocked=None, paused=True)
    told = explained(document)
    assert (told.next, told.advice) == (
        "It starts once the daemon is resumed; what runs goes on.",
        "run: symphony resume",
    )
    assert "Paused: nothing new starts" in picture_of(document)
