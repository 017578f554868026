"""What `symphony clean` removes, and why the rest stays.

Work is never lost: a workspace with work that exists nowhere else stays. If no daemon runs, the instance lock
is held meanwhile, so that no daemon can start a run in a workspace that is being removed.
"""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from symphony import to_thread
from symphony.cli.client import connect
from symphony.cli.documents import Cleaned, CleanedItem
from symphony.cli.failures import CommandError
from symphony.cli.formatting import plural
from symphony.cli.journal import journal_path
from symphony.cli.stale_workspaces import FoundWorkspace, fetch_issues, find_workspaces, is_ended
from symphony.config import read_secrets
from symphony.daemon.admission import open_store
from symphony.daemon.context import RuntimeContext, build_context
from symphony.daemon.hosts.host_workspaces import HostWorkspace
from symphony.daemon.hosts.hosts import Hosts
from symphony.daemon.retention import RetentionLimits, remove_surplus, surplus_files
from symphony.daemon.state_dir import StateDirectory, locate
from symphony.domain import Issue, Selection, SymphonyError, natural_order
from symphony.journal.model import HealthState, UnusableError
from symphony.journal.reader import checkup, open_reader
from symphony.journal.store import open_journal
from symphony.processes.local import LocalHost
from symphony.processes.table import ProcessTable
from symphony.scheduler import CleanWorkspace
from symphony.workspaces import find_work, last_touched, tree_size

REMOVED: Final = frozenset({"removed", "would_remove"})
"""Outcomes of items that are gone, or would be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What to clean, and how.

    Attributes:
        older_than_s: overrides the age of the retention settings, and protects younger workspaces.
        daemon_pid: the running daemon; None if there is none.
        live_runs: ids of its runs.
    """

    context: RuntimeContext
    environment: Mapping[str, str]
    state_dir: StateDirectory
    journal: Path
    limits: RetentionLimits
    older_than_s: float | None
    dry_run: bool
    daemon_pid: int | None
    live_runs: frozenset[str]


def clean_up(
    workflow: Path,
    environment: Mapping[str, str],
    *,
    dry_run: bool,
    older_than_s: float | None,
    confirm: Callable[[int], None],
) -> Cleaned:
    """Remove leftovers; in a dry run, only list them.

    Args:
        workflow: the workflow file.
        environment: variables that it may refer to.
        dry_run: remove nothing.
        older_than_s: replaces `retention.max_age_days`.
        confirm: called with the number of ended runs if `older_than_s` would leave none in the journal;
            raises an error to stop before anything is removed.

    Raises:
        SymphonyError: the workflow cannot be used, the tracker or a daemon does not answer, or a daemon is
            just starting.
    """
    environment = read_secrets(environment).environment
    context = build_context(
        open_store(workflow, environment, acknowledged=True).current(),
        host=LocalHost(),
        environment=environment,
    )
    daemon_pid, live_runs = None, frozenset[str]()
    if client := connect(workflow, environment):
        daemon_pid = client.endpoint.pid
        live_runs = frozenset(row.run_id for row in client.state(Selection(limit=0)).running)
    job = _Job(
        context=context,
        environment=environment,
        state_dir=StateDirectory(locate(workflow, environment)),
        journal=journal_path(workflow, environment),
        limits=RetentionLimits.of(context.settings.retention, max_age_s=older_than_s),
        older_than_s=older_than_s,
        dry_run=dry_run,
        daemon_pid=daemon_pid,
        live_runs=live_runs,
    )
    if dry_run or daemon_pid is not None:
        items = anyio.run(_clean, job)
    else:
        if older_than_s is not None:
            with suppress(UnusableError):  # reported later
                expired, ended = _count_expired_runs(job)
                if expired == ended > 0:
                    confirm(ended)
        job.state_dir.create()
        with job.state_dir.lock(workflow, identity=LocalHost().identify(os.getpid())):
            items = anyio.run(_clean, job)
    freed = sum(item.size or 0 for item in items if item.outcome in REMOVED)
    return Cleaned(dry_run=dry_run, daemon=daemon_pid, items=items, bytes=freed)


