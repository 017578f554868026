"""The end of an attempt in one go tells what its steps would tell one by one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from symphony.domain.issue import Issue
from symphony.workspace.manager import WorkspaceManager
from symphony.workspace.model import Delivery, ProgressMark, Workspace

pytestmark = pytest.mark.asyncio

Make = Callable[..., WorkspaceManager]
Git = Callable[..., str]
MakeIssue = Callable[[str], Issue]


@pytest.mark.parametrize("populated", [False, True])
@pytest.mark.parametrize("work", ["none", "a file", "a commit"])
async def test_leaving_is_marking_and_delivering(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, *, populated: bool, work: str
) -> None:
    manager = make_manager(repo=str(repo) if populated else None)
    made, before, path = await manager.enter(issue("MT-1"), None, lambda workspace: workspace.path)
    if work != "none":
        (made.path / "file").write_text("x")
    if work == "a commit":
        if not populated:
            git(made.path, "init", "-q", "-b", "main")
        git(made.path, "add", "-A")
        git(made.path, "commit", "-qm", "work")

    mark, delivery = await manager.leave(made)

    assert path in {None, made.path}
    assert (mark, delivery) == await one_by_one(manager, made)
    assert (mark == before) is (work == "none")
    assert delivery.delivered is populated
    assert (delivery.head is None) is (not populated and work != "a commit")


async def one_by_one(manager: WorkspaceManager, made: Workspace) -> tuple[ProgressMark, Delivery]:
    return await manager.mark(made), await manager.deliver(made)
