"""A change of any size and with any names is listed, and the lines of a few files of it are read."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from symphony.domain import Issue
from symphony.workspaces import BranchChange, ComparedFile, WorkspaceManager

pytestmark = pytest.mark.asyncio

Make = Callable[..., WorkspaceManager]
Git = Callable[..., str]
MakeIssue = Callable[[str], Issue]
HOSTILE = [
    b"every byte \x01\x02\t\n\r\x1b[31m \x7f\x80\xff\xfe.py",
    b"a b.txt b b.txt",
    b"\xe2\x80\xae txt.exe",
    b"-flag",
    b":(glob)*",
    b'"quoted".md',
    b"line\ndiff --git a b\n@@ -1 +1 @@",
]


async def changed(
    manager: WorkspaceManager, git: Git, issue: Issue, edit: Callable[[Path], object]
) -> BranchChange:
    made = await manager.prepare(issue, None)
    edit(made.path)
    git(made.path, "add", "-A")
    git(made.path, "commit", "-qm", "work \x1f subject")
    await manager.deliver(made)
    change = await manager.change(issue.identifier)
    assert change is not None
    return change


async def patches(
    manager: WorkspaceManager, change: BranchChange, files: list[ComparedFile], *, max_bytes: int = 1_000_000
) -> dict[str, bytes]:
    found = await manager.patches("MT-1", change, files, context=3, max_bytes=max_bytes)
    return {file.path: content for file, content in found.items()}


async def test_names_of_all_bytes_are_listed_and_each_has_its_own_lines(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo))

    def edit(path: Path) -> None:
        for number, name in enumerate(HOSTILE):
            Path(os.fsdecode(bytes(path) + b"/" + name)).write_text(f"content {number}\n")

    change = await changed(manager, git, issue("MT-1"), edit)
    names = {file.names[1]: file for file in change.files}
    assert set(names) == set(HOSTILE)
    assert all(file.path.isprintable() or file.path.strip() for file in change.files)
    shown = await patches(manager, change, list(change.files))
    for number, name in enumerate(HOSTILE):
        assert f"\n+content {number}".encode() in shown[names[name].path]
        alone = await patches(manager, change, [names[name]])
        assert alone.keys() == {names[name].path}


async def test_what_became_of_each_file_is_known(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    (repo / "old name.md").write_text("".join(f"line {number}\n" for number in range(40)))
    (repo / "mode.sh").write_text("echo\n")
    (repo / "kind").write_text("text\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "more")
    manager = make_manager(repo=str(repo))

    def edit(path: Path) -> None:
        (path / "old name.md").rename(path / "new name.md")
        (path / "mode.sh").chmod(0o755)
        (path / "kind").unlink()
        (path / "kind").symlink_to("README.md")
        (path / "src" / "app.py").unlink()
        (path / "src").rmdir()
        (path / "src").write_text("now a file\n")
        (path / "logo").write_bytes(b"\0\1\2")
        (path / "huge").write_text("line\n" * 300_000)
        (path / "empty").touch()

    change = await changed(manager, git, issue("MT-1"), edit)
    found = {file.path: file for file in change.files}
    assert {path: file.status for path, file in found.items()} == {
        "new name.md": "R",
        "mode.sh": "M",
        "kind": "T",
        "src": "A",
        "src/app.py": "D",
        "logo": "A",
        "huge": "A",
        "empty": "A",
    }
    assert found["new name.md"].old_path == "old name.md"
    assert {path for path, file in found.items() if file.insertions is None} == {"logo", "huge"}
    assert found["mode.sh"].modes == ("100644", "100755")
    shown = await patches(manager, change, list(change.files))
    assert b"+now a file" in shown["src"]
    assert b"-print" not in shown["src"]
    assert b"-text" in shown["kind"]
    assert b"+README.md" in shown["kind"]
    assert [commit.subject for commit in change.commits] == ["work \x1f subject"]
    assert await manager.content("MT-1", found["src"].new, max_bytes=5) == b"now a"


async def test_what_is_new_since_an_earlier_delivery(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo))
    first = await changed(manager, git, issue("MT-1"), lambda path: (path / "one").write_text("1\n"))
    second = await changed(manager, git, issue("MT-1"), lambda path: (path / "two").write_text("2\n"))
    assert [file.path for file in second.files] == ["one", "two"]
    news = await manager.change("MT-1", since=first.head)
    assert news is not None
    assert ([file.path for file in news.files], len(news.commits)) == (["two"], 1)
    assert await manager.change("MT-1", known=second) is second
    assert (await manager.change("MT-1", known=first)) == second
    for unknown in ("0" * 40, second.files[0].new):
        assert await manager.change("MT-1", since=unknown) is None
    assert await manager.change("MT-2") is None


async def test_a_cut_ends_with_a_whole_line(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo))
    change = await changed(
        manager, git, issue("MT-1"), lambda path: (path / "one").write_text("secret\n" * 100)
    )
    (content,) = (await patches(manager, change, list(change.files), max_bytes=400)).values()
    assert set(content.split(b"\n")[6:]) == {b"+secret", b""}


@pytest.mark.slow
async def test_three_thousand_files_of_fifty_megabytes_are_listed_quickly(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo))

    def edit(path: Path) -> None:
        (path / "many").mkdir()
        for number in range(3_000):
            (path / "many" / f"{number}.txt").write_text(f"line of file {number}\n" * 800)

    change = await changed(manager, git, issue("MT-1"), edit)
    began = time.monotonic()
    change = await manager.change("MT-1") or change
    shown = await patches(manager, change, list(change.files[:2]))
    assert time.monotonic() - began < 120, "about two seconds alone"
    assert (len(change.files), len(shown)) == (3_000, 2)
    assert sum(file.insertions or 0 for file in change.files) == 2_400_000
