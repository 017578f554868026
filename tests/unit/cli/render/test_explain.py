"""The answer to "why is it (not) running?", and how it is shown."""

import re
from pathlib import Path
from typing import Any

import pytest

from harness.chronicle import populated
from harness.pictures import BUDGETS, NOW, busy, drawn, known, merged
from harness.snapshots import check_snapshot
from symphony.api.explain import NEXT_AND_ADVICE
from symphony.cli.documents import KnownIssue
from symphony.cli.render.explain import explain_issue, explain_view
from symphony.scheduler import ReasonCode


def issue(identifier: str, **changes: Any) -> KnownIssue:
    return known(populated().issue(identifier), **changes)


def test_every_reason_that_the_scheduler_gives_has_a_next_step() -> None:
    assert set(NEXT_AND_ADVICE) == {code.value for code in ReasonCode} | {"starting", "deferred"}


@pytest.mark.parametrize(
    ("identifier", "code", "answer"),
    [
        ("SYM-1", "running", "An agent is at work: turn 1, begun 1 s ago, last sign of life now."),
        ("SYM-2", "retrying", "It waits for attempt 2 of 4, after: it broke."),
        ("SYM-3", "blocked", "It waits for a person: the agent needs a person."),
        ("SYM-4", "not_dispatchable", "It is not running: assigned to a person."),
    ],
)
def test_each_status_has_its_answer(identifier: str, code: str, answer: str) -> None:
    told = explain_issue(issue(identifier))
    assert (told.code, told.answer, told.running) == (code, answer, code == "running")
    assert told.next


def test_a_retry_tells_when_and_a_block_what_to_do() -> None:
    assert explain_issue(issue("SYM-2")).next == (
        "That attempt begins in 10 s, if there is a slot (2026-03-01T12:00:11Z)."
    )
    told = explain_issue(issue("SYM-3"))
    assert told.since == "2026-03-01T12:00:01Z"
    assert told.advice == (
        'answer it by a comment on the issue, or: symphony answer SYM-3 "…"; '
        "or change its state, labels, title or description"
    )


def test_a_retry_without_a_slot_still_tells_what_the_last_run_failed_of() -> None:
    retry = {"attempt_number": 3, "attempt_limit": 5, "error": "no available orchestrator slots"}
    told = explain_issue(issue("SYM-2", retry=retry))
    assert told.answer == (
        "It waits for attempt 3 of 5, after: it broke; then: no available orchestrator slots."
    )


def test_a_question_is_not_introduced_twice() -> None:
    block = {"error": "the agent needs a person: the agent asks: Which colour?"}
    told = explain_issue(issue("SYM-3", blocked=block))
    assert told.answer == "It waits for a person: the agent asks: Which colour?"


def test_what_failed_of_nothing_goes_on_whoever_wants_it() -> None:
    """After a clean end, an answer, an operator's order or a restart."""
    retry = {"attempt": 1, "due_at": "2026-03-01T12:00:00Z", "error": None}
    told = explain_issue(issue("SYM-2", retry=retry))
    assert told.answer == "It continues if the issue is still active."
    assert told.next.startswith("It is looked at once more now")


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"stopping": "stalled"}, "An agent is being stopped: the agent was silent for too long."),
        (
            {"session_id": None, "last_event_at": None, "stage": "preparing_workspace"},
            "A run has begun 1 s ago; it is preparing workspace.",
        ),
        (
            {"last_event": "waiting_for_slot", "last_message": "no slot of Ray is free: 4 of 4 in use"},
            "It waits: no slot of Ray is free: 4 of 4 in use.",
        ),
    ],
)
def test_a_run_that_begins_or_ends_says_so(changes: dict[str, Any], answer: str) -> None:
    assert explain_issue(issue("SYM-1", running=changes)).answer == answer


