from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from harness.scheduling import Story, make_failure, make_issue, make_settings
from symphony.domain import Blame, Category
from symphony.scheduler import (
    AgentReported,
    Blocked,
    CleanWorkspace,
    Command,
    Notify,
    Outcome,
    OutcomeKind,
    PostComment,
    Retry,
    RunEnded,
    Running,
    RunReport,
    RunStage,
    StartRun,
    Step,
    StopReason,
    TurnEnded,
    WakeAsked,
    blocks,
    initial_state,
    runs,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def _running(*others: Any, **settings: Any) -> Story:
    """Issue 1 has an agent in its first turn."""
    return Story(make_issue(), *others, **settings).begin().streams().forget()


# --- waiting for a person --------------------------------------------------------------------------------


def _blocked() -> Story:
    story = _running()
    failure = make_failure("which colour?", category=Category.TURN_INPUT_REQUIRED, hint="say it")
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=failure)
    return story


@pytest.mark.conformance("S-18")
def test_an_agent_that_needs_a_person_blocks_its_issue() -> None:
    story = _blocked()
    blocked = story.state.blocked["1"]
    assert blocked.failure.message == "which colour?"
    assert blocked.workspace_path == "/ws/1"
    assert blocked.report is not None
    assert not story.state.running
    assert not story.state.retrying
    (note,) = story.said(PostComment)
    assert (note.kind, note.issue.id) == ("blocked", "1")
    assert note.body == (
        "Symphony stopped working on this issue:\n\n```text\nwhich colour?\n```\n\n"
        "To answer, write a comment on this issue: the agent continues with it. "
        "On the daemon's machine, this command does the same:\n\n"
        '```text\nsymphony answer SYM-1 "…"\n```'
    )
    story.advance(10_000_000)
    assert not story.said(StartRun)


@pytest.mark.conformance("S-18")
def test_a_stalled_agent_that_needs_a_person_is_blocked_too() -> None:
    story = _running(stall_timeout_ms=1_000)
    story.advance(1_001).ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure("may I?"))
    assert story.state.blocked["1"].failure.message == "may I?"


def test_an_unexplained_need_for_input_gets_a_message() -> None:
    story = _running()
    story.ends(kind=OutcomeKind.INPUT_REQUIRED)
    assert story.state.blocked["1"].failure.message == "the run ended as input_required"
    assert "To go on" not in story.said(PostComment)[0].body


def test_a_blocked_issue_holds_no_slot() -> None:
    story = Story(make_issue(), make_issue("2"), max_concurrent_agents=1).begin()
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure())
    assert story.state.running.keys() == {"2"}


@pytest.mark.conformance("S-18")
@pytest.mark.parametrize(
    "changes",
    [{"state": "In Progress"}, {"labels": ("go",)}, {"title": "Clearer"}, {"description": "blue"}],
    ids=str,
)
def test_a_change_of_the_issue_unblocks_it(changes: dict[str, Any]) -> None:
    story = _blocked().forget()
    story.put("1", **changes)
    story.tell(WakeAsked(reason="t"))
    assert story.notices("issue_unblocked")
    assert [start.attempt for start in story.said(StartRun)] == [None]
    assert not story.state.blocked


@pytest.mark.parametrize("changes", [{}, {"priority": 1}, {"assignee_id": "me"}, {"url": "u"}], ids=str)
def test_no_other_change_unblocks_it(changes: dict[str, Any]) -> None:
    story = _blocked().forget()
    story.put("1", **changes)
    story.tell(WakeAsked(reason="t"))
    story.advance(1_000_000)
    assert story.state.blocked.keys() == {"1"}
    assert not story.said(StartRun)


def test_what_the_session_did_to_its_own_issue_does_not_unblock_it() -> None:
    story = _running()
    story.put("1", state="In Progress", labels=("needs-answer",))
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure())
    story.advance(100_000)
    assert story.state.blocked.keys() == {"1"}


def test_a_snapshot_from_before_the_block_is_not_the_baseline() -> None:
    story = _running()
    story.slow = True
    story.tell(WakeAsked(reason="t"))
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure())
    story.answer_refresh()
    story.put("1", labels=("moved-by-the-session",))
    story.answer()
    assert story.state.blocked.keys() == {"1"}


