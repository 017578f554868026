"""What was seen of issues by id, and until when it may start one (SC9): in words of the judge's own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from symphony.domain.issue import Issue
from symphony.scheduler.commands import Command, RefreshIssues, StartRun
from symphony.scheduler.inputs import Input, OperatorAsked, Polled, Refreshed, RunEnded, WakeAsked

__all__ = ["Look", "Looks", "seen_just_now"]

FRESH_MS = 250


@dataclass(frozen=True, slots=True)
class Look:
    """An answer about one issue: when it was asked for, and what it said."""

    asked_ms: int
    issue: Issue


def seen_just_now(issue: Issue, seen: Mapping[str, Look], now_ms: int) -> bool:
    """Whether an issue was seen as it is, and asked for a moment ago."""
    look = seen.get(issue.id)
    return look is not None and look.issue == issue and now_ms - look.asked_ms <= FRESH_MS


@dataclass(slots=True)
class Looks:
    """The newest answer about each issue, unless something happened to the issue since it was asked for.

    That is: a run of it began or ended, a poll brought a list, or somebody said that something changed.
    """

    seen: Mapping[str, Look] = field(default_factory=dict)
    _asked: dict[int, tuple[int, int]] = field(default_factory=dict)
    _happened: dict[str, int] = field(default_factory=dict)
    _news: int = 0
    _tick: int = 0

    def hear(self, fact: Input, issue_id: str | None) -> None:
        """Note a fact; `issue_id` is the one whose run ended."""
        self._tick += 1
        match fact:
            case WakeAsked() | Polled() | OperatorAsked():
                self._news, self.seen = self._tick, {}
            case RunEnded() if issue_id is not None:
                self._happen(issue_id)
            case Refreshed() if fact.request in self._asked:
                tick, asked_ms = self._asked.pop(fact.request)
                new = {
                    issue.id: Look(asked_ms, issue)
                    for issue in fact.issues
                    if tick > max(self._news, self._happened.get(issue.id, 0))
                }
                self.seen = {**self.seen, **new}
            case _:
                pass

    def book(self, commands: Iterable[Command], now_ms: int) -> None:
        """Note what was asked and started."""
        self._tick += 1
        for command in commands:
            if isinstance(command, RefreshIssues):
                self._asked[command.request] = (self._tick, now_ms)
            elif isinstance(command, StartRun):
                self._happen(command.issue.id)

    def _happen(self, issue_id: str) -> None:
        self._happened[issue_id] = self._tick
        if issue_id in self.seen:
            self.seen = {key: look for key, look in self.seen.items() if key != issue_id}