def test_without_a_daemon_nothing_happens_before_there_is_one() -> None:
    told = explain_issue(issue("SYM-4", daemon=None, source="files"))
    assert told.next == "Nothing before a daemon runs."
    assert told.advice == "resolve in the tracker what it waits for; start a daemon: symphony run"
    over = {"reason": {"code": "terminal", "message": "state 'Done' is terminal"}}
    ended = explain_issue(issue("SYM-4", daemon=None, status="inactive", waiting=over))
    assert (ended.code, ended.next) == ("terminal", "Nothing, as long as it stays like this.")


def test_what_is_only_remembered_needs_a_daemon_first() -> None:
    retry = {"attempt": 1, "due_at": "2026-03-01T12:00:00Z", "error": None}
    told = explain_issue(issue("SYM-2", retry=retry, daemon=None, source="files"))
    assert (told.next, told.advice) == ("Nothing before a daemon runs.", "start a daemon: symphony run")
    told = explain_issue(issue("SYM-3", daemon=None, source="files"))
    assert told.advice is not None
    assert told.advice.startswith(
        "start a daemon: symphony run; answer it by a comment on the issue, or: "
        'symphony answer SYM-3 "…"; or '
    )


def test_a_reason_of_another_version_is_shown_as_it_is() -> None:
    odd = explain_issue(issue("SYM-4", waiting={"reason": {"code": "new", "message": "why not!"}}))
    assert (odd.code, odd.answer, odd.advice) == ("new", "It is not running: why not!", None)
    assert explain_issue(issue("SYM-4", waiting=None, status="resting")).code == "resting"


def shown(found: KnownIssue, width: int = 80) -> str:
    return drawn(explain_view(found, explain_issue(found), state_dir=Path("/state")), width=width)


def test_a_blocked_issue_is_shown_with_its_details_and_events() -> None:
    text = shown(issue("SYM-3"))
    check_snapshot("explain_blocked", text)
    pairs = [re.split(r"  +", line, maxsplit=1) for line in text.splitlines()]
    details = {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[0]}
    assert (details["status"], details["state"], details["workspace"]) == ("blocked", "Todo", "/ws/3")
    assert details["malformed"] == ".symphony/skills/bad/SKILL.md:3 (invalid_yaml)"


def test_skills_that_a_session_searches_are_counted() -> None:
    searched = [{"name": f"s{number}", "reason": "search"} for number in range(240)]
    skills = {"listed": [], "dropped": [{"name": "off", "reason": "disabled"}, *searched]}
    assert "not listed  off (disabled), 240 that the session searches\n" in shown(
        issue("SYM-3", skills=skills), width=100
    )


def test_what_happened_again_and_again_is_told_once() -> None:
    again = {"at": "2026-03-01T12:00:00Z", "event": "run_retrying", "message": "no slots"}
    events = [{**again, "at": f"2026-03-01T12:00:0{n}Z"} for n in range(3)]
    other = {"at": "", "event": "run_started", "message": ""}
    text = shown(issue("SYM-3", recent_events=[*events, other]))
    assert "12:00:02  run retrying  no slots (3 times)" in text
    assert text.count("run retrying") == 1
    assert "no slots (3 times)" in shown(issue("SYM-3", recent_events=events))


def test_the_source_is_told_and_foreign_text_stays_text() -> None:
    hostile = "[x] \x1b[2J two\nlines"
    found = issue("SYM-1", daemon=None, title=hostile, issue_identifier=hostile, last_error=hostile)
    text = shown(found)
    assert "No daemon is running. This is read from the tracker and the files." in text
    assert "\x1b" not in text
    assert text.startswith("[x] two lines  [x] two lines\n")


def test_the_log_of_the_agent_can_be_opened_from_where_it_is_shown() -> None:
    logs = {"codex_session_logs": [{"label": "stderr", "path": "logs/r-1.stderr.log", "url": None}]}
    assert "agent's log  /state/logs/r-1.stderr.log\n" in shown(issue("SYM-1", logs=logs))


def busy_issue(**fields: Any) -> KnownIssue:
    """SYM-9, which is blocked, with few details."""
    (row,) = busy()["blocked"]
    identity = {name: row[name] for name in ("issue_id", "issue_identifier", "title")}
    none = {"last_error": None, "skills": None, "workspace": {"path": None}, "attempts": {"runs_started": 0}}
    usual = merged(populated().issue("SYM-3"), {**identity, **none, "generated_at": NOW, "blocked": row})
    return known(usual, **fields)