@pytest.mark.conformance("S-18")
def test_a_blocked_issue_that_ended_is_cleaned_and_released() -> None:
    story = _blocked()
    story.put("1", state="Done")
    story.tell(WakeAsked(reason="t"))
    assert story.said(CleanWorkspace) == [CleanWorkspace(issue_id="1", identifier="SYM-1", path="/ws/1")]
    assert not story.state.blocked


@pytest.mark.conformance("S-18")
@pytest.mark.parametrize("changes", [{"state": "Backlog"}, {"dispatchable": False}, None], ids=str)
def test_a_blocked_issue_that_left_is_released(changes: dict[str, Any] | None) -> None:
    story = _blocked()
    if changes is None:
        del story.board["1"]
    else:
        story.put("1", **changes)
    story.tell(WakeAsked(reason="t"))
    assert not story.state.blocked
    assert not story.said(CleanWorkspace)
    assert story.state.idle_workspaces.keys() == {"1"}


@pytest.mark.conformance("S-18")
def test_a_failed_refresh_keeps_a_blocked_issue_blocked() -> None:
    story = _blocked()
    story.slow = True
    story.tell(WakeAsked(reason="t"))
    story.fail_refresh()
    assert story.state.blocked.keys() == {"1"}


# --- the breaker -----------------------------------------------------------------------------------------


def _fail_idle(story: Story, times: int, **changes: Any) -> None:
    for _ in range(times):
        story.fails(failure=make_failure(**changes), progress=False)
        story.advance(300_000)


def test_three_failures_without_progress_block_the_issue() -> None:
    story = Story(make_issue(), poll_interval_ms=10_000_000, stall_timeout_ms=0).begin()
    _fail_idle(story, 2)
    assert not story.state.blocked
    _fail_idle(story, 1)
    blocked = story.state.blocked["1"]
    assert blocked.failure.category is Category.NO_PROGRESS
    assert blocked.failure.message == (
        "3 attempts left neither a new commit nor a changed tree; the last one ended with: it broke"
    )
    assert blocked.failure.hint is not None
    assert "labels, title or description" in story.said(PostComment)[0].body


def test_an_issue_that_is_too_long_is_not_retried() -> None:
    story = _running()
    failure = make_failure("5 MB", category=Category.ISSUE_TOO_LONG, blame=Blame.CONFIG, retryable=False)
    story.fails(failure=failure, progress=None)
    assert story.state.blocked["1"].failure is failure
    assert len(story.said(PostComment)) == 1


def test_three_clean_ends_without_progress_block_an_issue_that_is_still_active() -> None:
    story = Story(make_issue(), poll_interval_ms=10_000_000, stall_timeout_ms=0).begin()
    for _ in range(3):
        assert story.state.running
        story.ends(progress=False).advance(1_000)
    assert (
        story.state.blocked["1"].failure.message == "3 attempts left neither a new commit nor a changed tree"
    )


def test_a_clean_end_without_progress_does_not_block_an_issue_that_is_done() -> None:
    story = _running(max_attempts_without_progress=1)
    story.ends(progress=False)
    story.put("1", state="Done")
    story.advance(1_000)
    assert not story.state.blocked
    assert story.said(CleanWorkspace)


def test_progress_resets_the_count() -> None:
    story = Story(make_issue(), poll_interval_ms=10_000_000, stall_timeout_ms=0).begin()
    _fail_idle(story, 2)
    story.fails(progress=True).advance(300_000)
    _fail_idle(story, 2)
    assert not story.state.blocked


@pytest.mark.parametrize(
    "changes",
    [
        {"blame": Blame.TRACKER},
        {"blame": Blame.HOST},
        {"category": Category.AGENT_USAGE_LIMIT, "retry_after_ms": 0},
    ],
    ids=str,
)
def test_an_outage_neither_blocks_nor_resets_the_count(changes: dict[str, Any]) -> None:
    story = Story(make_issue(), poll_interval_ms=10_000_000, stall_timeout_ms=0).begin()
    _fail_idle(story, 2)
    _fail_idle(story, 3, **changes)
    assert not story.state.blocked
    _fail_idle(story, 1)
    assert story.state.blocked


def test_unknown_progress_does_not_count_against_the_issue() -> None:
    story = Story(make_issue(), poll_interval_ms=10_000_000, stall_timeout_ms=0).begin()
    for _ in range(8):
        story.streams().ends(progress=None).advance(1_000)
    assert story.state.running


