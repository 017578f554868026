"""The runs of worker programs on a machine, so that another program can end one.

    <state dir>/runs/<run id>.json     the process of the worker of a run
    <state dir>/runs/<run id>.ended    the run must not begin any more

The daemon starts a new attempt of an issue when it is sure that no agent of an earlier one is alive.
"""

import os
import re
import time
from pathlib import Path
from typing import Final

import msgspec

from symphony import to_thread
from symphony.domain import Blame, Category, Failure, SymphonyError
from symphony.processes.base import Host, Identity

_RUN_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_KEPT_S: Final = 24 * 3_600
_SWEEPS: Final = 20


class HostRuns:
    """The runs of one state directory; every method blocks, except `end`.

    Args:
        state_dir: the state directory of the worker programs.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "runs"

    def begin(self, run_id: str, worker: Identity) -> None:
        """Record that this process carries out a run.

        Raises:
            SymphonyError: the daemon has given the run up.
        """
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file(run_id).write_bytes(msgspec.json.encode(worker))
        if self._tombstone(run_id).exists():
            raise SymphonyError(
                Failure(category=Category.WORKER_LOST, blame=Blame.HOST, message="the run was given up")
            )

    def finish(self, run_id: str) -> None:
        """Record that the run is over and its processes are gone."""
        self._file(run_id).unlink(missing_ok=True)

    async def end(self, run_id: str, host: Host) -> bool:
        """End a run whether it has begun or not; return whether none of its processes is alive."""
        for _ in range(_SWEEPS):
            alive = await to_thread.run_sync(self._alive, run_id, host)
            if not alive:
                await to_thread.run_sync(self.finish, run_id)
                return True
            await host.end(alive, grace_ms=0)
        return False

    def _alive(self, run_id: str, host: Host) -> tuple[Identity, ...]:
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._tombstone(run_id).touch()
        self._remove_old()
        found = dict.fromkeys(host.find_marked([run_id]))
        try:
            worker = msgspec.json.decode(self._file(run_id).read_bytes(), type=Identity)
        except (FileNotFoundError, msgspec.MsgspecError):
            return tuple(found)
        if host.is_alive(worker):
            found[worker] = None
        return tuple(found)

    def _remove_old(self) -> None:
        oldest = time.time() - _KEPT_S
        for path in self._path.iterdir():
            if path.suffix == ".ended" and path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)

    def _file(self, run_id: str) -> Path:
        return self._path / f"{_checked(run_id)}.json"

    def _tombstone(self, run_id: str) -> Path:
        return self._path / f"{_checked(run_id)}.ended"


def _checked(run_id: str) -> str:
    if _RUN_ID.fullmatch(run_id) is None:
        message = "a run id has letters, digits and dashes"
        raise SymphonyError(Failure(category=Category.COMMAND, blame=Blame.HOST, message=message))
    return run_id


def own_identity(host: Host) -> Identity:
    """The identity of this process."""
    return host.identify(os.getpid()) or Identity(boot_id="", pid=os.getpid(), started=0.0)
