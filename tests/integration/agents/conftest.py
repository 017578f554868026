import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.real import require_codex
from harness.sessions import COMMENT, SOURCE, SessionBench, make_repository
from harness.shell import word
from kit.codex_home import CodexHome, codex_home
from kit.model_server import ModelServer, Scenario
from symphony.agents.codex.backend import CodexBackend
from symphony.agents.codex.session import CodexSession
from symphony.config import CodexSettings
from symphony.domain import ToolSpec
from symphony.testing.scripted_agent import command

GRACE_MS = 300
TRACKER = COMMENT


@dataclass
class Bench(SessionBench):
    """Opens sessions of the codex backend, for the scripted agent and for the real one."""

    tools: tuple[ToolSpec, ...] = (TRACKER,)
    grace_ms: int = GRACE_MS

    @staticmethod
    def scripted(*switches: str) -> str:
        """The scripted agent as a shell command; an assignment stands before it, as an operator may write."""
        return f"PYTHONPATH={word(SOURCE)} {command(*switches)}"

    def backend(self, agent: str, **settings: Any) -> CodexBackend:
        return CodexBackend(
            settings=CodexSettings(**{"command": agent, "read_timeout_ms": 20_000, **settings}),
            context=self.context(),
        )

    @asynccontextmanager
    async def session(self, agent: str, **settings: Any) -> AsyncIterator[CodexSession]:
        async with self.backend(agent, **settings).open(self.request()) as session:
            yield session


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A bench whose agents live in an empty home, so that no profile of this machine plays a part."""
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    make_repository(workspace)
    home.mkdir()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
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
            top, environ = home.path.parent, dict(home.env)
            return RealBench.at(top, environ, grace_ms=10_000, server=model, home=home, binary=codex)

        yield make
