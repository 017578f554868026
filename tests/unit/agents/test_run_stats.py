import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.agents.events import (
    Activity,
    AgentEvent,
    ApprovalAnswered,
    ContextCompacted,
    InputRequired,
    ItemFinished,
    ItemStarted,
    LogNotice,
    Malformed,
    RateLimits,
    SessionStarted,
    Text,
    ToolCalled,
    TurnEnd,
    TurnStatus,
    UsageUpdate,
    describe_event,
    event_name,
)
from symphony.agents.run_stats import RunStats
from symphony.domain import Blame, Category, Cost, Failure, Redaction, Tokens
from symphony.scheduler import RunReport, RunStage

FAILURE = Failure(category=Category.TURN_FAILED, blame=Blame.AGENT, message="no")


def collected(*events: AgentEvent, thread_tokens: Tokens | None = None) -> RunReport:
    progress = RunStats()
    if thread_tokens is not None:
        progress.resume_from(thread_tokens)
    for event in events:
        progress.add(event)
    return progress.snapshot()


def usage(given: int, taken: int, *, absolute: bool = True) -> UsageUpdate:
    return UsageUpdate(absolute=absolute, tokens=Tokens(given, taken, given + taken))


def tokens(given: int, taken: int) -> Tokens:
    return Tokens(input_tokens=given, output_tokens=taken, total_tokens=given + taken)


def started(turn: str) -> SessionStarted:
    return SessionStarted(session_id=f"th-{turn}", thread_id="th", turn_id=turn)


def test_nothing_has_happened_at_first() -> None:
    assert collected() == RunReport(stage=RunStage.STREAMING_TURN)


@pytest.mark.conformance("O-4")
def test_repeated_totals_add_nothing_and_rising_ones_their_rise() -> None:
    seen = collected(usage(10, 1), usage(10, 1), usage(25, 3))
    assert seen.facts.tokens == tokens(25, 3)


@pytest.mark.conformance("O-4")
def test_a_falling_total_adds_nothing_and_keeps_the_mark() -> None:
    seen = collected(usage(10, 5), usage(4, 6), usage(12, 6))
    assert (seen.facts.tokens.input_tokens, seen.facts.tokens.output_tokens) == (12, 6)


def test_a_resumed_thread_counts_from_its_stored_mark() -> None:
    seen = collected(usage(100, 10), usage(120, 15), thread_tokens=tokens(100, 10))
    assert seen.facts.tokens == tokens(20, 5)


def test_usage_that_is_not_absolute_is_added_up() -> None:
    assert collected(usage(1, 1, absolute=False), usage(2, 2, absolute=False)).facts.tokens == tokens(3, 3)


@pytest.mark.conformance("O-4")
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=20))
def test_for_any_totals_the_sum_is_the_highest_seen(totals: list[tuple[int, int]]) -> None:
    seen = collected(*(usage(given, taken) for given, taken in totals))
    assert seen.facts.tokens.input_tokens == max([0, *(given for given, _ in totals)])
    assert seen.facts.tokens.output_tokens == max([0, *(taken for _, taken in totals)])


def test_turns_are_counted_once_each() -> None:
    seen = collected(started("1"), started("1"), started("2"))
    facts = seen.facts
    assert (facts.turn_count, facts.session_id, facts.thread_id) == (2, "th-2", "th")


def test_activity_counts_and_hides_nothing() -> None:
    seen = collected(Text(message="hello"), Activity(count=40))
    assert (seen.event_count, seen.last_message, seen.last_event) == (41, "hello", "notification")


def test_an_unfinished_message_is_no_message_besides_its_pieces() -> None:
    seen = collected(Activity(count=3), Text(message="hel", interrupted=True))
    assert (seen.event_count, seen.last_words) == (3, "hel")


def test_the_last_words_stay_while_the_agent_works_on_without_a_word() -> None:
    assert collected(ItemStarted(kind="command", summary="ls")).last_words is None
    seen = collected(Text(message="first"), Text(message="hello"), ItemStarted(kind="command", summary="ls"))
    assert (seen.last_words, seen.last_message) == ("hello", "command started: ls")


@pytest.mark.conformance("O-5")
def test_the_newest_rate_limits_win() -> None:
    assert collected(RateLimits(payload={"a": 1}), RateLimits(payload={"b": 2})).rate_limits == {"b": 2}


def test_a_snapshot_does_not_change_afterwards() -> None:
    progress = RunStats()
    before = progress.snapshot()
    progress.add(usage(1, 1))
    assert before == RunReport(stage=RunStage.STREAMING_TURN)


