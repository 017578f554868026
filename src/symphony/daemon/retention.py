"""Limits the data of ended runs by age and size, for the daemon and for `symphony clean`.

Finding is separate from removing, so that a person can first see what would be removed. A file that cannot be
removed stays and causes no failure.
"""

import os
import stat
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import structlog
from msgspec import Struct

from symphony import to_thread
from symphony.config import RetentionSettings
from symphony.daemon.state_dir import StateDirectory
from symphony.journal.model import Retention, TrimResult

_HOUR_S: Final = 3_600.0
_ARTIFACTS: Final = "artifacts"
_DAY_S: Final = 86_400
_LOG_SUFFIX: Final = ".stderr.log"
_TRANSCRIPT_SUFFIX: Final = ".jsonl"
# Codex's conversations; the file name ends with the id of the thread.
_THREADS: Final = "*/sessions/*/*/*/rollout-*.jsonl"
_log = structlog.get_logger(__name__)


class RetentionLimits(Struct, frozen=True, kw_only=True):
    """How much is kept: `max_age_s` in seconds, logs in bytes, and the limits that the journal applies."""

    max_age_s: float
    max_log_bytes: int
    journal: Retention

    @classmethod
    def of(cls, settings: RetentionSettings, *, max_age_s: float | None = None) -> "RetentionLimits":
        """The limits of the settings; `max_age_s` replaces their age."""
        age_s = settings.max_age_days * _DAY_S if max_age_s is None else max_age_s
        journal = Retention(
            max_age_ms=round(age_s * 1000), max_runs=settings.max_runs, max_bytes=settings.max_journal_bytes
        )
        return cls(max_age_s=age_s, max_log_bytes=settings.max_log_bytes, journal=journal)

    @property
    def too_old(self) -> str:
        """The reason for removals because of age."""
        return f"it is older than {self.max_age_s / _DAY_S:g} d"


class Surplus(Struct, frozen=True, kw_only=True):
    """A file to remove, and why; `size` in bytes."""

    path: Path
    kind: str
    size: int
    reason: str


class InUse(Struct, frozen=True, kw_only=True):
    """The data that must be kept now.

    Attributes:
        settings: the section `retention` in force.
        runs: ids of running runs.
        threads: ids of conversations that a claim may resume.
    """

    settings: RetentionSettings
    runs: frozenset[str]
    threads: frozenset[str]


def surplus_files(
    state_dir: StateDirectory, limits: RetentionLimits, *, live: Collection[str], now_s: float | None = None
) -> tuple[Surplus, ...]:
    """Files of ended runs and damaged journals to remove, the oldest first; no files of `live` runs.

    A log, a transcript or a file of a check is removed if it is too old, if it is empty, or if newer ones
    fill `max_log_bytes`. A damaged journal is kept for a person to examine and removed only because of age.
    """
    oldest_s = (time.time() if now_s is None else now_s) - limits.max_age_s
    logs: list[Surplus] = []
    room = limits.max_log_bytes
    files = [
        *_files(state_dir.logs, f"*{_LOG_SUFFIX}"),
        *_files(state_dir.transcripts, f"*{_TRANSCRIPT_SUFFIX}"),
        *_files(state_dir.artifacts, "*/*"),
    ]
    for path, facts in sorted(files, key=lambda one: one[1].st_mtime, reverse=True):
        of_run = path.parent if path.parent.parent == state_dir.artifacts else path
        if of_run.name.removesuffix(_LOG_SUFFIX).removesuffix(_TRANSCRIPT_SUFFIX) in live:
            continue
        room -= facts.st_size
        if facts.st_size == 0:
            reason = "it is empty"
        elif facts.st_mtime < oldest_s:
            reason = limits.too_old
        elif room < 0:
            reason = f"newer logs fill the {limits.max_log_bytes} bytes that logs may take"
        else:
            continue
        logs.append(Surplus(path=path, kind="log", size=facts.st_size, reason=reason))
    damaged = (
        Surplus(path=path, kind="damaged_journal", size=facts.st_size, reason=limits.too_old)
        for path, facts in _files(state_dir.path, "journal.db.damaged-*")
        if facts.st_mtime < oldest_s
    )
    return (*reversed(logs), *damaged)


def surplus_threads(
    state_dir: StateDirectory, limits: RetentionLimits, *, needed: Collection[str], now_s: float | None = None
) -> tuple[Surplus, ...]:
    """Old conversations in the private homes of agents, without those whose ids are `needed`.

    An issue whose conversation is gone starts a new one.
    """
    oldest_s = (time.time() if now_s is None else now_s) - limits.max_age_s
    return tuple(
        Surplus(path=path, kind="thread", size=facts.st_size, reason=limits.too_old)
        for path, facts in _files(state_dir.path / "homes", _THREADS)
        if facts.st_mtime < oldest_s and not any(thread in path.name for thread in needed)
    )


def remove_surplus(found: Sequence[Surplus]) -> tuple[Surplus, ...]:
    """Remove the files; return those that could not be removed."""
    stuck = []
    for one in found:
        try:
            one.path.unlink(missing_ok=True)
        except OSError:
            stuck.append(one)
        if one.path.parent.parent.name == _ARTIFACTS:  # the directory of a run is removed with its last file
            with suppress(OSError):
                one.path.parent.rmdir()
    return tuple(stuck)


async def keep_bounded(
    state_dir: StateDirectory,
    trim: Callable[[Retention], Awaitable[TrimResult]],
    in_use: Callable[[], InUse],
    every_s: float = _HOUR_S,
) -> None:
    """Remove surplus files and records, now and every hour, until cancelled; `trim` cuts the journal."""
    while True:
        try:
            await _remove_all(state_dir, trim, in_use)
        except Exception:  # noqa: BLE001 - failing housekeeping must not stop the work
            _log.exception("retention_failed")
        await anyio.sleep(every_s)


async def _remove_all(
    state_dir: StateDirectory,
    trim: Callable[[Retention], Awaitable[TrimResult]],
    in_use: Callable[[], InUse],
) -> None:
    before = in_use()
    limits = RetentionLimits.of(before.settings)
    threads = await to_thread.run_sync(lambda: surplus_threads(state_dir, limits, needed=before.threads))
    count, size = await _remove(threads)
    if count:
        _log.info("threads_trimmed", files=count, bytes=size)
    files = await to_thread.run_sync(lambda: surplus_files(state_dir, limits, live=before.runs))
    runs = in_use().runs  # logs of runs that began meanwhile are still empty
    new = {path for run_id in runs for path in (state_dir.stderr_log(run_id), state_dir.transcript(run_id))}
    count, size = await _remove([one for one in files if one.path not in new])
    trimmed = await trim(limits.journal)
    if count or trimmed.runs:
        _log.info("history_trimmed", files=count, runs=trimmed.runs, bytes=size + trimmed.bytes)


async def _remove(found: Sequence[Surplus]) -> tuple[int, int]:
    """Remove the files; return number and bytes of the removed ones."""
    stuck = await to_thread.run_sync(remove_surplus, found)
    sizes = [one.size for one in found if one not in stuck]
    return len(sizes), sum(sizes)


def _files(directory: Path, pattern: str) -> list[tuple[Path, os.stat_result]]:
    """Plain files that match, the oldest first; links and files that vanish meanwhile are left out."""
    found = []
    for path in sorted(directory.glob(pattern)):
        try:
            facts = path.lstat()
        except OSError:
            continue
        if stat.S_ISREG(facts.st_mode):
            found.append((path, facts))
    return sorted(found, key=lambda one: one[1].st_mtime)