def test_an_explanation_tells_what_is_used_of_which_budget() -> None:
    document = busy_issue(budgets=BUDGETS, spent={"tokens": 210_000, "turns": 12})
    text = shown(document)
    assert "budget  210.0k of 200.0k tokens, 12 of 30 turns used\n" in text
    assert "today   5.2M of 5.0M tokens used\n" in text
    assert "The budget of 2026-03-01 is used up" in text
    none = {**BUDGETS, "max_tokens_per_issue": None, "max_tokens_per_day": None}
    text = shown(busy_issue(budgets=none, spent={"tokens": 1, "turns": 2}))
    assert "budget  2 of 30 turns used\n" in text
    assert "today" not in text
    assert "budget" not in shown(busy_issue(budgets={**none, "max_turns_per_issue": None}))


def test_an_explanation_shows_the_question_and_every_way_on() -> None:
    block = {"error": "the agent asks", "question": "Which colour?\nRed or blue?", "failure": {"hint": None}}
    text = shown(busy_issue(blocked=block))
    assert "It waits for a person: the agent asks.\n" in text
    text = " ".join(text.split())
    assert 'symphony answer SYM-9 "…"; or change its state' in text
    assert "asks Which colour? Red or blue?" in text


def test_a_way_on_is_not_told_twice() -> None:
    hint = "run `symphony unblock SYM-9`, or change the issue's state, labels, title or description"
    assert explain_issue(busy_issue(blocked={"error": "used up", "failure": {"hint": hint}})).advice == hint


def test_an_explanation_tells_that_a_run_went_on_with_what_was_begun() -> None:
    run = populated().issue("SYM-1")["running"]
    for resumed, words in (
        (
            {"reason": "interrupted", "thread_id": "t-1"},
            "after it was interrupted: the conversation t-1 goes on",
        ),
        (
            {"reason": "answered", "thread_id": None},
            "after it was answered: a new conversation, with the question",
        ),
    ):
        text = shown(busy_issue(status="running", running={**run, "resumed_from": resumed}, blocked=None))
        assert words in text
    assert "resumed" not in shown(busy_issue(status="running", running=run, blocked=None))


def test_a_retry_under_a_pause_does_not_say_when_it_begins() -> None:
    retry = {**populated().issue("SYM-2")["retry"], "error": "it broke"}
    document = busy_issue(status="retrying", retry=retry, blocked=None, paused=True)
    told = explain_issue(document)
    assert (told.next, told.advice) == (
        "It starts when the daemon is resumed. Running sessions continue.",
        "run: symphony resume",
    )
    assert "Paused: nothing new starts" in shown(document)


def test_phase_and_instructions_are_shown_with_what_took_the_place_of_a_failed_source() -> None:
    instructions = {
        "phase": "TEST",
        "origin": "last_good",
        "sha256": "0" * 64,
        "modules": [{"name": "safety", "sha256": "1" * 64}, {"name": "testing", "sha256": "2" * 64}],
        "dropped": ["stories"],
        "chars": 1234,
        "problems": [PROBLEM],
    }
    phase = {"name": "TEST", "reason": "the label 'tests' (agent.phases.rules[0])"}
    text = shown(issue("SYM-1", phase=phase, instructions=instructions), width=300)
    assert "TEST: the label 'tests' (agent.phases.rules[0])" in text
    line = next(line for line in text.splitlines() if "safety, testing" in line)
    assert all(fact in line for fact in ("1234", "stories", "last_good"))
    assert all(fact in text for fact in ("https://x.example/manifest.yaml", "No answer.", "Mend it."))


PROBLEM = {
    "path": "https://x.example/manifest.yaml",
    "line": None,
    "column": None,
    "code": "unavailable",
    "severity": "error",
    "message": "No answer.",
    "hint": "Mend it.",
}
