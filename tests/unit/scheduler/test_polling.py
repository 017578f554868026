from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from harness.scheduling import Story, make_failure, make_issue, make_settings
from symphony.domain import Blame, Blocker, Category, Issue
from symphony.scheduler import (
    CleanWorkspace,
    ContinueRun,
    Cycle,
    Drain,
    DrainAsked,
    FetchCandidates,
    OutcomeKind,
    Polled,
    PollFailed,
    Recovered,
    Refreshed,
    RefreshFailed,
    RefreshIssues,
    SetTimer,
    SettingsChanged,
    StartRun,
    StopRun,
    Timer,
    TimerFired,
    TimerKind,
    WakeAsked,
    WorkflowRejected,
    WorkspaceRef,
    left_over,
    policy,
    run_once_finished,
    would_coalesce,
)

_POLL = Timer(TimerKind.POLL)


def _asked(story: Story) -> list[list[str]]:
    return [sorted(ask.ids) for ask in story.said(RefreshIssues)]


def _wake(story: Story) -> None:
    story.tell(WakeAsked(reason="test"))


def _parked(*ids: str) -> tuple[WorkspaceRef, ...]:
    return tuple(WorkspaceRef(issue_id=key, identifier=f"SYM-{key}", path=f"/ws/SYM-{key}") for key in ids)


# --- the order of a cycle --------------------------------------------------------------------------------


@pytest.mark.conformance("S-7")
def test_with_nothing_to_reconcile_a_cycle_polls_at_once() -> None:
    story = Story()
    story.slow = True
    story.begin()
    assert [type(command) for command in story.told] == [FetchCandidates]


def test_what_runs_is_reconciled_before_the_poll() -> None:
    story = Story(make_issue()).begin()
    story.slow = True
    story.forget()
    _wake(story)
    assert _asked(story) == [["1"]]
    assert not story.said(FetchCandidates)
    story.answer_refresh()
    assert len(story.said(FetchCandidates)) == 1


def test_a_cycle_waits_for_its_own_request_and_not_for_an_older_one() -> None:
    story = Story(make_issue("1"), make_issue("2")).begin()
    story.slow = True
    story.forget().turn_ends("1")
    _wake(story)
    story.answer_refresh()
    assert _asked(story) == [["1"], ["1", "2"]]
    assert not story.said(FetchCandidates)
    story.answer_refresh()
    assert len(story.said(FetchCandidates)) == 1


@pytest.mark.conformance("S-20")
def test_a_candidate_is_refreshed_before_it_starts() -> None:
    story = Story(make_issue("1"), make_issue("2"))
    story.slow = True
    story.begin()
    story.answer_poll()
    assert _asked(story) == [["1", "2"]]
    assert not story.said(StartRun)
    story.answer_refresh()
    assert story.started() == ["SYM-1", "SYM-2"]


@pytest.mark.conformance("S-20")
def test_an_issue_that_changed_since_the_poll_is_not_started() -> None:
    story = Story(make_issue("1"), make_issue("2"), make_issue("3"))
    story.slow = True
    story.begin()
    story.answer_poll()
    story.put("1", state="Done")
    del story.board["2"]
    story.answer_refresh()
    assert story.started() == ["SYM-3"]
    assert story.notices("dispatch_skipped")[0].fields["reason"] == "state 'Done' is terminal"
    assert "2" not in story.state.candidates


@pytest.mark.conformance("S-1")
def test_candidates_start_in_order_while_slots_remain() -> None:
    issues = (
        make_issue("1", priority=3),
        make_issue("2", priority=1),
        make_issue("3", priority=1, created_at=datetime(2024, 1, 1, tzinfo=UTC)),
    )
    story = Story(*issues, max_concurrent_agents=2).begin()
    assert story.started() == ["SYM-3", "SYM-2"]


def test_a_full_state_skips_that_issue_and_not_the_rest() -> None:
    issues = (make_issue("1"), make_issue("2"), make_issue("3", state="In Progress", priority=4))
    story = Story(*issues, max_concurrent_by_state={"todo": 1}).begin()
    assert story.started() == ["SYM-1", "SYM-3"]


def test_limits_hold_over_several_pending_candidates() -> None:
    story = Story(make_issue("1"), max_concurrent_agents=2, max_concurrent_by_state={"todo": 2})
    story.slow = True
    story.begin()
    story.answer_poll()
    story.board |= {key: make_issue(key) for key in "234"}
    _wake(story)
    story.answer_poll()
    assert len(story.state.pending_candidates) == 2
    story.answer()
    assert len(story.started()) == 2


