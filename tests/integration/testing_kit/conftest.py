import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import symphony
from harness.real import require_codex
from kit.app_server_schema import AppServerSchema
from kit.raw_client import RawClient

SOURCE = Path(symphony.__file__).parents[1]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    for argv in (
        ["git", "init", "--quiet", "--initial-branch=main"],
        ["git", "config", "user.name", "Test"],
        ["git", "config", "user.email", "test@example.invalid"],
        ["git", "commit", "--quiet", "--allow-empty", "--message", "start"],
    ):
        subprocess.run(argv, cwd=folder, check=True)
    return folder


@pytest.fixture
def scripted(workspace: Path, tmp_path: Path) -> Iterator[Callable[..., RawClient]]:
    """Start the scripted agent with switches."""
    with ExitStack() as stack:

        def start(*switches: str) -> RawClient:
            argv = [sys.executable, "-P", "-m", "symphony.testing.scripted_agent", *switches]
            env = {**os.environ, "PYTHONPATH": str(SOURCE), "SYMPHONY_RUN_ID": f"run-{os.getpid()}"}
            client = RawClient(argv, cwd=workspace, env=env, stderr=tmp_path / "stderr.log")
            return stack.enter_context(client)

        yield start


@pytest.fixture
def git(workspace: Path) -> Callable[..., str]:
    """Run git in the workspace and return what it wrote."""

    def run(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=workspace, check=True, capture_output=True, text=True
        ).stdout.strip()

    return run


@pytest.fixture(scope="session")
def codex() -> Path:
    """The real Codex, or a skip that says why."""
    return require_codex()


@pytest.fixture(scope="session")
def schema(codex: Path, tmp_path_factory: pytest.TempPathFactory) -> AppServerSchema:
    """The schemas that the real Codex generates."""
    return AppServerSchema.generate(codex, tmp_path_factory.mktemp("schema"))
