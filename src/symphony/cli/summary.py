"""The summary at the end of `run --once` and `demo`: what happened to each issue, and where its work is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from rich.table import Table
from rich.text import Text

from symphony.cli.formatting import cell
from symphony.domain import Failure, Issue, natural_order, one_line, plural
from symphony.scheduler import Command, Event, IssueResult, Left, RunEnded, StartRun, State, left_over

_MIN_WIDTH_FOR_TITLES: Final = 80


@dataclass(slots=True, kw_only=True)
class IssueSummary:
    """Sums over the runs of one issue.

    Attributes:
        blocked: why it is blocked now.
        last_failure: how the last run failed; None if it succeeded.
        result: the outcome of its runs, with those of an earlier daemon.
    """

    issue: Issue
    attempts: int = 0
    turns: int = 0
    commits: int = 0
    branch: str | None = None
    workspace: str | None = None
    blocked: Failure | None = None
    last_failure: Failure | None = None
    result: IssueResult | None = None


@dataclass(slots=True)
class RunSummary:
    """Observes the steps of the scheduler.

    Attributes:
        issues: by id, the issues that were started.
        state: the last one.
    """

    issues: dict[str, IssueSummary] = field(default_factory=dict)
    state: State | None = None

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Add one step."""
        self.state = after
        for command in commands:
            if isinstance(command, StartRun):
                self._entry(command.issue).attempts += 1
        if isinstance(fact, RunEnded):
            run = next((run for run in before.running.values() if run.run_id == fact.run_id), None)
            if run is not None:
                entry = self._entry(run.issue)
                entry.issue = run.issue
                entry.turns += run.report.facts.turn_count
                entry.commits = max(entry.commits, run.report.facts.work.commits)
                entry.branch = run.report.facts.branch or entry.branch
                entry.workspace = run.report.facts.workspace_path or entry.workspace
                entry.last_failure = fact.outcome.failure
        for issue_id, entry in self.issues.items():
            blocked = after.blocked.get(issue_id)
            entry.blocked = None if blocked is None else blocked.failure
            entry.result = after.results.get(issue_id)

    def left(self) -> list[Left]:
        """What is left to do, in the order of identifiers."""
        left = () if self.state is None else left_over(self.state)
        return sorted(left, key=lambda each: natural_order(each.issue.identifier))

    def _entry(self, issue: Issue) -> IssueSummary:
        return self.issues.setdefault(issue.id, IssueSummary(issue=issue))


def summary_table(
    summary: RunSummary, states: dict[str, str] | None = None, *, width: int = _MIN_WIDTH_FOR_TITLES
) -> Table:
    """One row per issue that was started.

    Args:
        summary: what happened.
        states: states of issues by identifier; default: those that the scheduler saw last.
        width: columns of the terminal; with fewer than 80 the table has no titles and no padding.
    """
    table = Table(title=None, header_style="bold", pad_edge=False)
    for column in ("Issue", "Title", "State", "Attempts", "Turns", "Commits", "Branch"):
        is_count = column in {"Attempts", "Turns", "Commits"}
        table.add_column(
            column, justify="right" if is_count else "left", no_wrap=column != "Title", overflow="ellipsis"
        )
    for entry in sorted(summary.issues.values(), key=lambda entry: natural_order(entry.issue.identifier)):
        issue = entry.issue
        state = (states or {}).get(issue.identifier, issue.state)
        table.add_row(
            cell(issue.identifier),
            cell(issue.title),
            Text(f"{one_line(state)} (blocked)", style="red") if entry.blocked else cell(state),
            str(entry.attempts),
            str(entry.turns),
            str(entry.commits),
            cell(entry.branch),
        )
    if width < _MIN_WIDTH_FOR_TITLES:
        del table.columns[1]
        table.padding = (0, 0)
    return table


def delivery_lines(summary: RunSummary, command_for: Callable[[str, str], str | None]) -> Iterator[str]:
    """One line per issue with a delivered branch, in the order of identifiers.

    `command_for` gives the command that shows a branch, for an identifier and the branch; None for no
    command.
    """
    for entry in sorted(summary.issues.values(), key=lambda entry: entry.issue.identifier):
        result = entry.result
        if result is None or result.delivered is None:
            continue
        delivered = result.delivered
        work, missing = delivered.work, delivered.branch_failure
        commits = plural(work.commits, "commit")
        parts = [
            f"{commits} on {delivered.branch}" if missing is None else f"{commits} kept ({missing.message})",
            f"{plural(work.files_changed, 'file')} {work.lines}",
            "waits for a person" if entry.blocked else f"in {result.issue.state}",
        ]
        if delivered.push_failure is not None:
            parts.append(f"not pushed ({delivered.push_failure.message})")
        elif delivered.pushed or delivered.to_push:
            parts.append("pushed" if delivered.pushed else "not pushed yet")
        text = one_line(f"{entry.issue.identifier}: {', '.join(parts)}")
        command = command_for(entry.issue.identifier, delivered.branch)
        yield text if command is None else f"{text}: {command}"