def test_a_pending_candidate_counts_for_its_state_and_may_vanish_from_the_board() -> None:
    story = Story(make_issue("1"), max_concurrent_by_state={"todo": 1})
    story.slow = True
    story.begin()
    story.answer_poll()
    story.board["2"] = make_issue("2")
    _wake(story)
    story.answer_poll()
    assert story.state.pending_candidates == {"1"}
    del story.board["1"]
    _wake(story)
    story.answer_poll()
    assert story.state.pending_candidates == {"1", "2"}
    story.answer()
    assert story.started() == ["SYM-2"]


def test_a_candidate_that_moved_to_a_full_state_is_not_started() -> None:
    issues = (make_issue("1"), make_issue("2", state="In Progress"))
    story = Story(*issues, max_concurrent_by_state={"todo": 1})
    story.slow = True
    story.begin()
    story.answer_poll()
    story.put("2", state="Todo")
    story.answer()
    assert story.started() == ["SYM-1"]


def test_a_freed_slot_is_filled_without_waiting_for_a_poll() -> None:
    story = Story(make_issue("1"), make_issue("2"), max_concurrent_agents=1).begin()
    story.forget().ends("1")
    assert story.started() == ["SYM-2"]
    assert not story.said(FetchCandidates)


def test_a_report_of_an_agent_judges_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = [make_issue(str(number), dispatchable=False) for number in range(2, 50)]
    story = Story(make_issue("1"), *waiting).begin()
    looks: list[str] = []
    monkeypatch.setattr(policy, "eligibility", lambda issue, *_, **__: looks.append(issue.id))
    story.streams("1")
    assert not looks


def test_a_raised_limit_is_used_at_once() -> None:
    story = Story(make_issue("1"), make_issue("2"), max_concurrent_agents=1).begin().forget()
    story.tell(SettingsChanged(settings=make_settings(max_concurrent_agents=2)))
    assert story.started() == ["SYM-2"]


def test_a_lowered_limit_neither_stops_nor_starts_runs() -> None:
    story = Story(make_issue("1"), make_issue("2"), make_issue("3"), max_concurrent_agents=2).begin().forget()
    story.tell(SettingsChanged(settings=make_settings(max_concurrent_agents=1)))
    story.ends("1")
    assert not story.said(StopRun)
    assert not story.started()


# --- the next tick ---------------------------------------------------------------------------------------


def test_the_next_poll_is_timed_from_the_end_of_the_cycle() -> None:
    story = Story(poll_interval_ms=30_000)
    story.slow = True
    story.begin().advance(7_000)
    story.answer()
    assert story.timers[_POLL].due_ms == 37_000
    assert story.state.next_poll_ms == 37_000


def test_a_shorter_interval_brings_the_next_poll_forward_and_a_longer_one_does_not_delay_it() -> None:
    story = Story(poll_interval_ms=30_000).begin()
    story.tell(SettingsChanged(settings=make_settings(poll_interval_ms=90_000)))
    assert story.timers[_POLL].due_ms == 30_000
    story.tell(SettingsChanged(settings=make_settings(poll_interval_ms=1_000)))
    assert story.timers[_POLL].due_ms == story.state.next_poll_ms == 1_000


@pytest.mark.conformance("S-14")
def test_a_superseded_poll_timer_is_ignored() -> None:
    story = Story(poll_interval_ms=30_000).begin()
    old = story.timers[_POLL]
    _wake(story)
    story.forget()
    before = story.state
    story.tell(TimerFired(timer=_POLL, token=old.token))
    assert story.state == before
    assert not story.told


@pytest.mark.conformance("S-14")
def test_unknown_timers_do_nothing() -> None:
    story = Story(make_issue()).begin()
    before = story.state
    for kind in TimerKind:
        story.tell(TimerFired(timer=Timer(kind, "nobody"), token=99))
        story.tell(TimerFired(timer=Timer(kind, story.run_id()), token=-1))
    assert story.state == before


def test_a_timer_whose_subject_is_gone_does_nothing() -> None:
    story = Story(make_issue()).begin()
    kinds = (TimerKind.RETRY, TimerKind.STALL, TimerKind.GRACE)
    timers = {Timer(kind, "gone"): SetTimer(timer=Timer(kind, "gone"), token=7, due_ms=0) for kind in kinds}
    own = story.state.timers
    story.state = story.state.changed(timers={**own, **timers})
    story.forget()
    for timer, armed in timers.items():
        story.tell(TimerFired(timer=timer, token=armed.token))
    assert not story.told
    assert story.state.timers == own


def test_a_wake_polls_at_once() -> None:
    story = Story().begin().forget()
    _wake(story)
    assert len(story.said(FetchCandidates)) == 1


