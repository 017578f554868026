"""Pushing to the remote `origin` of a local repository, which belongs to people (`workspace.push`)."""

import shlex
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from harness.git_server import git_server
from harness.shell import word
from harness.workspaces import delivered_branch
from symphony.domain import Category, Failure, Issue, SymphonyError
from symphony.workspaces import Workspace, WorkspaceManager

pytestmark = pytest.mark.asyncio

Make = Callable[..., WorkspaceManager]
Git = Callable[..., str]
MakeIssue = Callable[[str], Issue]


@pytest.fixture
def origin(tmp_path: Path, repo: Path, git: Git) -> Path:
    """The remote of the operator's repository."""
    path = tmp_path / "origin.git"
    git(tmp_path, "clone", "-q", "--bare", str(repo), str(path))
    git(repo, "remote", "add", "origin", str(path))
    return path


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


async def worked_on(manager: WorkspaceManager, issue: Issue, git: Git) -> Workspace:
    """A workspace with one commit."""
    made = await manager.prepare(issue, None)
    commit(git, made.path, "one")
    return made


def commit(git: Git, where: Path, name: str, *options: str) -> str:
    (where / f"{name}.txt").write_text(f"{name}\n")
    git(where, "add", "-A")
    git(where, "commit", "-qm", name, *options)
    return git(where, "rev-parse", "HEAD")


async def push(manager: WorkspaceManager, made: Workspace) -> Failure | None:
    """Deliver, and push what is in the mirror then."""
    delivery = await manager.deliver(made)
    assert (delivered_branch(delivery).pushed, delivered_branch(delivery).to_push) == (False, True)
    return await manager.push(delivered_branch(delivery).branch)


def refused(failure: Failure | None) -> Failure:
    """The failure of a push whose work is safe in the mirror."""
    assert failure is not None
    assert (failure.category, failure.retryable) == (Category.PUSH_FAILED, True)
    assert "\n" not in failure.line
    assert failure.hint
    return failure


async def test_a_local_repositorys_branch_is_pushed_to_its_origin(
    make_manager: Make, git: Git, repo: Path, origin: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo), push="origin")
    made = await worked_on(manager, issue("MT-1"), git)

    assert await push(manager, made) is None
    again = await manager.deliver(made)

    assert (
        delivered_branch(again).pushed,
        delivered_branch(again).to_push,
        delivered_branch(again).branch_failure,
        again.warnings,
    ) == (True, False, None, ())
    assert git(origin, "rev-parse", "symphony/MT-1") == git(repo, "rev-parse", "symphony/MT-1")


async def test_the_branch_that_work_begins_from_is_the_set_one_or_the_one_at_head(
    make_manager: Make, git: Git, repo: Path
) -> None:
    assert await make_manager(repo=str(repo)).base_branch() == git(repo, "symbolic-ref", "--short", "HEAD")
    assert await make_manager(repo=str(repo), base_branch="develop").base_branch() == "develop"
    git(repo, "checkout", "-q", "--detach")
    assert await make_manager(repo=str(repo)).base_branch() is None


async def test_what_we_pushed_ourselves_is_replaced_by_a_rewritten_branch(
    make_manager: Make, git: Git, repo: Path, origin: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo), push="origin")
    made = await worked_on(manager, issue("MT-1"), git)
    await push(manager, made)
    better = commit(git, made.path, "two", "--amend")

    assert await push(manager, made) is None
    assert git(origin, "rev-parse", "symphony/MT-1") == better


async def test_what_somebody_else_put_on_the_remote_branch_stays(
    make_manager: Make, git: Git, repo: Path, origin: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo), push="origin")
    made = await worked_on(manager, issue("MT-1"), git)
    await push(manager, made)
    theirs = commit(git, repo, "theirs")
    git(repo, "push", "-q", "--force", "origin", "main:symphony/MT-1")
    ours = commit(git, made.path, "two")

    failure = refused(await push(manager, made))

    assert "someone else" in (failure.hint or "")
    assert git(origin, "rev-parse", "symphony/MT-1") == theirs
    assert git(repo, "rev-parse", "symphony/MT-1") == ours, "the repository has the work all the same"


