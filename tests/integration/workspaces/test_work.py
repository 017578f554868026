"""What keeps a workspace whose issue is over, and what does not. Each case stands beside its neighbour."""

import re
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from harness.workspaces import delivered_branch
from symphony.config import HooksSettings
from symphony.domain import Issue
from symphony.workspaces import Removal, Workspace, WorkspaceManager

pytestmark = pytest.mark.asyncio

Make = Callable[..., WorkspaceManager]
MakeIssue = Callable[[str], Issue]
Git = Callable[..., str]


async def _made(make_manager: Make, repo: Path, issue: MakeIssue) -> tuple[WorkspaceManager, Workspace]:
    manager = make_manager(repo=str(repo))
    return manager, await manager.prepare(issue("MT-1"), None)


async def _removal(manager: WorkspaceManager) -> Removal:
    (record,) = await manager.records()
    return await manager.remove(record)


async def _kept(manager: WorkspaceManager, made: Workspace) -> str:
    """Why the workspace is kept; the command that shows it runs, and the surfaces have both."""
    removal = await _removal(manager)
    assert not removal.removed
    assert made.path.exists()
    (kept,) = await to_thread.run_sync(manager.kept)
    assert (kept.identifier, kept.path, kept.reason) == ("MT-1", made.path, removal.kept_reason)
    assert kept.look is not None
    shown = await anyio.run_process(shlex.split(kept.look), check=False)
    assert shown.returncode == 0, shown.stderr
    return removal.kept_reason or ""


def _commit(git: Git, where: Path, name: str) -> str:
    (where / name).write_text(f"{name}\n")
    git(where, "add", "-f", name)
    git(where, "commit", "-qm", name)
    return git(where, "rev-parse", "HEAD")


# --- linked worktrees ---


@pytest.mark.parametrize("left", ["commit", "file", "staged", "commit without its directory"])
async def test_work_in_an_ignored_worktree_keeps_the_workspace(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git, left: str
) -> None:
    manager, made = await _made(make_manager, repo, issue)
    git(made.path, "worktree", "add", "-q", "--detach", "ignored/w")
    worktree = made.path / "ignored/w"
    if left.startswith("commit"):
        _commit(git, worktree, "s.txt")
    else:
        (worktree / "s.txt").write_text("s\n")
        if left == "staged":
            git(worktree, "add", "s.txt")
    if left.endswith("directory"):
        await anyio.run_process(["rm", "-r", str(worktree)])

    assert "worktree" in await _kept(manager, made)


async def test_a_worktree_without_work_does_not_keep_it(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git
) -> None:
    manager, made = await _made(make_manager, repo, issue)
    _commit(git, made.path, "b.txt")
    git(made.path, "worktree", "add", "-q", "--detach", "ignored/clean")
    git(made.path, "worktree", "add", "-q", "-b", "gone", "ignored/gone")
    await anyio.run_process(["rm", "-r", str(made.path / "ignored/gone")])

    assert await _removal(manager) == Removal(removed=True)


async def test_a_worktree_outside_needs_the_repository(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git, tmp_path: Path
) -> None:
    manager, made = await _made(make_manager, repo, issue)
    git(made.path, "worktree", "add", "-q", "--detach", str(tmp_path / "outside"))

    assert str(tmp_path / "outside") in await _kept(manager, made)


# --- refs ---


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["tag", "v9"], "v9"),
        (["tag", "-a", "-m", "signed off", "v9"], "v9"),
        (["notes", "add", "-m", "a note"], "notes/commits"),
        (["update-ref", "refs/codex/snapshot", "SIDE"], "codex/snapshot"),
        (["branch", "side", "SIDE"], "side"),
        (["checkout", "-q", "SIDE"], "HEAD"),
        (["tag", "on-the-side", "SIDE"], "on-the-side"),
    ],
)
async def test_a_ref_that_the_repository_does_not_have_keeps_it(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git, command: list[str], named: str
) -> None:
    manager, made = await _made(make_manager, repo, issue)
    _commit(git, made.path, "delivered.txt")
    await manager.deliver(made)
    git(made.path, "checkout", "-q", "--detach", "HEAD~1")
    side = _commit(git, made.path, "side.txt")
    git(made.path, "checkout", "-q", "symphony/MT-1")
    git(made.path, *(side if word == "SIDE" else word for word in command))

    assert named in await _kept(manager, made)


