"""The life of a workspace on a real repository: made, gone on with, delivered, renewed, removed."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from symphony.config import HooksSettings, WorkspaceSettings
from symphony.domain import Category, Issue
from symphony.processes.local import LocalHost
from symphony.workspaces import NUMSTAT, Layout, Workspace, WorkspaceError, WorkspaceManager, parse_numstat
from unit.workspaces.conftest import RunGit

pytestmark = pytest.mark.asyncio
ISSUE = Issue(id="1", identifier="SYM-1", title="A title", state="Todo", dispatchable=True)
BRANCH = "symphony/SYM-1"
Make = Callable[..., WorkspaceManager]


@pytest.fixture
def make(tmp_path: Path, repo: Path, environment: dict[str, str]) -> Make:
    def make_manager(hooks: dict[str, object] | None = None, **more: object) -> WorkspaceManager:
        settings = {"root": tmp_path / "root", "repo": str(repo), **more}
        return WorkspaceManager(
            LocalHost(),
            WorkspaceSettings.model_validate(settings),
            HooksSettings.model_validate(hooks or {}),
            environment,
            frozenset(),
        )

    return make_manager


def commit(git: RunGit, workspace: Workspace, message: str = "work") -> str:
    git(workspace.path, "commit", "-q", "--allow-empty", "-m", message)
    return git(workspace.path, "rev-parse", "HEAD")


async def test_a_workspace_is_made_at_the_base_and_gone_on_with(make: Make, repo: Path, git: RunGit) -> None:
    manager = make()
    first = git(repo, "rev-parse", "HEAD")
    made = await manager.prepare(ISSUE, None)
    assert (made.created_now, made.branch, made.base_commit) == (True, BRANCH, first)
    assert git(made.path, "symbolic-ref", "--short", "HEAD") == BRANCH
    assert (made.path / "README.md").read_text() == "hello\n"
    (made.path / "half.txt").touch()
    again = await manager.prepare(ISSUE, 1)
    assert (again.created_now, again.path, again.base_commit) == (False, made.path, first)
    assert (made.path / "half.txt").exists()
    assert [record.key for record in await manager.records()] == ["SYM-1"]


async def test_the_base_branch_is_the_one_that_is_set_or_the_one_at_head(
    make: Make, repo: Path, git: RunGit
) -> None:
    git(repo, "checkout", "-q", "-b", "stable")
    git(repo, "commit", "-q", "--allow-empty", "-m", "stable")
    stable = git(repo, "rev-parse", "HEAD")
    git(repo, "checkout", "-q", "main")
    assert await make().base_branch() == "main"
    chosen = make(base_branch="stable")
    assert await chosen.base_branch() == "stable"
    assert (await chosen.prepare(ISSUE, None)).base_commit == stable
    with pytest.raises(WorkspaceError) as caught:
        await make(base_branch="no").prepare(numbered("2"), None)
    assert caught.value.failure.category is Category.WORKSPACE_REPOSITORY


def numbered(number: str) -> Issue:
    return Issue(id=number, identifier=f"SYM-{number}", title="Other", state="Todo", dispatchable=True)


async def test_nothing_is_left_of_a_workspace_whose_first_hook_fails(make: Make, tmp_path: Path) -> None:
    failing = make({"after_create": "exit 3"})
    with pytest.raises(WorkspaceError) as caught:
        await failing.prepare(ISSUE, None)
    assert caught.value.failure.category is Category.WORKSPACE_HOOK_FAILED
    assert not (tmp_path / "root" / "SYM-1").exists()
    assert (await make().prepare(ISSUE, 1)).created_now


async def test_a_removal_delivers_first_and_keeps_what_is_not_committed(
    make: Make, repo: Path, git: RunGit
) -> None:
    manager = make()
    made = await manager.prepare(ISSUE, None)
    (record,) = await manager.records()
    commit(git, made)
    (made.path / "new.txt").touch()
    kept = await manager.remove(record)
    assert (kept.removed, made.path.exists()) == (False, True)
    assert git(repo, "log", "-1", "--format=%s", BRANCH) == "work", "it was delivered all the same"
    (made.path / "new.txt").unlink()
    done = await manager.remove(record)
    assert (done.removed, done.kept_reason, made.path.exists()) == (True, None, False)
    assert await manager.records() == ()
    assert not (await manager.remove(record)).removed
    assert not await manager.exists(made)


async def test_work_in_a_workspace_whose_record_is_lost_is_kept(
    make: Make, tmp_path: Path, git: RunGit
) -> None:
    manager = make()
    made = await manager.prepare(ISSUE, None)
    (record,) = await manager.records()
    commit(git, made)
    Layout(tmp_path / "root").record("SYM-1").unlink()
    assert not (await manager.remove(record)).removed
    assert made.path.exists()


async def test_a_new_workspace_goes_on_from_what_was_delivered(make: Make, git: RunGit) -> None:
    manager = make()
    made = await manager.prepare(ISSUE, None)
    head = commit(git, made)
    (record,) = await manager.records()
    await manager.remove(record)
    again = await manager.prepare(ISSUE, 1)
    assert again.created_now
    assert git(again.path, "rev-parse", "HEAD") == head


async def test_a_branch_of_people_that_goes_on_from_ours_is_taken_up(
    make: Make, repo: Path, git: RunGit
) -> None:
    manager = make()
    commit(git, await manager.prepare(ISSUE, None))
    (record,) = await manager.records()
    await manager.remove(record)
    git(repo, "checkout", "-q", BRANCH)
    git(repo, "commit", "-q", "--allow-empty", "-m", "of a person")
    git(repo, "checkout", "-q", "main")
    again = await manager.prepare(ISSUE, 1)
    assert git(again.path, "log", "-1", "--format=%s") == "of a person"


@pytest.mark.parametrize("more", [(), ("of a person",)])
async def test_a_branch_of_people_that_lacks_our_work_is_not_taken_up(
    make: Make, repo: Path, git: RunGit, more: tuple[str, ...]
) -> None:
    manager = make()
    head = commit(git, await manager.prepare(ISSUE, None))
    (record,) = await manager.records()
    await manager.remove(record)
    git(repo, "checkout", "-q", "-B", BRANCH, "main")
    for message in more:
        git(repo, "commit", "-q", "--allow-empty", "-m", message)
    git(repo, "checkout", "-q", "main")
    again = await manager.prepare(ISSUE, 1)
    assert git(again.path, "rev-parse", "HEAD") == head


async def test_progress_is_seen_in_commits_and_in_files(make: Make, git: RunGit) -> None:
    manager = make()
    made = await manager.prepare(ISSUE, None)
    marks = [await manager.progress(made), await manager.progress(made)]
    assert marks[0] == marks[1]
    (made.path / "README.md").write_text("changed\n")
    marks.append(await manager.progress(made))
    (made.path / "new.txt").touch()
    marks.append(await manager.progress(made))
    commit(git, made)
    marks.append(await manager.progress(made))
    assert len(set(marks)) == 4
    assert await manager.tracked(made, "README.md") == {"README.md"}
    assert await manager.tracked(made, "new.txt") == frozenset()


async def test_a_workspace_is_renewed_only_if_its_work_does_not_go_on(make: Make, git: RunGit) -> None:
    manager = make()
    made = await manager.prepare(ISSUE, None)
    base, head = str(made.base_commit), commit(git, made)
    for delivered in (base, head):
        await manager.renew(ISSUE, delivered)
        assert made.path.exists()
    await manager.renew(ISSUE, "f" * 40)
    assert not made.path.exists()


async def test_a_merged_branch_is_deleted_only_where_it_was_put(make: Make, repo: Path, git: RunGit) -> None:
    manager = make()
    made = await manager.prepare(ISSUE, None)
    head = commit(git, made)
    await manager.deliver(made)
    assert not (await manager.delete_branch(BRANCH, "f" * 40)).removed
    git(repo, "commit", "-q", "--allow-empty", "-m", "on main")
    assert git(repo, "branch", "--list", BRANCH) != ""
    assert (await manager.delete_branch(BRANCH, head)).removed
    assert git(repo, "branch", "--list", BRANCH) == ""
    assert not (await manager.delete_branch(BRANCH, head)).removed
    (record,) = await manager.records()
    assert (await manager.remove(record)).removed
    again = await manager.prepare(ISSUE, 1)
    assert git(again.path, "rev-parse", "HEAD") == git(repo, "rev-parse", "main"), (
        "merged work is in the base"
    )


async def test_the_patch_is_what_was_delivered(make: Make, git: RunGit) -> None:
    manager = make()
    made = await manager.prepare(ISSUE, None)
    assert await manager.patch("SYM-1", max_bytes=10_000) is None
    (made.path / "README.md").write_text("hello\nthere\n")
    git(made.path, "add", "-A")
    commit(git, made)
    await manager.deliver(made)
    patch = await manager.patch("SYM-1", max_bytes=10_000)
    assert patch is not None
    assert b"\n+there\n" in patch.content


async def test_what_a_workspace_has_changed_so_far_is_read_while_the_agent_works(
    make: Make, git: RunGit, tmp_path: Path
) -> None:
    manager = make()
    assert await manager.working_patch("SYM-1", max_bytes=10_000) is None
    made = await manager.prepare(ISSUE, None)
    (made.path / "committed.txt").write_text("one\n")
    git(made.path, "add", "-A")
    commit(git, made)
    canary = tmp_path / "canary"
    git(made.path, "config", "filter.trap.clean", f"touch {canary}; cat")
    git(made.path, "config", "core.fsmonitor", f"touch {canary}; true")
    (made.path / ".gitattributes").write_text("* filter=trap\n")
    (made.path / ".gitignore").write_text("ignored\n")
    (made.path / "README.md").write_text("hello\nthere\n")
    (made.path / "ignored").touch()
    (made.path / "new\n\x1b.txt").write_text("two\nlines\n")
    (made.path / "link").symlink_to("/etc/passwd")
    before = sorted(path for path in (made.path / ".git").rglob("*") if path.is_file())
    counts = await manager.working_patch("SYM-1", NUMSTAT, max_bytes=10_000)
    assert counts is not None
    assert {file.path: (file.insertions, file.deletions) for file in parse_numstat(counts.content)} == {
        "README.md": (1, 0),
        "committed.txt": (1, 0),
        ".gitattributes": (1, 0),
        ".gitignore": (1, 0),
        "new\n\x1b.txt": (2, 0),
        "link": (1, 0),
    }
    patch = await manager.working_patch("SYM-1", max_bytes=10_000)
    assert patch is not None
    assert patch.branch == BRANCH
    assert b"\n+there\n" in patch.content
    assert b"root:" not in patch.content, "a link is not followed"
    assert not canary.exists()
    assert sorted(path for path in (made.path / ".git").rglob("*") if path.is_file()) == before


async def test_pinned_files_are_those_of_the_base_and_no_link_leads_out(
    make: Make, repo: Path, git: RunGit
) -> None:
    (repo / "skills").mkdir()
    (repo / "skills" / "a.md").write_text("a")
    (repo / "shared").mkdir()
    (repo / "shared" / "b.md").write_text("b")
    (repo / "skills" / "b.md").symlink_to("../shared/b.md")
    (repo / "skills" / "out.md").symlink_to("../../outside")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "skills")
    pinned = await make().pin(["skills"])
    assert pinned.commit == git(repo, "rev-parse", "HEAD")

    def read() -> tuple[set[str], str]:
        files = {str(path.relative_to(pinned.root)) for path in pinned.root.rglob("*") if path.is_file()}
        return files, (pinned.root / "skills" / "b.md").read_text()

    files, linked = await to_thread.run_sync(read)
    assert files == {"skills/a.md", "skills/b.md", "shared/b.md"}
    assert linked == "b"


async def test_a_preview_shows_the_workspace_or_what_it_would_begin_with(make: Make) -> None:
    manager = make()
    async with manager.preview("SYM-1", ["README.md"]) as preview:
        assert (preview.exists, preview.tree is not None) == (False, True)
    made = await manager.prepare(ISSUE, None)
    async with manager.preview("SYM-1", ["README.md"]) as preview:
        assert (preview.exists, preview.tree) == (True, made.path)
    async with make(repo=None).preview("SYM-9", ["README.md"]) as preview:
        assert (preview.exists, preview.tree) == (False, None)


async def test_without_a_repository_a_hook_fills_the_directory(make: Make) -> None:
    manager = make({"after_create": "touch made"}, repo=None)
    made = await manager.prepare(ISSUE, None)
    assert (made.branch, made.base_commit, (made.path / "made").exists()) == (None, None, True)
    assert (await manager.deliver(made)).delivered is None
    assert await manager.base_branch() is None
    (record,) = await manager.records()
    assert (await manager.remove(record)).removed


async def test_sessions_commit_under_a_name_of_their_own_where_git_knows_no_user(make: Make) -> None:
    made = await make().prepare(ISSUE, None)
    assert "Symphony Agent" in (made.path / ".git" / "config").read_text()


async def test_sessions_commit_as_the_user_whom_git_knows(make: Make, environment: dict[str, str]) -> None:
    config = anyio.Path(environment["HOME"], ".gitconfig")
    await config.write_text("[user]\n\tname = Zoe\n\temail = zoe@example.org\n")
    made = await make().prepare(ISSUE, None)
    text = (made.path / ".git" / "config").read_text()
    assert "Zoe" in text
    assert "zoe@example.org" in text
    assert "Symphony Agent" not in text
