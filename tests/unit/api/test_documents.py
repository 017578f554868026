from datetime import timedelta

import pytest
from msgspec.structs import replace

from harness.chronicle import SKILLS, START, Chronicle, conforms, populated
from harness.scheduling import make_failure, make_issue
from symphony.api.documents import issue_document, state_document
from symphony.api.history import History
from symphony.api.models import DroppedSkill
from symphony.domain import Selection, Tokens
from symphony.scheduler import (
    ClaimKind,
    DrainAsked,
    Ineligible,
    PhaseRule,
    Polled,
    Recovered,
    StoredClaim,
    WorkflowRejected,
    WorkspaceRef,
    eligibility,
)

NOON = "2026-03-01T12:00:00Z"


@pytest.mark.conformance("H-2", "O-8")
def test_the_state_is_what_the_stored_schema_says_and_nothing_else() -> None:
    document = populated().document()
    conforms(document, "State")
    assert document["counts"] == {"running": 1, "retrying": 1, "blocked": 1, "waiting": 2, "ready": 0}


@pytest.mark.conformance("H-2")
@pytest.mark.parametrize(
    ("identifier", "status"),
    [
        ("SYM-1", "running"),
        ("SYM-2", "retrying"),
        ("SYM-3", "blocked"),
        ("SYM-4", "waiting"),
        ("a/b ü", "waiting"),
    ],
)
def test_an_issue_is_what_the_stored_schema_says_and_nothing_else(identifier: str, status: str) -> None:
    document = populated().issue(identifier)
    conforms(document, "Issue")
    assert (document["issue_identifier"], document["status"]) == (identifier, status)
    parts = {name for name in ("running", "retry", "blocked", "waiting") if document[name] is not None}
    assert parts == {{"retrying": "retry"}.get(status, status)}


@pytest.mark.conformance("O-8")
def test_a_daemon_that_knows_nothing_has_a_document_too() -> None:
    document = Chronicle().document()
    conforms(document, "State")
    assert document["health"]["status"] == "starting"
    assert document["polling"] == {"checking": False, "next_poll_in_ms": None, "poll_interval_ms": 30_000}


def test_a_running_row_tells_what_the_agent_does_and_since_when() -> None:
    (row,) = populated().document()["running"]
    assert (row["started_at"], row["last_event_at"]) == (NOON, "2026-03-01T12:00:01Z")
    assert (row["stage"], row["turn_count"], row["last_message"]) == ("streaming_turn", 1, "reads")
    assert row["last_words"] == "I look at the page"
    assert row["tokens"] == Tokens(10, 2, 12).counts()
    assert (row["workspace_path"], row["worker_host"]) == ("/ws/1", None)
    assert row["skills"] == {
        "listed": ["greet"],
        "dropped": ["rest"],
        "malformed": [".symphony/skills/bad/SKILL.md"],
    }


def test_an_issue_tells_the_skills_of_its_latest_run_even_when_it_does_not_run() -> None:
    skills = populated().issue("SYM-2")["skills"]
    assert skills["listed"][0]["sha256"] == "ab" * 32
    assert skills["dropped"] == [{"name": "rest", "reason": "count"}]
    assert skills["problems"][0]["code"] == "invalid_yaml"


def test_thousands_that_a_session_searches_are_named_with_the_issue_alone() -> None:
    story = populated()
    found = tuple(DroppedSkill(name=f"s{number}", reason="search") for number in range(2_000))
    story.history.skills_loaded("1", "r", replace(SKILLS, dropped=(*SKILLS.dropped, *found)))
    (row,) = story.document()["running"]
    assert row["skills"]["dropped"] == ["rest"]
    assert len(story.issue("SYM-1")["skills"]["dropped"]) == 2_001


def test_a_new_run_has_no_skills_until_it_was_told_of_them() -> None:
    story = populated()
    story.slow = False
    story.answer()
    story.advance(10_001)
    assert story.issue("SYM-2")["status"] == "running"
    assert story.issue("SYM-2")["skills"] is None


def test_the_reason_of_a_waiting_issue_is_in_the_words_of_the_policy() -> None:
    story = populated()
    waiting = {row["issue_identifier"]: row["reason"] for row in story.document()["waiting"]}
    verdict = eligibility(story.state.candidates["4"], story.state)
    assert isinstance(verdict, Ineligible)
    assert waiting["SYM-4"] == {"code": verdict.code.value, "message": verdict.message}
    assert waiting["a/b ü"]["code"] == "starting"
    assert story.issue("SYM-4")["waiting"] == {"reason": waiting["SYM-4"]}


def test_an_issue_whose_refresh_failed_waits_for_the_next_poll() -> None:
    story = Chronicle(make_issue("1"))
    story.slow = True
    story.begin()
    story.answer_poll()
    story.fail_refresh()
    assert story.issue("SYM-1")["waiting"]["reason"]["code"] == "deferred"


