"""Whatever an agent does to its `.git` and its files, its work is delivered, or kept with a reason.

Nothing raises, nothing outside of the workspace changes, and no other workspace has to suffer for it.
"""

import os
import shutil
import subprocess
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import anyio
import pytest

from harness.ordinary import ordinary_user
from harness.project import Project
from symphony.cli.commands.clean import clean_up
from symphony.config import HooksSettings, WorkspaceSettings
from symphony.domain import Category, Issue
from symphony.processes.local import LocalHost
from symphony.workspaces import (
    Workspace,
    WorkspaceError,
    WorkspaceManager,
    all_refs,
    find_work,
    packed_refs,
)

Rounds = Callable[..., Iterator[Random]]

_LITTLE = 8 * 1024 * 1024


@pytest.fixture
def place() -> Iterator[Path]:
    with ordinary_user() as made:
        (made / "home").mkdir()
        (made / "repo").mkdir()
        _git(made / "repo", "init", "-q", "-b", "main")
        (made / "repo" / "file").write_text("hello\n")
        _commit(made / "repo")
        yield made


@pytest.fixture
def manager(place: Path) -> WorkspaceManager:
    return _manager(place)


def _manager(place: Path) -> WorkspaceManager:
    settings = WorkspaceSettings.model_validate({"root": place / "root", "repo": str(place / "repo")})
    return WorkspaceManager(LocalHost(), settings, HooksSettings(), _environment(place), frozenset())


def _environment(place: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(place / "home")}


