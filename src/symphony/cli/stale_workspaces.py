"""Workspaces that exist, and whether their issues are in a terminal state."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from symphony.daemon.context import RuntimeContext
from symphony.domain import Issue, natural_order, normalise_state
from symphony.processes.table import ProcessTable
from symphony.workspaces import WorkspaceRecord, is_directory


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundWorkspace:
    """One workspace.

    Attributes:
        issue: None if the tracker does not know it any more.
        ended: the issue is in a terminal state.
    """

    record: WorkspaceRecord
    issue: Issue | None
    ended: bool


async def find_workspaces(context: RuntimeContext) -> tuple[FoundWorkspace, ...]:
    """Every recorded workspace that exists, by identifier; one request to the tracker.

    Raises:
        SymphonyError: the root cannot be read, or the tracker does not answer.
    """
    records = sorted(await context.workspaces.records(), key=lambda record: natural_order(record.identifier))
    existing = [record for record in records if await to_thread.run_sync(is_directory, record.path)]
    if not existing:
        return ()
    ids = {record.issue_id for record in existing}
    issues = {issue.id: issue for issue in await context.tracker.fetch_issues_by_ids(ids)}
    terminal = {normalise_state(state) for state in context.terminal_states}
    return tuple(
        FoundWorkspace(
            record=record,
            issue=(issue := issues.get(record.issue_id)),
            ended=issue is not None and normalise_state(issue.state) in terminal,
        )
        for record in existing
    )


def process_in(path: Path) -> int | None:
    """The pid of a process whose current directory is this one or one below; None if none is visible.

    This also finds runs of a daemon that has another state directory.
    """
    return ProcessTable().working_in(path)


def tree_size(path: Path) -> int:
    """Total size in bytes of the files in a tree, without following links; unreadable ones count as 0."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += Path(folder, name).lstat().st_size
    return total