async def test_a_missing_remote_is_told_and_a_later_push_needs_no_workspace(
    make_manager: Make, git: Git, tmp_path: Path, repo: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo), push="origin")
    made = await worked_on(manager, issue("MT-1"), git)

    failure = refused(await push(manager, made))

    assert "no remote" in failure.message
    assert "git remote add origin" in (failure.hint or "")
    head = git(repo, "rev-parse", "symphony/MT-1")
    (record,) = await manager.records()
    assert (await manager.remove(record)).removed
    assert await manager.push("symphony/MT-1") == failure

    git(tmp_path, "init", "-q", "--bare", "late.git")
    git(repo, "remote", "add", "origin", str(tmp_path / "late.git"))

    assert await make_manager(repo=str(repo), push="origin").push("symphony/MT-1") is None
    assert git(tmp_path / "late.git", "rev-parse", "symphony/MT-1") == head


async def test_a_remote_that_refuses_says_why(
    make_manager: Make, git: Git, repo: Path, origin: Path, issue: MakeIssue
) -> None:
    hook = origin / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nprintf 'come back \\033[31mon Monday\\n' >&2\nexit 1\n")
    hook.chmod(0o755)
    manager = make_manager(repo=str(repo), push="origin")
    made = await worked_on(manager, issue("MT-1"), git)

    failure = refused(await push(manager, made))

    assert "come back on Monday" in failure.message
    hook.unlink()
    assert await manager.push("symphony/MT-1") is None
    assert git(origin, "rev-parse", "symphony/MT-1") == git(repo, "rev-parse", "symphony/MT-1")


async def test_a_push_without_headway_is_ended_with_everything_that_it_started(
    make_manager: Make, git: Git, repo: Path, silent: int, issue: MakeIssue
) -> None:
    git(repo, "remote", "add", "origin", f"git://127.0.0.1:{silent}/x.git")
    made = await worked_on(make_manager(repo=str(repo)), issue("MT-1"), git)
    hasty = make_manager(repo=str(repo), push="origin", push_stall_timeout_ms=700)

    failure = refused(await push(hasty, made))

    assert "no headway for 0.7 s" in failure.message
    assert "push_stall_timeout_ms" in (failure.hint or "")
    assert git(repo, "branch", "--list", "symphony/MT-1")


async def test_an_http_remote_that_stops_in_the_middle_is_given_up_and_tried_again(
    make_manager: Make, git: Git, repo: Path, origin: Path, issue: MakeIssue
) -> None:
    with git_server(origin.parent, None) as server:
        git(repo, "remote", "set-url", "origin", f"{server.address}/{origin.name}")
        manager = make_manager(repo=str(repo), push="origin", push_stall_timeout_ms=5_000)
        made = await worked_on(manager, issue("MT-1"), git)
        server.stalls = "git-receive-pack"
        assert "no headway" in refused(await push(manager, made)).message
        assert git(origin, "branch", "--list", "symphony/MT-1") == ""

        server.stalls = None
        assert await manager.push("symphony/MT-1") is None

    assert git(origin, "rev-parse", "symphony/MT-1") == git(repo, "rev-parse", "symphony/MT-1")


async def test_passwords_in_the_address_are_not_told(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo), push="origin")
    made = await worked_on(manager, issue("MT-1"), git)
    with socket.socket() as deaf:  # it has a port that nobody else gets, and takes no connection
        deaf.bind(("127.0.0.1", 0))
        port = deaf.getsockname()[1]
        git(repo, "remote", "add", "origin", f"http://me:secret@127.0.0.1:{port}/x.git")
        failure = refused(await push(manager, made))

    assert f"127.0.0.1:{port}" in failure.message
    assert "secret" not in failure.line


async def test_the_operators_settings_for_the_remote_hold_and_no_hook_of_theirs_runs(
    make_manager: Make, git: Git, tmp_path: Path, repo: Path, origin: Path, issue: MakeIssue
) -> None:
    """`pushurl`, `insteadOf` and `core.sshCommand` of the repository lead to the place that they name."""
    calls = tmp_path / "calls"
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$@" >> {word(calls)}\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    git(repo, "config", "core.sshCommand", shlex.quote(str(ssh)))
    git(repo, "config", "ssh.variant", "simple")
    git(repo, "config", f"url.ssh://host{origin.parent}/.insteadOf", "work:")
    git(repo, "config", "remote.origin.pushurl", f"work:{origin.name}")
    git(repo, "config", "push.followTags", "true")
    git(repo, "config", "remote.origin.mirror", "true")
    trap = repo / ".git" / "hooks" / "pre-push"
    trap.parent.mkdir(exist_ok=True)
    trap.write_text(f"#!/bin/sh\necho hook >> {word(calls)}\n")
    trap.chmod(0o755)
    git(repo, "tag", "-a", "-m", "one", "v1")
    manager = make_manager(repo=str(repo), push="origin")
    made = await worked_on(manager, issue("MT-1"), git)

    assert await push(manager, made) is None

    assert git(origin, "rev-parse", "symphony/MT-1") == git(repo, "rev-parse", "symphony/MT-1")
    assert git(origin, "tag", "--list") == ""
    assert calls.read_text().startswith("host git-receive-pack ")
    assert "hook" not in calls.read_text()