def _git(where: Path, *arguments: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "safe.directory=*")
    done = subprocess.run(["git", *who, *arguments], cwd=where, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _commit(where: Path) -> str:
    (where / "work.txt").write_text(f"work in {where}\n")
    _git(where, "add", "-A")
    _git(where, "commit", "-qm", "work")
    return _git(where, "rev-parse", "HEAD")


def _issue(identifier: str) -> Issue:
    return Issue(id=identifier, identifier=identifier, title="A title", state="Todo", dispatchable=True)


def _delivered(place: Path, identifier: str) -> str:
    return _git(place / "repo", "for-each-ref", "--format=%(objectname)", f"refs/heads/symphony/{identifier}")


def _mend(workspace: Path) -> None:
    subprocess.run(["chmod", "-R", "u+rwX", workspace], check=True)


async def _survived(place: Path, manager: WorkspaceManager, made: Workspace, head: str) -> bool:
    """Everything that a daemon does to a workspace in the end; whether the work was delivered or is kept."""
    await manager.progress(made)
    delivery = await manager.deliver(made)
    with suppress(WorkspaceError):
        await manager.prepare(_issue(made.key), 2)
    settings = WorkspaceSettings.model_validate({"root": place / "root", "repo": str(place / "repo")})
    environment, none = _environment(place), frozenset[str]()
    foretold = await find_work(
        made.path, host=LocalHost(), settings=settings, environment=environment, secret_names=none
    )
    (record,) = [record for record in await manager.records() if record.key == made.key]
    removal = await manager.remove(record)
    assert removal.removed or removal.kept_reason
    assert removal.removed or foretold or "LFS" in (removal.kept_reason or "")  # copying cannot be foretold
    if removal.removed:
        return head in _delivered(place, made.key)
    return delivery.failure is not None or delivery.delivered is not None


@pytest.mark.parametrize(
    "closed",
    [
        *(".", ".git", ".git/HEAD", ".git/index", ".git/objects", "src"),
        *(".git/hooks", ".git/hooks/in", ".git/info", ".git/lfs/objects/aa", ".git/packed-refs"),
        *(".git/refs", ".git/refs/heads", ".git/refs/heads/in", ".git/refs/remotes", ".git/refs/stash"),
        *(".git/config", "work.txt"),
    ],
)
@pytest.mark.asyncio
async def test_what_an_agent_closed_costs_no_work_and_no_crash(
    place: Path, manager: WorkspaceManager, closed: str
) -> None:
    made = await manager.prepare(_issue("MT-1"), None)
    head = _commit(made.path)
    _git(made.path, "branch", "other")
    _git(made.path, "pack-refs", "--all")
    path = made.path / closed
    if not path.exists():
        path.mkdir(parents=True)
    path.chmod(0)

    assert await _survived(place, manager, made, head)

    if made.path.exists():
        _mend(made.path)
        assert (await manager.deliver(made)).delivered
    assert _delivered(place, "MT-1") == head


@pytest.mark.asyncio
async def test_a_closed_workspace_without_a_repository_is_kept_too(place: Path) -> None:
    settings = WorkspaceSettings.model_validate({"root": place / "root"})
    manager = WorkspaceManager(LocalHost(), settings, HooksSettings(), _environment(place), frozenset())
    made = await manager.prepare(_issue("MT-1"), None)
    _git(made.path, "init", "-q")
    head = _commit(made.path)
    made.path.chmod(0)

    (record,) = await manager.records()
    removal = await manager.remove(record)

    assert removal.kept_reason
    _mend(made.path)
    assert _git(made.path, "rev-parse", "HEAD") == head


@pytest.mark.asyncio
async def test_refs_without_end_are_a_reason_and_no_crash(place: Path, manager: WorkspaceManager) -> None:
    made = await manager.prepare(_issue("MT-1"), None)
    head = _commit(made.path)
    deep = os.open(made.path / ".git" / "refs" / "heads", os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("d", dir_fd=deep)
        above, deep = deep, os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(above)
    os.close(deep)

    again = await manager.prepare(_issue("MT-1"), 2)
    delivery = await manager.deliver(made)

    assert again.path == made.path
    assert delivery.failure is not None
    assert delivery.failure.category is Category.DELIVERY_FAILED
    assert await _survived(place, manager, made, head)
    assert made.path.exists()


@pytest.mark.asyncio
async def test_a_lock_is_not_looked_for_behind_a_link(place: Path, manager: WorkspaceManager) -> None:
    made = await manager.prepare(_issue("MT-1"), None)
    bait = place / "bait"
    (bait / "heads").mkdir(parents=True)
    (bait / "heads" / "poetry.lock").write_text("precious")
    shutil.rmtree(made.path / ".git" / "refs")
    (made.path / ".git" / "refs").symlink_to(bait)

    await manager.prepare(_issue("MT-1"), 2)

    assert (bait / "heads" / "poetry.lock").read_text() == "precious"


@pytest.mark.slow
@pytest.mark.parametrize("size", [200 * 1024 * 1024, 512 * 1024 * 1024])
@pytest.mark.asyncio
async def test_a_huge_index_costs_no_memory(place: Path, manager: WorkspaceManager, size: int) -> None:
    made = await manager.prepare(_issue("MT-1"), None)
    head = _commit(made.path)
    os.truncate(made.path / ".git" / "index", size)

    tracemalloc.start()
    try:
        assert await _survived(place, manager, made, head)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < _LITTLE
    assert _delivered(place, "MT-1") == head, "a delivery needs no index"


@pytest.mark.slow
@pytest.mark.asyncio
async def test_huge_packed_refs_cost_no_memory_and_are_a_reason(
    place: Path, manager: WorkspaceManager
) -> None:
    made = await manager.prepare(_issue("MT-1"), None)
    head = _commit(made.path)
    line = b"%s refs/heads/b%%07d\n" % head.encode()
    (made.path / ".git" / "packed-refs").write_bytes(b"".join(line % number for number in range(950_000)))

    tracemalloc.start()
    try:
        assert await _survived(place, manager, made, head)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < _LITTLE
    assert made.path.exists()


def test_packed_refs_are_read_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "packed-refs").touch()
    os.truncate(tmp_path / "packed-refs", 16 * 1024 * 1024)

    tracemalloc.start()
    try:
        assert packed_refs(tmp_path) == {}
        assert all_refs(tmp_path, "refs/heads/") == {}
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < _LITTLE


def test_clean_looks_at_each_workspace_by_itself() -> None:
    with ordinary_user() as place:
        project = Project(root=place / "project").create()
        project.workflow()
        for name in ("SYM-1", "SYM-2"):
            project.issue(name, title=name, state="Done")
        project.commit("Workflow")
        settings = WorkspaceSettings.model_validate({"root": project.workspaces, "repo": str(project.repo)})
        manager = WorkspaceManager(LocalHost(), settings, HooksSettings(), project.env(), frozenset())
        closed, other = (anyio.run(manager.prepare, _issue(name), None).path for name in ("SYM-1", "SYM-2"))
        (closed / ".git" / "refs" / "heads" / "in").mkdir(mode=0)

        for dry_run in (True, False):
            found = clean_up(
                project.repo / "WORKFLOW.md",
                project.env(),
                dry_run=dry_run,
                older_than_s=None,
                confirm=lambda _: None,
            )
            outcomes = {item.name: item.outcome for item in found.items if item.kind == "workspace"}
            assert outcomes == {"SYM-1": "kept", "SYM-2": "would_remove" if dry_run else "removed"}

        assert closed.exists()
        assert not other.exists()


def test_a_run_whose_work_nobody_can_have_is_no_success_and_its_issue_says_so(tmp_path: Path) -> None:
    project = Project(root=tmp_path).create()
    project.workflow(agent={"max_turns": 1})
    project.issue(
        "SYM-1",
        [
            {"write": "a", "text": "a"},
            {"commit": "A"},
            {"run": "mv .git .hidden"},
            {"tool": "board_move", "arguments": {"state": "Human Review"}},
        ],
    )
    with project.daemon() as daemon:
        ended = daemon.wait_for("run_ended", issue_identifier="SYM-1", outcome="failed")
        assert ended["reason"].startswith("delivery_failed: ")
        assert ended["hint"]
        daemon.wait_for("comment_posted", issue_identifier="SYM-1", kind="delivery")
    assert (project.workspaces / "SYM-1" / ".hidden").is_dir()


@pytest.mark.asyncio
async def test_damage_of_any_kind_is_survived(rounds: Rounds, place: Path) -> None:
    bait = place / "bait"
    (bait / "refs" / "heads").mkdir(parents=True)
    for name in ("a.lock", "refs/heads/b.lock", "file"):
        (bait / name).write_text("precious")
    mode = bait.stat().st_mode
    manager = _manager(place)
    neighbour = await manager.prepare(_issue("MT-0"), None)
    theirs = _commit(neighbour.path)
    for number, random in enumerate(rounds(4), start=1):
        made = await manager.prepare(_issue(f"MT-{number}"), None)
        head = _commit(made.path)
        for _ in range(random.randrange(1, 6)):
            with suppress(OSError):
                _damage(random, made.path, bait)

        assert await _survived(place, manager, made, head)

        assert sorted(path.name for path in bait.rglob("*")) == ["a.lock", "b.lock", "file", "heads", "refs"]
        assert bait.stat().st_mode == mode
        assert _git(neighbour.path, "rev-parse", "HEAD") == theirs
    assert (await manager.deliver(neighbour)).delivered


def _damage(random: Random, workspace: Path, bait: Path) -> None:
    """One thing that goes wrong with one entry of a repository or a tree."""
    spots = [workspace / ".git", workspace, *sorted(workspace.rglob("*"))]
    path = random.choice([spot for spot in spots if random.random() < 0.5 or ".git" in spot.parts] or spots)
    if path.is_symlink() or path.is_fifo():  # which nobody here may follow, or wait for
        path.unlink()
        return
    match random.randrange(8):
        case 0:
            path.chmod(random.choice([0, 0o100, 0o200, 0o400, 0o555]))
        case 1 if path != workspace:  # else nothing is left to deliver
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        case 2:
            path.rename(workspace / f"moved{random.random()}")
            path.symlink_to(random.choice([bait, bait / "refs", Path("nowhere"), workspace]))
        case 3 if "objects" not in path.parts:  # where git waits for it, up to its time limit
            path.unlink()
            os.mkfifo(path)
        case 4:
            path.unlink()
            path.mkdir()
        case 5:
            os.truncate(path, random.choice([0, 1, 1 << 20]))
        case 6:
            path.write_bytes(random.randbytes(random.randrange(200)))
        case _:
            (path / random.choice(["x.lock", "a" * 200, "\n", "\udcff", "config"])).mkdir()
