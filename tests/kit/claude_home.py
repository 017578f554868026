"""A real Claude Code for tests: find its binary, and give it a home that points to the model server."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kit.binaries import NpmProgram

__all__ = ["KEY", "ClaudeHome", "claude_home", "find_claude"]

KEY = "not-a-secret"
_PROGRAM = NpmProgram(
    name="claude",
    variable="SYMPHONY_TEST_CLAUDE",
    package="@anthropic-ai/claude-code",
    native="claude-code-*/claude",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaudeHome:
    """A home that exists; `env` is what the agent needs to use it, `PATH` included and nothing else."""

    path: Path
    env: Mapping[str, str]


@contextmanager
def claude_home(base_url: str) -> Iterator[ClaudeHome]:
    """A fresh home, removed at the end; `base_url` is that of the model server."""
    home = Path(tempfile.mkdtemp(prefix="symphony-claude-", dir="/var/tmp"))
    try:
        (home / ".claude").mkdir()
        env = {
            "HOME": str(home),
            "PATH": os.environ.get("PATH", os.defpath),
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"),
        }
        yield ClaudeHome(path=home, env=env)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def find_claude(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The binary: `SYMPHONY_TEST_CLAUDE`, else `claude` on `PATH` (the native one first), else null."""
    return _PROGRAM.find(environ)
