"""Finds the SKILL.md files of one root and reads their beginnings; nothing in here raises.

One directory level, 2,000 entries, 64 KiB per file; special files never block, and hidden directories as well
as whatever vanishes between listing and opening are skipped. The bytes and the keys and values of a root are
limited, and the clock is looked at before each file, so that a load ends whatever lies there.
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
from symphony.skills.model import FILE_NAME, Code, Incomplete, Problem, Root, Scope
from symphony.skills.parse import Found, Parsed, Rules, is_clean_name, parse
from symphony.skills.sheet import split
from symphony.skills.sources import Source, shown
from symphony.skills.text import escape, is_plain

__all__ = ["Listing", "scan"]

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


def scan(source: Source, rules: Rules, seen: set[tuple[int, int]], until: float) -> Listing:
    """Load one root, unless it is one of the directories `seen` before under whatever name.

    No file is opened when `time.monotonic()` has come to `until`.
    """
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

    def __init__(self, source: Source, rules: Rules, until: float) -> None:
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
        found = self._beginning(descriptor, status.st_size, name, *names)
        parsed = parse(found, self._rules)
        if parsed.skill is None or is_clean_name(name) or (is_plain(name) and escape(name) == name):
            return parsed
        return self._broken(Code.INVALID_DIRECTORY, name, *names)

    def _beginning(self, descriptor: int, size: int, name: str, *names: str) -> Found:
        """One read of 4 KiB; more, up to 64 KiB, only while the front matter goes on."""
        data = os.read(descriptor, _FIRST_READ)
        while True:
            whole = len(data) >= size
            lines = data if whole else data[: data.rfind(b"\n") + 1]  # half a line must not pass for a fence
            parts = split(lines)
            goes_on = parts is not None and (parts.glued or not parts.fences.closed)
            if whole or not goes_on or len(data) >= _MAX_READ:
                break
            more = os.read(descriptor, _MAX_READ - len(data))
            if not more:
                break
            data += more
        self._bytes -= len(data)
        source = self._source
        return Found(
            path=source.path(*names),
            directory=shown(name),
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
