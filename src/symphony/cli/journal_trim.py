"""The journal as `symphony clean` sees it, while no daemon writes to it."""

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio

from symphony.daemon.retention import Limits
from symphony.journal.model import HealthState, Trimmed, UnusableError
from symphony.journal.reader import checkup, open_reader
from symphony.journal.store import open_journal

__all__ = ["JournalTrim", "trim_journal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalTrim:
    """How many ended runs went, or would go, and by how many bytes the file shrank; `failure` is one line.

    `everything` is foretold by a dry run: no ended run would stay.
    """

    runs: int = 0
    everything: bool = False
    bytes: int | None = None
    failure: str | None = None


def trim_journal(journal: Path, limits: Limits, *, dry_run: bool) -> JournalTrim | None:
    """Trim it to the limits; null where there is none. One that is not sound is left as it is.

    A dry run counts what goes by age and number; how much goes by size is only known afterwards.
    """
    found = checkup(journal)
    if not found.present:
        return None
    if found.failure is not None:
        return JournalTrim(failure=found.failure.message)
    if not dry_run:
        return anyio.run(partial(_trim, journal, limits))
    try:
        with open_reader(journal) as reader:
            runs = len(reader.overdue(limits.of_journal, now_wall_ms=_now_ms()))
            ended = len(reader.overdue(replace(limits, max_runs=0).of_journal, now_wall_ms=_now_ms()))
            return JournalTrim(runs=runs, everything=runs == ended > 0)
    except UnusableError as error:
        return JournalTrim(failure=error.failure.message)


async def _trim(path: Path, limits: Limits) -> JournalTrim:
    journal = await open_journal(path, now_wall_ms=_now_ms)
    try:
        trimmed: Trimmed = await journal.trim(limits.of_journal)
        health = journal.health
    finally:
        await journal.close()
    if health.state is not HealthState.OK:
        return JournalTrim(
            failure="it cannot be written" if health.failure is None else health.failure.message
        )
    return JournalTrim(runs=trimmed.runs, bytes=trimmed.bytes)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
