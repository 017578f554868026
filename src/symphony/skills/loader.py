"""Loads the skills of all roots, resolves duplicate names, and sorts."""

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

from msgspec import Struct, structs

from symphony.problem import Problem
from symphony.skills import model, parser

# --- Safe opening ---
#
# No link leads out of the workspace, even if one is replaced while a path is opened.

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_DIRECTORY: Final = _FLAGS | os.O_DIRECTORY
_BASE: Final = _DIRECTORY & ~os.O_NOFOLLOW
_MAYBE_LINK: Final = frozenset({errno.ELOOP, errno.ENOTDIR})


class OutsideWorkspaceError(Exception):
    """A link leads out of the workspace; nothing was opened."""


def open_directory(workspace: Path, parts: Sequence[str]) -> int:
    """A descriptor of a directory below the workspace; without parts, of the workspace itself.

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
    """A descriptor of a directory in the open directory `parent`; `parts` is its path below the workspace.

    Raises:
        OutsideWorkspaceError, OSError: as `open_directory`.
    """
    return _open_at(workspace, parent, parts, _DIRECTORY)


def open_file(workspace: Path, parent: int, parts: Sequence[str]) -> int:
    """A descriptor of anything with that name; never blocks. The caller checks that it is a regular file.

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
    """Resolve the links, check the result, and open it without following any link."""
    base = Path(os.path.realpath(workspace))
    real = Path(os.path.realpath(base.joinpath(*parts), strict=True))
    if not real.is_relative_to(base):
        raise OutsideWorkspaceError
    return _walk(base, real.relative_to(base).parts, flags)


def _walk(base: Path, parts: Sequence[str], flags: int) -> int:
    """Open part by part without following a link. The base itself may be behind links."""
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


# --- Roots ---


class RootReader(Struct, frozen=True, kw_only=True):
    """One directory to load skills from.

    Attributes:
        base: absolute; no link may lead out of it.
        parts: the path from `base` to the directory.
        root: absolute; the directory as the catalog names it.
        shown: the prefix of paths in problems; empty for `base` itself.
        optional: whether it may be missing without a problem.
    """

    scope: model.Scope
    base: Path
    parts: tuple[str, ...]
    root: Path
    shown: str
    optional: bool

    def is_dangling(self) -> bool:
        """Whether a link on the way to a missing directory leads to nothing."""
        way = (self.base.joinpath(*self.parts[: end + 1]) for end in range(len(self.parts)))
        return any(one.is_symlink() and not one.exists() for one in way)

    def path(self, *names: str) -> str:
        """A path below the directory, as text that can be encoded as UTF-8."""
        return path_text("/".join([self.shown, *names] if self.shown else names)) or "."


def path_text(path: str) -> str:
    """A path as text that can be encoded as UTF-8; other bytes are replaced."""
    return path if path.isascii() else os.fsencode(path).decode(errors="replace")


def sources(
    workspace: Path, options: model.SkillOptions, root: Path | None
) -> Iterator[RootReader | Problem]:
    """The configured roots in the order of precedence, with a problem in place of an invalid one."""
    base = workspace.absolute()
    named = base if root is None else root.absolute()
    yield _below(base, named, options.path, model.Scope.PROJECT, "path")
    for path in options.user_paths:
        yield _user(path)
    for path in options.extra_paths:
        yield _below(base, named, path, model.Scope.EXTRA, "extra_paths")
    if (library := options.library) is not None:
        yield RootReader(
            scope=model.Scope.LIBRARY,
            base=library.base,
            parts=PurePosixPath(library.path).parts,
            root=(library.named or library.base) / library.path,
            shown=library.path,
            optional=True,
        )


def _below(base: Path, named: Path, path: str, scope: model.Scope, key: str) -> RootReader | Problem:
    parts = PurePosixPath(path).parts
    if not _is_sane(path) or path.startswith("/") or ".." in parts:
        message = f"`agent.skills.{key}` is not a relative path inside the workspace."
        return model.problem(model.Code.OUTSIDE_WORKSPACE, ".", message=message, scope=scope)
    shown = "/".join(parts)
    return RootReader(
        scope=scope,
        base=base,
        parts=parts,
        root=named / shown,
        shown=shown,
        optional=scope is model.Scope.PROJECT and shown == model.DEFAULT_PATH,
    )


def _user(path: str) -> RootReader | Problem:
    if not _is_sane(path):
        message = "`agent.skills.user_path` is not a path."
        return model.problem(model.Code.NOT_A_DIRECTORY, ".", message=message, scope=model.Scope.USER)
    base = _user_root(path)
    return RootReader(
        scope=model.Scope.USER,
        base=base,
        parts=(),
        root=base,
        shown=path.rstrip("/"),
        optional=path.rstrip("/") == model.DEFAULT_USER_PATH,
    )


