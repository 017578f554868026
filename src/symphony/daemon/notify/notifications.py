"""Notifications for people, as values decided from the steps of the scheduler.

Pure: no I/O and no clock. `decide` compares the states before and after a step, `is_current` says whether a
waiting notification is still true, and `due_reminders` finds unanswered questions. Comments of the daemon are
not part of a decision, so they never cause a notification.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal, assert_never

from symphony.api.models import SkillProblem
from symphony.config import NotifyEvent
from symphony.domain import Category, Issue, Redaction, Verification, plural, without_codes
from symphony.journal.model import PullRequestRecord
from symphony.scheduler import (
    Blocked,
    CircuitState,
    Command,
    Drain,
    Event,
    Notify,
    Recovered,
    ResultStatus,
    State,
    awaits_answer,
    circuit_state,
    is_by_pull_request,
)

NotificationEvent = NotifyEvent | Literal["test"]
"""The kinds of notifications; `test` is sent by `symphony notify test`."""

_BUDGETS: Final = frozenset({Category.BUDGET_ISSUE, Category.BUDGET_DAY})
_MAX_MESSAGE: Final = 1_000
_MAX_TITLE: Final = 200
_MAX_NAMES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The issue that a notification is about. The tracker's texts are untrusted."""

    issue_id: str
    identifier: str
    title: str
    state: str
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A notification for people.

    Attributes:
        id: unique; a repeated delivery has the same id.
        event: its kind.
        at_wall_ms: when it happened, in ms since 1970.
        message: one line without secrets; may contain text of an agent or a tracker.
        issue: its issue; `None` if it is about the daemon.
        hint: what to do.
        code: the category of the failure behind it.
        subject: its subject if that is not an issue: the name of an agent.
        reminder: whether it repeats an earlier notification.
    """

    id: str
    event: NotificationEvent
    at_wall_ms: int
    message: str
    issue: Subject | None = None
    hint: str | None = None
    code: str | None = None
    subject: str | None = None
    reminder: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Of two waiting notifications with the same key only the newer one is delivered."""
        about = self.subject or "" if self.issue is None else self.issue.issue_id
        return self.event, about


# --- decisions -------------------------------------------------------------------------------------------


def decide(
    before: State, event: Event, after: State, commands: Sequence[Command], *, at_wall_ms: int
) -> Iterator[Notification]:
    """The notifications of one step.

    Recovered state causes none, because the previous daemon decided them.
    """
    if isinstance(event, Recovered):
        return
    if after.blocked is not before.blocked:
        for issue_id in after.blocked.keys() - before.blocked.keys():
            if not is_by_pull_request(after.blocked[issue_id]):  # `of_pull_request` reports these
                yield _of_block(after.blocked[issue_id], at_wall_ms)
    if before.drain is Drain.NO and after.drain is not Drain.NO:
        yield _new("daemon_down_soon", at_wall_ms, "the daemon shuts down")
    for command in commands:
        if isinstance(command, Notify):
            yield from _of_log_line(command, after, at_wall_ms)


def _of_block(blocked: Blocked, at_wall_ms: int) -> Notification:
    failure = blocked.failure
    name: NotifyEvent = "budget" if failure.category in _BUDGETS else "blocked"
    message = failure.message
    if awaits_answer(blocked):
        name, message = "question", blocked.question or failure.message
    found = _new(name, at_wall_ms, message, blocked.issue)
    return replace(found, hint=failure.hint, code=failure.category.value)


