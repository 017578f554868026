"""Finds the SKILL.md files of one root and reads their beginnings; nothing in here raises.

One directory level, 2,000 entries, 64 KiB per file; special files never block, and hidden directories as well
as whatever vanishes between listing and opening are skipped. A file that has not changed since an earlier
load is not opened again.
"""

import errno
import os
import stat
import time
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from symphony.skills import beneath
from symphony.skills.codes import problem
from symphony.skills.memory import Memory, Remembered, Status
from symphony.skills.model import FILE_NAME, Code, Problem, Root, Scope
from symphony.skills.parse import Found, Parsed, Rules, parse, settles
from symphony.skills.sources import Source, shown

__all__ = ["Listing", "scan"]

_FIRST_READ: Final = 4_096
_MAX_READ: Final = 65_536
_MAX_ENTRIES: Final = 2_000
_MAX_NAMES: Final = 50_000
_OUTSIDE: Final = "A link leads out of the skills directory."


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What one root gave, in the order of its directories; `root` is null where there is none to look at."""

    root: Root | None = None
    items: tuple[Parsed, ...] = ()
    problems: tuple[Problem, ...] = ()


def scan(source: Source, rules: Rules, memory: Memory, seen: set[tuple[int, int]]) -> Listing:
    """Load one root, unless it is one of the directories `seen` before under whatever name."""
    try:
        descriptor = beneath.open_directory(source.base, source.parts)
    except (OSError, beneath.OutsideWorkspaceError) as error:
        return Listing(problems=_root_problem(error, source))
    try:
        status = os.fstat(descriptor)
        identity = (status.st_dev, status.st_ino)
        if identity in seen:
            return Listing()
        seen.add(identity)
        return _Scan(source, rules, memory, identity).run(descriptor)
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

    __slots__ = ("_fresh", "_identity", "_memory", "_rules", "_settled", "_source")

    def __init__(self, source: Source, rules: Rules, memory: Memory, identity: tuple[int, int]) -> None:
        self._source = source
        self._rules = rules
        self._memory = memory
        self._identity = identity
        self._settled = time.time_ns() - memory.settled_ns
        self._fresh: dict[str, Remembered] = {}

    def run(self, descriptor: int) -> Listing:
        """The root's skills; if it holds a SKILL.md itself, it is one skill and its parent is the root."""
        source = self._source
        root = Root(scope=source.scope, path=source.path(), directory=source.root)
        try:
            names, over = _names(descriptor)
        except OSError as error:
            return Listing(root=root, problems=(problem(_code(error), source.path(), scope=source.scope),))
        if names is None:
            item = self._file(descriptor, source.parts, source.root.name, FILE_NAME)
            root = replace(root, directory=source.root.parent)
            return Listing(root=root, items=() if item is None else (item,))
        limit = (problem(Code.LIMIT_EXCEEDED, source.path(), scope=source.scope),) if over else ()
        return Listing(root=root, items=self._all(descriptor, names), problems=limit)

    def _all(self, descriptor: int, names: list[tuple[str, bool]]) -> tuple[Parsed, ...]:
        key = (self._identity, self._source, self._rules)
        known = self._memory.roots.get(key) or {}
        items = []
        hits = 0
        for name, is_link in names:
            old = None if is_link else known.get(name)
            if old is not None and old.status == _status_of_file(descriptor, name):
                hits += 1
                self._fresh[name] = old
                items.append(old.parsed)
            elif (item := self._directory(descriptor, name)) is not None:
                items.append(item)
                if is_link:  # what it leads to can change, and its own status stays
                    self._fresh.pop(name, None)
        if not hits == len(known) == len(self._fresh):
            self._memory.roots.put(key, self._fresh, sum(one.size for one in self._fresh.values()))
        return tuple(items)

    def _directory(self, root: int, name: str) -> Parsed | None:
        parts = (*self._source.parts, name)
        try:
            descriptor = beneath.open_child(self._source.base, root, parts)
        except (OSError, beneath.OutsideWorkspaceError) as error:
            return self._failed(error, name, name, FILE_NAME)
        try:
            return self._file(descriptor, parts, name, name, FILE_NAME)
        finally:
            os.close(descriptor)

    def _file(self, directory: int, parts: tuple[str, ...], name: str, *names: str) -> Parsed | None:
        try:
            descriptor = beneath.open_file(self._source.base, directory, (*parts, FILE_NAME))
        except (OSError, beneath.OutsideWorkspaceError) as error:
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
        return Parsed(skill=None, problems=(one,), directory=shown(name))

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
        data = _beginning(descriptor, status.st_size)
        whole = len(data) >= status.st_size
        source = self._source
        found = Found(
            path=source.path(*names),
            directory=shown(name),
            data=data if whole else _lines(data),
            whole=whole,
            scope=source.scope,
            root=source.root if len(names) > 1 else source.root.parent,
        )
        parsed = parse(found, self._rules, self._memory.sheets)
        if max(status.st_mtime_ns, status.st_ctime_ns) < self._settled:
            self._fresh[name] = Remembered(_status(status), parsed, _cost(parsed))
        return parsed


def _status_of_file(root: int, name: str) -> Status | None:
    """The status of the file in one directory, as long as neither is a link."""
    try:
        return _status(os.stat(f"{name}/{FILE_NAME}", dir_fd=root, follow_symlinks=False))
    except OSError:
        return None


def _status(of: os.stat_result) -> Status:
    return of.st_dev, of.st_ino, of.st_mtime_ns, of.st_ctime_ns, of.st_size


def _cost(parsed: Parsed) -> int:
    """About how many bytes it takes to remember this: the objects, and the texts of the skill."""
    skill = parsed.skill
    texts = 0 if skill is None else len(skill.description) + len(skill.when_to_use)
    return 1_500 + 500 * len(parsed.problems) + texts


def _beginning(descriptor: int, size: int) -> bytes:
    """One read of 4 KiB; more, up to 64 KiB, only while the front matter goes on."""
    data = os.read(descriptor, _FIRST_READ)
    while len(data) < min(size, _MAX_READ) and not settles(_lines(data)):
        more = os.read(descriptor, _MAX_READ - len(data))
        if not more:
            break
        data += more
    return data


def _names(descriptor: int) -> tuple[list[tuple[str, bool]] | None, bool]:
    """What may be a skill directory, and whether it is a link, sorted; and whether there is more than that.

    Null where the directory is a skill itself.
    """
    names = []
    with os.scandir(descriptor) as entries:
        for entry in islice(entries, _MAX_NAMES):
            if entry.name == FILE_NAME:
                return None, False
            is_link = entry.is_symlink()
            if not entry.name.startswith(".") and (is_link or entry.is_dir(follow_symlinks=False)):
                names.append((entry.name, is_link))
        over = next(entries, None) is not None
    names.sort()
    return names[:_MAX_ENTRIES], over or len(names) > _MAX_ENTRIES


def _lines(data: bytes) -> bytes:
    """Without the last line, which may be cut: half a line must not be taken for a fence."""
    return data[: data.rfind(b"\n") + 1]