def resolve_anchor(
    scope: str | None, path: str, workspace: Path, options: model.SkillOptions
) -> tuple[Path, str]:
    """The directory that no link of a skill may lead out of, and the skill's path below it.

    Args:
        scope: of a `Skill` or `Problem`.
        path: of that `Skill` or `Problem`.
        workspace: the directory it was loaded from.
        options: the options it was loaded with.
    """
    if scope == model.Scope.LIBRARY and options.library is not None:
        return options.library.base, path
    roots = [root.rstrip("/") for root in options.user_paths] if scope == model.Scope.USER else []
    within = [root for root in roots if f"{path}/".startswith(f"{path_text(root)}/")]
    if not within:
        return workspace, path
    root = max(within, key=len)
    return _user_root(root or "/"), path.removeprefix(path_text(root)).lstrip("/")


def _user_root(path: str) -> Path:
    """The absolute directory of a configured user path."""
    base = Path(path).expanduser() if path == "~" or path.startswith("~/") else Path(path)
    return base.absolute()


def _is_sane(path: str) -> bool:
    return bool(path.strip()) and path.isprintable()


# --- Scanning one root ---
#
# Reads one directory level: at most 2,000 entries, 64 KiB per file, and a total of bytes and of YAML events
# per root, until a deadline. Special files never block. Hidden directories, and files that vanish between
# listing and opening, are skipped. Nothing raises.

_FIRST_READ: Final = 4_096
_MAX_READ: Final = 65_536
_MAX_ENTRIES: Final = 2_000
_MAX_NAMES: Final = 50_000
# Per root: about six times as much as a thousand ordinary skills need.
_MAX_BYTES: Final = 24 * 1024 * 1024
_MAX_EVENTS: Final = 100_000
_LIMITS: Final = {
    model.Incomplete.COUNT: "There are too many entries; the last ones were not read.",
    model.Incomplete.SIZE: "The front matter of all skills is too large; the last ones were not read.",
}
_OUTSIDE: Final = "A link leads out of the skills directory."
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_UNREADABLE_POLICY: Final = parser.ForPeople("something unreadable", (), clear=False)
_UNCLEAR_POLICY: Final = "It does not say whether agents may use the skill. The skill is for people only."


@dataclass(frozen=True, slots=True, kw_only=True)
class RootListing:
    """The content of one root, in the order of its directories; `root` is `None` if it cannot be opened."""

    root: model.Root | None = None
    items: tuple[parser.Parsed, ...] = ()
    problems: tuple[Problem, ...] = ()
    incomplete: model.Incomplete | None = None


def scan(
    source: RootReader, rules: parser.ParseOptions, seen: set[tuple[int, int]], until: float
) -> RootListing:
    """Load one root, unless its directory (device, inode) is in `seen`, and add it there.

    Stops opening files when `time.monotonic()` reaches `until`.
    """
    try:
        descriptor = open_directory(source.base, source.parts)
    except (OSError, OutsideWorkspaceError) as error:
        return RootListing(problems=_root_problem(error, source))
    try:
        status = os.fstat(descriptor)
        identity = (status.st_dev, status.st_ino)
        if identity in seen:
            return RootListing()
        seen.add(identity)
        return _Scan(source, rules, until).run(descriptor)
    finally:
        os.close(descriptor)


def _root_problem(error: Exception, source: RootReader) -> tuple[Problem, ...]:
    match error:
        case OSError(errno=errno.ENOENT):
            if source.optional:
                return ()
            code = model.Code.DANGLING_LINK if source.is_dangling() else model.Code.MISSING_DIRECTORY
        case OSError(errno=errno.ENOTDIR):
            code = model.Code.NOT_A_DIRECTORY
        case _:
            code = _code(error)
    return (model.problem(code, source.path(), scope=source.scope),)


def _code(error: Exception) -> model.Code:
    match error:
        case OSError(errno=errno.ENXIO):  # a socket
            return model.Code.NOT_REGULAR_FILE
        case OSError():
            return model.Code.UNREADABLE
    return model.Code.OUTSIDE_WORKSPACE


