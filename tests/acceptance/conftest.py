"""Every acceptance test gets a repository of its own and the installed command line."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.project import Project


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory outside the temp directory, which agent sandboxes leave writable; its path needs quotes."""
    path = Path(tempfile.mkdtemp(prefix="symphony's acceptance ", dir="/var/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def project(place: Path) -> Project:
    """A repository with one commit, no workflow yet."""
    return Project(root=place).create()
