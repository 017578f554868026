"""Finds work: everything in a workspace that neither the mirror nor the repository has.

Work is commits on any ref, detached heads, linked worktrees, tags, notes, stashes, operations in progress and
uncommitted files, of the workspace's repository and of every repository nested in it. Ignored files, reflogs,
remote-tracking refs, and refs that came with the clone are not work. A workspace with work is not removed; in
case of doubt it is kept, and the reason is reported. An agent controls every repository there, so refs are
read as files, and git runs only in shadows (see `shadow`). The content of stashes and untracked files is not
read.
"""

import errno
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec import Struct

from symphony import to_thread
from symphony.config import WorkspaceSettings
from symphony.domain import plural
from symphony.files import read_regular
from symphony.processes.base import Host
from symphony.workspaces.directories import examine
from symphony.workspaces.files import is_directory, is_missing
from symphony.workspaces.git import Git, GitError, all_refs, common_dir, packed_refs, read_ref
from symphony.workspaces.layout import Layout
from symphony.workspaces.mirror import Mirror
from symphony.workspaces.model import Work, local_repository
from symphony.workspaces.shadow import (
    MAX_POINTER_BYTES,
    Shadow,
    is_content_of,
    open_shadow,
    read_ref_snapshot,
)

_MAX_DIRECTORIES: Final = 1_000_000
_MAX_REPOSITORIES: Final = 200
_MAX_NAMED: Final = 5
_MAX_SMALL_BYTES: Final = 1024 * 1024
_NOT_ENTERED: Final = frozenset({"objects", "refs", "logs", "hooks", "info"})  # of a git directory
_LOCAL: Final = "local "  # a prefix for refs of a local repository
_NO_WORK: Final = ("refs/remotes/", "refs/prefetch/", "refs/bisect/")
_IN_PROGRESS: Final = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase or `git am`",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "sequencer": "a cherry-pick or revert",
    "BISECT_LOG": "a bisection",
}
_URL = re.compile(rb"(?m)^\s*url\s*=\s*(.+?)\s*$")


# --- Repositories in a workspace ---


class _Checkout(Struct, frozen=True, kw_only=True):
    """A checkout of a repository.

    Attributes:
        git_dir: the directory with its `HEAD` and index; for a linked worktree, the one below `worktrees/`.
        tree: its files; `None` if there are none in the workspace.
        is_linked: whether it is a linked worktree.
    """

    git_dir: Path
    tree: Path | None
    is_linked: bool = False


class _Repository(Struct, frozen=True, kw_only=True):
    """A repository in a workspace: the directory with its refs and objects, and its checkouts."""

    common: Path
    checkouts: tuple[_Checkout, ...]


@dataclass(slots=True)
class _Found:
    """The result of a walk through a workspace: repositories, and one line per unreadable place."""

    repositories: list[_Repository] = field(default_factory=list)
    hidden: list[tuple[str, Path]] = field(default_factory=list)


def _directories(top: Path) -> Iterator[tuple[Path, Mapping[str, bool], bool]]:
    """Each directory of a workspace, its entries (true for directories), and whether git uses it.

    Raises:
        OSError: a directory cannot be read, or there are too many.
    """
    pending = [top]
    for _ in range(_MAX_DIRECTORIES):
        if not pending:
            return
        directory = pending.pop()
        with suppress(FileNotFoundError), os.scandir(directory) as entries:
            kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
            is_git_dir = "HEAD" in kinds and all(kinds.get(name) for name in ("objects", "refs"))
            yield directory, kinds, is_git_dir
            skipped = _NOT_ENTERED if is_git_dir else frozenset[str]()
            pending += [directory / name for name, is_dir in kinds.items() if is_dir and name not in skipped]
    raise OSError(errno.EFBIG, f"more than {_MAX_DIRECTORIES} directories", str(top))


