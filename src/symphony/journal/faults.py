"""What goes wrong with the file of the journal, and what to say about it in one line."""

import errno
import sqlite3
from pathlib import Path

from symphony.domain.failures import Blame, Category, Failure, SymphonyError

__all__ = [
    "ANEW",
    "FAULTS",
    "DamagedError",
    "UnusableError",
    "failure_of",
    "is_damage",
    "notice",
    "stays_open",
    "unreadable",
    "unusable",
]

FAULTS = (sqlite3.Error, UnicodeDecodeError)
"""What a question to a file may raise: the words of an error may hold bytes of a damaged file."""
_PRIMARY = 0xFF
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_PATIENCE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL}
_WORDS = {
    sqlite3.SQLITE_BUSY: ("another process keeps it locked", "end the program that holds the file open"),
    sqlite3.SQLITE_LOCKED: ("another process keeps it locked", "end the program that holds the file open"),
    sqlite3.SQLITE_FULL: ("the disk is full", "make room on the disk of the state directory"),
    sqlite3.SQLITE_READONLY: ("it cannot be written", "make the state directory writable for this user"),
    sqlite3.SQLITE_PERM: ("it cannot be written", "make the state directory writable for this user"),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened", "make the state directory writable for this user"),
}
ANEW = "the next start of the daemon sets the damaged file aside and begins a new one"
_ELSE = "look at the disk of the state directory"


class UnusableError(SymphonyError):
    """The file cannot be used as it is, and was left as it is."""


class DamagedError(Exception):
    """The file is not, or no longer, a journal of ours; the message says what is wrong with it."""


def unusable(path: Path, why: str, *, hint: str) -> Failure:
    """Why nothing that is put survives the daemon."""
    return Failure(
        category=Category.JOURNAL,
        blame=Blame.HOST,
        message=f"the journal {path} cannot be used: {why}; what happens now is forgotten at a restart",
        hint=hint,
    )


def unreadable(path: Path, why: str, *, hint: str) -> Failure:
    """Why what is remembered cannot be told."""
    return notice(f"the journal {path} cannot be read: {why}", hint=hint)


def notice(message: str, *, hint: str | None = None) -> Failure:
    """Something to be told once, with the journal in order."""
    return Failure(category=Category.JOURNAL, blame=Blame.HOST, message=message, hint=hint)


def _code(error: BaseException) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & _PRIMARY


def is_damage(error: BaseException) -> bool:
    """Whether the file itself is wrong, and not the disk or the moment."""
    return isinstance(error, UnicodeDecodeError) or _code(error) in _DAMAGE


def stays_open(error: BaseException) -> bool:
    """Whether the same connection may succeed later: somebody else's lock, or a full disk."""
    return _code(error) in _PATIENCE


def failure_of(path: Path, error: BaseException, *, reading: bool = False) -> Failure:
    """What an error of SQLite or of the file system means for people."""
    told = unreadable if reading else unusable
    if isinstance(error, UnusableError):
        return error.failure
    if isinstance(error, OSError):
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        hint = _WORDS[sqlite3.SQLITE_FULL][1] if full else _ELSE
        return told(path, error.strerror or str(error), hint=hint)
    if reading and is_damage(error):
        return told(path, f"it is damaged ({error})", hint=ANEW)
    why, hint = _WORDS.get(_code(error), (str(error) or type(error).__name__, _ELSE))
    return told(path, why, hint=hint)
