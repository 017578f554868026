"""The workspaces that are there, and what the tracker says of their issues."""

from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from symphony.daemon.context import RuntimeContext
from symphony.domain import Issue, natural_order, normalise_state
from symphony.processes.table import ProcessTable
from symphony.workspaces import WorkspaceRecord, is_directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One workspace; `issue` is null where the tracker does not know it any more."""

    record: WorkspaceRecord
    issue: Issue | None
    ended: bool


async def kept_workspaces(bound: RuntimeContext) -> tuple[Kept, ...]:
    """Every workspace under the root that is still there, by identifier; one request to the tracker.

    Raises:
        SymphonyError: the root cannot be read, or the tracker cannot tell.
    """
    records = sorted(await bound.workspaces.records(), key=lambda one: natural_order(one.identifier))
    there = [record for record in records if await to_thread.run_sync(is_directory, record.path)]
    if not there:
        return ()
    issues = {
        issue.id: issue
        for issue in await bound.tracker.fetch_issues_by_ids({record.issue_id for record in there})
    }
    over = {normalise_state(state) for state in bound.terminal_states}
    return tuple(_kept(record, issues.get(record.issue_id), over) for record in there)


def _kept(record: WorkspaceRecord, issue: Issue | None, over: set[str]) -> Kept:
    return Kept(record=record, issue=issue, ended=issue is not None and normalise_state(issue.state) in over)


def occupant(path: Path) -> int | None:
    """A process of this machine that works in the directory or below; null where none can be seen.

    A daemon that keeps another state directory is seen by nothing else.
    """
    return ProcessTable().working_in(path)


def size_of(path: Path) -> int:
    """Bytes of the plain files in a tree, links not followed; what cannot be read counts as nothing."""
    total, pending = 0, [path]
    while pending:
        try:
            entries = list(pending.pop().iterdir())
        except OSError:
            continue
        for entry in entries:
            try:
                facts = entry.lstat()
            except OSError:
                continue
            if is_directory(entry):
                pending.append(entry)
            else:
                total += facts.st_size
    return total