def _find_repositories(top: Path) -> _Found:
    """Find the repositories in a workspace, including ignored directories; blocking.

    Raises:
        OSError: a directory cannot be read, or there is too much.
    """
    git_dirs, pointers = list[Path](), dict[Path, Path]()
    found = _Found()
    for directory, kinds, is_git_dir in _directories(top):
        if is_git_dir:
            git_dirs.append(directory)
        if not is_git_dir and directory.name == ".git" and kinds.get("objects"):
            found.hidden.append((f"{_relative(top, directory)} is no usable repository", directory))
        if kinds.get(".git") is False and directory != top:
            target = _pointer(directory)
            if target is not None and target.is_relative_to(top):
                pointers[target] = directory
            else:
                text = f"{_relative(top, directory)} belongs to another repository"
                found.hidden.append((text, directory))
    for common in sorted(git_dirs):
        own_tree = common.parent if common.name == ".git" else pointers.pop(common, None)
        linked = list[_Checkout]()
        for git_dir in _subdirectories(common / "worktrees"):
            tree, elsewhere = pointers.pop(git_dir, None), _tree_of(git_dir)
            if tree is None and elsewhere is not None and _pointer(elsewhere) == git_dir:
                found.hidden.append((f"the worktree {elsewhere} needs its repository", elsewhere))
            linked.append(_Checkout(git_dir=git_dir, tree=tree, is_linked=True))
        checkouts = (_Checkout(git_dir=common, tree=own_tree), *linked)
        found.repositories.append(_Repository(common=common, checkouts=checkouts))
    for tree in pointers.values():
        found.hidden.append((f"the repository of {_relative(top, tree)} is missing", tree))
    return found


def _subdirectories(path: Path) -> Iterator[Path]:
    if is_directory(path):
        yield from sorted(each for each in path.iterdir() if is_directory(each))


def _pointer(tree: Path) -> Path | None:
    """The resolved git directory that the file (or link) `.git` of a checkout names."""
    if (tree / ".git").is_symlink():
        return Path(os.path.realpath(tree / ".git"))
    text = (read_regular(tree / ".git", _MAX_SMALL_BYTES) or b"").decode("utf-8", "surrogateescape")
    target = text.removeprefix("gitdir:").strip()
    return Path(os.path.realpath(tree / target)) if text.startswith("gitdir:") and "\0" not in text else None


def _tree_of(git_dir: Path) -> Path | None:
    """The directory of a linked worktree's files, by its git directory; it may be gone."""
    text = (read_regular(git_dir / "gitdir", _MAX_SMALL_BYTES) or b"").decode("utf-8", "surrogateescape")
    return None if not text.strip() or "\0" in text else Path(os.path.realpath(git_dir / text.strip())).parent


def _relative(top: Path, path: Path) -> str:
    return str(path.relative_to(top)) if path != top else "it"


# --- Work in them ---


class WorkCheck(Struct, frozen=True, kw_only=True):
    """Looks for work in the workspaces below one root.

    Attributes:
        git: runs git.
        layout: the layout of the root.
        mirror: the mirror of the repository; `None` if hooks populate workspaces.
        keep_dirty: whether uncommitted files and operations in progress count as work. Commits always do.
    """

    git: Git
    layout: Layout
    mirror: Mirror | None
    keep_dirty: bool

    async def find(
        self,
        path: Path,
        git_hashes: Mapping[str, str] | None,
        made_with: Mapping[str, str] | None,
        *,
        clean: bool = False,
    ) -> Work | None:
        """The work in a workspace; `None` if nothing would be lost.

        Args:
            path: the workspace, resolved.
            git_hashes: the hashes of its `.git` at its creation.
            made_with: its tags at its creation; they do not count as work.
            clean: all files of its own checkout are known to be committed or ignored.
        """
        looked = await to_thread.run_sync(self._survey, path)
        if isinstance(looked, str):
            return _work([looked], ["ls", "-la", str(path)])
        found, known = looked
        reasons, look = list[str](), list[str]()
        for repository in found.repositories:
            is_main = repository.common == path / ".git"
            name = "" if is_main else f"{_relative(path, _shown(repository))}: "
            look_here = ["git", "-C", str(_shown(repository))]
            examined = _Examined(
                self,
                path,
                repository,
                known,
                git_hashes if is_main else None,
                made_with if is_main else None,
                clean=clean and is_main,
            )
            try:
                for reason, command in await examined.work():
                    reasons.append(f"{name}{reason}")
                    look = look or ([*look_here, *command] if command[0] != "git" else list(command))
            except (GitError, OSError) as error:
                reasons.append(f"{name}its repository cannot be inspected: {error}")
                look = look or [*look_here, "log", "--all", "--oneline"]
        for reason, place in found.hidden:
            reasons.append(reason)
            look = look or ["ls", "-la", str(place)]
        return _work(reasons, look) if reasons else None

    def _survey(self, path: Path) -> tuple[_Found, dict[str, str]] | str:
        """The repositories of a workspace and the known refs, or why the workspace is kept; blocking."""
        if self.mirror is not None or not is_missing(path / ".git"):
            problem = read_ref_snapshot(path).problem
            if problem is not None:
                return f"{problem}, so work might be lost"
        try:
            return _find_repositories(path), self._known_refs()
        except OSError as error:
            return f"it cannot be looked through: {error.strerror or error} {error.filename or ''}".strip()

    async def configs(self, common: Path) -> tuple["_StatusConfig", ...]:
        """The settings of the user's `git status`, from this repository and from `workspace.repo`.

        The repository's own configuration is read as data, without its includes.
        """
        local = None if self.mirror is None else local_repository(self.mirror.repository)
        content = await to_thread.run_sync(read_regular, common / "config", _MAX_SMALL_BYTES)
        own = await self._settings("--file", "-", "--no-includes", stdin=content or b"")
        user = await self._settings("--global", "--includes")
        found = [await to_thread.run_sync(_status_config, [user, own], common.parent)]
        if local is not None:
            repository = await self._settings("--includes", where=local)
            found.append(await to_thread.run_sync(_status_config, [user, repository, own], local))
        return tuple(dict.fromkeys(found))

    async def _settings(
        self, *source: str, where: Path | None = None, stdin: bytes | None = None
    ) -> dict[str, str]:
        keys = r"^core\.(autocrlf|eol|excludesfile|attributesfile)$"
        show = ("config", *source, "-z", "--get-regexp", keys)
        try:
            if stdin is not None:
                listing = await self.git.isolated(*show, stdin=stdin)
            else:
                listing = await self.git.trusted(*(() if where is None else ("-C", where)), *show)
        except GitError:  # this is how git reports that there is none
            return {}
        pairs = (one.partition("\n") for one in listing.decode("utf-8", "surrogateescape").split("\0"))
        return {key: value for key, _, value in pairs if key}

    def _known_refs(self) -> dict[str, str]:
        """The refs of the mirror, and those of a local repository."""
        if self.mirror is None:
            return {}
        local = local_repository(self.mirror.repository)
        own = local and common_dir(local)
        known = (
            {} if own is None else {f"{_LOCAL}{name}": one for name, one in all_refs(own, "refs/").items()}
        )
        return known | all_refs(self.mirror.path, "refs/")


