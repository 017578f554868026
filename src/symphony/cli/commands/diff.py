"""`symphony diff`: what the branch of an issue changes."""

import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
from msgspec import Struct

from symphony import workspaces
from symphony.characters import visible
from symphony.cli.documents import BranchDiff
from symphony.cli.failures import CommandError, warn
from symphony.cli.options import issue_argument, json_option, only_one, print_json, workflow_option
from symphony.cli.queries import Queries, resolve_issue
from symphony.cli.repository import git
from symphony.config import WorkspaceSettings, read_secrets
from symphony.daemon.admission import open_store
from symphony.domain import BRANCH_PREFIX, WorkSize, branch_name

_SAFE: Final = ("--no-ext-diff", "--no-textconv")
_COLOURS: Final = (
    *((start, 1) for start in ("diff --git ", "index ", "--- ", "+++ ", "new file ", "deleted file ")),
    *(("@@", 36), ("+", 32), ("-", 31)),
)
"""The colour of a line by how it begins, as codes of a terminal."""
_PIPE_CLOSED: Final = -signal.SIGPIPE
_DEFAULT_BRANCHES: Final = ("main", "master")


class _Branch(Struct, frozen=True, kw_only=True):
    """The branch of an issue in a repository or in the daemon's mirror; `base` is a full ref or `HEAD`."""

    repository: Path
    identifier: str
    name: str
    base: str

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.name}"

    @property
    def base_name(self) -> str:
        return self.base.removeprefix("refs/heads/").removeprefix("refs/remotes/origin/")


@click.command(
    epilog="""\b
Examples:
  symphony diff SYM-3
  symphony diff SYM-3 --stat
  symphony diff SYM-3 > sym-3.patch
  symphony diff SYM-3 --json | jq -r '.files[].path'

Compares the branch with the commit where it left the base branch, as `git diff main...symphony/SYM-3` does,
in your repository or else in the daemon's mirror of it. Needs no daemon. Runs no external diff program and
no text conversion.

Exit codes: 0 shown, 1 there is no such issue or nothing to compare, 3 the workflow is invalid.
"""
)
@issue_argument
@click.option("--stat", is_flag=True, help="Show the changed files with line counts instead of the lines.")
@json_option
@workflow_option
def diff(*, issue: str, stat: bool, as_json: bool, workflow: Path) -> None:
    """Show what the branch of an issue changes."""
    only_one(json=as_json, stat=stat)
    environment = read_secrets(os.environ).environment
    settings = open_store(workflow, environment, acknowledged=True).current().settings.workspace
    branch = _find_branch(issue, settings, workflow)
    commits = int(_git_output(branch, "rev-list", "--count", branch.ref, "--not", branch.base))
    if not commits:
        raise CommandError.of(
            f"{branch.name} has no commit that {branch.base_name} does not have",
            hint="it is merged, or nothing was committed on it yet",
        )
    if as_json:
        print_json(_document(branch, commits))
        return
    form = "--stat" if stat else "--patch"
    command = ["git", "--no-pager", "diff", *_SAFE, form, f"{branch.base}...{branch.ref}", "--"]
    sys.stdout.flush()
    if sys.stdout.isatty():
        code = _page(branch, [*command[:3], "--no-color", *command[3:]])
    else:
        code = subprocess.run(command, cwd=branch.repository, check=False).returncode
    if code not in {0, _PIPE_CLOSED}:
        raise _git_error(branch, f"git diff ends with exit code {code}")


def _page(branch: _Branch, command: list[str]) -> int:
    """Show a difference by git's pager, with hidden characters as escapes; returns git's exit code.

    The command adds the colours itself, because git's colours cannot be distinguished from an agent's text.
    """
    pager = _git_output(branch, "var", "GIT_PAGER").strip() or "cat"
    has_colours = git(branch.repository, "config", "--get-colorbool", "color.diff", "true").stdout.strip()
    environment = {"LESS": "FRX", "LV": "-c", **os.environ}  # as git does
    with (
        subprocess.Popen(command, cwd=branch.repository, stdout=subprocess.PIPE) as source,
        subprocess.Popen(["sh", "-c", pager], stdin=subprocess.PIPE, env=environment) as shown,
        suppress(BrokenPipeError),  # the person has seen enough
    ):
        assert source.stdout is not None  # noqa: S101 - it is a pipe
        assert shown.stdin is not None  # noqa: S101 - it is a pipe
        for data in source.stdout:
            line = visible(data.decode("utf-8", "replace").removesuffix("\n"))
            colour = next((code for start, code in _COLOURS if line.startswith(start)), None)
            if colour is not None and has_colours == "true":
                line = f"\x1b[{colour}m{line}\x1b[m"
            shown.stdin.write(f"{line}\n".encode())
    return source.returncode


