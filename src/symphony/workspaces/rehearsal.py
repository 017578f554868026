"""Rehearses merges: which delivered branches merge together on the present base, and which do not.

    every branch with the base -> one after the other into a combination -> pairs that changed the same file

Git merges objects and touches no checkout (`git merge-tree`). It writes to a temporary git directory that
borrows the objects of the mirror. That directory has its own configuration, so no merge driver, filter or
hook runs, whatever the attributes of a branch name. The top-level `.gitattributes` of the base decides which
files git merges as `union` or not at all.
"""

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum
from functools import partial
from io import SEEK_CUR, BytesIO
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from symphony import to_thread
from symphony.domain import Category
from symphony.workspaces.files import temporary_directory
from symphony.workspaces.git import Git, GitError, hint_of, read_ref, repository_config, write_git_dir
from symphony.workspaces.mirror import Mirror, check_out
from symphony.workspaces.model import WorkspaceError

MAX_BRANCHES: Final = 200
"""How many branches are merged at most; the result names the others."""
_MAX_PAIRS: Final = 300
_MAX_FILES: Final = 20
_MAX_RANGES: Final = 10
_MAX_BLOB_BYTES: Final = 512 * 1024
_MAX_BLOBS_BYTES: Final = 16 * 1024 * 1024
_MAX_COMPARED_LINES: Final = 1_000
_MAX_ATTRIBUTES_BYTES: Final = 256 * 1024
_GIT: Final = (2, 39)
_MERGE: Final = ("merge-tree", "--write-tree", "--stdin", "-z")
_DIFF: Final = ("diff-tree", "--stdin", "-r", "-z", "--name-only", "--no-renames")
_AUTHOR: Final = ("-c", "user.name=symphony", "-c", "user.email=symphony@localhost")
_GITLINK: Final = b"160000"
_OURS: Final = 2
_THEIRS: Final = 3


class Fate(StrEnum):
    """The outcome of a branch in a rehearsal."""

    MERGES = "merges"
    CONFLICTS = "conflicts"
    MERGED = "merged"
    GONE = "gone"
    UNRELATED = "unrelated"
    UNCHECKED = "unchecked"


class ConflictKind(StrEnum):
    """Why git cannot merge a file."""

    CONTENT = "content"
    ADDED = "added"
    BINARY = "binary"
    DELETED = "deleted"
    RENAMED = "renamed"
    DIRECTORY = "directory"
    MODE = "mode"
    SUBMODULE = "submodule"
    OTHER = "other"


_KINDS: Final = (
    ("submodule", ConflictKind.SUBMODULE),
    ("binary", ConflictKind.BINARY),
    ("directory", ConflictKind.DIRECTORY),
    ("file location", ConflictKind.DIRECTORY),
    ("rename", ConflictKind.RENAMED),
    ("modify/delete", ConflictKind.DELETED),
    ("distinct", ConflictKind.MODE),
    ("mode", ConflictKind.MODE),
    ("contents", ConflictKind.CONTENT),
)
"""Parts of git's short names of conflicts. If a file has several kinds, the first one counts."""


class LineSpan(Struct, frozen=True, kw_only=True):
    """Consecutive lines of a file, from 1; both ends included."""

    first: int
    last: int


class FileConflict(Struct, frozen=True, kw_only=True):
    """A file that git cannot merge.

    Attributes:
        path: bytes that are not UTF-8 are escaped.
        kind: why.
        lines: where, in the version of the reported branch; empty if unknown.
    """

    path: str
    kind: ConflictKind
    lines: tuple[LineSpan, ...] = ()


class Conflict(Struct, frozen=True, kw_only=True):
    """A conflict of a branch.

    Attributes:
        others: names of the other branches; several of them conflict only together; empty for the base.
        files: the first files in conflict.
        files_left_out: how many more there are.
    """

    others: tuple[str, ...]
    files: tuple[FileConflict, ...]
    files_left_out: int = 0