class _StatusConfig(Struct, frozen=True):
    """Options of `git status`, and the patterns of the user's own excludes."""

    options: tuple[str, ...]
    excludes: bytes


def _status_config(sources: list[dict[str, str]], base: Path) -> _StatusConfig:
    """Merge the settings of several sources. A later one wins, but excludes add up; blocking."""
    merged: dict[str, str] = {}
    excludes = list[bytes]()
    for source in sources:
        merged |= source
        if (name := source.get("core.excludesfile")) and "\0" not in name:
            path = os.path.realpath(base / Path(name).expanduser())
            excludes.append(read_regular(Path(path), _MAX_SMALL_BYTES) or b"")
    attributes = sources[0].get("core.attributesfile")  # only the user's
    options = [f"{key}={merged[key]}" for key in ("core.autocrlf", "core.eol") if key in merged]
    options += [] if attributes is None else [f"core.attributesFile={attributes}"]
    return _StatusConfig(
        tuple(word for option in options for word in ("-c", option)), b"\n".join(dict.fromkeys(excludes))
    )


def _work(reasons: list[str], look: list[str]) -> Work:
    shown = reasons[:_MAX_NAMED]
    more = [f"{len(reasons) - len(shown)} more"] if len(reasons) > len(shown) else []
    return Work(reason="; ".join([*shown, *more]), look=shlex.join(look))


def _shown(repository: _Repository) -> Path:
    """The directory by which people know a repository."""
    return repository.checkouts[0].tree or repository.common


