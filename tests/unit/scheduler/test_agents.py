"""Which agent an issue is given to: rules, fallbacks, limits, and conversations that only one agent knows."""

from dataclasses import replace
from typing import Any

import pytest

from harness.scheduling import Story, make_failure, make_issue, make_settings
from symphony.domain import Category
from symphony.scheduler import (
    MAX_AGENT_LIMIT_MS,
    AgentInfo,
    AgentRule,
    Ineligible,
    LimitedAgent,
    OperatorAction,
    OperatorAsked,
    OutcomeKind,
    PostComment,
    ReasonCode,
    Resume,
    ResumeReason,
    SettingsChanged,
    StartRun,
    State,
    Thread,
    Timer,
    TimerKind,
    agent_limit_wait_ms,
    agent_limited_until,
    choose_agent,
    eligibility,
    initial_state,
    left_over,
    plan_run,
    run_once_finished,
)

RATE = Category.AGENT_RATE_LIMITED
OUTAGE = Category.AGENT_UNAVAILABLE
CREDIT = Category.AGENT_USAGE_LIMIT
UI = AgentRule(use="claude", label="ui")
REVIEW = AgentRule(use="gemini", state="in review", fallback="codex")
BOTH = AgentRule(use="aider", label="small", state="todo")
FACTS = {
    "codex": AgentInfo(kind="codex", section="codex", stall_timeout_ms=300_000, model="big"),
    "claude": AgentInfo(kind="claude", section="claude", stall_timeout_ms=60_000),
    "gemini": AgentInfo(kind="acp", section="agents.gemini", stall_timeout_ms=0),
}
QUIET: dict[str, Any] = {"poll_interval_ms": 10_000_000, "stall_timeout_ms": 0}


def _state(*limited: str, **settings: Any) -> State:
    values: dict[str, Any] = {"rules": (UI, BOTH, REVIEW), "fallback": "claude", "agents": FACTS}
    state = initial_state(make_settings(**values | settings), epoch="e")
    held = {name: LimitedAgent(until_ms=1_000 + len(name), since_ms=0, failure=_limit()) for name in limited}
    return State(settings=state.settings, epoch="e", limited_agents=held)


def _limit(category: Category = RATE, **changes: Any) -> Any:
    return make_failure("slow down", category=category, **changes)


# --- the choice itself -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "state", "name", "reason"),
    [
        ((), "Todo", "codex", "the default (agent.kind)"),
        (("ui", "small"), "Todo", "claude", "agent.rules[0]: label 'ui'"),
        (("small",), " TODO", "aider", "agent.rules[1]: label 'small' and state 'todo'"),
        (("small",), "In Progress", "codex", "the default (agent.kind)"),
        (("x",), "In Review ", "gemini", "agent.rules[2]: state 'in review'"),
    ],
)
def test_the_first_rule_that_fits_names_the_agent(
    labels: tuple[str, ...], state: str, name: str, reason: str
) -> None:
    chosen = choose_agent(_state(), make_issue(labels=labels, state=state))
    assert (chosen.name, chosen.reason, chosen.instead_of) == (name, reason, None)


def test_kind_and_model_of_the_agent_are_part_of_the_choice() -> None:
    default, gemini = (
        choose_agent(_state(), make_issue()),
        choose_agent(_state(), make_issue(state="in review")),
    )
    assert (default.kind, default.model) == ("codex", "big")
    assert (gemini.kind, gemini.model) == ("acp", None)
    unknown = choose_agent(_state(agents={}), make_issue())
    assert (unknown.kind, unknown.model) == ("codex", None)


def test_a_label_is_compared_without_case() -> None:
    assert choose_agent(_state(), make_issue(labels=(" UI ",))).name == "claude"


def test_the_fallback_takes_the_place_of_a_limited_agent() -> None:
    chosen = choose_agent(_state("codex"), make_issue())
    assert (chosen.name, chosen.instead_of) == ("claude", "codex")
    assert chosen.reason == "codex is rate limited; it would be the agent by the default (agent.kind)"

    of_rule = choose_agent(_state("gemini"), make_issue(state="in review"))
    assert (of_rule.name, of_rule.instead_of) == ("codex", "gemini")


