"""An approved commit comes into the base branch of the operator's repository, or nothing changes."""

import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from harness.project import DEADLINE_S
from symphony.domain import Issue
from symphony.workspaces import MergeRefusal, MergeRefusedError, Workspace, WorkspaceManager

pytestmark = pytest.mark.asyncio

Make = Callable[..., WorkspaceManager]
Git = Callable[..., str]
MakeIssue = Callable[[str], Issue]
Deliver = Callable[..., Awaitable[str]]
BRANCH = "symphony/MT-1"


@pytest.fixture
def manager(make_manager: Make, repo: Path) -> WorkspaceManager:
    return make_manager(repo=str(repo))


@pytest.fixture
def deliver(manager: WorkspaceManager, issue: MakeIssue, git: Git) -> Deliver:
    """Deliver a commit with these files; returns it."""
    made: list[Workspace] = []

    async def work(**files: str) -> str:
        if not made:
            made.append(await manager.prepare(issue("MT-1"), None))
        for name, text in files.items():
            (made[0].path / name).write_text(text)
        git(made[0].path, "add", "-A")
        git(made[0].path, "commit", "-qm", "work")
        head = (await manager.deliver(made[0])).head
        assert head is not None
        return head

    return work


def on_base(repo: Path, git: Git, **files: str) -> str:
    for name, text in files.items():
        (repo / name).write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "meanwhile")
    return git(repo, "rev-parse", "HEAD")


async def refused(manager: WorkspaceManager, head: str, *, checked: bool = True) -> MergeRefusal:
    """Why nothing is merged; the check before says the same."""
    with pytest.raises(MergeRefusedError) as error:
        await manager.merge(BRANCH, head, "Merge")
    if checked:
        with pytest.raises(MergeRefusedError) as found:
            await manager.check_merge(BRANCH, head)
        assert found.value.code is error.value.code
    return error.value.code


async def test_a_base_that_did_not_move_is_fast_forwarded_with_its_checkout(
    manager: WorkspaceManager, deliver: Deliver, repo: Path, git: Git
) -> None:
    head = await deliver(new="new\n")
    (repo / "untracked").write_text("mine\n")
    assert await manager.check_merge(BRANCH, head) is None

    done = await manager.merge(BRANCH, head, "Merge")
    again = await manager.merge(BRANCH, head, "Merge")

    assert (done.base, done.commit, done.before, again.before) == ("main", head, False, True)
    assert await manager.check_merge(BRANCH, head) == again
    assert git(repo, "rev-parse", "main") == head
    assert (repo / "new").read_text() == "new\n"
    assert git(repo, "status", "--porcelain") == "?? untracked"


async def test_a_base_that_moved_gets_a_merge_commit_by_the_operator(
    manager: WorkspaceManager, deliver: Deliver, repo: Path, git: Git, operator_identity: None
) -> None:
    del operator_identity
    head = await deliver(new="new\n")
    before = on_base(repo, git, other="other\n")

    done = await manager.merge(BRANCH, head, "Merge symphony/MT-1\n\nMT-1: A title\n")

    assert git(repo, "log", "-1", "--format=%P", "main") == f"{before} {head}"
    assert git(repo, "log", "-1", "--format=%B", "main") == "Merge symphony/MT-1\n\nMT-1: A title"
    assert git(repo, "log", "-1", "--format=%ae", "main") == "zoe@example.org"
    assert git(repo, "rev-parse", "HEAD") == done.commit
    assert [(repo / name).read_text() for name in ("new", "other")] == ["new\n", "other\n"]
    assert git(repo, "status", "--porcelain") == ""