class _Examined:
    """One repository of a workspace."""

    def __init__(
        self,
        check: WorkCheck,
        top: Path,
        repository: _Repository,
        known: Mapping[str, str],
        git_hashes: Mapping[str, str] | None,
        made_with: Mapping[str, str] | None,
        *,
        clean: bool,
    ) -> None:
        self._clean = clean
        self._check = check
        self._top = top
        self._repository = repository
        self._known = known
        self._git_hashes = git_hashes
        self._made_with = made_with
        self._is_cloned_by_us = check.mirror is not None and repository.common == top / ".git"

    async def work(self) -> list[tuple[str, list[str]]]:
        """The kinds of work, and the git arguments that show each. Raises `GitError` and `OSError`."""
        found = list[tuple[str, list[str]]]()
        if self._check.keep_dirty:
            for checkout in self._repository.checkouts:
                found += await self._uncommitted(checkout)
        return found + await self._committed()

    # --- uncommitted ---

    async def _uncommitted(self, checkout: _Checkout) -> list[tuple[str, list[str]]]:
        git_dir, tree = checkout.git_dir, checkout.tree
        where = ["git", "-C", str(tree)] if checkout.is_linked and tree is not None else []
        place = f" in the worktree {_relative(self._top, tree)}" if where and tree is not None else ""
        found = list[tuple[str, list[str]]]()
        operation, head = await to_thread.run_sync(self._state_of, git_dir)
        if operation is not None:
            found.append((f"{operation} in progress{place}", [*where, "status"]))
        if tree is None or (self._clean and not checkout.is_linked):
            return found
        async with self._shadow(tree, head, git_dir) as shadow:
            # What needs no settings to be clean has nothing to lose, and most checkouts are.
            entries = await shadow.status()
            for config in await self._check.configs(self._repository.common) if entries else ():
                entries = await shadow.status(options=config.options, excludes=config.excludes)
                if not entries:
                    break
            has_lfs = await to_thread.run_sync(is_directory, self._repository.common / "lfs")
            if entries and has_lfs:
                entries = await _without_lfs_files(shadow, tree, entries)
            if entries:
                entries = await _without_filtered_files(shadow, entries)
        if entries:
            found.append((f"{len(entries)} uncommitted or untracked file(s){place}", [*where, "status"]))
        return found

    def _state_of(self, git_dir: Path) -> tuple[str | None, str | None]:
        """The operation in progress in a checkout, and its commit; blocking."""
        begun = (text for name, text in _IN_PROGRESS.items() if not is_missing(git_dir / name))
        return next(begun, None), _head(git_dir, self._repository.common)

    def _shadow(self, tree: Path, head: str | None, git_dir: Path) -> AbstractAsyncContextManager[Shadow]:
        mirror = self._check.mirror
        return open_shadow(
            self._check.git,
            self._check.layout.staging,
            tree,
            head,
            git_hashes=self._git_hashes,
            objects=None if mirror is None else mirror.objects,
            git_dir=git_dir,
            common=self._repository.common,
            within=self._top,
        )

    # --- committed ---

    async def _committed(self) -> list[tuple[str, list[str]]]:
        read = await to_thread.run_sync(self._refs)
        if read is None:
            return [("its refs are in the format reftable, which is not read", ["log", "--all", "--oneline"])]
        refs, heads, packed, remote = read
        safe = remote.union(self._known.values())
        found = list[tuple[str, list[str]]]()
        if "refs/stash" in refs:
            found.append(("a stash", ["stash", "list"]))
        commits = {
            name: commit
            for name, commit in {**refs, **heads}.items()
            if commit not in safe and name != "refs/stash" and not name.startswith((*_NO_WORK, "refs/tags/"))
        }
        tags = {
            name: one
            for name, one in refs.items()
            if name.startswith("refs/tags/") and self._is_new(name, one)
        }
        loose = [
            name
            for name in tags
            if self._is_cloned_by_us or self._made_with is not None or name not in packed
        ]
        commits |= {name: one for name, one in tags.items() if name not in loose and one not in safe}
        if loose:
            names = ", ".join(name.removeprefix("refs/tags/") for name in loose[:_MAX_NAMED])
            found.append(
                (f"{plural(len(loose), 'tag')} that the repository does not have: {names}", ["tag", "-n"])
            )
        # Only the mirror's objects are available for a comparison, not those of a local repository.
        mirrored = {commit for name, commit in self._known.items() if not name.startswith(_LOCAL)}
        return found + await self._undelivered(commits, remote | mirrored)

    def _refs(self) -> tuple[dict[str, str], dict[str, str], frozenset[str], set[str]] | None:
        """What the repository has; `None` if its refs are not files. Blocking.

        That is its refs, also those of worktrees; the heads by names for people; the names of packed
        refs; and what a remote has.
        """
        common = self._repository.common
        if is_directory(common / "reftable"):
            return None
        packed = packed_refs(common)
        refs, heads = all_refs(common, "refs/", packed), dict[str, str]()
        for checkout in self._repository.checkouts:
            if checkout.is_linked:
                refs |= all_refs(checkout.git_dir, "refs/", {})
            if (head := _head(checkout.git_dir, common)) is not None:
                heads[f"the worktree {checkout.git_dir.name}" if checkout.is_linked else "HEAD"] = head
        return refs, heads, frozenset(packed), self._remote_tips(refs)

    def _remote_tips(self, refs: Mapping[str, str]) -> set[str]:
        """The remote-tracking commits of the repository, except those of a remote in the workspace itself."""
        if self._is_cloned_by_us:
            return set()
        config = read_regular(self._repository.common / "config", _MAX_SMALL_BYTES) or b""
        base = _shown(self._repository)
        for raw in _URL.findall(config):
            url = raw.decode("utf-8", "surrogateescape").strip('"').removeprefix("file://")
            is_path = "\0" not in url and ":" not in url.partition("/")[0]
            if is_path and Path(os.path.realpath(base / url)).is_relative_to(self._top):
                return set()
        return {commit for name, commit in refs.items() if name.startswith("refs/remotes/")}

    def _is_new(self, name: str, target: str) -> bool:
        known = (self._known.get(name), self._known.get(f"{_LOCAL}{name}"))
        return target not in {*known, (self._made_with or {}).get(name)}

    async def _undelivered(self, commits: Mapping[str, str], safe: set[str]) -> list[tuple[str, list[str]]]:
        if not commits:
            return []
        first = next(iter(commits.values()))
        found = list[str]()
        common = self._repository.common
        async with self._shadow(_shown(self._repository), first, common) as shadow:
            if await shadow.are_within(set(commits.values()), safe):
                return []
            by_commit = dict[str, str]()
            for name, commit in commits.items():
                by_commit.setdefault(commit, name)
            for commit, name in by_commit.items():
                if len(found) < _MAX_NAMED and not await shadow.are_within({commit}, safe):
                    found.append(name.removeprefix("refs/heads/").removeprefix("refs/"))
        return [
            (f"commits on {name} that were not delivered", ["log", "--oneline", commits.get(name) or "--all"])
            for name in found
        ]


