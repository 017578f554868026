from typing import Any

import pytest

from harness.scheduling import Story, make_failure, make_issue, make_settings
from symphony.domain import Blame, Blocker, Category
from symphony.scheduler import (
    CONTINUATION_DELAY_MS,
    CleanWorkspace,
    Notify,
    OutcomeKind,
    SettingsChanged,
    StartRun,
    WakeAsked,
    WorkflowRejected,
    policy,
)


def _running(*others: Any, **settings: Any) -> Story:
    """Issue 1 has an agent in its first turn."""
    return Story(make_issue(), *others, **settings).begin().streams().forget()


def _retry(story: Story, issue_id: str = "1") -> tuple[int, int, str | None]:
    """Attempt, wait in ms and error of the waiting claim."""
    retry = story.state.retrying[issue_id]
    return retry.attempt, retry.due_ms - story.now, retry.error


# --- ends and retries ------------------------------------------------------------------------------------


@pytest.mark.conformance("S-8")
def test_a_clean_end_rechecks_the_issue_after_a_second() -> None:
    story = _running()
    story.ends()
    assert _retry(story) == (1, CONTINUATION_DELAY_MS, None)
    assert story.state.completed == {"1"}
    story.forget().advance(999)
    assert not story.said(StartRun)
    story.advance(1)
    assert [start.attempt for start in story.said(StartRun)] == [1]


@pytest.mark.conformance("S-9", "S-10")
def test_consecutive_failures_wait_longer_each_time() -> None:
    story = Story(make_issue(), poll_interval_ms=10_000_000).begin()
    waits = []
    for attempt in range(1, 8):
        story.fails()
        number, wait_ms, error = _retry(story)
        assert (number, error) == (attempt, "turn_failed: it broke")
        waits.append(wait_ms)
        story.advance(wait_ms)
    assert waits == [10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000]


@pytest.mark.conformance("S-9")
def test_a_continuation_that_fails_is_attempt_two() -> None:
    story = _running()
    story.ends().advance(1_000)
    story.fails()
    assert _retry(story)[:2] == (2, 20_000)


@pytest.mark.conformance("S-8")
def test_a_clean_end_resets_the_attempt_number() -> None:
    story = _running()
    story.fails().advance(10_000)
    story.fails().advance(20_000)
    story.ends()
    assert _retry(story)[:2] == (1, 1_000)


@pytest.mark.conformance("S-9")
def test_the_cap_of_the_settings_holds_for_later_retries() -> None:
    story = _running(max_retry_backoff_ms=4_000)
    story.fails()
    assert _retry(story)[1] == 4_000


def test_a_wait_that_the_other_side_asked_for_is_respected() -> None:
    story = _running()
    story.fails(failure=make_failure(retry_after_ms=45_000))
    assert _retry(story)[1] == 45_000


@pytest.mark.parametrize("kind", [OutcomeKind.FAILED, OutcomeKind.TIMED_OUT, OutcomeKind.CANCELED])
def test_an_end_without_a_reason_gets_one(kind: OutcomeKind) -> None:
    story = _running()
    story.ends(kind=kind)
    assert _retry(story)[2] == f"internal: the run ended as {kind.value}"


def test_each_step_of_a_run_is_one_line_in_the_log() -> None:
    story = _running()
    story.streams(turn_count=3)
    story.put("1", state="Backlog")
    story.tell(WakeAsked(reason="t"))
    story.ends(kind=OutcomeKind.CANCELED)
    assert [notice.event for notice in story.said(Notify)] == ["run_stopping", "run_ended", "claim_released"]
    stopping, ended, _ = story.said(Notify)
    assert stopping.fields["reason"] == "inactive"
    assert (ended.level, ended.issue_id, ended.issue_identifier) == ("warning", "1", "SYM-1")
    assert dict(ended.fields) == {
        "run_id": stopping.fields["run_id"],
        "session_id": "n/a",
        "outcome": "canceled",
        "reason": "inactive",
        "hint": None,
        "turns": 3,
        "commits": 0,
        "agent": "codex",
        "agent_reason": "the default (agent.kind)",
        "host": None,
    }


def test_a_retry_says_which_attempt_comes_when_and_why() -> None:
    story = _running()
    story.fails()
    (ended,), (retrying,) = story.notices("run_ended"), story.notices("run_retrying")
    assert ended.fields["reason"] == "turn_failed: it broke"
    assert (retrying.fields["attempt"], retrying.fields["delay_ms"]) == (1, 10_000)
    assert retrying.fields["reason"] == "turn_failed: it broke"


