"""Finds unusual traits of a repository before the first run, with the command that repairs each.

The attributes of a repository may name filters that git does not know in workspaces. Git reads the commands
of a filter (`filter.NAME.clean` and the like) from configuration, which a clone does not copy. Without them
an agent sees the stored form, such as encrypted text, and commits files that must not be committed.
"""

import re
import shlex
from pathlib import Path
from typing import Final

from msgspec import Struct

from symphony import to_thread
from symphony.domain import one_line
from symphony.files import read_regular
from symphony.workspaces.git import Git, GitError, common_dir

_PARTIAL: Final = r"^(remote\..+\.promisor|extensions\.partialclone)$"
_MAX_SHALLOW_BYTES: Final = 1024 * 1024
_ATTRIBUTES: Final = (".gitattributes", ":(glob)**/.gitattributes")
_NAMED: Final = re.compile(r"(?m)^[^#\n]*\sfilter=(\S+)")
_COMMANDS: Final = r"^filter\..+\.(clean|smudge|process)$"
_MAX_ATTRIBUTES_BYTES: Final = 1024 * 1024
_MAX_NAME: Final = 80
_HINTS: Final = {
    "lfs": "install git-lfs, and run `git lfs install` as the user of the daemon",
    "git-crypt": "hooks.after_create: git-crypt unlock /path/to/key",
}


class MissingFilter(Struct, frozen=True):
    """A missing filter; `source` is the local repository whose own configuration has it, or `None`."""

    name: str
    source: Path | None

    @property
    def hint(self) -> str:
        """How to make it known in workspaces, in one line."""
        usual = f"give the user of the daemon the lines of filter.{self.name} (`git config --global`)"
        own = "" if self.source is None else f" that {self.source}/.git/config has"
        return _HINTS.get(self.name) or f"{usual}{own}, or set them up in hooks.after_create"


async def missing_filters(
    git: Git, repository: Path, commit: str, *, source: Path | None, hook: str | None
) -> tuple[MissingFilter, ...]:
    """The filters that a commit names and that workspaces will not have.

    Args:
        git: runs git.
        repository: has the commit.
        commit: a commit or a branch.
        source: a local repository from which workspaces are cloned.
        hook: `hooks.after_create`; a filter that it names counts as set up.
    """
    text = await _attributes(git, repository, commit)
    own = None if source is None else await to_thread.run_sync(common_dir, source)
    if own is not None:
        raw = await to_thread.run_sync(read_regular, own / "info/attributes", _MAX_ATTRIBUTES_BYTES)
        text += (raw or b"").decode("utf-8", "replace")
    named = {name for name in _NAMED.findall(text) if hook is None or name not in hook}
    if not named:
        return ()
    known = await _known(git, Path("/"))
    of_source = frozenset() if source is None else await _known(git, source)
    return tuple(
        MissingFilter(one_line(name, _MAX_NAME), source if name in of_source else None)
        for name in sorted(named - known)
    )


async def _attributes(git: Git, repository: Path, commit: str) -> str:
    """The lines of a commit's attributes that name a filter."""
    grep = ("-C", repository, "grep", "-h", "-I", "--fixed-strings", "filter=", commit, "--", *_ATTRIBUTES)
    try:
        return (await git.trusted(*grep)).decode("utf-8", "replace")
    except GitError:  # this is how git says that there is none
        return ""


async def _known(git: Git, place: Path) -> frozenset[str]:
    """The filters with a command in the configuration that git reads at a place."""
    try:
        listing = await git.trusted("-C", place, "config", "-z", "--name-only", "--get-regexp", _COMMANDS)
    except GitError:  # this is how git says that there is none
        return frozenset()
    names = listing.decode("utf-8", "replace").split("\0")
    return frozenset(name.partition(".")[2].rpartition(".")[0] for name in names)


class Trait(Struct, frozen=True):
    """An unusual trait, and the command that repairs it; one line each."""

    message: str
    repair: str


class RepositoryTrial(Struct, frozen=True, kw_only=True):
    """The result of a successful trial fetch and checkout."""

    missing: tuple[MissingFilter, ...]
    unusual: tuple[Trait, ...]


async def unusual_traits(git: Git, repository: Path) -> tuple[Trait, ...]:
    """Traits that may prevent a later fetch of a local repository, although it can be fetched now."""
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