async def test_what_came_with_the_clone_and_the_reflog_are_no_work(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git
) -> None:
    git(repo, "tag", "v1")
    git(repo, "tag", "-a", "-m", "two", "v2")
    git(repo, "branch", "other")
    manager, made = await _made(make_manager, repo, issue)
    _commit(git, made.path, "b.txt")
    (made.path / "b.txt").write_text("amended\n")
    git(made.path, "commit", "-qa", "--amend", "-m", "amended")  # the first one is in the reflog only
    git(made.path, "branch", "mine")
    git(repo, "tag", "v3")
    git(made.path, "fetch", "-q", "--tags")
    git(made.path, "gc", "-q")

    assert await _removal(manager) == Removal(removed=True)


@pytest.mark.parametrize("state", ["merge", "rebase", "bisect"])
async def test_an_operation_in_progress_keeps_it(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git, state: str
) -> None:
    manager, made = await _made(make_manager, repo, issue)
    git(made.path, "checkout", "-q", "-b", "side")
    _commit(git, made.path, "side.txt")
    git(made.path, "checkout", "-q", "symphony/MT-1")
    _commit(git, made.path, "b.txt")
    match state:
        case "merge":
            git(made.path, "merge", "-q", "-s", "ours", "--no-commit", "side")
        case "rebase":
            git(made.path, "-c", "sequence.editor=sed -i 1ibreak", "rebase", "-q", "-i", "HEAD~1")
        case _:
            git(made.path, "bisect", "start")

    assert "in progress" in await _kept(manager, made)


# --- nested repositories ---


@pytest.mark.parametrize("left", ["commit", "file", "unborn", "bare", "clone of the workspace"])
async def test_work_in_an_ignored_nested_repository_keeps_it(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git, left: str
) -> None:
    manager, made = await _made(make_manager, repo, issue)
    nested = made.path / "ignored/nested"
    nested.mkdir(parents=True)
    match left:
        case "bare":
            git(made.path, "checkout", "-q", "-b", "side")
            _commit(git, made.path, "side.txt")
            git(made.path, "checkout", "-q", "symphony/MT-1")
            git(nested, "init", "-q", "--bare")
            git(made.path, "push", "-q", str(nested), "side")
            git(made.path, "branch", "-qD", "side")
        case "clone of the workspace":
            git(made.path, "checkout", "-q", "-b", "side")
            _commit(git, made.path, "side.txt")
            git(nested, "clone", "-q", str(made.path), ".")
            git(made.path, "checkout", "-q", "symphony/MT-1")
            git(made.path, "branch", "-qD", "side")
        case _:
            git(nested, "init", "-q")
            if left != "unborn":
                _commit(git, nested, "inside.txt")
            if left != "commit":
                (nested / "draft.txt").write_text("draft\n")

    assert "ignored/nested" in await _kept(manager, made)


async def test_a_clean_clone_of_something_else_is_no_work(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git, tmp_path: Path
) -> None:
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q", "-b", "main")
    for number in range(3):
        _commit(git, library, f"{number}.txt")
    git(library, "tag", "-a", "-m", "one", "v1", "HEAD~1")
    manager, made = await _made(make_manager, repo, issue)
    (made.path / "ignored").mkdir()
    git(made.path, "clone", "-q", str(library), "ignored/library")
    git(made.path, "clone", "-q", "--depth", "1", f"file://{library}", "ignored/shallow")
    git(made.path, "clone", "-q", str(made.path), "ignored/copy")

    assert await _removal(manager) == Removal(removed=True)


async def test_the_commits_of_a_submodule_are_work_and_a_submodule_is_none(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git, tmp_path: Path
) -> None:
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q", "-b", "main")
    _commit(git, library, "lib.txt")
    allow = ("-c", "protocol.file.allow=always")
    git(repo, *allow, "submodule", "--quiet", "add", str(library), "lib")
    git(repo, "commit", "-qm", "a submodule")
    manager, made = await _made(make_manager, repo, issue)
    git(made.path, *allow, "submodule", "--quiet", "update", "--init")

    _commit(git, made.path / "lib", "mine.txt")
    git(made.path, "commit", "-qam", "use it")
    kept = await _kept(manager, made)
    git(made.path / "lib", "push", "-q", "origin", "HEAD:refs/heads/mine")

    assert kept.startswith("lib: commits on HEAD")
    assert await _removal(manager) == Removal(removed=True)