def _of_log_line(line: Notify, after: State, at_wall_ms: int) -> Iterator[Notification]:
    reason = without_codes(str(line.fields.get("reason")))
    match line.event:
        case "work_ready" if (result := after.results.get(line.issue_id or "")) and result.delivered:
            commits, branch = result.delivered.work.commits, result.delivered.branch
            message = f"{plural(commits, 'commit')} on {branch}"
            if result.summary:
                message = f"{message}: {result.summary}"
            yield _new("ready", at_wall_ms, message, result.issue)
        case "day_budget_used":
            used, limit = line.fields.get("day_tokens"), line.fields.get("limit")
            yield _new(
                "budget", at_wall_ms, f"the token budget of today is used up: {used} of {limit} tokens"
            )
        case "circuit_opened":
            yield _new("tracker_down", at_wall_ms, f"the tracker fails: {reason}")
        case "agent_limited" if line.fields.get("times") == 1:  # one for each outage, however long
            agent = str(line.fields.get("agent"))
            yield _new("agent_limited", at_wall_ms, f"the agent {agent} is limited: {reason}", subject=agent)
        case _:
            pass


def of_skill_problems(problems: Iterable[SkillProblem], at_wall_ms: int) -> Notification:
    """The notification of unusable skills."""
    paths = list(dict.fromkeys(problem.path for problem in problems))
    more = f" and {len(paths) - _MAX_NAMES} more" if len(paths) > _MAX_NAMES else ""
    message = f"skills that cannot be used: {', '.join(paths[:_MAX_NAMES])}{more}"
    found = _new("skills", at_wall_ms, message)
    return replace(found, hint="`symphony skills check` shows the problems")


def of_pull_request(record: PullRequestRecord, at_wall_ms: int) -> Notification:
    """The notification of a pull request that only a person can go on with."""
    name = "the pull request" if record.pull is None else record.pull.url
    found = _new("pull_request", at_wall_ms, f"{name}: {record.message}", record.issue)
    command = f"symphony pr {shlex.quote(record.issue.identifier)}"
    return replace(found, hint=f"`{command}` shows it", code=record.code)


def of_broken_base(verification: Verification, at_wall_ms: int) -> Notification | None:
    """The notification of a base commit on which checks fail; `None` if no failure on it is known."""
    failing = [check.name for check in verification.checks if check.fails_on_base]
    if verification.base is None or not failing:
        return None
    more = f" and {len(failing) - _MAX_NAMES} more" if len(failing) > _MAX_NAMES else ""
    message = (
        f"checks fail on the base commit {verification.base[:12]}: {', '.join(failing[:_MAX_NAMES])}{more}"
    )
    found = _new("base_broken", at_wall_ms, message, subject=verification.base)
    return replace(
        found, hint="`symphony doctor --verify` runs them there; until they pass nothing is verified"
    )


def due_reminders(
    state: State, told: Mapping[str, int], *, remind_after_ms: int, now_ms: int, wall_ms: int
) -> Iterator[Notification]:
    """A reminder of each question whose last notification is `remind_after_ms` old.

    Args:
        state: the state of the scheduler.
        told: the wall-clock time of the last notification of each issue; by default the time of the block.
        remind_after_ms: the time between two reminders.
        now_ms: the present time on the scheduler's clock.
        wall_ms: the same time on the wall clock.
    """
    for issue_id, blocked in state.blocked.items():
        asked_ms = wall_ms - now_ms + blocked.blocked_ms
        last_ms = max(told.get(issue_id, 0), asked_ms)
        if awaits_answer(blocked) and wall_ms - last_ms >= remind_after_ms:
            yield replace(_of_block(blocked, wall_ms), reminder=True)


def is_current(notification: Notification, state: State, now_ms: int) -> bool:
    """Whether a waiting notification is still true; a question with an answer needs none."""
    issue_id = None if notification.issue is None else notification.issue.issue_id
    match notification.event:
        case "question" | "blocked" | "budget":
            return issue_id is None or issue_id in state.blocked
        case "ready":
            result = state.results.get(issue_id or "")
            return result is not None and result.status is ResultStatus.READY
        case "tracker_down":
            return circuit_state(state, now_ms) is not CircuitState.CLOSED
        case "agent_limited":
            return notification.subject in state.limited_agents
        case "daemon_down_soon":
            return state.drain is not Drain.NO
        case "skills" | "pull_request" | "base_broken" | "test":
            return True
        case _:
            assert_never(notification.event)


