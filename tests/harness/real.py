"""The real programs that some tests drive: found, or a skip that says why, or a failure where required."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from conformance.skips import REQUIRE_REAL
from harness.acp_agents import Driven
from harness.boot import missing
from harness.container import BASE_VARIABLE
from kit.claude_home import find_claude
from kit.codex_home import find_codex

__all__ = [
    "absent",
    "find_program",
    "require_acp",
    "require_aider",
    "require_backlog",
    "require_boot",
    "require_bubblewrap",
    "require_claude",
    "require_codex",
    "require_container",
    "require_emulate",
    "require_home",
    "require_named",
    "require_own_disk",
    "require_program",
    "require_ray",
    "require_redmine",
]


def find_program(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """A program on PATH, or in the `sbin` beside a `bin` of it, where Debian keeps servers."""
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    beside = [f"{folder.removesuffix('bin')}sbin" for folder in folders if folder.endswith("/bin")]
    return shutil.which(name, path=os.pathsep.join([*folders, *beside]))


def require_program(name: str, package: str, environment: Mapping[str, str] = os.environ) -> str:
    """A program that `package` brings; an absent one skips the test, or fails it as `absent` does."""
    return find_program(name, environment) or absent(name, package, environment)


def require_named(name: str, package: str, variable: str, environment: Mapping[str, str] = os.environ) -> str:
    """A program that a variable names or that is on PATH; else as above."""
    found = environment.get(variable) or find_program(name, environment)
    if not found or not Path(found).exists():
        absent(name, f"{package}, or {variable}", environment)
    return found


def absent(what: str, package: str, environment: Mapping[str, str] = os.environ) -> NoReturn:
    """Skip the test for want of `what`, or fail it where `SYMPHONY_REQUIRE_REAL` is set.

    `package` says what brings it: "Debian: groff-base", "npm: backlog.md". More may follow after a comma.
    """
    _without(f"no {what} ({package})", environment)


def require_codex(environment: Mapping[str, str] = os.environ) -> Path:
    """The real Codex; else as above."""
    found = find_codex(environment)
    if found is None:
        absent("Codex", "npm: @openai/codex, or SYMPHONY_TEST_CODEX", environment)
    return found


def require_claude(environment: Mapping[str, str] = os.environ) -> Path:
    """The real Claude Code; else as above."""
    found = find_claude(environment)
    if found is None:
        absent("Claude Code", "npm: @anthropic-ai/claude-code, or SYMPHONY_TEST_CLAUDE", environment)
    return found


def require_aider(environment: Mapping[str, str] = os.environ) -> Path:
    """The real aider; an absent one skips the test, and is never required."""
    named = environment.get("SYMPHONY_TEST_AIDER")
    found = named or find_program("aider", environment)
    if not found or not Path(found).exists():
        pytest.skip("no aider: `make agents` installs it, and names it in SYMPHONY_TEST_AIDER")
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
        package = "Debian: redmine, served by .ci/redmine"
        absent("Redmine", f"{package}, in SYMPHONY_TEST_REDMINE and SYMPHONY_TEST_REDMINE_KEY", environment)
    return address, key


def require_backlog(environment: Mapping[str, str] = os.environ) -> Path:
    """The real Backlog.md; else as above."""
    return Path(require_named("backlog", "npm: backlog.md", "SYMPHONY_TEST_BACKLOG", environment))


def require_emulate(environment: Mapping[str, str] = os.environ) -> Path:
    """The emulator of GitHub; else as above. Never from `PATH`: other programs have its name."""
    named = environment.get("SYMPHONY_TEST_EMULATE")
    if not named or not Path(named).exists():
        absent("emulator of GitHub", "npm: emulate 0.11.2, in SYMPHONY_TEST_EMULATE", environment)
    require_program("node", "Debian: nodejs", environment)
    return Path(named)


def require_ray(environment: Mapping[str, str] = os.environ) -> Path:
    """A Python that has Ray, of the version that `.ci/run` installs; else as above."""
    named = environment.get("SYMPHONY_TEST_RAY")
    if not named or not Path(named).exists():
        absent("Ray", "PyPI: ray, its Python in SYMPHONY_TEST_RAY", environment)
    return Path(named)


def require_bubblewrap(environment: Mapping[str, str] = os.environ) -> str:
    """The real bubblewrap, on a machine that lets it make its namespaces; else as above."""
    found = require_program("bwrap", "Debian: bubblewrap", environment)
    tried = [found, "--ro-bind", "/", "/", "--proc", "/proc", "--unshare-user", "--unshare-pid", "true"]
    if subprocess.run(tried, capture_output=True, check=False).returncode != 0:
        _without("no permission for bubblewrap to make user namespaces on this machine", environment)
    return found


def require_home() -> Path:
    """The user's home, which a sandbox does not hide anyway, as it does temp directories; else a skip."""
    try:
        home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:  # a user without an entry
        home = None
    if home is None or not os.access(home, os.W_OK | os.X_OK):
        _without("no home in which this user may write", os.environ)
    return home


def require_boot(environment: Mapping[str, str] = os.environ) -> None:
    """A Debian that can be booted in a container; else as above."""
    tree = environment.get("SYMPHONY_BOOT_TREE")
    if not tree or not (Path(tree) / ".made-by").exists():
        absent("tree to boot", "Debian: mmdebstrap, by .ci/boot-tree, in SYMPHONY_BOOT_TREE", environment)
    require_program("systemd-nspawn", "Debian: systemd-container", environment)
    reason = missing(Path(tree))
    if reason is not None:
        _without(reason, environment)


def require_container(environment: Mapping[str, str] = os.environ) -> None:
    """What builds and runs a container image; else as above."""
    require_program("buildah", "Debian: buildah", environment)
    require_program("systemd-nspawn", "Debian: systemd-container", environment)
    require_program("nsenter", "Debian: util-linux", environment)
    if not environment.get(BASE_VARIABLE):
        absent("base of an image", f"Debian: mmdebstrap, by .ci/base-tree, in {BASE_VARIABLE}", environment)
    if os.geteuid() != 0:
        _without("only root can build and run an image here", environment)


def require_own_disk(environment: Mapping[str, str] = os.environ) -> None:
    """A mount namespace, in which a directory can be a disk that no other process sees.

    Where the machine permits none the test is skipped.
    """
    mount = require_program("mount", "Debian: mount", environment)
    unshare = require_program("unshare", "Debian: util-linux", environment)
    probe = [unshare, "--map-root-user", "--mount", mount, "-t", "tmpfs", "none", "/mnt"]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("no mount namespace to make a small disk in")


def _without(reason: str, environment: Mapping[str, str]) -> NoReturn:
    if environment.get(REQUIRE_REAL):
        pytest.fail(f"{REQUIRE_REAL} is set, but there is {reason}")
    pytest.skip(reason)
