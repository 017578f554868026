"""The state directory: who holds it, the logs of agents, and what earlier versions wrote of runs (DESIGN 10).

Those wrote a small file per live run, by which a successor found what a killed daemon had left running. Now
the journal knows, and every child carries the mark of its instance. Files that are still there are read once.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from symphony.hosts.base import Identity
from symphony.runtime.instance_lock import Holder, StateDirectoryError, holding

__all__ = ["LiveRun", "StateDirectory", "StateDirectoryError"]

_KEPT_LOGS = 200
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """What an earlier version wrote down about a run while it lived; `agent` is null before the process."""

    run_id: str
    issue_id: str
    issue_identifier: str
    workspace_path: str | None = None
    agent: Identity | None = None


class StateDirectory:
    """One directory per workflow file, private to its user."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs = path / "runs"
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
    def lock(self, workflow: Path | None = None, *, identity: Identity | None = None) -> Iterator[None]:
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
        with holding(self.path / "lock", holder):
            yield

    def _unusable(self, error: OSError) -> StateDirectoryError:
        what = f"the state directory {self.path} cannot be used: {error.strerror}"
        return StateDirectoryError.unusable(
            what, hint="set SYMPHONY_STATE_DIR to a directory that this user can write"
        )

    def remove_run(self, run_id: str) -> None:
        """Forget a run whose processes are gone."""
        with suppress(OSError):
            (self.runs / f"{run_id}.json").unlink(missing_ok=True)

    def stderr_log(self, run_id: str) -> Path:
        """Where the agent of a run writes its stderr."""
        return self.logs / f"{run_id}.stderr.log"

    def drop_empty_log(self, run_id: str) -> None:
        """Remove the stderr log of an ended run that said nothing."""
        log = self.stderr_log(run_id)
        with suppress(OSError):
            if log.stat().st_size == 0:
                log.unlink()

    def trim_logs(self, live: Collection[str] = (), *, keep: int = _KEPT_LOGS) -> None:
        """Drop empty stderr logs of runs that are not `live`, and all but the newest `keep` others."""
        ended = [path for path in self.logs.glob("*.stderr.log") if path.name.split(".")[0] not in live]
        facts = sorted(((_size_and_age(path), path) for path in ended), key=lambda item: item[0][1])
        full = [path for (size, _), path in facts if size]
        for path in {*ended} - {*full[max(len(full) - keep, 0) :]}:
            with suppress(OSError):  # housekeeping: a log that stays is no reason to fail
                path.unlink()

    def left_runs(self) -> tuple[LiveRun, ...]:
        """The runs that a predecessor did not end, oldest name first; the file name alone is enough."""
        names = sorted(self.runs.glob("*.json"))
        return tuple(_read_run(name) for name in names)


def _size_and_age(path: Path) -> tuple[int, int]:
    """Size in bytes and time of the last write; a file that is gone counts as empty and old."""
    try:
        facts = path.stat()
    except OSError:
        return (0, 0)
    return (facts.st_size, facts.st_mtime_ns)


def _read_run(path: Path) -> LiveRun:
    """A run from its file; a damaged file still tells the run id, which is its name."""
    bare = LiveRun(run_id=path.stem, issue_id="", issue_identifier="")
    try:
        return _typed(json.loads(path.read_text(encoding="utf-8")), path.stem)
    except (OSError, ValueError, TypeError, AttributeError, KeyError, OverflowError):
        return bare


def _typed(raw: Mapping[str, Any], run_id: str) -> LiveRun:
    agent = raw.get("agent")
    return LiveRun(
        run_id=run_id,
        issue_id=str(raw["issue_id"]),
        issue_identifier=str(raw["issue_identifier"]),
        workspace_path=raw.get("workspace_path"),
        agent=_identity(agent) if agent else None,
    )


def _identity(raw: Mapping[str, Any]) -> Identity:
    pid = int(raw["pid"])
    if pid <= 0:
        raise ValueError(f"not a process number: {pid}")
    return Identity(boot_id=str(raw["boot_id"]), pid=pid, started=float(raw["started"]))