def test_wakes_during_a_cycle_cause_exactly_one_more_cycle() -> None:
    story = Story(poll_interval_ms=30_000)
    story.slow = True
    story.begin()
    for _ in range(5):
        _wake(story)
    assert len(story.said(FetchCandidates)) == 1
    story.slow = False
    story.answer()
    story.advance(99)
    assert len(story.said(FetchCandidates)) == 1
    story.advance(1)
    assert len(story.said(FetchCandidates)) == 2
    story.advance(29_999)
    assert len(story.said(FetchCandidates)) == 2


def test_a_wake_knows_whether_it_shares_a_poll() -> None:
    story = Story(poll_interval_ms=30_000).begin()
    assert not would_coalesce(story.state), "nothing is under way: it brings a poll of its own"
    story.slow = True
    _wake(story)
    assert would_coalesce(story.state), "a cycle is in progress"
    _wake(story)
    story.answer()
    assert would_coalesce(story.state), "a poll is due in a moment"
    story.slow = False
    story.advance(100)
    assert not would_coalesce(story.state)


def test_a_busy_board_is_not_polled_without_a_pause() -> None:
    story = Story()
    for _ in range(100):
        story.slow = True
        _wake(story)
        story.advance(2)
        _wake(story)
        story.slow = False
        story.answer()
        _wake(story)
    assert len(story.said(FetchCandidates)) <= 1 + story.now // 100 + 1


def test_skipped_records_are_kept_until_the_next_poll_and_bounded() -> None:
    story = Story()
    story.slow = True
    story.begin()
    failures = tuple(make_failure(f"bad {number}") for number in range(60))
    story.tell(Polled(request=story.polls.pop().request, issues=(), skipped_records=failures))
    assert story.state.skipped_records == failures[:50]
    story.advance(30_000)
    story.tell(PollFailed(request=story.polls.pop().request, failure=make_failure()))
    assert len(story.state.skipped_records) == 50
    story.advance(30_000)
    story.answer_poll()
    assert story.state.skipped_records == ()


# --- answers that were not awaited --------------------------------------------------------------------------


def test_an_answer_to_another_request_is_ignored() -> None:
    story = Story(make_issue())
    story.slow = True
    story.begin()
    before = story.state
    story.tell(Polled(request=99, issues=(make_issue("9"),)))
    story.tell(PollFailed(request=99, failure=make_failure()))
    story.tell(Refreshed(request=99, issues=(make_issue("9"),)))
    story.tell(RefreshFailed(request=99, failure=make_failure()))
    assert story.state == before


def test_an_answer_that_comes_twice_counts_once() -> None:
    story = Story(make_issue())
    story.slow = True
    story.begin()
    poll = story.polls[0]
    story.answer_poll()
    after = story.state
    story.tell(Polled(request=poll.request, issues=()))
    assert story.state == after
    refresh = story.refreshes[0]
    story.answer_refresh()
    after = story.state
    story.tell(Refreshed(request=refresh.request, issues=()))
    story.tell(RefreshFailed(request=refresh.request, failure=make_failure()))
    assert story.state == after


def test_issues_that_were_not_requested_are_ignored_in_a_refresh() -> None:
    story = Story(make_issue())
    story.slow = True
    story.begin()
    story.answer_poll()
    ask = story.refreshes.pop()
    story.tell(Refreshed(request=ask.request, issues=(make_issue("1"), make_issue("2"))))
    assert story.started() == ["SYM-1"]


# --- one question at a time ------------------------------------------------------------------------------


def test_a_burst_of_ended_turns_costs_one_more_request() -> None:
    story = Story(*(make_issue(str(number)) for number in range(6))).begin()
    story.slow = True
    story.forget()
    for number in range(6):
        story.turn_ends(str(number))
    assert _asked(story) == [["0"]]
    story.answer_refresh()
    assert _asked(story) == [["0"], ["1", "2", "3", "4", "5"]]
    story.answer()
    assert len(_asked(story)) == 2


@pytest.mark.conformance("S-7")
def test_fifty_turns_that_end_at_once_cost_two_requests() -> None:
    story = Story(*(make_issue(str(number)) for number in range(50)), max_concurrent_agents=50).begin()
    assert len(story.state.running) == 50
    story.slow = True
    story.forget()
    for number in range(50):
        story.turn_ends(str(number))
    story.answer()
    assert [len(ask.ids) for ask in story.said(RefreshIssues)] == [1, 49]
    assert len(story.said(ContinueRun)) == 50


def test_a_cycle_costs_one_poll_and_one_refresh_whatever_runs_waits_and_is_blocked() -> None:
    story = Story(*(make_issue(str(number)) for number in range(50)), poll_interval_ms=5_000).begin()
    story.fails("0").ends("1", OutcomeKind.INPUT_REQUIRED, make_failure())
    story.forget().advance(5_000)
    assert len(story.said(FetchCandidates)) == 1
    assert len(story.said(RefreshIssues)) == 1


