"""Rehearsals of merges with real git: what goes together, what conflicts and where, and what is left out."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from symphony.workspaces import (
    BranchRehearsal,
    Conflict,
    ConflictKind,
    Fate,
    LineSpan,
    Rehearsal,
    WorkspaceError,
    WorkspaceManager,
)

pytestmark = pytest.mark.asyncio

Git = Callable[..., str]
Make = Callable[..., WorkspaceManager]
Change = Callable[[Path], object]
NUMBERS = "".join(f"line {number}\n" for number in range(1, 41))


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A repository whose `src/a.py` has 40 lines, and the mirror that delivered branches are in."""

    manager: WorkspaceManager
    git: Git
    repo: Path
    root: Path

    def deliver(self, name: str, change: Change, *, start: str = "main") -> str:
        """A branch in the mirror with one commit; returns the commit."""
        self.git(self.repo, "checkout", "-qf", "--detach", start)
        change(self.repo)
        return self.keep(name)

    def keep(self, name: str) -> str:
        self.git(self.repo, "add", "-A")
        self.git(self.repo, "commit", "-qm", name)
        (mirror,) = (self.root / ".symphony" / "mirrors").glob("*.git")
        self.git(self.repo, "push", "-q", str(mirror), f"+HEAD:refs/heads/symphony/{name}")
        head = self.git(self.repo, "rev-parse", "HEAD")
        self.git(self.repo, "checkout", "-qf", "main")
        return head

    def commit(self, change: Change) -> str:
        """A commit on the base."""
        change(self.repo)
        self.git(self.repo, "add", "-A")
        self.git(self.repo, "commit", "-qm", "base")
        return self.git(self.repo, "rev-parse", "HEAD")

    async def rehearse(self, *names: str) -> Rehearsal:
        found = await self.manager.rehearse({name: f"symphony/{name}" for name in names})
        assert found is not None
        return found

    async def fates(self, *names: str) -> dict[str, Fate]:
        return {each.branch[len("symphony/") :]: each.fate for each in (await self.rehearse(*names)).branches}


@pytest_asyncio.fixture
async def stage(make_manager: Make, repo: Path, root: Path, git: Git) -> Stage:
    made = Stage(manager=make_manager(repo=str(repo)), git=git, repo=repo, root=root)
    made.commit(lambda tree: (tree / "src" / "a.py").write_text(NUMBERS))
    await made.rehearse()  # makes the mirror
    return made


def write(path: str, text: str | bytes) -> Change:
    def change(tree: Path) -> None:
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(text if isinstance(text, bytes) else text.encode())

    return change


def edit(first: int, text: str, *, last: int | None = None, path: str = "src/a.py") -> Change:
    """Replace lines, from 1, by one line."""

    def change(tree: Path) -> None:
        lines = (tree / path).read_text().splitlines()
        lines[first - 1 : last or first] = [text]
        (tree / path).write_text("\n".join(lines) + "\n")

    return change


def delete(path: str) -> Change:
    return lambda tree: (tree / path).unlink()


def only_conflict(branch: BranchRehearsal) -> Conflict:
    (conflict,) = branch.conflicts
    return conflict


async def test_branches_that_go_together_make_one_tree(stage: Stage) -> None:
    stage.deliver("A", edit(3, "of A"))
    head = stage.deliver("B", edit(30, "of B"))

    found = await stage.rehearse("A", "B")

    assert [branch.fate for branch in found.branches] == [Fate.MERGES, Fate.MERGES]
    assert found.branches[1].head == head
    assert (found.base, found.base_commit) == ("main", stage.git(stage.repo, "rev-parse", "main"))
    stage.git(stage.repo, "checkout", "-q", "-b", "together", "main")
    (mirror,) = (stage.root / ".symphony" / "mirrors").glob("*.git")
    for name in "AB":
        stage.git(stage.repo, "pull", "-q", "--no-rebase", "--no-edit", str(mirror), f"symphony/{name}")
    assert found.tree == stage.git(stage.repo, "rev-parse", "HEAD^{tree}")


async def test_a_conflict_names_the_other_branch_the_file_and_the_lines_of_each_version(stage: Stage) -> None:
    stage.deliver("A", edit(10, "of A"))
    stage.deliver("B", lambda tree: (edit(10, "of B\nand B")(tree), edit(1, "one\ntwo\nthree")(tree)))

    found = await stage.rehearse("A", "B")
    first, second = found.branches

    assert (first.fate, second.fate) == (Fate.MERGES, Fate.CONFLICTS)
    assert (only_conflict(first).others, only_conflict(second).others) == (("B",), ("A",))
    (in_a,), (in_b,) = only_conflict(first).files, only_conflict(second).files
    assert (in_a.path, in_a.kind, in_a.lines) == (
        "src/a.py",
        ConflictKind.CONTENT,
        (LineSpan(first=10, last=10),),
    )
    assert (in_b.path, in_b.kind, in_b.lines) == (
        "src/a.py",
        ConflictKind.CONTENT,
        (LineSpan(first=12, last=13),),
    )
    assert found.tree == stage.git(stage.repo, "rev-parse", f"{first.head}^{{tree}}")


