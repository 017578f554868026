import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from harness.shell import word
from symphony.domain import Blame, Category, Issue
from symphony.workspaces import Workspace, WorkspaceError, WorkspaceManager

pytestmark = pytest.mark.asyncio

Make = Callable[..., WorkspaceManager]
Git = Callable[..., str]
MakeIssue = Callable[[str], Issue]


async def _fails(manager: WorkspaceManager, issue: Issue) -> WorkspaceError:
    with pytest.raises(WorkspaceError) as caught:
        await manager.prepare(issue, None)
    return caught.value


async def test_a_new_workspace_is_a_clean_clone_on_the_issues_branch(
    make_manager: Make, git: Git, repo: Path, root: Path, issue: MakeIssue
) -> None:
    made = await make_manager(repo=str(repo)).prepare(issue("MT-1"), None)

    assert made == Workspace(
        key="MT-1",
        path=root / "MT-1",
        branch="symphony/MT-1",
        base_commit=git(repo, "rev-parse", "main"),
        created_now=True,
    )
    assert (made.path / "src" / "app.py").read_text() == "print('hello')\n"
    assert git(made.path, "status", "--porcelain") == ""
    assert git(made.path, "branch", "--show-current") == "symphony/MT-1"
    assert git(made.path, "remote", "get-url", "origin") == str(repo)
    assert git(made.path, "rev-parse", "origin/main", "origin/HEAD").split() == [made.base_commit] * 2
    assert git(made.path, "log", "--format=%s") == "first"
    assert git(made.path, "fsck", "--strict") == ""


async def test_the_clone_borrows_its_objects_and_has_no_hooks(
    make_manager: Make, repo: Path, root: Path, issue: MakeIssue
) -> None:
    made = await make_manager(repo=str(repo)).prepare(issue("MT-1"), None)

    store = made.path / ".git" / "objects"
    mirrors = list((root / ".symphony" / "mirrors").glob("*.git"))
    assert (store / "info" / "alternates").read_text() == f"{mirrors[0]}/objects\n"
    assert [path for path in store.rglob("*") if path.is_file()] == [store / "info" / "alternates"]
    assert not (made.path / ".git" / "hooks").exists()
    assert len(mirrors) == 1


async def test_nothing_can_be_collected_from_the_mirror(
    make_manager: Make, git: Git, repo: Path, root: Path, issue: MakeIssue
) -> None:
    await make_manager(repo=str(repo)).prepare(issue("MT-1"), None)
    (mirror,) = (root / ".symphony" / "mirrors").glob("*.git")

    assert git(mirror, "config", "extensions.preciousObjects") == "true"
    assert git(mirror, "config", "gc.auto") == "0"
    with pytest.raises(AssertionError, match="precious-objects"):
        git(mirror, "prune")


