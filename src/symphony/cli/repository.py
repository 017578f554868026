"""Runs git on the user's own repository, and finds uncommitted files, which sessions do not see."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from symphony.cli.failures import CommandError
from symphony.config import Settings
from symphony.domain import BOARD_PATH

_TIMEOUT_S = 10
_PLACES = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
}
"""Variables of a hook or alias of git that lead to another repository than the directory."""


def git(
    directory: Path,
    *arguments: str,
    timeout_s: float | None = None,
    data: bytes = b"",
    variables: Mapping[str, str] = MappingProxyType({}),
) -> "subprocess.CompletedProcess[str]":
    """Run git in a directory; the caller checks the exit code. Line ends of the output are not translated.

    Args:
        directory: where it starts.
        arguments: of git.
        timeout_s: how long it may take.
        data: its standard input.
        variables: added to its environment.

    Raises:
        CommandError: git is not installed.
        subprocess.TimeoutExpired: git takes longer than `timeout_s`.
    """
    try:
        done = subprocess.run(
            ["git", "-c", "safe.bareRepository=all", *arguments],
            cwd=directory,
            capture_output=True,
            input=data,
            env={**{name: value for name, value in os.environ.items() if name not in _PLACES}, **variables},
            check=False,
            timeout=timeout_s,
        )
    except FileNotFoundError as error:
        hint = "install git, then run the command again"
        raise CommandError.of("git is not installed", hint=hint) from error
    stdout, stderr = os.fsdecode(done.stdout), os.fsdecode(done.stderr)
    return subprocess.CompletedProcess(done.args, done.returncode, stdout, stderr)


def git_output(directory: Path, *arguments: str) -> str | None:
    """Standard output of git; None if git fails, is not installed or takes too long."""
    try:
        done = git(directory, *arguments, timeout_s=_TIMEOUT_S)
    except (CommandError, OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


class UncommittedSkills(Struct, frozen=True, kw_only=True):
    """Paths of SKILL.md files, relative to the repository, that `branch` does not have."""

    names: tuple[str, ...]
    branch: str


def uncommitted_skills_for(settings: Settings) -> UncommittedSkills | None:
    """Skills that no session sees, if workspaces are cloned from a local repository; else None."""
    skills, repository = settings.agent.skills, settings.workspace.repo
    if not skills.enabled or repository is None or not Path(repository).is_dir():
        return None
    roots = (skills.path, *skills.extra_paths)
    return uncommitted_skills(Path(repository), roots, settings.workspace.base_branch)


def uncommitted_skills(
    repository: Path, roots: tuple[str, ...], base_branch: str | None
) -> UncommittedSkills | None:
    """Skills below `roots` that the last commit of the base branch does not have.

    None if it has all of them, or if git cannot be asked: this is advice, and not a reason to fail.
    """
    files = (path for root in roots for path in Path(repository, root).glob("*/SKILL.md"))
    found = {path.relative_to(repository).as_posix() for path in files}
    branch = base_branch or "HEAD"
    if not found:
        return None
    listing = git_output(repository, "ls-tree", "-r", "-z", "--name-only", branch, "--", *roots)
    if listing is None or not (missing := found - set(listing.split("\0"))):
        return None
    return UncommittedSkills(names=tuple(sorted(missing)), branch=branch)


def uncommitted_changes(settings: Settings, workflow: Path) -> tuple[str, ...]:
    """Tracked files of a local repository that differ from the last commit.

    The workflow file and the board are left out, because the daemon reads them from the folder. Empty if git
    cannot be asked.
    """
    repository = settings.workspace.repo
    if repository is None or not Path(repository).is_dir():
        return ()
    top = Path(repository).resolve()
    read_from_folder = (path.resolve() for path in (workflow, workflow.parent / BOARD_PATH))
    excluded = [path.relative_to(top) for path in read_from_folder if path.is_relative_to(top)]
    options = ("--name-only", "-z", "--no-ext-diff", "--no-textconv", "--ignore-submodules", "HEAD")
    paths = (".", *(f":(exclude,literal){path}" for path in excluded))
    changed = git_output(top, "--no-optional-locks", "diff", *options, "--", *paths)
    return tuple(filter(None, (changed or "").split("\0")))
