"""What an agent reports of itself is believed within bounds; no report blinds a surface or forgives a budget.

A count that cannot be is refused and said, every other one survives a restart, and whose report used up the
budget of all is told.
"""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from harness.chronicle import Chronicle
from harness.memory_agents import KINDS, saying, turn
from harness.scheduling import make_issue, make_settings
from symphony.agents.event_queue import MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH, MAX_TOKENS_PER_TURN, EventQueue
from symphony.agents.events import TurnEnd, UsageUpdate
from symphony.agents.run_stats import RunStats
from symphony.domain import MAX_COUNT, Redaction, Tokens
from symphony.journal.model import column
from symphony.observability.redaction import MAX_DEPTH, TOO_DEEP, masked
from symphony.replay import DecisionRecorder, read_recording
from symphony.scheduler import AgentReported, DayBegan, Recovered, RunReport, RunStage, Thread, initial_state

HUGE = 10**4299
ABSURD = (HUGE, 2**63, 2**53 + 1, MAX_TOKENS_PER_TURN + 1)


def using(kind: str, tokens: object) -> dict[str, Any]:
    """How an agent of a kind says in its turn that it used so many input and output tokens each."""
    match kind:
        case "codex":
            total = {"inputTokens": tokens, "outputTokens": tokens}
            params = {"threadId": "th", "tokenUsage": {"total": total}}
            return {"method": "thread/tokenUsage/updated", "params": params}
        case "claude":
            usage = {"input_tokens": tokens, "output_tokens": tokens}
            return {"type": "assistant", "message": {"id": str(tokens)[:9], "usage": usage}}
        case _:
            usage = {"inputTokens": tokens, "outputTokens": tokens}
            return {"id": 3, "result": {"stopReason": "end_turn", "usage": usage}}


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"x": value}
    return value


async def used(kind: str, *said: object) -> tuple[RunStats, list[Any]]:
    """A turn's progress, and what was logged of refused reports."""
    progress = RunStats()
    with capture_logs() as logs:
        events, failed = await turn(kind, saying(*said))
    assert failed is None
    assert any(isinstance(event, TurnEnd) for event in events)
    for event in events:
        progress.add(event)
    return progress, [log for log in logs if log["event"] == "agent_report_refused"]


# --- at the border ---------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize("tokens", ABSURD, ids=("huge", "64 bits", "53 bits", "a turn"))
@pytest.mark.parametrize("kind", KINDS)
async def test_a_count_that_no_turn_can_use_is_refused_and_said_once(kind: str, tokens: int) -> None:
    progress, told = await used(kind, using(kind, tokens), using(kind, tokens + 1))
    assert progress.facts.tokens.total_tokens <= MAX_TOKENS_PER_TURN
    assert [log["what"] for log in told] == ["usage"]


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["codex", "claude"])
async def test_a_refused_count_does_not_hide_those_that_follow(kind: str) -> None:
    progress, told = await used(kind, using(kind, HUGE), using(kind, 40))
    assert progress.facts.tokens.input_tokens == 40
    assert len(told) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("tokens", [-5, 1.5, "x", True, None, [], {}])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_no_count_adds_nothing(kind: str, tokens: object) -> None:
    progress, _ = await used(kind, using(kind, tokens))
    assert progress.facts.tokens.input_tokens == 0


def test_one_turn_uses_no_more_however_often_it_reports() -> None:
    queue, progress = EventQueue(), RunStats()
    half = MAX_TOKENS_PER_TURN // 2 + 1
    usage = UsageUpdate(absolute=False, tokens=Tokens(half, 0, half))
    for _ in range(3):
        for _ in range(5):
            queue.emit(usage)
        queue.new_turn()
    for event in queue.drain():
        progress.add(event)
    assert progress.facts.tokens.total_tokens == 3 * half


def test_the_totals_of_a_resumed_thread_count_from_where_it_was() -> None:
    before = 5 * MAX_TOKENS_PER_TURN
    usage = UsageUpdate(absolute=True, tokens=Tokens(before + 7, 0, before + 7))
    resumed, fresh = EventQueue(), EventQueue()
    resumed.resume_from(Thread(thread_id="t", tokens=Tokens(before, 0, before)))
    resumed.emit(usage)
    fresh.emit(usage)
    assert usage in resumed.drain()
    assert usage not in fresh.drain()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "payload",
    [deep(900), deep(MAX_PAYLOAD_DEPTH), {"blob": "x" * MAX_PAYLOAD_BYTES}, {"n": [HUGE] * 4}],
    ids=["900 deep", "above the depth", "large", "many digits"],
)
@pytest.mark.parametrize("kind", ["codex", "claude"])
async def test_a_payload_that_is_shown_again_is_small_and_shallow(kind: str, payload: Any) -> None:
    limits = {"limitId": "l", "primary": payload}
    frames = {
        "codex": {"method": "account/rateLimits/updated", "params": {"rateLimits": limits}},
        "claude": {"type": "rate_limit_event", "rate_limit_info": limits},
    }
    good = {"limitId": "l", "primary": {"usedPercent": 3}}
    fine = {
        "codex": {"method": "account/rateLimits/updated", "params": {"rateLimits": good}},
        "claude": {"type": "rate_limit_event", "rate_limit_info": good},
    }
    progress, _ = await used(kind, fine[kind], frames[kind])
    assert progress.snapshot().rate_limits == good


