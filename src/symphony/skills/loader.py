"""Puts the roots together: reads every skill, settles names that are given twice, sorts."""

import errno
import math
import os
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Final

from symphony.skills.model import (
    DEFAULT_PATH,
    DEFAULT_USER_PATH,
    FILE_NAME,
    Code,
    Incomplete,
    Problem,
    Root,
    Scope,
    Shadowed,
    Skill,
    SkillOptions,
    SkillSet,
    escape,
    is_plain,
    one_line,
    problem,
)
from symphony.skills.parser import TOP, Parsed, ParseOptions, SkillFile, is_clean_name, parse, split_file

# Opens files and directories so that no link, however placed or swapped, leads out of the workspace.


_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_DIRECTORY: Final = _FLAGS | os.O_DIRECTORY
_BASE: Final = _DIRECTORY & ~os.O_NOFOLLOW
_MAYBE_LINK: Final = frozenset({errno.ELOOP, errno.ENOTDIR})


class OutsideWorkspaceError(Exception):
    """A link leads out of the workspace; nothing was opened."""


def open_directory(workspace: Path, parts: Sequence[str]) -> int:
    """A descriptor of a directory below the workspace; the workspace itself for no parts.

    Raises:
        OutsideWorkspaceError: a link on the way leads out.
        OSError: it is missing, not a directory, or cannot be read.
    """
    try:
        return _walk(workspace, parts, _DIRECTORY)
    except OSError as error:
        if error.errno not in _MAYBE_LINK:
            raise
    return _open_real(workspace, parts, _DIRECTORY)


def open_child(workspace: Path, parent: int, parts: Sequence[str]) -> int:
    """A descriptor of a directory in the directory `parent`; `parts` is its full path below the workspace.

    Raises:
        OutsideWorkspaceError, OSError: as `open_directory`.
    """
    return _open_at(workspace, parent, parts, _DIRECTORY)


def open_file(workspace: Path, parent: int, parts: Sequence[str]) -> int:
    """A descriptor of whatever stands at that name, never blocking; the caller checks that it is a file.

    Raises:
        OutsideWorkspaceError, OSError: as `open_directory`.
    """
    return _open_at(workspace, parent, parts, _FLAGS)


def _open_at(workspace: Path, parent: int, parts: Sequence[str], flags: int) -> int:
    try:
        return os.open(parts[-1], flags, dir_fd=parent)
    except OSError as error:
        if error.errno not in _MAYBE_LINK:
            raise
    return _open_real(workspace, parts, flags)


def _open_real(workspace: Path, parts: Sequence[str], flags: int) -> int:
    """Follow the links, look where they end, and open that path without following any."""
    base = Path(os.path.realpath(workspace))
    real = Path(os.path.realpath(base.joinpath(*parts), strict=True))
    if not real.is_relative_to(base):
        raise OutsideWorkspaceError
    return _walk(base, real.relative_to(base).parts, flags)


def _walk(base: Path, parts: Sequence[str], flags: int) -> int:
    """Step by step, no step through a link; the base itself may be reached through some."""
    if not parts:
        return os.open(base, _BASE)
    descriptor = os.open(f"{base}/{parts[0]}", flags if len(parts) == 1 else _DIRECTORY)
    for index, part in enumerate(parts[1:], start=2):
        parent = descriptor
        try:
            descriptor = os.open(part, flags if index == len(parts) else _DIRECTORY, dir_fd=parent)
        finally:
            os.close(parent)
    return descriptor