def test_a_clean_end_is_logged_and_its_continuation_is_not() -> None:
    story = _running()
    story.ends()
    assert story.notices("run_ended")[0].level == "info"
    assert story.notices("run_ended")[0].fields["reason"] is None
    assert not story.notices("run_retrying")


def test_an_attempt_that_ends_early_keeps_the_workspace_of_the_one_before() -> None:
    story = _running()
    story.fails().advance(10_000)
    story.report(workspace_path=None).fails()
    assert story.state.retrying["1"].workspace_path == "/ws/1"
    story.put("1", state="Done")
    story.advance(20_000)
    assert [clean.path for clean in story.said(CleanWorkspace)] == ["/ws/1"]


def test_the_workspace_of_a_released_issue_is_reused() -> None:
    story = _running()
    story.put("1", state="Backlog")
    story.tell(WakeAsked(reason="t"))
    story.ends(kind=OutcomeKind.CANCELED)
    story.put("1", state="Todo")
    story.tell(WakeAsked(reason="t"))
    story.fails()
    assert story.state.retrying["1"].workspace_path == "/ws/1"


# --- a due retry -----------------------------------------------------------------------------------------


def _due(**settings: Any) -> Story:
    """Issue 1 waits for attempt 1 after a failure, due at 10 s."""
    story = _running(**{"poll_interval_ms": 10_000_000} | settings)
    story.fails().forget()
    return story


@pytest.mark.conformance("S-13")
def test_a_due_retry_starts_on_a_fresh_snapshot() -> None:
    story = _due()
    story.put("1", title="Reworded")
    story.advance(10_000)
    (start,) = story.said(StartRun)
    assert (start.attempt, start.issue.title) == (1, "Reworded")
    assert not story.state.retrying


@pytest.mark.conformance("S-13")
def test_a_due_retry_of_an_ended_issue_cleans_and_releases() -> None:
    story = _due()
    story.put("1", state="Done")
    story.advance(10_000)
    assert story.said(CleanWorkspace) == [CleanWorkspace(issue_id="1", identifier="SYM-1", path="/ws/1")]
    assert not story.state.retrying


@pytest.mark.conformance("S-13")
@pytest.mark.parametrize("changes", [{"state": "Backlog"}, {"dispatchable": False}, None], ids=str)
def test_a_due_retry_of_an_issue_that_left_is_released(changes: dict[str, Any] | None) -> None:
    story = _due()
    if changes is None:
        del story.board["1"]
    else:
        story.put("1", **changes)
    story.advance(10_000)
    assert not story.state.retrying
    assert not story.said(StartRun)
    assert not story.said(CleanWorkspace)
    assert story.notices("claim_released")


@pytest.mark.conformance("S-13", "S-10")
def test_a_due_retry_that_cannot_be_refreshed_waits_longer() -> None:
    story = _due()
    story.slow = True
    story.advance(10_000)
    story.fail_refresh()
    assert _retry(story) == (2, 20_000, "retry refresh failed: no answer")
    assert not story.state.retrying["1"].refreshing
    told = story.notices("run_retrying")[0].fields
    assert (told["attempt"], told["delay_ms"]) == (2, 20_000)
    assert told["reason"] == "retry refresh failed: no answer"
    assert told["attempt_number"] == 2, "a wait is no attempt"
    story.slow = False
    story.forget().advance(20_000)
    assert [start.attempt for start in story.said(StartRun)] == [2]


@pytest.mark.conformance("S-12")
def test_a_due_retry_without_a_slot_waits_longer() -> None:
    story = Story(make_issue(), make_issue("2", priority=4), max_concurrent_agents=1).begin()
    story.fails()
    assert story.state.running.keys() == {"2"}, "a freed slot is filled at once"
    story.advance(10_000)
    assert _retry(story) == (2, 20_000, "no available orchestrator slots")


@pytest.mark.conformance("S-12")
def test_a_continuation_without_a_slot_of_its_state_waits_twenty_seconds() -> None:
    limits = {"todo": 1}
    story = Story(make_issue(), make_issue("2", priority=4), max_concurrent_by_state=limits).begin()
    story.ends().advance(1_000)
    assert _retry(story) == (2, 20_000, "no available orchestrator slots")


