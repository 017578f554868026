"""What an issue and a day may use up, and how it goes on afterwards (`agent.budget`)."""

from typing import Any

import pytest

from harness.scheduling import Story, make_failure, make_issue, make_settings
from kit.facts import changed
from symphony.domain import MAX_COUNT, Category, Spent, Tokens
from symphony.scheduler import (
    CleanWorkspace,
    DayBegan,
    FinishReason,
    FinishRun,
    Ineligible,
    OutcomeKind,
    PostComment,
    ReasonCode,
    Recovered,
    ResumeReason,
    Running,
    RunReport,
    RunStage,
    SettingsChanged,
    StartRun,
    Step,
    StopReason,
    StopRun,
    WakeAsked,
    budgets,
    eligibility,
    initial_state,
)

FAR = 10_000_000


def _story(**settings: Any) -> Story:
    """Issue 1 has an agent in its first turn, on thread t-1."""
    story = Story(make_issue(), **{"poll_interval_ms": FAR} | settings).begin()
    story.tell(DayBegan(day="2025-01-01"))
    return story.streams(thread_id="t-1", turn_count=1).forget()


def _budget_block(story: Story) -> str:
    return story.state.blocked["1"].failure.message


# --- counting --------------------------------------------------------------------------------------------


def test_tokens_and_turns_are_counted_as_they_are_reported() -> None:
    story = _story().streams(total_tokens=100).streams(total_tokens=250)
    story.turn_ends().streams(turn_count=2)
    assert story.state.spent == {"1": Spent(tokens=250, turns=2)}
    assert story.state.day_tokens == 250


def test_an_issue_counts_once_in_the_totals_however_many_sessions_it_has() -> None:
    story = _story().streams(session_id="t-1-1", total_tokens=100).ends().advance(1_000)
    assert (story.state.totals.issues, story.state.totals.sessions) == (1, 1)
    story.streams(thread_id="t-2", session_id="t-2-1", total_tokens=50).ends()
    totals = story.state.totals
    assert (totals.issues, totals.sessions, totals.usage.tokens.total_tokens) == (1, 2, 150)


def test_the_attempts_of_an_issue_add_up_and_every_run_begins_at_zero() -> None:
    story = _story().streams(total_tokens=100).ends().advance(1_000)
    story.streams(turn_count=1, total_tokens=30)
    assert story.state.spent["1"] == Spent(tokens=130, turns=2)


def test_a_count_that_decreases_gives_nothing_back() -> None:
    story = _story().streams(total_tokens=100).streams(total_tokens=60)
    assert story.state.spent["1"].tokens == 100


def test_counts_are_bounded_and_the_oldest_is_dropped_first() -> None:
    old = {f"old-{number}": Spent(tokens=1) for number in range(budgets.MAX_ISSUES)}
    step = Step(initial_state(make_settings(), epoch="e"), 0)
    step.update(spent=old)
    run = Running(
        run_id="e-1", issue=make_issue(), attempt=None, started_ms=0, max_turns=1, attempts_without_progress=0
    )
    budgets.count_usage(step, run, changed(RunReport(stage=RunStage.STREAMING_TURN), total_tokens=5))
    assert len(step.state.spent) == budgets.MAX_ISSUES
    assert "old-0" not in step.state.spent
    assert step.state.spent["1"] == Spent(tokens=5)


def test_the_count_of_an_ended_issue_is_dropped_and_of_a_released_one_kept() -> None:
    story = _story().streams(total_tokens=100).ends()
    story.put("1", state="Backlog")
    story.advance(1_000)
    assert story.state.spent.keys() == {"1"}
    story.put("1", state="Done")
    story.advance(700_000).tell(WakeAsked(reason="t"))
    assert len(story.said(CleanWorkspace)) == 1
    assert not story.state.spent
    story = _story().streams(total_tokens=100).ends()
    story.put("1", state="Done")
    story.advance(1_000)
    assert not story.state.spent


# --- the tokens of an issue ------------------------------------------------------------------------------


def test_used_up_tokens_stop_a_turn_and_block_the_issue() -> None:
    story = _story(max_tokens_per_issue=1_000).streams(total_tokens=999)
    assert not story.said(StopRun)
    story.streams(total_tokens=1_200).streams(total_tokens=1_300)
    assert [stop.reason for stop in story.said(StopRun)] == [StopReason.BUDGET]
    story.ends(kind=OutcomeKind.CANCELED)
    blocked = story.state.blocked["1"]
    assert blocked.failure.category is Category.BUDGET_ISSUE
    assert _budget_block(story) == (
        "the token budget of this issue is used up: 1,300 of 1,000 tokens (agent.budget.max_tokens_per_issue)"
    )
    assert "symphony unblock SYM-1" in (blocked.failure.hint or "")
    assert blocked.resume is not None
    assert blocked.resume.thread is not None
    assert blocked.resume.thread.tokens.total_tokens == 1_300
    assert len(story.said(PostComment)) == 1
    story.advance(FAR)
    assert not story.said(StartRun)


