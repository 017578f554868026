"""Work that is handed over is verified; failures go back to the same conversation, and then to a person."""

from dataclasses import replace
from typing import Any

import pytest

from harness.scheduling import Story, make_failure, make_issue
from symphony.domain import (
    Blame,
    Category,
    CheckRun,
    DeliveredBranch,
    Failure,
    ReviewerRemark,
    ReviewerVerdict,
    Tokens,
    Verification,
    VerificationStatus,
    WorkSize,
)
from symphony.scheduler import (
    MAX_NOT_REVIEWED,
    ClaimKind,
    CleanWorkspace,
    DrainAsked,
    FinishReason,
    FinishRun,
    IssueResult,
    MoveIssue,
    MoveReason,
    OperatorAction,
    OperatorAsked,
    Outcome,
    OutcomeKind,
    PostComment,
    Recovered,
    ResultStatus,
    Resume,
    ResumeReason,
    RunEnded,
    RunStage,
    StartRun,
    StopAsked,
    StopReason,
    StopRun,
    StoredClaim,
    is_verified,
    refusal,
)

INTERRUPTED = Resume(reason=ResumeReason.INTERRUPTED)
PASSED = Verification(head="abc", checks=(CheckRun(name="tests", exit_code=0),))
FAILED = Verification(
    head="abc", checks=(CheckRun(name="tests", exit_code=2, output_tail="1 failed"), CheckRun(name="lint"))
)
RED_BASE = Verification(head="abc", checks=(CheckRun(name="tests", exit_code=2, fails_on_base=True),))


def handing_over(state: str = "Human Review", **settings: Any) -> Story:
    """A run whose agent moved its issue in its first turn, which has ended."""
    settings = {"verify_rounds": 1, "on_return": "Todo", **settings}
    story = Story(make_issue(), poll_interval_ms=60_000, **settings).begin()
    story.streams(thread_id="t-1", turn_count=1, session_id="t-1-1", tool_calls=1)
    story.put("1", state=state)
    return story.turn_ends()


def verified(story: Story, verification: Verification | None, **changes: Any) -> Story:
    """The worker is gone, after the verification of what it delivered."""
    delivered = DeliveredBranch(work=WorkSize(commits=1), branch="symphony/SYM-1", head="abc", pushed=True)
    values = {"kind": OutcomeKind.SUCCEEDED, "progress": True, "delivered": delivered, **changes}
    outcome = Outcome(verification=verification, **values)
    story.tell(RunEnded(run_id=story.run_id(), outcome=outcome))
    return story


def moved(story: Story) -> Story:
    """The tracker carries the latest move out, and the daemon sees it."""
    move = story.said(MoveIssue)[-1]
    story.put("1", state=move.state)
    return story.look()


def resume_of(story: Story) -> Resume:
    entry = story.state.entry("1")
    assert entry is not None
    assert entry.resume is not None
    return entry.resume


def test_a_pass_lets_the_run_end_as_always() -> None:
    story = handing_over()
    kept = replace(PASSED, run_id=story.run_id())
    verified(story, PASSED).advance(2_000)
    assert [finish.verify for finish in story.said(FinishRun)] == [True]
    result = story.state.results["1"]
    assert (result.status, result.verification, result.verify_rounds) == (ResultStatus.READY, kept, 0)
    assert story.notices("work_ready")[0].fields["verified"] == "passed"
    assert "Verified at `abc`" in story.said(PostComment)[-1].body


def test_without_commands_nothing_is_asked_for() -> None:
    story = handing_over(verify_rounds=None)
    assert [finish.verify for finish in story.said(FinishRun)] == [False]


@pytest.mark.parametrize("state", ["Human Review", "Done"])
def test_a_failure_moves_the_issue_back_and_goes_to_the_same_conversation(state: str) -> None:
    story = verified(handing_over(state), FAILED)
    (move,) = story.said(MoveIssue)
    assert (move.state, move.reason) == ("Todo", MoveReason.VERIFY_FAILED)
    assert move.only_from == {state.lower()}
    assert not story.said(CleanWorkspace)
    resume = resume_of(story)
    assert resume.reason is ResumeReason.VERIFY_FAILED
    assert resume.thread is not None
    assert resume.thread.thread_id == "t-1"
    assert "1 failed" in (resume.answer or "")
    story.forget().advance(2_000)  # the tracker has not moved it yet, and the agent goes on
    assert [start.resume for start in story.said(StartRun)] == [resume]
    story.streams(turn_count=1).look()
    assert not story.said(StopRun)
    story.put("1", state="Todo")
    story.look()
    assert resume_of(story).handed_over_to is None
    assert story.state.results["1"].status is ResultStatus.OPEN