def test_the_reason_says_whether_it_is_rate_limited_or_out_of_credit() -> None:
    state = _state()
    state = State(
        settings=state.settings,
        epoch="e",
        limited_agents={"codex": LimitedAgent(until_ms=1, since_ms=0, failure=_limit(CREDIT))},
    )
    assert choose_agent(state, make_issue()).reason.startswith("codex is out of credit; ")


def test_a_limit_that_is_over_limits_nothing() -> None:
    state = _state()
    state = State(
        settings=state.settings,
        epoch="e",
        limited_agents={"codex": LimitedAgent(until_ms=None, since_ms=0, failure=_limit())},
    )
    assert choose_agent(state, make_issue()).name == "codex"
    assert agent_limited_until(state, make_issue()) is None


def test_an_agent_is_not_its_own_fallback() -> None:
    """A rule without one of its own has `agent.fallback`, which may be the very agent that it uses."""
    state = _state("claude")
    assert choose_agent(state, make_issue(labels=("ui",))).name == "claude"
    assert agent_limited_until(state, make_issue(labels=("ui",))) == 1_006


def test_an_issue_waits_for_the_first_agent_that_becomes_available() -> None:
    state = _state("codex", "claude")
    assert choose_agent(state, make_issue()).name == "codex"
    assert agent_limited_until(state, make_issue()) == 1_005
    assert agent_limited_until(_state("codex"), make_issue()) is None
    assert agent_limited_until(_state("codex", fallback=None), make_issue()) == 1_005


@pytest.mark.parametrize(
    ("limited", "of_thread", "name", "instead_of"),
    [
        ((), "claude", "claude", "codex"),
        ((), "gemini", "codex", None),
        ((), "codex", "codex", None),
        (("claude",), "claude", "codex", None),
        (("codex",), "codex", "claude", "codex"),
    ],
)
def test_a_conversation_stays_with_an_agent_that_may_take_the_issue(
    limited: tuple[str, ...], of_thread: str, name: str, instead_of: str | None
) -> None:
    chosen = choose_agent(_state(*limited), make_issue(), of_thread)
    assert (chosen.name, chosen.instead_of) == (name, instead_of)


def test_the_conversation_of_another_agent_is_dropped_but_an_answer_is_not() -> None:
    thread = Thread(thread_id="t", agent="gemini")
    resume = Resume(reason=ResumeReason.ANSWERED, thread=thread, question="q", answer="a")

    chosen, left = plan_run(_state(), make_issue(), resume)
    assert chosen.name == "codex"
    assert left == Resume(reason=ResumeReason.ANSWERED, question="q", answer="a")

    same = Resume(reason=ResumeReason.INTERRUPTED, thread=Thread(thread_id="t", agent="codex"))
    assert plan_run(_state(), make_issue(), same)[1] == same
    assert plan_run(_state(), make_issue(), None)[1] is None
    cold = Resume(reason=ResumeReason.INTERRUPTED)
    assert plan_run(_state(), make_issue(), cold)[1] == cold


# --- in the life of a daemon -----------------------------------------------------------------------------


def _started(story: Story) -> list[tuple[str, str]]:
    return [(one.issue.identifier, one.agent) for one in story.said(StartRun)]


def test_the_run_and_the_log_name_the_agent() -> None:
    story = Story(make_issue(labels=("ui",)), rules=(UI,)).begin()

    assert _started(story) == [("SYM-1", "claude")]
    (notice,) = story.notices("run_started")
    assert notice.fields["agent"] == "claude"
    assert notice.fields["agent_reason"] == "agent.rules[0]: label 'ui'"
    assert story.state.running["1"].agent.name == "claude"


def test_the_rules_are_applied_at_every_start() -> None:
    story = Story(make_issue(), rules=(UI,), **QUIET).begin()
    story.put("1", labels=("ui",))
    story.forget().fails().advance(10_000)
    assert _started(story) == [("SYM-1", "claude")]