def test_fifty_sessions_that_end_together_cost_less_than_one_request_each() -> None:
    """Their ends, what starts in their place, and the look a second later."""
    issues = [make_issue(str(number)) for number in range(100)]
    story = Story(*issues, max_concurrent_agents=50, poll_interval_ms=10_000_000).begin()
    story.slow = True
    first = list(story.state.running)
    story.forget()
    for key in first:
        story.put(key, state="Done")
        story.turn_ends(key)
    story.answer()
    for key in first:
        story.ends(key)
    story.answer()
    story.advance(1_000)
    story.answer()
    assert len(story.state.running) == 50
    assert not story.state.retrying
    assert len(story.said(RefreshIssues)) <= 0.6 * 50


def test_a_cycle_and_due_retries_share_one_request() -> None:
    story = Story(make_issue("1"), make_issue("2"), make_issue("3"), poll_interval_ms=10_000).begin()
    story.fails("1").fails("2")
    story.forget()
    story.slow = True
    story.advance(10_000)
    story.answer()
    assert _asked(story) in ([["3"], ["1", "2"]], [["1"], ["2", "3"]])


def test_a_candidate_is_judged_by_the_refresh_that_was_requested_for_it() -> None:
    """Its slot became free while an older question was under way: that answer may be stale."""
    story = Story(make_issue("1"), poll_interval_ms=600_000, max_concurrent_agents=1)
    story.begin(*_parked("2"))
    story.board["2"] = make_issue("2")
    _wake(story)
    story.slow = True
    story.forget().advance(600_000)
    assert _asked(story) == [["1", "2"]]
    story.ends("1")
    story.answer_refresh()
    assert not story.started()
    story.put("2", state="Done")
    story.answer()
    assert not story.started()


# --- failures --------------------------------------------------------------------------------------------


def test_a_failed_poll_starts_nothing_keeps_what_runs_and_is_repeated() -> None:
    story = Story(make_issue("1"), poll_interval_ms=30_000).begin()
    story.board["2"] = make_issue("2")
    story.slow = True
    story.advance(30_000)
    story.answer_refresh()
    story.fail_poll()
    assert story.state.running.keys() == {"1"}
    assert story.started() == ["SYM-1"]
    assert story.notices("poll_failed")[0].fields["reason"] == "tracker_request: no answer"
    assert story.state.last_poll_failure is not None
    story.slow = False
    story.advance(30_000)
    assert story.started() == ["SYM-1", "SYM-2"]
    assert story.state.last_poll_failure is None


@pytest.mark.conformance("S-7")
def test_a_failed_refresh_keeps_all_workers_and_the_cycle_goes_on() -> None:
    story = Story(make_issue("1"), make_issue("2")).begin().forget()
    story.slow = True
    _wake(story)
    story.fail_refresh()
    assert story.notices("refresh_failed")[0].fields["reason"] == "tracker_request: no answer"
    assert story.state.running.keys() == {"1", "2"}
    assert not story.said(StopRun)
    assert len(story.said(FetchCandidates)) == 1


@pytest.mark.conformance("S-20")
def test_a_candidate_whose_refresh_failed_waits_for_the_next_poll() -> None:
    story = Story(make_issue(), poll_interval_ms=30_000)
    story.slow = True
    story.begin()
    story.answer_poll()
    story.fail_refresh()
    assert not story.refreshes, "it is not asked again and again"
    assert "1" in story.state.candidates, "it is still shown"
    assert not run_once_finished(story.state, story.now), "there is work left"
    story.slow = False
    story.advance(30_000)
    assert story.started() == ["SYM-1"]


def test_only_the_culprits_of_a_failed_refresh_suffer() -> None:
    story = Story(make_issue("1"), make_issue("2"), make_issue("3"))
    story.slow = True
    story.begin()
    story.answer_poll()
    story.fail_refresh("2", "nobody")
    assert _asked(story) == [["1", "2", "3"], ["1", "3"]]
    story.answer()
    assert story.started() == ["SYM-1", "SYM-3"]


def test_culprits_that_were_not_requested_are_ignored() -> None:
    story = Story(make_issue("1"))
    story.slow = True
    story.begin()
    story.answer_poll()
    story.fail_refresh("nobody")
    assert not story.refreshes
    assert not story.started()


def test_refreshes_that_name_one_culprit_after_another_end() -> None:
    story = Story(*(make_issue(key) for key in "1234"))
    story.slow = True
    story.begin()
    story.answer_poll()
    for culprit in "1234":
        story.fail_refresh(culprit)
    assert not story.refreshes
    assert not story.state.pending_candidates


