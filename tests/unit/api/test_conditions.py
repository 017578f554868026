"""What all work is under, and what an agent asks, as the API tells it."""

import pytest
from msgspec import structs

from harness.chronicle import Chronicle, conforms, populated, sent
from harness.scheduling import make_failure, make_issue
from symphony.api import models
from symphony.api.conditions import conditions
from symphony.api.documents import issue_document, state_document
from symphony.domain import Category, Spent, Tokens
from symphony.journal.model import HealthState, JournalStatus
from symphony.scheduler import (
    ClaimKind,
    DayBegan,
    OperatorAction,
    OperatorAsked,
    Outcome,
    OutcomeKind,
    Recovered,
    Resume,
    ResumeReason,
    RunEnded,
    StoredClaim,
    Thread,
)

FULL = JournalStatus(
    state=HealthState.MEMORY,
    failure=make_failure("the disk is full", category=Category.JOURNAL, hint="make room"),
)


@pytest.mark.parametrize(
    ("health", "told", "status"),
    [
        (None, None, "ok"),
        (JournalStatus(state=HealthState.OK), {"state": "ok", "reason": None, "hint": None}, "ok"),
        (FULL, {"state": "memory", "reason": "the disk is full", "hint": "make room"}, "degraded"),
    ],
)
def test_whether_a_restart_would_forget_anything(
    health: JournalStatus | None, told: dict[str, object] | None, status: str
) -> None:
    story = populated()
    document = sent(
        state_document(story.state, story.history, now_ms=story.now, now=story.wall(), journal=health)
    )
    conforms(document, "State")
    assert (document["journal"], document["health"]["status"]) == (told, status)
    issue = issue_document(
        story.state, story.history, "SYM-1", now_ms=story.now, now=story.wall(), journal=health
    )
    assert issue is not None
    conforms(issue, "Issue")
    assert sent(issue)["journal"] == told


def test_a_pause_and_a_drain() -> None:
    story = populated()
    assert (story.document()["paused"], story.document()["drain"]) == (False, "no")
    story.tell(OperatorAsked(action=OperatorAction.PAUSE))
    assert (story.document()["paused"], story.issue("SYM-1")["paused"]) == (True, True)
    story.tell(OperatorAsked(action=OperatorAction.DRAIN))
    assert story.document()["drain"] == "draining"


def test_what_was_used_of_which_budget() -> None:
    story = Chronicle(
        make_issue("1"), max_tokens_per_day=1_000, max_tokens_per_issue=100, max_turns_per_issue=7
    )
    story.tell(DayBegan(day="2026-03-01"))
    story.begin()
    story.streams("1", turn_count=1, total_tokens=40, cost_usd=0.02, unpriced_tokens=5)
    document = story.document()
    conforms(document, "State")
    assert document["budgets"] == {
        "day": "2026-03-01",
        "day_tokens": 40,
        "day_cost_usd": 0.02,
        "day_unpriced_tokens": 5,
        "used_up_by": None,
        "max_tokens_per_day": 1_000,
        "max_tokens_per_issue": 100,
        "max_turns_per_issue": 7,
        "max_turns_without_progress": 2,
        "max_attempts_without_progress": 3,
    }
    assert story.issue("SYM-1")["spent"] == {"tokens": 40, "turns": 1}
    story.streams("1", turn_count=1, total_tokens=140)
    story.tell(RunEnded(run_id=story.run_id("1"), outcome=Outcome(kind=OutcomeKind.CANCELED)))
    (row,) = story.document()["blocked"]
    assert (row["failure"]["code"], row["spent"]) == ("budget_issue", {"tokens": 140, "turns": 1})
    assert "symphony unblock SYM-1" in row["failure"]["hint"]


def test_how_the_tracker_answers() -> None:
    story = Chronicle(make_issue("1"))
    closed = {
        "circuit": "closed",
        "failures_in_a_row": 0,
        "until": None,
        "asks_next_at": None,
        "last_error": None,
    }
    story.slow = True
    story.begin()
    assert story.document()["tracker"] == closed
    story.fail_poll(make_failure("502 Bad Gateway", category=Category.TRACKER_STATUS))
    tracker = story.document()["tracker"]
    assert tracker == {
        **closed,
        "failures_in_a_row": 1,
        "asks_next_at": "2026-03-01T12:00:30Z",
        "last_error": "502 Bad Gateway",
    }
    story.advance(30_000)
    story.fail_poll(make_failure("503", category=Category.TRACKER_STATUS))
    conforms(story.document(), "State")
    tracker = story.document()["tracker"]
    assert (tracker["circuit"], tracker["failures_in_a_row"], tracker["last_error"]) == ("open", 2, "503")
    assert "2026-03-01T12:00:31Z" <= tracker["until"] <= "2026-03-01T12:00:32Z"
    story.advance(10_000)
    assert story.document()["tracker"] == {**tracker, "circuit": "half_open", "until": None}


