"""An agent that is started for each turn, reads its prompt from stdin, and asks for tools by lines of output.

A line `tool NAME` runs a tool of the session; any other line is something that the agent says.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import anyio
from pydantic import Field
from typing_extensions import override

from symphony.agents.backend import LaunchOptions, ProcessBackend
from symphony.agents.base import (
    Capabilities,
    Preflight,
    SessionRequest,
    Turn,
    cannot_list_skills,
    resolve_workspace,
    silence_limit,
)
from symphony.agents.events import AgentEvent, SessionStarted, Text, ToolCalled, TurnEnd, TurnStatus
from symphony.agents.process import AgentProcess
from symphony.config import AgentSection, session
from symphony.domain import Blame, Category, Failure


class StdinSettings(AgentSection):
    """The section `stdin` of WORKFLOW.md: two keys, besides those that every agent has."""

    command: str = session("my-agent", "shell command that is started for each turn")
    max_lines: Annotated[int, Field(gt=0)] = session(1_000, "lines of output that are looked at in a turn")


class StdinBackend(ProcessBackend[StdinSettings]):
    settings_type = StdinSettings
    install_hint = "see that stdin.command names a program that the login shell finds"
    capabilities = Capabilities(
        system_block_at_start=False,
        client_tools=True,
        absolute_usage=False,
        usage=False,
        sandbox=False,
        approvals=False,
        interrupt=False,
        resume=False,
    )

    @override
    async def preflight(self, workspace_root: Path, *, run_id: str) -> Preflight:
        return Preflight(agent="stdin", version="0.1")

    @override
    @asynccontextmanager
    async def open(self, request: SessionRequest) -> AsyncIterator["StdinSession"]:
        cwd, briefing = await resolve_workspace(request.cwd), await request.briefing(cannot_list_skills)
        opened = StdinSession(self, request, cwd, briefing.envelope or "")
        try:
            yield opened
        finally:
            await opened.stop()


class StdinSession:
    """Turns are processes of their own; nothing is remembered between them."""

    resume_refused: Failure | None = None
    thread_id: str | None = None

    def __init__(self, backend: StdinBackend, request: SessionRequest, cwd: Path, envelope: str) -> None:
        self._backend = backend
        self._request = request
        self._cwd = cwd
        self._envelope = envelope
        self._process: AgentProcess | None = None
        self._turns = 0

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    async def run_turn(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        self._turns += 1
        run_id, turn_id = self._request.run_id, str(self._turns)
        yield SessionStarted(session_id=f"{run_id}-{turn_id}", thread_id=run_id, turn_id=turn_id)
        process = self._process = await self._backend.start(
            LaunchOptions.for_session(self._request, self._cwd)
        )
        await process.send(f"{turn.envelope.text or self._envelope}\n{turn.prompt}\n".encode())
        await process.close_stdin()
        for line in (await self._output(process)).splitlines()[: self._backend.settings.max_lines]:
            word, _, name = line.partition(" ")
            if word == "tool":
                result = await self._request.run_tool(name, {})
                yield ToolCalled(name=name, success=result.success)
            else:
                yield Text(message=line)
        code = await process.exit_code()
        await self.stop()
        if code == 0:
            yield TurnEnd(status=TurnStatus.COMPLETED)
            return
        failure = Failure(category=Category.TURN_FAILED, blame=Blame.AGENT, message=f"exit code {code}")
        yield TurnEnd(status=TurnStatus.FAILED, failure=failure)

    async def stop(self) -> tuple[AgentEvent, ...]:
        if self._process is not None:
            with anyio.CancelScope(shield=True):
                await self._process.stop(lambda _: None)
        return ()

    async def _output(self, process: AgentProcess) -> str:
        told, more = b"", b"more"
        while more:
            with silence_limit(self._backend.settings.turn_timeout_ms):
                more = await process.receive()
            told += more
        return told.decode(errors="replace")