async def test_an_agent_can_commit_in_it_with_no_configuration_of_its_own(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    made = await make_manager(repo=str(repo)).prepare(issue("MT-1"), None)

    assert git(made.path, "config", "--local", "user.name") == "Symphony Agent"
    assert git(made.path, "config", "--local", "user.email") == "symphony@localhost"


@pytest.mark.usefixtures("operator_identity")
async def test_the_operators_identity_is_taken_where_there_is_one(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    made = await make_manager(repo=str(repo)).prepare(issue("MT-1"), None)

    assert git(made.path, "config", "--local", "user.name") == 'Zoë "Z" #1'
    assert git(made.path, "config", "--local", "user.email") == "zoe@example.org"


@pytest.mark.conformance("K-2")
async def test_an_existing_workspace_is_reused_and_never_reset(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo))
    first = await manager.prepare(issue("MT-1"), None)
    (first.path / "README.md").write_text("changed\n")
    (first.path / "new.txt").write_text("new\n")
    (repo / "README.md").write_text("moved on\n")
    git(repo, "commit", "-qam", "second")

    again = await manager.prepare(issue("MT-1"), 1)

    assert not again.created_now
    assert (again.path, again.branch, again.base_commit) == (first.path, first.branch, first.base_commit)
    assert (again.path / "README.md").read_text() == "changed\n"
    assert (again.path / "new.txt").read_text() == "new\n"


async def test_reuse_needs_no_repository(make_manager: Make, repo: Path, issue: MakeIssue) -> None:
    manager = make_manager(repo=str(repo))
    first = await manager.prepare(issue("MT-1"), None)
    shutil.rmtree(repo)

    again = await make_manager(repo=str(repo)).prepare(issue("MT-1"), 1)

    assert (again.path, again.base_commit, again.created_now) == (first.path, first.base_commit, False)


async def test_uncommitted_changes_of_the_operator_stay_with_the_operator(
    make_manager: Make, repo: Path, issue: MakeIssue
) -> None:
    (repo / "README.md").write_text("not committed\n")

    made = await make_manager(repo=str(repo)).prepare(issue("MT-1"), None)

    assert (made.path / "README.md").read_text() == "hello\n"
    assert (repo / "README.md").read_text() == "not committed\n"


async def test_the_base_branch_is_the_configured_one(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    git(repo, "branch", "release/1")
    git(repo, "commit", "-q", "--allow-empty", "-m", "second")

    made = await make_manager(repo=str(repo), base_branch="release/1").prepare(issue("MT-1"), None)

    assert made.base_commit == git(repo, "rev-parse", "release/1")
    assert git(made.path, "rev-parse", "origin/HEAD") == made.base_commit


async def test_a_detached_head_is_a_base_too(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    git(repo, "checkout", "-q", "--detach")
    git(repo, "commit", "-q", "--allow-empty", "-m", "on no branch")

    made = await make_manager(repo=str(repo)).prepare(issue("MT-1"), None)

    assert made.base_commit == git(repo, "rev-parse", "HEAD")


async def test_a_base_branch_that_is_not_there_is_the_configurations_fault(
    make_manager: Make, repo: Path, root: Path, issue: MakeIssue
) -> None:
    failure = (await _fails(make_manager(repo=str(repo), base_branch="nope"), issue("MT-1"))).failure

    assert (failure.category, failure.blame) == (Category.WORKSPACE_REPOSITORY, Blame.CONFIG)
    assert failure.message == f"workspace.repo {repo} has no branch nope"
    assert "base_branch" in (failure.hint or "")
    assert not (root / "MT-1").exists()


async def test_a_repository_without_a_commit_is_told_so(
    make_manager: Make, git: Git, tmp_path: Path, issue: MakeIssue
) -> None:
    git(tmp_path, "init", "-q", "empty")

    failure = (await _fails(make_manager(repo=str(tmp_path / "empty")), issue("MT-1"))).failure

    assert failure.category is Category.WORKSPACE_REPOSITORY
    assert "has no commit yet" in failure.message


async def test_an_unreachable_repository_leaves_nothing_behind_and_may_be_retried(
    make_manager: Make, repo: Path, root: Path, tmp_path: Path, issue: MakeIssue
) -> None:
    shutil.move(repo, tmp_path / "away")
    manager = make_manager(repo=str(repo))

    failure = (await _fails(manager, issue("MT-1"))).failure

    assert (failure.category, failure.retryable) == (Category.WORKSPACE_REPOSITORY, True)
    assert str(repo) in failure.message
    assert failure.hint is not None
    assert not (root / "MT-1").exists()
    assert await manager.records() == ()
    shutil.move(tmp_path / "away", repo)
    assert (await make_manager(repo=str(repo)).prepare(issue("MT-1"), 1)).created_now


async def test_a_repository_that_became_unreachable_is_no_base_for_a_new_workspace(
    make_manager: Make, repo: Path, issue: MakeIssue
) -> None:
    await make_manager(repo=str(repo)).prepare(issue("MT-1"), None)
    shutil.rmtree(repo)

    error = await _fails(make_manager(repo=str(repo)), issue("MT-2"))

    assert error.failure.category is Category.WORKSPACE_REPOSITORY


async def test_credentials_in_the_address_reach_neither_message_nor_clone(
    make_manager: Make, issue: MakeIssue
) -> None:
    address = "http://ann:hunter2@127.0.0.1:9/none.git"

    failure = (await _fails(make_manager(repo=address), issue("MT-1"))).failure

    assert "hunter2" not in f"{failure.message} {failure.hint}"
    assert "http://127.0.0.1:9/none.git" in failure.message


async def test_ext_remotes_are_refused(make_manager: Make, tmp_path: Path, issue: MakeIssue) -> None:
    canary = tmp_path / "canary"

    path = str(canary).replace(" ", "% ")  # as git wants a blank that ends no word

    error = await _fails(make_manager(repo=f"ext::touch {path}"), issue("MT-1"))

    assert error.failure.category is Category.WORKSPACE_REPOSITORY
    assert not canary.exists()


@pytest.mark.parametrize("free", [1_000_000, 10**12])
async def test_a_tree_that_cannot_be_checked_out_leaves_nothing(
    make_manager: Make,
    git: Git,
    repo: Path,
    root: Path,
    issue: MakeIssue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    free: int,
) -> None:
    """A tree with a file below `.git` would plant a hook; git refuses it while it populates."""
    blob = git(repo, "rev-parse", "HEAD:README.md")
    (tmp_path / "inner").write_bytes(b"100644 planted\0" + bytes.fromhex(blob))
    inner = git(repo, "hash-object", "-t", "tree", "-w", "--literally", str(tmp_path / "inner"))
    (tmp_path / "outer").write_bytes(b"40000 .git\0" + bytes.fromhex(inner))
    outer = git(repo, "hash-object", "-t", "tree", "-w", "--literally", str(tmp_path / "outer"))
    git(repo, "branch", "evil", git(repo, "commit-tree", "-m", "evil", outer))

    usage = SimpleNamespace(free=free)
    monkeypatch.setattr("symphony.workspaces.mirror.shutil.disk_usage", lambda _: usage)

    failure = (await _fails(make_manager(repo=str(repo), base_branch="evil"), issue("MT-1"))).failure

    assert failure.category is Category.WORKSPACE_PREPARE_FAILED
    assert ("make room" in (failure.hint or "")) is (free == 1_000_000)
    assert "invalid path" in failure.message
    assert not (root / "MT-1").exists()
    assert list((root / ".symphony" / "staging").iterdir()) == []


async def test_a_missing_git_is_told_in_one_line(
    make_manager: Make, repo: Path, issue: MakeIssue, tmp_path: Path
) -> None:
    manager = make_manager(repo=str(repo), environment={"PATH": str(tmp_path)})

    failure = (await _fails(manager, issue("MT-1"))).failure

    assert "git could not be started" in failure.message
    assert "\n" not in failure.line


async def test_a_new_workspace_sees_what_was_committed_meanwhile(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue
) -> None:
    await make_manager(repo=str(repo)).prepare(issue("MT-1"), None)
    (repo / "later.txt").write_text("later\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "second")

    made = await make_manager(repo=str(repo)).prepare(issue("MT-2"), None)

    assert (made.path / "later.txt").read_text() == "later\n"


async def test_a_branch_that_took_the_place_of_another_does_not_stop_the_mirror(
    make_manager: Make, git: Git, repo: Path, root: Path, issue: MakeIssue
) -> None:
    git(repo, "checkout", "-q", "-b", "topic")
    git(repo, "commit", "-q", "--allow-empty", "-m", "on topic")
    git(repo, "branch", "deep/er")
    await make_manager(repo=str(repo)).prepare(issue("MT-1"), None)
    lost = git(repo, "rev-parse", "topic")
    git(repo, "checkout", "-q", "main")
    git(repo, "branch", "-D", "topic", "deep/er")
    git(repo, "branch", "topic/one")
    git(repo, "branch", "deep")

    made = await make_manager(repo=str(repo)).prepare(issue("MT-2"), None)

    assert git(made.path, "rev-parse", "origin/topic/one", "origin/deep").split() == [made.base_commit] * 2
    (mirror,) = (root / ".symphony" / "mirrors").glob("*.git")
    assert git(mirror, "rev-parse", f"refs/symphony/gone/{lost}") == lost


async def test_tags_come_along(make_manager: Make, git: Git, repo: Path, issue: MakeIssue) -> None:
    git(repo, "tag", "-a", "v1", "-m", "one")

    made = await make_manager(repo=str(repo)).prepare(issue("MT-1"), None)

    assert git(made.path, "describe") == "v1"


async def test_a_repository_with_sha256_objects_works_too(
    make_manager: Make, git: Git, tmp_path: Path, issue: MakeIssue
) -> None:
    git(tmp_path, "init", "-q", "-b", "main", "--object-format=sha256", "modern")
    (tmp_path / "modern" / "file").write_text("content\n")
    git(tmp_path / "modern", "add", "-A")
    git(tmp_path / "modern", "commit", "-qm", "first")
    manager = make_manager(repo=str(tmp_path / "modern"))

    made = await manager.prepare(issue("MT-1"), None)
    git(made.path, "commit", "-q", "--allow-empty", "-m", "work")
    delivery = await manager.deliver(made)

    assert len(made.base_commit or "") == 64
    assert (delivery.work.commits, delivery.warnings) == (1, ())
    assert git(tmp_path / "modern", "log", "--format=%s", "symphony/MT-1") == "work\nfirst"


async def test_eight_workspaces_at_once_share_what_the_repository_is_asked(
    make_manager: Make, git: Git, repo: Path, root: Path, issue: MakeIssue, tmp_path: Path
) -> None:
    log = tmp_path / "git.log"
    real = shutil.which("git")
    wrapper = tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {word(log)}\nexec {word(real)} "$@"\n')
    wrapper.chmod(0o755)
    manager = make_manager(repo=str(repo), environment={"PATH": f"{wrapper.parent}:/usr/bin:/bin"})
    made: dict[str, Workspace] = {}

    async def prepare(identifier: str) -> None:
        made[identifier] = await manager.prepare(issue(identifier), None)

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(prepare, f"MT-{number}")

    assert len(made) == 8
    for identifier, workspace in made.items():
        assert git(workspace.path, "status", "--porcelain", "--branch").startswith(
            f"## symphony/{identifier}"
        )
    calls = log.read_text()
    assert calls.count(" fetch ") == 1
    assert calls.count(" ls-remote ") < 8
    assert list((root / ".symphony" / "staging").iterdir()) == []


async def test_two_daemons_on_one_root_do_not_disturb_each_other(
    make_manager: Make, repo: Path, root: Path, issue: MakeIssue
) -> None:
    made: list[Workspace] = []

    async def prepare(manager: WorkspaceManager, identifier: str) -> None:
        made.append(await manager.prepare(issue(identifier), None))

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(prepare, make_manager(repo=str(repo)), f"MT-{number}")

    assert all((workspace.path / "README.md").exists() for workspace in made)
    assert len(list((root / ".symphony" / "mirrors").glob("*.git"))) == 1


async def test_a_cancelled_creation_leaves_nothing_behind(
    make_manager: Make, repo: Path, root: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await manager.prepare(issue("MT-1"), None)

    assert scope.cancelled_caught
    assert not (root / "MT-1").exists()
    assert await manager.records() == ()


@pytest.mark.parametrize("identifier", ["Ünïcödé/1", "-dash", ".lock", "a..b", "x.lock", "k" * 255])
async def test_names_that_git_refuses_still_get_a_branch(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, identifier: str
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue(identifier), None)
    git(made.path, "commit", "-q", "--allow-empty", "-m", "work")

    delivery = await manager.deliver(made)

    assert delivery.warnings == ()
    assert git(repo, "log", "-1", "--format=%s", str(made.branch)) == "work"


async def test_two_issues_that_differ_by_case_never_share_a_workspace(
    make_manager: Make, repo: Path, root: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo))
    await manager.prepare(issue("MT-1"), None)
    for place in (root, root / ".symphony" / "records"):  # what a file system without case would show
        for path in list(place.glob("MT-1*")):
            path.rename(place / path.name.lower())

    failure = (await _fails(manager, issue("mt-1"))).failure

    assert failure.category is Category.WORKSPACE_UNSAFE_KEY
    assert "MT-1" in failure.message