def test_after_a_limit_the_fallback_continues_at_once_and_nothing_counts_against_the_issue() -> None:
    story = Story(make_issue(), fallback="claude", max_attempts_without_progress=1, **QUIET).begin()
    story.streams(turn_count=1, thread_id="t")
    story.forget().fails(failure=_limit(retry_after_ms=120_000), progress=False)

    (limited,) = story.notices("agent_limited")
    assert limited.fields == {
        "agent": "codex",
        "reason": "agent_rate_limited: slow down",
        "delay_ms": 120_000,
        "times": 1,
    }
    retry = story.state.retrying["1"]
    assert (retry.attempt, retry.failures, retry.non_retryable, retry.attempts_without_progress) == (
        1,
        0,
        False,
        0,
    )
    story.advance(1_000)
    (start,) = story.said(StartRun)
    assert start.agent == "claude"
    assert start.resume is not None
    assert start.resume.thread is None
    assert story.state.running["1"].agent.instead_of == "codex"


def test_after_the_limit_the_agent_of_the_rule_gets_the_issue_again() -> None:
    story = Story(make_issue(), fallback="claude", **QUIET).begin()
    story.fails(failure=_limit(retry_after_ms=5_000)).advance(1_000)
    story.forget().advance(4_000)
    (tried,) = story.notices("agent_tried_again")
    assert tried.fields["agent"] == "codex"
    story.ends(progress=True).advance(1_000)
    assert _started(story) == [("SYM-1", "codex")]


def test_without_a_fallback_the_issue_waits_for_the_end_of_the_limit() -> None:
    story = Story(make_issue(), **QUIET).begin()
    story.forget().fails(failure=_limit(CREDIT))
    assert story.state.retrying["1"].due_ms == 5_000
    story.advance(4_999)
    assert _started(story) == []
    story.advance(1)
    assert _started(story) == [("SYM-1", "codex")]


def test_other_issues_wait_for_the_limited_agent_and_say_why() -> None:
    story = Story(make_issue("1"), make_issue("2"), max_concurrent_agents=1, **QUIET).begin()
    story.forget().fails(failure=_limit())
    verdict = eligibility(story.board["2"], story.state)
    assert isinstance(verdict, Ineligible)
    assert verdict.code is ReasonCode.AGENT_LIMITED
    assert verdict.message == "the agent codex is rate limited, and there is no fallback now"
    story.advance(4_999)
    assert _started(story) == []
    story.advance(1)
    assert _started(story) == [("SYM-1", "codex")]


def test_a_candidate_starts_when_the_limit_is_over_without_a_poll() -> None:
    issue = make_issue("1")
    story = Story(issue, make_issue("2", labels=("ui",)), rules=(UI,), **QUIET).begin()
    story.fails("2", failure=_limit(retry_after_ms=30_000))
    story.put("2", state="Done")
    story.board["3"] = make_issue("3", labels=("ui",))
    story.tell(SettingsChanged(settings=story.state.settings))
    story.forget()
    story.tell(OperatorAsked(action=OperatorAction.PAUSE))
    story.tell(OperatorAsked(action=OperatorAction.RESUME))
    assert "3" in story.state.candidates
    story.advance(30_000)
    assert ("SYM-3", "claude") in _started(story)


def test_a_due_retry_waits_for_a_limited_agent_without_counting_an_attempt() -> None:
    story = Story(make_issue("1"), make_issue("2"), **QUIET).begin()
    story.fails("1")
    story.fails("2", failure=_limit(retry_after_ms=50_000))
    story.advance(20_000)
    retry = story.state.retrying["1"]
    assert (retry.attempt, retry.due_ms, retry.refreshing) == (1, 50_000, False)
    story.forget().advance(30_000)
    assert _started(story) == [("SYM-1", "codex")]
    story.streams("1", total_tokens=10)
    story.advance(0)
    assert _started(story) == [("SYM-1", "codex"), ("SYM-2", "codex")]