def test_a_retry_tells_when_it_is_due_and_what_went_wrong() -> None:
    story = populated()
    (row,) = story.document()["retrying"]
    assert (row["attempt"], row["error"]) == (1, "turn_failed: it broke")
    assert row["due_at"] == "2026-03-01T12:00:11Z"
    issue = story.issue("SYM-2")
    assert issue["attempts"] == {
        "number": 2,
        "limit": 4,
        "restart_count": 0,
        "current_retry_attempt": 1,
        "runs_started": 1,
    }
    assert issue["last_error"] == "turn_failed: it broke"
    assert issue["workspace"] == {"path": "/ws/2", "host": None, "branch": None}


def test_a_blocked_issue_tells_what_a_person_is_asked() -> None:
    story = populated()
    (row,) = story.document()["blocked"]
    assert (row["error"], row["failure"]["hint"]) == ("the agent needs a person", "answer it")
    assert (row["session_id"], row["last_message"]) == ("t-3", "reads")
    assert story.issue("SYM-3")["last_error"] == "turn_input_required: the agent needs a person"


@pytest.mark.conformance("O-6")
def test_totals_count_ended_and_live_runs_once_each() -> None:
    story = populated()
    before = story.document()["codex_totals"]
    assert before["total_tokens"] == 36
    story.advance(2_000)
    after = story.document()["codex_totals"]
    assert after["total_tokens"] == 36
    assert after["seconds_running"] == pytest.approx(before["seconds_running"] + 2)
    assert story.document()["rate_limits"] == {"limitId": "five_hours"}


def test_health_says_what_keeps_the_daemon_from_its_work() -> None:
    story = Chronicle()
    story.slow = True
    story.begin()
    story.fail_poll()
    failed = story.document()["health"]
    assert (failed["status"], failed["poll_failure"]["message"]) == ("degraded", "no answer")
    story.slow = False
    story.advance(30_000)
    well = story.document()["health"]
    assert (well["status"], well["poll_failure"]) == ("ok", None)
    assert well["last_poll_at"] == "2026-03-01T12:00:30Z"
    story.tell(WorkflowRejected(failure=make_failure("bad", where="WORKFLOW.md:3")))
    held = story.document()["health"]
    assert (held["status"], held["workflow_failure"]["where"]) == ("degraded", "WORKFLOW.md:3")
    story.tell(DrainAsked())
    assert story.document()["health"]["status"] == "draining"


def test_health_names_the_records_that_cannot_be_read() -> None:
    story = Chronicle()
    story.slow = True
    story.begin()
    bad = make_failure("bad YAML", where="SYM-9.md:2", hint="correct the file")
    story.tell(Polled(request=story.polls.pop().request, issues=(), skipped_records=(bad,)))
    document = story.document()
    conforms(document, "State")
    assert document["health"]["skipped_records"] == [
        {
            "code": bad.category.value,
            "where": "SYM-9.md:2",
            "message": "bad YAML",
            "hint": "correct the file",
        }
    ]
    assert document["health"]["status"] == "ok"


def test_an_identifier_is_compared_exactly() -> None:
    story = populated()
    for almost in ("sym-1", "SYM-1 ", "1", "a_b ü", ""):
        found = issue_document(story.state, story.history, almost, now_ms=story.now, now=story.wall())
        assert found is None, almost


def test_a_waiting_issue_shows_the_workspace_it_left() -> None:
    story = Chronicle(make_issue("1", dispatchable=False))
    story.begin(WorkspaceRef(issue_id="1", identifier="SYM-1", path="/ws/1"))
    assert story.issue("SYM-1")["workspace"]["path"] == "/ws/1"


def test_recent_events_tell_decisions_and_words_in_order() -> None:
    events = [one["event"] for one in populated().issue("SYM-2")["recent_events"]]
    assert events == ["run_started", "item", "run_ended", "run_retrying"]


def test_a_session_log_is_named_below_the_state_directory_once_there_is_an_agent() -> None:
    story = populated()
    run_id = story.run_id("1")
    (log,) = story.issue("SYM-1")["logs"]["codex_session_logs"]
    assert log == {"label": "stderr", "path": f"logs/{run_id}.stderr.log", "url": None}
    assert story.issue("SYM-4")["logs"]["codex_session_logs"] == []


# --- time ---


def test_a_jump_of_the_wall_clock_moves_nothing_that_has_happened() -> None:
    story = populated()
    story.jump = timedelta(hours=5)
    document = story.document()
    assert document["generated_at"] == "2026-03-01T17:00:01Z"
    assert document["running"][0]["started_at"] == NOON
    assert document["blocked"][0]["blocked_at"] == "2026-03-01T12:00:01Z"
    assert document["retrying"][0]["due_at"] == "2026-03-01T17:00:11Z", "it fires by the monotonic clock"


