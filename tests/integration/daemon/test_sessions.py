"""What holds for each session, whatever the agent: where it runs, what it may call, when none is started."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread
from structlog.testing import capture_logs
from typing_extensions import override

from harness.binding import NoOwnSkills
from harness.project import Project
from harness.scheduling import make_failure
from harness.serving import serving
from harness.shell import word
from symphony.agents.base import Briefing, Capabilities, Preflight, SessionRequest, Turn, cannot_list_skills
from symphony.agents.events import AgentEvent, SessionStarted, TurnEnd, TurnStatus
from symphony.domain import Category, Failure, ToolResult
from symphony.scheduler import RunEnded, SettingsChanged

if TYPE_CHECKING:
    from symphony.domain import ToolResult

pytestmark = pytest.mark.asyncio


class Listener(NoOwnSkills):
    """An agent in this process: keeps what each session was given, and calls one tool when `go` is set."""

    pid = 1
    thread_id = "t"

    def __init__(self) -> None:
        self.requests: list[SessionRequest] = []
        self.briefings: list[Briefing] = []
        self.answers: list[ToolResult] = []
        self.opened, self.go, self.answered = anyio.Event(), anyio.Event(), anyio.Event()

    async def preflight(self, _: object, *, run_id: str) -> Preflight:
        assert run_id
        return Preflight(agent="listener", version="1")

    @asynccontextmanager
    async def open(self, request: SessionRequest) -> AsyncIterator["Listener"]:
        self.requests.append(request)
        self.briefings.append(await request.briefing(cannot_list_skills))
        self.opened.set()
        yield self

    async def run_turn(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        assert turn.prompt
        assert turn.title
        yield SessionStarted(session_id="t-1", thread_id="t", turn_id="1")
        await self.go.wait()
        self.answers.append(await self.requests[-1].run_tool("board_move", {"state": "Done"}))
        self.answered.set()
        yield TurnEnd(status=TurnStatus.COMPLETED)

    async def stop(self) -> tuple[AgentEvent, ...]:
        await anyio.lowlevel.checkpoint()
        return ()


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Listener:
    made = Listener()
    monkeypatch.setattr("symphony.daemon.context.create_backend", lambda *_, **__: made)
    return made


@pytest.mark.conformance("A-12", "K-11")
async def test_a_session_gets_its_workspace_and_the_tools_of_its_tracker_for_its_own_issue(
    project: Project, listener: Listener
) -> None:
    project.workflow()
    project.issue("SYM-1")
    project.issue("SYM-2", state="Backlog")
    listener.go.set()
    async with serving(project) as served:
        await served.watcher.until_seen(RunEnded)
    (request,) = listener.requests
    assert request.cwd == project.workspaces / "SYM-1"
    assert {spec.name for spec in listener.briefings[0].tools} == {
        "board_show",
        "board_comment",
        "board_move",
    }
    assert [answer.success for answer in listener.answers] == [True]
    assert await to_thread.run_sync(project.state, "SYM-1") == "Done"
    assert await to_thread.run_sync(project.state, "SYM-2") == "Backlog", (
        "the call names no issue: it is ours"
    )


@pytest.mark.conformance("A-15")
async def test_a_reload_during_a_session_changes_neither_its_tools_nor_their_tracker(
    project: Project, listener: Listener
) -> None:
    project.workflow()
    project.issue("SYM-1")
    (project.root / "other").mkdir()
    # On the other board as well: a run whose issue is missing there is stopped, before its tool or after it.
    (project.root / "other" / "SYM-1.md").write_text("---\ntitle: Same\nstate: In Progress\n---\n")
    async with serving(project) as served:
        await listener.opened.wait()
        told = listener.briefings[0].tools
        other = {"provider": {"path": str(project.root / "other")}, "active_states": ["In Progress"]}
        await to_thread.run_sync(lambda: project.workflow(tracker=other))
        await served.watcher.until_seen(SettingsChanged)
        listener.go.set()
        await listener.answered.wait()
    assert listener.answers[0].success
    assert (await listener.requests[0].briefing(cannot_list_skills)).tools == told
    assert "state: Done" in await anyio.Path(project.repo / ".symphony/issues/SYM-1.md").read_text()


@pytest.mark.conformance("A-20")
async def test_a_prompt_that_cannot_be_rendered_starts_no_agent_and_the_hook_at_the_end_runs(
    project: Project, listener: Listener
) -> None:
    mark = project.root / "after"
    project.workflow(
        body="{{ issue.description | slice: issue.title }}",
        hooks={"after_run": f"touch {word(mark)}"},
        agent={"max_retry_backoff_ms": 60_000},
    )
    project.issue("SYM-1", title="no number")
    async with serving(project) as served:
        fact = await served.watcher.until_seen(RunEnded)
    assert fact.outcome.failure is not None
    assert fact.outcome.failure.category is Category.TEMPLATE_RENDER_ERROR
    assert listener.requests == []
    assert await anyio.Path(mark).exists()


@pytest.mark.conformance("K-11")
async def test_a_workspace_that_leads_out_of_its_root_starts_no_agent(
    project: Project, listener: Listener
) -> None:
    """Another program swaps the directory for a link after it was prepared: here, the hook."""
    outside = project.root / "outside"
    await anyio.Path(outside).mkdir()
    swap = f'mv "$PWD" "$PWD.old" && ln -s {word(outside)} "$PWD"'
    project.workflow(hooks={"before_run": swap}, agent={"max_retry_backoff_ms": 60_000})
    project.issue("SYM-1")
    async with serving(project) as served:
        fact = await served.watcher.until_seen(RunEnded)
    assert fact.outcome.failure is not None
    assert fact.outcome.failure.category is Category.INVALID_WORKSPACE_CWD
    assert listener.requests == []
    assert await to_thread.run_sync(lambda: list(Path(outside).iterdir())) == []


class Rememberer(Listener):
    """One that resumes threads, unless it has `forgotten` them; keeps what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.forgotten = False
        self.told: list[str] = []

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            system_block_at_start=True, client_tools=True, absolute_usage=True, sandbox=True, resume=True
        )

    @property
    def resume_refused(self) -> Failure | None:
        return make_failure("no such thread") if self.forgotten else None

    @override
    async def run_turn(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        self.told.append(turn.prompt)
        async for event in super().run_turn(turn):
            yield event


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_session_goes_on_with_its_thread_or_starts_cold_where_the_agent_forgot_it(
    project: Project, monkeypatch: pytest.MonkeyPatch, *, forgotten: bool
) -> None:
    agent = Rememberer()
    monkeypatch.setattr("symphony.daemon.context.create_backend", lambda *_, **__: agent)
    project.workflow()
    project.issue("SYM-1", text="The task itself.")
    async with serving(project) as first:
        await first.watcher.until(lambda: bool(agent.told))
        await first.watcher.until(
            lambda: [run.report.facts.thread_id for run in first.watcher.running] == ["t"]
        )
    agent.forgotten = forgotten
    agent.go.set()
    with capture_logs() as logs:
        async with serving(project) as second:
            await second.watcher.until_seen(RunEnded)
    before, after = agent.requests
    assert before.resume is None
    assert after.resume is not None
    assert after.resume.thread_id == "t"
    assert ("The task itself." in agent.told[0], "The task itself." in agent.told[1]) == (True, forgotten)
    event = "resume_failed" if forgotten else "thread_resumed"
    assert [line["thread_id"] for line in logs if line["event"] == event] == ["t"]
