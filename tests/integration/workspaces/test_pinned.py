"""Files of the base branch, pinned read-only beside the workspaces."""

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from symphony.domain import Category, Issue
from symphony.workspaces import Layout, WorkspaceError, WorkspaceManager, export

pytestmark = pytest.mark.asyncio

Make = Callable[..., WorkspaceManager]
Git = Callable[..., str]
MakeIssue = Callable[[str], Issue]
PATHS = (".symphony/skills", ".agents/skills")
FILE = ".symphony/skills/a/SKILL.md"


def _commit(git: Git, repo: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "more")
    return git(repo, "rev-parse", "HEAD")


def _everything(path: Path) -> list[Path]:
    return [Path(base, name) for base, directories, names in os.walk(path) for name in (*directories, *names)]


def _texts(path: Path) -> dict[str, str]:
    return {
        str(one.relative_to(path)): one.read_text()
        for one in _everything(path)
        if one.is_file() and not one.is_symlink()
    }


def _modes(path: Path) -> dict[str, str]:
    """Each mode in octal, of the directory itself as `.`."""
    found = [one for one in (path, *_everything(path)) if not one.is_symlink()]
    return {str(one.relative_to(path)): f"{stat.S_IMODE(one.lstat().st_mode):o}" for one in found}


def _write(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("in the way")


async def test_what_is_committed_on_the_base_branch_is_pinned_and_nothing_else(
    make_manager: Make, issue: MakeIssue, git: Git, repo: Path, root: Path
) -> None:
    commit = _commit(git, repo, {FILE: "A", ".agents/skills/b/SKILL.md": "B"})
    (repo / FILE).write_text("not committed")
    manager = make_manager(repo=str(repo))
    workspace = await manager.prepare(issue("MT-1"), None)
    (workspace.path / FILE).write_text("rewritten by a branch")
    found = await manager.pin(PATHS)
    assert found.commit == commit
    assert _texts(found.root) == {FILE: "A", ".agents/skills/b/SKILL.md": "B"}
    assert found.root.is_relative_to(root / ".symphony" / "pinned")
    assert not found.root.is_relative_to(workspace.path)
    assert commit in found.root.name


async def test_nobody_may_write_there_and_scripts_can_still_be_run(
    make_manager: Make, git: Git, repo: Path
) -> None:
    script = repo / ".symphony/skills/a/run.sh"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    _commit(git, repo, {FILE: "A"})
    found = await make_manager(repo=str(repo)).pin(PATHS)
    assert _modes(found.root) == {
        ".": "555",
        ".symphony": "555",
        ".symphony/skills": "555",
        ".symphony/skills/a": "555",
        ".symphony/skills/a/SKILL.md": "444",
        ".symphony/skills/a/run.sh": "555",
    }


async def test_runs_share_a_place_until_the_base_branch_or_the_paths_change(
    make_manager: Make, git: Git, repo: Path, root: Path
) -> None:
    _commit(git, repo, {FILE: "A"})
    manager = make_manager(repo=str(repo))
    first = await manager.pin(PATHS)
    made = first.root.lstat().st_ino
    assert await manager.pin(tuple(reversed(PATHS))) == first
    assert first.root.lstat().st_ino == made, "it was not made anew"
    other_paths = await manager.pin((".agents/skills",))
    assert other_paths.root != first.root
    _commit(git, repo, {FILE: "B"})
    second = await make_manager(repo=str(repo)).pin(PATHS)
    assert _texts(second.root) == {FILE: "B"}
    assert _texts(first.root) == {FILE: "A"}, "runs that are under way keep theirs"
    assert list((root / ".symphony" / "staging").iterdir()) == []
    assert [one.name for one in (root / ".symphony" / "pinned").glob(".new-*")] == []


async def test_many_that_begin_at_once_find_one_whole_place(
    make_manager: Make, git: Git, repo: Path, root: Path
) -> None:
    _commit(git, repo, {FILE: "A"})
    manager, roots = make_manager(repo=str(repo)), set()

    async def pin() -> None:
        found = await manager.pin(PATHS)
        roots.add(found.root)
        assert _texts(found.root) == {FILE: "A"}

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(pin)
    assert [*(root / ".symphony" / "pinned").iterdir()] == [*roots]


async def test_what_was_not_used_for_a_week_is_deleted_and_what_was_stays(
    make_manager: Make, git: Git, repo: Path
) -> None:
    async def pin(text: str) -> Path:
        _commit(git, repo, {FILE: text})
        return (await make_manager(repo=str(repo)).pin(PATHS)).root

    old, used = await pin("old"), await pin("used")
    long_ago = time.time() - 8 * 24 * 3_600
    os.utime(old, (long_ago, long_ago))
    new = await pin("new")
    assert [place.exists() for place in (old, used, new)] == [False, True, True]


async def test_using_a_place_keeps_it(make_manager: Make, git: Git, repo: Path) -> None:
    _commit(git, repo, {FILE: "A"})
    manager = make_manager(repo=str(repo))
    place = (await manager.pin(PATHS)).root
    os.utime(place, (0, 0))
    await manager.pin(PATHS)
    assert place.lstat().st_mtime > 0


async def test_a_base_branch_without_skills_is_an_empty_place(make_manager: Make, repo: Path) -> None:
    found = await make_manager(repo=str(repo)).pin(PATHS)
    assert _texts(found.root) == {}
    assert found.root.is_dir()


async def test_links_that_lead_out_are_links_and_submodules_are_empty(
    make_manager: Make, git: Git, repo: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    commit = _commit(git, repo, {FILE: "A", "kept/b/SKILL.md": "B"})
    (repo / ".symphony/skills/out").symlink_to(tmp_path)
    (repo / ".symphony/skills/b").symlink_to("../../kept/b")
    git(repo, "add", "-A")
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{commit},.symphony/skills/module")
    git(repo, "commit", "-qm", "odd")
    found = await make_manager(repo=str(repo)).pin(PATHS)
    assert _texts(found.root) == {FILE: "A", "kept/b/SKILL.md": "B"}
    assert (found.root / ".symphony/skills/out").readlink() == tmp_path
    assert (tmp_path / "secret").lstat().st_mode & 0o200, "what a link leads to is not touched"
    assert not _everything(found.root / ".symphony/skills/module")


@pytest.mark.parametrize("limit", ["_MAX_FILES", "_MAX_BYTES"])
async def test_too_much_is_refused_and_leaves_nothing(
    make_manager: Make, git: Git, repo: Path, root: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    _commit(git, repo, {FILE: "AA", ".symphony/skills/b/SKILL.md": "BB"})
    monkeypatch.setattr(export, limit, 1)
    with pytest.raises(WorkspaceError) as refused:
        await make_manager(repo=str(repo)).pin(PATHS)
    assert refused.value.failure.category is Category.WORKSPACE_REPOSITORY
    assert "too many or too large" in refused.value.failure.message
    assert refused.value.failure.hint
    assert [*(root / ".symphony" / "pinned").iterdir()] == []


async def test_a_repository_that_is_gone_is_replaced_by_what_was_fetched(
    make_manager: Make, git: Git, repo: Path
) -> None:
    commit = _commit(git, repo, {FILE: "A"})
    await make_manager(repo=str(repo)).pin((".agents/skills",))
    await to_thread.run_sync(repo.rename, repo.with_name("moved"))
    with capture_logs() as logs:
        found = await make_manager(repo=str(repo)).pin(PATHS)
    assert (found.commit, _texts(found.root)) == (commit, {FILE: "A"})
    (line,) = [line for line in logs if line["event"] == "base_branch_not_fetched"]
    assert line["log_level"] == "warning"


async def test_a_repository_that_does_not_answer_is_not_waited_for(
    make_manager: Make, git: Git, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _commit(git, repo, {FILE: "A"})
    manager = make_manager(repo=str(repo))
    await manager.pin(PATHS)
    monkeypatch.setattr("symphony.workspaces.mirror.Mirror.refresh", lambda _: anyio.sleep_forever())
    with capture_logs() as logs, anyio.fail_after(60):
        assert _texts((await manager.pin(PATHS, refresh_timeout_s=0.01)).root) == {FILE: "A"}
    assert [line["reason"] for line in logs] == ["no answer in time"]


async def test_what_was_never_fetched_and_what_does_not_exist_is_an_error(
    make_manager: Make, git: Git, repo: Path, tmp_path: Path
) -> None:
    _commit(git, repo, {FILE: "A"})
    managers = (
        make_manager(repo=str(tmp_path / "nowhere")),
        make_manager(repo=str(repo), base_branch="nowhere"),
        make_manager(repo=None),
    )
    for manager in managers:
        with pytest.raises(WorkspaceError) as refused:
            await manager.pin(PATHS)
        assert refused.value.failure.category is Category.WORKSPACE_REPOSITORY


@pytest.mark.parametrize("occupied", ["all places", "this place"])
async def test_a_place_that_cannot_be_made_is_an_error_and_leaves_nothing(
    make_manager: Make, git: Git, repo: Path, root: Path, occupied: str
) -> None:
    layout = Layout(root)
    target = layout.pinned(_commit(git, repo, {FILE: "A"}), PATHS)
    file = layout.pins if occupied == "all places" else target
    await to_thread.run_sync(_write, file)
    with pytest.raises(WorkspaceError) as refused:
        await make_manager(repo=str(repo)).pin(PATHS)
    assert refused.value.failure.category is Category.WORKSPACE_REPOSITORY
    assert file.read_text() == "in the way"
    assert list(layout.staging.iterdir()) == []
    assert occupied == "all places" or list(layout.pins.iterdir()) == [target]


async def test_the_look_ahead_names_the_place_and_makes_nothing(
    make_manager: Make, git: Git, repo: Path, root: Path
) -> None:
    commit = _commit(git, repo, {FILE: "A"})
    manager = make_manager(repo=str(repo))
    async with manager.preview("MT-1", PATHS, base=True) as seen:
        assert (seen.commit, seen.exists, seen.note) == (commit, False, None)
        assert seen.tree is not None
        assert _texts(seen.tree) == {FILE: "A"}
        assert not await to_thread.run_sync(os.path.lexists, root)
    assert seen.path == (await manager.pin(PATHS)).root


async def test_the_look_ahead_says_when_nothing_was_fetched(
    make_manager: Make, root: Path, tmp_path: Path
) -> None:
    manager = make_manager(repo=f"file://{tmp_path}/nowhere")
    async with manager.preview("MT-1", PATHS, base=True) as seen:
        assert (seen.tree, seen.commit) == (None, None)
        assert seen.note
    assert seen.path == root / "MT-1"


async def test_the_head_of_a_workspace_is_where_it_stands_now(
    make_manager: Make, issue: MakeIssue, git: Git, repo: Path
) -> None:
    manager = make_manager(repo=str(repo))
    workspace = await manager.prepare(issue("MT-1"), None)
    assert await anyio.to_thread.run_sync(manager.head_commit, workspace) == git(repo, "rev-parse", "HEAD")
    head = _commit(git, workspace.path, {FILE: "A"})
    assert await anyio.to_thread.run_sync(manager.head_commit, workspace) == head