def test_one_run_tries_an_agent_and_the_others_follow_when_its_model_answers() -> None:
    story = Story(*(make_issue(str(number)) for number in range(1, 5)), **QUIET).begin()
    story.forget()
    for number in range(1, 4):
        story.fails(str(number), failure=_limit(OUTAGE))
    story.advance(5_000)
    ((first, _),) = _started(story)
    verdict = eligibility(make_issue("9"), story.state)
    assert isinstance(verdict, Ineligible)
    assert verdict.code is ReasonCode.AGENT_LIMITED
    story.advance(20_000)
    assert len(_started(story)) == 1, "nothing else is tried before the answer"
    story.streams(first.removeprefix("SYM-"), total_tokens=10)
    story.advance(0)
    assert sorted(name for name, _ in _started(story)) == ["SYM-1", "SYM-2", "SYM-3"]
    assert len(story.notices("agent_recovered")) == 1
    assert not story.state.limited_agents


def test_while_one_run_tries_an_agent_its_fallback_takes_the_others() -> None:
    story = Story(make_issue("1"), fallback="claude", **QUIET).begin()
    held = LimitedAgent(until_ms=None, since_ms=0, failure=_limit(OUTAGE), probe=story.run_id("1"))
    tried = story.state.changed(limited_agents={"codex": held})
    assert choose_agent(tried, make_issue("2")).instead_of == "codex"
    over = story.state.changed(limited_agents={"codex": replace(held, probe="of another run")})
    assert choose_agent(over, make_issue("2")).name == "codex"


def test_a_run_that_tries_an_agent_and_ends_otherwise_lets_the_next_one_try() -> None:
    story = Story(make_issue("1"), make_issue("2"), **QUIET).begin()
    story.fails("1", failure=_limit(OUTAGE))
    story.fails("2", failure=_limit(OUTAGE))
    story.forget().advance(5_000)
    assert _started(story) == [("SYM-1", "codex")]
    story.fails("1", failure=make_failure(category=Category.WORKSPACE_HOOK_FAILED))
    story.advance(0)
    assert _started(story) == [("SYM-1", "codex"), ("SYM-2", "codex")]


def test_an_outage_of_any_length_blocks_nothing_counts_nothing_and_is_told_once() -> None:
    issues = [make_issue(str(number)) for number in range(1, 6)]
    story = Story(*issues, max_attempts_without_progress=1, **QUIET).begin()
    story.forget()
    for _ in range(100):
        for run in tuple(story.state.running.values()):
            story.fails(run.issue.id, failure=_limit(OUTAGE), progress=False)
        held = story.state.limited_agents["codex"]
        assert held.until_ms is not None
        assert held.until_ms - story.now <= 60_000
        story.advance(held.until_ms - story.now)
        assert len(story.state.running) == 1
    assert not story.state.blocked
    assert {retry.attempt for retry in story.state.retrying.values()} == {1}
    assert [one.fields["times"] for one in story.notices("agent_limited") if one.level == "warning"] == [1]
    (probe,) = story.state.running.values()
    story.streams(probe.issue.id, total_tokens=10)
    story.advance(0)
    assert len(story.state.running) == 5


def test_runs_that_end_during_the_limit_do_not_multiply_it() -> None:
    story = Story(make_issue("1"), make_issue("2"), make_issue("3"), **QUIET).begin()
    story.forget()
    story.fails("1", failure=_limit(retry_after_ms=90_000))
    story.fails("2", failure=_limit())
    assert story.state.limited_agents["codex"] == LimitedAgent(
        until_ms=90_000, since_ms=0, failure=_limit(), times=1
    )
    story.fails("3", failure=_limit(retry_after_ms=100_000))
    assert story.state.limited_agents["codex"].until_ms == 100_000
    assert len(story.notices("agent_limited")) == 1
    story.advance(90_000)
    assert story.state.limited_agents["codex"].until_ms == 100_000


def test_each_consecutive_limit_doubles_the_wait_until_a_turn_succeeds() -> None:
    story = Story(make_issue(), **QUIET).begin()
    story.fails(failure=_limit()).advance(5_000)
    story.streams().fails(failure=_limit())
    assert story.state.limited_agents["codex"].until_ms == 15_000
    assert story.state.limited_agents["codex"].times == 2
    story.advance(10_000)
    story.fails()  # nothing is shown by a run without a turn
    assert story.state.limited_agents["codex"].times == 2
    story.advance(300_000)
    story.streams(turn_count=1).fails()
    assert story.state.limited_agents == {}


