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
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshServer]:
    """A host where no second worker waits for a run: each takes a second of a processor."""
    monkeypatch.setattr("symphony.daemon.hosts.remote_worker.RemoteHosts.keep_spare", lambda *_: None)
    with ssh_server(tmp_path / "build-1") as made:
        yield made