def _new(
    event: NotifyEvent,
    at_wall_ms: int,
    message: str,
    issue: Issue | None = None,
    *,
    subject: str | None = None,
) -> Notification:
    about = subject or "daemon" if issue is None else issue.id
    return Notification(
        id=f"{event}:{about}:{at_wall_ms}",
        event=event,
        at_wall_ms=at_wall_ms,
        message=message,
        subject=subject,
        issue=None
        if issue is None
        else Subject(
            issue_id=issue.id,
            identifier=issue.identifier,
            title=issue.title,
            state=issue.state,
            url=issue.url,
        ),
    )


def public(notification: Notification, redaction: Redaction) -> Notification:
    """The notification on single bounded lines, with secrets masked."""
    issue, hint = notification.issue, notification.hint
    if issue is not None:
        issue = replace(
            issue,
            identifier=redaction.line(issue.identifier, _MAX_TITLE),
            title=redaction.line(issue.title, _MAX_TITLE),
            state=redaction.line(issue.state, _MAX_TITLE),
            url=None if issue.url is None else redaction.text(issue.url),
        )
    return replace(
        notification,
        issue=issue,
        message=redaction.line(notification.message, _MAX_MESSAGE),
        hint=None if hint is None else redaction.line(hint, _MAX_MESSAGE),
    )


# --- a batch as text -------------------------------------------------------------------------------------

_ABOUT_THE_DAEMON: Final[Mapping[NotificationEvent, str]] = {
    "test": "a test of symphony notify",
    "budget": "the token budget of today is used up",
    "tracker_down": "the tracker fails",
    "agent_limited": "an agent is limited",
    "skills": "skills cannot be used",
    "base_broken": "checks fail on the base",
    "daemon_down_soon": "the daemon shuts down",
}


def headline(batch: Sequence[Notification]) -> str:
    """What happened, in one line without text of others: `12 issues wait for you; the tracker fails`."""
    counts = Counter(
        "ready" if each.event == "ready" else "waits" for each in batch if each.issue is not None
    )
    parts = []
    if count := counts["waits"]:
        parts.append(f"{count} issues wait for you" if count > 1 else "1 issue waits for you")
    if count := counts["ready"]:
        parts.append(f"{count} issues are ready for review" if count > 1 else "1 issue is ready for review")
    parts += [
        text
        for event, text in _ABOUT_THE_DAEMON.items()
        if any(each.event == event and each.issue is None for each in batch)
    ]
    return "; ".join(parts)


_VERBS: Final[Mapping[NotificationEvent, str]] = {
    "ready": "is ready for review",
    "question": "asks",
    "blocked": "is blocked",
    "budget": "has used its budget",
    "pull_request": "has a pull request that needs you",
}


def describe(notification: Notification) -> str:
    """One notification in one line, with text of agents and trackers: `SYM-7 (Fix it) asks: Which one?`."""
    issue = notification.issue
    if issue is None:
        return notification.message
    again = "still " if notification.reminder else ""
    verb = _VERBS[notification.event]
    return f"{issue.identifier} ({issue.title}) {again}{verb}: {notification.message}"


# --- quiet hours -----------------------------------------------------------------------------------------


def quiet_for(hours: str | None, now: datetime) -> timedelta:
    """How long the quiet hours, such as `22:00-07:00`, last from now on; zero outside. `now` is local."""
    if hours is None:
        return timedelta()
    begin, end = (_time_of_day(text) for text in hours.split("-"))
    time = timedelta(hours=now.hour, minutes=now.minute, seconds=now.second)
    day = timedelta(days=1)
    return (end - time) % day if (time - begin) % day < (end - begin) % day else timedelta()


def _time_of_day(text: str) -> timedelta:
    hour, minute = text.split(":")
    return timedelta(hours=int(hour), minutes=int(minute))