def test_after_the_rounds_the_issue_is_blocked_with_the_evidence_until_a_person_acts() -> None:
    story = verified(handing_over(), FAILED).advance(2_000)
    moved(story)
    story.streams(turn_count=1, tool_calls=1).put("1", state="Done")
    story.turn_ends()
    verified(story.forget(), FAILED)
    blocked = story.state.blocked["1"]
    assert blocked.failure.category is Category.VERIFY_FAILED
    assert "1 failed" in story.said(PostComment)[-1].body
    assert story.state.results["1"].verify_rounds == 0
    story.look()  # it is still where it was handed over
    assert story.state.blocked["1"].failure is blocked.failure
    moved(story)
    assert story.said(MoveIssue)[-1].state == "Todo"
    assert "1" in story.state.blocked
    assert resume_of(story).handed_over_to is None
    story.forget().tell(OperatorAsked(action=OperatorAction.UNBLOCK, issue_id="1"))
    story.advance(2_000)
    assert [start.resume.reason for start in story.said(StartRun) if start.resume] == [
        ResumeReason.VERIFY_FAILED
    ]


def test_blocked_work_that_the_tracker_does_not_move_back_goes_on_where_it_is() -> None:
    story = verified(handing_over(verify_rounds=0), FAILED)
    story.look()  # the tracker refused the move
    assert "1" in story.state.blocked
    story.forget().tell(OperatorAsked(action=OperatorAction.UNBLOCK, issue_id="1"))
    story.advance(2_000)
    assert [start.resume.reason for start in story.said(StartRun) if start.resume] == [
        ResumeReason.VERIFY_FAILED
    ]


def test_a_person_who_closes_a_blocked_issue_ends_it() -> None:
    story = verified(handing_over(verify_rounds=0), FAILED)
    moved(story)
    assert "1" in story.state.blocked
    story.put("1", state="Done")
    story.look()
    assert story.state.entry("1") is None


def test_blocked_work_goes_to_the_state_for_blocked_issues() -> None:
    story = verified(handing_over(verify_rounds=0, on_block="Blocked"), FAILED)
    assert [(move.state, move.reason) for move in story.said(MoveIssue)] == [("Blocked", MoveReason.BLOCK)]
    moved(story)
    assert "1" in story.state.blocked


def test_what_fails_on_the_base_too_is_ready_and_no_pass() -> None:
    story = verified(handing_over(), RED_BASE).advance(2_000)
    result = story.state.results["1"]
    assert result.status is ResultStatus.READY
    assert result.verification is not None
    assert result.verification.status is VerificationStatus.BASE_FAILED
    assert "Not verified at" in story.said(PostComment)[-1].body


def test_a_verification_that_was_cut_off_is_made_by_a_run_without_a_session() -> None:
    story = verified(handing_over("Done"), None, kind=OutcomeKind.FAILED, failure=make_failure())
    assert resume_of(story).reason is ResumeReason.VERIFY
    story.forget().advance(60_000)
    (start,) = story.said(StartRun)
    assert start.resume is not None
    assert start.resume.reason is ResumeReason.VERIFY
    assert start.issue.state == "Done"
    assert not story.said(MoveIssue)
    story.report(workspace_path="/ws/1").look()
    assert not story.said(StopRun)
    verified(story, PASSED).advance(2_000)
    assert story.state.entry("1") is None
    assert story.said(CleanWorkspace)


def by_hand(state: str = "Human Review") -> Story:
    """Finished work, of which a person asks the verification, and the run for that."""
    story = verified(handing_over(state), PASSED).advance(2_000).forget()
    story.tell(OperatorAsked(action=OperatorAction.VERIFY, issue_id="1"))
    return story.advance(10)


