"""A history that people can read: one line per input, with what the scheduler said to it."""

from collections.abc import Iterable, Iterator, Mapping

from symphony.domain.plain import one_line
from symphony.scheduler.commands import Command, Notify, RefreshIssues, SetTimer, StartRun
from symphony.scheduler.inputs import (
    AgentReported,
    Input,
    Outcome,
    Polled,
    Recovered,
    Refreshed,
    RunEnded,
    SettingsChanged,
    Timer,
    TimerFired,
)

__all__ = ["Told", "concerning", "line", "moment_text"]

Told = tuple[int, Input, tuple[Command, ...]]
_SHOWN_IDS = 6
_DAY_MS, _HOUR_MS, _MINUTE_MS = 86_400_000, 3_600_000, 60_000


def moment_text(now_ms: int) -> str:
    """A virtual moment, `12d 03:45:07.089`."""
    day, rest = divmod(now_ms, _DAY_MS)
    hour, rest = divmod(rest, _HOUR_MS)
    minute, rest = divmod(rest, _MINUTE_MS)
    return f"{day:3}d {hour:02}:{minute:02}:{rest // 1000:02}.{rest % 1000:03}"


def line(told: Told) -> str:
    """One input and what was said to it."""
    now_ms, fact, commands = told
    words = ", ".join(_command(command) for command in commands if not isinstance(command, Notify))
    return f"{moment_text(now_ms)}  {_fact(fact)}{' -> ' + words if words else ''}"


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


def _concerns(fact: Input, commands: Iterable[Command], issue_id: str, runs: set[str]) -> bool:
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


def _fact(fact: Input) -> str:
    match fact:
        case Polled() | Refreshed():
            shown = ", ".join(f"{issue.id} {issue.state!r}" for issue in fact.issues[:_SHOWN_IDS])
            words = f"{fact.request}: {one_line(shown)}{_more(len(fact.issues))}"
        case AgentReported():
            words = f"{fact.run_id} {fact.report.stage.value} signs={fact.report.signs}"
        case RunEnded():
            words = f"{fact.run_id} {_outcome(fact.outcome)}"
        case TimerFired():
            words = f"{_timer(fact.timer)} #{fact.token}"
        case Recovered():
            words = f"with {len(fact.workspaces)} workspaces"
        case SettingsChanged():
            words = f"slots={fact.settings.max_concurrent_agents} poll={fact.settings.poll_interval_ms}"
        case _:
            words = _plain(fact)
    return f"{type(fact).__name__} {words}".rstrip()


def _timer(timer: Timer) -> str:
    return f"{timer.kind.value} {timer.id}".rstrip()


def _outcome(outcome: Outcome) -> str:
    reason = f" ({one_line(outcome.failure.line)})" if outcome.failure else ""
    return f"{outcome.kind.value}{reason} progress={outcome.progress}"


def _command(command: Command) -> str:
    name = type(command).__name__
    match command:
        case StartRun():
            return f"{name} {command.run_id} {command.issue.identifier} attempt={command.attempt}"
        case SetTimer():
            return f"{name} {_timer(command.timer)} #{command.token} at {moment_text(command.due_ms).strip()}"
        case RefreshIssues():
            ids = sorted(command.ids)
            return f"{name} {command.request}: {' '.join(ids[:_SHOWN_IDS])}{_more(len(ids))}"
        case _:
            return f"{name} {_plain(command)}".rstrip()


def _plain(value: object) -> str:
    """The short fields of a fact or command: numbers, names and failures."""
    found = []
    names: Mapping[str, object] = getattr(type(value), "__dataclass_fields__", {})
    for name in names:
        field = getattr(value, name)
        if isinstance(field, str | int):
            found.append(f"{name}={one_line(str(field), 60)}")
        elif hasattr(field, "line"):
            found.append(one_line(str(field.line), 80))
    return " ".join(found)


def _more(count: int) -> str:
    return f" and {count - _SHOWN_IDS} more" if count > _SHOWN_IDS else ""
