"""Control groups of Linux (v2): one per run, below the daemon's own, where that may be divided.

Nothing leaves its group by forking, by moving to another session or by clearing its environment, so a group
tells who belongs to a run when no mark does. A service of systemd with `Delegate=yes` has such a group, and
so has what a user starts in a session of systemd; where there is none, marks have to do.

    <own group>/symphony-<instance>/<run id>/
"""

import os
import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc/self")
_JOIN: Final = '{ echo 0 > "$0"; } 2> /dev/null; exec "$@"'
_JOIN_S: Final = 10.0  # by then a command that was started has joined its group, or never will
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,100}")


def own_cgroup(proc: Path = _PROC) -> Path | None:
    """The directory of this process's group, if this user may divide it; null elsewhere.

    The group of the machine itself, which has no `cgroup.kill`, is never divided. Looks at files.
    """
    try:
        place = _directory(proc)
    except (OSError, ValueError):
        return None
    if place is None or not (place / "cgroup.kill").exists():
        return None
    return place if os.access(place, os.W_OK) and os.access(place / "cgroup.procs", os.W_OK) else None


class RunGroups:
    """The groups of one instance. Whatever the kernel refuses is as if there were no groups."""

    def __init__(self, parent: Path, instance: str) -> None:
        self._root = parent / f"symphony-{instance}"
        self._entering: dict[str, float] = {}

    def enter(self, run_id: str, argv: Sequence[str]) -> list[str]:
        """The command that joins the group of its run and then becomes `argv`; it cannot fork before.

        Moving a process from outside would be a race that it wins on a busy machine.
        """
        place = self._root / run_id
        if not _NAME.fullmatch(run_id):
            return list(argv)
        self._entering[run_id] = time.monotonic() + _JOIN_S
        self.tidy(sparing=self._still_entering())
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
        return ["/bin/sh", "-c", _JOIN, str(place / "cgroup.procs"), *argv]

    def members(self, run_ids: Collection[str] | None = None) -> Iterator[int]:
        """Who is in the groups of these runs, or in any."""
        tops = [self._root] if run_ids is None else [self._root / run_id for run_id in run_ids]
        for top in tops:
            for directory, _, files in os.walk(top):
                if "cgroup.procs" in files:
                    yield from _numbers(Path(directory, "cgroup.procs"))

    def kill(self, pids: Collection[int]) -> None:
        """Kill every group that one of these processes is in, forks that are just being made included."""
        for place in self._root.glob("*/"):
            if not set(pids).isdisjoint(self.members([place.name])):
                with suppress(OSError):
                    (place / "cgroup.kill").write_text("1")

    def tidy(self, *, sparing: Collection[str] = ()) -> None:
        """Remove the groups that nobody is in, but for those of the runs to spare."""
        for directory in map(Path, (found for found, _, _ in os.walk(self._root, topdown=False))):
            if not sparing or (directory != self._root and directory.name not in sparing):
                with suppress(OSError):  # somebody is in it
                    directory.rmdir()

    def _still_entering(self) -> frozenset[str]:
        """The runs whose groups may be empty because their first process is on its way."""
        now = time.monotonic()
        for run_id, until in tuple(self._entering.items()):
            if until < now:
                self._entering.pop(run_id, None)
        return frozenset(self._entering)


def _directory(proc: Path) -> Path | None:
    """Where the v2 group of this process is mounted. Raises `OSError` and `ValueError`."""
    mine = [line[3:] for line in (proc / "cgroup").read_text().splitlines() if line.startswith("0::")]
    for line in (proc / "mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if mine and right.startswith("cgroup2 "):
            root, mount = left.split(" ")[3:5]
            inside = Path(mine[0]).relative_to(root)
            return Path(mount) / inside
    return None


def _numbers(path: Path) -> list[int]:
    try:
        return [int(line) for line in path.read_text().split()]
    except (OSError, ValueError):
        return []