@pytest.mark.parametrize("state", ["Human Review", "Done"])
@pytest.mark.parametrize("made", [PASSED, FAILED, None])
def test_a_verification_by_hand_changes_the_result_and_nothing_else(
    state: str, made: Verification | None
) -> None:
    story = by_hand(state)
    assert [run.resume and run.resume.reason for run in story.said(StartRun)] == [ResumeReason.VERIFY]
    verified(story, made).advance(400_000)
    assert story.state.entry("1") is None
    assert len(story.said(StartRun)) == 1, "no agent is told, and nothing is tried again"
    assert story.said(MoveIssue) == []
    result = story.state.results["1"]
    assert result.status in {ResultStatus.READY, ResultStatus.ENDED}
    assert result.verification is not None
    kept = replace(result.verification, run_id=None)
    assert kept == (made or PASSED), "what was not carried out says nothing new"
    assert result.verify_rounds == 0


def test_a_daemon_that_ends_leaves_a_verification_by_hand_to_the_next_one() -> None:
    story = by_hand()
    story.tell(StopAsked())
    verified(story, None, kind=OutcomeKind.CANCELED)
    assert (resume_of(story).reason, resume_of(story).by_hand) == (ResumeReason.VERIFY, True)


def test_only_finished_work_can_be_verified_by_hand() -> None:
    def code(story: Story) -> str | None:
        refused = refusal(story.state, OperatorAction.VERIFY, "1")
        return None if refused is None else refused.code

    finished = verified(handing_over(), PASSED).advance(2_000)
    assert code(finished) is None
    finished.tell(OperatorAsked(action=OperatorAction.PAUSE))
    assert code(finished) == "nothing_starts"
    assert code(handing_over()) == "claimed"
    assert code(Story(make_issue(state="Done"), verify_rounds=1).begin()) == "nothing_delivered"
    assert code(verified(handing_over(verify_rounds=None), None).advance(2_000)) == "no_checks"


def test_a_drain_leaves_a_verification_to_the_next_daemon() -> None:
    story = handing_over()
    story.tell(DrainAsked())
    verified(story, None, kind=OutcomeKind.CANCELED)
    assert resume_of(story).reason is ResumeReason.VERIFY


def test_a_daemon_that_was_killed_verifies_again() -> None:
    left = StoredClaim(
        issue=make_issue(state="Done"),
        kind=ClaimKind.RUNNING,
        resume=Resume(
            reason=ResumeReason.VERIFY, after_handoff=True, handed_over_to="done", back_to="In Progress"
        ),
    )
    story = Story(make_issue(state="Done"), verify_rounds=1)
    story.tell(Recovered(claims=(left,)))
    story.advance(1_000)
    (start,) = story.said(StartRun)
    assert start.resume == left.resume
    verified(story, FAILED)
    assert [move.state for move in story.said(MoveIssue)] == ["In Progress"]


def test_an_unroutable_issue_is_let_go() -> None:
    story = verified(handing_over("Done"), FAILED)
    story.put("1", dispatchable=False)
    story.advance(2_000)
    assert story.state.entry("1") is None


def test_the_last_turn_is_verified_without_a_round_or_a_move() -> None:
    story = Story(make_issue(), verify_rounds=1, max_turns=1).begin()
    story.streams(thread_id="t-1", turn_count=1).turn_ends()
    assert [(one.reason, one.verify) for one in story.said(FinishRun)] == [(FinishReason.MAX_TURNS, True)]
    verified(story, FAILED)
    assert not story.said(MoveIssue)
    assert story.state.results["1"].verify_rounds == 0
    resume = resume_of(story)
    assert (resume.reason, resume.handed_over_to) == (ResumeReason.VERIFY_FAILED, None)


def test_a_person_who_closes_the_issue_in_mid_turn_decides() -> None:
    story = Story(make_issue(), verify_rounds=1).begin()
    story.streams().put("1", state="Done")
    story.look()
    assert [(one.reason, one.verify) for one in story.said(StopRun)] == [(StopReason.TERMINAL, False)]
    verified(story, None, kind=OutcomeKind.CANCELED)
    assert story.said(CleanWorkspace)


def test_an_agent_that_moved_its_issue_and_does_not_end_is_verified() -> None:
    story = Story(make_issue(), verify_rounds=1).begin()
    story.streams(tool_calls=1).put("1", state="Done")
    story.look().advance(60_000)
    assert [(one.reason, one.verify) for one in story.said(StopRun)] == [(StopReason.TERMINAL, True)]