async def test_the_order_decides_which_of_two_merges(stage: Stage) -> None:
    stage.deliver("A", edit(10, "of A"))
    stage.deliver("B", edit(10, "of B"))

    assert await stage.fates("B", "A") == {"B": Fate.MERGES, "A": Fate.CONFLICTS}


async def test_a_branch_behind_a_base_that_moved_conflicts_with_the_base(stage: Stage) -> None:
    stage.deliver("A", edit(10, "of A"))
    stage.commit(edit(10, "of main"))
    stage.deliver("B", edit(20, "of B"))

    found = await stage.rehearse("A", "B")

    assert [branch.fate for branch in found.branches] == [Fate.CONFLICTS, Fate.MERGES]
    assert only_conflict(found.branches[0]).others == ()
    assert only_conflict(found.branches[0]).files[0].lines == (LineSpan(first=10, last=10),)


async def test_branches_that_conflict_only_together_are_all_named(stage: Stage) -> None:
    """C puts a file where the directory is that A's rename and B's edit need only in combination."""
    stage.commit(lambda tree: (write("d/one", NUMBERS)(tree), write("d/two", NUMBERS[::-1])(tree)))
    stage.deliver("A", lambda tree: (tree / "d").rename(tree / "e"))
    stage.deliver("B", write("d/new", "of B\n"))
    stage.deliver("C", write("e/new", "of C\n"))

    found = await stage.rehearse("A", "B", "C")

    left_out = [branch for branch in found.branches if branch.fate is Fate.CONFLICTS]
    assert left_out
    assert all(branch.conflicts for branch in left_out)


@pytest.mark.slow
async def test_three_branches_tell_of_each_pair(stage: Stage) -> None:
    stage.deliver("A", edit(10, "of A"))
    stage.deliver("B", lambda tree: (edit(10, "of B")(tree), edit(30, "of B")(tree)))
    stage.deliver("C", edit(30, "of C"))

    found = await stage.rehearse("A", "B", "C")

    assert [branch.fate for branch in found.branches] == [Fate.MERGES, Fate.CONFLICTS, Fate.MERGES]
    assert {tuple(each.others) for each in found.branches[1].conflicts} == {("A",), ("C",)}
    assert only_conflict(found.branches[2]).others == ("B",)


@pytest.mark.parametrize(
    ("before", "one", "other", "kind"),
    [
        (write("f", b"\0a"), write("f", b"\0b"), write("f", b"\0c"), ConflictKind.BINARY),
        (write("x", "x"), write("f", "of one\n"), write("f", "of other\n"), ConflictKind.ADDED),
        (
            write("f", NUMBERS),
            lambda tree: (tree / "f").unlink(),
            edit(3, "x", path="f"),
            ConflictKind.DELETED,
        ),
        (
            write("f", NUMBERS),
            lambda tree: (tree / "f").rename(tree / "g"),
            lambda tree: (tree / "f").rename(tree / "h"),
            ConflictKind.RENAMED,
        ),
        (write("x", "x"), write("f", "a file\n"), write("f/g", "in it\n"), ConflictKind.DIRECTORY),
        (
            write("f", NUMBERS),
            lambda tree: ((tree / "f").unlink(), (tree / "f").symlink_to("README.md")),
            edit(3, "x", path="f"),
            ConflictKind.MODE,
        ),
    ],
    ids=["binary", "added twice", "deleted and changed", "renamed twice", "file and directory", "modes"],
)
async def test_other_conflicts_have_a_kind_of_their_own(
    stage: Stage, before: Change, one: Change, other: Change, kind: ConflictKind
) -> None:
    stage.commit(before)
    stage.deliver("A", one)
    stage.deliver("B", other)

    found = await stage.rehearse("A", "B")

    assert [branch.fate for branch in found.branches] == [Fate.MERGES, Fate.CONFLICTS]
    assert kind in {file.kind for file in only_conflict(found.branches[1]).files}


