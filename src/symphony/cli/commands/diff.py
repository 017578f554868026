"""`symphony diff`: what the branch of an issue changes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from symphony.cli.failures import CommandError, warn
from symphony.cli.options import issue_argument, json_option, print_json, workflow_option
from symphony.cli.repository import git

if TYPE_CHECKING:
    from symphony.cli.documents import BranchDiff
    from symphony.config import WorkspaceSettings


_EPILOG = """\b
Examples:
  symphony diff SYM-3
  symphony diff SYM-3 --stat
  symphony diff SYM-3 > sym-3.patch
  symphony diff SYM-3 --json | jq -r '.files[].path'

Compares the branch with the commit on which it left the base branch, as `git diff main...symphony/SYM-3`
does, in your repository or else in the daemon's mirror of it. Needs no daemon. Nothing that the branch
names is run: no external diff program and no text conversion.

Exit codes: 0 shown, 1 there is no such issue or nothing to compare, 3 the workflow is invalid.
"""
_SAFE: Final = ("--no-ext-diff", "--no-textconv")
_PIPE_CLOSED: Final = -signal.SIGPIPE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    """A branch in a git directory or a work tree; `base` is a full ref or `HEAD`."""

    repository: Path
    identifier: str
    name: str
    base: str

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.name}"

    @property
    def base_name(self) -> str:
        """The base as a person names it."""
        return self.base.removeprefix("refs/heads/").removeprefix("refs/remotes/origin/")


@click.command(epilog=_EPILOG)
@issue_argument
@click.option("--stat", is_flag=True, help="The changed files and how many lines, in place of the lines.")
@json_option
@workflow_option
def diff(*, issue: str, stat: bool, as_json: bool, workflow: Path) -> None:
    """Show what the branch of an issue changes."""
    if as_json and stat:
        raise click.UsageError("--json and --stat exclude each other")
    # Imported here: `--help` of any command stays fast.
    from symphony.cli.serving import open_store
    from symphony.config import read_secrets

    environment = read_secrets(os.environ).environment
    settings = open_store(workflow, environment, acknowledged=True).current().settings.workspace
    branch = _find(issue, settings, workflow)
    commits = int(_ask(branch, "rev-list", "--count", branch.ref, "--not", branch.base))
    if not commits:
        raise CommandError.of(
            f"{branch.name} has no commit that {branch.base_name} does not have",
            hint="it is merged, or nothing was committed on it yet",
        )
    if as_json:
        print_json(_document(branch, commits))
    else:
        _show(branch, "--stat" if stat else "--patch")


def _show(branch: _Branch, form: str) -> None:
    """Let git print, with its pager and colours on a terminal."""
    pager = () if sys.stdout.isatty() else ("--no-pager",)
    sys.stdout.flush()
    done = subprocess.run(
        ["git", *pager, "diff", *_SAFE, form, f"{branch.base}...{branch.ref}", "--"],
        cwd=branch.repository,
        check=False,
    )
    if done.returncode not in {0, _PIPE_CLOSED}:
        raise _refused(branch, f"git diff ends with exit code {done.returncode}")


def _document(branch: _Branch, commits: int) -> "BranchDiff":
    """What is printed with `--json`."""
    from symphony.cli.documents import BranchDiff, ChangedFile
    from symphony.workspaces import NUMSTAT, parse_numstat

    output = _ask(branch, "diff", *NUMSTAT, f"{branch.base}...{branch.ref}", "--")
    changes = parse_numstat(output.encode("utf-8", "surrogateescape"))
    return BranchDiff(
        issue_identifier=branch.identifier,
        branch=branch.name,
        base=branch.base_name,
        commits=commits,
        files_changed=len(changes.files),
        insertions=changes.insertions,
        deletions=changes.deletions,
        files=tuple(
            ChangedFile(path=one.path, insertions=one.insertions, deletions=one.deletions)
            for one in changes.files
        ),
    )


def _ask(branch: _Branch, *arguments: str) -> str:
    done = git(branch.repository, *arguments)
    if done.returncode != 0:
        raise _refused(branch, done.stderr.strip() or f"exit code {done.returncode}")
    return done.stdout


def _refused(branch: _Branch, reason: str) -> CommandError:
    return CommandError.of(
        f"{branch.name} cannot be compared with {branch.base_name}: {reason}",
        hint=f"look with git in {branch.repository}; workspace.base_branch names another base",
    )


# --- where the branch is ---


def _find(issue: str, settings: "WorkspaceSettings", workflow: Path) -> _Branch:
    """The branch of an issue, which is asked for only where there is no branch of exactly that name.

    Raises:
        SymphonyError: there is no such issue, or it has no branch.
    """
    from symphony.cli.queries import Queries, resolve_issue

    found = _located(issue, settings)
    if found is None:
        facts = Queries(workflow, os.environ)
        identifier = resolve_issue(issue, facts.issue, facts.identifiers).issue_identifier
        found = _located(identifier, settings)
        if found is None:
            raise CommandError.of(
                f"{identifier} has no branch yet",
                hint="a run delivers its commits when it ends; `symphony explain` says how the issue is",
            )
    return found


def _located(identifier: str, settings: "WorkspaceSettings") -> _Branch | None:
    from symphony.domain import branch_name
    from symphony.workspaces import key_of, local_repository, locate_branch, mirror_path, read_ref

    if settings.repo is None:
        raise CommandError.of(
            "workspace.repo is not set, so hooks populate the workspaces and no branch is delivered",
            hint=f"the workspaces are below {settings.root}",
        )
    name = branch_name(key_of(identifier))
    mirror, local = mirror_path(settings), local_repository(settings.repo)
    delivered = read_ref(mirror, f"refs/heads/{name}")
    if local is not None and _has(local, f"refs/heads/{name}"):
        if delivered is not None and not _holds(local, name, delivered):
            warn(f"{name} in {local} lacks what was delivered last; git fetch {mirror} {name} brings it")
        return _Branch(repository=local, identifier=identifier, name=name, base=_base(local, settings, name))
    if delivered is None:
        return None
    pushed = read_ref(mirror, f"refs/symphony/pushed/{name}") == delivered
    where = locate_branch(settings, name, pushed=pushed)
    if where is not None and where.fetch is not None:
        click.echo(f"hint: `{where.fetch}` brings the branch into a clone of yours", err=True)
    return _Branch(repository=mirror, identifier=identifier, name=name, base=_mirrored_base(mirror, settings))


def _has(repository: Path, ref: str) -> bool:
    return git(repository, "rev-parse", "--quiet", "--verify", f"{ref}^{{commit}}").returncode == 0


def _holds(repository: Path, branch: str, commit: str) -> bool:
    return git(repository, "merge-base", "--is-ancestor", commit, f"refs/heads/{branch}").returncode == 0


def _base(repository: Path, settings: "WorkspaceSettings", branch: str) -> str:
    """The base branch; what is checked out counts unless it is a branch of ours, being looked at."""
    for name in _candidates(repository, settings):
        if name != branch and _has(repository, f"refs/heads/{name}"):
            return f"refs/heads/{name}"
    return "HEAD"


def _candidates(repository: Path, settings: "WorkspaceSettings") -> Iterator[str]:
    from symphony.domain import BRANCH_PREFIX

    if settings.base_branch is not None:
        yield settings.base_branch
        return
    head = git(repository, "symbolic-ref", "--quiet", "--short", "HEAD").stdout.strip()
    if head and not head.startswith(BRANCH_PREFIX):
        yield head
    remote = git(repository, "symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD").stdout.strip()
    if remote:
        yield remote.removeprefix("origin/")
    yield from ("main", "master")


def _mirrored_base(mirror: Path, settings: "WorkspaceSettings") -> str:
    """The base branch among the branches that the mirror has of the repository."""
    from symphony.workspaces import all_refs, read_ref

    if settings.base_branch is not None:
        return f"refs/remotes/origin/{settings.base_branch}"
    head = read_ref(mirror, "refs/symphony/origin-head")
    branches = all_refs(mirror, "refs/remotes/origin/")
    usual = [f"refs/remotes/origin/{name}" for name in ("main", "master")]
    for name in (*usual, *sorted(branches)):
        if name in branches and (head is None or branches[name] == head):
            return name
    return "refs/symphony/origin-head"