def test_an_operator_who_stops_the_issue_stops_the_verification() -> None:
    story = handing_over()
    story.tell(OperatorAsked(action=OperatorAction.STOP, issue_id="1"))
    assert [one.verify for one in story.said(StopRun)] == [False]
    verified(story, None, kind=OutcomeKind.CANCELED)
    assert story.state.blocked["1"].failure.category is Category.STOPPED_BY_OPERATOR


def test_the_same_head_that_passes_after_it_failed_is_told_as_such() -> None:
    story = verified(handing_over(), FAILED).advance(2_000)
    story.streams(turn_count=1, tool_calls=1).put("1", state="Human Review")
    verified(story.turn_ends(), PASSED).advance(2_000)
    result = story.state.results["1"]
    assert result.verification is not None
    assert result.verification.passed_after_failure


def test_a_new_commit_makes_the_former_result_stale() -> None:
    story = verified(handing_over(), PASSED).advance(2_000)
    story.put("1", state="Todo")
    story.look()
    story.streams(turn_count=1).put("1", state="Done")
    story.look()
    story.delivers(head="def")
    assert story.state.results["1"].verification is None


def test_what_checks_the_work_is_named_where_the_change_touches_it() -> None:
    told = Verification(
        head="abc", protected_changes=("tests/a.py",), weakened=("tests/a.py: test_b is gone",)
    )
    story = verified(handing_over(), told).advance(2_000)
    body = story.said(PostComment)[-1].body
    assert "tests/a.py" in body
    assert "test_b is gone" in body


def test_only_the_very_commit_that_passed_is_verified() -> None:
    result = IssueResult(issue=make_issue(), verification=PASSED)
    assert is_verified(result, "abc")
    assert not is_verified(result, "def")
    assert not is_verified(replace(result, verification=FAILED), "abc")
    assert not is_verified(None, "abc")


def left_running(state: str, *, delivered: bool = True, resume: Resume = INTERRUPTED) -> Story:
    """A daemon was killed when the agent had moved its issue, and before it verified anything."""
    branch = DeliveredBranch(work=WorkSize(commits=1), branch="symphony/SYM-1", head="abc", pushed=True)
    issue = make_issue()
    claim = StoredClaim(issue=issue, kind=ClaimKind.RUNNING, resume=resume)
    result = IssueResult(issue=issue, delivered=branch)
    story = Story(make_issue(state=state), verify_rounds=1)
    story.tell(Recovered(claims=(claim,), results=(result,) if delivered else ()))
    return story.advance(1_000)


@pytest.mark.parametrize("state", ["Done", "Human Review"])
def test_work_of_a_run_that_was_cut_off_after_it_moved_its_issue_is_verified(state: str) -> None:
    (start,) = left_running(state).said(StartRun)
    assert start.resume is not None
    assert (start.resume.reason, start.resume.back_to) == (ResumeReason.VERIFY, "Todo")
    assert start.resume.handed_over_to == state.lower()


def test_a_run_that_was_cut_off_goes_on_in_an_active_state_and_ends_without_work() -> None:
    (start,) = left_running("Todo").said(StartRun)
    assert start.resume is not None
    assert start.resume.reason is ResumeReason.INTERRUPTED
    assert left_running("Done", delivered=False).said(StartRun) == []


def test_an_answer_that_no_turn_began_with_is_not_lost_to_a_verification() -> None:
    answered = Resume(reason=ResumeReason.ANSWERED, answer="the first one", after_handoff=True)
    (start,) = left_running("Backlog", resume=answered).said(StartRun)
    assert start.resume is not None
    assert start.resume.answer == "the first one"


def test_work_stays_where_it_is_if_no_state_is_known_to_send_it_back_to() -> None:
    left = StoredClaim(
        issue=make_issue(state="Done"),
        kind=ClaimKind.RUNNING,
        resume=Resume(reason=ResumeReason.VERIFY, after_handoff=True, handed_over_to="done"),
    )
    story = Story(make_issue(state="Done"), verify_rounds=1)
    story.tell(Recovered(claims=(left,)))
    verified(story.advance(1_000), FAILED)
    assert story.said(MoveIssue) == []
    assert resume_of(story).reason is ResumeReason.VERIFY_FAILED


# --- the reviewer ---

