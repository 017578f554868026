"""Two running issues that change the same file: who is told of it, and how often."""

from harness.scheduling import Story, make_issue
from symphony.scheduler import ContinueRun, Overlap, TurnEnded, overlaps


def _two_runs() -> Story:
    """Issues 1 and 2 have agents; that of 1 began first."""
    return Story(make_issue(), make_issue("2")).begin().streams().streams("2").forget()


def _turn_ends(story: Story, issue_id: str, *changed: str) -> tuple[Overlap, ...]:
    """The turn of an issue ends with these changed paths; what its agent is told in the next one."""
    run = story.state.running[issue_id]
    story.forget().tell(TurnEnded(run_id=run.run_id, turn=run.turn, trace=True, changed=changed))
    (go_on,) = story.said(ContinueRun)
    return go_on.overlaps


def test_the_agent_that_began_later_is_told_once_for_each_file() -> None:
    story = _two_runs()
    assert _turn_ends(story, "1", "a.py", "b.py", "c.py") == ()
    assert _turn_ends(story, "2", "b.py", "x.py") == (Overlap(identifier="SYM-1", paths=("b.py",)),)
    assert _turn_ends(story, "2", "b.py", "x.py") == ()
    assert _turn_ends(story, "2", "a.py", "b.py", "c.py") == (
        Overlap(identifier="SYM-1", paths=("a.py", "c.py")),
    )


def test_both_are_shown_and_the_earlier_agent_is_told_nothing() -> None:
    story = _two_runs()
    _turn_ends(story, "2", "b.py")
    assert _turn_ends(story, "1", "b.py") == ()
    one, two = story.state.running["1"], story.state.running["2"]
    assert overlaps(story.state, one) == (Overlap(identifier="SYM-2", paths=("b.py",)),)
    assert overlaps(story.state, two) == (Overlap(identifier="SYM-1", paths=("b.py",)),)


def test_an_overlap_ends_with_the_change_and_with_the_run() -> None:
    story = _two_runs()
    _turn_ends(story, "1", "b.py")
    _turn_ends(story, "2", "b.py")
    _turn_ends(story, "2")
    assert overlaps(story.state, story.state.running["1"]) == ()
    _turn_ends(story, "2", "b.py")
    story.ends("2")
    assert overlaps(story.state, story.state.running["1"]) == ()
