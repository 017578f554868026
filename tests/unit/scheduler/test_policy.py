from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.scheduling import make_failure, make_issue, make_settings
from symphony.domain import Blame, Blocker, Category, Issue
from symphony.scheduler import (
    Blocked,
    Drain,
    Eligible,
    Ineligible,
    ReasonCode,
    Retry,
    Running,
    State,
    TrackerStatus,
    UsedSlots,
    backoff_ms,
    counts_as_no_progress,
    dispatch_order,
    eligibility,
    in_active_state,
    initial_state,
    same_content,
    slot_shortage,
    tracker_status,
    used_slots,
)

_DAY = datetime(2025, 1, 1, tzinfo=UTC)


def _state(**changes: Any) -> State:
    settings = {key: changes.pop(key) for key in tuple(changes) if key in make_settings().__slots__}
    return initial_state(make_settings(**settings), epoch="e").changed(**changes)


def _running(issue: Issue) -> Running:
    return Running(
        run_id=f"e-{issue.id}",
        issue=issue,
        attempt=None,
        started_ms=0,
        max_turns=20,
        attempts_without_progress=0,
    )


def _reason(issue: Issue, state: State, **options: Any) -> tuple[ReasonCode, str]:
    verdict = eligibility(issue, state, **options)
    assert isinstance(verdict, Ineligible)
    return verdict.code, verdict.message


# --- order -----------------------------------------------------------------------------------------------


def _order(*issues: Issue) -> list[str]:
    return [issue.id for issue in sorted(issues, key=dispatch_order)]


@pytest.mark.conformance("S-1")
def test_urgent_issues_come_first_and_unranked_ones_last() -> None:
    ranks: list[int | None] = [None, 4, 3, 2, 1]
    issues = [make_issue(str(rank), priority=rank) for rank in ranks]
    assert _order(*issues) == ["1", "2", "3", "4", "None"]


@pytest.mark.conformance("S-1")
@pytest.mark.parametrize("priority", [0, -1, 5, 10**30])
def test_a_priority_outside_one_to_four_ranks_like_none(priority: int) -> None:
    odd = make_issue("odd", priority=priority, created_at=_DAY + timedelta(days=1))
    none = make_issue("none", priority=None, created_at=_DAY)
    assert _order(odd, none) == ["none", "odd"]
    assert dispatch_order(odd)[0] == dispatch_order(none)[0]


@pytest.mark.conformance("S-1")
def test_the_older_issue_comes_first_and_an_unknown_age_last() -> None:
    old, new = make_issue("old", created_at=_DAY), make_issue("new", created_at=_DAY + timedelta(seconds=1))
    unknown = make_issue("unknown", created_at=None)
    assert _order(unknown, new, old) == ["old", "new", "unknown"]


def test_ages_are_compared_as_instants_whatever_their_zone() -> None:
    east = make_issue("east", created_at=datetime(2025, 1, 1, 1, tzinfo=timezone(timedelta(hours=2))))
    assert _order(make_issue("utc", created_at=_DAY), east) == ["east", "utc"]


@pytest.mark.conformance("S-1")
def test_the_identifier_breaks_a_tie() -> None:
    assert _order(make_issue("b"), make_issue("a"), make_issue("c")) == ["a", "b", "c"]


@pytest.mark.conformance("S-1")
@given(st.datetimes(), st.datetimes(timezones=st.timezones()))
def test_any_two_dates_can_be_ordered(naive: datetime, aware: datetime) -> None:
    assert len(_order(make_issue("1", created_at=naive), make_issue("2", created_at=aware))) == 2


def test_a_date_without_zone_is_taken_as_utc_and_not_as_the_zone_of_the_machine() -> None:
    naive = make_issue(created_at=_DAY.replace(tzinfo=None))
    assert dispatch_order(naive) == dispatch_order(make_issue(created_at=_DAY))


# --- where an issue stands -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, TrackerStatus.ACTIVE),
        ({"state": " TODO "}, TrackerStatus.ACTIVE),
        ({"state": "Done"}, TrackerStatus.TERMINAL),
        ({"state": "Done", "dispatchable": False}, TrackerStatus.TERMINAL),
        ({"dispatchable": False}, TrackerStatus.UNROUTABLE),
        ({"state": "Backlog", "dispatchable": False}, TrackerStatus.UNROUTABLE),
        ({"state": "Backlog"}, TrackerStatus.INACTIVE),
    ],
)
def test_the_status_of_an_issue_follows_its_snapshot(
    changes: dict[str, Any], expected: TrackerStatus
) -> None:
    assert tracker_status(make_issue(**changes), make_settings()) is expected


def test_an_issue_that_is_gone_is_missing() -> None:
    assert tracker_status(None, make_settings()) is TrackerStatus.MISSING


def test_terminal_beats_active_when_a_state_is_in_both_lists() -> None:
    settings = make_settings(active_states=frozenset({"todo"}), terminal_states=frozenset({"todo"}))
    assert tracker_status(make_issue(), settings) is TrackerStatus.TERMINAL
    assert not in_active_state(make_issue(), settings)