@pytest.mark.asyncio
async def test_a_cost_that_cannot_be_is_left_out_and_the_turn_ends() -> None:
    end = {"type": "result", "subtype": "success", "total_cost_usd": HUGE}
    with capture_logs() as logs:
        events, failed = await turn("claude", saying(end))
    ended = [event for event in events if isinstance(event, TurnEnd)]
    assert failed is None
    assert ended[0].cost_usd is None
    assert [log["what"] for log in logs if log["event"] == "agent_report_refused"] == ["cost"]


# --- behind it: what a recording or an earlier version may hold ------------------------------------------


def poisoned() -> Chronicle:
    """A daemon with two runs, the report of one of which holds what the border would have refused."""
    story = Chronicle(make_issue("1"), make_issue("2"), max_tokens_per_issue=100, max_tokens_per_day=10**6)
    story.tell(DayBegan(day="2026-03-01"))
    story.begin()
    story.streams("2", total_tokens=40, turn_count=1)
    counts = {"input_tokens": HUGE * 10, "output_tokens": -HUGE, "total_tokens": HUGE * 10}
    story.streams("1", **counts, turn_count=HUGE, rate_limits={"primary": deep(900), "n": HUGE * 10})
    return story


def test_one_bad_run_hides_no_other() -> None:
    story = poisoned()
    told = story.document()
    for document in (told, story.issue("SYM-1"), story.issue("SYM-2")):
        json.dumps(document)
    assert [row["issue_identifier"] for row in told["running"]] == ["SYM-1", "SYM-2"]
    assert told["codex_totals"]["output_tokens"] == 0


def test_no_number_is_more_than_the_journal_can_hold() -> None:
    story = poisoned()
    for spent in story.state.spent.values():
        assert column(spent.tokens) == spent.tokens <= MAX_COUNT
        assert column(spent.turns) == spent.turns <= MAX_COUNT
    assert column(story.state.day_tokens) == story.state.day_tokens == MAX_COUNT
    for _ in range(3):
        story.report("1", total_tokens=0)
        story.report("1", total_tokens=MAX_COUNT)
    assert story.state.day_tokens == MAX_COUNT
    story.ends("1")
    assert story.state.totals.usage.tokens.total_tokens == MAX_COUNT


def test_what_an_absurd_report_used_up_is_used_up_after_a_restart_too() -> None:
    story = poisoned()
    successor = Chronicle(make_issue("1"), max_tokens_per_issue=100)
    successor.tell(
        Recovered(spent=dict(story.state.spent), day="2026-03-01", day_tokens=story.state.day_tokens)
    )
    successor.tell(Recovered(day_tokens=MAX_COUNT))
    assert successor.state.spent["1"].tokens == MAX_COUNT
    assert successor.state.day_tokens == MAX_COUNT


def test_who_used_up_the_day_is_named() -> None:
    story = Chronicle(make_issue("1"), make_issue("2"), max_tokens_per_day=1_000)
    story.tell(DayBegan(day="2026-03-01"))
    story.begin()
    story.streams("1", total_tokens=300)
    assert story.document()["budgets"]["used_up_by"] is None
    story.streams("2", total_tokens=900)
    assert story.document()["budgets"]["used_up_by"] == {
        "issue_identifier": "SYM-2",
        "agent": "codex",
        "tokens": 900,
    }
    (notice,) = story.notices("day_budget_used")
    assert notice.issue_identifier == "SYM-2"
    assert (notice.fields["agent"], notice.fields["tokens"]) == ("codex", 900)


def test_masking_has_a_bottom_and_what_it_gives_can_be_written() -> None:
    value = {"limits": deep(5_000), "n": HUGE * 10, "list": [-HUGE]}
    told = masked(value, str)
    assert TOO_DEEP in json.dumps(told)
    assert len(msgspec.json.encode(told)) < 10 * MAX_DEPTH + 100


def test_a_recording_leaves_out_what_it_cannot_write_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    recorder = DecisionRecorder(path, os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), redaction=Redaction)
    state = initial_state(make_settings(), epoch="d1")
    report = RunReport(stage=RunStage.STREAMING_TURN, rate_limits={"x": deep(5_000)})
    with capture_logs() as logs:
        state, _ = recorder.step(state, Recovered(), 1)
        state, _ = recorder.step(state, AgentReported(run_id="r", report=report), 2)
        recorder.step(state, DayBegan(day="2026-03-01"), 3)
    recorder.close()
    assert [(log["event"], log["input"]) for log in logs] == [("recording_skipped", "AgentReported")]
    assert [entry.at_ms for entry in read_recording(path.read_text()).steps] == [1, 3]
