from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from harness.sessions import make_repository
from integration.agents.conftest import Bench
from symphony.agents.base import AgentError
from symphony.agents.events import (
    Activity,
    AgentEvent,
    ApprovalAnswered,
    InputRequired,
    ItemFinished,
    LogNotice,
    Malformed,
    SessionStarted,
    Text,
    ToolCalled,
    TurnEnd,
    TurnStatus,
    UsageUpdate,
)
from symphony.agents.run_stats import RunStats
from symphony.domain import Category
from symphony.scheduler import Thread

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from integration.agents.conftest import Bench
    from symphony.agents.events import AgentEvent

pytestmark = pytest.mark.asyncio
COMPLETED = TurnEnd(status=TurnStatus.COMPLETED)


def tokens_of(events: Sequence[AgentEvent]) -> int:
    return max(event.tokens.total_tokens for event in events if isinstance(event, UsageUpdate))


@pytest.mark.conformance("A-4", "A-16")
async def test_two_turns_run_on_one_process_and_one_thread(bench: Bench) -> None:
    async with bench.session(bench.scripted()) as session:
        first = await bench.turn(session, bench.script({"write": "a.txt", "text": "a"}, {"commit": "add a"}))
        second = await bench.turn(session, bench.script({"say": "more"}))
        assert session.pid == bench.spawned[0].pid
    starts = [event for event in (*first, *second) if isinstance(event, SessionStarted)]
    assert len({event.thread_id for event in starts}) == 1
    assert len({event.turn_id for event in starts}) == 2
    assert starts[0].session_id == f"{starts[0].thread_id}-{starts[0].turn_id}"
    assert first[-1] == second[-1] == COMPLETED
    assert (bench.workspace / "a.txt").read_text() == "a"
    assert tokens_of(second) > tokens_of(first) > 0
    assert len(bench.spawned) == 1


async def test_a_turn_folds_into_progress(bench: Bench) -> None:
    progress = RunStats()
    async with bench.session(bench.scripted()) as session:
        for event in await bench.turn(session, bench.script({"say": "hello there"})):
            progress.add(event)
    seen = progress.snapshot()
    assert (seen.facts.turn_count, seen.last_event) == (1, "turn_completed")
    assert seen.facts.tokens.total_tokens > 0
    assert seen.rate_limits is not None


@pytest.mark.conformance("A-7")
async def test_garbage_lines_are_events_and_the_turn_goes_on(bench: Bench) -> None:
    async with bench.session(bench.scripted("--garbage")) as session:
        events = await bench.turn(session, bench.script({"say": "hi"}))
    assert events[-1] == COMPLETED
    assert any(isinstance(event, Malformed) for event in events)
    assert LogNotice(level="info", message="this line is no protocol") in events


@pytest.mark.conformance("A-7")
async def test_lines_cut_in_pieces_are_joined(bench: Bench) -> None:
    async with bench.session(bench.scripted("--split-lines")) as session:
        events = await bench.turn(session, bench.script({"say": "grüße, 世界"}))
    assert any(isinstance(event, Text) and "grüße, 世界" in event.message for event in events)
    assert events[-1] == COMPLETED
    assert not any(isinstance(event, Malformed) for event in events)


@pytest.mark.conformance("A-7")
async def test_a_line_of_nearly_ten_mebibytes_is_read(bench: Bench) -> None:
    size = 10 * 1024 * 1024 - 4_096
    async with bench.session(bench.scripted("--huge-line", str(size))) as session:
        events = await bench.turn(session, bench.script({"say": "hi"}))
    assert max(len(event.message) for event in events if isinstance(event, Text)) >= size
    assert events[-1] == COMPLETED


async def test_a_line_above_the_limit_is_malformed_and_the_turn_goes_on(bench: Bench) -> None:
    async with bench.session(bench.scripted("--huge-line", str(11 * 1024 * 1024))) as session:
        events = await bench.turn(session, bench.script({"say": "hi"}))
    malformed = [event.excerpt for event in events if isinstance(event, Malformed)]
    assert malformed
    assert all("exceeds the limit" in excerpt and len(excerpt) < 1_000 for excerpt in malformed)
    assert events[-1] == COMPLETED


@pytest.mark.conformance("A-7")
async def test_a_flood_on_stderr_holds_nothing_up(bench: Bench) -> None:
    async with bench.session(bench.scripted("--stderr-flood", "2000000")) as session:
        events = await bench.turn(session, bench.script({"say": "hi"}))
    assert events[-1] == COMPLETED
    assert bench.stderr.stat().st_size >= 2_000_000


@pytest.mark.conformance("A-10")
async def test_a_request_that_nobody_knows_is_refused_and_the_turn_goes_on(bench: Bench) -> None:
    async with bench.session(bench.scripted("--unknown-request")) as session:
        events = await bench.turn(session, bench.script({"say": "hi"}))
    assert any(isinstance(event, LogNotice) and event.message.endswith("was refused") for event in events)
    assert events[-1] == COMPLETED


