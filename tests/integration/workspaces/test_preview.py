import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from anyio import to_thread

from harness.shell import word
from symphony.domain import Category, Issue
from symphony.workspaces import WorkspaceError, WorkspaceManager, export

pytestmark = pytest.mark.asyncio

Make = Callable[..., WorkspaceManager]
Git = Callable[..., str]
MakeIssue = Callable[[str], Issue]
SKILLS = (".symphony/skills",)


@pytest.fixture(autouse=True)
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temp directory of the test's own, to see that nothing stays in it."""
    place = tmp_path / "temp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def _commit(git: Git, repo: Path, files: dict[str, str], links: dict[str, str] | None = None) -> str:
    for name, text in files.items():
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(text)
    for name, target in (links or {}).items():
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).symlink_to(target)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "more")
    return git(repo, "rev-parse", "HEAD")


def _tree(path: Path) -> dict[str, str]:
    """Every file and link below, by relative name."""
    found = {}
    for base, directories, names in os.walk(path):
        for name in [*names, *(one for one in directories if Path(base, one).is_symlink())]:
            one = Path(base, name)
            text = f"-> {one.readlink()}" if one.is_symlink() else one.read_text()
            found[str(one.relative_to(path))] = text
    return found


def _names(path: Path) -> list[str] | None:
    """What a directory holds; null where there is nothing at all."""
    return sorted(one.name for one in path.iterdir()) if path.exists() else None


def _write(path: Path, text: str) -> None:
    path.write_text(text)


async def _seen(manager: WorkspaceManager, *paths: str, identifier: str = "MT-1") -> dict[str, str]:
    async with manager.preview(identifier, paths or SKILLS) as foresight:
        assert foresight.tree is not None, foresight.note
        return await to_thread.run_sync(_tree, foresight.tree)


async def test_what_a_workspace_would_hold_is_told_before_it_is_made(
    make_manager: Make, git: Git, repo: Path, root: Path, temp: Path
) -> None:
    _commit(git, repo, {".symphony/skills/a/SKILL.md": "A", "elsewhere/SKILL.md": "no"})
    async with make_manager(repo=str(repo)).preview("MT-1", SKILLS) as foresight:
        assert (foresight.path, foresight.exists, foresight.note) == (root / "MT-1", False, None)
        assert foresight.tree is not None
        assert _tree(foresight.tree) == {".symphony/skills/a/SKILL.md": "A"}
    assert _names(root) is None, "nothing was made where workspaces are"
    assert _names(temp) == []
    assert git(repo, "status", "--porcelain") == ""


