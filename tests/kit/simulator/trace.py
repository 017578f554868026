"""Which steps of a history concern one issue."""

from collections.abc import Iterable, Iterator

from kit.simulator.referee import Told
from symphony.scheduler import (
    Command,
    Event,
    Polled,
    Refreshed,
    RefreshIssues,
    StartRun,
    TimerFired,
)

__all__ = ["concerning"]


def concerning(history: Iterable[Told], issue_id: str | None) -> Iterator[Told]:
    """The steps that concern an issue, and those that concern everybody; null means every step."""
    runs: set[str] = set()
    for told in history:
        _, fact, commands = told
        runs.update(
            command.run_id
            for command in commands
            if isinstance(command, StartRun) and command.issue.id == issue_id
        )
        if issue_id is None or _concerns(fact, commands, issue_id, runs):
            yield told


def _concerns(fact: Event, commands: Iterable[Command], issue_id: str, runs: set[str]) -> bool:
    run_id = getattr(fact, "run_id", None)
    if run_id is not None:
        return run_id in runs
    if isinstance(fact, TimerFired) and (fact.timer.id == issue_id or fact.timer.id in runs):
        return True
    if isinstance(fact, Polled | Refreshed):
        return any(issue.id == issue_id for issue in fact.issues) or any(
            _names(each, issue_id) for each in commands
        )
    return not isinstance(fact, TimerFired) or any(_names(each, issue_id) for each in commands)


def _names(command: Command, issue_id: str) -> bool:
    if isinstance(command, RefreshIssues):
        return issue_id in command.ids
    issue = getattr(command, "issue", None)
    return getattr(command, "issue_id", None if issue is None else issue.id) == issue_id