@pytest.mark.conformance("A-12")
async def test_a_tool_runs_on_our_side_and_its_answer_reaches_the_agent(bench: Bench) -> None:
    async with bench.session(bench.scripted()) as session:
        prompt = bench.script({"tool": "board_comment", "arguments": {"text": "done"}})
        events = await bench.turn(session, prompt)
    assert bench.calls == [("board_comment", {"text": "done"})]
    assert ToolCalled(name="board_comment", success=True) in events
    finished = next(event for event in events if isinstance(event, ItemFinished))
    assert (finished.kind, finished.status, finished.summary) == (
        "dynamicToolCall",
        "completed",
        "board_comment",
    )


@pytest.mark.conformance("A-10")
async def test_an_unsupported_tool_fails_in_structure_and_the_session_goes_on(bench: Bench) -> None:
    async with bench.session(bench.scripted()) as session:
        prompt = bench.script({"tool": "nothing_of_ours", "arguments": {}, "may_fail": True}, {"say": "on"})
        events = await bench.turn(session, prompt)
    assert ToolCalled(name="nothing_of_ours", success=False) in events
    assert bench.calls == []
    assert events[-1] == COMPLETED


@pytest.mark.conformance("A-9")
@pytest.mark.parametrize(("on_approval", "decision"), [("decline", "decline"), ("accept", "accept")])
async def test_an_approval_is_answered_by_policy(bench: Bench, on_approval: str, decision: str) -> None:
    async with bench.session(bench.scripted(), on_approval=on_approval) as session:
        events = await bench.turn(session, bench.script({"ask_approval": "touch approved"}))
    assert ApprovalAnswered(kind="commandExecution", decision=decision) in events
    assert events[-1] == COMPLETED
    assert (bench.workspace / "approved").exists() is (decision == "accept")


async def test_a_blocked_approval_ends_the_run_and_runs_nothing(bench: Bench) -> None:
    bench.grace_ms = 60_000  # for its answer, also on a busy machine
    async with bench.session(bench.scripted(), on_approval="block") as session:
        events = await bench.turn(session, bench.script({"ask_approval": "touch approved"}))
        left = await session.stop()
    assert isinstance(events[-1], InputRequired)
    assert events[-1].approval
    assert "touch approved" in events[-1].reason
    assert not (bench.workspace / "approved").exists()
    assert [event.status for event in left if isinstance(event, TurnEnd)] == [TurnStatus.INTERRUPTED]


@pytest.mark.conformance("A-11")
async def test_a_question_to_a_person_ends_the_run_within_a_bound(bench: Bench) -> None:
    with anyio.fail_after(60):
        async with bench.session(bench.scripted()) as session:
            events = await bench.turn(session, bench.script({"ask_input": "Which colour?"}))
    assert events[-1] == InputRequired(reason="the agent asks: Which colour?", question="Which colour?")


@pytest.mark.conformance("A-8")
async def test_a_failed_turn_carries_the_agents_words(bench: Bench) -> None:
    async with bench.session(bench.scripted()) as session:
        events = await bench.turn(session, bench.script({"fail": "cannot go on"}))
    ended = events[-1]
    assert isinstance(ended, TurnEnd)
    assert ended.status is TurnStatus.FAILED
    assert ended.failure is not None
    assert (ended.failure.category, ended.failure.message) == (Category.TURN_FAILED, "cannot go on")


@pytest.mark.conformance("A-8")
async def test_the_end_of_the_process_in_a_turn_is_port_exit_with_its_last_words(bench: Bench) -> None:
    last_words = "code=$?; echo 'https://u:p@h/ gone' >&2; exit $code"
    agent = f"{bench.scripted('--exit-on', 'turn/started:3')}; {last_words}"
    async with bench.session(agent) as session:
        with pytest.raises(AgentError) as caught:
            await bench.turn(session, bench.script({"say": "hi"}))
    failure = caught.value.failure
    assert failure.category is Category.PORT_EXIT
    assert failure.message == "the agent ended with exit code 3: https://***@h/ gone"


@pytest.mark.conformance("A-6")
async def test_silence_in_a_turn_is_a_turn_timeout(bench: Bench) -> None:
    agent = bench.scripted("--silent-after", "turn/started")
    async with bench.session(agent, turn_timeout_ms=200) as session:
        with pytest.raises(AgentError) as caught:
            await bench.turn(session, bench.script({"say": "hi"}))
    assert caught.value.failure.category is Category.TURN_TIMEOUT
    assert bench.living() == ()