class BranchRehearsal(Struct, frozen=True, kw_only=True):
    """The outcome of one branch; a branch that `merges` may still conflict with one that does not."""

    branch: str
    head: str | None
    fate: Fate
    conflicts: tuple[Conflict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """The result of a rehearsal.

    Attributes:
        base: the name of the base branch; `None` for a detached `HEAD`.
        base_commit: the commit that the branches were merged onto.
        tree: object id of the files of base and all branches that merge. Equal inputs give an equal tree.
        branches: in the order in which they were merged.
        moved: whether the base moved meanwhile, so that the rehearsal was repeated.
        pairs_left_out: pairs of branches that changed the same file and were not compared.
    """

    base: str | None
    base_commit: str
    tree: str
    branches: tuple[BranchRehearsal, ...]
    moved: bool = False
    pairs_left_out: int = 0


# --- what git says (pure) --------------------------------------------------------------------------------


class MergedFile(Struct, frozen=True, kw_only=True):
    """A file in conflict: why, its ids by stage (1 base, 2 ours, 3 theirs), and whether it has content."""

    kind: ConflictKind
    stages: Mapping[int, str]
    is_blob: bool = True


class Merge(Struct, frozen=True, kw_only=True):
    """A merge of two commits: the resulting tree, and the files in conflict (none if it is clean)."""

    ours: str
    theirs: str
    tree: str
    files: Mapping[bytes, MergedFile]
    clean: bool


def parse_merges(output: bytes, pairs: Sequence[tuple[str, str]]) -> list[Merge]:
    """Parse the output of `git merge-tree --stdin -z` for these pairs of commits.

    Raises:
        ValueError: it is not complete.
    """
    fields = iter(output.split(b"\0"))
    try:
        return [_parse_merge(fields, ours, theirs) for ours, theirs in pairs]
    except StopIteration:
        raise ValueError("git merge-tree ended early") from None


def _parse_merge(fields: Iterator[bytes], ours: str, theirs: str) -> Merge:
    """One result: status, tree, `mode id stage TAB path` for each stage, and messages."""
    clean, tree = int(next(fields)) == 1, next(fields).decode()
    stages = dict[bytes, dict[int, str]]()
    links = set[bytes]()
    while field := next(fields):
        entry, _, path = field.partition(b"\t")
        mode, object_id, stage = entry.split(b" ")
        stages.setdefault(path, {})[int(stage)] = object_id.decode()
        if mode == _GITLINK:
            links.add(path)
    names = dict[bytes, set[str]]()
    # Advice about submodules, which git prints after its messages, ends them too.
    while not clean and (count := next(fields)).isdigit():
        paths = [next(fields) for _ in range(int(count))]
        name = next(fields).decode("utf-8", "replace")
        next(fields)  # the same in a sentence
        if name.startswith("CONFLICT"):
            for path in paths:
                names.setdefault(path, set()).add(name.lower())
    files = {
        path: MergedFile(
            kind=_kind(names.get(path, ()), stages.get(path, {}), is_link=path in links),
            stages=stages.get(path, {}),
            is_blob=path not in links,
        )
        for path in dict.fromkeys([*stages, *names])
    }
    return Merge(ours=ours, theirs=theirs, tree=tree, files=files, clean=clean)


def _kind(names: Iterable[str], stages: Mapping[int, str], *, is_link: bool) -> ConflictKind:
    if is_link:
        return ConflictKind.SUBMODULE
    told = " ".join(names)
    kind = next((kind for part, kind in _KINDS if part in told), ConflictKind.OTHER)
    if kind is ConflictKind.CONTENT and 1 not in stages and {2, 3} <= stages.keys():
        return ConflictKind.ADDED
    return kind


def parse_changed(output: bytes, pairs: Sequence[tuple[str, str]]) -> list[frozenset[bytes]]:
    """The changed paths of pairs of trees, from the output of `git diff-tree --stdin -z --name-only`."""
    changed = [set[bytes]() for _ in pairs]
    place = -1
    for field in output.split(b"\0"):
        rest = field
        while place + 1 < len(pairs):
            header = " ".join(pairs[place + 1]).encode() + b"\n"
            if not rest.startswith(header):
                break
            place, rest = place + 1, rest.removeprefix(header)
        if rest and place >= 0:
            changed[place].add(rest)
    return [frozenset(paths) for paths in changed]


def overlapping(changed: Mapping[str, frozenset[bytes]]) -> list[tuple[str, str]]:
    """The pairs of branches that changed the same path, or a path and another one below it.

    The pairs are in the order of the branches.
    """
    order = {name: place for place, name in enumerate(changed)}
    by_path = dict[bytes, list[str]]()
    for name, paths in changed.items():
        for path in paths:
            by_path.setdefault(path, []).append(name)
    # Many files may have the same few branches, so each combination of branches is examined once.
    groups = set[tuple[tuple[str, ...], tuple[str, ...]]]()
    for path, names in by_path.items():
        ends = [end for end, letter in enumerate(path) if letter == ord("/")]
        above = dict.fromkeys(name for end in ends for name in by_path.get(path[:end], ()))
        groups.add((tuple(names), tuple(above)))
    pairs = {
        (min(a, b), max(a, b))
        for names, above in groups
        for a, b in ((order[one], order[other]) for one in names for other in (*names, *above))
        if a != b
    }
    names_of = list(changed)
    return [(names_of[a], names_of[b]) for a, b in sorted(pairs)]


def conflict_lines(
    merged: bytes, own: bytes, labels: tuple[str, str], *, theirs: bool
) -> tuple[LineSpan, ...]:
    """Where the conflicts of a merged file are in one of the two versions.

    Args:
        merged: the file with git's conflict markers.
        own: the version in which the lines count.
        labels: the two commits at the ends of the marker lines.
        theirs: whether `own` is the version of the second commit.

    Returns:
        nothing if the versions differ in too many lines.
    """
    begin, end = (f"{mark} {label}".encode() for mark, label in zip(("<" * 7, ">" * 7), labels, strict=True))
    side = list[bytes]()
    hunks = list[tuple[int, int]]()
    state, start = "same", 0
    for line in merged.splitlines():
        if state == "same" and line.startswith(begin):
            state, start = "ours", len(side)
        elif state == "ours" and line == b"=======":
            state = "theirs"
        elif state == "theirs" and line.startswith(end):
            state = "same"
            hunks.append((start, len(side)))
        elif state == "same" or (state == "theirs") is theirs:
            side.append(line)
    place_of = _places(side, own.splitlines())
    if place_of is None:
        return ()
    return tuple(
        LineSpan(
            first=place_of[first] + 1,
            last=max(place_of[first], place_of[last - 1] if last > first else 0) + 1,
        )
        for first, last in hunks[:_MAX_RANGES]
    )


def _places(lines: Sequence[bytes], target: Sequence[bytes]) -> list[int] | None:
    """For each line, its index in `target` or that of its replacement; `None` if too much differs."""
    head = 0
    while head < min(len(lines), len(target)) and lines[head] == target[head]:
        head += 1
    tail = 0
    while tail < min(len(lines), len(target)) - head and lines[-1 - tail] == target[-1 - tail]:
        tail += 1
    between, wanted = lines[head : len(lines) - tail], target[head : len(target) - tail]
    if len(between) + len(wanted) > _MAX_COMPARED_LINES:
        return None
    places = list(range(head))
    for tag, first, last, there, until in SequenceMatcher(None, between, wanted).get_opcodes():
        for offset in range(last - first):
            shift = offset if tag == "equal" else min(offset, max(0, until - there - 1))
            places.append(head + there + shift)
    shift = len(target) - len(lines)
    places += [place + shift for place in range(len(lines) - tail, len(lines))]
    highest = max(0, len(target) - 1)
    return [min(place, highest) for place in [*places, highest]]


# --- the rehearsal ---------------------------------------------------------------------------------------


async def rehearse(
    mirror: Mirror, staging: Path, branches: Mapping[str, str], base_branch: str | None
) -> Rehearsal:
    """Merge branches in this order onto the present base; repeat once if the base moves meanwhile.

    Args:
        mirror: has the branches.
        staging: the directory for the temporary git directory.
        branches: the names of delivered branches, by the names that the result uses.
        base_branch: the name of the base; that of `HEAD` if `None`.

    Raises:
        WorkspaceError: there is no base, the repository cannot be read, or git is too old.
    """
    await _check_git(mirror.git)
    moved = False
    while True:
        name, base = mirror.base(await mirror.refresh(), base_branch)
        try:
            async with _temporary_repository(mirror, staging, base) as repository:
                found = await repository.rehearse(branches)
        except (GitError, OSError, ValueError) as error:
            raise _error(str(error), hint=hint_of(error, staging)) from error
        if moved or mirror.base(await mirror.look(), base_branch) == (name, base):
            return replace(found, base=name, moved=moved)
        moved = True


class Combination(Struct, frozen=True, kw_only=True):
    """Compatible branches, merged onto the base one after the other.

    Attributes:
        changed: the paths changed up to each merge: none for the base, all for the last one.
    """

    changed: tuple[tuple[str, ...], ...]
    _commits: tuple[str, ...]
    _objects: Path
    _mirror: Mirror
    _staging: Path

    @asynccontextmanager
    async def checkout(self, count: int) -> AsyncIterator["CombinedCheckout"]:
        """A checkout of the base with the first `count` branches; it is removed at the end of the context.

        Raises:
            WorkspaceError: it cannot be made.
        """
        commit = self._commits[count]
        async with temporary_directory(self._staging, "checkout-") as staging:
            tree = staging / "rehearsal"
            try:
                await check_out(self._mirror, tree, "rehearsal", commit, objects=self._objects)
            except (GitError, OSError) as error:
                raise _error(str(error), hint=hint_of(error, self._staging)) from error
            yield CombinedCheckout(path=tree, commit=commit, objects=self._objects)


class CombinedCheckout(Struct, frozen=True, kw_only=True):
    """A checkout of merged branches: its path, its commit, and the store with its objects."""

    path: Path
    commit: str
    objects: Path


@asynccontextmanager
async def combine(
    mirror: Mirror, staging: Path, base: str, heads: Sequence[str]
) -> AsyncIterator[Combination]:
    """Merge commits that a rehearsal found compatible, in this order; no branch is touched.

    Everything that git wrote is deleted at the end of the context.

    Raises:
        WorkspaceError: the repository cannot be read.
    """
    async with AsyncExitStack() as stack:
        try:
            repository = await stack.enter_async_context(_temporary_repository(mirror, staging, base))
            commits = await repository.combine(heads)
            changed = [await repository.changed(commit) for commit in commits]
        except (GitError, OSError, ValueError) as error:
            raise _error(str(error), hint=hint_of(error, staging)) from error
        yield Combination(
            changed=tuple(changed),
            _commits=commits,
            _objects=repository.objects,
            _mirror=mirror,
            _staging=staging,
        )


async def _check_git(git: Git) -> None:
    """Raises `WorkspaceError` if git cannot merge without a checkout."""
    try:
        told = (await git.isolated("version")).decode("utf-8", "replace").strip()
    except GitError as error:
        raise _error(str(error), hint=error.hint) from error
    found = re.search(r"(\d+)\.(\d+)", told)
    if found is None or (int(found[1]), int(found[2])) < _GIT:
        newer = f"install git {_GIT[0]}.{_GIT[1]} or newer"
        raise _error(f"{told} cannot merge without a checkout", hint=newer)


def _error(message: str, *, hint: str | None) -> WorkspaceError:
    return WorkspaceError.of(
        Category.WORKSPACE_REPOSITORY, f"merges cannot be rehearsed: {message}", hint=hint
    )


@asynccontextmanager
async def _temporary_repository(
    mirror: Mirror, staging: Path, base: str
) -> AsyncIterator["_TemporaryRepository"]:
    async with temporary_directory(staging, "rehearsal-") as git_dir:
        config = repository_config(base, bare=True)
        await to_thread.run_sync(
            partial(write_git_dir, git_dir, config, head=base, borrowed=[mirror.objects])
        )
        repository = _TemporaryRepository(mirror, git_dir, base)
        await repository.take_attributes()
        yield repository


class _TemporaryRepository:
    """Merges in a git directory that borrows the objects of a mirror.

    Methods raise `GitError`, and `ValueError` for incomplete output.
    """

    def __init__(self, mirror: Mirror, git_dir: Path, base: str) -> None:
        self._mirror = mirror
        self._git_dir = git_dir
        self._base = base

    @property
    def objects(self) -> Path:
        """The store of the merged objects, which borrows from the mirror."""
        return self._git_dir / "objects"

    async def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        return await self._mirror.git.isolated(f"--git-dir={self._git_dir}", *arguments, stdin=stdin)

    async def take_attributes(self) -> None:
        """Use the `.gitattributes` at the top of the base, if it is a regular file. Raises `OSError`."""
        listed = await self._run("ls-tree", "-z", "--long", self._base, "--", ".gitattributes")
        mode, _, object_id, size, *_ = [*listed.split(), b"", b"", b"", b"0"]
        if mode.startswith(b"100") and int(size) <= _MAX_ATTRIBUTES_BYTES:
            content = await self._run("cat-file", "blob", object_id.decode())
            path = self._git_dir / "info"
            await to_thread.run_sync(path.mkdir)
            await to_thread.run_sync((path / "attributes").write_bytes, content)

    async def rehearse(self, branches: Mapping[str, str]) -> Rehearsal:
        """Merge the branches in this order; the caller adds the name of the base."""
        heads, fates = await to_thread.run_sync(self._heads, branches)
        onto_base = await self._merge_with_base(heads, fates)
        base_tree = (await self._run("rev-parse", f"{self._base}^{{tree}}")).decode().strip()
        for name, merge in onto_base.items():
            if merge.clean and merge.tree == base_tree:
                fates[name] = Fate.MERGED
        open_merges = {name: merge for name, merge in onto_base.items() if name not in fates}
        tree, merged, failed = await self._combine(open_merges, base_tree, fates)

        # A branch that conflicts with the base must be updated first, so only that conflict is reported.
        trees = {name: (base_tree, merge.tree) for name, merge in open_merges.items() if merge.clean}
        output = await self._run(*_DIFF, stdin=_pairs(trees.values()))
        changed = dict(zip(trees, parse_changed(output, list(trees.values())), strict=True))
        overlaps = await to_thread.run_sync(overlapping, changed)
        # The branches that explain a conflict come first; the sort is stable.
        overlaps.sort(key=lambda pair: pair[1] not in failed)
        compared = overlaps[:_MAX_PAIRS]
        merges = await self._merge([(heads[a], heads[b]) for a, b in compared])
        against = [
            *((name, (), merge, True) for name, merge in open_merges.items() if not merge.clean),
            *(
                (name, (other,), merge, name == b)
                for (a, b), merge in zip(compared, merges, strict=True)
                if not merge.clean
                for name, other in ((a, b), (b, a))
            ),
        ]
        explained = {name for name, others, *_ in against if not others or others[0] in merged}
        for name, merge in failed.items():
            if name not in explained:  # it conflicts with no single branch, so with several together
                together = [one for one in merged if changed[one] & merge.files.keys()] or list(merged)
                against.append((name, tuple(together), merge, True))
        lines = await self._lines([merge for _, _, merge, _ in against])
        found = dict[str, list[Conflict]]()
        for name, others, merge, theirs in against:
            found.setdefault(name, []).append(_conflict(others, merge, lines, theirs=theirs))
        return Rehearsal(
            base=None,
            base_commit=self._base,
            tree=tree,
            branches=tuple(
                BranchRehearsal(
                    branch=branch,
                    head=heads.get(name),
                    fate=fates[name],
                    conflicts=tuple(found.get(name, ())),
                )
                for name, branch in branches.items()
            ),
            pairs_left_out=len(overlaps) - len(compared),
        )

    def _heads(self, branches: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Fate]]:
        """The commits of the branches, and the fates of branches without one or over the limit; blocking."""
        heads, fates = dict[str, str](), dict[str, Fate]()
        for name, branch in branches.items():
            head = read_ref(self._mirror.path, f"refs/heads/{branch}")
            merged = read_ref(self._mirror.path, f"refs/symphony/merged/{branch}")
            if head is None or head == merged:
                fates[name] = Fate.GONE if merged is None else Fate.MERGED
            elif len(heads) == MAX_BRANCHES:
                fates[name] = Fate.UNCHECKED
            if head is not None and name not in fates:
                heads[name] = head
        return heads, fates

    async def _merge_with_base(self, heads: Mapping[str, str], fates: dict[str, Fate]) -> dict[str, Merge]:
        """Each branch merged with the base; marks branches without a common commit as unrelated."""
        try:
            merges = await self._merge([(self._base, head) for head in heads.values()])
        except GitError:  # git gives up at the first one that has no commit in common with the base
            for name, head in heads.items():
                try:
                    await self._run("merge-base", self._base, head)
                except GitError:
                    fates[name] = Fate.UNRELATED
            heads = {name: head for name, head in heads.items() if name not in fates}
            merges = await self._merge([(self._base, head) for head in heads.values()])
        return dict(zip(heads, merges, strict=True))

    async def _combine(
        self, onto_base: Mapping[str, Merge], base_tree: str, fates: dict[str, Fate]
    ) -> tuple[str, dict[str, None], dict[str, Merge]]:
        """Merge one after the other: the tree of the merged branches, their names, and the failed merges."""
        tip, tree, merged, failed = self._base, base_tree, dict[str, None](), dict[str, Merge]()
        for name, alone in onto_base.items():
            merge = alone
            if merged and alone.clean:
                (merge,) = await self._merge([(tip, alone.theirs)])
            if not merge.clean:
                fates[name], failed[name] = Fate.CONFLICTS, merge
                continue
            tip, tree = await self._commit(tip, merge), merge.tree
            fates[name] = Fate.MERGES
            merged[name] = None
        return tree, merged, failed

    async def _commit(self, tip: str, merge: Merge) -> str:
        """The commit of a merge of a branch onto `tip`."""
        parents = ("-p", tip, "-p", merge.theirs)
        commit = (*_AUTHOR, "commit-tree", *parents, "-m", "rehearsal", merge.tree)
        return (await self._run(*commit)).decode().strip()

    async def combine(self, heads: Sequence[str]) -> tuple[str, ...]:
        """The commit of the base, and that of each merge onto the one before.

        Raises:
            ValueError: the commits conflict.
        """
        commits = [self._base]
        for head in heads:
            (merge,) = await self._merge([(commits[-1], head)])
            if not merge.clean:
                raise ValueError(f"{head[:12]} conflicts")
            commits.append(await self._commit(commits[-1], merge))
        return tuple(commits)

    async def changed(self, commit: str) -> tuple[str, ...]:
        """The paths that differ between the base and a commit."""
        pair = (self._base, commit)
        (paths,) = parse_changed(await self._run(*_DIFF, stdin=_pairs([pair])), [pair])
        return tuple(sorted(path.decode("utf-8", "backslashreplace") for path in paths))

    async def _merge(self, pairs: Sequence[tuple[str, str]]) -> list[Merge]:
        if not pairs:
            return []
        output = await self._run(*_MERGE, stdin=_pairs(pairs))
        return await to_thread.run_sync(parse_merges, output, pairs)

    async def _lines(self, merges: Iterable[Merge]) -> dict[tuple[str, bytes, int], tuple[LineSpan, ...]]:
        """Where the conflicts of the first files of each merge are, by tree, path and stage."""
        wanted = {
            (merge.tree, path): (merge, file)
            for merge in merges
            for path, file in islice(merge.files.items(), _MAX_FILES)
            if file.is_blob and {2, 3} <= file.stages.keys()
        }
        names = [b"%s:%s" % (tree.encode(), path) for tree, path in wanted]
        names += [file.stages[stage].encode() for _, file in wanted.values() for stage in (2, 3)]
        blobs = await self._blobs(list(dict.fromkeys(names)))

        def find() -> dict[tuple[str, bytes, int], tuple[LineSpan, ...]]:
            found = {}
            for (tree, path), (merge, file) in wanted.items():
                content = blobs.get(b"%s:%s" % (tree.encode(), path))
                for stage in (2, 3):
                    own = blobs.get(file.stages[stage].encode())
                    if content is not None and own is not None:
                        labels = (merge.ours, merge.theirs)
                        lines = conflict_lines(content, own, labels, theirs=stage == _THEIRS)
                        found[tree, path, stage] = lines
            return found

        return await to_thread.run_sync(find)

    async def _blobs(self, names: Sequence[bytes]) -> dict[bytes, bytes]:
        """The content of the small objects among these, up to a total size."""
        stdin = b"".join(name + b"\0" for name in names)
        form = "--batch-check=%(objecttype) %(objectsize)"
        listing = BytesIO(await self._run("cat-file", form, "-z", stdin=stdin))
        small, room = list[bytes](), _MAX_BLOBS_BYTES
        for name in names:
            missing = name + b" missing\n"  # a name may have line breaks
            if listing.getbuffer()[listing.tell() :][: len(missing)] == missing:
                listing.seek(len(missing), SEEK_CUR)
                continue
            kind, _, size = listing.readline().strip().partition(b" ")
            if kind == b"blob" and int(size) <= min(room, _MAX_BLOB_BYTES):
                small.append(name)
                room -= int(size)
        stdin = b"".join(name + b"\0" for name in small)
        output = BytesIO(await self._run("cat-file", "--batch=%(objectsize)", "-z", stdin=stdin))
        contents = dict[bytes, bytes]()
        for name in small:
            contents[name] = output.read(int(output.readline()))
            output.read(1)  # the line break after it
        return contents


def _pairs(pairs: Iterable[tuple[str, str]]) -> bytes:
    return "".join(f"{one} {other}\n" for one, other in pairs).encode()


def _conflict(
    others: tuple[str, ...],
    merge: Merge,
    lines: Mapping[tuple[str, bytes, int], tuple[LineSpan, ...]],
    *,
    theirs: bool,
) -> Conflict:
    """The conflict of a failed merge, seen from its second or its first branch."""
    stage = _THEIRS if theirs else _OURS
    files = tuple(
        FileConflict(
            path=path.decode("utf-8", "backslashreplace"),
            kind=file.kind,
            lines=lines.get((merge.tree, path, stage), ()),
        )
        for path, file in islice(merge.files.items(), _MAX_FILES)
    )
    return Conflict(others=others, files=files, files_left_out=len(merge.files) - len(files))
