from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.project import Project
from harness.ssh import SshServer, ssh_server


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A repository with one commit; the agent has no sandbox, so the temp directory will do."""
    return Project(root=tmp_path).create()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    """A host."""
    with ssh_server(tmp_path / "build-1") as made:
        yield made
