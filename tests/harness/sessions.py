"""Sessions of an agent on a real workspace: what every bench shares, whichever agent it drives."""

import json
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import symphony
from symphony.agents.base import AgentSession, BackendContext, Briefing, ListAgentSkills, SessionRequest, Turn
from symphony.agents.events import AgentEvent
from symphony.domain import ToolResult, ToolSpec
from symphony.processes.base import Identity
from symphony.processes.local import LocalHost

__all__ = ["COMMENT", "SOURCE", "SessionBench", "briefed", "git", "make_repository"]


SOURCE = Path(symphony.__file__).parents[1]
_BRIEFING = frozenset(each.name for each in fields(Briefing))
COMMENT = ToolSpec(
    name="board_comment",
    description="Comment on the issue.",
    input_schema={"type": "object", "properties": {"text": {"type": "string"}}},
)


def briefed(briefing: Briefing) -> Callable[[ListAgentSkills], Awaitable[Briefing]]:
    """What a session is told, ready when it is asked for."""

    async def ready(_: ListAgentSkills) -> Briefing:
        return briefing

    return ready


def git(folder: Path, *arguments: str) -> str:
    argv = ["git", *arguments]
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def make_repository(folder: Path) -> None:
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "config", "user.name", "Test")
    git(folder, "config", "user.email", "test@example.invalid")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "start")


@dataclass
class SessionBench:
    """A workspace and what a session in it needs; it remembers what was called and who was spawned."""

    workspace: Path
    stderr: Path
    environ: dict[str, str]
    tools: tuple[ToolSpec, ...] = ()
    envelope: str | None = None
    secret_names: frozenset[str] = frozenset()
    grace_ms: int = 2_000
    host: LocalHost = field(default_factory=LocalHost)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    spawned: list[Identity] = field(default_factory=list)
    # Unique on the machine: what carries the same id is ended together.
    run_id: str = field(default_factory=lambda: f"test-{uuid4().hex}")

    @classmethod
    def at(cls, top: Path, environ: dict[str, str], **fields: Any) -> Self:
        """A bench in a directory of its own, with a repository that has one commit."""
        made = cls(top / "root" / "MT-1", top / "stderr.log", environ, **fields)
        make_repository(made.workspace)
        return made

    @property
    def root(self) -> Path:
        """Where workspaces are."""
        return self.workspace.parent

    @property
    def top(self) -> Path:
        """The directory that all of it is in."""
        return self.stderr.parent

    def git(self, *arguments: str) -> str:
        return git(self.workspace, *arguments)

    @staticmethod
    def script(*steps: Mapping[str, Any]) -> str:
        """A prompt that makes a scripted agent take these steps."""
        return f"Work.\n\n```scripted\n{json.dumps([list(steps)])}\n```\n"

    async def run_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        self.calls.append((name, dict(arguments)))
        return ToolResult.of({"ok": True, "echo": dict(arguments)})

    def context(self, **changes: Any) -> BackendContext:
        """What a backend is made with; `secret_names` are of the request, unless somebody says otherwise."""
        values: dict[str, Any] = {
            "host": self.host,
            "environ": self.environ,
            "secret_names": frozenset(),
            "homes": self.top / "homes",
            "grace_ms": self.grace_ms,
        }
        return BackendContext(**{**values, **changes})

    def request(self, **changes: Any) -> SessionRequest:
        """A request; `changes` are of it or of its briefing."""
        given: dict[str, Any] = {"envelope": self.envelope, "tools": self.tools, **changes}
        briefing = Briefing(**{name: given.pop(name) for name in _BRIEFING & given.keys()})
        values: dict[str, Any] = {
            "run_id": self.run_id,
            "cwd": self.workspace,
            "briefing": briefed(briefing),
            "run_tool": self.run_tool,
            "stderr_path": self.stderr,
            "secret_names": self.secret_names,
            "on_spawned": self.spawned.append,
        }
        return SessionRequest(**{**values, **given})

    @staticmethod
    async def turn(session: AgentSession, prompt: str) -> list[AgentEvent]:
        return [event async for event in session.run_turn(Turn(prompt=prompt, title="MT-1: try"))]

    def living(self) -> tuple[Identity, ...]:
        """Whatever still carries the run id."""
        return self.host.find_marked([self.run_id])