@pytest.mark.parametrize("without_history", [False, True])
def test_a_block_of_before_the_restart_is_shown_since_when_it_began(*, without_history: bool) -> None:
    story = Chronicle(make_issue("1"))
    claim = StoredClaim(
        issue=make_issue("1"), kind=ClaimKind.BLOCKED, failure=make_failure(), since_ms=-3_600_000
    )
    story.tell(Recovered(claims=(claim,)))
    if without_history:
        story.history = History()
    else:
        story.jump = timedelta(hours=5)
    document = story.document()
    assert [row["blocked_at"] for row in document["blocked"]] == ["2026-03-01T11:00:00Z"]
    conforms(document, "State")


def test_times_do_not_flicker_when_two_clocks_are_read_one_after_the_other() -> None:
    story = populated()
    seen = set()
    for late_us in (0, 400_000, 499_999, 600_000):
        now = story.wall() + timedelta(microseconds=late_us)
        document = state_document(story.state, story.history, now_ms=story.now, now=now)
        seen.add(document.retrying[0].due_at)
    assert len(seen) == 1


def test_without_a_history_times_are_as_they_look_from_now() -> None:
    story = populated()
    document = state_document(story.state, History(), now_ms=story.now, now=story.wall())
    conforms(document, "State")
    assert document.running[0].started_at == NOON
    assert document.running[0].skills is None
    issue = issue_document(story.state, History(), "SYM-1", now_ms=story.now, now=story.wall())
    assert issue is not None
    conforms(issue, "Issue")
    assert issue.recent_events == ()


def test_times_are_utc_whatever_the_zone_of_the_clock() -> None:
    story = populated()
    local = story.wall().astimezone(tz=None)
    document = state_document(story.state, story.history, now_ms=story.now, now=local)
    assert document.generated_at == "2026-03-01T12:00:01Z"
    assert START.isoformat().startswith("2026-03-01T12:00:00")


def test_a_large_board_is_judged_issue_by_issue_and_not_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Chronicle(
        *(make_issue(str(number), priority=3) for number in range(5_000)), max_concurrent_agents=1
    ).begin()
    calls = 0
    judge = eligibility

    def counted(*arguments: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        return judge(*arguments, **named)  # type: ignore[arg-type] # passed on as they came

    monkeypatch.setattr("symphony.api.documents.eligibility", counted)
    document = story.document()
    assert document["counts"]["waiting"] == 4_999
    assert calls == 4_999
    story.issue("SYM-4999")
    assert calls == 5_000, "one issue is judged for one issue"


# --- a part of the board ---


def large() -> Chronicle:
    """One slot, which the first of six issues has; one of them is held back."""
    issues = [make_issue(str(number), state="Todo" if number < 4 else "Doing") for number in range(1, 6)]
    held = make_issue("6", dispatchable=False, not_dispatchable_reason="assigned to a person")
    story = Chronicle(*issues, held, max_concurrent_agents=1, active_states=frozenset({"todo", "doing"}))
    story.begin()
    return story


def test_a_bounded_document_lists_who_starts_first_and_counts_all() -> None:
    whole, some = large().document(), large().document(Selection(limit=2))
    conforms(some, "State")
    assert some["waiting"] == whole["waiting"][:2]
    assert (some["waiting_left_out"], whole["waiting_left_out"]) == (3, 0)
    for document in (whole, some):
        assert document["counts"]["waiting"] == 5
        assert document["waiting_by_reason"] == {"no_slot": 4, "not_dispatchable": 1}
        assert len(document["running"]) == 1


@pytest.mark.parametrize(
    ("only", "listed"),
    [
        (Selection(states=frozenset({"doing"})), [0, 2]),
        (Selection(states=frozenset({" TODO ", "none"})), [1, 3]),
        (Selection(codes=frozenset({"not_dispatchable"})), [0, 1]),
        (Selection(codes=frozenset({"running"})), [1, 0]),
        (Selection(codes=frozenset({"no_slot"}), states=frozenset({"Doing"}), limit=1), [0, 1]),
        (Selection(limit=0), [1, 0]),
    ],
)
def test_issues_are_chosen_by_state_and_by_code(only: Selection, listed: list[int]) -> None:
    document = large().document(only)
    assert [len(document["running"]), len(document["waiting"])] == listed
    assert document["counts"] == {"running": 1, "retrying": 0, "blocked": 0, "waiting": 5, "ready": 0}


def test_a_row_has_the_phase_of_its_turn_or_of_a_turn_that_started_now() -> None:
    rules = (PhaseRule(phase="TEST", label="tests"),)
    issues = (make_issue(), make_issue("2", labels=("tests",)))
    story = Chronicle(*issues, phase="PLAN", phase_rules=rules, max_concurrent_agents=1)
    story.begin().streams()
    document = story.document()
    conforms(document, "State")
    assert [row["phase"]["name"] for row in document["running"]] == ["PLAN"]
    assert [row["phase"]["name"] for row in document["waiting"]] == ["TEST"]
    story.put("1", labels=("tests",))
    assert story.issue("SYM-1")["phase"]["name"] == "PLAN", "a running turn keeps its phase"
    story.turn_ends()
    assert story.issue("SYM-1")["phase"]["name"] == "TEST"
    assert "tests" in story.issue("SYM-1")["running"]["phase"]["reason"]
