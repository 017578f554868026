"""`symphony clean`: lists and removes what ended runs and issues have left.

Work is never lost: a workspace with work that exists nowhere else stays. If no daemon runs, the instance lock
is held meanwhile, so that no daemon can start a run in a workspace that is being removed.
"""

import os
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import click
from msgspec import Struct

from symphony import to_thread
from symphony.cli import options
from symphony.cli.client import connect
from symphony.cli.documents import Cleaned, CleanedItem
from symphony.cli.failures import CommandError, ExitCode, printable
from symphony.config import read_secrets
from symphony.daemon.admission import open_store
from symphony.daemon.context import RuntimeContext, build_context
from symphony.daemon.hosts.host_workspaces import HostWorkspace
from symphony.daemon.hosts.hosts import Hosts
from symphony.daemon.retention import RetentionLimits, remove_surplus, surplus_files
from symphony.daemon.state_dir import StateDirectory, journal_path, locate
from symphony.domain import Issue, Selection, SymphonyError, natural_order, normalise_state, plural
from symphony.journal.model import HealthState, UnusableError
from symphony.journal.reader import checkup, open_reader
from symphony.journal.store import open_journal
from symphony.processes.local import LocalHost
from symphony.processes.table import ProcessTable
from symphony.scheduler import CleanWorkspace
from symphony.workspaces import WorkspaceRecord, find_work, is_directory, last_touched, tree_size

# --- workspaces that exist -------------------------------------------------------------------------------


class RemovableWorkspace(Struct, frozen=True, kw_only=True):
    """One workspace.

    Attributes:
        issue: None if the tracker does not know it any more.
        ended: the issue is in a terminal state.
    """

    record: WorkspaceRecord
    issue: Issue | None
    ended: bool


async def find_workspaces(context: RuntimeContext) -> tuple[RemovableWorkspace, ...]:
    """Every recorded workspace that exists, by identifier; one request to the tracker.

    Raises:
        SymphonyError: the root cannot be read, or the tracker does not answer.
    """
    records = sorted(await context.workspaces.records(), key=lambda record: natural_order(record.identifier))
    existing = [record for record in records if await to_thread.run_sync(is_directory, record.path)]
    issues = await fetch_issues(context, {record.issue_id for record in existing})
    return tuple(
        RemovableWorkspace(
            record=record, issue=(issue := issues.get(record.issue_id)), ended=is_ended(context, issue)
        )
        for record in existing
    )


async def fetch_issues(context: RuntimeContext, ids: Collection[str]) -> Mapping[str, Issue]:
    """The issues with these ids that the tracker knows. Raises `SymphonyError`."""
    return {issue.id: issue for issue in await context.tracker.fetch_issues_by_ids(ids)} if ids else {}


def is_ended(context: RuntimeContext, issue: Issue | None) -> bool:
    """Whether an issue is in a terminal state."""
    terminal = {normalise_state(state) for state in context.terminal_states}
    return issue is not None and normalise_state(issue.state) in terminal


# --- the command -----------------------------------------------------------------------------------------

_EPILOG = """\b
Examples:
  symphony clean --dry-run             what it would remove, what stays, and why
  symphony clean
  symphony clean --older-than 12h      a shorter time than retention.max_age_days
  symphony clean --older-than 0 --yes  the whole history of ended runs, without confirmation

Removes workspaces of issues in a terminal state, on this machine and on the hosts of worker.ssh_hosts, ended
runs in the journal, stderr logs of agents and damaged journals that were set aside. Keeps everything of an
open issue, and every workspace with uncommitted work or with commits that exist nowhere else. Leaves
workspaces and the journal to a running daemon, which cleans them itself. Asks for confirmation if
--older-than would leave no ended run in the journal.

Exit codes: 0 done, 1 something could not be removed, or the answer was no, 2 usage, or a confirmation is
needed and there is no terminal and no --yes, 3 the workflow is invalid, 5 the daemon does not answer.
"""
_KIB = 1024
_KINDS = {
    "workspace": "workspace",
    "host": "host",
    "log": "log",
    "damaged_journal": "damaged journal",
    "runs": "journal",
}