def test_a_due_retry_waits_for_a_repaired_workflow_and_keeps_its_number() -> None:
    story = _due(poll_interval_ms=30_000)
    story.tell(WorkflowRejected(failure=make_failure()))
    story.advance(10_000)
    assert _retry(story) == (1, 30_000, "turn_failed: it broke")
    assert not story.state.retrying["1"].refreshing
    story.tell(SettingsChanged(settings=make_settings()))
    story.advance(30_000)
    assert [start.attempt for start in story.said(StartRun)] == [1]


def test_a_snapshot_from_before_a_retry_was_due_does_not_decide_on_it() -> None:
    story = _running(make_issue("2"))
    story.slow = True
    story.tell(WakeAsked(reason="t"))
    story.ends()
    story.advance(1_000)
    story.answer_refresh()
    assert story.state.retrying["1"].refreshing
    story.put("1", state="Done")
    story.forget().answer()
    assert not story.said(StartRun)
    assert not story.state.retrying


def test_a_due_retry_waits_for_the_run_of_its_blocker_and_keeps_its_number() -> None:
    story = Story(make_issue(), make_issue("2"), poll_interval_ms=10_000_000).begin().forget()
    assert set(story.state.running) == {"1", "2"}
    story.fails("2")
    attempt, wait_ms, _ = _retry(story, "2")
    story.put("2", blocked_by=(Blocker(id="1", identifier="MT-1", state="Done"),))
    story.advance(wait_ms)
    assert story.said(StartRun) == []
    assert _retry(story, "2")[:2] == (attempt, 10_000_000)


# --- a workspace that somebody deleted -------------------------------------------------------------------


def test_a_vanished_workspace_costs_no_attempt() -> None:
    story = _running(max_attempts_without_progress=1)
    gone = make_failure(category=Category.WORKSPACE_VANISHED, blame=Blame.WORKSPACE)
    story.fails(failure=gone, progress=False)
    attempt, wait_ms, error = _retry(story)
    assert (attempt, wait_ms) == (1, 10_000)
    assert error is not None
    assert error.startswith("workspace_vanished: ")
    assert story.state.retrying["1"].attempts_without_progress == 0


def test_a_workspace_that_vanishes_twice_counts_as_a_failure() -> None:
    story = _running(max_attempts_without_progress=2)
    gone = make_failure(category=Category.WORKSPACE_VANISHED, blame=Blame.WORKSPACE)
    story.fails(failure=gone, progress=False).advance(10_000)
    story.streams().fails(failure=gone, progress=False)
    assert (_retry(story)[0], story.state.retrying["1"].attempts_without_progress) == (2, 1)
    story.advance(_retry(story)[1])
    story.streams().fails(failure=gone, progress=False)
    assert "1" in story.state.blocked, "an agent that deletes its own workspace does not go on for ever"


# --- attempts as people count them -----------------------------------------------------------------------


def _told(story: Story) -> str:
    number, last = policy.attempt_numbers(story.state.retrying["1"], story.state.settings)
    return f"{number} of {last}"


def test_attempts_are_counted_up_to_the_last_one_before_a_block() -> None:
    story = Story(make_issue(), max_attempts_without_progress=3, poll_interval_ms=10_000_000).begin()
    seen = []
    while run := story.state.running.get("1"):
        seen.append(policy.attempt_numbers(run, story.state.settings))
        story.fails(progress=False).advance(1_000_000)
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert "1" in story.state.blocked


def test_progress_moves_the_last_attempt_and_waits_for_a_slot_do_not_count() -> None:
    story = Story(make_issue(), max_attempts_without_progress=3, poll_interval_ms=10_000_000).begin()
    story.fails(progress=False)
    assert _told(story) == "2 of 3"
    story.advance(1_000_000).fails(progress=True)
    assert _told(story) == "3 of 5"
    story.advance(1_000_000).ends(progress=False)
    assert _told(story) == "4 of 5", "after a clean end as well"
    story.slow = True
    story.advance(1_000)
    story.fail_refresh()
    assert _told(story) == "4 of 5"


def test_a_lowered_limit_still_allows_the_next_attempt() -> None:
    story = Story(make_issue(), poll_interval_ms=10_000_000).begin()
    story.fails(progress=False).advance(1_000_000).fails(progress=False)
    story.tell(SettingsChanged(settings=make_settings(max_attempts_without_progress=1)))
    assert _told(story) == "3 of 3"
