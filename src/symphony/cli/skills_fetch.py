"""Brings the files of a foreign repository here without running anything of it.

The fetch sees the user's own git configuration, or a private repository could not be reached. The checkout
sees none, so that no filter runs, whatever the repository's attributes ask for; hooks are off in both. What
git kept about the source, its address above all, is gone before anybody reads a file.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import anyio

from symphony.cli.failures import CommandError, ExitCode
from symphony.domain.plain import one_line
from symphony.processes.local import LocalHost
from symphony.workspaces.git import Git, GitError, without_credentials
from symphony.workspaces.remote import apart

__all__ = ["Fetched", "fetch", "is_address"]

_TIMEOUT_MS = 120_000
_MAX_FILES = 50_000
_MAX_BYTES = 512 * 1024 * 1024
_ADDRESS = re.compile(r"(?:https?|ssh|git|file)://.+|[\w.-]+@[\w.-]+:.+")
_REF = re.compile(r"[\w][\w./@+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A repository's files, without its `.git`, and where they are from; `address` has no credentials."""

    tree: Path
    address: str
    commit: str


def is_address(source: str) -> bool:
    """Whether the text is the address of a repository and not a path."""
    return _ADDRESS.fullmatch(source) is not None


def fetch(address: str, ref: str | None, into: Path) -> Fetched:
    """The files of one commit, in a new directory of the repository's name below `into`.

    Raises:
        CommandError: the reference is none, or git could not bring it; the message holds no credentials.
    """
    if ref is not None and (_REF.fullmatch(ref) is None or ".." in ref):
        hint = "name a branch, a tag or a whole commit id"
        raise CommandError.of(f"{one_line(ref)!r} is no reference", hint=hint, code=ExitCode.USAGE)
    tree = into / (_name(address) or "repository")
    shown = one_line(without_credentials(address))
    try:
        commit = anyio.run(_fetch, address, ref or "HEAD", tree)
    except GitError as error:
        hint = "check the address and the reference, and that `git ls-remote` reaches it"
        raise CommandError.of(f"{shown} cannot be fetched: {error}", hint=hint) from error
    shutil.rmtree(tree / ".git")
    return Fetched(tree=tree, address=shown, commit=commit)


def _name(address: str) -> str:
    """What `git clone` would call the directory, as far as it is a plain word."""
    last = PurePosixPath(re.split(r"[/:]", address.rstrip("/"))[-1]).name.removesuffix(".git")
    return last if re.fullmatch(r"\w[\w.-]*", last) else ""


async def _fetch(address: str, ref: str, tree: Path) -> str:
    git, (address, login) = Git(LocalHost(), os.environ, frozenset()), apart(address)
    await git.trusted("init", "--quiet", "--template=", "--", tree)
    await git.trusted(
        "-C",
        tree,
        "fetch",
        "--quiet",
        "--depth=1",
        "--no-tags",
        "--no-auto-maintenance",
        "--",
        address,
        ref,
        timeout_ms=_TIMEOUT_MS,
        login=login,
    )
    commit = (await git.isolated("-C", tree, "rev-parse", "FETCH_HEAD^{commit}")).decode().strip()
    _refuse_giant(await git.isolated("-C", tree, "ls-tree", "-r", "-l", "-z", commit))
    await git.isolated("-C", tree, "checkout", "--quiet", "--detach", commit)
    return commit


def _refuse_giant(listing: bytes) -> None:
    """Before anything is written: `mode type id size<TAB>path`, the size of a submodule being a dash."""
    sizes = [entry.split(None, 4)[3] for entry in listing.split(b"\0") if entry]
    if len(sizes) > _MAX_FILES or sum(int(size) for size in sizes if size.isdigit()) > _MAX_BYTES:
        raise GitError(f"it has more than {_MAX_FILES} files or {_MAX_BYTES // 1024**2} MiB")
