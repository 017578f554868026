"""What a person has told git for repositories of their own changes nothing about those of the daemon."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from harness.workspaces import delivered_branch
from symphony.domain import Issue
from symphony.workspaces import WorkspaceManager

GitCommand = Callable[..., str]
MakeManager = Callable[..., WorkspaceManager]
MakeIssue = Callable[[str], Issue]

DEFAULTS = {
    "bare repositories are not found": "[safe]\n\tbareRepository = explicit\n",
    "reftable": "[init]\n\tdefaultRefFormat = reftable\n",
    "SHA-256": "[init]\n\tdefaultObjectFormat = sha256\n",
    "templates": "[init]\n\ttemplateDir = {home}/template\n",
    "hooks": "[core]\n\thooksPath = {home}/template/hooks\n",
    "objects are checked": "[transfer]\n\tfsckObjects = true\n",
    "fetched objects are checked": "[fetch]\n\tfsckObjects = true\n",
    "received objects are checked": "[receive]\n\tfsckObjects = true\n",
    "refs are pruned": "[fetch]\n\tprune = true\n\tpruneTags = true\n",
    "no protocol is allowed": "[protocol]\n\tallow = never\n",
    "no path is allowed": '[protocol "file"]\n\tallow = never\n',
    "monitor": "[core]\n\tfsmonitor = {home}/template/hooks/post-checkout\n\tuntrackedCache = true\n",
    "many files": "[feature]\n\tmanyFiles = true\n[index]\n\tversion = 4\n",
    "split index": "[core]\n\tsplitIndex = true\n",
    "sparse": "[core]\n\tsparseCheckout = true\n\tsparseCheckoutCone = true\n",
    "remotes": '[remote "origin"]\n\turl = /nowhere\n\tpushurl = /nowhere\n\ttagOpt = --no-tags\n',
    "pruned and mirrored remotes": '[remote "origin"]\n\tprune = true\n\tmirror = true\n',
    "push": "[push]\n\tdefault = nothing\n\tfollowTags = true\n\tgpgSign = true\n",
    "colours": "[color]\n\tui = always\n\ttransport = always\n",
    "texts": "[core]\n\tquotePath = false\n\tabbrev = 4\n\tpager = false\n[log]\n\tshowSignature = true\n",
    "differences": "[diff]\n\texternal = false\n\tnoprefix = true\n",
    "status": "[status]\n\tshowUntrackedFiles = no\n\tshort = true\n\tbranch = true\n",
    "upkeep": "[gc]\n\tauto = 1\n[maintenance]\n\tauto = true\n[fetch]\n\twriteCommitGraph = true\n",
}

MALFORMED = b"100644 blob %s\ta\n100644 blob %s\ta\n"  # git mktree takes it, and fsck refuses it


@pytest.fixture
def ran(environment: dict[str, str]) -> Path:
    """A file that the hooks of a person's template write to; each of them refuses what git does."""
    home = Path(environment["HOME"])
    hooks = home / "template" / "hooks"
    hooks.mkdir(parents=True)
    for name in ("post-checkout", "reference-transaction", "pre-push", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >>{home}/ran\nexit 1\n")
        (hooks / name).chmod(0o755)
    return home / "ran"


@contextmanager
def personal(environment: dict[str, str], settings: str) -> Iterator[None]:
    """Git has these settings of a person, as long as the daemon works."""
    file = Path(environment["HOME"], ".gitconfig")
    file.write_text(settings.format(home=environment["HOME"]))
    yield
    file.unlink()


def add_malformed_commit(git: GitCommand, repo: Path, environment: dict[str, str]) -> None:
    """A branch whose tree names one file twice, as old histories have it."""
    blob = git(repo, "hash-object", "-w", "README.md").encode()
    mktree = subprocess.run(
        ["git", "mktree"],
        cwd=repo,
        env=environment,
        input=MALFORMED % (blob, blob),
        capture_output=True,
        check=True,
    )
    tree = mktree.stdout.decode().strip()
    git(repo, "branch", "old", git(repo, "commit-tree", "-p", "main", "-m", "malformed", tree))


@pytest.mark.parametrize("place", ["path", "address"])
@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.asyncio
async def test_work_goes_there_and_back_whatever_the_defaults_are(
    name: str,
    place: str,
    make_manager: MakeManager,
    git: GitCommand,
    repo: Path,
    ran: Path,
    environment: dict[str, str],
    issue: MakeIssue,
) -> None:
    add_malformed_commit(git, repo, environment)
    git(repo, "tag", "v1", "main")
    git(repo, "branch", "gone")
    if place == "address":
        git(repo, "config", "core.hooksPath", "/dev/null")  # a server has settings of its own
    settings = {"repo": str(repo)} if place == "path" else {"repo": f"file://{repo}", "push": "origin"}
    manager, defaults = make_manager(**settings), DEFAULTS[name]
    with personal(environment, defaults):
        await manager.check_repository()
        assert await manager.check_push() is None
        first = await manager.prepare(issue("MT-1"), None)
    assert (first.path / "README.md").read_text() == "hello\n"
    assert git(first.path, "tag") == "v1"

    (first.path / "new.txt").write_text("new\n")
    git(first.path, "add", "-A")
    git(first.path, "commit", "-qm", "work")
    git(repo, "branch", "-D", "gone")
    git(repo, "commit", "-q", "--allow-empty", "-m", "meanwhile")
    with personal(environment, defaults):
        delivery = await manager.deliver(first)
        if settings.get("push"):
            assert await manager.push("symphony/MT-1") is None
        second = await manager.prepare(issue("MT-2"), None)

    assert (delivery.failure, delivered_branch(delivery).branch_failure, delivery.warnings) == (
        None,
        None,
        (),
    )
    assert delivery.work.commits == 1
    assert git(repo, "rev-parse", "symphony/MT-1") == delivery.head
    assert git(repo, "tag") == "v1"
    assert second.base_commit == git(repo, "rev-parse", "main")
    assert not await anyio.Path(ran).exists()


@pytest.mark.asyncio
async def test_the_users_way_to_a_repository_goes_on_working(
    make_manager: MakeManager, git: GitCommand, repo: Path, environment: dict[str, str], issue: MakeIssue
) -> None:
    manager = make_manager(repo="https://nowhere.example/project.git", push="origin")
    with personal(environment, f'[url "file://{repo}"]\n\tinsteadOf = https://nowhere.example/project.git\n'):
        await manager.check_repository()
        made = await manager.prepare(issue("MT-1"), None)
        git(made.path, "commit", "-q", "--allow-empty", "-m", "work")
        delivery = await manager.deliver(made)
        assert await manager.push("symphony/MT-1") is None

    assert git(repo, "rev-parse", "symphony/MT-1") == delivery.head
