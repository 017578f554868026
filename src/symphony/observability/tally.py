"""What happened to each issue in this daemon's life: the summary that `run --once` and `demo` print.

Pure: folds the steps of the scheduler, so it tells the same story as the log.
"""

from dataclasses import dataclass, field

from symphony.domain.failures import Failure
from symphony.domain.issue import Issue
from symphony.scheduler.commands import Command, StartRun
from symphony.scheduler.inputs import Input, Result, RunEnded
from symphony.scheduler.state import State

__all__ = ["IssueTally", "Tally"]


@dataclass(slots=True, kw_only=True)
class IssueTally:
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
    result: Result | None = None


@dataclass(slots=True)
class Tally:
    """An observer that keeps one `IssueTally` per issue that was started, in the order of starting."""

    issues: dict[str, IssueTally] = field(default_factory=dict)

    def __call__(self, before: State, fact: Input, after: State, commands: tuple[Command, ...]) -> None:
        """Fold one step."""
        for command in commands:
            if isinstance(command, StartRun):
                entry = self.issues.setdefault(command.issue.id, IssueTally(issue=command.issue))
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
        entry = self.issues.setdefault(run.issue.id, IssueTally(issue=run.issue))
        entry.issue = run.issue
        entry.turns += run.report.turn_count
        entry.commits = max(entry.commits, fact.outcome.commits)
        entry.branch = run.report.branch or entry.branch
        entry.workspace = run.report.workspace_path or entry.workspace
        entry.last_failure = fact.outcome.failure