async def test_a_branch_that_the_repository_could_not_take_is_pushed_from_the_mirror(
    make_manager: Make, git: Git, repo: Path, origin: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo), push="origin")
    made = await worked_on(manager, issue("MT-1"), git)
    await push(manager, made)
    git(repo, "checkout", "-q", "symphony/MT-1")
    head = commit(git, made.path, "two")

    delivery = await manager.deliver(made)

    assert (delivered_branch(delivery).to_push, delivered_branch(delivery).branch_failure is None) == (
        True,
        False,
    )
    assert await manager.push("symphony/MT-1") is None
    assert git(origin, "rev-parse", "symphony/MT-1") == head
    assert git(repo, "rev-parse", "origin/symphony/MT-1") == head
    git(repo, "fsck", "--connectivity-only")


async def test_a_dry_run_tells_whether_the_remote_takes_branches(
    make_manager: Make, git: Git, repo: Path, origin: Path, silent: int
) -> None:
    assert await make_manager(repo=str(repo)).check_push() is None
    pushing = make_manager(repo=str(repo), push="origin")
    assert await pushing.check_push() is None
    assert await make_manager(repo=f"file://{origin}", push="origin").check_push() is None
    assert git(origin, "branch", "--list", "symphony/*") == ""
    git(repo, "remote", "set-url", "origin", f"git://127.0.0.1:{silent}/x.git")
    hasty = make_manager(repo=str(repo), push="origin", network_timeout_ms=500)
    failure = await hasty.check_push()
    assert failure is not None
    assert "in time" in failure.message
    assert failure.hint
    git(repo, "remote", "remove", "origin")
    failure = await pushing.check_push()
    assert failure is not None
    assert "no remote" in failure.message


async def test_what_cannot_be_pushed_at_all_is_not_worth_another_try(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    made = await worked_on(make_manager(repo=str(repo)), issue("MT-1"), git)
    assert not delivered_branch(await make_manager(repo=str(repo)).deliver(made)).to_push
    for manager, branch in (
        (make_manager(repo=str(repo)), "symphony/MT-1"),
        (make_manager(push="origin"), "symphony/MT-1"),
        (make_manager(repo=str(repo), push="origin"), "symphony/MT-2"),
    ):
        failure = await manager.push(branch)
        assert failure is not None
        assert (failure.category, failure.retryable) == (Category.PUSH_FAILED, False)


# --- after the merge ---


@pytest.mark.slow
@pytest.mark.parametrize("by_address", [False, True], ids=["local repository", "address"])
async def test_a_merged_branch_is_deleted_everywhere_but_in_the_mirror_also_where_it_is_gone(
    make_manager: Make, git: Git, repo: Path, origin: Path, issue: MakeIssue, *, by_address: bool
) -> None:
    manager = make_manager(repo=f"file://{origin}" if by_address else str(repo), push="origin")
    made = await worked_on(manager, issue("MT-1"), git)
    assert await push(manager, made) is None
    head = git(made.path, "rev-parse", "HEAD")
    git(origin, "config", "receive.denyDeletes", "true")
    refused = await manager.delete_branch("symphony/MT-1", head)
    assert (refused.removed, "does not let" in (refused.kept_reason or "")) == (not by_address, True)
    git(origin, "config", "receive.denyDeletes", "false")

    done = await manager.delete_branch("symphony/MT-1", head)
    again = await manager.delete_branch("symphony/MT-1", head)

    assert (done.removed, done.kept_reason) == (True, None)
    assert (again.removed, again.kept_reason) == (False, None)
    assert await manager.patch("MT-1", max_bytes=1_000), "its changes can still be shown"
    assert (await manager.remove(await manager.locate("MT-1", "MT-1"))).removed
    for place in (origin, repo):
        assert git(place, "branch", "--list", "symphony/*") == "", (
            "also after the delivery before the removal"
        )

    anew = await manager.prepare(issue("MT-1"), None)
    commit(git, anew.path, "two")
    assert git(anew.path, "rev-parse", "HEAD~") == git(repo, "rev-parse", "main"), "it begins at the base"
    assert await push(manager, anew) is None
    git(origin, "branch", "-q", "-D", "symphony/MT-1")  # as forges do it after a merge
    gone = await manager.delete_branch("symphony/MT-1", git(anew.path, "rev-parse", "HEAD"))
    assert (gone.removed, gone.kept_reason) == (True, None)


async def test_a_branch_that_is_not_all_ours_is_not_deleted(
    make_manager: Make, git: Git, repo: Path, origin: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo), push="origin")
    made = await worked_on(manager, issue("MT-1"), git)
    assert await push(manager, made) is None
    head = git(made.path, "rev-parse", "HEAD")
    git(repo, "checkout", "-q", "symphony/MT-1")
    theirs = commit(git, repo, "theirs")
    git(repo, "push", "-q", "origin", "symphony/MT-1")

    pushed_to = await manager.delete_branch("symphony/MT-1", head)
    git(repo, "checkout", "-q", "main")
    changed = await manager.delete_branch("symphony/MT-1", head)
    unmerged = await manager.delete_branch("symphony/MT-1", theirs)

    assert {each.removed for each in (pushed_to, changed, unmerged)} == {False}
    assert "newer commits" in (pushed_to.kept_reason or "")
    assert "is checked out in" in (pushed_to.kept_reason or "")
    assert "has changed" in (changed.kept_reason or "")
    assert "another commit" in (unmerged.kept_reason or "")
    for place in (origin, repo):
        assert git(place, "rev-parse", "symphony/MT-1") == theirs