async def _clean(job: _Job) -> tuple[CleanedItem, ...]:
    workspaces = [await _clean_workspace(job, found) for found in await find_workspaces(job.context)]
    files = await to_thread.run_sync(_clean_files, job)
    return (*workspaces, *await _clean_hosts(job), *files, *await _clean_journal(job))


# --- workspaces ------------------------------------------------------------------------------------------


async def _clean_workspace(job: _Job, found: FoundWorkspace) -> CleanedItem:
    record = found.record
    size = await to_thread.run_sync(tree_size, record.path)
    item = partial(CleanedItem, kind="workspace", name=record.identifier, path=str(record.path), size=size)
    try:
        reason = await to_thread.run_sync(_reason_to_skip, job, found)
        if reason is None and job.dry_run:
            work = await find_work(
                record.path,
                host=LocalHost(),
                settings=job.context.settings.workspace,
                environment=job.environment,
                secret_names=job.context.secret_names,
            )
            reason = None if work is None else f"{work.reason}; look at it: {work.look}"
        if reason is None and not job.dry_run:
            removal = await job.context.workspaces.remove(record)
            if not removal.removed:
                reason = removal.kept_reason or "it is gone already"
                reason = f"{reason}; look at it: {removal.look}" if removal.look else reason
    except (SymphonyError, OSError) as error:
        message = error.failure.message if isinstance(error, SymphonyError) else str(error)
        return item(outcome="failed", reason=job.context.redaction.text(message))
    return _result(job, item, found.issue, reason)


def _reason_to_skip(job: _Job, found: FoundWorkspace) -> str | None:
    """Why a workspace stays, whatever its content is."""
    if reason := _reason_of_issue(job, found.issue):
        return reason
    path = found.record.path
    if (pid := ProcessTable().working_in(path)) is not None:
        return f"a process (pid {pid}) works in it"
    return _reason_of_age(job, last_touched(path))


def _reason_of_issue(job: _Job, issue: Issue | None) -> str | None:
    if job.daemon_pid is not None:
        return f"the daemon (pid {job.daemon_pid}) looks after workspaces while it runs"
    if issue is None:
        return "the tracker does not know its issue, so it may not be over"
    if not is_ended(job.context, issue):
        return f"its issue is not over ({issue.state})"
    return None


def _reason_of_age(job: _Job, touched_s: float) -> str | None:
    if job.older_than_s is not None and touched_s > time.time() - job.older_than_s:
        return "it was touched more recently than --older-than"
    return None


def _result(job: _Job, item: partial[CleanedItem], issue: Issue | None, reason: str | None) -> CleanedItem:
    """`reason` is why the workspace stays; `None` for one that goes."""
    if reason is not None:
        return item(outcome="kept", reason=reason)
    state = f" ({issue.state})" if issue is not None else ""
    return item(outcome="would_remove" if job.dry_run else "removed", reason=f"its issue is over{state}")


# --- workspaces on hosts ---------------------------------------------------------------------------------


async def _clean_hosts(job: _Job) -> list[CleanedItem]:
    """The workspaces on other machines; a host that cannot be used is an item too."""
    found: dict[str, tuple[HostWorkspace, ...]] = {}
    items: list[CleanedItem] = []
    chosen = job.context.carrier
    if chosen is None:
        return []
    async with aclosing(Hosts(LocalHost(), job.environment, job.state_dir.path, purpose="-clean")) as hosts:

        async def look(name: str) -> None:
            try:
                found[name] = await hosts.workspaces(job.context, name)
            except SymphonyError as error:
                items.append(_failed_host(name, error))

        try:
            names = tuple((await hosts.survey(job.context)).hosts)
        except SymphonyError as error:
            return [_failed_host(chosen.kind, error)]
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(look, name)
        ids = {workspace.issue_id for workspaces in found.values() for workspace in workspaces}
        issues = await fetch_issues(job.context, ids)
        items += [
            await _clean_on_host(job, hosts, name, workspace, issues.get(workspace.issue_id))
            for name in names
            for workspace in sorted(found.get(name, ()), key=lambda one: natural_order(one.identifier))
        ]
    return items


def _failed_host(name: str, error: SymphonyError) -> CleanedItem:
    reason = error.failure.message
    return CleanedItem(
        kind="host", name=name, host=name, path=None, size=None, outcome="failed", reason=reason
    )