@pytest.mark.parametrize("stage", [RunStage.FINISHING])
def test_a_run_that_delivers_is_not_stopped(stage: RunStage) -> None:
    story = _story(max_tokens_per_issue=10).report(stage=stage, total_tokens=99)
    assert not story.said(StopRun)


def test_used_up_between_turns_ends_the_run_there() -> None:
    story = _story(max_tokens_per_issue=1_000)
    story.slow = True
    story.turn_ends().streams(total_tokens=1_000)
    assert not story.said(StopRun)
    story.answer()
    assert [finish.reason for finish in story.said(FinishRun)] == [FinishReason.BUDGET]
    story.ends()
    assert story.state.blocked.keys() == {"1"}


def test_used_up_by_the_last_turn_of_a_run_blocks_the_next_start() -> None:
    story = _story(max_tokens_per_issue=1_000, max_turns=1).turn_ends().report(stage=RunStage.FINISHING)
    story.report(total_tokens=1_000).ends().forget().advance(1_000)
    assert not story.said(StartRun)
    assert story.state.blocked["1"].failure.category is Category.BUDGET_ISSUE


def test_a_released_issue_whose_budget_is_used_up_is_blocked_instead_of_started() -> None:
    story = _story(max_tokens_per_issue=1_000, max_turns=1).turn_ends()
    story.report(stage=RunStage.FINISHING, total_tokens=1_000).ends()
    story.put("1", state="Backlog")
    story.advance(1_000)
    assert not story.state.retrying
    story.put("1", state="Todo")
    story.forget().tell(WakeAsked(reason="t"))
    assert not story.said(StartRun)
    blocked = story.state.blocked["1"]
    assert (blocked.workspace_path, blocked.attempt, blocked.resume) == ("/ws/1", None, None)
    assert not story.state.idle_workspaces, "it is the claim's now"
    story.put("1", title="Once more")
    story.tell(WakeAsked(reason="t"))
    assert story.started() == ["SYM-1"]


def test_a_question_blocks_before_the_budget_does() -> None:
    story = _story(max_tokens_per_issue=10).streams(total_tokens=10)
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure("which?"))
    assert _budget_block(story) == "which?"


# --- turns -----------------------------------------------------------------------------------------------


def test_used_up_turns_are_judged_at_the_end_of_a_turn() -> None:
    story = _story(max_turns_per_issue=2).turn_ends().streams(turn_count=2)
    assert not story.said(FinishRun)
    story.turn_ends()
    assert [finish.reason for finish in story.said(FinishRun)] == [FinishReason.BUDGET]
    story.ends()
    assert _budget_block(story) == (
        "the turn budget of this issue is used up: 2 of 2 turns (agent.budget.max_turns_per_issue)"
    )


# --- the day ---------------------------------------------------------------------------------------------


def _day_used() -> Story:
    """Issue 1 used up the day and is between turns; 2 waits for a retry, 3 was never started."""
    story = Story(
        make_issue("1"), make_issue("2"), max_tokens_per_day=1_000, max_turns=5, poll_interval_ms=FAR
    ).begin()
    story.tell(DayBegan(day="2025-01-01"))
    story.streams("1", thread_id="t-1", turn_count=1).streams("2").fails("2")
    story.board["3"] = make_issue("3")
    return story.streams("1", total_tokens=1_000)


def test_a_used_up_day_lets_turns_end_and_starts_nothing() -> None:
    story = _day_used()
    assert not story.said(StopRun)
    (notice,) = story.notices("day_budget_used")
    story.forget().tell(WakeAsked(reason="t"))
    assert not story.said(StartRun)
    verdict = eligibility(story.board["3"], story.state)
    assert isinstance(verdict, Ineligible)
    assert verdict.code is ReasonCode.DAY_BUDGET
    assert verdict.message.startswith(
        "the token budget of today is used up: 1,000 of 1,000 tokens (agent.budget.max_tokens_per_day)"
    )
    spender = story.state.day_spender
    assert spender is not None
    assert f"{spender.issue} (agent codex)" in verdict.message
    assert (notice.fields["agent"], notice.fields["tokens"]) == ("codex", spender.tokens)
    story.turn_ends("1")
    assert [finish.reason for finish in story.said(FinishRun)] == [FinishReason.BUDGET]
    story.ends("1").advance(10_000)
    assert {key: one.failure.category for key, one in story.state.blocked.items()} == {
        "1": Category.BUDGET_DAY,
        "2": Category.BUDGET_DAY,
    }
    assert [note.issue.id for note in story.said(PostComment)] == ["1", "2"], "nothing is said on issue 3"