# Says which directories are looked at for skills, in the order of precedence.


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One directory to look at.

    Attributes:
        base: absolute; no link may lead out of it.
        parts: the steps from `base` to the directory.
        root: absolute, the directory as the catalog names it.
        shown: what the paths of problems begin with; empty for `base` itself.
        optional: it is no fault that it is missing.
    """

    scope: Scope
    base: Path
    parts: tuple[str, ...]
    root: Path
    shown: str
    optional: bool

    def path(self, *names: str) -> str:
        """The path of what stands below the directory, as text that can be encoded."""
        return path_text("/".join([self.shown, *names] if self.shown else names)) or "."


def path_text(path: str) -> str:
    """A path as text that can be encoded, whatever bytes its names are made of."""
    return path if path.isascii() else os.fsencode(path).decode(errors="replace")


def sources(workspace: Path, options: SkillOptions, root: Path | None) -> Iterator[Source | Problem]:
    """The roots of the options: the project's, the user's, the further ones; or why one is none."""
    base = workspace.absolute()
    named = base if root is None else root.absolute()
    yield _below(base, named, options.path, Scope.PROJECT, "path")
    for path in options.user_paths:
        yield _user(path)
    for path in options.extra_paths:
        yield _below(base, named, path, Scope.EXTRA, "extra_paths")


def _below(base: Path, named: Path, path: str, scope: Scope, key: str) -> Source | Problem:
    parts = PurePosixPath(path).parts
    if not _is_sane(path) or path.startswith("/") or ".." in parts:
        message = f"`agent.skills.{key}` is not a relative path inside the workspace."
        return problem(Code.OUTSIDE_WORKSPACE, ".", message=message, scope=scope)
    shown = "/".join(parts)
    return Source(
        scope=scope,
        base=base,
        parts=parts,
        root=named / shown,
        shown=shown,
        optional=scope is Scope.PROJECT and shown == DEFAULT_PATH,
    )


def _user(path: str) -> Source | Problem:
    if not _is_sane(path):
        message = "`agent.skills.user_path` is not a path."
        return problem(Code.NOT_A_DIRECTORY, ".", message=message, scope=Scope.USER)
    base = _user_root(path)
    return Source(
        scope=Scope.USER,
        base=base,
        parts=(),
        root=base,
        shown=path.rstrip("/"),
        optional=path.rstrip("/") == DEFAULT_USER_PATH,
    )


def resolve_anchor(scope: Scope, path: str, workspace: Path, options: SkillOptions) -> tuple[Path, str]:
    """The directory that no link of a skill may lead out of, and the skill's path below it.

    Args:
        scope: of a `Skill` or a `Problem`.
        path: of the same.
        workspace: the directory that it was loaded from.
        options: those that it was loaded with.
    """
    roots = [root.rstrip("/") for root in options.user_paths] if scope is Scope.USER else []
    within = [root for root in roots if f"{path}/".startswith(f"{path_text(root)}/")]
    if not within:
        return workspace, path
    root = max(within, key=len)
    return _user_root(root or "/"), path.removeprefix(path_text(root)).lstrip("/")


def _user_root(path: str) -> Path:
    """The user's directory, absolute; `path` is as it is configured."""
    base = Path(path).expanduser() if path == "~" or path.startswith("~/") else Path(path)
    return base.absolute()


def _is_sane(path: str) -> bool:
    return bool(path.strip()) and path.isprintable()


# Finds the SKILL.md files of one root and reads their beginnings; nothing in here raises.
#
# One directory level, 2,000 entries, 64 KiB per file; special files never block, and hidden directories as
# well as whatever vanishes between listing and opening are skipped. The bytes and the keys and values of a
# root are limited, and the clock is looked at before each file, so that a load ends whatever lies there.


