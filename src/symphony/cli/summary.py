"""What is said at the end: a table of what happened to each issue, and a line for each that left work."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rich.table import Table
from rich.text import Text

from symphony.cli.formatting import plural
from symphony.domain import Failure, Issue, natural_order, one_line
from symphony.scheduler import Command, Event, IssueResult, RunEnded, StartRun, State

# What happened to each issue in this daemon's life: the summary that `run --once` and `demo` print.
#
# Pure: folds the steps of the scheduler, so it tells the same story as the log.


@dataclass(slots=True, kw_only=True)
class IssueSummary:
    """Sums over the runs of one issue.

    `given_up` is the error of a retry that nobody waits for any more, `result` what its runs came to, also
    those of an earlier daemon.
    """

    issue: Issue
    attempts: int = 0
    turns: int = 0
    commits: int = 0
    branch: str | None = None
    workspace: str | None = None
    blocked: Failure | None = None
    given_up: str | None = None
    last_failure: Failure | None = None
    result: IssueResult | None = None


@dataclass(slots=True)
class RunSummary:
    """An observer that keeps one `IssueSummary` per issue that was started, in the order of starting."""

    issues: dict[str, IssueSummary] = field(default_factory=dict)

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Fold one step."""
        for command in commands:
            if isinstance(command, StartRun):
                entry = self.issues.setdefault(command.issue.id, IssueSummary(issue=command.issue))
                entry.attempts += 1
        if isinstance(fact, RunEnded):
            self._ended(before, fact)
        for issue_id, blocked in after.blocked.items():
            if issue_id in self.issues:
                self.issues[issue_id].blocked = blocked.failure
        for issue_id, entry in self.issues.items():
            if issue_id not in after.blocked:
                entry.blocked = None
            retry = after.retrying.get(issue_id)
            entry.given_up = retry.error if retry else None
            entry.result = after.results.get(issue_id)

    def _ended(self, before: State, fact: RunEnded) -> None:
        run = next((run for run in before.running.values() if run.run_id == fact.run_id), None)
        if run is None:
            return
        entry = self.issues.setdefault(run.issue.id, IssueSummary(issue=run.issue))
        entry.issue = run.issue
        entry.turns += run.report.turn_count
        entry.commits = max(entry.commits, fact.outcome.commits)
        entry.branch = run.report.branch or entry.branch
        entry.workspace = run.report.workspace_path or entry.workspace
        entry.last_failure = fact.outcome.failure


_FITS_TITLES = 80


def summary_table(
    tally: RunSummary, states: dict[str, str] | None = None, *, width: int = _FITS_TITLES
) -> Table:
    """One row per issue that was worked on; `states` are final states by identifier where they are known.

    On a terminal of fewer than 80 columns titles and blanks give way.
    """
    table = Table(title=None, header_style="bold", pad_edge=False)
    for column in ("Issue", "Title", "State", "Attempts", "Turns", "Commits", "Branch"):
        counts = column in {"Attempts", "Turns", "Commits"}
        table.add_column(
            column, justify="right" if counts else "left", no_wrap=column != "Title", overflow="ellipsis"
        )
    for entry in sorted(tally.issues.values(), key=lambda item: natural_order(item.issue.identifier)):
        issue = entry.issue
        state = (states or {}).get(issue.identifier, issue.state)
        table.add_row(
            _cell(issue.identifier),
            _cell(issue.title),
            Text(f"{one_line(state)} (blocked)", style="red") if entry.blocked else _cell(state),
            str(entry.attempts),
            str(entry.turns),
            str(entry.commits),
            _cell(entry.branch or ""),
        )
    if width < _FITS_TITLES:
        del table.columns[1]
        table.padding = (0, 0)
    return table


def delivery_lines(tally: RunSummary, look: Callable[[str, str], str | None]) -> Iterator[str]:
    """Where the work of each issue is that was worked on, if it left any.

    `look` gives the command that shows a branch, for an identifier and the branch, or `None`.
    """
    for entry in sorted(tally.issues.values(), key=lambda item: item.issue.identifier):
        result = entry.result
        if result is None or result.delivered is None:
            continue
        done = result.delivered
        state = "waits for a person" if entry.blocked else f"in {result.issue.state}"
        files, lines = plural(done.files_changed, "file"), f"+{done.insertions} -{done.deletions}"
        told = [f"{plural(done.commits, 'commit')} on {done.branch}", f"{files} {lines}", state]
        if done.push_failure is not None:
            told.append(f"not pushed ({done.push_failure.message})")
        elif done.pushed:
            told.append("pushed")
        command = look(entry.issue.identifier, done.branch)
        words = one_line(f"{entry.issue.identifier}: {', '.join(told)}")
        yield words if command is None else f"{words}: {command}"


def _cell(text: str) -> Text:
    """Text of others as it is: neither markup of ours nor anything that steers the terminal."""
    return Text(one_line(text))