async def test_a_remote_that_is_away_is_a_failure_and_a_repetition_deletes_the_branch(
    make_manager: Make, git: Git, repo: Path, origin: Path, issue: MakeIssue
) -> None:
    assert not (await make_manager().delete_branch("symphony/MT-1", "0" * 40)).removed
    manager = make_manager(repo=str(repo), push="origin")
    made = await worked_on(manager, issue("MT-1"), git)
    assert await push(manager, made) is None
    head = git(made.path, "rev-parse", "HEAD")
    git(repo, "remote", "set-url", "origin", f"{origin}.away")
    with pytest.raises(SymphonyError) as caught:
        await manager.delete_branch("symphony/MT-1", head)
    assert caught.value.failure.category is Category.PUSH_FAILED
    git(repo, "remote", "set-url", "origin", str(origin))
    assert (await manager.delete_branch("symphony/MT-1", head)).removed
    assert git(origin, "branch", "--list", "symphony/*") == ""


# --- the base that a pull request conflicts with ---


@pytest.mark.parametrize("by_address", [False, True], ids=["local repository", "address"])
async def test_the_base_is_fetched_from_origin_to_where_workspaces_have_it(
    make_manager: Make, git: Git, repo: Path, origin: Path, issue: MakeIssue, *, by_address: bool
) -> None:
    manager = make_manager(repo=f"file://{origin}" if by_address else str(repo), push="origin")
    made = await worked_on(manager, issue("MT-1"), git)
    before = git(repo, "rev-parse", "main")
    theirs = commit(git, repo, "theirs")
    git(repo, "push", "-q", "origin", "main")
    git(repo, "reset", "-q", "--hard", before)
    git(repo, "update-ref", "-d", "refs/remotes/origin/main")

    assert await manager.fetch_base("main") == theirs

    git(made.path, "merge", "-q", "--no-edit", theirs)
    assert (made.path / "theirs.txt").exists()
    assert git(repo, "rev-parse", "main") == before, "the branches of the checkout stay"
    for hostile in ("gone", "main:refs/heads/main", "*", "--upload-pack=touch x", "../x"):
        with pytest.raises(SymphonyError) as caught:
            await manager.fetch_base(hostile)
        assert caught.value.failure.category is Category.WORKSPACE_REPOSITORY
    assert git(repo, "rev-parse", "main") == before
    assert await make_manager().fetch_base("main") is None


async def test_a_remote_that_is_slow_and_says_so_is_waited_for_and_a_silent_one_is_ended_as_a_group(
    make_manager: Make, git: Git, repo: Path, origin: Path, issue: MakeIssue
) -> None:
    hook = origin / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nfor i in 1 2 3 4 5 6 7; do echo at work >&2; sleep 1; done\n")
    hook.chmod(0o755)
    manager = make_manager(repo=str(repo), push="origin", push_stall_timeout_ms=5_000)
    made = await worked_on(manager, issue("MT-1"), git)

    assert await push(manager, made) is None

    commit(git, made.path, "two")
    hook.write_text("#!/bin/sh\necho $$ > pid\nsleep 3600\n")
    assert "no headway" in refused(await push(manager, made)).message
    hung = int((origin / "pid").read_text())
    assert not psutil.pid_exists(hung) or psutil.Process(hung).status() == psutil.STATUS_ZOMBIE
