import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.shell import word
from harness.workspaces import delivered_branch
from symphony.domain import Category, DeliveredBranch, FileChange, Issue, WorkSize
from symphony.workspaces import Delivery, Work, Workspace, WorkspaceManager

pytestmark = pytest.mark.asyncio

Make = Callable[..., WorkspaceManager]
Git = Callable[..., str]
MakeIssue = Callable[[str], Issue]


@pytest.fixture
def commit(git: Git) -> Callable[[Path, str], str]:
    """Commit a new file named after the message; returns the commit."""

    def make(where: Path, message: str) -> str:
        (where / f"{message}.txt").write_text(f"{message}\n")
        git(where, "add", "-A")
        git(where, "commit", "-qm", message)
        return git(where, "rev-parse", "HEAD")

    return make


Commit = Callable[[Path, str], str]


def added(head: str, *messages: str) -> Delivery:
    """The delivery of the branch with these commits of `commit`."""
    files = tuple(FileChange(path=f"{name}.txt", insertions=1, deletions=0) for name in messages)
    work = WorkSize.of(len(messages), files)
    delivered = DeliveredBranch(branch="symphony/MT-1", head=head, work=work)
    return Delivery(head=head, work=work, files=files, delivered=delivered)


@pytest.fixture
def mirror(root: Path) -> Callable[[], Path]:
    return lambda: next((root / ".symphony" / "mirrors").glob("*.git"))


@pytest.fixture
def bare(tmp_path: Path, repo: Path, git: Git) -> str:
    """The same project behind an address instead of a path."""
    git(tmp_path, "clone", "-q", "--bare", str(repo), "bare.git")
    return f"file://{tmp_path}/bare.git"