def test_what_an_agent_asks_and_whether_its_conversation_goes_on() -> None:
    story = Chronicle(make_issue("1"), make_issue("2")).begin()
    story.streams("1", session_id="t-1", thread_id="t-1", turn_count=1)
    failure = make_failure("it needs a person", category=Category.TURN_INPUT_REQUIRED)
    for issue_id, question in (("1", "Which\ncolour?"), ("2", None)):
        outcome = Outcome(kind=OutcomeKind.INPUT_REQUIRED, failure=failure, question=question)
        story.tell(RunEnded(run_id=story.run_id(issue_id), outcome=outcome))
    first, second = story.document()["blocked"]
    assert (first["question"], first["resumable"]) == ("Which\ncolour?", True)
    assert (second["question"], second["resumable"]) == ("it needs a person", False)
    conforms(story.document(), "State")
    conforms(story.issue("SYM-1"), "Issue")
    assert story.issue("SYM-1")["blocked"]["question"] == "Which\ncolour?"


def test_what_a_run_goes_on_with() -> None:
    thread = Thread(thread_id="t-1", tokens=Tokens(total_tokens=7))
    resume = Resume(reason=ResumeReason.ANSWERED, thread=thread, question="Which?", answer="Blue")
    claim = StoredClaim(issue=make_issue("1"), kind=ClaimKind.RETRYING, attempt=2, resume=resume)
    story = Chronicle(make_issue("1"))
    story.tell(Recovered(claims=(claim,), spent={"1": Spent(tokens=7, turns=2)}))
    story.answer()
    story.advance(1_000)
    document = story.issue("SYM-1")
    conforms(document, "Issue")
    assert document["running"]["resumed_from"] == {"reason": "answered", "thread_id": "t-1"}
    assert document["spent"] == {"tokens": 7, "turns": 2}
    assert "Blue" not in repr(document)
    (row,) = story.document()["running"]
    assert row["resumed_from"] == {"reason": "answered", "thread_id": "t-1"}
    assert populated().issue("SYM-1")["running"]["resumed_from"] is None


@pytest.mark.parametrize(
    ("counts", "tone"),
    [
        (models.OutboxCounts(), None),
        (models.OutboxCounts(waiting=3), None),
        (models.OutboxCounts(waiting=3, failing=2, failure="tracker_status: it has a cold"), "warn"),
        (models.OutboxCounts(failing=2, given_up=1, failure="tracker_status: it has a cold"), "error"),
    ],
    ids=["nothing", "untried", "failing", "given up"],
)
def test_what_does_not_arrive_at_the_tracker(counts: models.OutboxCounts, tone: str | None) -> None:
    story = populated()
    document = state_document(story.state, story.history, now_ms=story.now, now=story.wall())
    document = structs.replace(document, outbox=counts)
    found = [one for one in conditions(document) if "outbox" in (one.hint or "")]
    assert [one.tone for one in found] == ([] if tone is None else [tone])
    assert all("it has a cold" in one.text for one in found)


def test_schedules_tell_what_is_next_and_what_is_not_filed() -> None:
    story = populated()
    document = state_document(story.state, story.history, now_ms=story.now, now=story.wall())
    row = models.Schedule(
        name="nightly",
        cron="0 3 * * *",
        timezone="UTC",
        next_at="2026-12-01T03:00:00Z",
        due=False,
        last_due_at=None,
        skipped=False,
        issue_id=None,
        issue_identifier=None,
        issue_url=None,
        issue_state=None,
        failure=None,
    )
    later = structs.replace(row, name="weekly", next_at="2026-12-06T03:00:00Z", failure="no answer")
    told = conditions(structs.replace(document, schedules=(later, row)))
    found = [(one.tone, name) for one in told for name in ("weekly", "nightly") if name in one.text]
    assert found == [("warn", "weekly"), ("info", "nightly")]
