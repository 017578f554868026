"""The state directory: which daemon holds it, and the logs of agents."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


from symphony.daemon.instance_lock import Holder, InstanceLock, StateDirectoryError, holding
from symphony.domain.disk import is_full, make_room
from symphony.processes.base import Identity

__all__ = ["StateDirectory", "StateDirectoryError"]



class StateDirectory:
    """One directory per workflow file, private to its user."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"

    def create(self) -> None:
        """Make the directory and its parts, mode 0700.

        Raises:
            StateDirectoryError: it cannot be created or written.
        """
        try:
            for part in (self.path, self.logs):
                part.mkdir(mode=0o700, parents=True, exist_ok=True)
            probe = self.path / ".writable"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise self._unusable(error) from error

    @contextmanager
    def lock(
        self, workflow: Path | None = None, *, identity: Identity | None = None
    ) -> Iterator[InstanceLock]:
        """Hold the instance lock; the kernel frees it however the daemon ends.

        `workflow` and `identity` tell others who serves what here.

        Raises:
            StateDirectoryError: as `instance_lock.holding`.
        """
        holder = Holder(
            pid=os.getpid(),
            boot_id=None if identity is None else identity.boot_id,
            started=None if identity is None else identity.started,
            workflow=None if workflow is None else os.path.realpath(workflow),
        )
        with holding(self.path / "lock", holder) as lock:
            yield lock

    def _unusable(self, error: OSError) -> StateDirectoryError:
        what = f"the state directory {self.path} cannot be used: {error.strerror}"
        usual = "set SYMPHONY_STATE_DIR to a directory that this user can write"
        return StateDirectoryError.unusable(what, hint=make_room(self.path) if is_full(error) else usual)

    def stderr_log(self, run_id: str) -> Path:
        """Where the agent of a run writes its stderr."""
        return self.logs / f"{run_id}.stderr.log"

    def drop_empty_log(self, run_id: str) -> None:
        """Remove the stderr log of an ended run that said nothing."""
        log = self.stderr_log(run_id)
        with suppress(OSError):
            if log.stat().st_size == 0:
                log.unlink()