# --- eligibility -----------------------------------------------------------------------------------------


def test_an_active_unclaimed_issue_with_a_free_slot_is_eligible() -> None:
    assert eligibility(make_issue(), _state()) == Eligible()


@pytest.mark.conformance("S-2")
@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"state": "Done"}, ReasonCode.TERMINAL, "state 'Done' is terminal"),
        ({"state": "Backlog"}, ReasonCode.INACTIVE, "state 'Backlog' is not active"),
        (
            {"dispatchable": False},
            ReasonCode.NOT_DISPATCHABLE,
            "the tracker marks it as not dispatchable",
        ),
        (
            {"dispatchable": False, "not_dispatchable_reason": "blocked by SYM-2"},
            ReasonCode.NOT_DISPATCHABLE,
            "blocked by SYM-2",
        ),
        ({"id": " "}, ReasonCode.INCOMPLETE, "the tracker gave no id"),
        ({"identifier": ""}, ReasonCode.INCOMPLETE, "the tracker gave no identifier"),
        ({"title": "\t", "state": ""}, ReasonCode.INCOMPLETE, "the tracker gave no title, state"),
    ],
)
def test_an_unsuitable_issue_says_why(changes: dict[str, Any], code: ReasonCode, message: str) -> None:
    assert _reason(make_issue(**changes), _state()) == (code, message)


@pytest.mark.conformance("S-2")
def test_missing_labels_are_named_and_present_ones_are_not() -> None:
    state = _state(required_labels=("Ready", "api", " "))
    code, message = _reason(make_issue(labels=("ready",)), state)
    assert code is ReasonCode.LABEL_MISSING
    assert message == "required labels missing: 'api', ' '"
    assert _reason(make_issue(labels=("ready", "api")), state)[1] == "required label missing: ' '"


def test_a_claimed_issue_says_what_it_waits_for() -> None:
    issue = make_issue()
    retry = Retry(issue=issue, attempt=3, due_ms=9, error="it broke", attempts_without_progress=0, runs=1)
    calm = Retry(issue=issue, attempt=1, due_ms=9, error=None, attempts_without_progress=0)
    blocked = Blocked(issue=issue, failure=make_failure("which colour?"), blocked_ms=0)
    assert _reason(issue, _state(running={"1": _running(issue)})) == (
        ReasonCode.RUNNING,
        "an agent is running",
    )
    assert _reason(issue, _state(retrying={"1": retry})) == (
        ReasonCode.RETRYING,
        "waiting for attempt 2 of 4 after: it broke",
    )
    assert (
        _reason(issue, _state(retrying={"1": calm}))[1]
        == "the last attempt succeeded; the agent may have more to do"
    )
    assert _reason(issue, _state(blocked={"1": blocked})) == (
        ReasonCode.BLOCKED,
        "waiting for a person: which colour?",
    )


def test_an_issue_waits_for_the_run_of_its_blocker_and_not_for_its_retry() -> None:
    blocker = make_issue("2")
    named = make_issue(blocked_by=(Blocker(id="9"), Blocker(id="2", identifier="SYM-2", state="Done")))
    unnamed = make_issue(blocked_by=(Blocker(id="2"),))
    state = _state(running={"2": _running(blocker)})
    assert _reason(named, state) == (ReasonCode.BLOCKER_RUNNING, "the run of SYM-2 has not ended yet")
    assert _reason(unnamed, state)[1] == "the run of 2 has not ended yet"
    retry = Retry(issue=blocker, attempt=1, due_ms=0, error=None, attempts_without_progress=0)
    assert eligibility(named, _state(retrying={"2": retry})) == Eligible()


def test_its_own_claim_does_not_stand_in_the_way_of_a_due_retry() -> None:
    issue = make_issue()
    retry = Retry(issue=issue, attempt=1, due_ms=0, error=None, attempts_without_progress=0)
    assert eligibility(issue, _state(retrying={"1": retry}), own_claim=retry) == Eligible()


@pytest.mark.parametrize("drain", [Drain.DRAINING, Drain.EXITED])
def test_nothing_is_eligible_during_a_shutdown(drain: Drain) -> None:
    assert _reason(make_issue(), _state(drain=drain)) == (
        ReasonCode.DRAINING,
        "the daemon is shutting down",
    )


def test_nothing_is_eligible_while_the_workflow_is_invalid() -> None:
    failure = make_failure("bad YAML", category=Category.WORKFLOW_PARSE_ERROR, where="WORKFLOW.md:2")
    assert _reason(make_issue(), _state(config_error=failure)) == (
        ReasonCode.WORKFLOW_INVALID,
        "the workflow is invalid: WORKFLOW.md:2: workflow_parse_error: bad YAML",
    )


def test_all_slots_in_use_is_a_reason() -> None:
    state = _state(max_concurrent_agents=1, running={"2": _running(make_issue("2"))})
    assert _reason(make_issue(), state) == (ReasonCode.NO_SLOT, "the only agent slot is in use")


