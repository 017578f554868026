"""How `symphony clean` decides and does it; what would lose work stays (WS11, WS13).

Without a daemon the instance lock is held meanwhile, so that none can start a run in what is being removed.
No claim is live then: what the journal remembers of one, the next start would release for an ended issue.
"""

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

import anyio
from anyio import to_thread

from symphony.cli.client import Client, connect
from symphony.cli.documents import Cleaned, CleanedItem
from symphony.cli.journal import journal_path
from symphony.cli.serving import open_store
from symphony.cli.stale_workspaces import Kept, kept_workspaces, occupant, size_of
from symphony.config import read_secrets
from symphony.daemon.context import RuntimeContext, build_context
from symphony.daemon.retention import RetentionLimits, remove_surplus, surplus_files
from symphony.daemon.state_dir import StateDirectory, locate
from symphony.domain import Selection, SymphonyError
from symphony.journal.model import HealthState, TrimResult, UnusableError
from symphony.journal.reader import checkup, open_reader
from symphony.journal.store import open_journal
from symphony.processes.local import LocalHost
from symphony.workspaces import reason_to_keep

# The journal as `symphony clean` sees it, while no daemon writes to it.


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalTrim:
    """How many ended runs went, or would go, and by how many bytes the file shrank; `failure` is one line.

    `everything` is foretold by a dry run: no ended run would stay.
    """

    runs: int = 0
    everything: bool = False
    bytes: int | None = None
    failure: str | None = None


def trim_journal(journal: Path, limits: RetentionLimits, *, dry_run: bool) -> JournalTrim | None:
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
            runs = len(reader.expired_runs(limits.of_journal, now_wall_ms=_now_ms()))
            ended = len(reader.expired_runs(replace(limits, max_runs=0).of_journal, now_wall_ms=_now_ms()))
            return JournalTrim(runs=runs, everything=runs == ended > 0)
    except UnusableError as error:
        return JournalTrim(failure=error.failure.message)


async def _trim(path: Path, limits: RetentionLimits) -> JournalTrim:
    journal = await open_journal(path, now_wall_ms=_now_ms)
    try:
        trimmed: TrimResult = await journal.trim(limits.of_journal)
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


GONE: Final = frozenset({"removed", "would_remove"})
"""Outcomes of what was removed, or would be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What is to be cleaned and how; `live` are the runs of a daemon, `pid` is null where there is none."""

    bound: RuntimeContext
    state_dir: StateDirectory
    journal: Path
    environment: Mapping[str, str]
    limits: RetentionLimits
    older_than_s: float | None
    dry_run: bool
    live: frozenset[str]
    pid: int | None

    @property
    def removed(self) -> Literal["removed", "would_remove"]:
        """What becomes of that which may go."""
        return "would_remove" if self.dry_run else "removed"


def clean_up(
    workflow: Path,
    environment: Mapping[str, str],
    *,
    dry_run: bool,
    older_than_s: float | None,
    confirm: Callable[[int], None],
) -> Cleaned:
    """Look at what is left and, unless it is a dry run, remove what may go.

    `confirm` is called with the number of ended runs where `older_than_s` would leave none in the journal;
    nothing is removed if it raises. What goes by the `retention` of the settings is agreed already.

    Raises:
        SymphonyError: the workflow cannot be used, the tracker cannot tell, a daemon does not answer, or one
            starts at this very moment.
    """
    environment = read_secrets(environment).environment
    bound = build_context(
        open_store(workflow, environment, acknowledged=True).current(),
        host=LocalHost(),
        environment=environment,
    )
    live, pid = _daemon(connect(workflow, environment))
    job = _Job(
        bound=bound,
        state_dir=StateDirectory(locate(workflow, environment)),
        journal=journal_path(workflow, environment),
        environment=environment,
        limits=RetentionLimits.of(bound.settings.retention, max_age_s=older_than_s),
        older_than_s=older_than_s,
        dry_run=dry_run,
        live=live,
        pid=pid,
    )
    holds = not dry_run and pid is None
    if holds and older_than_s is not None:
        foretold = trim_journal(job.journal, job.limits, dry_run=True)
        if foretold is not None and foretold.everything:
            confirm(foretold.runs)
    if holds:
        job.state_dir.create()
    identity = LocalHost().identify(os.getpid())
    with job.state_dir.lock(workflow, identity=identity) if holds else nullcontext():
        items = anyio.run(_clean, job)
    freed = sum(item.size or 0 for item in items if item.outcome in GONE)
    return Cleaned(dry_run=dry_run, daemon=pid, items=items, bytes=freed)


