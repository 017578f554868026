"""One step in progress: the state being replaced and the commands collected so far."""

from dataclasses import replace
from typing import Any

from symphony.domain.issue import Issue
from symphony.scheduler.claims import Trigger, move
from symphony.scheduler.commands import Command, Notify, SetTimer
from symphony.scheduler.inputs import ResultStatus, Timer, TimerKind
from symphony.scheduler.state import Blocked, Drain, Entry, Retry, Running, State

__all__ = ["Work"]


class Work:
    """Mutable only within one `step`; every change is made on a copy of the state."""

    __slots__ = ("commands", "now_ms", "state")

    def __init__(self, state: State, now_ms: int) -> None:
        self.state = state
        self.now_ms = now_ms
        self.commands: list[Command] = []

    def emit(self, command: Command) -> None:
        """Add a command."""
        self.commands.append(command)

    def update(self, **changes: Any) -> None:
        """Replace fields of the state."""
        self.state = replace(self.state, **changes)

    def number(self) -> int:
        """The next serial number."""
        self.update(serial=self.state.serial + 1)
        return self.state.serial

    def notify(self, level: str, event: str, issue: Issue | None = None, **fields: Any) -> None:
        """Add a log line."""
        self.emit(
            Notify(
                level=level,
                event=event,
                issue_id=issue.id if issue else None,
                issue_identifier=issue.identifier if issue else None,
                fields=fields,
            )
        )

    def set_timer(self, timer: Timer, due_ms: int) -> None:
        """Arm a timer; an earlier arming of the same one becomes stale."""
        token = self.state.serial + 1
        self.update(
            serial=token,
            timers={**self.state.timers, timer: token},
            dues={**self.state.dues, timer: due_ms},
        )
        self.emit(SetTimer(timer=timer, token=token, due_ms=due_ms))

    def clear_timer(self, timer: Timer) -> None:
        """Make a timer stale."""
        if timer in self.state.timers:
            timers, dues = dict(self.state.timers), dict(self.state.dues)
            del timers[timer]
            dues.pop(timer, None)
            self.update(timers=timers, dues=dues)

    def await_retry(self, issue_id: str, due_ms: int) -> None:
        """Wake a waiting claim then; on the way out nobody waits any more, as the successor will."""
        if self.state.drain is Drain.NO:
            self.set_timer(Timer(TimerKind.RETRY, issue_id), due_ms)

    def unpark(self, issue_id: str) -> None:
        """The workspace of an issue belongs to its claim again."""
        if issue_id in self.state.parked:
            self.update(parked={key: ref for key, ref in self.state.parked.items() if key != issue_id})

    def late_ms(self, timer: Timer) -> int:
        """By how much an armed timer is overdue; 0 where it is not."""
        return max(self.now_ms - self.state.dues.get(timer, self.now_ms), 0)

    def claim(self, issue: Issue, trigger: Trigger, entry: Entry | None = None) -> bool:
        """Change the claim on an issue by the table; an illegal change is reported and changes nothing."""
        moved = move(self.state, issue.id, trigger, entry)
        if moved is None:
            self.notify("error", "claim_transition_refused", issue, trigger=trigger.value)
            return False
        self.state = moved
        if entry is not None:
            self._reopen(issue.id)
        return True

    def _reopen(self, issue_id: str) -> None:
        """Work that was ready for review is not while its issue is claimed."""
        result = self.state.results.get(issue_id)
        if result is not None and result.status is not ResultStatus.OPEN:
            result = replace(result, status=ResultStatus.OPEN)
            self.update(results={**self.state.results, issue_id: result})

    def set_running(self, run: Running) -> None:
        """Replace a running entry without a change of claim."""
        self.update(running={**self.state.running, run.issue.id: run})

    def set_retry(self, retry: Retry) -> None:
        """Replace a retry entry without a change of claim."""
        self.update(retrying={**self.state.retrying, retry.issue.id: retry})

    def set_blocked(self, blocked: Blocked) -> None:
        """Replace a blocked entry without a change of claim."""
        self.update(blocked={**self.state.blocked, blocked.issue.id: blocked})

    def run_by_id(self, run_id: str) -> Running | None:
        """The live run with this id."""
        return next((run for run in self.state.running.values() if run.run_id == run_id), None)
