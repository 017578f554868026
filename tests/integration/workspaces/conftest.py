import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from symphony.config import HooksSettings, WorkspaceSettings
from symphony.domain import FaultHook, Issue, no_fault
from symphony.processes.local import LocalHost
from symphony.workspaces import NETWORK_TIMEOUT_MS, WorkspaceManager

_WHO = ["-c", "user.name=Ann Operator", "-c", "user.email=ann@example.org"]


GitCommand = Callable[..., str]
MakeManager = Callable[..., WorkspaceManager]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What the daemon was started with: a home of its own, so that nobody's git settings leak in."""
    home = tmp_path / "home"
    home.mkdir()
    return {"PATH": os.environ["PATH"], "HOME": str(home)}


@pytest.fixture
def git(environment: dict[str, str]) -> GitCommand:
    """Run git as a person or an agent would; returns its output without outer blanks."""

    def run(where: Path, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *_WHO, *arguments],
            cwd=where,
            env={**environment, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def repo(tmp_path: Path, git: GitCommand) -> Path:
    """A repository with its main branch checked out, as an operator has it."""
    path = tmp_path / "project"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    (path / "README.md").write_text("hello\n")
    (path / "src").mkdir()
    (path / "src" / "app.py").write_text("print('hello')\n")
    (path / ".gitignore").write_text("ignored/\n")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "first")
    return path


@pytest.fixture
def operator_identity(environment: dict[str, str]) -> None:
    """The operator has told git who they are."""
    Path(environment["HOME"], ".gitconfig").write_text(
        '[user]\n\tname = "Zoë \\"Z\\" #1"\n\temail = zoe@example.org\n'
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "workspaces"


@pytest.fixture
def made_root(root: Path) -> Path:
    """The root, made by somebody before the daemon."""
    root.mkdir()
    return root


@pytest.fixture
def make_manager(root: Path, environment: dict[str, str]) -> MakeManager:
    base = environment

    def make(
        *,
        hooks: HooksSettings | None = None,
        environment: dict[str, str] | None = None,
        fault: FaultHook = no_fault,
        network_timeout_ms: int = NETWORK_TIMEOUT_MS,
        **settings: object,
    ) -> WorkspaceManager:
        return WorkspaceManager(
            LocalHost(),
            WorkspaceSettings.model_validate({"root": root, **settings}),
            hooks or HooksSettings(),
            {**base, **(environment or {})},
            frozenset({"TRACKER_TOKEN"}),
            fault=fault,
            network_timeout_ms=network_timeout_ms,
        )

    return make


@pytest.fixture
def issue() -> Callable[[str], Issue]:
    def make(identifier: str) -> Issue:
        return Issue(
            id=f"id-of-{identifier}", identifier=identifier, title="A title", state="Todo", dispatchable=True
        )

    return make