def test_a_daily_budget_used_up_before_the_restart_names_no_run() -> None:
    story = Story(make_issue(), max_tokens_per_day=1_000).begin()
    story.tell(Recovered(day="2025-01-01", day_tokens=1_000))
    used = budgets.day_budget_failure(story.state, make_issue())
    assert used is not None
    assert used.category is Category.BUDGET_DAY
    assert story.state.day_spender is None


def test_impossible_counts_are_clamped() -> None:
    story = _story()
    story.report(total_tokens=10**30, input_tokens=-1, turn_count=10**30)
    facts = story.state.running["1"].report.facts
    assert facts.tokens == Tokens(total_tokens=MAX_COUNT)
    assert facts.turn_count == MAX_COUNT
    assert story.state.spent["1"] == Spent(tokens=MAX_COUNT, turns=MAX_COUNT)
    assert story.state.day_tokens == MAX_COUNT


def test_a_new_day_unblocks_what_the_old_one_blocked() -> None:
    story = _day_used().turn_ends("1").ends("1").advance(10_000)
    story.tell(WakeAsked(reason="t"))
    story.forget().tell(DayBegan(day="2025-01-01"))
    assert story.state.blocked.keys() == {"1", "2"}, "the same day again is nothing"
    story.tell(DayBegan(day="2025-01-02"))
    assert (story.state.day_tokens, story.state.day_spender) == (0, None)
    assert [notice.fields for notice in story.notices("day_began")] == [{"day": "2025-01-02"}]
    story.advance(1)
    assert set(story.started()) == {"SYM-1", "SYM-2", "SYM-3"}
    resumed = story.state.running["1"].resume
    assert resumed is not None
    assert resumed.reason is ResumeReason.INTERRUPTED
    assert resumed.thread is not None


def test_the_first_day_is_only_recorded() -> None:
    story = Story(make_issue()).begin().streams(total_tokens=70)
    story.tell(DayBegan(day="2025-01-01"))
    assert (story.state.day, story.state.day_tokens) == ("2025-01-01", 70)


def test_a_clock_set_back_over_midnight_resets_no_budget() -> None:
    story = _day_used().turn_ends("1").ends("1").advance(10_000)
    used = story.state.day_tokens
    story.forget().tell(DayBegan(day="2024-12-31"))
    assert (story.state.day, story.state.day_tokens) == ("2024-12-31", used)
    assert story.state.blocked
    assert not story.notices("day_began")
    story.tell(DayBegan(day="2025-01-01"))
    assert story.state.day_tokens == 0


def test_a_change_of_the_issue_exempts_it_from_the_budget_of_the_day() -> None:
    story = _day_used().turn_ends("1").ends("1")
    story.put("1", title="Urgent")
    story.forget().tell(WakeAsked(reason="t"))
    assert story.started() == ["SYM-1"]
    assert story.state.budget_waivers == {"1"}
    assert story.state.spent.get("1") is None
    story.streams("1", total_tokens=50).turn_ends("1")
    assert not story.said(FinishRun)
    story.tell(DayBegan(day="2025-01-02"))
    assert not story.state.budget_waivers


# --- other limits ----------------------------------------------------------------------------------------


def test_a_raised_limit_unblocks_what_is_within_it() -> None:
    story = _story(max_tokens_per_issue=1_000).streams(total_tokens=1_500).ends(kind=OutcomeKind.CANCELED)
    for limit in (1_200, 1_500):
        story.tell(SettingsChanged(settings=make_settings(max_tokens_per_issue=limit)))
        assert story.state.blocked.keys() == {"1"}
    story.forget().tell(SettingsChanged(settings=make_settings(max_tokens_per_issue=1_501)))
    assert story.notices("issue_unblocked")
    story.advance(1)
    assert story.started() == ["SYM-1"]


def test_a_raised_limit_leaves_other_blocks_alone() -> None:
    story = _story().ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure())
    story.tell(SettingsChanged(settings=make_settings()))
    assert story.state.blocked.keys() == {"1"}