async def test_commits_reach_the_mirror_and_the_local_repository(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, commit: Commit, mirror: Callable[[], Path]
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    commit(made.path, "one")
    head = commit(made.path, "two")

    delivery = await manager.deliver(made)

    assert delivery == added(head, "one", "two")
    assert delivery.work == WorkSize(commits=2, files_changed=2, insertions=2)
    assert git(repo, "rev-parse", "symphony/MT-1") == head
    assert git(mirror(), "rev-parse", "symphony/MT-1") == head
    assert git(repo, "branch", "--show-current") == "main"
    assert git(repo, "status", "--porcelain") == ""


async def test_the_patch_of_a_delivered_branch_is_bounded_and_runs_no_program(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, tmp_path: Path, environment: dict[str, str]
) -> None:
    canary = tmp_path / "canary"
    for setting in ("diff.trap.textconv", "diff.trap.command", "diff.external"):
        git(
            repo,
            "config",
            "--file",
            f"{environment['HOME']}/.gitconfig",
            setting,
            f"touch {word(canary)}; cat",
        )
    manager = make_manager(repo=str(repo))
    assert await manager.patch("MT-1", max_bytes=1_000) is None
    made = await manager.prepare(issue("MT-1"), None)
    (made.path / ".gitattributes").write_text("* diff=trap\n")
    (made.path / "README.md").write_text("goodbye\n")
    (made.path / "huge.txt").write_text("line\n" * 300_000)
    git(made.path, "add", "-A")
    git(made.path, "commit", "--no-verify", "-qm", "one")
    assert await manager.patch("MT-1", max_bytes=1_000) is None
    await manager.deliver(made)

    patch = await manager.patch("MT-1", max_bytes=100_000)

    assert patch is not None
    assert patch.branch == "symphony/MT-1"
    assert b"\n-hello\n+goodbye\n" in patch.content
    assert b"Binary files /dev/null and huge.txt differ" in patch.content
    short = await manager.patch("MT-1", max_bytes=100)
    assert short is not None
    assert short.content == patch.content[:100]
    assert not canary.exists()


async def test_a_second_delivery_brings_the_rest_and_a_third_changes_nothing(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, commit: Commit
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    commit(made.path, "one")
    await manager.deliver(made)
    head = commit(made.path, "two")

    second = await manager.deliver(made)

    assert (second.head, second.work.commits, second.warnings) == (head, 2, ())
    assert git(repo, "rev-parse", "symphony/MT-1") == head
    assert await manager.deliver(made) == second


async def test_without_a_commit_no_branch_is_made(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    (made.path / "draft.txt").write_text("not committed\n")

    delivery = await manager.deliver(made)

    left = Work(
        reason="1 uncommitted or untracked file(s)", look=shlex.join(["git", "-C", str(made.path), "status"])
    )
    assert delivery == Delivery(head=made.base_commit, left=left)
    assert git(repo, "branch", "--list", "symphony/*") == ""


async def test_a_rewritten_branch_replaces_what_we_delivered_before(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, commit: Commit
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    commit(made.path, "one")
    await manager.deliver(made)
    git(made.path, "commit", "-q", "--amend", "-m", "better")

    delivery = await manager.deliver(made)

    assert delivery.warnings == ()
    assert git(repo, "log", "-1", "--format=%s", "symphony/MT-1") == "better"


async def test_a_commit_of_somebody_else_on_the_branch_is_never_overwritten(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, commit: Commit
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    commit(made.path, "one")
    await manager.deliver(made)
    git(repo, "checkout", "-q", "symphony/MT-1")
    theirs = commit(repo, "review")
    git(repo, "checkout", "-q", "main")
    ours = commit(made.path, "two")

    delivery = await manager.deliver(made)

    assert git(repo, "rev-parse", "symphony/MT-1") == theirs
    assert delivered_branch(delivery).head == ours
    failure = delivered_branch(delivery).branch_failure
    assert failure is not None
    assert (failure.category, failure.retryable) == (Category.BRANCH_NOT_PLACED, True)
    assert "someone else" in (failure.hint or "")


async def test_a_branch_that_is_checked_out_in_the_repository_is_left_alone(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, commit: Commit
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    first = commit(made.path, "one")
    await manager.deliver(made)
    git(repo, "checkout", "-q", "symphony/MT-1")
    second = commit(made.path, "two")

    delivery = await manager.deliver(made)

    assert git(repo, "rev-parse", "symphony/MT-1") == first
    failure = delivered_branch(delivery).branch_failure
    assert failure is not None
    assert "checked out" in failure.message
    git(repo, "checkout", "-q", "main")
    assert await manager.place("symphony/MT-1") is None
    assert git(repo, "rev-parse", "symphony/MT-1") == second


async def test_work_on_a_branch_of_the_agents_own_is_delivered_as_the_issues_branch(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, commit: Commit
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    git(made.path, "checkout", "-q", "-b", "fix/it")
    head = commit(made.path, "one")

    delivery = await manager.deliver(made)

    assert git(repo, "rev-parse", "symphony/MT-1") == head
    assert delivery.warnings == ("the work was on fix/it; delivered as symphony/MT-1",)


async def test_a_renamed_branch_is_delivered_too(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, commit: Commit
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    head = commit(made.path, "one")
    git(made.path, "checkout", "-q", "--detach")
    git(made.path, "branch", "-D", "symphony/MT-1")

    delivery = await manager.deliver(made)

    assert git(repo, "rev-parse", "symphony/MT-1") == head
    assert delivery.warnings[-1] == "the work was on a detached HEAD; delivered as symphony/MT-1"


async def test_a_head_that_does_not_go_on_from_the_branch_is_told(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, commit: Commit
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    on_branch = commit(made.path, "one")
    git(made.path, "checkout", "-q", "-b", "other", "origin/main")
    commit(made.path, "elsewhere")

    delivery = await manager.deliver(made)

    assert delivery.head == git(repo, "rev-parse", "symphony/MT-1") == on_branch
    assert (
        delivery.warnings[-1] == "other does not go on from symphony/MT-1; only symphony/MT-1 was delivered"
    )


async def test_packed_refs_and_packed_objects_are_delivered(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, commit: Commit
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    head = commit(made.path, "one")
    git(made.path, "gc", "-q", "--prune=now")

    assert (await manager.deliver(made)).warnings == ()
    assert git(repo, "rev-parse", "symphony/MT-1") == head


async def test_an_address_gets_a_push_only_when_asked(
    make_manager: Make, git: Git, bare: str, tmp_path: Path, issue: MakeIssue, commit: Commit
) -> None:
    quiet = make_manager(repo=bare)
    made = await quiet.prepare(issue("MT-1"), None)
    head = commit(made.path, "one")

    assert await quiet.deliver(made) == added(head, "one")
    assert git(tmp_path / "bare.git", "branch", "--list", "symphony/*") == ""

    pushing = make_manager(repo=bare, push="origin")
    assert delivered_branch(await pushing.deliver(made)).to_push
    assert await pushing.push("symphony/MT-1") is None
    assert git(tmp_path / "bare.git", "rev-parse", "symphony/MT-1") == head
    assert delivered_branch(await pushing.deliver(made)).pushed


async def test_a_push_replaces_only_what_we_pushed(
    make_manager: Make, git: Git, bare: str, tmp_path: Path, repo: Path, issue: MakeIssue, commit: Commit
) -> None:
    manager = make_manager(repo=bare, push="origin")
    made = await manager.prepare(issue("MT-1"), None)
    commit(made.path, "one")
    await manager.deliver(made)
    assert await manager.push("symphony/MT-1") is None
    git(made.path, "commit", "-q", "--amend", "-m", "better")
    assert delivered_branch(await manager.deliver(made)).to_push
    assert await manager.push("symphony/MT-1") is None
    assert git(tmp_path / "bare.git", "log", "-1", "--format=%s", "symphony/MT-1") == "better"

    theirs = commit(repo, "theirs")
    git(repo, "push", "-q", "--force", str(tmp_path / "bare.git"), "main:symphony/MT-1")
    git(made.path, "commit", "-q", "--amend", "-m", "best")
    delivery = await manager.deliver(made)

    failure = await manager.push("symphony/MT-1")
    assert not delivered_branch(delivery).pushed
    assert failure is not None
    assert failure.category is Category.PUSH_FAILED
    assert "someone else" in (failure.hint or "")
    assert git(tmp_path / "bare.git", "rev-parse", "symphony/MT-1") == theirs


async def test_an_unreachable_origin_is_a_warning_and_the_mirror_has_the_work(
    make_manager: Make,
    bare: str,
    tmp_path: Path,
    issue: MakeIssue,
    commit: Commit,
    git: Git,
    mirror: Callable[[], Path],
) -> None:
    manager = make_manager(repo=bare, push="origin")
    made = await manager.prepare(issue("MT-1"), None)
    head = commit(made.path, "one")
    shutil.rmtree(tmp_path / "bare.git")

    delivery = await manager.deliver(made)

    failure = await manager.push("symphony/MT-1")
    assert not delivered_branch(delivery).pushed
    assert failure is not None
    assert failure.retryable
    assert git(mirror(), "rev-parse", "symphony/MT-1") == head


async def test_a_new_workspace_goes_on_from_what_was_delivered(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, commit: Commit
) -> None:
    manager = make_manager(repo=str(repo))
    first = await manager.prepare(issue("MT-1"), None)
    head = commit(first.path, "one")
    await manager.deliver(first)
    shutil.rmtree(first.path)
    commit(repo, "main moved")

    again = await manager.prepare(issue("MT-1"), 1)

    assert again.created_now
    assert git(again.path, "rev-parse", "HEAD") == head
    assert again.base_commit == first.base_commit
    assert (await manager.deliver(again)).work.commits == 1


async def test_a_new_workspace_goes_on_from_what_somebody_added_to_the_branch(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, commit: Commit
) -> None:
    manager = make_manager(repo=str(repo))
    first = await manager.prepare(issue("MT-1"), None)
    commit(first.path, "one")
    await manager.deliver(first)
    git(repo, "checkout", "-q", "symphony/MT-1")
    theirs = commit(repo, "review")
    git(repo, "checkout", "-q", "main")
    shutil.rmtree(first.path)

    again = await make_manager(repo=str(repo)).prepare(issue("MT-1"), 1)

    assert git(again.path, "rev-parse", "HEAD") == theirs


async def test_a_lost_root_goes_on_from_the_branch_in_the_repository(
    make_manager: Make, git: Git, repo: Path, root: Path, issue: MakeIssue, commit: Commit
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    head = commit(made.path, "one")
    await manager.deliver(made)
    shutil.rmtree(root)

    again = await make_manager(repo=str(repo)).prepare(issue("MT-1"), None)

    assert git(again.path, "rev-parse", "HEAD") == head


async def test_a_branch_with_a_history_of_its_own_is_taken_as_it_is(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    git(repo, "checkout", "-q", "--orphan", "symphony/MT-1")
    git(repo, "commit", "-qm", "unrelated")
    git(repo, "checkout", "-q", "main")

    made = await make_manager(repo=str(repo)).prepare(issue("MT-1"), None)

    assert git(made.path, "log", "--format=%s") == "unrelated"
    assert made.base_commit == git(repo, "rev-parse", "main")


async def test_the_mark_changes_with_commits_and_with_the_tree_and_with_nothing_else(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    start = await manager.progress(made)
    git(made.path, "status")
    (made.path / "ignored").mkdir()
    (made.path / "ignored" / "junk").write_text("junk\n")
    assert await manager.progress(made) == start
    assert start.head == made.base_commit

    (made.path / "README.md").write_text("HELLO\n")
    edited = await manager.progress(made)
    assert (edited.head, edited.tree == start.tree) == (start.head, False)

    (made.path / "README.md").write_text("hello again\n")
    assert (await manager.progress(made)).tree != edited.tree

    (made.path / "new.txt").write_text("1\n")
    untracked = await manager.progress(made)
    (made.path / "new.txt").write_text("12\n")
    assert (await manager.progress(made)).tree != untracked.tree

    git(made.path, "add", "-A")
    git(made.path, "commit", "-qm", "all")
    committed = await manager.progress(made)
    assert committed.head != start.head
    assert committed.tree == start.tree


async def test_the_mark_sees_into_an_untracked_repository(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    git(made.path, "init", "-q", "nested")
    (made.path / "nested" / "file").write_text("1\n")
    git(made.path / "nested", "add", "-A")
    git(made.path / "nested", "commit", "-qm", "inner")
    before = await manager.progress(made)

    (made.path / "nested" / "file").write_text("two\n")

    assert (await manager.progress(made)).tree != before.tree


async def test_where_git_cannot_tell_the_mark_comes_from_the_files(
    make_manager: Make, repo: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    (made.path / ".git" / "index").write_bytes(b"garbage")
    before = await manager.progress(made)

    assert await manager.progress(made) == before
    (made.path / "new.txt").write_text("1\n")
    assert (await manager.progress(made)).tree != before.tree


async def test_without_a_repository_setting_there_is_nothing_to_deliver_but_a_mark(
    make_manager: Make, issue: MakeIssue
) -> None:
    manager = make_manager()
    made: Workspace = await manager.prepare(issue("MT-1"), None)
    before = await manager.progress(made)

    assert (made.branch, made.base_commit, before.head) == (None, None, None)
    assert await manager.deliver(made) == Delivery(head=None)
    (made.path / "deep").mkdir()
    (made.path / "deep" / "file").write_text("1\n")
    assert (await manager.progress(made)).tree != before.tree
