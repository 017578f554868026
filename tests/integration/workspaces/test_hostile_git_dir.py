"""An agent owns its `.git`. Each trap is an executable that leaves a canary; none may ever appear."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest

from harness.shell import word
from symphony.domain import Category, Issue
from symphony.workspaces import Delivery, Removal, Workspace, WorkspaceError, WorkspaceManager

pytestmark = pytest.mark.asyncio

Make = Callable[..., WorkspaceManager]
Git = Callable[..., str]
MakeIssue = Callable[[str], Issue]

_HOOKS = [
    *(
        "applypatch-msg",
        "commit-msg",
        "fsmonitor-watchman",
        "post-applypatch",
        "post-checkout",
        "post-commit",
    ),
    *("post-index-change", "post-merge", "post-receive", "post-rewrite", "post-update", "pre-applypatch"),
    *("pre-auto-gc", "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase", "pre-receive", "update"),
    *("prepare-commit-msg", "proc-receive", "push-to-checkout", "reference-transaction"),
]


class Traps:
    """Executables that say who was called."""

    def __init__(self, folder: Path) -> None:
        self.canary = folder / "canary"
        self._bin = folder / "bin"
        self._bin.mkdir(parents=True)

    def __call__(self, name: str) -> str:
        script = self._bin / name
        script.write_text(f'#!/bin/sh\necho "{name} $*" >> {word(self.canary)}\n')
        script.chmod(0o755)
        return str(script)

    def sprung(self) -> str:
        return self.canary.read_text() if self.canary.exists() else ""


@pytest.fixture
def traps() -> Iterator[Traps]:
    """At a path that git and its shell need no quotes for: a trap that cannot be started proves nothing."""
    with TemporaryDirectory(dir="/var/tmp") as folder:
        yield Traps(Path(folder) / "traps")


@pytest.fixture
def commit(git: Git) -> Callable[[Path], str]:
    """Do an agent's honest work: one commit."""

    def make(where: Path) -> str:
        (where / "work.txt").write_text("work\n")
        git(where, "add", "-A")
        git(where, "commit", "-qm", "work")
        return git(where, "rev-parse", "HEAD")

    return make


Commit = Callable[[Path], str]


async def _everything(manager: WorkspaceManager, issue: Issue, made: Workspace) -> tuple[Delivery, Removal]:
    """All that a daemon ever does to a workspace that an agent has been in."""
    await manager.prepare(issue, 1)
    await manager.verify(made)
    await manager.progress(made)
    delivery = await manager.deliver(made)
    await manager.progress(made)
    record = (await manager.records())[0]
    return delivery, await manager.remove(record)


def _plant_configuration(git_dir: Path, traps: Traps) -> None:
    included = git_dir / "included"
    included.write_text(
        f"[core]\n\tfsmonitor = {traps('included')}\n[alias]\n\tstatus = !{traps('aliased')}\n"
    )
    with (git_dir / "config").open("a") as config:
        config.write(
            f"[core]\n\thooksPath = {git_dir}/hooks\n\tfsmonitor = {traps('fsmonitor')}\n"
            f"\tsshCommand = {traps('ssh')}\n\tgitProxy = {traps('proxy')}\n\tpager = {traps('pager')}\n"
            f"\teditor = {traps('editor')}\n\taskPass = {traps('askpass')}\n"
            f"\talternateRefsCommand = {traps('alternate-refs')}\n"
            f'[filter "evil"]\n\tclean = {traps("clean")}\n\tsmudge = {traps("smudge")}\n'
            f"\tprocess = {traps('process')}\n\trequired = true\n"
            f'[diff]\n\texternal = {traps("diff")}\n[diff "evil"]\n\ttextconv = {traps("textconv")}\n'
            f"\tcommand = {traps('diff-command')}\n"
            f'[merge "evil"]\n\tdriver = {traps("merge")}\n'
            f"[alias]\n\tstatus = !{traps('alias')}\n\tfetch = !{traps('alias-fetch')}\n"
            f"[uploadpack]\n\tpackObjectsHook = {traps('pack-objects')}\n"
            f"[credential]\n\thelper = !{traps('credential')}\n[gpg]\n\tprogram = {traps('gpg')}\n"
            f"[gc]\n\tauto = 1\n\trecentObjectsHook = {traps('recent-objects')}\n"
            f'[protocol]\n\tallow = always\n[protocol "ext"]\n\tallow = always\n'
            f'[remote "origin"]\n\turl = "ext::{traps("ext")} %S"\n\tuploadpack = {traps("upload-pack")}\n'
            f"\tpromisor = true\n\tpartialclonefilter = blob:none\n\tvcs = ext\n"
            f'[url "ext::{traps("instead")} "]\n\tinsteadOf = /\n'
            f"[include]\n\tpath = {included}\n"
        )