# --- odd answers -----------------------------------------------------------------------------------------


def test_an_issue_that_a_poll_returns_twice_counts_once_as_returned_last() -> None:
    story = Story(make_issue("1"), make_issue("2"))
    story.slow = True
    story.begin()
    pages = (make_issue("1", priority=4), make_issue("2"), make_issue("1", title="Newer", priority=1))
    story.tell(Polled(request=story.polls.pop().request, issues=pages))
    assert list(story.state.candidates) == ["1", "2"]
    assert story.state.candidates["1"].title == "Newer"
    story.answer()
    assert story.started() == ["SYM-1", "SYM-2"]


def test_an_issue_that_a_refresh_returns_twice_starts_once() -> None:
    story = Story(make_issue("1"))
    story.slow = True
    story.begin()
    story.answer_poll()
    ask = story.refreshes.pop()
    story.tell(Refreshed(request=ask.request, issues=(make_issue("1"), make_issue("1", title="Newer"))))
    (start,) = story.said(StartRun)
    assert start.issue.title == "Newer"


def test_two_issues_with_one_identifier_never_run_at_the_same_time() -> None:
    story = Story(make_issue("1"), make_issue("2", identifier="SYM-1"), poll_interval_ms=5_000).begin()
    assert story.state.running.keys() == {"1"}
    skipped = story.notices("dispatch_skipped")[0].fields
    assert skipped["code"] == "same_identifier"
    assert skipped["reason"] == "another issue is called SYM-1 too (id 1), and is running"
    story.put("1", state="Done")
    _wake(story)
    story.ends("1", OutcomeKind.CANCELED)
    assert story.state.running.keys() == {"2"}


@pytest.mark.conformance("S-1")
def test_candidates_and_due_retries_share_the_one_dispatch_order() -> None:
    """Two retries and a new issue want two slots: the more urgent ones get them."""
    begun = (make_issue("1", priority=4), make_issue("2", priority=1), make_issue("9"))
    story = Story(*begun, max_concurrent_agents=3, poll_interval_ms=10_000_000).begin()
    story.fails("1").fails("2")
    story.board |= {"7": make_issue("7", priority=1), "8": make_issue("8", priority=1), "3": make_issue("3")}
    _wake(story)
    assert story.state.running.keys() == {"7", "8", "9"}
    story.slow = True
    story.turn_ends("9").advance(10_000)
    story.ends("7").ends("8").forget()
    story.answer()
    assert story.started() == ["SYM-2", "SYM-3"]
    assert story.state.retrying["1"].error == "no available orchestrator slots"