@pytest.mark.slow
async def test_submodules_that_point_elsewhere_conflict(stage: Stage) -> None:
    def link(commit: str) -> Change:
        return lambda tree: stage.git(tree, "update-index", "--add", "--cacheinfo", f"160000,{commit},module")

    (stage.repo / ".gitignore").write_text("module\n")
    stage.commit(link("1" * 40))
    for name, commit in (("A", "2" * 40), ("B", "3" * 40)):
        stage.git(stage.repo, "checkout", "-q", "--detach", "main")
        link(commit)(stage.repo)
        stage.git(stage.repo, "commit", "-qm", name)
        (mirror,) = (stage.root / ".symphony" / "mirrors").glob("*.git")
        stage.git(stage.repo, "push", "-q", str(mirror), f"HEAD:refs/heads/symphony/{name}")
        stage.git(stage.repo, "checkout", "-qf", "main")

    found = await stage.rehearse("A", "B")

    (file,) = only_conflict(found.branches[1]).files
    assert (file.path, file.kind) == ("module", ConflictKind.SUBMODULE)


@pytest.mark.slow
async def test_what_cannot_be_merged_is_said_and_spoils_nothing(stage: Stage) -> None:
    stage.deliver("merged", edit(3, "of all"))
    stage.commit(edit(3, "of all"))
    stage.git(stage.repo, "checkout", "-q", "--orphan", "other-history")
    stage.keep("unrelated")
    stage.deliver("A", edit(10, "of A"))
    squashed = stage.deliver("squashed", edit(20, "of a pull request"))
    (mirror,) = (stage.root / ".symphony" / "mirrors").glob("*.git")
    stage.git(mirror, "update-ref", "refs/symphony/merged/symphony/squashed", squashed)

    assert await stage.fates("gone", "merged", "squashed", "unrelated", "A") == {
        "gone": Fate.GONE,
        "merged": Fate.MERGED,
        "squashed": Fate.MERGED,
        "unrelated": Fate.UNRELATED,
        "A": Fate.MERGES,
    }


async def test_a_repository_without_a_commit_is_an_error(
    make_manager: Make, git: Git, tmp_path: Path
) -> None:
    unborn = tmp_path / "unborn"
    unborn.mkdir()
    git(unborn, "init", "-q")

    with pytest.raises(WorkspaceError) as caught:
        await make_manager(repo=str(unborn)).rehearse({"A": "symphony/A"})
    assert caught.value.failure.hint == "make a first commit in it"


@pytest.mark.slow
async def test_a_base_that_moves_during_the_rehearsal_is_rehearsed_once_more(
    stage: Stage, make_manager: Make, tmp_path: Path
) -> None:
    """Git itself moves the base, the first time that branches are merged."""
    stage.deliver("A", edit(3, "of A"))
    moved = stage.git(stage.repo, "commit-tree", "-p", "main", "-m", "moved", "main^{tree}")
    ref, tools, real = stage.repo / ".git/refs/heads/main", tmp_path / "bin", shutil.which("git")
    tools.mkdir()
    (tools / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *merge-tree*) echo {moved} > "{ref}";; esac\nexec {real} "$@"\n'
    )
    (tools / "git").chmod(0o755)
    manager = make_manager(
        repo=str(stage.repo), environment={"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    )

    found = await manager.rehearse({"A": "symphony/A"})

    assert found is not None
    assert (found.moved, found.base_commit, found.branches[0].fate) == (True, moved, Fate.MERGES)


@pytest.mark.slow
async def test_an_old_git_is_named_with_what_to_install(
    stage: Stage, make_manager: Make, tmp_path: Path
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "git").write_text("#!/bin/sh\necho git version 2.34.1\n")
    (tools / "git").chmod(0o755)
    manager = make_manager(repo=str(stage.repo), environment={"PATH": f"{tools}:{os.environ['PATH']}"})

    with pytest.raises(WorkspaceError) as caught:
        await manager.rehearse({"A": "symphony/A"})
    assert caught.value.failure.hint == "install git 2.39 or newer"


async def test_no_program_that_attributes_or_configurations_name_is_run(
    stage: Stage, environment: dict[str, str], tmp_path: Path
) -> None:
    """Merge drivers, filters and text conversions are in the user's and the repository's configuration."""
    trap = tmp_path / "trapped"
    settings = "".join(
        f'[{section} "trap"]\n\t{key} = touch {trap}\n'
        for section, key in (
            ("merge", "driver"),
            ("filter", "clean"),
            ("filter", "smudge"),
            ("diff", "textconv"),
            ("diff", "command"),
        )
    )
    for where, name in ((environment["HOME"], ".gitconfig"), (stage.repo, ".git/more")):
        write(name, settings)(Path(where))
    stage.git(stage.repo, "config", "include.path", "more")
    stage.commit(write(".gitattributes", "src/a.py merge=trap filter=trap diff=trap\n"))
    trap.unlink(missing_ok=True)  # the checkouts of a person run it
    attributes = "* merge=trap filter=trap diff=trap\n"
    stage.deliver("A", lambda tree: (edit(10, "of A")(tree), write("src/.gitattributes", attributes)(tree)))
    stage.deliver("B", edit(10, "of B"))
    trap.unlink(missing_ok=True)

    assert await stage.fates("A", "B") == {"A": Fate.MERGES, "B": Fate.CONFLICTS}
    assert not trap.exists()


@pytest.mark.slow
async def test_a_file_that_the_base_merges_as_a_union_is_no_conflict(stage: Stage) -> None:
    stage.commit(
        lambda tree: (write(".gitattributes", "NEWS merge=union\n")(tree), write("NEWS", "old\n")(tree))
    )
    stage.deliver("A", write("NEWS", "of A\nold\n"))
    stage.deliver("B", write("NEWS", "of B\nold\n"))

    assert await stage.fates("A", "B") == {"A": Fate.MERGES, "B": Fate.MERGES}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"two\nlines", "two\nlines"),
        (b"\xe2\x80\xaetxt.exe", "\u202etxt.exe"),
        (b"\xff\xfe", "\\xff\\xfe"),
        (b" missing", " missing"),
        (b'quo"ted\ttab', 'quo"ted\ttab'),
    ],
    ids=["newline", "bidi", "not UTF-8", "git's words", "quoted"],
)
async def test_file_names_of_any_bytes_are_told_with_their_lines(
    stage: Stage, name: bytes, shown: str
) -> None:
    path = os.fsdecode(name)
    stage.commit(write(path, NUMBERS))
    stage.deliver("A", edit(5, "of A", path=path))
    stage.deliver("B", edit(5, "of B", path=path))

    found = await stage.rehearse("A", "B")

    (file,) = only_conflict(found.branches[1]).files
    assert (file.path, file.lines) == (shown, (LineSpan(first=5, last=5),))


