from pathlib import Path

import pytest

from harness.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A repository with one commit; the agent has no sandbox, so the temp directory will do."""
    return Project(root=tmp_path).create()