async def _clean_on_host(
    job: _Job, hosts: Hosts, name: str, workspace: HostWorkspace, issue: Issue | None
) -> CleanedItem:
    item = partial(
        CleanedItem,
        kind="workspace",
        name=workspace.identifier,
        host=name,
        path=workspace.path,
        size=workspace.bytes,
    )
    reason = _reason_of_issue(job, issue) or _reason_of_age(job, workspace.touched_s)
    if job.dry_run or workspace.is_busy:
        reason = reason or workspace.kept_reason
    try:
        if reason is None and not job.dry_run:
            command = CleanWorkspace(
                issue_id=workspace.issue_id, identifier=workspace.identifier, path=None, host=name
            )
            removal = await hosts.clean(job.context, command)
            if not removal.removed:
                reason = removal.kept_reason or "it is gone already"
    except SymphonyError as error:
        return item(outcome="failed", reason=error.failure.message)
    return _result(job, item, issue, reason)


# --- files -----------------------------------------------------------------------------------------------


def _clean_files(job: _Job) -> list[CleanedItem]:
    """Logs of ended runs and damaged journals; a running daemon does not write to them any more."""
    surplus = surplus_files(job.state_dir, job.limits, live=job.live_runs)
    failed = set() if job.dry_run else {file.path for file in remove_surplus(surplus)}
    items = []
    for file in surplus:
        item = partial(
            CleanedItem,
            kind="log" if file.kind == "log" else "damaged_journal",
            name=file.path.name,
            path=str(file.path),
            size=file.size,
        )
        if file.path in failed:
            items.append(item(outcome="failed", reason="it cannot be removed"))
        else:
            items.append(item(outcome="would_remove" if job.dry_run else "removed", reason=file.reason))
    return items


# --- the journal -----------------------------------------------------------------------------------------


async def _clean_journal(job: _Job) -> list[CleanedItem]:
    """Ended runs in the journal; a running daemon trims it by itself."""
    item = partial(CleanedItem, kind="runs", path=str(job.journal), name="journal.db", size=None)
    if job.daemon_pid is not None:
        return [item(outcome="kept", reason=f"the daemon (pid {job.daemon_pid}) keeps it within `retention`")]
    found = await to_thread.run_sync(checkup, job.journal)
    if not found.present:
        return []
    try:
        if found.failure is not None:
            raise UnusableError(found.failure)
        if job.dry_run:
            runs, size = (await to_thread.run_sync(_count_expired_runs, job))[0], None
        else:
            runs, size = await _trim_journal(job)
    except SymphonyError as error:
        return [item(outcome="failed", reason=error.failure.message)]
    if not runs:
        return [item(outcome="kept", reason="it is within `retention`")]
    return [
        item(
            name=plural(runs, "ended run"),
            size=size,
            outcome="would_remove" if job.dry_run else "removed",
            reason="too old, too many or too large",
        )
    ]


async def _trim_journal(job: _Job) -> tuple[int, int]:
    """Remove ended runs; return how many, and by how many bytes the file shrank.

    Raises:
        SymphonyError: the journal cannot be written.
    """
    journal = await open_journal(job.journal, now_wall_ms=_now_ms)
    try:
        trimmed = await journal.trim(job.limits.of_journal)
        health = journal.health
    finally:
        await journal.close()
    if health.state is not HealthState.OK:
        hint = "look at the file and its permissions"
        failure = health.failure or CommandError.of("it cannot be written", hint=hint).failure
        raise SymphonyError(failure)
    return trimmed.runs, trimmed.bytes


def _count_expired_runs(job: _Job) -> tuple[int, int]:
    """How many ended runs go by age and number, and how many there are.

    How many go because the file is too large is only known afterwards.

    Raises:
        UnusableError: there is no readable journal.
    """
    limits = job.limits
    with open_reader(job.journal) as reader:
        expired = reader.expired_runs(limits.of_journal, now_wall_ms=_now_ms())
        ended = reader.expired_runs(replace(limits, max_runs=0).of_journal, now_wall_ms=_now_ms())
    return len(expired), len(ended)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