_FIRST_READ: Final = 4_096
_MAX_READ: Final = 65_536
_MAX_ENTRIES: Final = 2_000
_MAX_NAMES: Final = 50_000
# Per root; some six times of what a thousand ordinary skills take.
_MAX_BYTES: Final = 24 * 1024 * 1024
_MAX_EVENTS: Final = 100_000
_LIMITS: Final = {
    Incomplete.COUNT: "There are too many entries; the last ones were not read.",
    Incomplete.SIZE: "The front matter of all skills together is too large; the last ones were not read.",
}
_OUTSIDE: Final = "A link leads out of the skills directory."


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What one root gave, in the order of its directories; `root` is null where there is none to look at."""

    root: Root | None = None
    items: tuple[Parsed, ...] = ()
    problems: tuple[Problem, ...] = ()
    incomplete: Incomplete | None = None


def scan(source: Source, rules: ParseOptions, seen: set[tuple[int, int]], until: float) -> Listing:
    """Load one root, unless it is one of the directories `seen` before under whatever name.

    No file is opened when `time.monotonic()` has come to `until`.
    """
    try:
        descriptor = open_directory(source.base, source.parts)
    except (OSError, OutsideWorkspaceError) as error:
        return Listing(problems=_root_problem(error, source))
    try:
        status = os.fstat(descriptor)
        identity = (status.st_dev, status.st_ino)
        if identity in seen:
            return Listing()
        seen.add(identity)
        return _Scan(source, rules, until).run(descriptor)
    finally:
        os.close(descriptor)


def _root_problem(error: Exception, source: Source) -> tuple[Problem, ...]:
    match error:
        case OSError(errno=errno.ENOENT):
            code = Code.MISSING_DIRECTORY
        case OSError(errno=errno.ENOTDIR):
            code = Code.NOT_A_DIRECTORY
        case _:
            code = _code(error)
    if code is Code.MISSING_DIRECTORY and source.optional:
        return ()
    return (problem(code, source.path(), scope=source.scope),)


def _code(error: Exception) -> Code:
    match error:
        case OSError(errno=errno.ENXIO):  # a socket
            return Code.NOT_REGULAR_FILE
        case OSError():
            return Code.UNREADABLE
    return Code.OUTSIDE_WORKSPACE


class _Scan:
    """One walk over one root; every name is opened relative to the directory it was listed in."""

    def __init__(self, source: Source, rules: ParseOptions, until: float) -> None:
        self._source = source
        self._rules = rules
        self._until = until
        self._bytes = _MAX_BYTES
        self._events = _MAX_EVENTS

    def run(self, descriptor: int) -> Listing:
        """The root's skills, and the root itself where it is a skill."""
        source = self._source
        root = Root(scope=source.scope, path=source.path(), directory=source.root)
        try:
            names, over, is_skill = _names(descriptor)
        except OSError as error:
            return Listing(root=root, problems=(problem(_code(error), source.path(), scope=source.scope),))
        items, incomplete = self._all(descriptor, names)
        incomplete = incomplete or (Incomplete.COUNT if over else None)
        problems = []
        if incomplete in _LIMITS:
            words = _LIMITS[incomplete]
            problems.append(problem(Code.LIMIT_EXCEEDED, source.path(), message=words, scope=source.scope))
        if is_skill:
            own = self._file(descriptor, source.parts, source.root.name, FILE_NAME)
            others = any(item.skill for item in items)
            if own is None or (others and not own.bears_its_name):
                problems.append(problem(Code.STRAY_FILE, source.path(FILE_NAME), scope=source.scope))
            else:
                items = (own, *items)
                root = root if others else replace(root, directory=source.root.parent)
        return Listing(root=root, items=items, problems=tuple(problems), incomplete=incomplete)

    def _all(self, descriptor: int, names: list[str]) -> tuple[tuple[Parsed, ...], Incomplete | None]:
        """What the directories hold, as far as the limits allow, and which of these ended it."""
        items: list[Parsed] = []
        for name in names:
            if time.monotonic() >= self._until:
                return tuple(items), Incomplete.TIME
            if self._bytes < 0 or self._events < 0:
                return tuple(items), Incomplete.SIZE
            if (item := self._directory(descriptor, name)) is not None:
                items.append(item)
                self._events -= item.events
        return tuple(items), None

    def _directory(self, root: int, name: str) -> Parsed | None:
        parts = (*self._source.parts, name)
        try:
            descriptor = open_child(self._source.base, root, parts)
        except (OSError, OutsideWorkspaceError) as error:
            return self._failed(error, name, name, FILE_NAME)
        try:
            return self._file(descriptor, parts, name, name, FILE_NAME)
        finally:
            os.close(descriptor)

    def _file(self, directory: int, parts: tuple[str, ...], name: str, *names: str) -> Parsed | None:
        try:
            descriptor = open_file(self._source.base, directory, (*parts, FILE_NAME))
        except (OSError, OutsideWorkspaceError) as error:
            return self._failed(error, name, *names) or self._lower_case(directory, name, *names)
        try:
            return self._read(descriptor, name, *names)
        except OSError as error:
            return self._broken(_code(error), name, *names)
        finally:
            os.close(descriptor)

    def _failed(self, error: Exception, name: str, *names: str) -> Parsed | None:
        """A plain file in the root, a dangling link and what has just vanished are nobody's problem."""
        gone = isinstance(error, OSError) and error.errno in {errno.ENOENT, errno.ENOTDIR}
        return None if gone else self._broken(_code(error), name, *names)

    def _broken(self, code: Code, name: str, *names: str) -> Parsed:
        source = self._source
        message = _OUTSIDE if code is Code.OUTSIDE_WORKSPACE and source.scope is Scope.USER else None
        one = problem(code, source.path(*names), message=message, scope=source.scope)
        return Parsed(skill=None, problems=(one,), directory=path_text(name))

    def _lower_case(self, directory: int, name: str, *names: str) -> Parsed | None:
        file = FILE_NAME.replace("SKILL", "skill")
        try:
            os.stat(file, dir_fd=directory, follow_symlinks=False)
        except OSError:
            return None
        return self._broken(Code.LOWERCASE_FILENAME, name, *names[:-1], file)

    def _read(self, descriptor: int, name: str, *names: str) -> Parsed:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return self._broken(Code.NOT_REGULAR_FILE, name, *names)
        found = self._beginning(descriptor, status.st_size, name, *names)
        parsed = parse(found, self._rules)
        if parsed.skill is None or is_clean_name(name) or (is_plain(name) and escape(name) == name):
            return parsed
        return self._broken(Code.INVALID_DIRECTORY, name, *names)

    def _beginning(self, descriptor: int, size: int, name: str, *names: str) -> SkillFile:
        """One read of 4 KiB; more, up to 64 KiB, only while the front matter goes on."""
        data = os.read(descriptor, _FIRST_READ)
        while True:
            whole = len(data) >= size
            lines = data if whole else data[: data.rfind(b"\n") + 1]  # half a line must not pass for a fence
            parts = split_file(lines)
            goes_on = parts is not None and (parts.glued or not parts.fences.closed)
            if whole or not goes_on or len(data) >= _MAX_READ:
                break
            more = os.read(descriptor, _MAX_READ - len(data))
            if not more:
                break
            data += more
        self._bytes -= len(data)
        source = self._source
        return SkillFile(
            path=source.path(*names),
            directory=path_text(name),
            data=lines,
            parts=parts,
            whole=whole,
            scope=source.scope,
            root=source.root if len(names) > 1 else source.root.parent,
        )


