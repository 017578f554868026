"""A slot that becomes free is filled at once by an issue that was seen a moment before, ahead of it (SC9)."""

from dataclasses import replace

import pytest

from harness.scheduling import Story, make_issue
from symphony.scheduler import runs
from symphony.scheduler.commands import RefreshIssues
from symphony.scheduler.guard import GUARD_MS
from symphony.scheduler.inputs import WakeAsked
from symphony.scheduler.work import Work


def full(*more: str, **settings: object) -> Story:
    """One slot, taken by issue 1; the others wait in their order. Its turn ends, and nobody has answered."""
    issues = [make_issue(key, priority=int(key) % 5 or 1) for key in ("1", "2", "3", *more)]
    story = Story(*issues, max_concurrent_agents=1, **settings).begin().streams("1")
    story.slow = True
    story.put("1", state="Done")
    return story.forget().turn_ends("1")


def asked(story: Story) -> list[frozenset[str]]:
    return [each.ids for each in story.told if isinstance(each, RefreshIssues)]


def test_the_next_issue_is_asked_for_with_the_one_whose_turn_has_ended() -> None:
    story = full()
    assert asked(story) == [frozenset({"1", "2"})]
    story.answer_refresh()
    story.forget().ends("1")
    assert story.started() == ["SYM-2"]
    assert asked(story) == [], "no further question"


def test_an_issue_that_changed_meanwhile_does_not_start() -> None:
    story = full()
    story.put("2", state="Done")
    story.answer_refresh()
    story.forget().ends("1")
    assert story.started() == []
    assert asked(story) == [frozenset({"3"})], "the one behind it is asked for as ever"


@pytest.mark.parametrize(("later_ms", "started"), [(GUARD_MS, ["SYM-2"]), (GUARD_MS + 1, [])])
def test_an_answer_is_good_for_a_moment_from_its_question(later_ms: int, started: list[str]) -> None:
    story = full()
    story.answer_refresh()
    story.now += later_ms
    story.forget().ends("1")
    assert story.started() == started
    assert bool(asked(story)) is not bool(started)


def test_an_answer_that_took_too_long_is_good_for_nothing() -> None:
    story = full()
    story.now += GUARD_MS + 1
    story.answer_refresh()
    assert not story.state.looked
    story.forget().ends("1")
    assert story.started() == []


@pytest.mark.parametrize("when", ["before the answer", "after it"])
def test_news_from_the_tracker_make_it_worthless(when: str) -> None:
    story = full()
    if when == "before the answer":
        story.tell(WakeAsked(reason="webhook"))
        story.answer_refresh()
    else:
        story.answer_refresh()
        story.tell(WakeAsked(reason="webhook"))
    story.forget().ends("1")
    assert story.started() == []


def test_the_question_that_follows_news_asks_for_the_next_issue_again() -> None:
    story = full()
    story.answer_refresh()
    assert story.state.running["1"].finishing is not None, "its end takes a moment"
    story.forget().tell(WakeAsked(reason="webhook"))
    assert asked(story) == [frozenset({"1", "2"})]
    story.answer_refresh()
    story.forget().ends("1")
    assert story.started() == ["SYM-2"]


@pytest.mark.parametrize(("changed", "started"), [(False, ["SYM-2"]), (True, [])], ids=["same", "changed"])
def test_a_poll_spoils_only_what_it_tells_otherwise(started: list[str], *, changed: bool) -> None:
    story = full()
    story.tell(WakeAsked(reason="webhook"))
    story.answer_refresh()
    story.answer_refresh()
    assert story.state.looked.keys() == {"2"}
    if changed:
        story.put("2", title="Another title")
    story.answer_poll()
    story.forget().ends("1")
    assert story.started() == started


def test_a_run_that_goes_on_leaves_nothing_behind() -> None:
    story = full()
    story.put("1", state="Todo")
    story.answer_refresh()
    assert story.state.running["1"].turn == 2
    assert story.started() == []
    story.now += GUARD_MS + 1
    story.turn_ends("1")
    story.answer_refresh()
    assert story.state.looked.keys() <= {"2"}


def test_a_claim_that_changed_hands_spoils_what_was_seen_and_what_is_being_asked() -> None:
    story = full()
    story.answer_refresh()
    story.ends("1")
    assert not story.state.looked, "the issue has started"


def test_who_is_to_blame_ahead_fails_nobody_else() -> None:
    story = full()
    story.fail_refresh("2")
    assert story.state.running["1"].finishing is None
    assert story.state.deferred == {"2"}
    assert asked(story)[-1] == frozenset({"1", "3"})


def test_as_many_are_asked_for_as_turns_have_ended() -> None:
    issues = [make_issue(str(key)) for key in range(1, 7)]
    story = Story(*issues, max_concurrent_agents=2).begin().streams("1").streams("2")
    story.slow = True
    story.forget().turn_ends("1").turn_ends("2")
    story.answer_refresh()
    assert asked(story) == [frozenset({"1", "3"}), frozenset({"2", "3"})] or asked(story) == [
        frozenset({"1", "3"}),
        frozenset({"2", "4"}),
    ]


def test_nobody_is_asked_for_who_could_not_start_anyway() -> None:
    story = full("4")
    assert replace(story.state.refresh or pytest.fail("none")).ahead == {"2"}
    held = Story(
        make_issue("1"), make_issue("2", dispatchable=False), make_issue("3"), max_concurrent_agents=1
    )
    held.begin().streams("1")
    held.slow = True
    held.forget().turn_ends("1")
    assert asked(held) == [frozenset({"1", "3"})]


def test_an_issue_whose_claim_changes_while_it_is_asked_for_ahead_is_asked_for_anew() -> None:
    """It starts by a look of its own before the older question, which was asked ahead of it, is answered."""
    story = full()
    work = Work(story.state, story.now)
    assert work.state.refresh is not None
    assert work.state.refresh.ahead == {"2"}
    runs.start(work, story.board["2"])
    assert work.state.refresh is not None
    assert work.state.refresh.ahead == frozenset()
    assert work.state.refresh.ids == {"1", "2"}