def test_a_limit_that_is_raised_while_the_run_ends_is_checked_again() -> None:
    story = _story(max_tokens_per_issue=1_000).streams(total_tokens=1_000)
    story.tell(SettingsChanged(settings=make_settings(max_tokens_per_issue=5_000)))
    story.ends(kind=OutcomeKind.CANCELED, progress=None)
    retry = story.state.retrying["1"]
    assert (retry.attempt, retry.error, retry.failures) == (1, None, 0)
    story.forget().advance(1)
    assert story.started() == ["SYM-1"]


def test_a_recovered_block_is_unblocked_by_a_raised_limit() -> None:
    story = Story(make_issue(), max_tokens_per_issue=100)
    story.tell(Recovered(spent={"1": Spent(tokens=100, turns=3)}, day="2025-01-01", day_tokens=100))
    assert not story.said(StartRun)
    assert story.state.blocked["1"].failure.category is Category.BUDGET_ISSUE
    assert story.state.day_tokens == 100


# --- silent agents ---------------------------------------------------------------------------------------


def _silent(story: Story, turns: int, *, first: int = 1) -> None:
    """Turns without tokens, from the one in progress on."""
    for turn in range(first, first + turns):
        story.streams(turn_count=turn).turn_ends()


def _is_blocked(story: Story) -> bool:
    return "1" in story.state.blocked


@pytest.mark.parametrize("per_run", [7, 100, 1_000])
def test_an_agent_that_reports_no_tokens_gets_a_hundred_turns_in_all_attempts(per_run: int) -> None:
    story = Story(
        make_issue(),
        poll_interval_ms=FAR,
        max_tokens_per_issue=100,
        max_turns=per_run,
        max_turns_without_progress=None,
        max_attempts_without_progress=FAR,
    ).begin()
    turns = 0
    while not _is_blocked(story) and turns < 200:
        for turn in range(1, per_run + 1):
            turns += 1
            story.streams(turn_count=turn).turn_ends()
            if story.said(FinishRun):
                break
        story.ends().forget().advance(1_000)
    assert turns == 100
    assert story.state.blocked["1"].failure.category is Category.BUDGET_ISSUE


def test_people_are_told_once_that_an_agent_reports_no_tokens() -> None:
    story = _story(max_tokens_per_issue=100, max_turns=500, max_turns_without_progress=None)
    _silent(story, 5)
    (notice,) = story.notices("agent_reports_no_tokens")
    assert dict(notice.fields)["max_turns"] == budgets.MAX_SILENT_TURNS


@pytest.mark.parametrize(
    ("limit", "every", "stopped", "told"),
    [
        (1_000_000, 1, False, 0),  # it reports in every turn
        (None, 1_000, False, 0),  # tokens are not limited
        (1_000_000, 1_000, True, 1),
        (1_000_000, 3, True, 1),  # it reports in every third turn
    ],
)
def test_turns_with_tokens_do_not_count(
    limit: int | None,
    every: int,
    stopped: bool,  # noqa: FBT001 - a parameter
    told: int,
) -> None:
    story = _story(max_tokens_per_issue=limit, max_turns=500, max_turns_without_progress=None)
    for turn in range(1, 181):
        story.streams(turn_count=turn)
        story.streams(total_tokens=turn // every, turn_count=turn).streams(total_tokens=turn // every)
        story.turn_ends()
    assert bool(story.said(FinishRun)) == stopped
    assert len(story.notices("agent_reports_no_tokens")) == told


def test_a_turn_with_several_reports_of_tokens_takes_back_one_silent_turn() -> None:
    story = _story(max_tokens_per_issue=1_000, max_turns=500, max_turns_without_progress=None)
    _silent(story, 5)
    for tokens in (10, 20, 30):
        story.streams(total_tokens=tokens, turn_count=6)
    assert story.state.silent_turns["1"] == 5


def test_silent_turns_before_a_restart_count_and_an_operator_takes_them_back() -> None:
    spent = {"1": Spent(turns=99)}
    story = Story(make_issue(), poll_interval_ms=FAR, max_tokens_per_issue=100)
    story.tell(Recovered(spent=spent))
    story.begin().streams(turn_count=1).turn_ends()
    (finish,) = story.said(FinishRun)
    assert finish.reason is FinishReason.BUDGET
    step = Step(story.state, 0)
    budgets.reset_usage(step, "1")
    assert budgets.issue_budget_failure(step.state, make_issue()) is None