@pytest.mark.parametrize("count", [50, 5_000])
def test_no_event_judges_a_candidate_more_than_once(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    waiting = [make_issue(str(number), dispatchable=False) for number in range(2, count)]
    story = Story(make_issue("1"), *waiting).begin().streams("1")
    looks: list[str] = []
    judge = policy.eligibility

    def counted(issue: Issue, *rest: Any, **options: Any) -> policy.Eligible | policy.Ineligible:
        looks.append(issue.id)
        return judge(issue, *rest, **options)

    monkeypatch.setattr(policy, "eligibility", counted)
    story.slow = True
    story.turn_ends("1")
    assert not looks, "the end of a turn alone frees no slot"
    looks.clear()
    story.answer_refresh()
    assert len(looks) == count - 1
    looks.clear()
    story.ends("1")
    assert len(looks) == count - 1


def test_a_full_state_is_judged_once_and_not_for_each_of_its_issues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = [make_issue(str(number), priority=4) for number in range(2, 500)]
    story = Story(make_issue("1"), *waiting, max_concurrent_by_state={"todo": 1}).begin()
    looks: list[str] = []
    shortage = policy.slot_shortage

    def counted(issue: Issue, *rest: Any, **options: Any) -> policy.Ineligible | None:
        looks.append(issue.id)
        return shortage(issue, *rest, **options)

    monkeypatch.setattr(policy, "slot_shortage", counted)
    story.turn_ends("1")
    assert len(looks) == 1


# --- an invalid workflow ---------------------------------------------------------------------------------


@pytest.mark.conformance("S-15")
def test_while_the_workflow_is_invalid_only_reconciliation_continues() -> None:
    story = Story(make_issue("1"), make_issue("2"), max_concurrent_agents=1).begin().forget()
    story.tell(WorkflowRejected(failure=make_failure("bad YAML", category=Category.WORKFLOW_PARSE_ERROR)))
    assert story.notices("workflow_rejected")[0].fields["reason"] == "workflow_parse_error: bad YAML"
    story.ends("1").advance(90_000)
    assert not story.said(FetchCandidates)
    assert not story.started()
    story.put("1", state="Done")
    story.advance(60_000)
    assert story.said(CleanWorkspace)


def test_a_pending_candidate_does_not_start_with_an_invalid_workflow() -> None:
    story = Story(make_issue("1"))
    story.slow = True
    story.begin()
    story.answer_poll()
    story.tell(WorkflowRejected(failure=make_failure()))
    story.answer()
    assert not story.started()
    story.slow = False
    story.tell(SettingsChanged(settings=make_settings()))
    assert story.started() == ["SYM-1"]


def test_a_repaired_workflow_polls_at_once_and_another_change_does_not() -> None:
    story = Story().begin()
    story.tell(WorkflowRejected(failure=make_failure()))
    story.forget().tell(SettingsChanged(settings=make_settings()))
    assert len(story.said(FetchCandidates)) == 1
    story.forget().tell(SettingsChanged(settings=make_settings(max_turns=3)))
    assert not story.said(FetchCandidates)


def test_a_run_continues_its_turns_while_the_workflow_is_invalid() -> None:
    story = Story(make_issue("1")).begin().streams()
    story.tell(WorkflowRejected(failure=make_failure()))
    story.turn_ends()
    assert story.state.running["1"].turn == 2


# --- idle workspaces -----------------------------------------------------------------------------


@pytest.mark.conformance("S-17")
def test_idle_workspaces_are_refreshed_by_id_and_ended_ones_removed() -> None:
    story = Story(make_issue("1", state="Done"), make_issue("2", state="Backlog"))
    story.begin(*_parked("1", "2", "3"))
    assert _asked(story) == [["1", "2", "3"]]
    assert story.said(CleanWorkspace) == [CleanWorkspace(issue_id="1", identifier="SYM-1", path="/ws/SYM-1")]
    assert story.state.idle_workspaces.keys() == {"2", "3"}


@pytest.mark.conformance("S-17")
def test_the_check_of_idle_workspaces_precedes_the_first_poll_even_if_it_fails() -> None:
    story = Story(make_issue("1"))
    story.slow = True
    story.begin(*_parked("9"))
    assert not story.polls
    story.fail_refresh()
    story.slow = False
    story.answer()
    assert story.started() == ["SYM-1"]
    assert story.state.idle_workspaces.keys() == {"9"}


def test_a_wake_before_the_start_does_not_delay_the_check_of_idle_workspaces() -> None:
    story = Story(make_issue("9", state="Done"))
    story.slow = True
    _wake(story)
    story.tell(Recovered(workspaces=_parked("9")))
    story.slow = False
    story.answer()
    story.advance(1_000)
    assert story.said(CleanWorkspace)


def test_idle_workspaces_are_refreshed_every_ten_minutes_only() -> None:
    story = Story(poll_interval_ms=60_000)
    story.now = 5_000_000
    story.begin(*_parked("9"))
    story.forget().advance(599_999)
    assert not _asked(story)
    story.board["9"] = make_issue("9", state="Done")
    story.advance(60_001)
    assert _asked(story) == [["9"]]
    assert len(story.said(CleanWorkspace)) == 1
    story.advance(3_600_000)
    assert len(story.said(CleanWorkspace)) == 1, "a workspace that is kept is reported once"


def test_an_idle_workspace_is_claimed_again_with_its_issue() -> None:
    story = Story(make_issue("1")).begin(*_parked("1"))
    assert story.state.running.keys() == {"1"}
    assert not story.state.idle_workspaces


# --- blockers --------------------------------------------------------------------------------------------


def _blocked_by_one() -> Story:
    blocker = Blocker(id="1", identifier="SYM-1", state="Todo")
    waiting = make_issue(
        "2", dispatchable=False, not_dispatchable_reason="blocked by SYM-1", blocked_by=(blocker,)
    )
    return Story(make_issue("1"), waiting, poll_interval_ms=10_000_000).begin().streams("1").forget()


def test_the_end_of_a_blocker_polls_at_once() -> None:
    story = _blocked_by_one()
    story.ends("1")
    story.put("1", state="Done")
    story.put("2", dispatchable=True)
    story.advance(1_000)
    assert story.started() == ["SYM-2"]


def test_an_issue_waits_until_the_run_of_its_blocker_has_delivered() -> None:
    story = _blocked_by_one()
    story.streams("1", tool_calls=1)
    story.put("1", state="Done")
    story.put("2", dispatchable=True)
    _wake(story)
    assert not story.started()
    story.turn_ends("1").ends("1")
    assert story.started() == ["SYM-2"]


def test_the_end_of_an_issue_that_blocks_no_other_causes_no_poll() -> None:
    story = Story(make_issue("1"), poll_interval_ms=10_000_000).begin().forget()
    story.ends("1")
    story.put("1", state="Done")
    story.advance(100_000)
    assert not story.said(FetchCandidates)


def test_the_end_of_a_blocker_during_a_poll_polls_again() -> None:
    story = _blocked_by_one()
    story.ends("1")
    story.slow = True
    _wake(story)
    story.put("1", state="Done")
    story.advance(1_000)
    story.answer_refresh()
    story.answer_poll()
    assert not run_once_finished(story.state, story.now), "the dependent issue was polled too early"
    story.put("2", dispatchable=True)
    story.slow = False
    story.advance(100)
    assert story.started() == ["SYM-2"]


# --- the end of --once -----------------------------------------------------------------------------------


def test_nothing_is_idle_before_the_first_poll() -> None:
    story = Story()
    assert not run_once_finished(story.state, story.now)
    story.slow = True
    story.begin()
    assert not run_once_finished(story.state, story.now)
    story.answer()
    assert run_once_finished(story.state, story.now)


def test_work_that_runs_retries_or_could_start_is_not_idle() -> None:
    story = Story(make_issue("1"))
    story.slow = True
    story.begin()
    story.answer_poll()
    assert not run_once_finished(story.state, story.now)
    story.slow = False
    story.answer()
    assert not run_once_finished(story.state, story.now)
    story.ends("1")
    assert not run_once_finished(story.state, story.now)
    story.put("1", state="Done")
    story.advance(1_000)
    assert run_once_finished(story.state, story.now)


def test_an_issue_that_waits_for_a_slot_is_not_left_behind() -> None:
    story = Story(make_issue("1"), make_issue("2"), max_concurrent_agents=1).begin()
    story.put("1", state="Done")
    _wake(story)
    story.slow = True
    story.ends("1", OutcomeKind.CANCELED)
    assert not run_once_finished(story.state, story.now)


def test_issues_that_wait_for_a_person_or_may_not_start_are_idle() -> None:
    story = Story(make_issue("1"), make_issue("2", dispatchable=False)).begin()
    story.ends("1", OutcomeKind.INPUT_REQUIRED, make_failure())
    assert story.state.blocked
    assert run_once_finished(story.state, story.now)


def _outage(**changes: Any) -> Story:
    """Every attempt fails by an outage, which never blocks an issue."""
    story = Story(make_issue("1"), poll_interval_ms=10_000_000, **changes).begin()
    assert not run_once_finished(story.state, story.now)
    return story


def _fails_by_the_host(story: Story, **changes: Any) -> None:
    story.fails("1", make_failure(blame=Blame.HOST, **changes), progress=False)


def test_an_outage_does_not_keep_run_once_forever() -> None:
    story = _outage(max_attempts_without_progress=3)
    for _ in range(2):
        _fails_by_the_host(story)
        assert not run_once_finished(story.state, story.now)
        story.advance(40_000)
    _fails_by_the_host(story)
    assert run_once_finished(story.state, story.now)
    assert not story.state.blocked


def test_a_non_retryable_failure_is_not_waited_for() -> None:
    story = _outage()
    _fails_by_the_host(story, retryable=False)
    assert run_once_finished(story.state, story.now)


def test_a_clean_end_resets_the_count_of_failures() -> None:
    story = _outage(max_attempts_without_progress=2)
    _fails_by_the_host(story)
    story.advance(10_000).ends("1").advance(1_000)
    _fails_by_the_host(story)
    assert not run_once_finished(story.state, story.now)


def test_refreshes_that_fail_count_as_failures_and_missing_slots_do_not() -> None:
    story = Story(
        make_issue("1"), make_issue("2", priority=4), max_concurrent_agents=1, poll_interval_ms=10**7
    )
    story.begin().fails("1").advance(10_000)
    assert (story.state.retrying["1"].failures, story.state.retrying["1"].attempt) == (1, 2)
    story.slow = True
    story.advance(20_000)
    story.fail_refresh()
    assert (story.state.retrying["1"].failures, story.state.retrying["1"].attempt) == (2, 3)


def test_while_anything_runs_nothing_is_given_up() -> None:
    story = Story(make_issue("1"), make_issue("2"), poll_interval_ms=10_000_000).begin()
    story.fails("1", make_failure(retryable=False))
    assert not run_once_finished(story.state, story.now)
    story.put("2", state="Done")
    story.ends("2").advance(1_000)
    assert run_once_finished(story.state, story.now)


def test_a_broken_workflow_is_not_waited_for() -> None:
    story = _outage()
    story.ends("1")
    story.tell(WorkflowRejected(failure=make_failure()))
    assert run_once_finished(story.state, story.now)


def test_a_failed_poll_keeps_its_reason() -> None:
    story = Story()
    story.slow = True
    story.begin()
    story.fail_poll()
    assert run_once_finished(story.state, story.now)
    assert story.state.last_poll_failure is not None


# --- what --once leaves ----------------------------------------------------------------------------------


def _left(story: Story) -> dict[str, bool]:
    return {left.issue.id: left.limited for left in left_over(story.state)}


def test_what_asks_failed_or_may_not_start_yet_is_left_and_the_rest_of_the_board_is_not() -> None:
    story = Story(
        make_issue("1"),
        make_issue("2"),
        make_issue("3", dispatchable=False),
        make_issue("4", state="Backlog"),
        make_issue("5"),
        make_issue("6"),
        poll_interval_ms=10**7,
    ).begin()
    assert story.started() == ["SYM-1", "SYM-2", "SYM-5", "SYM-6"]
    story.ends("1", OutcomeKind.INPUT_REQUIRED, make_failure(), question="Which?")
    story.fails("2", make_failure(retryable=False))
    story.put("5", state="Done")
    story.put("6", state="Human Review")
    story.ends("5").ends("6").advance(1_000)
    assert run_once_finished(story.state, story.now)
    assert _left(story) == {"1": False, "2": False}


@pytest.mark.parametrize("after_the_end", [False, True])
@pytest.mark.parametrize(
    "hindrance",
    [
        {"paused": True},
        {"settings": make_settings(max_tokens_per_day=1), "day_tokens": 1, "day": "2026-01-01"},
        {"settings": make_settings(max_concurrent_agents=0)},
        {},
    ],
    ids=["paused", "budget", "slots", "nothing"],
)
def test_issues_that_could_not_start_are_left(hindrance: dict[str, Any], *, after_the_end: bool) -> None:
    story = Story(make_issue("1"), max_concurrent_agents=0).begin()
    drain = Drain.EXITED if after_the_end else Drain.NO
    story.state = story.state.changed(drain=drain, **{"settings": make_settings(), **hindrance})
    assert _left(story) == {"1": False}


# --- the cycle and the way out ---------------------------------------------------------------------------


def test_a_cycle_does_not_poll_during_a_drain() -> None:
    story = Story(make_issue("1")).begin().streams().forget()
    story.slow = True
    _wake(story)
    story.tell(DrainAsked())
    story.answer()
    assert not story.said(FetchCandidates)
    assert story.state.cycle is Cycle.IDLE
    story.slow = False
    story.advance(29_000)
    _wake(story)
    assert not story.said(FetchCandidates)


def test_candidates_without_a_claim_follow_what_a_refresh_says() -> None:
    story = Story(make_issue("1"), make_issue("2"), max_concurrent_agents=1).begin()
    story.put("1", title="Reworded")
    _wake(story)
    assert story.state.candidates["1"].title == "Reworded"
    assert story.state.candidates["2"] == replace(make_issue("2"))


def test_the_workspace_of_a_claimed_issue_is_never_idle() -> None:
    story = Story(make_issue("1")).begin().streams("1")
    story.tell(Recovered(workspaces=(WorkspaceRef(issue_id="1", identifier="SYM-1", path="/ws/1"),)))
    assert not story.state.idle_workspaces
    story.put("1", state="Done")
    story.advance(60_000)
    assert not story.said(CleanWorkspace), "its run is still alive"


# --- large boards ----------------------------------------------------------------------------------------


def _polled(story: Story, *issues: Issue) -> None:
    story.slow = True
    story.look()
    asked = story.polls.pop(0)
    story.tell(Polled(request=asked.request, issues=issues))


def test_a_board_that_gives_the_very_same_issues_is_not_sorted_again() -> None:
    low, high = make_issue("1", priority=3), make_issue("2", priority=1)
    story = Story(max_concurrent_agents=1).begin()
    story.tell(Recovered(paused=True))
    _polled(story, low, high)
    before = story.state.candidates
    assert list(before) == ["2", "1"]
    _polled(story, high, low)
    assert story.state.candidates is before


@pytest.mark.parametrize(
    ("issues", "expected"),
    [
        ((make_issue("1", priority=3), make_issue("2", priority=4)), ["1", "2"]),
        ((make_issue("2", priority=1),), ["2"]),
        ((make_issue("1"), make_issue("1")), ["1"]),
        ((make_issue("1"), make_issue("2"), make_issue("0")), ["0", "1", "2"]),
        ((), []),
    ],
)
def test_a_board_that_changed_is_sorted(issues: tuple[Issue, ...], expected: list[str]) -> None:
    story = Story(max_concurrent_agents=1).begin()
    story.tell(Recovered(paused=True))
    _polled(story, make_issue("1", priority=3), make_issue("2", priority=1))
    _polled(story, *issues)
    assert list(story.state.candidates) == expected