async def test_a_stop_waits_until_a_checkout_has_the_whole_change(
    manager: WorkspaceManager, deliver: Deliver, repo: Path, git: Git, tmp_path: Path
) -> None:
    head = await deliver(new="new\n", other="other\n")
    begun = tmp_path / "begun"
    git(repo, "config", "filter.slow.smudge", f"touch {shlex.quote(str(begun))}; sleep 0.3; cat")
    (repo / ".git" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "info" / "attributes").write_text("* filter=slow\n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(manager.merge, BRANCH, head, "Merge")
        with anyio.fail_after(DEADLINE_S):
            while not begun.exists():  # noqa: ASYNC110 - git creates it
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()

    assert git(repo, "rev-parse", "HEAD") == head
    assert git(repo, "status", "--porcelain") == ""
    assert [(repo / name).read_text() for name in ("new", "other")] == ["new\n", "other\n"]


async def test_a_base_that_is_not_checked_out_moves_alone(
    deliver: Deliver, make_manager: Make, repo: Path, git: Git
) -> None:
    head = await deliver(new="new\n")
    git(repo, "checkout", "-qb", "mine")
    (repo / "README.md").write_text("not committed\n")

    done = await make_manager(repo=str(repo), base_branch="main").merge(BRANCH, head, "Merge")

    assert git(repo, "rev-parse", "main") == done.commit == head
    assert not (repo / "new").exists()
    assert git(repo, "status", "--porcelain") == "M README.md"


async def test_hooks_of_the_repository_do_not_run(
    manager: WorkspaceManager, deliver: Deliver, repo: Path, git: Git, tmp_path: Path
) -> None:
    head = await deliver(new="new\n")
    on_base(repo, git, other="other\n")
    for name in ("post-merge", "pre-merge-commit", "commit-msg", "reference-transaction", "post-checkout"):
        hook = repo / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
        hook.chmod(0o755)
    await manager.merge(BRANCH, head, "Merge")
    assert not (tmp_path / "ran").exists()


async def test_nothing_is_merged_into_a_dirty_checkout(
    manager: WorkspaceManager, deliver: Deliver, repo: Path, git: Git
) -> None:
    head, before = await deliver(new="new\n"), git(repo, "rev-parse", "main")
    (repo / "README.md").write_text("in the middle of something\n")
    assert await refused(manager, head) is MergeRefusal.DIRTY
    git(repo, "add", "-A")
    assert await refused(manager, head) is MergeRefusal.DIRTY
    assert git(repo, "rev-parse", "main") == before
    assert (repo / "README.md").read_text() == "in the middle of something\n"


async def test_a_file_that_git_does_not_know_is_not_overwritten(
    manager: WorkspaceManager, deliver: Deliver, repo: Path, git: Git
) -> None:
    head, before = await deliver(new="new\n"), git(repo, "rev-parse", "main")
    (repo / "new").write_text("precious\n")
    assert await refused(manager, head, checked=False) is MergeRefusal.IN_THE_WAY
    assert (git(repo, "rev-parse", "main"), (repo / "new").read_text()) == (before, "precious\n")


async def test_a_conflict_changes_nothing(
    manager: WorkspaceManager, deliver: Deliver, repo: Path, git: Git
) -> None:
    head = await deliver(**{"README.md": "theirs\n"})
    before = on_base(repo, git, **{"README.md": "ours\n"})
    assert await refused(manager, head) is MergeRefusal.CONFLICT
    assert git(repo, "rev-parse", "main") == before
    assert git(repo, "status", "--porcelain") == ""
    with pytest.raises(MergeRefusedError, match=r"README\.md"):
        await manager.check_merge(BRANCH, head)


async def test_only_the_commit_that_was_named_is_merged(
    manager: WorkspaceManager, deliver: Deliver, repo: Path, git: Git
) -> None:
    seen, before = await deliver(new="new\n"), git(repo, "rev-parse", "main")
    await deliver(later="later\n")
    assert await refused(manager, seen) is MergeRefusal.HEAD_MOVED
    assert git(repo, "rev-parse", "main") == before


async def test_nothing_is_merged_while_a_person_has_committed_to_the_branch(
    manager: WorkspaceManager, deliver: Deliver, repo: Path, git: Git
) -> None:
    head, before = await deliver(new="new\n"), git(repo, "rev-parse", "main")
    git(repo, "checkout", "-q", BRANCH)
    on_base(repo, git, own="of a person\n")
    git(repo, "checkout", "-q", "main")
    assert await refused(manager, head) is MergeRefusal.BRANCH_MOVED
    assert git(repo, "rev-parse", "main") == before
    git(repo, "branch", "--force", BRANCH, before)  # it only lags behind
    assert (await manager.merge(BRANCH, head, "Merge")).commit == head


async def test_without_a_branch_or_a_local_repository_there_is_nothing_to_merge_into(
    manager: WorkspaceManager, make_manager: Make, deliver: Deliver, repo: Path, git: Git
) -> None:
    head = await deliver(new="new\n")
    git(repo, "checkout", "-q", "--detach")
    assert await refused(manager, head) is MergeRefusal.NO_BASE
    assert await refused(make_manager(repo=f"file://{repo}"), head) is MergeRefusal.NO_REPOSITORY
