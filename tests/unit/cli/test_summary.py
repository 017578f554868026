"""The summary of a run, computed from the steps of the scheduler."""

from harness.observing import ObservedStory
from harness.scheduling import make_failure, make_issue
from symphony.cli.summary import RunSummary
from symphony.scheduler import ClaimKind, Outcome, OutcomeKind, Recovered, RunEnded, StoredClaim


def ends(story: ObservedStory, **changes: object) -> None:
    values: dict[str, object] = {"kind": OutcomeKind.SUCCEEDED, "progress": True}
    outcome = Outcome(**values | changes)  # type: ignore[arg-type]  # named in each test
    story.tell(RunEnded(run_id=story.run_id(), outcome=outcome))


def test_attempts_turns_and_commits_are_summed_over_the_runs_of_an_issue() -> None:
    summary = RunSummary()
    story = ObservedStory(summary, make_issue("1")).begin()
    assert isinstance(story, ObservedStory)
    story.streams(turn_count=2, branch="symphony/SYM-1", commits=2)
    ends(story, kind=OutcomeKind.FAILED, failure=make_failure())
    (entry,) = summary.issues.values()
    assert (entry.attempts, entry.turns, entry.commits) == (1, 2, 2)
    assert entry.last_failure == make_failure()
    story.advance(20_000)
    story.streams(turn_count=1, commits=1)
    ends(story)
    assert (entry.attempts, entry.turns, entry.commits) == (2, 3, 2), "commits are those of the branch"
    assert (entry.branch, entry.workspace) == ("symphony/SYM-1", "/ws/1")
    assert entry.last_failure is None


def test_issues_that_never_started_are_not_counted() -> None:
    summary = RunSummary()
    ObservedStory(summary, make_issue("1"), make_issue("2", dispatchable=False)).begin()
    assert list(summary.issues) == ["1"]


def test_the_state_is_the_last_one_that_the_scheduler_saw() -> None:
    summary = RunSummary()
    story = ObservedStory(summary, make_issue("1")).begin()
    assert isinstance(story, ObservedStory)
    story.streams()
    story.put("1", state="Done")
    story.turn_ends()
    ends(story)
    assert summary.issues["1"].issue.state == "Done"


def test_a_block_is_shown_while_it_lasts() -> None:
    summary = RunSummary()
    story = ObservedStory(summary, make_issue("1"), poll_interval_ms=1_000).begin()
    assert isinstance(story, ObservedStory)
    ends(story, kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure("ask"))
    assert summary.issues["1"].blocked == make_failure("ask")
    story.advance(1_000)
    story.put("1", title="Another one")
    story.advance(2_000)
    assert summary.issues["1"].blocked is None


def test_what_an_earlier_daemon_left_is_left_in_the_order_of_identifiers() -> None:
    summary = RunSummary()
    story = ObservedStory(summary, *(make_issue(key) for key in ("10", "9")), max_concurrent_agents=1)
    claims = tuple(
        StoredClaim(issue=make_issue(key), kind=ClaimKind.BLOCKED, failure=make_failure("ask"))
        for key in ("10", "9")
    )
    story.tell(Recovered(claims=claims))
    assert summary.issues == {}, "nothing was started"
    assert [left.issue.identifier for left in summary.left()] == ["SYM-9", "SYM-10"]


def test_the_end_of_an_unknown_run_changes_nothing() -> None:
    summary = RunSummary()
    story = ObservedStory(summary).begin()
    story.tell(RunEnded(run_id="gone", outcome=Outcome(kind=OutcomeKind.SUCCEEDED)))
    assert summary.issues == {}