@click.command(epilog=_EPILOG)
@options.dry_run_option
@click.option(
    "--older-than",
    metavar="AGE",
    callback=options.parse_age,
    help="Only leftovers older than this: 90m, 12h, 30d, 4w. Replaces retention.max_age_days for history.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.json_option
@options.workflow_option
def clean(*, dry_run: bool, older_than: float | None, yes: bool, as_json: bool, workflow: Path) -> int:
    """Remove the leftovers of ended runs and issues.

    Work that exists nowhere else is kept, with a reason.
    """
    result = clean_up(
        workflow,
        dict(os.environ),
        dry_run=dry_run,
        older_than_s=older_than,
        confirm=(lambda _: None) if yes else _confirm,
    )
    if as_json:
        options.print_json(result)
    else:
        _print_result(result)
    return ExitCode.FAILURE if any(item.outcome == "failed" for item in result.items) else ExitCode.OK


def _confirm(runs: int) -> None:
    what = f"all {runs} ended runs" if runs > 1 else "the only ended run"
    if sys.stdin is None or not sys.stdin.isatty():
        message = f"this would remove {what} from the journal, and needs a confirmation"
        hint = "--yes confirms it, --dry-run shows what would be removed"
        raise CommandError.of(message, hint=hint, code=ExitCode.USAGE)
    if not click.confirm(f"This removes {what} from the journal. Go on?", err=True):
        raise CommandError.of("nothing was removed", hint="give --older-than a greater age")


def _print_result(result: Cleaned) -> None:
    colour = options.use_colour()
    for item in result.items:
        style = {"kept": None, "failed": "red"}.get(item.outcome, "green")
        outcome = click.style(f"{item.outcome.replace('_', ' '):12}", fg=style)
        size = "" if item.size is None else f" ({_size(item.size)})"
        where = f" on {item.host}" if item.kind == "workspace" and item.host is not None else ""
        text = printable(f"{_KINDS[item.kind]} {item.name}{where}{size}: {item.reason}")
        click.echo(f"{outcome}  {text}", color=colour)
    if removed := sum(item.outcome in REMOVED for item in result.items):
        verb = "would be removed" if result.dry_run else "removed"
        click.echo(f"{removed} {verb}, {_size(result.bytes)} of files")
    elif any(item.outcome == "failed" for item in result.items):
        click.echo("Nothing was removed.")
    else:
        click.echo("There is nothing to remove.")


def _size(count: int) -> str:
    value, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= _KIB and len(units) > 1:
        value /= _KIB
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "bytes" else f"{value:.1f} {units[0]}"


# --- what is removed, and why the rest stays -------------------------------------------------------------

REMOVED: Final = frozenset({"removed", "would_remove"})
"""Outcomes of items that are gone, or would be."""


class _Job(Struct, frozen=True, kw_only=True):
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


async def _clean_workspace(job: _Job, found: RemovableWorkspace) -> CleanedItem:
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
                reason = removal.kept_reason or "it is already gone"
                reason = f"{reason}; look at it: {removal.look}" if removal.look else reason
    except (SymphonyError, OSError) as error:
        message = error.failure.message if isinstance(error, SymphonyError) else str(error)
        return item(outcome="failed", reason=job.context.redaction.text(message))
    return _result(job, item, found.issue, reason)


def _reason_to_skip(job: _Job, found: RemovableWorkspace) -> str | None:
    """Why a workspace stays regardless of its content."""
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
    """`reason` is why the workspace stays; `None` if it is removed."""
    if reason is not None:
        return item(outcome="kept", reason=reason)
    state = f" ({issue.state})" if issue is not None else ""
    return item(outcome="would_remove" if job.dry_run else "removed", reason=f"its issue is closed{state}")


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
                reason = removal.kept_reason or "it is already gone"
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
        trimmed = await journal.trim(job.limits.journal)
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
        expired = reader.expired_runs(limits.journal, now_wall_ms=_now_ms())
        ended = reader.expired_runs(replace(limits.journal, max_runs=0), now_wall_ms=_now_ms())
    return len(expired), len(ended)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
