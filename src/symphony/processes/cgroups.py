"""Control groups (v2) of Linux: one for each run, below the daemon's own group, where that is delegated.

A process cannot leave its group by forking, starting a session or clearing its environment. A group
therefore shows which processes belong to a run even when they have lost the run id. A systemd service with
`Delegate=yes` has such a group, and so has a program that a user starts in a systemd session. Elsewhere only
run ids are used.

    <own group>/symphony-<instance>/<run id>/
"""

import os
import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_JOIN: Final = '{ echo 0 > "$0"; } 2> /dev/null; exec "$@"'
_JOIN_S: Final = 10.0  # a started command has joined its group by then, or never will
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_RUN_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,100}")


def own_cgroup(proc: Path = Path("/proc/self")) -> Path | None:
    """Return the directory of this process's group if this user may divide it, else None. Reads files.

    The root group of the machine, which has no `cgroup.kill`, is never divided.
    """
    try:
        place = _mounted_group(proc)
    except (OSError, ValueError):
        return None
    if place is None or not (place / "cgroup.kill").exists():
        return None
    return place if os.access(place, os.W_OK) and os.access(place / "cgroup.procs", os.W_OK) else None


def _mounted_group(proc: Path) -> Path | None:
    """Return where the v2 group of a process is mounted. Raises `OSError` and `ValueError`."""
    own = [line[3:] for line in (proc / "cgroup").read_text().splitlines() if line.startswith("0::")]
    for line in (proc / "mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if own and right.startswith("cgroup2 "):
            root, mount = (_ESCAPED.sub(_unescaped, part) for part in left.split(" ")[3:5])
            return Path(mount) / Path(own[0]).relative_to(root)
    return None


def _unescaped(found: re.Match[str]) -> str:
    """A space or a backslash, which the kernel writes as octal numbers."""
    return chr(int(found[1], 8))


class RunGroups:
    """The groups of one instance. A refusal by the kernel has the same effect as having no groups."""

    def __init__(self, parent: Path, instance: str) -> None:
        self._root = parent / f"symphony-{instance}"
        self._join_deadlines: dict[str, float] = {}

    def enter(self, run_id: str, argv: Sequence[str]) -> list[str]:
        """Return the command that joins the group of its run and then becomes `argv`.

        It joins before it can fork. Moving it from outside would be a race.
        """
        if not _RUN_ID.fullmatch(run_id):
            return list(argv)
        now = time.monotonic()
        joining = {name: until for name, until in self._join_deadlines.items() if until >= now}
        self._join_deadlines = {**joining, run_id: now + _JOIN_S}
        self.remove_empty(keep=self._join_deadlines)
        group = self._root / run_id
        with suppress(OSError):
            group.mkdir(parents=True, exist_ok=True)
        return ["/bin/sh", "-c", _JOIN, str(group / "cgroup.procs"), *argv]

    def members(self, run_ids: Collection[str] | None = None) -> Iterator[int]:
        """Yield the pids in the groups of these runs, or in all groups of the instance."""
        tops = [self._root] if run_ids is None else [self._root / run_id for run_id in run_ids]
        for top in tops:
            for directory, _, files in os.walk(top):
                if "cgroup.procs" in files:
                    with suppress(OSError, ValueError):
                        yield from [int(pid) for pid in Path(directory, "cgroup.procs").read_text().split()]

    def kill(self, pids: Collection[int]) -> None:
        """Kill every group that holds one of these processes, including forks in progress."""
        for group in self._root.glob("*/"):
            if not set(pids).isdisjoint(self.members([group.name])):
                with suppress(OSError):
                    (group / "cgroup.kill").write_text("1")

    def remove_empty(self, *, keep: Collection[str] = ()) -> None:
        """Remove empty groups, except for the runs in `keep`, whose first process may still be joining."""
        for directory in [Path(found) for found, _, _ in os.walk(self._root, topdown=False)]:
            if not keep or (directory != self._root and directory.name not in keep):
                with suppress(OSError):  # the group is not empty
                    directory.rmdir()