@pytest.mark.parametrize(
    ("category", "retry_after_ms", "times", "expected"),
    [
        (RATE, None, 1, 5_000),
        (RATE, None, 3, 20_000),
        (RATE, None, 99, 60_000),
        (OUTAGE, None, 99, 60_000),
        (CREDIT, None, 15, 60_000),
        (CREDIT, None, 16, 900_000),
        (RATE, 5_000, 4, 5_000),
        (RATE, -1, 1, 0),
        (CREDIT, 10**12, 1, MAX_AGENT_LIMIT_MS),
    ],
)
def test_the_wait_after_a_limit(
    category: Category, retry_after_ms: int | None, times: int, expected: int
) -> None:
    assert agent_limit_wait_ms(_limit(category, retry_after_ms=retry_after_ms), times) == expected


def test_a_retry_by_an_operator_lifts_the_limit() -> None:
    story = Story(make_issue(), **QUIET).begin()
    story.fails(failure=_limit(CREDIT)).advance(1_000)
    story.forget().tell(OperatorAsked(action=OperatorAction.RETRY, issue_id="1"))
    assert len(story.notices("agent_tried_again")) == 1
    assert Timer(TimerKind.LIMIT, "codex") not in story.state.timers
    story.advance(0)
    assert _started(story) == [("SYM-1", "codex")]


def test_a_retry_by_an_operator_uses_the_agent_of_the_rule_and_not_its_fallback() -> None:
    story = Story(make_issue(), fallback="claude", **QUIET).begin()
    story.fails(failure=_limit(CREDIT))
    story.forget().tell(OperatorAsked(action=OperatorAction.RETRY, issue_id="1"))
    story.advance(0)
    assert _started(story) == [("SYM-1", "codex")]


def test_a_retry_of_a_blocked_issue_lifts_the_limit_too() -> None:
    story = Story(make_issue(), make_issue("2"), **QUIET).begin()
    story.ends("1", OutcomeKind.INPUT_REQUIRED, make_failure())
    story.fails("2", failure=_limit(CREDIT))
    assert story.said(PostComment)
    story.forget().tell(OperatorAsked(action=OperatorAction.RETRY, issue_id="1"))
    story.advance(0)
    assert _started(story) == [("SYM-1", "codex")]


def test_a_conversation_stays_with_its_agent_although_the_rules_changed() -> None:
    story = Story(make_issue(), fallback="claude", **QUIET).begin()
    story.streams(turn_count=1, thread_id="t1")
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure(category=Category.TURN_INPUT_REQUIRED))
    story.tell(SettingsChanged(settings=make_settings(agent="claude", fallback="codex", **QUIET)))
    story.forget().tell(OperatorAsked(action=OperatorAction.ANSWER, issue_id="1", text="yes"))
    story.advance(0)
    (start,) = story.said(StartRun)
    assert start.agent == "codex"
    assert start.resume is not None
    assert start.resume.thread is not None
    assert (start.resume.thread.thread_id, start.resume.thread.agent) == ("t1", "codex")
    assert story.state.running["1"].agent.reason.startswith("it continues its conversation; claude ")


def test_an_answer_reaches_another_agent_in_its_first_prompt() -> None:
    story = Story(make_issue(), **QUIET).begin()
    story.streams(turn_count=1, thread_id="t1")
    story.ends(kind=OutcomeKind.INPUT_REQUIRED, failure=make_failure(category=Category.TURN_INPUT_REQUIRED))
    story.tell(SettingsChanged(settings=make_settings(agent="claude", **QUIET)))
    story.forget().tell(OperatorAsked(action=OperatorAction.ANSWER, issue_id="1", text="yes"))
    story.advance(0)
    (start,) = story.said(StartRun)
    assert start.agent == "claude"
    assert start.resume is not None
    assert (start.resume.thread, start.resume.answer) == (None, "yes")


