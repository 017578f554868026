"""What is unusual about a repository, found before the first run, with the command that repairs it."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from symphony import to_thread
from symphony.files import read_regular
from symphony.workspaces.filters import MissingFilter
from symphony.workspaces.git import Git, GitError, common_dir

_PARTIAL: Final = r"^(remote\..+\.promisor|extensions\.partialclone)$"
_MAX_SHALLOW_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Trait:
    """Something unusual, and the command that makes it usual; one line each."""

    message: str
    repair: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryTrial:
    """What a fetch and a checkout that succeeded have shown."""

    missing: tuple[MissingFilter, ...]
    unusual: tuple[Trait, ...]


async def unusual_traits(git: Git, repository: Path) -> tuple[Trait, ...]:
    """What may keep a later run from fetching a local repository, although it can be fetched now."""
    there, found = f"git -C {shlex.quote(str(repository))}", []
    git_dir = await to_thread.run_sync(common_dir, repository) or repository
    shallow = await to_thread.run_sync(read_regular, git_dir / "shallow", _MAX_SHALLOW_BYTES)
    if shallow is not None:
        found.append(Trait("it is shallow: its history ends early", f"`{there} fetch --unshallow`"))
    try:
        listing = await git.trusted("-C", repository, "config", "-z", "--name-only", "--get-regexp", _PARTIAL)
    except GitError:  # this is how git says that there is none
        return tuple(found)
    keys = listing.decode("utf-8", "replace").split("\0")
    remote = next(
        (key.split(".", 1)[1].rpartition(".")[0] for key in keys if key.startswith("remote.")), "origin"
    )
    repair = (
        f"`{there} config --unset-all remote.{remote}.partialclonefilter; {there} fetch --refetch {remote} "
        f"&& {there} config --unset-all remote.{remote}.promisor`"
    )
    return (*found, Trait("it is a partial clone: objects may be missing", repair))
