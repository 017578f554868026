"""A project whose daemon and agents run as an ordinary user, also where the tests run as root."""

import os
import shlex
import subprocess
import sys

import pytest

from harness.project import Project, scripted
from harness.shell import word

__all__ = ["NOBODY", "as_ordinary_user", "ordinary_python", "search_path"]


NOBODY = 65_534


def as_ordinary_user(project: Project) -> str:
    """Give the project to an ordinary user; call it when its files are written. The command of its agent.

    Skips the test where root has no Python that somebody else may run.
    """
    if os.geteuid() != 0:
        return scripted()
    python = ordinary_python()
    project.user, project.python = NOBODY, python
    project.environment["PYTHONPATH"] = search_path()
    subprocess.run(["chown", "-R", str(NOBODY), str(project.root)], check=True)
    agent = shlex.join([python, "-m", "symphony.testing.scripted_agent"])
    return f"PYTHONPATH={word(search_path())} {agent}"


def ordinary_python() -> str:
    """A Python with our packages that an ordinary user may run too; skips the test where there is none."""
    usable = [python for python in _pythons() if _runs(python)]
    if not usable:
        pytest.skip("no Python that an ordinary user may run")
    return usable[0]


def _pythons() -> list[str]:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return [sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"]


def search_path() -> str:
    return os.pathsep.join(part for part in sys.path if part.startswith("/") and os.access(part, os.X_OK))


def _runs(python: str) -> bool:
    try:
        done = subprocess.run(
            [python, "-c", "import symphony.cli.commands.run, msgspec"],
            env={"PYTHONPATH": search_path()},
            user=NOBODY,
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0
