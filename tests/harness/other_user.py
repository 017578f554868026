"""A project whose daemon and agents run as an ordinary user, also where the tests run as root."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.project import Project, scripted
from harness.shell import word

__all__ = ["NOBODY", "as_ordinary_user"]


NOBODY = 65_534


def as_ordinary_user(project: Project) -> str:
    """Give the project to an ordinary user; call it when its files are written. The command of its agent.

    Skips the test where root has no Python that somebody else may run.
    """
    if os.geteuid() != 0:
        return scripted()
    usable = [python for python in _pythons() if _runs(python)]
    if not usable:
        pytest.skip("no Python that an ordinary user may run")
    project.user, project.python = NOBODY, usable[0]
    project.environment["PYTHONPATH"] = _search_path()
    subprocess.run(["chown", "-R", str(NOBODY), str(project.root)], check=True)
    agent = shlex.join([usable[0], "-m", "symphony.testing.scripted_agent"])
    return f"PYTHONPATH={word(_search_path())} {agent}"


def _pythons() -> list[str]:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return [sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"]


def _search_path() -> str:
    return os.pathsep.join(part for part in sys.path if part.startswith("/") and Path(part).is_dir())


def _runs(python: str) -> bool:
    try:
        done = subprocess.run(
            [python, "-c", "import symphony.cli.commands.run, msgspec"],
            env={"PYTHONPATH": _search_path()},
            user=NOBODY,
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0
