"""The process table as psutil tells it, for machines without `/proc`: loaded where it is needed only.

What cannot be read (gone, or another user's) is as if it were not there.
"""

import psutil

_UNREADABLE = (psutil.Error, OSError)


def boot_time() -> str:
    """What stands for the boot of this machine."""
    return str(psutil.boot_time())


def pids() -> list[int]:
    """Every number that somebody has."""
    return psutil.pids()


def look(pid: int) -> tuple[float, bool] | None:
    """Seconds of the start, and whether it has ended."""
    try:
        process = psutil.Process(pid)
        return process.create_time(), process.status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except _UNREADABLE:
        return None


def children(pid: int) -> list[int]:
    """Every descendant."""
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except _UNREADABLE:
        return []


def parents(pid: int) -> list[int]:
    """The ancestors, nearest first."""
    try:
        return [parent.pid for parent in psutil.Process(pid).parents()]
    except _UNREADABLE:
        return []


def variable(pid: int, name: str) -> str | None:
    """A variable of its environment."""
    try:
        return psutil.Process(pid).environ().get(name)
    except _UNREADABLE:
        return None


def real_user(pid: int) -> int | None:
    """The number of the user who started it."""
    try:
        return psutil.Process(pid).uids().real
    except _UNREADABLE:
        return None