async def test_nothing_is_left_in_the_mirror_the_root_or_the_repository(stage: Stage) -> None:
    stage.deliver("A", edit(10, "of A"))
    stage.deliver("B", edit(10, "of B"))
    await stage.rehearse("A", "B")
    before = {path for place in (stage.root, stage.repo) for path in place.rglob("*")}

    await stage.rehearse("A", "B")

    assert {path for place in (stage.root, stage.repo) for path in place.rglob("*")} == before


@pytest.mark.slow
async def test_more_conflicts_than_are_shown_are_counted(stage: Stage) -> None:
    def change(text: str) -> Change:
        return lambda tree: [write(f"f{number}", text)(tree) for number in range(30)]

    stage.deliver("A", change("of A\n"))
    stage.deliver("B", change("of B\n"))

    conflict = only_conflict((await stage.rehearse("A", "B")).branches[1])

    assert (len(conflict.files), conflict.files_left_out) == (20, 10)


@pytest.mark.slow
async def test_50_branches_of_20_000_files_take_no_longer_than_some_merges(stage: Stage) -> None:
    """A merge in a checkout is the measure where the machine is loaded: that slows both."""
    main = stage.git(stage.repo, "rev-parse", "main")
    names = [f"N-{number}" for number in range(50)]
    stream = [f"commit refs/heads/large\ncommitter a <a@b> 1 +0000\ndata 1\nb\nfrom {main}\n"]
    stream += [f"M 100644 inline p{n % 100}/q{n % 7}/f{n}\ndata 2\nx\n\n" for n in range(20_000)]
    for place, name in enumerate(names):
        lines = NUMBERS.splitlines()
        lines[place // 2 % 20 * 2] = f"of {name}"
        text = "\n".join(lines) + "\n"
        stream.append(f"commit refs/heads/{name}\ncommitter a <a@b> 1 +0000\ndata 1\nn\n")
        stream.append(f"from refs/heads/large\nM 100644 inline src/a.py\ndata {len(text)}\n{text}\n")
    write("stream", "".join(stream))(stage.repo)
    stage.git(stage.repo, "-c", "alias.load=!git fast-import --quiet < stream", "load")
    (mirror,) = (stage.root / ".symphony" / "mirrors").glob("*.git")
    refs = [f"{name}:refs/heads/symphony/{name}" for name in names]
    stage.git(stage.repo, "push", "-q", str(mirror), *refs)
    stage.git(stage.repo, "reset", "-q", "--hard", "large")
    await stage.rehearse(*names)  # fetches the base

    began = time.monotonic()
    found = await stage.rehearse(*names)
    took_s = time.monotonic() - began

    stage.git(stage.repo, "checkout", "-q", "--detach", "main")
    began = time.monotonic()
    stage.git(stage.repo, "merge", "-q", "--no-ff", "--no-edit", "N-0")
    one_merge_s = time.monotonic() - began
    fates = [branch.fate for branch in found.branches]
    assert fates.count(Fate.MERGES) == 20
    assert fates.count(Fate.CONFLICTS) == 30
    assert took_s < max(60, 50 * one_merge_s), (took_s, one_merge_s)
