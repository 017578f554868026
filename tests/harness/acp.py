"""Sessions of the acp backend on a workspace, for the scripted speaker and for the real agents."""

import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import symphony
from symphony.agents.acp.backend import AcpBackend
from symphony.agents.acp.session import AcpSession
from symphony.agents.base import SessionRequest, Surroundings
from symphony.agents.events import AgentEvent
from symphony.domain.tools import ToolResult, ToolSpec
from symphony.hosts.base import Identity
from symphony.hosts.local import LocalHost
from symphony.testing.scripted_agent import acp_command, script
from symphony.workflow.settings import AcpSettings

__all__ = ["COMMENT", "ENVELOPE", "AcpBench", "scripted_acp"]

SOURCE = Path(symphony.__file__).parents[1]
ENVELOPE = "## Available skills\n\n- greet — when greeting"
COMMENT = ToolSpec(
    name="board_comment",
    description="Comment on the issue.",
    input_schema={"type": "object", "properties": {"text": {"type": "string"}}},
)


def scripted_acp(*switches: str) -> str:
    """The scripted speaker as a shell command."""
    return f"PYTHONPATH={SOURCE} {acp_command(*switches)}"


@dataclass
class AcpBench:
    """Opens sessions by `settings`; what tools were called and who was spawned is remembered."""

    top: Path
    environ: dict[str, str]
    settings: dict[str, Any]
    secret_names: frozenset[str] = frozenset()
    grace_ms: int = 2_000
    host: LocalHost = field(default_factory=LocalHost)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    spawned: list[Identity] = field(default_factory=list)
    run_id: str = field(default_factory=lambda: f"test-{uuid4().hex}")

    @property
    def root(self) -> Path:
        return self.top / "root"

    @property
    def workspace(self) -> Path:
        return self.root / "MT-1"

    def make(self) -> "AcpBench":
        self.workspace.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "Test")
        self.git("config", "user.email", "test@example.invalid")
        self.git("commit", "--quiet", "--allow-empty", "--message", "start")
        return self

    def git(self, *arguments: str) -> str:
        argv = ["git", *arguments]
        done = subprocess.run(argv, cwd=self.workspace, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    @staticmethod
    def script(*steps: dict[str, Any]) -> str:
        """A prompt that makes the scripted speaker take these steps."""
        return f"Work.\n\n{script.block(list(steps))}"

    async def run_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        self.calls.append((name, dict(arguments)))
        return ToolResult.of({"ok": True, "echo": dict(arguments)})

    def backend(self, *, around: Mapping[str, Any] | None = None, **settings: Any) -> AcpBackend:
        surroundings: dict[str, Any] = {
            "host": self.host,
            "environ": self.environ,
            "secret_names": self.secret_names,
            "homes": self.top / "homes",
            "grace_ms": self.grace_ms,
        }
        return AcpBackend(
            settings=AcpSettings(**{"read_timeout_ms": 30_000, **self.settings, **settings}),
            around=Surroundings(**{**surroundings, **(around or {})}),
        )

    def request(self, **changes: Any) -> SessionRequest:
        values: dict[str, Any] = {
            "run_id": self.run_id,
            "cwd": self.workspace,
            "envelope": None,
            "tools": (),
            "run_tool": self.run_tool,
            "stderr_path": self.top / "stderr.log",
            "secret_names": self.secret_names,
            "on_spawned": self.spawned.append,
        }
        return SessionRequest(**{**values, **changes})

    @asynccontextmanager
    async def session(
        self, changes: Mapping[str, Any] | None = None, **settings: Any
    ) -> AsyncIterator[AcpSession]:
        async with self.backend(**settings).open(self.request(**(changes or {}))) as session:
            yield session

    @staticmethod
    async def turn(session: AcpSession, prompt: str) -> list[AgentEvent]:
        return [event async for event in session.run_turn(prompt, title="MT-1: try")]

    def living(self) -> tuple[Identity, ...]:
        """Whatever still carries the run id."""
        return self.host.find_marked([self.run_id])