class _Scan:
    """One scan of one root. Every name is opened relative to the directory in which it was listed."""

    def __init__(self, source: RootReader, rules: parser.ParseOptions, until: float) -> None:
        self._source = source
        self._rules = rules
        self._until = until
        self._bytes = _MAX_BYTES
        self._events = _MAX_EVENTS

    def run(self, descriptor: int) -> RootListing:
        """The skills of the root, and the root itself if it is a skill."""
        source = self._source
        root = model.Root(scope=source.scope, path=source.path(), directory=source.root)
        try:
            names, over, is_skill = _names(descriptor)
        except OSError as error:
            return RootListing(
                root=root, problems=(model.problem(_code(error), source.path(), scope=source.scope),)
            )
        items, incomplete = self._all(descriptor, names)
        incomplete = incomplete or (model.Incomplete.COUNT if over else None)
        problems = []
        if incomplete in _LIMITS:
            words = _LIMITS[incomplete]
            problems.append(
                model.problem(model.Code.LIMIT_EXCEEDED, source.path(), message=words, scope=source.scope)
            )
        if is_skill:
            own = self._file(descriptor, source.parts, source.root.name, model.FILE_NAME)
            others = any(item.skill for item in items)
            if own is None or (others and not own.has_directory_name):
                problems.append(
                    model.problem(model.Code.STRAY_FILE, source.path(model.FILE_NAME), scope=source.scope)
                )
            else:
                items = (own, *items)
                root = root if others else replace(root, directory=source.root.parent)
        return RootListing(root=root, items=items, problems=tuple(problems), incomplete=incomplete)

    def _all(
        self, descriptor: int, names: list[str]
    ) -> tuple[tuple[parser.Parsed, ...], model.Incomplete | None]:
        """The files of the directories up to the limits, and the limit that was reached, if any."""
        items: list[parser.Parsed] = []
        for name in names:
            if time.monotonic() >= self._until:
                return tuple(items), model.Incomplete.TIME
            if self._bytes < 0 or self._events < 0:
                return tuple(items), model.Incomplete.SIZE
            if (item := self._directory(descriptor, name)) is not None:
                items.append(item)
                self._events -= item.events
        return tuple(items), None

    def _directory(self, root: int, name: str) -> parser.Parsed | None:
        parts = (*self._source.parts, name)
        try:
            descriptor = open_child(self._source.base, root, parts)
        except (OSError, OutsideWorkspaceError) as error:
            return self._failed(error, root, name, name, name, model.FILE_NAME)
        try:
            return self._file(descriptor, parts, name, name, model.FILE_NAME)
        finally:
            os.close(descriptor)

    def _file(self, directory: int, parts: tuple[str, ...], name: str, *names: str) -> parser.Parsed | None:
        try:
            descriptor = open_file(self._source.base, directory, (*parts, model.FILE_NAME))
        except (OSError, OutsideWorkspaceError) as error:
            return self._failed(error, directory, model.FILE_NAME, name, *names) or self._lower_case(
                directory, name, *names
            )
        try:
            item = self._read(descriptor, name, *names)
        except OSError as error:
            return self._broken(_code(error), name, *names)
        finally:
            os.close(descriptor)
        return self._with_policy(item, directory, parts, *names[:-1])

    def _with_policy(
        self, item: parser.Parsed, directory: int, parts: tuple[str, ...], *names: str
    ) -> parser.Parsed:
        """The skill with the policy of its agents/openai.yaml.

        If that file is unreadable, the skill is for people.
        """
        if item.skill is None:
            return item
        try:
            found = parser.policy_for_people(self._policy(directory, (*parts, parser.POLICY_DIRECTORY)))
        except (OSError, OutsideWorkspaceError) as error:
            if isinstance(error, OSError) and error.errno in _GONE:
                return item
            found = _UNREADABLE_POLICY
        if found is None:
            return item
        problems, source = item.problems, self._source
        if not found.clear:
            path = source.path(*names, parser.POLICY_PATH)
            unclear = model.problem(
                model.Code.BAD_OPTIONAL_FIELD, path, message=_UNCLEAR_POLICY, scope=source.scope
            )
            problems = (*problems, unclear)
        reason = item.skill.for_people or f"{found.key} in {parser.POLICY_PATH}"
        return item._replace(skill=structs.replace(item.skill, for_people=reason), problems=problems)

    def _policy(self, skill: int, parts: tuple[str, ...]) -> bytes:
        """The content of a skill's policy file. Raises `OSError` and `OutsideWorkspaceError`."""
        base = self._source.base
        directory = open_child(base, skill, parts)
        try:
            file = open_file(base, directory, (*parts, parser.POLICY_FILE))
        finally:
            os.close(directory)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            data = os.read(file, _MAX_READ)
        finally:
            os.close(file)
        self._bytes -= len(data)
        return data

    def _failed(
        self, error: Exception, parent: int, entry: str, name: str, *names: str
    ) -> parser.Parsed | None:
        """The problem, if it is one: plain files in the root and vanished entries are not.

        `entry` is what was opened in the directory `parent`.
        """
        if not (isinstance(error, OSError) and error.errno in _GONE):
            return self._broken(_code(error), name, *names)
        if error.errno != errno.ENOENT:
            return None
        try:
            is_link = stat.S_ISLNK(os.stat(entry, dir_fd=parent, follow_symlinks=False).st_mode)
        except OSError:
            return None
        path = names if entry == model.FILE_NAME else names[:-1]
        return self._broken(model.Code.DANGLING_LINK, name, *path) if is_link else None

    def _broken(self, code: model.Code, name: str, *names: str) -> parser.Parsed:
        source = self._source
        message = (
            _OUTSIDE if code is model.Code.OUTSIDE_WORKSPACE and source.scope is model.Scope.USER else None
        )
        one = model.problem(code, source.path(*names), message=message, scope=source.scope)
        return parser.Parsed(skill=None, problems=(one,), directory=path_text(name))

    def _lower_case(self, directory: int, name: str, *names: str) -> parser.Parsed | None:
        file = model.FILE_NAME.replace("SKILL", "skill")
        try:
            os.stat(file, dir_fd=directory, follow_symlinks=False)
        except OSError:
            return None
        return self._broken(model.Code.LOWERCASE_FILENAME, name, *names[:-1], file)

    def _read(self, descriptor: int, name: str, *names: str) -> parser.Parsed:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return self._broken(model.Code.NOT_REGULAR_FILE, name, *names)
        found = self._beginning(descriptor, status.st_size, name, *names)
        parsed = parser.parse(found, self._rules)
        if (
            parsed.skill is None
            or parser.is_clean_name(name)
            or (model.is_plain(name) and model.escape(name) == name)
        ):
            return parsed
        return self._broken(model.Code.INVALID_DIRECTORY, name, *names)

    def _beginning(self, descriptor: int, size: int, name: str, *names: str) -> parser.SkillFile:
        """Read 4 KiB, and up to 64 KiB while the front matter is not closed."""
        data = os.read(descriptor, _FIRST_READ)
        while True:
            whole = len(data) >= size
            # An incomplete last line could look like a fence.
            lines = data if whole else data[: data.rfind(b"\n") + 1]
            parts = parser.split_file(lines)
            goes_on = parts is not None and (parts.glued or not parts.fences.closed)
            if whole or not goes_on or len(data) >= _MAX_READ:
                break
            more = os.read(descriptor, _MAX_READ - len(data))
            if not more:
                break
            data += more
        self._bytes -= len(data)
        source = self._source
        return parser.SkillFile(
            path=source.path(*names),
            directory=path_text(name),
            data=lines,
            parts=parts,
            whole=whole,
            scope=source.scope,
            root=source.root if len(names) > 1 else source.root.parent,
        )