@pytest.mark.slow
async def test_repositories_that_a_hook_cloned_side_by_side_are_looked_at(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git
) -> None:
    git(repo, "tag", "off", git(repo, "commit-tree", "-m", "off the branches", "HEAD^{tree}"))
    script = f"git clone -q {shlex.quote(str(repo))} one && git clone -q {shlex.quote(str(repo))} two"
    manager = make_manager(hooks=HooksSettings(after_create=script))
    made = await manager.prepare(issue("MT-1"), None)
    _commit(git, made.path / "two", "b.txt")

    assert "two: commits on" in await _kept(manager, made)


@pytest.mark.slow
async def test_the_tags_of_a_clone_that_a_hook_made_are_no_work(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git
) -> None:
    git(repo, "tag", "off", git(repo, "commit-tree", "-m", "off the branches", "HEAD^{tree}"))
    manager = make_manager(hooks=HooksSettings(after_create=f"git clone -q {shlex.quote(str(repo))} ."))
    made = await manager.prepare(issue("MT-1"), None)
    git(made.path, "tag", "mine")

    assert "1 tag" in await _kept(manager, made)
    git(made.path, "tag", "-d", "mine")
    assert await _removal(manager) == Removal(removed=True)


# --- bad input ---


@pytest.mark.slow
async def test_ten_thousand_tags_and_a_large_stash_are_looked_at_quickly(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git
) -> None:
    manager, made = await _made(make_manager, repo, issue)
    head = git(made.path, "rev-parse", "HEAD")
    with (made.path / ".git/packed-refs").open("a") as packed:
        packed.writelines(f"{head} refs/tags/t{number}\n" for number in range(10_000))
    with (made.path / "README.md").open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    git(made.path, "stash", "-q")

    began = time.monotonic()
    kept = await _kept(manager, made)

    assert time.monotonic() - began < 120
    assert "10000 tags" in kept
    assert "a stash" in kept


async def test_a_hostile_nested_repository_runs_nothing_and_is_named(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git, tmp_path: Path
) -> None:
    manager, made = await _made(make_manager, repo, issue)
    nested = made.path / "ignored/nested"
    nested.mkdir(parents=True)
    git(nested, "init", "-q")
    _commit(git, nested, "inside.txt")
    trap = f"touch {tmp_path}/sprung; false"
    with (nested / ".git/config").open("a") as config:
        config.write(
            f'[core]\n\tfsmonitor = "{trap}"\n\tpager = "{trap}"\n\tsshCommand = "{trap}"\n'
            f'[filter "f"]\n\tclean = "{trap}"\n\tprocess = "{trap}"\n[diff "f"]\n\ttextconv = "{trap}"\n'
        )
    (nested / ".gitattributes").write_text("* filter=f diff=f\n")
    (nested / ".git/objects/info/alternates").write_text(f"{tmp_path}/elsewhere\n/\n")
    (nested / "inside.txt").write_text("changed\n")

    removal = await _removal(manager)

    assert "ignored/nested: " in (removal.kept_reason or "")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.slow
