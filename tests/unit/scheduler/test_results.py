"""What runs came to: ready for review, ended, gone, and pushes that are tried again."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from harness.scheduling import Story, make_failure, make_issue, make_settings
from symphony.domain import Blame, Category, DeliveredBranch, Failure, WorkSize
from symphony.scheduler import (
    IDLE_WORKSPACE_CHECK_MS,
    BranchDelivered,
    ClaimKind,
    DrainAsked,
    Exit,
    IssueResult,
    OperatorAction,
    Outcome,
    OutcomeKind,
    PostComment,
    PushBranch,
    Pushed,
    Recovered,
    RefreshIssues,
    ResultStatus,
    RunEnded,
    StopAsked,
    StoredClaim,
    WakeAsked,
    not_active_text,
    refusal,
    results,
)

TAKEN = Failure(
    category=Category.BRANCH_NOT_PLACED, blame=Blame.WORKSPACE, message="is taken", hint="rename it"
)
REFUSED = Failure(category=Category.PUSH_FAILED, blame=Blame.WORKSPACE, message="no route", hint="mend it")


def delivered(**changes: Any) -> DeliveredBranch:
    """Two commits on a branch of the first issue."""
    made = DeliveredBranch(
        work=WorkSize(commits=2, files_changed=1, insertions=5, deletions=3),
        branch="symphony/SYM-1",
        head="abc",
    )
    return structs.replace(made, **changes)


def ends(story: Story, issue_id: str = "1", **changes: Any) -> Story:
    """The run of an issue ends well, with what it delivered."""
    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, progress=True, delivered=delivered())
    story.tell(RunEnded(run_id=story.run_id(issue_id), outcome=replace(outcome, **changes)))
    return story


def working(*, state: str = "Human Review", **settings: Any) -> Story:
    """A run of the first issue, which its session has moved meanwhile."""
    story = Story(make_issue(description="long"), **settings).begin()
    story.streams(turn_count=1, total_tokens=700, cost_usd=0.5, unpriced_tokens=7, tool_calls=1)
    story.put("1", state=state)
    return story


def reviewed(*, state: str = "Human Review", settings: dict[str, Any] | None = None, **outcome: Any) -> Story:
    """Its work is delivered, and its claim is released."""
    story = ends(working(state=state, **(settings or {})).turn_ends(), **outcome)
    return story.advance(2_000)


def result(story: Story) -> IssueResult:
    """What the runs of the first issue came to."""
    return story.state.results["1"]


# --- ready, ended, gone ----------------------------------------------------------------------------------


def test_work_that_left_the_active_states_is_ready_for_review() -> None:
    story = reviewed(summary="It works now.")
    found = result(story)
    assert (found.status, found.delivered, found.issue.state) == (
        ResultStatus.READY,
        delivered(),
        "Human Review",
    )
    assert (found.turns, found.usage.tokens.total_tokens, found.usage.cost_usd) == (1, 700, 0.5)
    assert (found.summary, found.issue.description) == ("It works now.", None)
    assert [notice.fields["branch"] for notice in story.notices("work_ready")] == ["symphony/SYM-1"]


def test_a_run_that_is_stopped_because_its_issue_was_moved_is_ready_too() -> None:
    story = working()
    story.report(tool_calls=0).tell(WakeAsked(reason="moved"))
    ends(story, kind=OutcomeKind.CANCELED)
    assert result(story).status is ResultStatus.READY


def test_work_on_an_issue_that_became_unroutable_is_ready_too() -> None:
    story = Story(make_issue(), required_labels=()).begin()
    story.streams()
    story.put("1", dispatchable=False)
    story.tell(WakeAsked(reason="assigned to somebody"))
    assert result(ends(story)).status is ResultStatus.READY


def test_work_in_a_terminal_state_has_ended() -> None:
    story = reviewed(state="Done")
    assert result(story).status is ResultStatus.ENDED
    assert story.notices("work_ended")
    assert len(story.said(PostComment)) == 1


def test_a_run_without_a_commit_leaves_nothing_to_review() -> None:
    story = reviewed(delivered=None)
    assert not story.state.results
    assert not story.said(PostComment)


def test_all_runs_of_an_issue_are_added_up() -> None:
    story = ends(working(state="In Progress"), summary="half of it")
    story.advance(1_500).streams(turn_count=2, total_tokens=300)
    story.put("1", state="Human Review")
    ends(story.turn_ends(), delivered=None).advance(2_000)
    found = result(story)
    assert (found.turns, found.usage.tokens.total_tokens, found.usage.cost_usd) == (3, 1_000, 0.5)
    assert (found.status, found.delivered, found.summary) == (ResultStatus.READY, delivered(), "half of it")


def test_ready_work_that_a_person_moves_back_starts_again() -> None:
    story = reviewed().forget()
    story.put("1", state="Todo")
    story.tell(WakeAsked(reason="moved"))
    assert story.started() == ["SYM-1"]
    assert result(story).status is ResultStatus.OPEN
    assert len(story.notices("review_ended")) == 1


def test_ready_work_that_a_poll_finds_active_starts_after_one_refresh() -> None:
    story = reviewed().forget()
    story.put("1", state="Todo")
    story.advance(30_000)
    assert story.started() == ["SYM-1"]
    assert result(story).status is ResultStatus.OPEN


def test_ready_work_that_is_active_again_is_not_ready_while_nothing_starts() -> None:
    story = reviewed()
    story.state = story.state.changed(paused=True)
    story.put("1", state="Todo")
    story.advance(30_000)
    assert result(story).status is ResultStatus.OPEN, "the poll has seen it, and a look by id was asked for"
    assert not story.state.running


def test_ready_work_ends_when_a_person_closes_the_issue() -> None:
    story = reviewed().forget()
    story.put("1", state="Done")
    story.tell(WakeAsked(reason="moved"))
    assert result(story).status is ResultStatus.ENDED
    assert not story.said(PostComment), "it was said when it was ready"


def test_ready_work_is_refreshed_every_ten_minutes_without_a_wake() -> None:
    story = reviewed(settings={"poll_interval_ms": 60_000})
    story.put("1", state="Done")
    story.advance(IDLE_WORKSPACE_CHECK_MS + 60_000)
    assert result(story).status is ResultStatus.ENDED


def test_ready_work_of_a_deleted_issue_is_dropped_and_logged() -> None:
    story = reviewed()
    del story.board["1"]
    story.tell(WakeAsked(reason="deleted"))
    assert not story.state.results
    (notice,) = story.notices("review_ended")
    assert (notice.level, notice.fields["branch"]) == ("warning", "symphony/SYM-1")


def test_a_wake_refreshes_few_ready_issues_and_not_hundreds() -> None:
    story = reviewed()
    many = {str(number): replace(result(story), issue=make_issue(str(number))) for number in range(2, 60)}
    story.state = story.state.changed(results={**story.state.results, **many})
    story.forget().tell(WakeAsked(reason="moved"))
    assert not story.said(RefreshIssues)


def test_no_wake_during_a_shutdown_refreshes_ready_work() -> None:
    story = reviewed()
    story.board["2"] = make_issue("2")
    story.tell(WakeAsked(reason="new"))
    story.streams("2").tell(DrainAsked())
    story.forget().tell(WakeAsked(reason="moved"))
    assert not story.said(RefreshIssues)


def test_what_is_remembered_is_bounded_and_ended_work_goes_first() -> None:
    story = reviewed()
    old = replace(result(story), issue=make_issue("2", state="Human Review"), ended_ms=-5)
    over = replace(result(story), issue=make_issue("3"), status=ResultStatus.ENDED)
    many = {
        str(number): replace(old, issue=make_issue(str(number), state="Human Review"))
        for number in range(4, results.MAX_RESULTS + 2)
    }
    story.board |= {"2": old.issue, "3": make_issue("3", state="Done")}
    story.board |= {number: one.issue for number, one in many.items()}
    story.state = story.state.changed(results={"2": old, "3": over, **many})
    story.put("1", state="Todo")
    story.tell(WakeAsked(reason="moved"))
    ends(story.streams())
    assert set(story.state.results) == {"1", "2", *many}


# --- on the issue ----------------------------------------------------------------------------------------


def test_one_comment_says_where_the_work_is() -> None:
    (note,) = reviewed().said(PostComment)
    assert note.kind == "delivery"
    for fact in ("symphony/SYM-1", "2 commits", "1 file", "+5 -3", "symphony diff SYM-1"):
        assert fact in note.body


def test_no_comment_follows_the_agents_own_or_if_comments_are_off() -> None:
    assert not reviewed(commented=True).said(PostComment)
    assert not reviewed(settings={"comment_on_delivery": False}).said(PostComment)


# --- pushes ----------------------------------------------------------------------------------------------


LEFT = "/srv/SYM-1: 1 uncommitted or untracked file(s) (git -C /srv/SYM-1 status)"


@pytest.mark.parametrize(
    "outcome", [{}, {"delivered": None}, {"commented": True}], ids=["beside commits", "alone", "commented"]
)
def test_work_that_no_branch_has_is_told_when_the_issue_is_handed_over(outcome: dict[str, Any]) -> None:
    story = reviewed(left=LEFT, **outcome)
    assert [notice.fields["reason"] for notice in story.notices("work_left")] == [LEFT]
    (comment,) = story.said(PostComment)
    assert LEFT in comment.body
    assert ("symphony/SYM-1" in comment.body) is (not outcome)


def _pushed(story: Story, failure: Failure | None, head: str = "abc") -> None:
    story.tell(Pushed(issue_id="1", head=head, failure=failure))


@pytest.mark.parametrize("wanted", [True, False])
def test_failed_deliveries_are_commented_on_the_issue_if_comments_are_on(*, wanted: bool) -> None:
    failure = Failure(category=Category.DELIVERY_FAILED, blame=Blame.WORKSPACE, message="closed `.git`\nx")
    story = working(comment_on_delivery=wanted).turn_ends()
    ends(story, kind=OutcomeKind.FAILED, failure=failure, delivered=None)
    notes = [note for note in story.said(PostComment) if note.kind == "delivery"]
    assert len(notes) == int(wanted)
    assert all("```text\nclosed `.git` x\n```" in note.body for note in notes)


def test_a_push_is_logged_once_for_each_commit() -> None:
    story = ends(working(state="In Progress"), delivered=delivered(pushed=True))
    story.advance(1_500).streams()
    ends(story, delivered=delivered(pushed=True))
    assert [notice.fields["commit"] for notice in story.notices("branch_pushed")] == ["abc"]
    assert not story.said(PushBranch)


def test_attempts_to_push_are_told_once_for_each_outcome() -> None:
    story = reviewed(delivered=delivered(to_push=True))
    assert "being pushed" in story.said(PostComment)[0].body
    _pushed(story, REFUSED)
    assert "no route" in story.said(PostComment)[-1].body
    assert len(story.notices("push_failed")) == 1
    assert results.unpushed_results(story.state) == (result(story),)
    state = story.forget().state
    _pushed(story, REFUSED)
    assert story.state == state, "it failed again as before"
    assert not story.notices("push_failed")
    _pushed(story, None)
    assert story.notices("branch_pushed")
    assert "pushed to `origin`" in story.said(PostComment)[0].body
    done = result(story).delivered
    assert done is not None
    assert (done.pushed, done.push_failure) == (True, None)


def test_the_end_of_a_run_and_the_next_daemon_take_up_a_push_that_failed() -> None:
    story = ends(working(state="In Progress"), delivered=delivered(to_push=True))
    _pushed(story, replace(REFUSED, retryable=False))
    story.advance(1_500).streams().forget()
    ends(story, delivered=None)
    assert [command.head for command in story.said(PushBranch)] == ["abc"]


def test_a_delivered_branch_is_pushed_beside_the_next_run_and_its_slot_is_free() -> None:
    story = ends(working(state="In Progress"), delivered=delivered(to_push=True))
    assert [command.head for command in story.said(PushBranch)] == ["abc"]
    assert not story.state.running
    story.advance(1_500).streams().forget()
    assert result(story).pushing_since_ms == 0
    ends(story, delivered=delivered(to_push=True))
    assert not story.said(PushBranch), "the same commit is being pushed"
    story.advance(1_500).streams()
    ends(story, delivered=delivered(head="def", to_push=True))
    assert [command.head for command in story.said(PushBranch)] == ["def"]
    _pushed(story, None)
    assert not (result(story).delivered or delivered()).pushed, "that was the older commit"
    _pushed(story, None, head="def")
    assert (result(story).delivered or delivered()).pushed


def test_a_branch_that_the_repository_did_not_take_is_told_even_if_the_agent_commented_and_tried_again() -> (
    None
):
    story = reviewed(commented=True, delivered=delivered(branch_failure=TAKEN))
    (note,) = story.said(PostComment)
    assert all(text in note.body for text in ("`symphony/SYM-1` of the repository", "is taken", "rename it"))
    assert [notice.fields["hint"] for notice in story.notices("branch_not_placed")] == ["rename it"]
    assert [command.head for command in story.said(PushBranch)] == ["abc"]
    story.tell(Pushed(issue_id="1", head="abc"))
    done = result(story).delivered
    assert done == delivered()
    assert "is on the branch `symphony/SYM-1`" in story.said(PostComment)[-1].body


def test_a_branch_that_is_where_it_should_be_is_not_pushed() -> None:
    story = reviewed(delivered=delivered())
    story.advance(120_000)
    assert not story.said(PushBranch)


def test_what_the_removal_of_a_workspace_delivers_is_pushed_also_for_an_issue_that_nobody_lists() -> None:
    story = Story().begin()
    story.tell(BranchDelivered(issue_id="1", identifier="SYM-1", delivered=delivered(to_push=True)))
    assert [command.branch for command in story.said(PushBranch)] == ["symphony/SYM-1"]
    _pushed(story, REFUSED)
    assert results.unpushed_results(story.state) == (result(story),)
    story.forget()
    story.tell(BranchDelivered(issue_id="1", identifier="SYM-1", delivered=delivered(to_push=True)))
    assert not story.said(PushBranch), "it is known, and waits for its next try"
    story.advance(30_000)
    _pushed(story, None)
    assert not story.state.results


def test_a_push_of_a_blocked_issue_is_retried_without_a_comment() -> None:
    story = ends(
        working(state="In Progress"),
        kind=OutcomeKind.INPUT_REQUIRED,
        failure=make_failure(),
        delivered=delivered(to_push=True, push_failure=REFUSED),
    )
    story.advance(30_000).forget()
    _pushed(story, None)
    assert story.notices("branch_pushed")
    assert not story.said(PostComment)


def test_the_outcome_of_an_older_push_is_ignored() -> None:
    story = reviewed(delivered=delivered(to_push=True))
    before = story.state
    for fact in (
        Pushed(issue_id="9", head="abc"),
        Pushed(issue_id="1", head="of another delivery"),
    ):
        story.tell(fact)
        assert story.state == before


def test_a_branch_that_the_repository_takes_at_last_is_told_without_a_push() -> None:
    story = reviewed(delivered=delivered(branch_failure=TAKEN))
    story.forget()
    _pushed(story, None)
    result = story.state.results["1"]
    assert result.delivered is not None
    assert (result.delivered.branch_failure, result.delivered.pushed) == (None, False)


def test_the_next_daemon_that_fails_to_push_as_before_tells_nothing_new() -> None:
    left = reviewed(delivered=delivered(to_push=True, push_failure=REFUSED)).state.results["1"]
    story = Story(make_issue(state="Human Review"))
    story.tell(Recovered(results=(left,)))
    assert story.state.results["1"].pushing_since_ms is not None
    story.forget()
    _pushed(story, REFUSED)
    assert story.state.results["1"].pushing_since_ms is None
    assert not story.notices("push_failed")


def test_an_attempt_that_changes_nothing_is_told_to_nobody() -> None:
    story = reviewed(delivered=delivered(to_push=True))
    _pushed(story, REFUSED)
    story.forget()
    _pushed(story, REFUSED)
    assert story.told == []


def test_pushes_of_ended_and_deleted_issues_are_retried() -> None:
    story = reviewed(state="Done", delivered=delivered(to_push=True, push_failure=REFUSED))
    story.advance(30_000).forget()
    _pushed(story, None)
    assert len(story.said(PostComment)) == 1

    story = reviewed(delivered=delivered(to_push=True, push_failure=REFUSED))
    del story.board["1"]
    story.tell(WakeAsked(reason="deleted"))
    assert result(story).status is ResultStatus.GONE
    story.advance(30_000).forget()
    _pushed(story, None)
    assert not story.state.results
    assert not story.said(PostComment)


def test_no_push_keeps_the_scheduler_from_its_end() -> None:
    story = reviewed(delivered=delivered(to_push=True))
    story.tell(DrainAsked())
    assert len(story.said(Exit)) == 1
    _pushed(story, None)
    assert "pushed to `origin`" in story.said(PostComment)[-1].body, "the outbox waits for it"


def test_a_run_that_ends_while_the_daemon_stops_owes_its_push() -> None:
    story = working()
    story.tell(StopAsked())
    ends(story, kind=OutcomeKind.CANCELED, delivered=delivered(to_push=True))
    assert [command.head for command in story.said(PushBranch)] == ["abc"]
    assert len(story.said(Exit)) == 1


# --- orders ----------------------------------------------------------------------------------------------


def test_an_action_on_finished_work_is_refused_with_the_state_of_the_issue() -> None:
    story = reviewed(settings={"on_return": "Todo"})
    for verb in (OperatorAction.STOP, OperatorAction.RETRY, OperatorAction.UNBLOCK, OperatorAction.ANSWER):
        refused = refusal(story.state, verb, "1", "yes")
        assert refused is not None
        assert refused.code == "not_active"
        assert refused.message == "SYM-1 is in Human Review, which is no active state"
        assert refused.hint == "move it to Todo to have it worked on"
    story.put("1", state="Todo")
    story.tell(WakeAsked(reason="moved"))
    story.report()
    assert refusal(story.state, OperatorAction.STOP, "1") is None


def test_an_action_on_a_deleted_issue_is_refused() -> None:
    story = reviewed(delivered=delivered(to_push=True, push_failure=REFUSED))
    del story.board["1"]
    story.tell(WakeAsked(reason="deleted"))
    refused = refusal(story.state, OperatorAction.RETRY, "1")
    assert refused is not None
    assert "does not find SYM-1" in refused.message


def test_an_action_on_an_unroutable_issue_is_refused_with_the_reason() -> None:
    held = make_issue(dispatchable=False, not_dispatchable_reason="assigned to a person")
    message, hint = not_active_text(held, make_settings())
    assert "assigned to a person" in message
    assert hint
    assert not_active_text(make_issue(state="Nowhere"), make_settings())[1].startswith(
        "move it to an active state"
    )


# --- over a restart --------------------------------------------------------------------------------------


def _remembered(**changes: Any) -> IssueResult:
    made = IssueResult(
        issue=make_issue(state="Human Review"), status=ResultStatus.READY, delivered=delivered()
    )
    return replace(made, **changes)


def test_the_next_daemon_keeps_ready_work_and_notices_changes() -> None:
    story = Story(make_issue(state="Human Review"))
    story.tell(Recovered(results=(_remembered(ended_ms=99_999_999),)))
    assert (result(story).status, result(story).ended_ms) == (ResultStatus.READY, 0)
    assert len(story.said(PostComment)) == 1, "once more, as the word may not have got out"

    story = Story(make_issue(state="Done"))
    story.tell(Recovered(results=(_remembered(),)))
    assert result(story).status is ResultStatus.ENDED


def test_the_next_daemon_retries_a_failed_push_at_once() -> None:
    story = Story(make_issue(state="Human Review"))
    kept = _remembered(delivered=delivered(to_push=True, push_failure=REFUSED), pushing_since_ms=5)
    story.tell(Recovered(results=(kept,)))
    story.advance(0)
    assert [command.head for command in story.said(PushBranch)] == ["abc"]


def test_a_claim_reopens_a_recovered_result_and_duplicates_are_ignored() -> None:
    story = Story(make_issue())
    claim = StoredClaim(issue=make_issue(), kind=ClaimKind.BLOCKED, failure=make_failure())
    story.tell(Recovered(claims=(claim,), results=(_remembered(), _remembered(turns=9))))
    assert (result(story).status, result(story).turns) == (ResultStatus.OPEN, 0)
