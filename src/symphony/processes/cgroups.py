"""Linux control groups (v2): one for each run, below the daemon's own group if that is delegated.

A process cannot leave its group by forking, starting a session or clearing its environment. A group therefore
shows which processes belong to a run even when they have lost the run id. A systemd service with
`Delegate=yes` has such a group, and so has a program that a user starts in a systemd session. Without one,
only run ids identify processes.

    <own group>/symphony-<instance>/<run id>/
"""

import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

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
        self._changing = Lock()

    def add(self, run_id: str, pid: int) -> None:
        """Put a process that has not forked yet into the group of its run."""
        if not _RUN_ID.fullmatch(run_id):
            return
        group = self._root / run_id
        with self._changing, suppress(OSError):
            for directory, _, _ in os.walk(self._root, topdown=False):
                with suppress(OSError):  # the group is not empty
                    Path(directory).rmdir()
            group.mkdir(parents=True, exist_ok=True)
            (group / "cgroup.procs").write_text(str(pid))

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
