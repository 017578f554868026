"""Sessions commit under the names under which a person commits in `workspace.repo`."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from symphony.config import WorkspaceSettings
from symphony.daemon.diagnostics import CheckStatus, check_git_identity
from symphony.domain import Issue
from symphony.processes.local import LocalHost
from symphony.workspaces import WorkspaceManager

pytestmark = pytest.mark.asyncio

GitCommand = Callable[..., str]
MakeManager = Callable[..., WorkspaceManager]
MakeIssue = Callable[[str], Issue]

ME = {"user.name": "Me", "user.email": "me@example.org"}
AT_WORK = "[user]\n\temail = work@example.org\n"


@pytest.mark.parametrize(
    ("own", "personal", "author", "committer"),
    [
        ({}, "", "Symphony Agent <symphony@localhost>", "Symphony Agent <symphony@localhost>"),
        (ME, "", "Me <me@example.org>", "Me <me@example.org>"),
        (ME, "[user]\n\tname = Other\n\temail = other@example.org\n", *["Me <me@example.org>"] * 2),
        ({"user.email": "me@example.org"}, "[user]\n\tname = Other\n", *["Other <me@example.org>"] * 2),
        (ME | {"author.name": "Ann"}, "", "Ann <me@example.org>", "Me <me@example.org>"),
        (ME, "[committer]\n\temail = bot@example.org\n", "Me <me@example.org>", "Me <bot@example.org>"),
        (
            {"user.name": 'Zoë "Z" \\ #1; x', "user.email": "z@example.org"},
            "",
            *['Zoë "Z" \\ #1; x <z@example.org>'] * 2,
        ),
        (
            {},
            '[user]\n\tname = Me\n[includeIf "gitdir:{repo}/"]\n\tpath = work\n',
            *["Me <work@example.org>"] * 2,
        ),
        (
            {},
            '[user]\n\tname = Me\n[includeIf "onbranch:main"]\n\tpath = work\n',
            *["Me <work@example.org>"] * 2,
        ),
        (ME, '[includeIf "gitdir:/elsewhere/"]\n\tpath = work\n', *["Me <me@example.org>"] * 2),
    ],
)
async def test_the_names_are_those_of_a_commit_in_the_repository(
    *,
    own: dict[str, str],
    personal: str,
    author: str,
    committer: str,
    make_manager: MakeManager,
    git: GitCommand,
    repo: Path,
    environment: dict[str, str],
    issue: MakeIssue,
    root: Path,
) -> None:
    for key, value in own.items():
        git(repo, "config", key, value)
    write_settings(environment, personal.replace("{repo}", str(repo)), work=AT_WORK)
    made = await make_manager(repo=str(repo)).prepare(issue("MT-1"), None)
    committed = commit_alone(made.path, environment)
    assert committed == f"{author}, {committer}"
    settings = WorkspaceSettings.model_validate({"root": root, "repo": str(repo)})
    (found,) = await check_git_identity(LocalHost(), environment, settings)
    if own or personal:
        assert author in found.message
        assert committer in found.message
    else:
        assert found.status is CheckStatus.WARNING


async def test_conditions_on_the_address_of_a_remote_hold_for_a_repository_elsewhere(
    make_manager: MakeManager, repo: Path, environment: dict[str, str], issue: MakeIssue, root: Path
) -> None:
    address = f"file://{repo}"
    personal = f'[includeIf "hasconfig:remote.*.url:{address}"]\n\tpath = work\n'
    write_settings(environment, personal, work=f"{AT_WORK}\tname = Work\n")
    made = await make_manager(repo=address).prepare(issue("MT-1"), None)

    assert commit_alone(made.path, environment) == ", ".join(["Work <work@example.org>"] * 2)
    settings = WorkspaceSettings.model_validate({"root": root, "repo": address})
    (found,) = await check_git_identity(LocalHost(), environment, settings)
    assert "Work <work@example.org>" in found.message


def write_settings(environment: dict[str, str], personal: str, *, work: str) -> None:
    """Git's settings of a person, and those that they include."""
    Path(environment["HOME"], ".gitconfig").write_text(personal)
    Path(environment["HOME"], "work").write_text(work)


def commit_alone(path: Path, environment: dict[str, str]) -> str:
    """Author and committer of a commit that an agent makes without settings of its own."""
    alone = {**environment, "HOME": "/nonexistent"}
    subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", "x"], cwd=path, env=alone, check=True)
    shown = ["git", "log", "-1", "--format=%an <%ae>, %cn <%ce>"]
    done = subprocess.run(shown, cwd=path, env=alone, check=True, capture_output=True, text=True)
    return done.stdout.strip()