def _plant_hooks_and_attributes(git_dir: Path, traps: Traps) -> None:
    (git_dir / "hooks").mkdir(exist_ok=True)
    for name in _HOOKS:
        shutil.copy(traps(f"hook-{name}"), git_dir / "hooks" / name)
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info" / "attributes").write_text("* filter=evil diff=evil merge=evil\n")
    (git_dir.parent / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")


async def test_no_trap_is_sprung_and_the_work_is_delivered(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, commit: Commit, traps: Traps
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    head = commit(made.path)
    _plant_configuration(made.path / ".git", traps)
    _plant_hooks_and_attributes(made.path / ".git", traps)
    for name in ("README.md", "work.txt"):
        os.utime(made.path / name, (1, 1))  # so that git has to look at the content

    delivery, removal = await _everything(manager, issue("MT-1"), made)

    assert traps.sprung() == ""
    assert delivery.head == git(repo, "rev-parse", "symphony/MT-1") == head
    assert delivery.work.commits == 1
    told = " ".join(delivery.warnings)
    assert all(word in told for word in (".git/config ", ".git/hooks/pre-commit ", ".git/info/attributes "))
    assert not removal.removed
    assert "uncommitted" in (removal.kept_reason or "")


async def test_the_traps_are_armed(
    make_manager: Make,
    repo: Path,
    issue: MakeIssue,
    commit: Commit,
    traps: Traps,
    environment: dict[str, str],
) -> None:
    """The control: an ordinary git command in that directory does spring them."""
    made = await make_manager(repo=str(repo)).prepare(issue("MT-1"), None)
    commit(made.path)
    _plant_configuration(made.path / ".git", traps)
    _plant_hooks_and_attributes(made.path / ".git", traps)
    (made.path / "README.md").write_text("other\n")

    with anyio.fail_after(60):
        lenient = ["-c", "filter.evil.required=false", "-c", "filter.evil.process="]
        for words in (
            ["add", "-A"],
            [*lenient, "diff"],
            [*lenient, "commit", "-am", "x"],
            ["fetch", "origin"],
        ):
            await anyio.run_process(["git", *words], cwd=made.path, env=environment, check=False)

    sprung = traps.sprung()
    missing = [word for word in ("included", "process", "diff", "instead", "hook-") if word not in sprung]
    assert missing == [], sprung


async def test_a_submodule_cannot_spring_its_traps_either(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, traps: Traps
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    git(made.path, "init", "-q", "inner")
    git(made.path / "inner", "commit", "-q", "--allow-empty", "-m", "inside")
    git(made.path, "-c", "advice.addEmbeddedRepo=false", "add", "inner")
    git(made.path, "commit", "-qm", "a gitlink")
    _plant_configuration(made.path / "inner" / ".git", traps)
    _plant_hooks_and_attributes(made.path / "inner" / ".git", traps)

    delivery, removal = await _everything(manager, issue("MT-1"), made)

    assert traps.sprung() == ""
    (warning,) = delivery.warnings
    assert delivery.work.commits == 1
    assert warning.startswith("inner: ")
    assert "inner: commits on" in (removal.kept_reason or "")


async def test_a_redirected_work_tree_is_not_followed(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, commit: Commit, tmp_path: Path
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    head = commit(made.path)
    (made.path / "draft.txt").write_text("uncommitted\n")
    git(made.path, "config", "core.worktree", str(tmp_path))

    delivery, removal = await _everything(manager, issue("MT-1"), made)

    assert delivery.head == git(repo, "rev-parse", "symphony/MT-1") == head
    assert removal.kept_reason == "1 uncommitted or untracked file(s)"


async def test_a_common_directory_elsewhere_is_not_followed(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, commit: Commit, tmp_path: Path, traps: Traps
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    head = commit(made.path)
    git(tmp_path, "init", "-q", "elsewhere")
    _plant_configuration(tmp_path / "elsewhere" / ".git", traps)
    (made.path / ".git" / "commondir").write_text(f"{tmp_path}/elsewhere/.git\n")

    delivery, _ = await _everything(manager, issue("MT-1"), made)

    assert traps.sprung() == ""
    assert delivery.head == git(repo, "rev-parse", "symphony/MT-1") == head
    assert any("commondir" in warning for warning in delivery.warnings)


@pytest.mark.parametrize("alternates", ["elsewhere", "missing", "gone"])
async def test_changed_alternates_are_not_followed(
    make_manager: Make,
    git: Git,
    repo: Path,
    issue: MakeIssue,
    commit: Commit,
    tmp_path: Path,
    alternates: str,
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    head = commit(made.path)
    git(tmp_path, "init", "-q", "elsewhere")
    file = made.path / ".git" / "objects" / "info" / "alternates"
    file.unlink()
    if alternates != "gone":
        file.write_text(f"{tmp_path}/{alternates}/.git/objects\n")

    delivery, removal = await _everything(manager, issue("MT-1"), made)

    assert delivery.head == git(repo, "rev-parse", "symphony/MT-1") == head
    assert any("objects/info/alternates" in warning for warning in delivery.warnings)
    assert removal == Removal(removed=True)


async def test_objects_of_another_repository_cannot_be_smuggled_out(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, tmp_path: Path
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    git(tmp_path, "init", "-q", "private")
    (tmp_path / "private" / "secret").write_text("secret\n")
    git(tmp_path / "private", "add", "-A")
    git(tmp_path / "private", "commit", "-qm", "secret")
    secret = git(tmp_path / "private", "rev-parse", "HEAD")
    with (made.path / ".git" / "objects" / "info" / "alternates").open("a") as file:
        file.write(f"{tmp_path}/private/.git/objects\n")
    git(made.path, "reset", "-q", "--hard", secret)

    delivery, removal = await _everything(manager, issue("MT-1"), made)

    assert not delivery.delivered
    assert git(repo, "branch", "--list", "symphony/*") == ""
    assert not removal.removed


@pytest.mark.parametrize("kind", ["file", "symlink", "gone"])
async def test_a_git_directory_that_is_none_any_more_keeps_the_workspace(
    make_manager: Make,
    repo: Path,
    issue: MakeIssue,
    commit: Commit,
    tmp_path: Path,
    kind: str,
    traps: Traps,
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    commit(made.path)
    _plant_configuration(made.path / ".git", traps)
    shutil.move(made.path / ".git", tmp_path / "moved")
    if kind == "file":
        (made.path / ".git").write_text(f"gitdir: {tmp_path}/moved\n")
    elif kind == "symlink":
        (made.path / ".git").symlink_to(tmp_path / "moved")

    delivery, removal = await _everything(manager, issue("MT-1"), made)

    assert traps.sprung() == ""
    assert delivery.failure is not None
    assert delivery.failure.category is Category.DELIVERY_FAILED
    assert "work might be lost" in (removal.kept_reason or "")
    assert (made.path / "work.txt").exists()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("name", ["HEAD", "config", "packed-refs", "index", "objects/info/alternates"])
async def test_named_pipes_and_directories_in_place_of_files_stop_nothing(
    make_manager: Make,
    git: Git,
    repo: Path,
    issue: MakeIssue,
    commit: Commit,
    name: str,
    make: Callable[[Path], None],
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    head = commit(made.path)
    file = made.path / ".git" / name
    file.unlink(missing_ok=True)
    make(file)

    with anyio.fail_after(60):
        delivery, _ = await _everything(manager, issue("MT-1"), made)

    if name == "HEAD":
        assert delivery.failure is not None
    else:
        assert delivery.head == git(repo, "rev-parse", "symphony/MT-1") == head


@pytest.mark.parametrize(
    "content",
    [
        "ref: ../../../etc/passwd\n",
        "ref: refs/heads/../../HEAD\n",
        "ref: HEAD\n",
        "ref: refs/heads/loop\n",
        "\xff\n",
        "",
    ],
)
async def test_a_head_that_leads_nowhere_is_reported(
    make_manager: Make, repo: Path, issue: MakeIssue, content: str
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    (made.path / ".git" / "HEAD").write_text(content)
    (made.path / ".git" / "refs" / "heads" / "loop").write_text("ref: refs/heads/loop\n")

    delivery = await manager.deliver(made)

    assert delivery.failure is not None


async def test_damaged_objects_are_refused_and_the_workspace_is_kept(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, commit: Commit, root: Path
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    head = commit(made.path)
    loose = made.path / ".git" / "objects" / head[:2] / head[2:]
    loose.chmod(0o644)
    loose.write_bytes(b"damaged")

    delivery, removal = await _everything(manager, issue("MT-1"), made)

    assert not delivery.delivered
    assert delivery.failure is not None
    assert not removal.removed
    (mirror,) = (root / ".symphony" / "mirrors").glob("*.git")
    assert git(mirror, "fsck", "--strict", "--no-dangling") == ""


async def test_an_agent_cannot_hide_a_mirror_object_behind_one_of_its_own(
    make_manager: Make, git: Git, repo: Path, issue: MakeIssue, commit: Commit, root: Path
) -> None:
    """An object under a false name is caught when it is taken over, because its hash is computed anew."""
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    commit(made.path)
    good = git(made.path, "rev-parse", "HEAD:work.txt")
    (made.path / "evil.txt").write_text("evil\n")
    evil = git(made.path, "hash-object", "-w", "evil.txt")
    objects = made.path / ".git" / "objects"
    target = objects / good[:2] / good[2:]
    target.chmod(0o644)
    target.write_bytes((objects / evil[:2] / evil[2:]).read_bytes())

    delivery = await manager.deliver(made)

    assert not delivery.delivered
    (mirror,) = (root / ".symphony" / "mirrors").glob("*.git")
    assert git(mirror, "fsck", "--strict", "--no-dangling") == ""
    with pytest.raises(AssertionError):
        git(mirror, "cat-file", "-e", good)


async def test_a_workspace_named_git_cannot_make_the_root_a_repository(
    make_manager: Make, issue: MakeIssue
) -> None:
    for identifier in (".git", ".GIT", ".symphony"):
        with pytest.raises(WorkspaceError, match="workspace_unsafe_key"):
            await make_manager().prepare(issue(identifier), None)
