"""Workspaces that exist, and whether their issues are in a terminal state."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from symphony import to_thread
from symphony.daemon.context import RuntimeContext
from symphony.domain import Issue, natural_order, normalise_state
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
    issues = await fetch_issues(context, {record.issue_id for record in existing})
    return tuple(
        FoundWorkspace(
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