REMARK = ReviewerRemark(file="src/a.py", line=7, text="the sum is wrong")
REFUSED = replace(PASSED, reviewer=ReviewerVerdict(reviewer="critic", approves=False, remarks=(REMARK,)))
APPROVED = replace(PASSED, reviewer=ReviewerVerdict(reviewer="critic", approves=True, remarks=(REMARK,)))
SILENT = Failure(category=Category.NOT_REVIEWED, blame=Blame.HOST, message="reviewer critic gave no verdict")


def test_the_remarks_of_a_reviewer_go_to_the_conversation_within_the_same_rounds() -> None:
    story = verified(handing_over(), REFUSED)
    assert [(move.state, move.reason) for move in story.said(MoveIssue)] == [
        ("Todo", MoveReason.VERIFY_FAILED)
    ]
    resume = resume_of(story)
    assert resume.reason is ResumeReason.VERIFY_FAILED
    assert "src/a.py:7: the sum is wrong" in (resume.answer or "")
    assert story.state.results["1"].verify_rounds == 1
    assert not is_verified(story.state.results["1"], "abc")
    story = verified(handing_over(verify_rounds=0), REFUSED)
    assert story.state.blocked["1"].failure.category is Category.VERIFY_FAILED
    assert "the sum is wrong" in story.said(PostComment)[-1].body


def test_an_approval_is_told_with_its_remarks() -> None:
    story = verified(handing_over(), APPROVED).advance(2_000)
    assert is_verified(story.state.results["1"], "abc")
    body = story.said(PostComment)[-1].body
    assert "reviewer critic approves" in body
    assert "src/a.py:7: the sum is wrong" in body


def test_work_without_a_verdict_is_verified_again_and_then_left_to_a_person() -> None:
    story = verified(handing_over(), None, failure=SILENT)
    for count in range(1, MAX_NOT_REVIEWED):
        assert story.state.results["1"].not_reviewed == count
        assert "1" not in story.state.blocked
        assert not story.said(MoveIssue), "the agent is not told of it"
        story.forget().advance(600_000)
        (start,) = story.said(StartRun)
        assert start.resume is not None
        assert start.resume.reason is ResumeReason.VERIFY
        story.report(workspace_path="/ws/1")
        verified(story, None, failure=SILENT, progress=False)
    blocked = story.state.blocked["1"]
    assert blocked.failure.category is Category.NOT_REVIEWED
    assert "reviewer critic gave no verdict" in story.said(PostComment)[-1].body
    result = story.state.results["1"]
    assert (result.verify_rounds, result.not_reviewed) == (0, 0)
    assert not is_verified(result, "abc")
    moved(story).forget().tell(OperatorAsked(action=OperatorAction.UNBLOCK, issue_id="1"))
    story.advance(2_000)
    assert [start.resume.reason for start in story.said(StartRun) if start.resume] == [ResumeReason.VERIFY]


def test_a_verdict_ends_the_count() -> None:
    story = verified(handing_over(), None, failure=SILENT).advance(600_000)
    story.report(workspace_path="/ws/1")
    verified(story, APPROVED)
    assert story.state.results["1"].not_reviewed == 0


def test_what_a_reviewer_uses_is_no_part_of_the_conversation() -> None:
    story = handing_over()
    used = Tokens(total_tokens=700)
    story.report(total_tokens=1_700, reviewer_tokens=used)
    verified(story, REFUSED)
    thread = resume_of(story).thread
    assert thread is not None
    assert thread.tokens.total_tokens == 1_000
    assert story.state.results["1"].usage.tokens.total_tokens == 1_700


def test_a_reviewer_that_uses_up_the_tokens_of_the_issue_is_stopped_and_a_person_is_asked() -> None:
    story = handing_over(max_tokens_per_issue=1_500)
    story.report(stage=RunStage.VERIFYING, total_tokens=1_400, reviewer_tokens=Tokens(total_tokens=400))
    assert not story.said(StopRun)
    story.report(stage=RunStage.VERIFYING, total_tokens=1_600, reviewer_tokens=Tokens(total_tokens=600))
    assert [(one.reason, one.verify) for one in story.said(StopRun)] == [(StopReason.BUDGET, False)]
    verified(story, None, kind=OutcomeKind.CANCELED)
    assert story.state.blocked["1"].failure.category is Category.BUDGET_ISSUE
    assert resume_of(story).reason is ResumeReason.VERIFY
