"""A classic mistake: skills that lie in the folder, but not in the commit that is cloned."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from symphony.cli.failures import CommandError
from symphony.cli.git import git
from symphony.workflow.settings import Settings

__all__ = ["UnseenSkills", "unseen_skills"]

_TIMEOUT_S = 10


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
    files = (path for root in roots for path in Path(repository, root).glob("*/SKILL.md"))
    found = {path.relative_to(repository).as_posix() for path in files}
    branch = settings.workspace.base_branch or "HEAD"
    committed = _committed(Path(repository), branch, roots) if found else None
    if committed is None or found <= committed:
        return None
    return UnseenSkills(names=tuple(sorted(found - committed)), branch=branch)


def _committed(repository: Path, branch: str, roots: tuple[str, ...]) -> set[str] | None:
    listing = ("ls-tree", "-r", "-z", "--name-only", branch, "--", *roots)
    try:
        done = git(repository, *listing, timeout_s=_TIMEOUT_S)
    except (CommandError, OSError, subprocess.SubprocessError):
        return None
    return set(done.stdout.split("\0")) if done.returncode == 0 else None
