"""git as the commands use it on the user's own repository, without surprises from their configuration."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from symphony.cli.failures import CommandError
from symphony.config import Settings


def git(
    directory: Path, *arguments: str, timeout_s: float | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run git in a directory; its exit code is the caller's to judge.

    What it prints is told as it is: a name may hold a carriage return, which is no end of a line.

    Raises:
        CommandError: git is not installed.
        subprocess.TimeoutExpired: `timeout_s` is over.
    """
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=directory,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=timeout_s,
        )
    except FileNotFoundError as error:
        hint = "install git, then run the command again"
        raise CommandError.of("git is not installed", hint=hint) from error
    stdout, stderr = os.fsdecode(done.stdout), os.fsdecode(done.stderr)
    return subprocess.CompletedProcess(done.args, done.returncode, stdout, stderr)


# A classic mistake: skills and changes that lie in the folder, but not in the commit that is cloned.


_TIMEOUT_S = 10
_BOARD = ".symphony/issues"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenSkills:
    """Paths of skill files, relative to the repository, that `branch` does not have."""

    names: tuple[str, ...]
    branch: str


def unseen_skills(settings: Settings) -> UnseenSkills | None:
    """Skills that no session will see; null where nothing is amiss.

    Looks only where the clone is made from a local path, and says nothing where git does not answer: this is
    advice, and no reason to fail.
    """
    skills, repository = settings.agent.skills, settings.workspace.repo
    if not skills.enabled or repository is None or not Path(repository).is_dir():
        return None
    roots = (skills.path, *skills.extra_paths)
    return uncommitted_skills(Path(repository), roots, settings.workspace.base_branch)


def uncommitted_skills(
    repository: Path, roots: tuple[str, ...], base_branch: str | None
) -> UnseenSkills | None:
    """Skills below `roots` that the last commit of the base branch does not have; `None` where it has all."""
    files = (path for root in roots for path in Path(repository, root).glob("*/SKILL.md"))
    found = {path.relative_to(repository).as_posix() for path in files}
    branch = base_branch or "HEAD"
    committed = _committed(repository, branch, roots) if found else None
    if committed is None or found <= committed:
        return None
    return UnseenSkills(names=tuple(sorted(found - committed)), branch=branch)


def unseen_changes(settings: Settings, workflow: Path) -> tuple[str, ...]:
    """Tracked files of the repository that differ from the last commit, so that no session sees the change.

    The workflow file and the board are left out: the daemon reads them from the folder. As `unseen_skills`
    this looks at a local path only, and says nothing where git does not answer.
    """
    repository = settings.workspace.repo
    if repository is None or not Path(repository).is_dir():
        return ()
    top = Path(repository).resolve()
    read_elsewhere = (path.resolve() for path in (workflow, workflow.parent / _BOARD))
    inside = [path.relative_to(top) for path in read_elsewhere if path.is_relative_to(top)]
    options = ("--name-only", "-z", "--no-ext-diff", "--no-textconv", "--ignore-submodules", "HEAD")
    names = (".", *(f":(exclude,literal){path}" for path in inside))
    try:
        done = git(top, "--no-optional-locks", "diff", *options, "--", *names, timeout_s=_TIMEOUT_S)
    except (CommandError, OSError, subprocess.SubprocessError):
        return ()
    return tuple(filter(None, done.stdout.split("\0"))) if done.returncode == 0 else ()


def _committed(repository: Path, branch: str, roots: tuple[str, ...]) -> set[str] | None:
    listing = ("ls-tree", "-r", "-z", "--name-only", branch, "--", *roots)
    try:
        done = git(repository, *listing, timeout_s=_TIMEOUT_S)
    except (CommandError, OSError, subprocess.SubprocessError):
        return None
    return set(done.stdout.split("\0")) if done.returncode == 0 else None