def test_each_agent_has_its_own_stall_timeout() -> None:
    story = Story(
        make_issue("1"), make_issue("2", labels=("ui",)), rules=(UI,), agents=FACTS, poll_interval_ms=10**9
    ).begin()
    story.streams("1")
    story.streams("2")
    story.advance(60_001)
    assert [run.issue.id for run in story.state.running.values() if run.stopping] == ["2"]
    story.ends("2", OutcomeKind.CANCELED)
    assert story.state.retrying["2"].error == (
        "stalled: the agent gave no sign of life within claude.stall_timeout_ms"
    )


def test_a_changed_stall_timeout_applies_to_the_agents_that_have_it() -> None:
    story = Story(make_issue(), agents=FACTS, poll_interval_ms=10**9).begin()
    story.streams().advance(100_000)
    shorter = {**FACTS, "codex": AgentInfo(kind="codex", section="codex", stall_timeout_ms=50_000)}
    story.tell(SettingsChanged(settings=make_settings(agents=shorter, poll_interval_ms=10**9)))
    assert story.state.running["1"].stopping


# --- run --once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("category", [CREDIT, OUTAGE, Category.AGENT_RATE_LIMITED])
@pytest.mark.parametrize("retryable", [True, False])
def test_run_once_waits_for_a_limited_agent_for_a_minute_however_often_it_is_tried(
    category: Category, *, retryable: bool
) -> None:
    story = Story(make_issue(), max_attempts_without_progress=1, **QUIET).begin()
    limit = _limit(category, retryable=retryable)
    while story.now < 60_000:
        story.fails(failure=limit, progress=False)
        due_ms = story.state.retrying["1"].due_ms
        assert not run_once_finished(story.state, story.now)
        assert not run_once_finished(story.state, min(due_ms, 59_999))
        story.advance(due_ms - story.now)
    assert not run_once_finished(story.state, story.now), "it is tried just now"
    story.fails(failure=limit, progress=False)
    assert run_once_finished(story.state, story.now)
    (left,) = left_over(story.state)
    assert (left.issue.id, left.limited) == ("1", True)


@pytest.mark.parametrize("works_ms", [0, 59_000])
def test_a_model_that_answers_now_and_then_is_one_outage(works_ms: int) -> None:
    story = Story(make_issue(), max_attempts_without_progress=1, **QUIET).begin()
    for number in range(1, 20):
        story.fails(failure=_limit(OUTAGE), progress=False)
        limited = story.state.limited_agents["codex"]
        assert limited.times == number
        assert run_once_finished(story.state, story.now) is (story.now >= 60_000)
        story.advance((limited.until_ms or 0) - story.now)
        story.streams(total_tokens=number).advance(works_ms)
        assert not story.state.limited_agents
    assert not story.state.blocked
    assert [notice.level for notice in story.notices("agent_limited")].count("warning") == 1


def test_an_outage_long_after_another_is_a_new_one() -> None:
    story = Story(make_issue(), **QUIET).begin()
    for _ in range(3):
        story.fails(failure=_limit(OUTAGE), progress=False).advance(5_000)
        story.streams(total_tokens=5).advance(60_000)
        assert not run_once_finished(story.state, story.now)
    assert [notice.level for notice in story.notices("agent_limited")] == ["warning"] * 3


@pytest.mark.parametrize(("fallback_since_ms", "expected"), [(0, True), (30_000, False)])
def test_run_once_waits_for_the_fallback_too(fallback_since_ms: int, *, expected: bool) -> None:
    story = Story(make_issue(), max_concurrent_agents=0, **QUIET).begin()
    limits = {
        "codex": LimitedAgent(until_ms=10**6, since_ms=0, failure=_limit()),
        "claude": LimitedAgent(until_ms=10**6, since_ms=fallback_since_ms, failure=_limit()),
    }
    settings = make_settings(fallback="claude", **QUIET)
    state = story.state.changed(limited_agents=limits, settings=settings)
    assert run_once_finished(state, 60_000) is expected