def _document(branch: _Branch, commits: int) -> BranchDiff:
    output = _git_output(branch, "diff", *workspaces.NUMSTAT, f"{branch.base}...{branch.ref}", "--")
    files = workspaces.parse_numstat(output.encode("utf-8", "surrogateescape"))
    return BranchDiff(
        issue_identifier=branch.identifier,
        branch=branch.name,
        base=branch.base_name,
        work=WorkSize.of(commits, files),
        files=files,
    )


def _git_output(branch: _Branch, *arguments: str) -> str:
    done = git(branch.repository, *arguments)
    if done.returncode != 0:
        raise _git_error(branch, done.stderr.strip() or f"exit code {done.returncode}")
    return done.stdout


def _git_error(branch: _Branch, reason: str) -> CommandError:
    return CommandError.of(
        f"{branch.name} cannot be compared with {branch.base_name}: {reason}",
        hint=f"look with git in {branch.repository}; workspace.base_branch names another base",
    )


# --- where the branch is ----------------------------------------------------------------------------------


def _find_branch(issue: str, settings: WorkspaceSettings, workflow: Path) -> _Branch:
    """The branch of an issue. The issue itself is looked up only if no branch has exactly its name.

    Raises:
        SymphonyError: there is no such issue, or it has no branch.
    """
    if branch := _branch_of(issue, settings):
        return branch
    queries = Queries(workflow, os.environ)
    identifier = resolve_issue(issue, queries.issue, queries.identifiers).issue_identifier
    if branch := _branch_of(identifier, settings):
        return branch
    raise CommandError.of(
        f"{identifier} has no branch yet",
        hint="a run delivers its commits when it ends; `symphony explain` shows the state of the issue",
    )


def _branch_of(identifier: str, settings: WorkspaceSettings) -> _Branch | None:
    """The branch in the user's repository, otherwise that in the mirror; None if neither has it."""
    if settings.repo is None:
        raise CommandError.of(
            "workspace.repo is not set, so hooks populate the workspaces and no branch is delivered",
            hint=f"the workspaces are below {settings.root}",
        )
    name = branch_name(workspaces.key_of(identifier))
    ref = f"refs/heads/{name}"
    mirror, local = workspaces.mirror_path(settings), workspaces.local_repository(settings.repo)
    delivered = workspaces.read_ref(mirror, ref)
    if local is not None and _has_commit(local, ref):
        if delivered and git(local, "merge-base", "--is-ancestor", delivered, ref).returncode != 0:
            fetch = f"git fetch {shlex.quote(str(mirror))} {name}"
            warn(f"{name} in {local} lacks the last delivered commits; {fetch} brings it")
        base = _base_in_repository(local, settings, name)
        return _Branch(repository=local, identifier=identifier, name=name, base=base)
    if delivered is None:
        return None
    pushed = workspaces.read_ref(mirror, f"refs/symphony/pushed/{name}") == delivered
    location = workspaces.locate_branch(settings, name, pushed=pushed)
    if location is not None and location.fetch is not None:
        click.echo(f"hint: `{location.fetch}` fetches the branch into your clone", err=True)
    base = _base_in_mirror(mirror, settings)
    return _Branch(repository=mirror, identifier=identifier, name=name, base=base)


def _base_in_repository(repository: Path, settings: WorkspaceSettings, branch: str) -> str:
    """The configured base branch; without one, the branch that is checked out, or the default branch.

    A branch of an issue is not a base, even if it is checked out to be looked at.
    """
    if settings.base_branch is not None:
        names = [settings.base_branch]
    else:
        head = _symbolic_ref(repository, "HEAD")
        remote_head = _symbolic_ref(repository, "refs/remotes/origin/HEAD").removeprefix("origin/")
        names = ["" if head.startswith(BRANCH_PREFIX) else head, remote_head, *_DEFAULT_BRANCHES]
    for name in names:
        if name not in {"", branch} and _has_commit(repository, f"refs/heads/{name}"):
            return f"refs/heads/{name}"
    return "HEAD"


def _base_in_mirror(mirror: Path, settings: WorkspaceSettings) -> str:
    """The configured base branch; without one, a branch of the origin at the commit of the origin's HEAD."""
    if settings.base_branch is not None:
        return f"refs/remotes/origin/{settings.base_branch}"
    head = workspaces.read_ref(mirror, "refs/symphony/origin-head")
    branches = workspaces.all_refs(mirror, "refs/remotes/origin/")
    for ref in (*(f"refs/remotes/origin/{name}" for name in _DEFAULT_BRANCHES), *sorted(branches)):
        if ref in branches and head in {None, branches[ref]}:
            return ref
    return "refs/symphony/origin-head"


def _has_commit(repository: Path, ref: str) -> bool:
    return git(repository, "rev-parse", "--quiet", "--verify", f"{ref}^{{commit}}").returncode == 0


def _symbolic_ref(repository: Path, name: str) -> str:
    """The branch that a symbolic ref names; empty if it is not one."""
    return git(repository, "symbolic-ref", "--quiet", "--short", name).stdout.strip()