def test_issues_about_to_start_take_slots_too() -> None:
    state = _state(max_concurrent_agents=2)
    assert slot_shortage(make_issue(), state, reserved=Counter({"todo": 1})) is None
    assert _reason(make_issue(), state, reserved=Counter({"todo": 2}))[0] is ReasonCode.NO_SLOT


def test_the_limit_of_a_state_holds_for_that_state_only() -> None:
    state = _state(max_concurrent_by_state={"todo": 1}, running={"2": _running(make_issue("2"))})
    assert _reason(make_issue(), state) == (
        ReasonCode.NO_STATE_SLOT,
        "the only agent slot for state 'Todo' is in use",
    )
    assert eligibility(make_issue(state="In Progress"), state) == Eligible()


def test_slots_of_a_state_count_the_current_state_of_running_issues() -> None:
    moved = _running(make_issue("2", state="In Progress"))
    assert (
        eligibility(make_issue(), _state(max_concurrent_by_state={"todo": 1}, running={"2": moved}))
        == Eligible()
    )


def test_slots_may_be_counted_once_for_many_issues() -> None:
    runs = {key: _running(make_issue(key, state=name)) for key, name in (("2", "Todo"), ("3", " TODO "))}
    state = _state(max_concurrent_by_state={"todo": 3}, running=runs)
    assert used_slots(state).by_state == {"todo": 2}
    assert eligibility(make_issue(), state, used=used_slots(state)) == eligibility(make_issue(), state)
    assert (
        _reason(make_issue(), state, used=UsedSlots(by_state=Counter({"todo": 3})))[0]
        is ReasonCode.NO_STATE_SLOT
    )


def test_issues_about_to_start_count_for_their_state() -> None:
    state = _state(max_concurrent_by_state={"todo": 1})
    assert _reason(make_issue(), state, reserved=Counter({"todo": 1}))[0] is ReasonCode.NO_STATE_SLOT


# --- waits and judgements --------------------------------------------------------------------------------


@pytest.mark.conformance("S-9")
@pytest.mark.parametrize(
    ("attempt", "seconds"), [(0, 10), (1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (60, 300)]
)
def test_failures_wait_ten_seconds_doubling_up_to_the_cap(attempt: int, seconds: int) -> None:
    assert backoff_ms(attempt, 300_000) == seconds * 1000


@pytest.mark.conformance("S-9")
def test_a_cap_below_ten_seconds_limits_the_first_attempt_too() -> None:
    assert backoff_ms(1, 5_000) == 5_000


@pytest.mark.conformance("S-9")
@given(st.integers(), st.integers(min_value=1))
def test_no_wait_exceeds_the_cap(attempt: int, cap_ms: int) -> None:
    assert 0 < backoff_ms(attempt, cap_ms) <= cap_ms


@pytest.mark.conformance("S-9")
def test_the_exponent_stops_growing() -> None:
    assert backoff_ms(11, 10**12) == backoff_ms(10**6, 10**12) == 10_240_000


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"state": "TODO "}, True),
        ({"labels": ("b", "a")}, True),
        ({"priority": 1, "updated_at": _DAY, "assignee_id": "me", "url": "u"}, True),
        ({"state": "In Progress"}, False),
        ({"labels": ("a",)}, False),
        ({"title": "New"}, False),
        ({"description": "more"}, False),
    ],
)
def test_only_state_labels_title_and_description_are_content(changes: dict[str, Any], *, same: bool) -> None:
    before = make_issue(labels=("a", "b"))
    after = make_issue(**{"labels": ("a", "b")} | changes)
    assert same_content(before, after) is same


@pytest.mark.parametrize(
    ("changes", "idle"),
    [
        ({}, True),
        ({"blame": Blame.CONFIG}, True),
        ({"blame": Blame.WORKSPACE}, True),
        ({"blame": Blame.TRACKER}, False),
        ({"blame": Blame.HOST}, False),
        ({"category": Category.AGENT_RATE_LIMITED}, False),
        ({"category": Category.AGENT_USAGE_LIMIT}, False),
        ({"category": Category.WORKSPACE_REPOSITORY}, False),
    ],
)
def test_an_outage_does_not_count_against_an_issue(changes: dict[str, Any], *, idle: bool) -> None:
    assert counts_as_no_progress(make_failure(**changes)) is idle


def test_a_clean_end_without_progress_counts() -> None:
    assert counts_as_no_progress(None)


@pytest.mark.parametrize(
    ("category", "blame", "counts"),
    [
        (Category.TURN_FAILED, Blame.AGENT, True),
        (Category.INTERNAL, Blame.HOST, True),
        (Category.WORKSPACE_REPOSITORY, Blame.WORKSPACE, False),
        (Category.WORKSPACE_REPOSITORY, Blame.CONFIG, True),
        (Category.AGENT_AUTH, Blame.CONFIG, False),
        (Category.AGENT_USAGE_LIMIT, Blame.AGENT, False),
        (Category.TRACKER_REQUEST, Blame.TRACKER, False),
    ],
)
def test_failures_that_count_against_an_issue(category: Category, blame: Blame, *, counts: bool) -> None:
    assert counts_as_no_progress(make_failure(category=category, blame=blame)) is counts
