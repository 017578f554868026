import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import symphony
from harness.real import require_codex
from symphony.agents.base import SessionRequest, Surroundings
from symphony.agents.codex.backend import CodexBackend
from symphony.agents.codex.session import CodexSession
from symphony.agents.events import AgentEvent
from symphony.domain.tools import ToolResult, ToolSpec
from symphony.hosts.base import Identity
from symphony.hosts.local import LocalHost
from symphony.testing.codex_home import CodexHome, codex_home
from symphony.testing.model_server import ModelServer, Scenario
from symphony.testing.scripted_agent import command
from symphony.workflow.settings import CodexSettings

SOURCE = Path(symphony.__file__).parents[1]
GRACE_MS = 300
TRACKER = ToolSpec(
    name="board_comment",
    description="Comment on the issue.",
    input_schema={"type": "object", "properties": {"text": {"type": "string"}}},
)


@dataclass
class Bench:
    """Opens sessions on a workspace; what tools were called and who was spawned is remembered."""

    workspace: Path
    stderr: Path
    environ: dict[str, str]
    tools: tuple[ToolSpec, ...] = (TRACKER,)
    envelope: str | None = None
    secret_names: frozenset[str] = frozenset()
    grace_ms: int = GRACE_MS
    host: LocalHost = field(default_factory=LocalHost)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    spawned: list[Identity] = field(default_factory=list)
    # Unique on the machine: what carries the same id is ended together.
    run_id: str = field(default_factory=lambda: f"test-{uuid4().hex}")

    @staticmethod
    def scripted(*switches: str) -> str:
        """The scripted agent as a shell command; an assignment stands before it, as an operator may write."""
        return f"PYTHONPATH={SOURCE} {command(*switches)}"

    @staticmethod
    def script(*steps: Mapping[str, Any]) -> str:
        """A prompt that makes the scripted agent take these steps."""
        return f"Work.\n\n```scripted\n{json.dumps([list(steps)])}\n```\n"

    async def run_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        self.calls.append((name, dict(arguments)))
        return ToolResult.of({"ok": True, "echo": dict(arguments)})

    def backend(self, agent: str, **settings: Any) -> CodexBackend:
        return CodexBackend(
            settings=CodexSettings(**{"command": agent, "read_timeout_ms": 20_000, **settings}),
            around=Surroundings(
                host=self.host,
                environ=self.environ,
                secret_names=frozenset(),
                homes=self.workspace.parent / "homes",
                grace_ms=self.grace_ms,
            ),
        )

    def request(self, **changes: Any) -> SessionRequest:
        values: dict[str, Any] = {
            "run_id": self.run_id,
            "cwd": self.workspace,
            "envelope": self.envelope,
            "tools": self.tools,
            "run_tool": self.run_tool,
            "stderr_path": self.stderr,
            "secret_names": self.secret_names,
            "on_spawned": self.spawned.append,
        }
        return SessionRequest(**{**values, **changes})

    @asynccontextmanager
    async def session(self, agent: str, **settings: Any) -> AsyncIterator[CodexSession]:
        async with self.backend(agent, **settings).open(self.request()) as session:
            yield session

    async def turn(self, session: CodexSession, prompt: str) -> list[AgentEvent]:
        return [event async for event in session.run_turn(prompt, title="MT-1: try")]

    def living(self) -> tuple[Identity, ...]:
        """Whatever still carries the run id."""
        return self.host.find_marked([self.request().run_id])


def git(folder: Path, *arguments: str) -> str:
    argv = ["git", *arguments]
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def make_repository(folder: Path) -> None:
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "config", "user.name", "Test")
    git(folder, "config", "user.email", "test@example.invalid")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "start")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A bench whose agents live in an empty home, so that no profile of this machine plays a part."""
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    make_repository(workspace)
    home.mkdir()
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    return Bench(workspace, tmp_path / "stderr.log", {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8"})


@pytest.fixture(scope="session")
def codex() -> Path:
    """The real Codex, or a skip that says why."""
    return require_codex()


@dataclass
class RealBench(Bench):
    """A bench with the real agent, its private home and the model server it talks to."""

    server: ModelServer = field(kw_only=True)
    home: CodexHome = field(kw_only=True)
    binary: Path = field(kw_only=True)

    @property
    def command(self) -> str:
        return f"{self.binary} app-server"


@pytest.fixture
def real(codex: Path) -> Iterator[Callable[..., RealBench]]:
    """Make a real bench for scenarios; workspace, home and temp directory are below /var/tmp."""
    with ExitStack() as stack:

        def make(scenarios: Mapping[str, Scenario], **server: Any) -> RealBench:
            model = stack.enter_context(ModelServer(scenarios, **server))
            home = stack.enter_context(codex_home(model.base_url))
            top = home.path.parent
            make_repository(top / "root" / "MT-1")
            return RealBench(
                top / "root" / "MT-1",
                top / "stderr.log",
                dict(home.env),
                grace_ms=2_000,
                server=model,
                home=home,
                binary=codex,
            )

        yield make
