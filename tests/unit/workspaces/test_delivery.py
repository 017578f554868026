import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from harness.workspaces import delivered_branch
from symphony.config import HooksSettings, WorkspaceSettings
from symphony.domain import Category, Issue
from symphony.processes.local import LocalHost
from symphony.workspaces import (
    BranchLocation,
    Delivery,
    Workspace,
    WorkspaceManager,
    locate_branch,
    mirror_path,
)
from symphony.workspaces.delivery import taken_names
from unit.workspaces.conftest import RunGit

BRANCH = "symphony/SYM-1"


def settings(root: Path, repo: str | None, **more: str) -> WorkspaceSettings:
    return WorkspaceSettings.model_validate({"root": root, "repo": repo, **more})


def test_a_local_repository_has_the_branch_and_nothing_is_to_be_fetched(tmp_path: Path) -> None:
    local = settings(tmp_path, "/srv/app")
    assert locate_branch(local, BRANCH, pushed=True) == BranchLocation(repository="/srv/app", fetch=None)
    assert locate_branch(settings(tmp_path, None), BRANCH, pushed=False) is None


def test_what_is_pushed_is_at_the_address_and_else_in_the_mirror(tmp_path: Path) -> None:
    remote = settings(tmp_path / "with blank", "https://ann:secret@host.test/x.git")
    assert locate_branch(remote, BRANCH, pushed=True) == BranchLocation(
        repository="https://host.test/x.git", fetch=f"git fetch origin {BRANCH}"
    )
    found = locate_branch(remote, BRANCH, pushed=False)
    assert found is not None
    assert found.repository == str(mirror_path(remote))
    assert shlex.split(found.fetch or "") == ["git", "fetch", found.repository, f"{BRANCH}:{BRANCH}"]


def test_a_root_that_leads_nowhere_is_no_reason_to_fail(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert mirror_path(settings(loop, "https://host.test/x.git")).is_relative_to(loop)


class Delivering:
    """An operator's repository and the workspace of one issue."""

    def __init__(self, manager: WorkspaceManager, git: RunGit, repo: Path, workspace: Workspace) -> None:
        self.manager, self.git, self.repo, self.workspace = manager, git, repo, workspace

    def commit(self, message: str) -> str:
        self.git(self.workspace.path, "commit", "-q", "--allow-empty", "-m", message)
        return self.git(self.workspace.path, "rev-parse", "HEAD")

    async def deliver(self) -> Delivery:
        return await self.manager.deliver(self.workspace)

    def delivered(self) -> str:
        return self.git(self.repo, "log", "-1", "--format=%s", BRANCH)


MakeWork = Callable[..., Awaitable[Delivering]]


@pytest.fixture
def make_work(tmp_path: Path, repo: Path, git: RunGit, environment: dict[str, str]) -> MakeWork:
    async def make(**more: str) -> Delivering:
        set_so = settings(tmp_path / "root", str(repo), **more)
        manager = WorkspaceManager(LocalHost(), set_so, HooksSettings(), environment, frozenset())
        issue = Issue(id="1", identifier="SYM-1", title="A title", state="Todo", dispatchable=True)
        return Delivering(manager, git, repo, await manager.prepare(issue, None))

    return make


@pytest_asyncio.fixture
async def work(make_work: MakeWork) -> Delivering:
    return await make_work()


@pytest.mark.asyncio
async def test_commits_come_into_the_operators_repository_and_are_counted(work: Delivering) -> None:
    nothing = await work.deliver()
    assert (nothing.work.commits, nothing.failure) == (0, None)
    assert work.git(work.repo, "branch", "--list", BRANCH) == ""
    (work.workspace.path / "README.md").write_text("hello\nthere\n")
    work.git(work.workspace.path, "add", "-A")
    head = work.commit("work")
    done = await work.deliver()
    assert (delivered_branch(done).head, done.work.commits, done.warnings) == (head, 1, ())
    assert [(one.path, one.insertions, one.deletions) for one in done.files] == [("README.md", 1, 0)]
    assert work.delivered() == "work"


@pytest.mark.asyncio
async def test_work_on_another_branch_is_delivered_if_it_goes_on_from_the_issues(work: Delivering) -> None:
    work.commit("first")
    work.git(work.workspace.path, "checkout", "-q", "-b", "side")
    head = work.commit("second")
    done = await work.deliver()
    assert (done.head, len(done.warnings)) == (head, 1)
    assert work.delivered() == "second"


@pytest.mark.asyncio
async def test_work_beside_the_branch_of_the_issue_is_not_delivered(work: Delivering) -> None:
    head = work.commit("first")
    work.git(work.workspace.path, "checkout", "-q", "--orphan", "side")
    work.commit("elsewhere")
    done = await work.deliver()
    assert (done.head, len(done.warnings)) == (head, 1)
    assert work.delivered() == "first"


@pytest.mark.asyncio
async def test_a_rewritten_branch_replaces_what_was_delivered_and_no_commit_of_people(
    work: Delivering,
) -> None:
    work.commit("first")
    await work.deliver()
    work.git(work.workspace.path, "commit", "-q", "--amend", "--allow-empty", "-m", "again")
    assert (await work.deliver()).warnings == ()
    assert work.delivered() == "again"
    work.git(work.repo, "checkout", "-q", BRANCH)
    work.git(work.repo, "commit", "-q", "--allow-empty", "-m", "of a person")
    work.git(work.repo, "checkout", "-q", "main")
    work.commit("more")
    failure = delivered_branch(await work.deliver()).branch_failure
    assert failure is not None
    assert failure.category is Category.BRANCH_NOT_PLACED
    assert work.delivered() == "of a person"


@pytest.mark.asyncio
async def test_only_what_was_delivered_is_pushed_and_only_to_an_origin(
    make_work: MakeWork, tmp_path: Path
) -> None:
    work = await make_work(push="origin")
    missing = await work.manager.push(BRANCH)
    assert missing is not None
    assert not missing.retryable
    work.commit("work")
    assert delivered_branch(await work.deliver()).to_push
    assert await work.manager.push(BRANCH) is not None, "the repository has no origin"
    work.git(tmp_path / "origin", "init", "-q", "--bare")
    work.git(work.repo, "remote", "add", "origin", str(tmp_path / "origin"))
    assert await work.manager.push(BRANCH) is None
    assert work.git(tmp_path / "origin", "log", "-1", "--format=%s", BRANCH) == "work"


def test_branches_that_keep_those_of_issues_out_are_named() -> None:
    listed = "main /repo\nsymphony \nsymphony/SYM-1/old \nsymphony/SYM-2 /elsewhere\nsymphony/SYM-3 \n"
    found = [one.message for one in taken_names(Path("/repo"), listed)]
    assert found == [
        "the branch symphony in /repo keeps every branch symphony/* out",
        "the branch symphony/SYM-1/old in /repo keeps the branch symphony/SYM-1 out",
        "symphony/SYM-2 is checked out in /elsewhere, where new work on its issue cannot be put",
    ]
