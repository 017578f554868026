"""The answer to "why is it (not) running?", and how it is shown."""

from pathlib import Path
from typing import Any

import pytest

from harness.chronicle import populated
from harness.pictures import drawn, known
from symphony.cli.commands.explain import explain_view
from symphony.cli.documents import KnownIssue
from symphony.cli.failures import CommandError
from symphony.cli.queries import resolve_issue, unknown_issue
from symphony.cli.render.reasons import ADVICE, explained
from symphony.scheduler import ReasonCode


def issue(identifier: str, **changes: Any) -> KnownIssue:
    return known(populated().issue(identifier), **changes)


def test_every_reason_that_the_scheduler_gives_has_a_next_step() -> None:
    assert set(ADVICE) == {code.value for code in ReasonCode} | {"starting", "deferred"}


@pytest.mark.parametrize(
    ("identifier", "code", "answer"),
    [
        ("SYM-1", "running", "An agent is at work: turn 1, begun 1 s ago, last sign of life now."),
        ("SYM-2", "retrying", "It waits for attempt 2 of 4, after: turn_failed: it broke."),
        ("SYM-3", "blocked", "It waits for a person: the agent needs a person."),
        ("SYM-4", "not_dispatchable", "It is not running: assigned to a person."),
    ],
)
def test_each_status_has_its_answer(identifier: str, code: str, answer: str) -> None:
    told = explained(issue(identifier))
    assert (told.code, told.answer, told.running) == (code, answer, code == "running")
    assert told.next


def test_a_retry_tells_when_and_a_block_what_to_do() -> None:
    assert explained(issue("SYM-2")).next == (
        "That attempt begins in 10 s, if there is a slot (2026-03-01T12:00:11Z)."
    )
    told = explained(issue("SYM-3"))
    assert told.since == "2026-03-01T12:00:01Z"
    assert told.advice == (
        'answer it by a comment on the issue, or: symphony answer SYM-3 "…"; '
        "or change its state, labels, title or description"
    )


def test_a_retry_without_a_slot_still_tells_what_the_last_run_failed_of() -> None:
    retry = {"attempt_number": 3, "attempt_limit": 5, "error": "no available orchestrator slots"}
    told = explained(issue("SYM-2", retry=retry))
    assert told.answer == (
        "It waits for attempt 3 of 5, after: turn_failed: it broke; then: no available orchestrator slots."
    )


def test_a_question_is_not_introduced_twice() -> None:
    block = {"error": "the agent needs a person: the agent asks: Which colour?"}
    told = explained(issue("SYM-3", blocked=block))
    assert told.answer == "It waits for a person: the agent asks: Which colour?"


def test_what_failed_of_nothing_goes_on_whoever_wants_it() -> None:
    """After a clean end, an answer, an operator's order or a restart."""
    retry = {"attempt": 1, "due_at": "2026-03-01T12:00:00Z", "error": None}
    told = explained(issue("SYM-2", retry=retry))
    assert told.answer == "It goes on, if it is still active."
    assert told.next.startswith("It is looked at once more now")


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"stopping": "stalled"}, "An agent is being stopped (stalled)."),
        (
            {"session_id": None, "last_event_at": None, "stage": "preparing_workspace"},
            "A run has begun 1 s ago; it is preparing workspace.",
        ),
    ],
)
def test_a_run_that_begins_or_ends_says_so(changes: dict[str, Any], answer: str) -> None:
    assert explained(issue("SYM-1", running=changes)).answer == answer


def test_without_a_daemon_nothing_happens_before_there_is_one() -> None:
    told = explained(issue("SYM-4", daemon=None, source="files"))
    assert told.next == "Nothing before a daemon runs."
    assert told.advice == "settle what it waits for, in the tracker; start a daemon: symphony run"
    over = {"reason": {"code": "terminal", "message": "state 'Done' is terminal"}}
    ended = explained(issue("SYM-4", daemon=None, status="inactive", waiting=over))
    assert (ended.code, ended.next) == ("terminal", "Nothing, as long as it stays like this.")


def test_what_is_only_remembered_needs_a_daemon_first() -> None:
    retry = {"attempt": 1, "due_at": "2026-03-01T12:00:00Z", "error": None}
    told = explained(issue("SYM-2", retry=retry, daemon=None, source="files"))
    assert (told.next, told.advice) == ("Nothing before a daemon runs.", "start a daemon: symphony run")
    told = explained(issue("SYM-3", daemon=None, source="files"))
    assert told.advice is not None
    assert told.advice.startswith(
        "start a daemon: symphony run; answer it by a comment on the issue, or: "
        'symphony answer SYM-3 "…"; or '
    )


