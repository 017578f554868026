from harness.scheduling import Story, make_failure, make_issue
from symphony.cli.commands.demo import IssueRow, describe_blocked, issue_rows
from symphony.domain import Blocker
from symphony.scheduler import (
    Ineligible,
    Outcome,
    OutcomeKind,
    RunEnded,
    RunStage,
    eligibility,
    retry_text,
)


def row(story: Story, identifier: str) -> IssueRow:
    (found,) = [one for one in issue_rows(story.state) if one.issue.identifier == identifier]
    return found


def test_a_daemon_that_knows_nothing_shows_nothing() -> None:
    assert not list(issue_rows(Story().state))


def test_the_reason_why_an_issue_waits_is_in_the_words_of_the_policy() -> None:
    behind = Blocker(id="1", identifier="SYM-1", state="Done")
    story = Story(
        make_issue("1", state="In Progress", priority=1),
        make_issue("2", state="In Progress"),
        make_issue("3", blocked_by=(behind,)),
        make_issue("4", dispatchable=False),
        max_concurrent_by_state={"in progress": 1},
    ).begin()
    assert [one.status for one in issue_rows(story.state)] == ["running", "waiting", "waiting", "waiting"]
    for issue_id in ("2", "3", "4"):
        verdict = eligibility(story.state.candidates[issue_id], story.state)
        assert isinstance(verdict, Ineligible)
        assert row(story, f"SYM-{issue_id}").detail == verdict.message
    assert len({one.detail for one in issue_rows(story.state)}) == 4, "four reasons, told apart"


def test_an_issue_that_is_picked_starts_as_soon_as_it_is_refreshed() -> None:
    story = Story(make_issue("1"))
    story.slow = True
    story.begin()
    story.answer_poll()
    assert row(story, "SYM-1").detail == "starts as soon as it is refreshed"


def test_a_run_shows_its_stage_until_the_agent_says_something() -> None:
    story = Story(make_issue("1", title="Greet")).begin()
    first = row(story, "SYM-1")
    assert (first.status, first.detail, first.issue.title, first.turn) == (
        "running",
        "preparing workspace",
        "Greet",
        1,
    )
    story.report(stage=RunStage.STREAMING_TURN, last_message="reads the file")
    assert row(story, "SYM-1").detail == "reads the file"


def test_an_issue_that_is_retried_tells_why_and_which_attempt_is_next() -> None:
    story = Story(make_issue("1")).begin()
    story.fails(failure=make_failure("it broke"))
    assert row(story, "SYM-1").status == "retrying"
    assert row(story, "SYM-1").detail == retry_text(story.state.retrying["1"], story.state.settings)
    assert "it broke" in row(story, "SYM-1").detail
    assert "attempt 2 of" in row(story, "SYM-1").detail


def test_a_blocked_issue_shows_the_failure_that_blocked_it() -> None:
    story = Story(make_issue("1")).begin()
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure("needs a person"))
    assert (row(story, "SYM-1").status, row(story, "SYM-1").detail) == ("blocked", "needs a person")


def test_each_issue_is_shown_once() -> None:
    story = Story(*(make_issue(key) for key in ("3", "1", "2"))).begin()
    story.fails("2")
    assert sorted(one.issue.id for one in issue_rows(story.state)) == ["1", "2", "3"]


def test_a_question_that_the_failure_does_not_hold_is_shown_with_it() -> None:
    story = Story(make_issue("1"), make_issue("2")).begin()
    failure = make_failure("it needs a person")
    for issue_id, question in (("1", "Which\ncolour?"), ("2", None)):
        outcome = Outcome(kind=OutcomeKind.INPUT_REQUIRED, failure=failure, question=question)
        story.tell(RunEnded(run_id=story.run_id(issue_id), outcome=outcome))
    assert describe_blocked(story.state.blocked["1"]) == "it needs a person, which asks: Which\ncolour?"
    assert describe_blocked(story.state.blocked["2"]) == "it needs a person"
