"""A fetch that makes no headway is ended, whatever the transport (`workspace.fetch_stall_timeout_ms`)."""

import random
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.git_server import git_server
from harness.shell import word
from symphony.domain import Category, Issue
from symphony.workspaces import GitError, RemoteSource, WorkspaceError, WorkspaceManager

pytestmark = pytest.mark.asyncio

Make = Callable[..., WorkspaceManager]
Git = Callable[..., str]
MakeIssue = Callable[[str], Issue]


async def stalled(manager: WorkspaceManager, issue: Issue) -> None:
    """The attempt fails because of the repository, and may be tried again."""
    with pytest.raises(WorkspaceError) as caught:
        await manager.prepare(issue, None)
    failure = caught.value.failure
    assert (failure.category, failure.retryable) == (Category.WORKSPACE_REPOSITORY, True)
    assert "no headway" in failure.message
    assert "fetch_stall_timeout_ms" in (failure.hint or "")


def ssh(folder: Path, fetch: str) -> str:
    """In place of ssh: the first command is run as it is, the next ones with `fetch` behind."""
    client = folder / "ssh"
    client.write_text(
        f"#!/bin/sh\nfor last; do :; done\nif mkdir {word(folder / 'asked')} 2>/dev/null\n"
        f'then eval "$last"\nelse eval "$last" | {fetch}\nfi\n'
    )
    client.chmod(0o755)
    return word(client)


async def test_a_server_that_never_answers(make_manager: Make, issue: MakeIssue) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        repo = f"git://127.0.0.1:{silent.getsockname()[1]}/x.git"
        await stalled(make_manager(repo=repo, fetch_stall_timeout_ms=700), issue("MT-1"))


async def test_an_http_server_that_stops_in_the_middle_and_goes_on_later(
    make_manager: Make, repo: Path, issue: MakeIssue
) -> None:
    with git_server(repo.parent, None) as server:
        manager = make_manager(repo=f"{server.address}/{repo.name}/.git", fetch_stall_timeout_ms=5_000)
        server.stalls = "git-upload-pack"
        await stalled(manager, issue("MT-1"))
        server.stalls = None
        assert (await manager.prepare(issue("MT-1"), None)).path.is_dir()


async def test_a_server_over_ssh_that_tells_its_refs_and_sends_no_objects(
    make_manager: Make, repo: Path, tmp_path: Path, issue: MakeIssue
) -> None:
    environment = {"GIT_SSH_COMMAND": ssh(tmp_path, "sleep 600")}
    manager = make_manager(
        repo=f"ssh://h.example{repo}", environment=environment, fetch_stall_timeout_ms=5_000
    )
    await stalled(manager, issue("MT-1"))


@pytest.mark.slow
async def test_a_slow_fetch_is_waited_for(
    make_manager: Make, repo: Path, git: Git, tmp_path: Path, issue: MakeIssue
) -> None:
    (repo / "large.bin").write_bytes(random.Random(1).randbytes(800_000))  # noqa: S311
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "Large")
    pieces = tmp_path / "pieces.py"
    pieces.write_text(
        "import os, time\nwhile data := os.read(0, 65_536):\n    os.write(1, data)\n    time.sleep(0.5)\n"
    )
    environment = {"GIT_SSH_COMMAND": ssh(tmp_path, f"{word(sys.executable)} {word(pieces)}")}
    manager = make_manager(
        repo=f"ssh://h.example{repo}", environment=environment, fetch_stall_timeout_ms=5_000
    )
    made = await manager.prepare(issue("MT-1"), None)
    assert (made.path / "large.bin").stat().st_size == 800_000


async def test_a_host_that_does_not_hand_the_branch_over(
    make_manager: Make, repo: Path, tmp_path: Path
) -> None:
    """The branch of a run on another machine: a host that hangs costs the stall, and not ten minutes."""
    found = await make_manager(repo=str(repo), fetch_stall_timeout_ms=2_000).courier("MT-1")
    assert found is not None
    courier, branch = found
    begun = await courier.begin(branch)
    client = tmp_path / "client"
    client.write_text("#!/bin/sh\nexec sleep 600\n")
    client.chmod(0o755)
    source = RemoteSource(address="here:/repository.git", ssh_command=word(client))
    with pytest.raises(GitError, match="no headway"):
        await courier.fetch(source, branch, begun.base)
    with pytest.raises(WorkspaceError, match="no headway"):
        await courier.send(source, branch, begun, there={})