def _head(git_dir: Path, common: Path) -> str | None:
    """The commit of a checkout, whose branch is in the common directory."""
    content = (read_regular(git_dir / "HEAD", _MAX_SMALL_BYTES) or b"").strip()
    if git_dir == common or not content.startswith(b"ref: "):
        return read_ref(git_dir, "HEAD")
    return read_ref(common, content.removeprefix(b"ref: ").decode("utf-8", "surrogateescape").strip())


async def _without_lfs_files(shadow: Shadow, path: Path, entries: list[bytes]) -> list[bytes]:
    """The changes without files that match their Git LFS pointer, because no filter runs in a shadow."""
    changed = {entry: entry.split(b" ", 8) for entry in entries if entry.startswith(b"1 .M ")}
    pointers = await shadow.small_blobs((fields[7] for fields in changed.values()), MAX_POINTER_BYTES)

    def matches_pointer(entry: bytes) -> bool:
        fields = changed.get(entry)
        if fields is None or fields[7] not in pointers:
            return False
        return is_content_of(pointers[fields[7]], path / fields[8].decode("utf-8", "surrogateescape"))

    return await to_thread.run_sync(lambda: [entry for entry in entries if not matches_pointer(entry)])


async def _without_filtered_files(shadow: Shadow, entries: list[bytes]) -> list[bytes]:
    """The changes without filtered files that match the index, because no filter runs in a shadow."""
    paths = {entry: entry.split(b" ", 8)[8] for entry in entries if entry.startswith(b"1 .M ")}
    filtered = await shadow.filtered(paths.values())
    unchanged = await shadow.unchanged(filtered) if filtered else frozenset[bytes]()
    return [entry for entry in entries if paths.get(entry) not in unchanged]


async def find_work(
    path: Path,
    *,
    host: Host,
    settings: WorkspaceSettings,
    environment: Mapping[str, str],
    secret_names: frozenset[str],
) -> Work | None:
    """Why `WorkspaceManager.remove` would keep a workspace; `None` if nothing would be lost. Changes nothing.

    A removal delivers committed work first, so it may remove a workspace that is kept here for committed
    work.

    Raises:
        WorkspaceError: the path fails the containment check.
    """
    layout, path, record, exists, foreign_owner = await to_thread.run_sync(examine, path)
    if foreign_owner:
        return Work(reason=foreign_owner, look=shlex.join(["ls", "-ld", str(path)]))
    if not exists or (record is not None and not record.ready):
        return None
    git = Git(host, environment, secret_names)
    mirror = None if record is None or record.repo is None else Mirror(git, layout, record.repo)
    check = WorkCheck(git=git, layout=layout, mirror=mirror, keep_dirty=settings.keep_dirty)
    return await check.find(
        path, None if record is None else record.git_hashes, None if record is None else record.tags
    )