async def test_a_workspace_that_is_there_is_looked_at_itself(
    make_manager: Make, repo: Path, issue: MakeIssue, temp: Path
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    _write(made.path / "edited", "by the agent")
    async with manager.preview("MT-1", SKILLS) as foresight:
        assert (foresight.path, foresight.exists, foresight.tree) == (made.path, True, made.path)
    assert _names(temp) == []


async def test_uncommitted_and_ignored_files_are_not_foreseen(
    make_manager: Make, git: Git, repo: Path
) -> None:
    _commit(git, repo, {".symphony/skills/a/SKILL.md": "committed"})
    _write(repo / ".symphony/skills/a/SKILL.md", "edited")
    _write(repo / ".symphony/skills/SKILL.md", "new")
    assert await _seen(make_manager(repo=str(repo))) == {".symphony/skills/a/SKILL.md": "committed"}


async def test_links_come_along_with_what_they_lead_to_inside_the_tree(
    make_manager: Make, git: Git, repo: Path
) -> None:
    _commit(
        git,
        repo,
        {".agents/skills/a/SKILL.md": "A", "kept/b/SKILL.md": "B", "unasked": "x"},
        {
            ".symphony": ".tool",
            ".tool/skills": "../.agents/skills",
            ".agents/skills/b": "../../kept/b",
            ".agents/skills/out": "../../../outside",
            ".agents/skills/abs": "/etc",
            ".agents/skills/loop": "loop",
        },
    )
    assert await _seen(make_manager(repo=str(repo))) == {
        ".symphony": "-> .tool",
        ".tool/skills": "-> ../.agents/skills",
        ".agents/skills/a/SKILL.md": "A",
        ".agents/skills/b": "-> ../../kept/b",
        ".agents/skills/out": "-> ../../../outside",
        ".agents/skills/abs": "-> /etc",
        ".agents/skills/loop": "-> loop",
        "kept/b/SKILL.md": "B",
    }


async def test_a_file_name_is_never_a_pattern_or_an_option(make_manager: Make, git: Git, repo: Path) -> None:
    names = {"-x/*/SKILL.md": "star", "-x/:(top)/SKILL.md": "magic", "-x/two\nlines/SKILL.md": "lines"}
    _commit(git, repo, {**names, "-y/SKILL.md": "other"})
    assert await _seen(make_manager(repo=str(repo)), "-x") == names


async def test_paths_that_leave_the_workspace_bring_nothing(make_manager: Make, repo: Path) -> None:
    assert await _seen(make_manager(repo=str(repo)), "../x", "/etc", "a/../..") == {}


async def test_the_base_branch_and_a_delivered_branch_are_followed_as_by_a_checkout(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    _commit(git, repo, {".symphony/skills/a/SKILL.md": "main"})
    git(repo, "checkout", "-qb", "next")
    _commit(git, repo, {".symphony/skills/a/SKILL.md": "next"})
    manager = make_manager(repo=str(repo), base_branch="next")
    assert await _seen(manager) == {".symphony/skills/a/SKILL.md": "next"}

    made = await manager.prepare(issue("MT-1"), None)
    _commit(git, made.path, {".symphony/skills/a/SKILL.md": "work"})
    assert (await manager.deliver(made)).delivered
    (record,) = await manager.records()
    assert (await manager.remove(record)).removed
    assert await _seen(manager) == {".symphony/skills/a/SKILL.md": "work"}
    assert await _seen(manager, identifier="MT-2") == {".symphony/skills/a/SKILL.md": "next"}

    git(repo, "checkout", "-q", "symphony/MT-1")
    _commit(git, repo, {".symphony/skills/a/SKILL.md": "review"})
    git(repo, "checkout", "-q", "main")
    assert await _seen(manager) == {".symphony/skills/a/SKILL.md": "review"}
    again = await make_manager(repo=str(repo), base_branch="next").prepare(issue("MT-1"), None)
    assert (again.path / ".symphony/skills/a/SKILL.md").read_text() == "review", "and so does the checkout"


async def test_of_a_remote_the_mirror_is_asked_and_nothing_fetched(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    _commit(git, repo, {".symphony/skills/a/SKILL.md": "old"})
    manager = make_manager(repo=repo.as_uri())
    async with manager.preview("MT-1", SKILLS) as foresight:
        assert foresight.tree is None
        assert foresight.note is not None
        assert "never fetched" in foresight.note
    await manager.prepare(issue("MT-2"), None)
    _commit(git, repo, {".symphony/skills/a/SKILL.md": "new"})
    assert await _seen(manager) == {".symphony/skills/a/SKILL.md": "old"}
    assert await _seen(make_manager(repo=repo.as_uri(), base_branch="main")) == {
        ".symphony/skills/a/SKILL.md": "old"
    }


async def test_what_hooks_will_fill_is_not_known_before(make_manager: Make, root: Path) -> None:
    async with make_manager().preview("MT-1", SKILLS) as foresight:
        assert (foresight.tree, foresight.note) == (None, export.NOT_POPULATED)
    assert _names(root) is None


async def test_what_would_fail_an_attempt_fails_the_look_ahead(
    make_manager: Make, repo: Path, tmp_path: Path, temp: Path
) -> None:
    for settings, words in (
        ({"repo": str(tmp_path / "nowhere")}, "nowhere"),
        ({"repo": str(repo), "base_branch": "absent"}, "no branch absent"),
    ):
        with pytest.raises(WorkspaceError, match=words) as caught:
            await _seen(make_manager(**settings))
        assert caught.value.failure.category is Category.WORKSPACE_REPOSITORY
    with pytest.raises(WorkspaceError) as refused:
        await _seen(make_manager(repo=str(repo)), identifier="..")
    assert refused.value.failure.category is Category.WORKSPACE_UNSAFE_KEY
    assert _names(temp) == []


@pytest.mark.parametrize("limit", ["_MAX_FILES", "_MAX_BYTES"])
async def test_too_much_is_left_unseen_with_a_word(
    make_manager: Make, git: Git, repo: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    _commit(git, repo, {".symphony/skills/a/SKILL.md": "A", ".symphony/skills/b/SKILL.md": "B"})
    monkeypatch.setattr(export, limit, 1)
    async with make_manager(repo=str(repo)).preview("MT-1", SKILLS) as foresight:
        assert foresight.tree is None
        assert foresight.note is not None
        assert "too many or too large" in foresight.note


async def test_filters_of_the_repository_are_not_run(
    make_manager: Make, git: Git, repo: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    ran = tmp_path / "ran"
    _commit(git, repo, {".gitattributes": "* filter=x\n", ".symphony/skills/a/SKILL.md": "A"})
    own = f"{environment['HOME']}/.gitconfig"
    git(repo, "config", "--file", own, "filter.x.smudge", f"mkdir {word(ran)}; cat")
    assert await _seen(make_manager(repo=str(repo))) == {".symphony/skills/a/SKILL.md": "A"}
    assert _names(ran) is None


async def test_a_repository_of_the_longer_object_ids_is_read_too(
    make_manager: Make, git: Git, tmp_path: Path
) -> None:
    repo = tmp_path / "long"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main", "--object-format=sha256")
    _commit(git, repo, {".symphony/skills/a/SKILL.md": "A"})
    assert await _seen(make_manager(repo=str(repo))) == {".symphony/skills/a/SKILL.md": "A"}