async def test_objects_that_are_borrowed_from_elsewhere_are_not_looked_for(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q", "-b", "main")
    _commit(git, other, "other.txt")
    manager, made = await _made(make_manager, repo, issue)
    (made.path / "ignored").mkdir()
    git(made.path, "clone", "-q", "--shared", str(other), "ignored/shared")
    git(made.path / "ignored/shared", "commit", "-q", "--allow-empty", "-m", "mine")

    removal = await _removal(manager)

    assert "ignored/shared: its repository cannot be inspected" in (removal.kept_reason or "")


async def test_a_workspace_that_is_worked_on_again_is_not_listed_as_kept(
    make_manager: Make, repo: Path, issue: MakeIssue
) -> None:
    manager, made = await _made(make_manager, repo, issue)
    (made.path / "draft").write_text("draft\n")
    await _kept(manager, made)

    await manager.prepare(issue("MT-1"), 1)

    assert await to_thread.run_sync(manager.kept) == ()


# --- what is asked of git ---


@pytest.fixture
def asked(environment: dict[str, str], tmp_path: Path) -> Callable[[], list[str]]:
    """The subcommands of git since the last call, of managers that are made from now on."""
    log, program = tmp_path / "asked.txt", tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >>{shlex.quote(str(log))}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    environment["PATH"] = f"{program.parent}:{environment['PATH']}"

    def since() -> list[str]:
        text = log.read_text() if log.exists() else ""
        log.write_text("")
        return re.findall(r"(?m) (status|config|fetch)(?= |$)", text)

    return since


async def test_a_clean_checkout_is_looked_at_once(
    make_manager: Make, repo: Path, issue: MakeIssue, asked: Callable[[], list[str]]
) -> None:
    manager, made = await _made(make_manager, repo, issue)
    mark = await manager.progress(made)
    asked()

    delivery = await manager.deliver(made, clean=mark.clean)

    assert mark.clean
    assert (delivery.left, delivery.failure, asked()) == (None, None, [])
    assert await _removal(manager) == Removal(removed=True)
    assert asked() == ["status"]


async def test_settings_of_git_are_read_for_what_is_not_clean(
    make_manager: Make, repo: Path, issue: MakeIssue, asked: Callable[[], list[str]]
) -> None:
    manager, made = await _made(make_manager, repo, issue)
    (made.path / "draft").write_text("draft\n")
    mark = await manager.progress(made)
    asked()

    delivery = await manager.deliver(made, clean=mark.clean)

    assert not mark.clean
    assert delivery.left is not None
    assert {"status", "config"} == set(asked())


# --- what the user's own `git status` calls clean ---


@pytest.mark.slow
@pytest.mark.parametrize("where", ["global", "repository", "workspace"])
async def test_what_the_users_excludes_name_is_no_work(  # the fixtures
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git, tmp_path: Path, where: str
) -> None:
    (tmp_path / "excludes").write_text("*.swp\n")
    setting = ("core.excludesFile", str(tmp_path / "excludes"))
    if where == "global":
        git(repo, "config", "--global", *setting)
    if where == "repository":
        git(repo, "config", *setting)
    manager, made = await _made(make_manager, repo, issue)
    if where == "workspace":
        git(made.path, "config", *setting)
    (made.path / "x.swp").write_text("swap\n")
    (made.path / "kept.txt").write_text("work\n")

    assert await _kept(manager, made) == "1 uncommitted or untracked file(s)"
    (made.path / "kept.txt").unlink()
    assert await _removal(manager) == Removal(removed=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting",
    [
        ("core.autocrlf", "true"),
        ("core.autocrlf", "input"),
        ("core.eol", "crlf"),
        ("core.splitIndex", "true"),
    ],
)
@pytest.mark.parametrize("where", ["global", "workspace"])
async def test_line_endings_and_a_split_index_are_no_work(  # the fixtures
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git, setting: tuple[str, str], where: str
) -> None:
    (repo / ".gitattributes").write_text("*.py text=auto\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "attributes")
    if where == "global":
        git(repo, "config", "--global", *setting)
    manager, made = await _made(make_manager, repo, issue)
    git(made.path, "config", *setting)
    (made.path / "src/app.py").unlink()
    git(made.path, "checkout", "-q", "src/app.py")
    _commit(git, made.path, "b.txt")
    assert git(made.path, "status", "--porcelain") == ""

    (made.path / "src/app.py").write_text("print('changed')\n")
    assert await _kept(manager, made) == "1 uncommitted or untracked file(s)"
    git(made.path, "checkout", "-q", "src/app.py")
    assert await _removal(manager) == Removal(removed=True)


async def _filtered(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git
) -> tuple[WorkspaceManager, Workspace]:
    """A workspace in which a hook sets up a filter of the repository; an agent commits."""
    (repo / ".gitattributes").write_text("*.secret filter=crypt\n")
    (repo / "a.secret").write_text("hello\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "Secrets")
    manager, made = await _made(make_manager, repo, issue)
    for name, command in (("clean", "tr a-z n-za-m"), ("smudge", "tr n-za-m a-z")):
        git(made.path, "config", f"filter.crypt.{name}", command)
    (made.path / "a.secret").unlink()
    git(made.path, "checkout", "a.secret")
    (made.path / "a.secret").write_text("agents write this\n")
    git(made.path, "commit", "-qam", "A secret")
    return manager, made


@pytest.mark.slow
async def test_a_file_of_a_filter_that_git_calls_unchanged_is_no_work(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git
) -> None:
    manager, made = await _filtered(make_manager, repo, issue, git)
    assert git(made.path, "status", "--porcelain") == ""

    assert await _removal(manager) == Removal(removed=True)


@pytest.mark.parametrize("text", ["agents wrote this\n", "another length\n"])
async def test_a_file_of_a_filter_that_was_edited_is_work(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git, text: str
) -> None:
    manager, made = await _filtered(make_manager, repo, issue, git)
    await anyio.sleep(0.05)  # the clock of files ticks every few milliseconds
    (made.path / "a.secret").write_text(text)

    assert "uncommitted" in await _kept(manager, made)


@pytest.mark.slow
async def test_a_status_that_hides_untracked_files_does_not_make_a_workspace_clean(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git
) -> None:
    git(repo, "config", "--global", "status.showUntrackedFiles", "no")
    manager, made = await _made(make_manager, repo, issue)
    (made.path / "draft").write_text("draft\n")
    assert git(made.path, "status", "--porcelain") == ""

    assert await _kept(manager, made) == "1 uncommitted or untracked file(s)"


# --- commits, links and identifiers ---


@pytest.mark.slow
async def test_the_commits_of_a_workspace_that_a_hook_filled_are_counted(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git
) -> None:
    manager = make_manager(hooks=HooksSettings(after_create=f"git clone -q {shlex.quote(str(repo))} ."))
    made = await manager.prepare(issue("MT-1"), None)
    assert (await manager.deliver(made)).work.commits == 0
    _commit(git, made.path, "a.txt")
    _commit(git, made.path, "b.txt")

    assert (await manager.deliver(made)).work.commits == 2


@pytest.mark.slow
async def test_an_embedded_repository_is_delivered_with_a_warning(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git, tmp_path: Path
) -> None:
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q", "-b", "main")
    _commit(git, library, "lib.txt")
    manager, made = await _made(make_manager, repo, issue)
    allow = ("-c", "protocol.file.allow=always")
    git(made.path, *allow, "submodule", "--quiet", "add", str(library), "proper")
    git(made.path, "commit", "-qm", "a submodule")
    before = (await manager.deliver(made)).warnings
    assert not [line for line in before if "proper" in line], "a submodule that is recorded is none"

    git(made.path, "clone", "-q", str(library), "embedded")
    git(made.path, "-c", "advice.addEmbeddedRepo=false", "add", "embedded")
    git(made.path, "commit", "-qm", "a link")

    (warning,) = set((await manager.deliver(made)).warnings) - set(before)
    assert warning.startswith("embedded: ")


async def test_an_issue_keeps_its_workspace_when_its_identifier_changes(
    make_manager: Make, repo: Path, issue: MakeIssue, git: Git
) -> None:
    manager, made = await _made(make_manager, repo, issue)
    _commit(git, made.path, "b.txt")
    moved = replace(issue("MT-1"), identifier="OPS-9")

    again = await manager.prepare(moved, 1)
    delivery = await manager.deliver(again)
    other = await manager.prepare(issue("OPS-9"), None)
    reused = await manager.prepare(replace(issue("MT-1"), id="a second issue"), None)

    assert (again.path, again.branch, again.created_now) == (made.path, "symphony/MT-1", False)
    assert (delivered_branch(delivery).branch, delivery.work.commits) == ("symphony/MT-1", 1)
    assert (await manager.locate(moved.id, "OPS-9")).path == made.path
    assert len({made.path, other.path, reused.path}) == 3, "other issues have workspaces of their own"
    assert reused.branch != made.branch


@pytest.mark.slow
async def test_a_signature_is_tried_where_commits_are_signed(
    make_manager: Make, repo: Path, git: Git, tmp_path: Path
) -> None:
    assert await make_manager(repo=str(repo)).check_signing() is None
    program = tmp_path / "sign"
    program.write_text("#!/bin/sh\necho no secret key >&2\nexit 1\n")
    program.chmod(0o755)
    git(repo, "config", "gpg.program", str(program))
    assert await make_manager(repo=str(repo)).check_signing() is None, "nothing is signed"

    git(repo, "config", "commit.gpgSign", "true")
    failure = await make_manager(repo=str(repo)).check_signing()
    program.write_text("#!/bin/sh\necho '[GNUPG:] SIG_CREATED ' >&2\ncat >/dev/null\necho signature\n")
    works = await make_manager(repo=str(repo)).check_signing()

    assert failure is not None
    assert "signature" in failure.message
    assert works is None


@pytest.mark.slow
async def test_a_repository_with_sha256_takes_branches_without_a_warning(
    make_manager: Make, git: Git, tmp_path: Path
) -> None:
    origin = tmp_path / "origin.git"
    seed = tmp_path / "seed"
    git(tmp_path, "init", "-q", "-b", "main", "--object-format=sha256", str(seed))
    _commit(git, seed, "a.txt")
    git(tmp_path, "clone", "-q", "--bare", str(seed), str(origin))

    assert await make_manager(repo=f"file://{origin}", push="origin").check_push() is None
