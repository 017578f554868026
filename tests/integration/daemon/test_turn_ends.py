from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs
from typing_extensions import override

from harness.binding import NoOwnSkills
from harness.project import Project
from harness.scheduling import make_failure
from harness.serving import serving
from symphony.agents.base import Preflight, SessionRequest, Turn
from symphony.agents.events import (
    AgentEvent,
    InputRequired,
    ItemStarted,
    SessionStarted,
    TurnEnd,
    TurnStatus,
)
from symphony.domain import Category
from symphony.scheduler import RunEnded, StopRun
from symphony.workspaces import WorkspaceManager

pytestmark = pytest.mark.asyncio


class OneTurn(NoOwnSkills):
    """An agent in this process whose every turn ends with the given event."""

    pid = 1
    thread_id = "t"

    def __init__(self, last: AgentEvent | None) -> None:
        self.last = last
        self.first: AgentEvent | None = None

    async def preflight(self, _: object, *, run_id: str) -> Preflight:
        assert run_id
        return Preflight(agent="one turn", version="1")

    @asynccontextmanager
    async def open(self, _: SessionRequest) -> AsyncIterator["OneTurn"]:
        yield self

    async def run_turn(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        assert turn.prompt
        assert turn.title
        await anyio.lowlevel.checkpoint()
        yield SessionStarted(session_id="t-1", thread_id="t", turn_id="1")
        if self.first is not None:
            yield self.first
        if self.last is not None:
            yield self.last

    async def stop(self) -> tuple[AgentEvent, ...]:
        return ()


def ended(status: TurnStatus, category: Category | None = None) -> TurnEnd:
    failure = None if category is None else make_failure(category=category)
    return TurnEnd(status=status, failure=failure)


@pytest.mark.conformance("A-8", "A-11")
@pytest.mark.parametrize(
    ("last", "kind", "category"),
    [
        (InputRequired(reason="which?"), "input_required", Category.TURN_INPUT_REQUIRED),
        (ended(TurnStatus.FAILED, Category.TURN_TIMEOUT), "timed_out", Category.TURN_TIMEOUT),
        (ended(TurnStatus.FAILED, Category.AGENT_AUTH), "failed", Category.AGENT_AUTH),
        (None, "failed", Category.TURN_FAILED),
        (InputRequired(reason="may I?", approval=True), "input_required", Category.APPROVAL_REQUIRED),
        (ended(TurnStatus.FAILED), "failed", Category.TURN_FAILED),
        (ended(TurnStatus.INTERRUPTED), "failed", Category.TURN_CANCELLED),
    ],
)
async def test_how_a_turn_ended_decides_how_its_run_ended(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    last: AgentEvent | None,
    kind: str,
    category: Category,
) -> None:
    monkeypatch.setattr("symphony.daemon.context.create_backend", lambda *_, **__: OneTurn(last))
    project.workflow(agent={"max_retry_backoff_ms": 60_000})
    project.issue("SYM-1")
    async with serving(project) as served:
        fact = await served.watcher.until_seen(RunEnded)
    assert fact.outcome.kind.value == kind
    assert fact.outcome.failure is not None
    assert fact.outcome.failure.category is category


@pytest.mark.parametrize("worked", [True, False])
async def test_a_prompt_that_does_not_fit_the_model_is_a_matter_of_its_issue(
    project: Project, monkeypatch: pytest.MonkeyPatch, *, worked: bool
) -> None:
    """Where the agent did something first, it filled its context by itself."""
    agent = OneTurn(ended(TurnStatus.FAILED, Category.AGENT_CONTEXT_FULL))
    agent.first = ItemStarted(kind="command", summary="ls") if worked else None
    monkeypatch.setattr("symphony.daemon.context.create_backend", lambda *_, **__: agent)
    project.workflow(agent={"max_retry_backoff_ms": 60_000})
    project.issue("SYM-1")
    async with serving(project) as served:
        fact = await served.watcher.until_seen(RunEnded)
    assert fact.outcome.failure is not None
    expected = Category.AGENT_CONTEXT_FULL if worked else Category.ISSUE_TOO_LONG
    assert fact.outcome.failure.category is expected


@pytest.mark.parametrize("approval", [True, False])
async def test_only_who_asks_for_an_approval_is_told_of_the_setting_for_approvals(
    project: Project, monkeypatch: pytest.MonkeyPatch, *, approval: bool
) -> None:
    asks = InputRequired(reason="well?", approval=approval)
    monkeypatch.setattr("symphony.daemon.context.create_backend", lambda *_, **__: OneTurn(asks))
    project.workflow()
    project.issue("SYM-1")
    async with serving(project) as served:
        fact = await served.watcher.until_seen(RunEnded)
    assert fact.outcome.failure is not None
    hint = fact.outcome.failure.hint or ""
    assert ("comment on the issue" in hint) is not approval
    assert ("codex.on_approval" in hint) is approval


class AskingSlowly(OneTurn):
    """An agent that asks for a person, and takes its time to end."""

    def __init__(self) -> None:
        super().__init__(InputRequired(reason="which colour?"))
        self.ending, self.go = anyio.Event(), anyio.Event()

    @override
    async def stop(self) -> tuple[AgentEvent, ...]:
        self.ending.set()
        await self.go.wait()
        return (ended(TurnStatus.INTERRUPTED),)


@pytest.mark.conformance("S-18")
async def test_a_stop_that_comes_while_an_asking_agent_ends_does_not_hide_that_it_asked(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = AskingSlowly()
    monkeypatch.setattr("symphony.daemon.context.create_backend", lambda *_, **__: agent)
    project.workflow()
    project.issue("SYM-1")
    async with serving(project) as served:
        await agent.ending.wait()
        served.service.request_shutdown(now=True)
        await served.watcher.until_seen(StopRun)
        agent.go.set()
        fact = await served.watcher.until_seen(RunEnded)
    assert fact.outcome.kind.value == "input_required"
    assert fact.outcome.failure is not None
    assert fact.outcome.failure.message == "the agent needs a person: which colour?"


async def test_a_run_whose_work_could_not_be_delivered_for_a_fault_of_ours_is_no_success(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a bug of ours")

    completed = OneTurn(ended(TurnStatus.COMPLETED))
    monkeypatch.setattr("symphony.daemon.context.create_backend", lambda *_, **__: completed)
    monkeypatch.setattr(WorkspaceManager, "deliver", broken)
    project.workflow(agent={"max_turns": 1})
    project.issue("SYM-1")
    with capture_logs() as logs:
        async with serving(project) as served:
            fact = await served.watcher.until_seen(RunEnded)
    assert fact.outcome.kind.value == "failed"
    assert fact.outcome.failure is not None
    assert fact.outcome.failure.category is Category.DELIVERY_FAILED
    assert "delivery_crashed" in {line["event"] for line in logs}
