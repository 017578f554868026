"""A real git, without settings of the user who runs the tests."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

RunGit = Callable[..., str]
_WHO = ("-c", "user.name=Ann Operator", "-c", "user.email=ann@example.org")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What the daemon was started with."""
    home = tmp_path / "home"
    home.mkdir()
    return {"PATH": os.environ["PATH"], "HOME": str(home)}


@pytest.fixture
def git(environment: dict[str, str]) -> RunGit:
    """Run git as a person or an agent would; its output without outer blanks."""

    def run(where: Path, *arguments: str) -> str:
        where.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ("git", *_WHO, *arguments),
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
def repo(tmp_path: Path, git: RunGit) -> Path:
    """A repository with one commit on its main branch."""
    path = tmp_path / "project"
    git(path, "init", "-q", "-b", "main")
    (path / "README.md").write_text("hello\n")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "first")
    return path