def _names(descriptor: int) -> tuple[list[str], bool, bool]:
    """Possible skill directories, sorted; whether there are more; whether the root has a SKILL.md itself."""
    names = []
    is_skill = False
    with os.scandir(descriptor) as entries:
        for entry in islice(entries, _MAX_NAMES):
            if entry.name == model.FILE_NAME:
                is_skill = True
                continue
            if not entry.name.startswith(".") and (entry.is_dir(follow_symlinks=False) or entry.is_symlink()):
                names.append(entry.name)
        over = next(entries, None) is not None
    names.sort()
    return names[:_MAX_ENTRIES], over or len(names) > _MAX_ENTRIES, is_skill


def load(
    workspace: Path, options: model.SkillOptions, *, root: Path | None = None, until: float = math.inf
) -> model.SkillSet:
    """Load the skills of a workspace and the problems with them; never raises.

    Blocks on the file system, so the caller uses a thread; concurrent calls are safe.

    Args:
        workspace: the directory that relative paths start from.
        options: if not `enabled`, the set is empty and nothing is read.
        root: named in the catalog instead of the workspace, if the agent will see the files there.
        until: deadline by `time.monotonic()`. Skills that were not read until then are missing, and
            `incomplete` says so.
    """
    if not options.enabled:
        return model.SkillSet(root=(root or workspace) / options.path)
    collector = _Collector(options)
    rules, seen = parser.ParseOptions.of(options), set[tuple[int, int]]()
    for source in sources(workspace, options, root):
        if isinstance(source, RootReader):
            # The repository may have skills in the directory of the library, which is then scanned twice.
            listing = scan(source, rules, set() if source.scope is model.Scope.LIBRARY else seen, until)
            collector.add(source, listing)
            if listing.root is not None and not (source.optional or listing.items or listing.problems):
                collector.problems.append(
                    model.problem(model.Code.NO_SKILLS, source.path(), scope=source.scope)
                )
        else:
            collector.problems.append(source)
    return collector.finish((root or workspace).absolute())