def _names(descriptor: int) -> tuple[list[str], bool, bool]:
    """What may be a skill directory, sorted; whether there is more; whether a SKILL.md lies beside them."""
    names = []
    is_skill = False
    with os.scandir(descriptor) as entries:
        for entry in islice(entries, _MAX_NAMES):
            if entry.name == FILE_NAME:
                is_skill = True
                continue
            if not entry.name.startswith(".") and (entry.is_dir(follow_symlinks=False) or entry.is_symlink()):
                names.append(entry.name)
        over = next(entries, None) is not None
    names.sort()
    return names[:_MAX_ENTRIES], over or len(names) > _MAX_ENTRIES, is_skill


def load(
    workspace: Path, options: SkillOptions, *, root: Path | None = None, until: float = math.inf
) -> SkillSet:
    """The skills of a workspace, and what is wrong with the rest; raises nothing.

    Blocks on the file system, so the caller runs it in a thread; several may run at once. What is not read
    when `time.monotonic()` comes to `until` is left out, and the set says so. With `enabled` off the set is
    empty and the file system is left alone. With `root` the catalog names that directory in place of the
    workspace, for skills that an agent will find elsewhere than they are read.
    """
    if not options.enabled:
        return SkillSet(root=(root or workspace) / options.path)
    shelf = _Shelf(options)
    rules, seen = ParseOptions.of(options), set[tuple[int, int]]()
    for source in sources(workspace, options, root):
        if isinstance(source, Source):
            listing = scan(source, rules, seen, until)
            shelf.add(source, listing)
            if listing.root is not None and not (source.optional or listing.items or listing.problems):
                shelf.problems.append(problem(Code.NO_SKILLS, source.path(), scope=source.scope))
        else:
            shelf.problems.append(source)
    return shelf.finish((root or workspace).absolute())


