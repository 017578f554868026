"""What ended runs leave is bounded by age and size: the rules, for the daemon and for `symphony clean`.

Finding is apart from removing, so that a person can see first what would go. Housekeeping never fails the
work: a file that cannot be removed stays.
"""

import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import structlog
from anyio import to_thread

from symphony.config import RetentionSettings
from symphony.daemon.state_dir import StateDirectory
from symphony.journal.model import Retention, TrimResult

_HOUR_S: Final = 3_600.0
_DAY_S: Final = 86_400
_LOG_END: Final = ".stderr.log"
_THREADS: Final = "*/sessions/*/*/*/rollout-*.jsonl"  # as Codex calls them, the id of the thread at the end
_DAMAGED: Final = "journal.db.damaged-*"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """How much is kept: `max_age_s` in seconds, sizes in bytes."""

    max_age_s: float
    max_runs: int
    max_log_bytes: int
    max_journal_bytes: int

    @classmethod
    def of(cls, settings: RetentionSettings, *, max_age_s: float | None = None) -> "RetentionLimits":
        """Those of the settings; `max_age_s` wins over theirs."""
        return cls(
            max_age_s=settings.max_age_days * _DAY_S if max_age_s is None else max_age_s,
            max_runs=settings.max_runs,
            max_log_bytes=settings.max_log_bytes,
            max_journal_bytes=settings.max_journal_bytes,
        )

    @property
    def of_journal(self) -> Retention:
        """The part that the journal keeps to."""
        return Retention(
            max_age_ms=round(self.max_age_s * 1000), max_runs=self.max_runs, max_bytes=self.max_journal_bytes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Surplus:
    """A file that may go, and why; `size` in bytes."""

    path: Path
    kind: str
    size: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    path: Path
    size: int
    written_s: float


def surplus_files(
    state_dir: StateDirectory, limits: RetentionLimits, *, live: Collection[str], now_s: float | None = None
) -> tuple[Surplus, ...]:
    """Agents' stderr logs and damaged journals that may go, oldest first; logs of `live` runs are none.

    A log may go that is older than `max_age_s`, that is empty, or that finds no room in `max_log_bytes`
    beside the newer ones. A damaged journal was kept for a person to look at: it may go by age alone.
    """
    oldest_s = (time.time() if now_s is None else now_s) - limits.max_age_s
    logs = [
        file
        for file in _files(state_dir.logs, f"*{_LOG_END}")
        if file.path.name.removesuffix(_LOG_END) not in live
    ]
    damaged = [file for file in _files(state_dir.path, _DAMAGED) if file.written_s < oldest_s]
    old = (_because(one, "damaged_journal", _too_old(limits)) for one in damaged)
    return (*_logs(logs, limits, oldest_s), *old)


def surplus_threads(
    state_dir: StateDirectory, limits: RetentionLimits, *, needed: Collection[str], now_s: float | None = None
) -> tuple[Surplus, ...]:
    """Conversations in the private homes of agents that may go by age; those that are `needed` by id stay.

    Homes of the operator's are none of ours. An issue whose conversation is gone begins a new one.
    """
    oldest_s = (time.time() if now_s is None else now_s) - limits.max_age_s
    return tuple(
        _because(file, "thread", _too_old(limits))
        for file in _files(state_dir.path / "homes", _THREADS)
        if file.written_s < oldest_s and not any(thread in file.path.name for thread in needed)
    )


def _logs(logs: Sequence[_File], limits: RetentionLimits, oldest_s: float) -> Iterator[Surplus]:
    room = limits.max_log_bytes
    reasons: dict[Path, str] = {}
    for log in sorted(logs, key=lambda one: one.written_s, reverse=True):
        room -= log.size
        if log.size == 0:
            reasons[log.path] = "it is empty"
        elif log.written_s < oldest_s:
            reasons[log.path] = _too_old(limits)
        elif room < 0:
            reasons[log.path] = f"newer logs fill the {limits.max_log_bytes} bytes that logs may take"
    for log in sorted(logs, key=lambda one: one.written_s):
        if log.path in reasons:
            yield _because(log, "log", reasons[log.path])


def _because(file: _File, kind: str, reason: str) -> Surplus:
    return Surplus(path=file.path, kind=kind, size=file.size, reason=reason)


def _too_old(limits: RetentionLimits) -> str:
    return f"it is older than {limits.max_age_s / _DAY_S:g} d"


def _files(directory: Path, pattern: str) -> Iterator[_File]:
    """Plain files of the directory itself; one that is gone meanwhile is left out."""
    for path in sorted(directory.glob(pattern)):
        try:
            facts = path.lstat()
        except OSError:
            continue
        if path.is_file() and not path.is_symlink():
            yield _File(path=path, size=facts.st_size, written_s=facts.st_mtime)


def remove_surplus(found: Sequence[Surplus]) -> tuple[Surplus, ...]:
    """Remove the files; returns those that could not be removed."""
    left = []
    for one in found:
        try:
            one.path.unlink(missing_ok=True)
        except OSError:
            left.append(one)
    return tuple(left)


async def keep_bounded(
    state_dir: StateDirectory,
    trim: Callable[[Retention], Awaitable[TrimResult]],
    kept: Callable[[], tuple[RetentionSettings, frozenset[str]]],
    every_s: float = _HOUR_S,
    needed: Callable[[], frozenset[str]] = frozenset,
) -> None:
    """Remove what is too much, now and every hour, until cancelled.

    `trim` drops what is too much of the journal.
    `kept` tells the settings as they are then, and the ids of the runs that live; `needed` the conversations
    that some claim may go on with.
    """
    while True:
        try:
            settings, live = kept()
            await _trim_threads(state_dir, RetentionLimits.of(settings), needed)
            await _once(state_dir, RetentionLimits.of(settings), live, trim, lambda: kept()[1])
        except Exception:  # noqa: BLE001 - housekeeping that fails must not stop the work
            _log.exception("retention_failed")
        await anyio.sleep(every_s)


async def _trim_threads(
    state_dir: StateDirectory, limits: RetentionLimits, needed: Callable[[], frozenset[str]]
) -> None:
    used = needed()
    found = await to_thread.run_sync(lambda: surplus_threads(state_dir, limits, needed=used))
    stuck = await to_thread.run_sync(remove_surplus, found)
    if gone := [one for one in found if one not in stuck]:
        _log.info("threads_trimmed", files=len(gone), bytes=sum(one.size for one in gone))


async def _once(
    state_dir: StateDirectory,
    limits: RetentionLimits,
    live: frozenset[str],
    trim: Callable[[Retention], Awaitable[TrimResult]],
    alive_now: Callable[[], frozenset[str]],
) -> None:
    seen = await to_thread.run_sync(lambda: surplus_files(state_dir, limits, live=live))
    begun = {state_dir.stderr_log(run_id) for run_id in alive_now() - live}  # their logs are empty yet
    found = tuple(one for one in seen if one.path not in begun)
    stuck = await to_thread.run_sync(remove_surplus, found)
    trimmed = await trim(limits.of_journal)
    gone = [one for one in found if one not in stuck]
    if gone or trimmed.runs:
        size = sum(one.size for one in gone) + trimmed.bytes
        _log.info("history_trimmed", files=len(gone), runs=trimmed.runs, bytes=size)