@pytest.mark.conformance("A-6")
async def test_output_restarts_the_silence_limit(bench: Bench) -> None:
    steps = [step for number in range(8) for step in ({"sleep_ms": 400}, {"say": str(number)})]
    async with bench.session(bench.scripted(), turn_timeout_ms=3_000) as session:
        events = await bench.turn(session, bench.script(*steps))
    assert events[-1] == COMPLETED


@pytest.mark.conformance("A-5")
# A limit of 0.7 s might end before an interpreter has begun, and the first request would be the silent one.
@pytest.mark.parametrize(("method", "limit_ms"), [("initialize", 700), ("thread/start", 6_000)])
async def test_a_start_without_an_answer_is_a_response_timeout_and_leaves_nothing(
    bench: Bench, method: str, limit_ms: int
) -> None:
    with pytest.raises(AgentError) as caught:
        async with bench.session(bench.scripted("--silent-after", method), read_timeout_ms=limit_ms):
            pytest.fail("the session must not open")
    assert caught.value.failure.category is Category.RESPONSE_TIMEOUT
    assert method in caught.value.failure.message
    assert bench.living() == ()
    assert not any(bench.host.is_alive(identity) for identity in bench.spawned)


async def test_a_policy_that_the_agent_does_not_know_blames_the_configuration(bench: Bench) -> None:
    with pytest.raises(AgentError) as caught:
        async with bench.session(bench.scripted(), approval_policy="on-failure"):
            pytest.fail("the session must not open")
    failure = caught.value.failure
    assert failure.category is Category.RESPONSE_ERROR
    assert not failure.retryable
    assert failure.hint is not None
    assert "codex.approval_policy" in failure.hint


async def test_streamed_text_counts_as_activity(bench: Bench) -> None:
    async with bench.session(bench.scripted()) as session:
        events = await bench.turn(session, bench.script({"say": "hello"}))
    assert sum(event.count for event in events if isinstance(event, Activity)) > 0


async def test_a_missing_program_is_not_found_with_a_hint(bench: Bench) -> None:
    with pytest.raises(AgentError) as caught:
        async with bench.session("symphony-no-such-agent app-server"):
            pytest.fail("the session must not open")
    failure = caught.value.failure
    assert failure.category is Category.CODEX_NOT_FOUND
    assert "symphony-no-such-agent" in failure.message
    assert failure.hint is not None
    assert "npm install -g @openai/codex" in failure.hint


async def test_a_missing_shell_is_not_found(bench: Bench) -> None:
    bench.environ["PATH"] = "/nonexistent"
    with pytest.raises(AgentError) as caught:
        async with bench.session("codex app-server"):
            pytest.fail("the session must not open")
    assert caught.value.failure.category is Category.CODEX_NOT_FOUND


@pytest.mark.conformance("K-11")
@pytest.mark.parametrize("name", ["absent", "a-file"])
async def test_a_workspace_that_is_no_directory_starts_nothing(bench: Bench, name: str) -> None:
    (bench.workspace.parent / "a-file").touch()
    with pytest.raises(AgentError) as caught:
        async with bench.backend(bench.scripted()).open(bench.request(cwd=bench.workspace.parent / name)):
            pytest.fail("the session must not open")
    assert caught.value.failure.category is Category.INVALID_WORKSPACE_CWD
    assert bench.spawned == []


async def test_a_listener_that_raises_leaves_no_process(bench: Bench) -> None:
    def refuse(_: object) -> None:
        raise OSError("the disk is full")

    with pytest.raises(AgentError, match="the disk is full"):
        async with bench.backend(bench.scripted()).open(bench.request(on_spawned=refuse)):
            pytest.fail("the session must not open")
    assert bench.living() == ()


async def test_a_resumed_thread_goes_on_in_the_workspace_and_nowhere_else(
    bench: Bench, tmp_path: Path
) -> None:
    agent = bench.scripted("--threads", str(tmp_path / "threads"))
    async with bench.session(agent) as session:
        await bench.turn(session, bench.script({"say": "hi"}))
        thread = Thread(thread_id=session.thread_id or "")
    old, bench.workspace = bench.workspace, tmp_path / "other"
    make_repository(bench.workspace)
    request = bench.request(resume=thread)
    async with bench.backend(agent).open(request) as session:
        assert (session.resume_refused, session.thread_id) == (None, thread.thread_id)
        await bench.turn(session, bench.script({"write": "here.txt", "text": "a"}))
    assert ((bench.workspace / "here.txt").exists(), (old / "here.txt").exists()) == (True, False)
    elsewhere = f"{agent} | sed -u 's#{bench.workspace.name}\",#{old.name}\",#g'"
    async with bench.backend(elsewhere).open(request) as session:
        assert session.resume_refused is not None
        assert session.resume_refused.category is Category.INVALID_WORKSPACE_CWD
        assert session.thread_id != thread.thread_id