class _Shelf:
    """Takes roots in the order of precedence; the first skill of a name keeps it."""

    def __init__(self, options: SkillOptions) -> None:
        self.problems: list[Problem] = []
        self._options = options
        self._disabled = frozenset(options.disabled_skills)
        self._skills: dict[str, Skill] = {}
        self._shadowed: list[Shadowed] = []
        self._roots: list[Root] = []
        self._directories: set[str] = set()
        self._project: Path | None = None
        self._incomplete: Incomplete | None = None

    def add(self, source: Source, listing: Listing) -> None:
        """Take in what one root gave."""
        if listing.root is not None:
            self._roots.append(listing.root)
        if source.scope is Scope.PROJECT:
            self._project = source.root if listing.root is None else listing.root.directory
        self._incomplete = self._incomplete or listing.incomplete
        self.problems += listing.problems
        mine = _kept(listing.items)
        for item in listing.items:
            if item.skill is None:
                self._directories.add(item.directory)
            if (item.directory if item.skill is None else item.skill.name) in self._disabled:
                continue
            if item.skill is not None and (kept := mine[item.key].skill) and kept is not item.skill:
                self.problems.append(_taken(item, item.skill, kept))
            self.problems += item.problems
        for key, item in mine.items():
            assert item.skill is not None  # noqa: S101 - as it was put there
            first = self._skills.setdefault(key, item.skill)
            if first is not item.skill:
                skill = item.skill
                hidden = Shadowed(name=skill.name, path=skill.path, scope=skill.scope, by=first.path)
                self._shadowed.append(hidden)

    def finish(self, workspace: Path) -> SkillSet:
        """The set, with a word on every name among the options that nothing has."""
        skills = tuple(sorted(self._skills.values(), key=attrgetter("priority", "name", "directory")))
        return SkillSet(
            root=self._project or workspace,
            skills=skills,
            problems=(*self.problems, *self._unknown(skills)),
            roots=tuple(self._roots),
            shadowed=tuple(self._shadowed),
            incomplete=self._incomplete,
        )

    def _unknown(self, skills: tuple[Skill, ...]) -> list[Problem]:
        """A malformed file is known by its directory: its error says enough."""
        choices = {"disabled_skills": self._options.disabled_skills, "include": self._options.include}
        if not any(choices.values()):
            return []
        known = {skill.name for skill in skills} | self._directories
        return [
            problem(
                Code.UNKNOWN_SKILL,
                ".",
                message=f"`agent.skills.{key}` names `{one_line(name)}`, which is not there.",
            )
            for key, names in choices.items()
            for name in names
            if name not in known
        ]


def _kept(items: tuple[Parsed, ...]) -> dict[str, Parsed]:
    """The skills of one root by their keys; of several with one name the directory that bears it has it."""
    kept: dict[str, Parsed] = {}
    for item in items:
        if item.skill is not None:
            first = kept.setdefault(item.key, item)
            if item.bears_its_name and not first.bears_its_name:
                kept[item.key] = item
    return kept


def _taken(item: Parsed, skill: Skill, first: Skill) -> Problem:
    message = f"`name` is already taken by {first.path}."
    place = TOP if item.sheet is None else item.sheet.place("name")
    return problem(Code.DUPLICATE_NAME, skill.path, place, message=message, scope=skill.scope)
