"""The real programs that some tests drive: found, or a skip that says why, or a failure where required."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from harness.acp_agents import Driven
from harness.boot import missing
from kit.claude_home import find_claude
from kit.codex_home import find_codex

__all__ = [
    "require_acp",
    "require_aider",
    "require_backlog",
    "require_boot",
    "require_bubblewrap",
    "require_claude",
    "require_codex",
    "require_emulate",
    "require_ray",
    "require_redmine",
    "require_systemd_analyze",
]


def require_codex(environment: Mapping[str, str] = os.environ) -> Path:
    """The real Codex; an absent one skips the test, or fails it where `SYMPHONY_REQUIRE_REAL` is set."""
    found = find_codex(environment)
    if found is None:
        _absent("no Codex: put `codex` on PATH or name it in SYMPHONY_TEST_CODEX", environment)
    return found


def require_claude(environment: Mapping[str, str] = os.environ) -> Path:
    """The real Claude Code; else as above."""
    found = find_claude(environment)
    if found is None:
        _absent("no Claude Code: put `claude` on PATH or name it in SYMPHONY_TEST_CLAUDE", environment)
    return found


def require_aider(environment: Mapping[str, str] = os.environ) -> Path:
    """The real aider; an absent one skips the test, and is never required."""
    named = environment.get("SYMPHONY_TEST_AIDER")
    found = named or shutil.which("aider", path=environment.get("PATH", ""))
    if not found or not Path(found).exists():
        pytest.skip("no aider: put `aider` on PATH or name it in SYMPHONY_TEST_AIDER")
    return Path(found)


def require_acp(driven: Driven, environment: Mapping[str, str] = os.environ) -> str:
    """The shell command of a real agent that speaks the Agent Client Protocol; as aider, never required."""
    if not all(environment.get(name) for name in (driven.variable, *driven.needs)):
        pytest.skip(f"no {driven.profile}: `make agents` installs it, and names it in {driven.variable}")
    return driven.start(environment[driven.variable])


def require_redmine(environment: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """Address of a real Redmine that tests may write to, and the key of its administrator; else as above."""
    address = environment.get("SYMPHONY_TEST_REDMINE")
    key = environment.get("SYMPHONY_TEST_REDMINE_KEY")
    if not address or not key:
        _absent(
            "no Redmine: name one in SYMPHONY_TEST_REDMINE, "
            "and its administrator's key in SYMPHONY_TEST_REDMINE_KEY",
            environment,
        )
    return address, key


def require_backlog(environment: Mapping[str, str] = os.environ) -> Path:
    """The real Backlog.md; else as above."""
    named = environment.get("SYMPHONY_TEST_BACKLOG")
    found = named or shutil.which("backlog", path=environment.get("PATH", ""))
    if not found or not Path(found).exists():
        _absent("no Backlog.md: put `backlog` on PATH or name it in SYMPHONY_TEST_BACKLOG", environment)
    return Path(found)


def require_emulate(environment: Mapping[str, str] = os.environ) -> Path:
    """The emulator of GitHub; else as above. Never from `PATH`: other programs have its name."""
    named = environment.get("SYMPHONY_TEST_EMULATE")
    if not named or not Path(named).exists() or not shutil.which("node", path=environment.get("PATH")):
        _absent("no emulator of GitHub: name npm's `emulate` 0.11.2 in SYMPHONY_TEST_EMULATE", environment)
    return Path(named)


def require_ray(environment: Mapping[str, str] = os.environ) -> Path:
    """A Python that has Ray, of the version that `.ci/run` installs; else as above."""
    named = environment.get("SYMPHONY_TEST_RAY")
    if not named or not Path(named).exists():
        _absent("no Ray: name a Python that has it in SYMPHONY_TEST_RAY", environment)
    return Path(named)


def require_bubblewrap(environment: Mapping[str, str] = os.environ) -> str:
    """The real bubblewrap, on a machine that lets it make its namespaces; else as above."""
    found = shutil.which("bwrap", path=environment.get("PATH", os.defpath))
    if found is None:
        _absent("no bubblewrap: install it (apt install bubblewrap)", environment)
    tried = [found, "--ro-bind", "/", "/", "--proc", "/proc", "--unshare-user", "--unshare-pid", "true"]
    if subprocess.run(tried, capture_output=True, check=False).returncode != 0:
        _absent("no permission for bubblewrap to make user namespaces on this machine", environment)
    return found


def require_boot(environment: Mapping[str, str] = os.environ) -> None:
    """A Debian that can be booted in a container; else as above."""
    reason = missing(environment)
    if reason is not None:
        _absent(reason, environment)


def require_systemd_analyze(environment: Mapping[str, str] = os.environ) -> None:
    """The judge of units; else as above."""
    if shutil.which("systemd-analyze", path=environment.get("PATH")) is None:
        _absent("no systemd-analyze to judge a unit with", environment)


def _absent(reason: str, environment: Mapping[str, str]) -> NoReturn:
    if environment.get("SYMPHONY_REQUIRE_REAL"):
        pytest.fail(f"SYMPHONY_REQUIRE_REAL is set, but there is {reason}")
    pytest.skip(reason)