class _Collector:
    """Collects roots in the order of precedence; the first skill with a name wins."""

    def __init__(self, options: model.SkillOptions) -> None:
        self.problems: list[Problem] = []
        self._options = options
        self._disabled = frozenset(options.disabled_skills)
        self._skills: dict[str, model.Skill] = {}
        self._shadowed: list[model.Shadowed] = []
        self._roots: list[model.Root] = []
        self._directories: set[str] = set()
        self._project: Path | None = None
        self._incomplete: model.Incomplete | None = None

    def add(self, source: RootReader, listing: RootListing) -> None:
        """Add the content of one root."""
        listing = replace(listing, items=tuple(self._of_scope(source.scope, listing.items)))
        if listing.root is not None and source.scope is not model.Scope.LIBRARY:
            self._roots.append(listing.root)
        if source.scope is model.Scope.PROJECT:
            self._project = source.root if listing.root is None else listing.root.directory
        self._incomplete = self._incomplete or listing.incomplete
        self.problems += listing.problems
        mine = _kept(listing.items)
        for item in listing.items:
            if item.skill is None:
                self._directories.add(item.directory)
            if (item.directory if item.skill is None else item.skill.name) in self._disabled:
                continue
            if item.skill is not None and (kept := mine[item.key]) is not item.skill:
                self.problems.append(_duplicate_name(item, item.skill, kept))
            self.problems += item.problems
        for key, skill in mine.items():
            first = self._skills.setdefault(key, skill)
            if first is not skill:
                hidden = model.Shadowed(name=skill.name, path=skill.path, scope=skill.scope, by=first.path)
                self._shadowed.append(hidden)

    def _of_scope(self, scope: model.Scope, items: tuple[parser.Parsed, ...]) -> Iterator[parser.Parsed]:
        """The items without those that are in the same directory, but of another scope."""
        library = self._options.library
        if library is None:
            yield from items
            return
        for item in items:
            path = "" if item.skill is None else item.skill.path
            mine = (
                item.directory in library.names
                and path == f"{library.path}/{item.directory}/{model.FILE_NAME}"
            )
            if scope is model.Scope.LIBRARY and mine and item.skill is not None:
                learned = item.directory in library.learned
                yield item._replace(skill=structs.replace(item.skill, learned=learned))
            elif scope is not model.Scope.LIBRARY and not mine:
                yield item

    def finish(self, workspace: Path) -> model.SkillSet:
        """The set, with a warning for every configured name that does not exist."""
        skills = tuple(
            sorted(self._skills.values(), key=attrgetter("learned", "priority", "name", "directory"))
        )
        return model.SkillSet(
            root=self._project or workspace,
            skills=skills,
            problems=(*self.problems, *self._unknown(skills)),
            roots=tuple(self._roots),
            shadowed=tuple(self._shadowed),
            incomplete=self._incomplete,
        )

    def _unknown(self, skills: tuple[model.Skill, ...]) -> list[Problem]:
        """Warnings for unknown names. A malformed file counts by its directory: it has an error already."""
        choices = {"disabled_skills": self._options.disabled_skills, "include": self._options.include}
        if not any(choices.values()):
            return []
        known = {skill.name for skill in skills} | self._directories
        return [
            model.problem(
                model.Code.UNKNOWN_SKILL,
                ".",
                message=f"`agent.skills.{key}` names `{model.one_line(name)}`, which is not there.",
            )
            for key, names in choices.items()
            for name in names
            if name not in known
        ]


def _kept(items: tuple[parser.Parsed, ...]) -> dict[str, model.Skill]:
    """The skills of one root by key.

    If several have one name, the skill in the directory of that name wins.
    """
    kept: dict[str, parser.Parsed] = {}
    for item in items:
        if item.skill is not None:
            first = kept.setdefault(item.key, item)
            if item.has_directory_name and not first.has_directory_name:
                kept[item.key] = item
    return {key: item.skill for key, item in kept.items() if item.skill is not None}


def _duplicate_name(item: parser.Parsed, skill: model.Skill, first: model.Skill) -> Problem:
    message = f"`name` is already taken by {first.path}."
    place = parser.TOP if item.fields is None else item.fields.place("name")
    return model.problem(model.Code.DUPLICATE_NAME, skill.path, place, message=message, scope=skill.scope)