def test_attempts_that_never_reached_an_agent_made_no_progress() -> None:
    story = Story(make_issue(), poll_interval_ms=10_000_000).begin()
    for _ in range(3):
        story.fails(failure=make_failure(category=Category.WORKSPACE_HOOK_FAILED), progress=None)
        story.advance(300_000)
    assert story.state.blocked


def test_an_unblocked_issue_has_all_its_attempts_again() -> None:
    story = Story(make_issue(), poll_interval_ms=10_000_000, stall_timeout_ms=0).begin()
    _fail_idle(story, 3)
    story.put("1", description="more")
    story.tell(WakeAsked(reason="t"))
    _fail_idle(story, 2)
    assert not story.state.blocked


# --- nothing without the table ---------------------------------------------------------------------------


_ISSUE = make_issue()
_RUN = Running(
    run_id="e-9", issue=_ISSUE, attempt=None, started_ms=0, max_turns=20, attempts_without_progress=0
)
_DRAINED = replace(_RUN, stopping=StopReason.DRAINING)
_BLOCKED = Blocked(issue=_ISSUE, failure=make_failure(), blocked_ms=0)


def _refused(step: Step, *allowed: type[Command]) -> bool:
    events = [command.event for command in step.commands if isinstance(command, Notify)]
    acts = [command for command in step.commands if not isinstance(command, (Notify, *allowed))]
    return "claim_transition_refused" in events and not acts


def test_a_run_does_not_start_on_a_blocked_issue() -> None:
    step = Step(initial_state(make_settings(), epoch="e").changed(blocked={"1": _BLOCKED}), 0)
    runs.start(step, _ISSUE)
    assert _refused(step)
    assert not step.state.running


def test_an_issue_is_blocked_once() -> None:
    step = Step(initial_state(make_settings(), epoch="e").changed(blocked={"1": _BLOCKED}), 0)
    blocks.block(step, _ISSUE, make_failure("another reason"))
    assert _refused(step)
    assert step.state.blocked["1"] is _BLOCKED
    assert not [command for command in step.commands if isinstance(command, PostComment)]


def test_an_unclaimed_issue_is_neither_stopped_nor_retried_nor_released() -> None:
    retry = Retry(issue=_ISSUE, attempt=1, due_ms=0, error=None, attempts_without_progress=0)
    acts: tuple[Callable[[Step], object], ...] = (
        lambda step: runs.stop(step, _RUN, StopReason.STALLED),
        lambda step: runs.on_run_ended(step, _RUN, Outcome(kind=OutcomeKind.SUCCEEDED)),
        lambda step: runs.on_run_ended(step, _DRAINED, Outcome(kind=OutcomeKind.SUCCEEDED)),
        lambda step: blocks.unblock(step, _BLOCKED, None, reason="t"),
        lambda step: runs.requeue(step, retry, "no slot"),
        lambda step: blocks.release(step, _ISSUE, path="/ws/1"),
    )
    for act in acts:
        step = Step(initial_state(make_settings(), epoch="e"), 0)
        act(step)
        assert _refused(step)
        assert not step.state.running
        assert not step.state.retrying
        assert not step.state.blocked
        assert not step.state.idle_workspaces


def test_reports_about_an_unknown_run_leave_the_state_as_it_is() -> None:
    story = _running()
    before = story.state
    report = RunReport(stage=RunStage.FINISHING)
    story.tell(AgentReported(run_id="nobody", report=report))
    story.tell(TurnEnded(run_id="", turn=-1))
    story.tell(RunEnded(run_id="e-0", outcome=Outcome(kind=OutcomeKind.FAILED)))
    assert story.state == before
    assert [notice.fields["input"] for notice in story.notices("unknown_run")] == [
        "AgentReported",
        "TurnEnded",
        "RunEnded",
    ]


@pytest.mark.conformance("O-6", "S-16")
def test_the_end_of_a_run_counts_once() -> None:
    story = _running()
    ended = RunEnded(run_id=story.run_id(), outcome=Outcome(kind=OutcomeKind.SUCCEEDED))
    story.tell(ended)
    after = story.state
    story.tell(ended)
    assert story.state == after