def test_a_reason_of_another_version_is_shown_as_it_is() -> None:
    odd = explained(issue("SYM-4", waiting={"reason": {"code": "new", "message": "why not!"}}))
    assert (odd.code, odd.answer, odd.advice) == ("new", "It is not running: why not!", None)
    assert explained(issue("SYM-4", waiting=None, status="resting")).code == "resting"


BLOCKED = """\
SYM-3  Title 3

It waits for a person: the agent needs a person.
Next: Nothing, as long as it stays like this.
You can: answer it by a comment on the issue, or: symphony answer SYM-3 "…"; or
change its state, labels, title or description

status      blocked
state       Todo
since       2026-03-01T12:00:01Z
runs        1 since the daemon began
agent       codex: the default (agent.kind)
workspace   /ws/3
last error  turn_input_required: the agent needs a person
skills      greet
not listed  rest (count)
malformed   .symphony/skills/bad/SKILL.md:3 (invalid_yaml)

What happened last (UTC)
  12:00:00  run_started    attempt 1 of 3, by codex: the default (agent.kind)
  12:00:01  item           reads
  12:00:01  run_ended      turn_input_required: the agent needs a person
  12:00:01  issue_blocked  turn_input_required: the agent needs a person
"""


def shown(found: KnownIssue, width: int = 80) -> str:
    return drawn(explain_view(found, explained(found), state_dir=Path("/state")), width=width)


def test_the_picture_of_a_blocked_issue() -> None:
    assert shown(issue("SYM-3")) == BLOCKED


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
    assert "12:00:02  run_retrying  no slots (3 times)" in text
    assert text.count("run_retrying") == 1
    assert "no slots (3 times)" in shown(issue("SYM-3", recent_events=events))


def test_the_source_is_told_and_foreign_text_stays_text() -> None:
    hostile = "[x] \x1b[2J two\nlines"
    found = issue("SYM-1", daemon=None, title=hostile, issue_identifier=hostile, last_error=hostile)
    text = shown(found)
    assert "No daemon is running; this is what the tracker and the files say." in text
    assert "\x1b" not in text
    assert text.startswith("[x] two lines  [x] two lines\n")


def test_the_log_of_the_agent_can_be_opened_from_where_it_is_shown() -> None:
    logs = {"codex_session_logs": [{"label": "stderr", "path": "logs/r-1.stderr.log", "url": None}]}
    assert "agent's log  /state/logs/r-1.stderr.log\n" in shown(issue("SYM-1", logs=logs))


def test_a_name_means_the_exact_issue_or_the_only_one_that_differs_by_case() -> None:
    told = {"SYM-1": "one", "SYM-2": "two", "sym-2": "small", "SYM-4": None}
    ask, known = told.get, lambda: list(told)
    assert resolve_issue("SYM-2", ask, known) == "two"
    assert resolve_issue("sym-2", ask, known) == "small"
    assert resolve_issue("sym-1", ask, known) == "one"
    for name in ("Sym-2", "sym-4", "sym-9"):
        with pytest.raises(CommandError, match=f"there is no issue '{name}'"):
            resolve_issue(name, ask, known)


@pytest.mark.parametrize(
    ("identifier", "known", "hint"),
    [
        ("sym-12", ["SYM-12", "SYM-1", "OPS-9"], "did you mean SYM-12? Identifiers are compared exactly"),
        ("SYM-13", ["SYM-12", "SYM-1", "OPS-9"], "did you mean SYM-1, SYM-12?"),
        ("nothing", ["SYM-2", "SYM-1"], "the tracker lists SYM-1, SYM-2"),
        (
            "nothing",
            [f"SYM-{n}" for n in range(9)],
            "the tracker lists SYM-0, SYM-1, SYM-2, SYM-3, SYM-4 and 4 more",
        ),
        (
            "nothing",
            [],
            "the tracker lists no issue in an active state; `symphony status` shows what is known",
        ),
    ],
)
def test_an_unknown_issue_is_told_with_what_may_be_meant(
    identifier: str, known: list[str], hint: str
) -> None:
    assert unknown_issue(identifier, known).failure.hint == hint