@pytest.mark.conformance("O-9")
@pytest.mark.parametrize(
    ("event", "name", "words"),
    [
        (started("1"), "session_started", "turn started"),
        (Activity(count=2), "other_message", "2 messages"),
        (Text(message="a\nb"), "notification", "a b"),
        (ItemStarted(kind="webSearch", summary="anyio"), "notification", "web search started: anyio"),
        (ItemStarted(kind="reasoning", summary=""), "notification", "reasoning started"),
        (
            ItemFinished(kind="commandExecution", summary="ls", status="failed", exit_code=2),
            "notification",
            "command failed, exit 2: ls",
        ),
        (ItemFinished(kind="plan", summary="", status="completed"), "notification", "plan completed"),
        (ToolCalled(name="board", success=True), "tool_call_completed", "tool board succeeded"),
        (ToolCalled(name="board", success=False), "tool_call_failed", "tool board failed"),
        (ApprovalAnswered(kind="x", decision="accept"), "approval_auto_approved", "approval of x: allowed"),
        (ApprovalAnswered(kind="x", decision="decline"), "approval_declined", "approval of x: declined"),
        (InputRequired(reason="who?"), "turn_input_required", "who?"),
        (InputRequired(reason="may I?", approval=True), "approval_required", "may I?"),
        (usage(1, 2), "notification", "3 tokens (1 in, 2 out)"),
        (RateLimits(payload={}), "notification", "rate limits updated"),
        (LogNotice(level="info", message="n"), "other_message", "n"),
        (ContextCompacted(), "other_message", "the conversation was compacted"),
        (Malformed(excerpt="{x"), "malformed", "malformed message: {x"),
        (TurnEnd(status=TurnStatus.COMPLETED), "turn_completed", "turn completed"),
        (TurnEnd(status=TurnStatus.FAILED, failure=FAILURE), "turn_failed", "no"),
        (TurnEnd(status=TurnStatus.INTERRUPTED, failure=FAILURE), "turn_cancelled", "no"),
    ],
)
def test_each_event_has_a_name_and_words(event: AgentEvent, name: str, words: str) -> None:
    assert event_name(event) == name
    assert describe_event(event) == words


def test_words_are_short_and_without_credentials() -> None:
    assert len(describe_event(Text(message="x" * 5_000))) == 200
    assert describe_event(Text(message="https://a:b@c/")) == "https://***@c/"


def test_a_known_secret_is_masked_before_the_words_are_cut() -> None:
    secret = "swordfish-" * 10
    progress = RunStats(redaction=Redaction([secret]))
    progress.add(Text(message="x" * 150 + secret))
    seen = progress.snapshot()
    for shown in (seen.last_message, seen.last_words):
        assert shown is not None
        assert "sword" not in shown


# --- cost --------------------------------------------------------------------------------------------------


def priced(*events: AgentEvent) -> RunReport:
    """A dollar for each token of the model `dear`; other models have no price."""

    def pricing(model: str | None, used: Tokens) -> Cost:
        return (
            Cost(cost_usd=used.total_tokens) if model == "dear" else Cost(unpriced_tokens=used.total_tokens)
        )

    stats = RunStats(pricing=pricing)
    for event in events:
        stats.add(event)
    return stats.snapshot()


def cost(report: RunReport) -> Cost:
    return Cost(cost_usd=report.facts.cost_usd, unpriced_tokens=report.facts.unpriced_tokens)


def ended(cost_usd: float | None = None) -> TurnEnd:
    return TurnEnd(status=TurnStatus.COMPLETED, cost_usd=cost_usd)


def used(count: int, model: str | None = None) -> UsageUpdate:
    return UsageUpdate(absolute=False, tokens=Tokens(count, 0, count), model=model)


def test_the_report_of_the_agent_replaces_the_estimate_of_its_turn() -> None:
    assert cost(priced(started("1"), used(7, "dear"), used(5))) == Cost(cost_usd=12), "the model goes on"
    seen = priced(started("1"), used(7, "dear"), ended(2.5), started("2"), used(1, "dear"), ended())
    assert (cost(seen), seen.facts.model) == (Cost(cost_usd=3.5), "dear")
    assert cost(priced(started("1"), used(9), ended(0.5))) == Cost(cost_usd=0.5), (
        "nothing is unpriced any more"
    )


def test_what_has_neither_report_nor_price_is_unpriced() -> None:
    seen = priced(started("1"), used(9), ended(), started("2"), used(3, "cheap"), used(2, "dear"), ended())
    assert cost(seen) == Cost(cost_usd=2, unpriced_tokens=12)
    assert cost(collected(used(9))) == Cost(unpriced_tokens=9), "without prices"


def test_the_model_of_the_session_prices_totals_of_the_thread_once() -> None:
    session = SessionStarted(session_id="th-1", thread_id="th", turn_id="1", model="dear")
    seen = priced(session, usage(4, 1), usage(4, 1), usage(6, 2))
    assert (seen.facts.model, cost(seen)) == ("dear", Cost(cost_usd=8))