def _daemon(client: Client | None) -> tuple[frozenset[str], int | None]:
    """The live runs and the process of the daemon that runs."""
    if client is None:
        return frozenset(), None
    running = client.state(Selection(limit=0)).running
    return frozenset(row.run_id for row in running), client.endpoint.pid


async def _clean(job: _Job) -> tuple[CleanedItem, ...]:
    items = [item async for item in _workspaces(job)]
    items += await to_thread.run_sync(_files, job)
    items += await to_thread.run_sync(_runs, job)
    return tuple(items)


async def _workspaces(job: _Job) -> AsyncIterator[CleanedItem]:
    for kept in await kept_workspaces(job.bound):
        yield await _workspace(job, kept)


async def _workspace(job: _Job, kept: Kept) -> CleanedItem:
    record = kept.record
    size = await to_thread.run_sync(size_of, record.path)
    item = partial(CleanedItem, kind="workspace", name=record.identifier, path=str(record.path), size=size)
    over = f"its issue is over ({kept.issue.state})" if kept.issue is not None else "its issue is over"
    try:
        reason = await _reason(job, kept)
        if reason is not None:
            return item(outcome="kept", reason=reason)
        if job.dry_run:
            return item(outcome=job.removed, reason=over)
        removal = await job.bound.workspaces.remove(record)
    except (SymphonyError, OSError) as error:
        told = error.failure.message if isinstance(error, SymphonyError) else str(error)
        return item(outcome="failed", reason=job.bound.redaction.text(told))
    if removal.removed:
        return item(outcome="removed", reason=over)
    return item(outcome="kept", reason=removal.kept_reason or "it is gone already")


async def _reason(job: _Job, kept: Kept) -> str | None:
    """Why a workspace stays; null where it may go. What a removal itself finds out is only foretold."""
    reason = await to_thread.run_sync(_standing, job, kept)
    if reason is not None or not job.dry_run:
        return reason
    return await reason_to_keep(
        kept.record.path,
        host=LocalHost(),
        settings=job.bound.settings.workspace,
        environment=job.environment,
        secret_names=job.bound.secret_names,
    )


def _standing(job: _Job, kept: Kept) -> str | None:
    """Why a workspace stays whatever is in it."""
    if job.pid is not None:
        return f"the daemon (pid {job.pid}) looks after workspaces while it runs"
    if kept.issue is None:
        return "the tracker does not know its issue, so nobody says that it is over"
    if not kept.ended:
        return f"its issue is not over ({kept.issue.state})"
    if (pid := occupant(kept.record.path)) is not None:
        return f"a process (pid {pid}) works in it"
    if job.older_than_s is not None and not _untouched(kept, job.older_than_s):
        return "it was touched more recently than --older-than"
    return None


def _untouched(kept: Kept, age_s: float) -> bool:
    """Whether neither the directory nor its repository changed for so long."""
    newest = 0.0
    for path in (kept.record.path, kept.record.path / ".git"):
        try:
            newest = max(newest, path.lstat().st_mtime)
        except OSError:
            continue
    return newest <= time.time() - age_s


def _files(job: _Job) -> list[CleanedItem]:
    """Logs of ended runs, also beside a daemon: nobody writes to them any more."""
    found = surplus_files(job.state_dir, job.limits, live=job.live)
    stuck = set() if job.dry_run else {one.path for one in remove_surplus(found)}
    return [
        CleanedItem(
            kind="log" if one.kind == "log" else "damaged_journal",
            name=one.path.name,
            path=str(one.path),
            size=one.size,
            outcome="failed" if one.path in stuck else job.removed,
            reason="it cannot be removed" if one.path in stuck else one.reason,
        )
        for one in found
    ]


def _runs(job: _Job) -> list[CleanedItem]:
    """Ended runs in the journal, which a running daemon trims by itself."""
    item = partial(CleanedItem, kind="runs", path=str(job.journal))
    if job.pid is not None:
        reason = f"the daemon (pid {job.pid}) keeps it within `retention`"
        return [item(name="journal.db", size=None, outcome="kept", reason=reason)]
    trimmed = trim_journal(job.journal, job.limits, dry_run=job.dry_run)
    if trimmed is None:
        return []
    if trimmed.failure is not None:
        return [item(name="journal.db", size=None, outcome="failed", reason=trimmed.failure)]
    if not trimmed.runs:
        return [item(name="journal.db", size=None, outcome="kept", reason="it is within `retention`")]
    name = f"{trimmed.runs} ended run{'' if trimmed.runs == 1 else 's'}"
    return [item(name=name, size=trimmed.bytes, outcome=job.removed, reason="too old, too many or too large")]
