"""When a workspace is kept: work in it that exists nowhere else, or doubt about it."""

import os
from pathlib import Path

import pytest
from anyio import to_thread

from symphony.config import WorkspaceSettings
from symphony.processes.local import LocalHost
from symphony.workspaces import Layout, StoredRecord, open_root, write_record
from symphony.workspaces.work import find_work
from unit.workspaces.conftest import RunGit

pytestmark = pytest.mark.asyncio


class Kept:
    """A workspace that a hook made, and why it would be kept."""

    def __init__(self, layout: Layout, environment: dict[str, str]) -> None:
        self.layout = layout
        self.path = layout.root / "SYM-1"
        self._environment = environment

    async def record(self, *, ready: bool, owner: int | None = None) -> None:
        record = StoredRecord(issue_id="1", identifier="SYM-1", key="SYM-1", ready=ready, owner=owner)
        await to_thread.run_sync(write_record, self.layout, record)

    async def why(self, *, keep_dirty: bool = True) -> str | None:
        settings = WorkspaceSettings.model_validate({"root": self.layout.root, "keep_dirty": keep_dirty})
        work = await find_work(
            self.path,
            host=LocalHost(),
            settings=settings,
            environment=self._environment,
            secret_names=frozenset(),
        )
        return None if work is None else work.reason


@pytest.fixture
def kept(tmp_path: Path, repo: Path, environment: dict[str, str], git: RunGit) -> Kept:
    layout = open_root(tmp_path / "root")
    git(layout.root, "clone", "-q", str(repo), "SYM-1")
    return Kept(layout, environment)


async def test_what_a_remote_has_is_no_reason(kept: Kept) -> None:
    assert await kept.why() is None


async def test_commits_that_exist_nowhere_else_are_a_reason_whatever_is_set(kept: Kept, git: RunGit) -> None:
    git(kept.path, "commit", "-q", "--allow-empty", "-m", "work")
    assert "commits on main" in str(await kept.why())
    assert "commits on main" in str(await kept.why(keep_dirty=False))
    git(kept.path, "update-ref", "refs/remotes/origin/other", "HEAD")
    assert await kept.why() is None


async def test_commits_of_any_branch_and_of_a_detached_head_count(kept: Kept, git: RunGit) -> None:
    git(kept.path, "checkout", "-q", "-b", "side")
    git(kept.path, "commit", "-q", "--allow-empty", "-m", "work")
    git(kept.path, "checkout", "-q", "main")
    assert "commits on side" in str(await kept.why())
    git(kept.path, "checkout", "-q", "--detach", "side")
    git(kept.path, "branch", "-q", "-D", "side")
    assert "commits on HEAD" in str(await kept.why())


@pytest.mark.parametrize("change", ["changed", "new"])
async def test_uncommitted_work_is_a_reason_unless_that_is_turned_off(kept: Kept, change: str) -> None:
    (kept.path / ("README.md" if change == "changed" else "new.txt")).write_text("mine")
    assert str(await kept.why()).startswith("1 uncommitted")
    assert await kept.why(keep_dirty=False) is None


async def test_a_directory_that_never_was_a_repository_is_no_reason(kept: Kept) -> None:
    (kept.path / ".git").rename(kept.layout.root.parent / "git")
    assert await kept.why() is None
    (kept.path / ".git").symlink_to(kept.layout.root.parent / "git")
    assert "work might be lost" in str(await kept.why()), "it was replaced"


async def test_a_workspace_that_is_incomplete_or_missing_is_no_reason(kept: Kept, git: RunGit) -> None:
    git(kept.path, "commit", "-q", "--allow-empty", "-m", "work")
    await kept.record(ready=False)
    assert await kept.why() is None
    await kept.record(ready=True)
    kept.path.rename(kept.layout.root / "SYM-2")
    assert await kept.why() is None


async def test_the_directory_of_another_user_is_left_alone(kept: Kept) -> None:
    await kept.record(ready=True, owner=os.geteuid() + 1)
    assert "another user" in str(await kept.why())
