"""Agents that are rate limited or out of credit: how long nobody is given to them.

One run says it for all: what it met, every other session of that agent would meet. It waits as long as the
agent told, else a minute (rate) or a quarter of an hour (credit), doubled for each time in a row up to an
hour, after which one more try is worth its cost. A run of it that ends in any other way after a turn shows
that it answers again. None of this survives the daemon: a new one looks for itself.
"""

from dataclasses import replace

from symphony.domain.failures import Category, Failure
from symphony.domain.issue import Issue
from symphony.scheduler import choice
from symphony.scheduler.inputs import Outcome, Timer, TimerKind
from symphony.scheduler.state import Limited, Running, State
from symphony.scheduler.work import Work

__all__ = ["LONGEST_LIMIT_MS", "hopeful", "learn", "lift", "on_over"]

LONGEST_LIMIT_MS = 3_600_000
_FIRST_WAIT_MS = {Category.AGENT_RATE_LIMITED: 60_000, Category.AGENT_USAGE_LIMIT: 900_000}
_MAX_EXPONENT = 10


def learn(work: Work, run: Running, outcome: Outcome) -> None:
    """Take from the end of a run whether its agent is limited."""
    failure = outcome.failure
    if failure is not None and failure.category in choice.LIMITS:
        _limit(work, run, failure)
    elif run.report.turn_count > 0 and not choice.is_limited(work.state, run.agent.name):
        _forget(work, run.agent.name)


def _limit(work: Work, run: Running, failure: Failure) -> None:
    """Runs that began before the limit was known end for the same reason, which is no other time."""
    name = run.agent.name
    known = work.state.limited.get(name)
    again = known is not None and known.until_ms is None
    times = 1 if known is None else known.times + int(again)
    until_ms = work.now_ms + wait_ms(failure, times)
    if known is not None and known.until_ms is not None:
        until_ms = max(until_ms, known.until_ms)
    work.update(
        limited={**work.state.limited, name: Limited(until_ms=until_ms, failure=failure, times=times)}
    )
    work.set_timer(Timer(TimerKind.LIMIT, name), until_ms)
    if known is None or again:
        delay_ms = until_ms - work.now_ms
        work.notify("warning", "agent_limited", agent=name, reason=failure.line, delay_ms=delay_ms)


def wait_ms(failure: Failure, times: int) -> int:
    """How long nobody is given to an agent that ended a run like this for the `times`-th time in a row."""
    doubled = 2 ** min(times - 1, _MAX_EXPONENT)
    own_ms = int(_FIRST_WAIT_MS[failure.category] * doubled)
    asked_ms = own_ms if failure.retry_after_ms is None else failure.retry_after_ms
    return min(max(asked_ms, 0), LONGEST_LIMIT_MS)


def on_over(work: Work, name: str) -> None:
    """The time is over: issues are given to the agent again."""
    over = replace(work.state.limited[name], until_ms=None)
    work.update(limited={**work.state.limited, name: over})
    work.notify("info", "agent_recovered", agent=name, reason="it is tried again")


def lift(work: Work, issue: Issue) -> None:
    """A person wants the issue tried: whoever it would be given to is asked, limited or not."""
    chosen = choice.choose(work.state, issue)
    for name in {chosen.name, chosen.instead_of or chosen.name}:
        if choice.is_limited(work.state, name):
            work.clear_timer(Timer(TimerKind.LIMIT, name))
            on_over(work, name)


def _forget(work: Work, name: str) -> None:
    if name in work.state.limited:
        work.update(limited={key: held for key, held in work.state.limited.items() if key != name})


def hopeful(state: State) -> bool:
    """Whether `run --once` waits for an agent: it told of a limit that passes, and not too often in a row."""
    most = state.settings.max_attempts_without_progress
    return any(
        held.until_ms is not None and held.failure.retryable and held.times < most
        for held in state.limited.values()
    )
