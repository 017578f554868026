"""Chooses the agent of an issue, and tracks agents that are rate limited, out of credit or in an outage.

The agent is chosen whenever a run starts. The first of `agent.rules` that matches the issue names it,
otherwise it is the default. A conversation stays with its agent, even if that agent is the fallback. While an
agent is limited, its fallback takes over. Without a fallback the issue waits, because its session would fail.

If one run ends at a limit, the whole agent is limited. With several hosts only that host is, until all hosts
report a limit. The agent then waits as long as it asked for. If it asked for nothing, it waits some seconds,
doubled each consecutive time up to a minute, or longer if its credit has been used up for long. After the
wait one run goes first. The limit is over once the model has answered that run; then the others follow.
Another limit within the next minute counts as the same limit, and its waits continue to grow. Limits are not
kept across restarts.
"""

from dataclasses import replace
from typing import Final

from symphony.domain import AgentChoice, Category, Failure, Issue
from symphony.scheduler.messages import Outcome, Resume, SchedulerSettings, Timer, TimerKind
from symphony.scheduler.state import LimitedAgent, RecoveredAgent, Running, State, Step

MAX_AGENT_LIMIT_MS: Final = 3_600_000
_FIRST_WAIT_MS: Final = 5_000
_LONGEST_WAIT_MS: Final = 60_000
_MAX_EXPONENT: Final = 10
_YOUNG_TIMES: Final = 15
_OLD_CREDIT_WAIT_MS: Final = 900_000
_LIMIT_TEXTS: Final = {
    Category.AGENT_RATE_LIMITED: "rate limited",
    Category.AGENT_USAGE_LIMIT: "out of credit",
    Category.AGENT_UNAVAILABLE: "without an answer of its model",
}

LIMIT_CATEGORIES: Final = frozenset(_LIMIT_TEXTS)
"""Failures that concern every run of the agent and say nothing about the issue."""

# --- choice ----------------------------------------------------------------------------------------------


def choose_agent(state: State, issue: Issue, thread_agent: str | None = None) -> AgentChoice:
    """The agent that a run of the issue would get now.

    A limited agent is chosen only if nothing can replace it; the issue then waits for it.

    Args:
        state: the state of the scheduler.
        issue: the issue to run.
        thread_agent: the agent of the conversation that the run would continue.
    """
    name, fallback, why = _assigned_agent(state.settings, issue)
    reason, instead_of = why, None
    if fallback is not None and not is_unavailable(state, fallback):
        if is_unavailable(state, name):
            reason = f"{limit_text(state, name)}; it would be the agent by {why}"
            name, instead_of = fallback, name
        elif thread_agent == fallback:
            reason = f"it continues its conversation; {name} would be the agent by {why}"
            name, instead_of = fallback, name
    info = state.settings.agent_info(name)
    return AgentChoice(name=name, kind=info.kind, model=info.model, reason=reason, instead_of=instead_of)


def plan_run(state: State, issue: Issue, resume: Resume | None) -> tuple[AgentChoice, Resume | None]:
    """The agent of the next run, and what the run continues.

    A conversation of another agent is dropped. A person's answer is not: the first prompt carries it.
    """
    owner = thread_agent(resume)
    chosen = choose_agent(state, issue, owner)
    if resume is not None and owner not in {None, chosen.name}:
        resume = replace(resume, thread=None, decisions={})
    return chosen, resume


def thread_agent(resume: Resume | None) -> str | None:
    """The agent of the conversation that an issue would continue."""
    return resume.thread.agent if resume is not None and resume.thread is not None else None


def _assigned_agent(settings: SchedulerSettings, issue: Issue) -> tuple[str, str | None, str]:
    """The agent by rules and default, its fallback, and the reason."""
    for index, rule in enumerate(settings.rules):
        if rule.matches(issue):
            fallback = settings.fallback if rule.fallback is None else rule.fallback
            return (
                rule.use,
                fallback if fallback != rule.use else None,
                f"agent.rules[{index}]: {rule.condition}",
            )
    return settings.agent, settings.fallback, "the default (agent.kind)"


# --- limits ----------------------------------------------------------------------------------------------


def is_limited(state: State, agent: str) -> bool:
    """Whether no session of the agent is started now."""
    limited = state.limited_agents.get(agent)
    return limited is not None and limited.until_ms is not None


def is_probed(state: State, agent: str) -> bool:
    """Whether one run is testing the agent after a limit.

    No other session starts before the model answers it.
    """
    return any(tries_agent(state, run) for run in state.running.values() if run.agent.name == agent)


def tries_agent(state: State, run: Running) -> bool:
    """Whether the run is the first one of its agent after a limit."""
    limited = state.limited_agents.get(run.agent.name)
    return limited is not None and limited.probe == run.run_id


def is_unavailable(state: State, agent: str) -> bool:
    """Whether the agent takes no issue now: it is limited, or one run tries it first."""
    return is_limited(state, agent) or is_probed(state, agent)


def limit_text(state: State, agent: str) -> str:
    """What limits an agent, for people: `claude is out of credit`."""
    return f"{agent} is {_LIMIT_TEXTS.get(state.limited_agents[agent].failure.category, 'limited')}"


def agent_limited_until(state: State, issue: Issue, thread_agent: str | None = None) -> int | None:
    """When the first agent that may take the issue is available, or `None` if one is available now."""
    limits = _limits(state, issue, thread_agent)
    return min((limited.until_ms for limited in limits if limited.until_ms is not None), default=None)


def limited_since(state: State, issue: Issue, thread_agent: str | None = None) -> int | None:
    """Since when no agent may take the issue, or `None` if one is available now."""
    return max((limited.since_ms for limited in _limits(state, issue, thread_agent)), default=None)


def _limits(state: State, issue: Issue, thread_agent: str | None) -> list[LimitedAgent]:
    """What limits the agents that may take the issue; empty if one is available now."""
    if not is_limited(state, choose_agent(state, issue, thread_agent).name):
        return []
    name, fallback, _ = _assigned_agent(state.settings, issue)
    limits = [limited for agent, limited in state.limited_agents.items() if agent in {name, fallback}]
    return [limited for limited in limits if limited.until_ms is not None]


def agent_limit_wait_ms(failure: Failure, times: int) -> int:
    """How long an agent waits after a limit ended its runs `times` times in a row."""
    if failure.retry_after_ms is not None:
        return min(max(failure.retry_after_ms, 0), MAX_AGENT_LIMIT_MS)
    if times > _YOUNG_TIMES and failure.category is Category.AGENT_USAGE_LIMIT:
        return _OLD_CREDIT_WAIT_MS
    return min(_FIRST_WAIT_MS * int(2 ** min(times - 1, _MAX_EXPONENT)), _LONGEST_WAIT_MS)


def on_run_started(step: Step, run: Running) -> None:
    """The first run after a limit tries the agent."""
    limited = step.state.limited_agents.get(run.agent.name)
    if limited is not None and limited.until_ms is None and not is_probed(step.state, run.agent.name):
        _update(step, run.agent.name, replace(limited, probe=run.run_id))


def on_answered(step: Step, run: Running) -> bool:
    """The model answered the run. Return whether this ends a limit or an outage of its agent."""
    limited = step.state.limited_agents.get(run.agent.name)
    if limited is None or limited.until_ms is not None:
        return False
    _forget(step, run.agent.name)
    return True


def on_run_ended(step: Step, run: Running, outcome: Outcome) -> None:
    """Conclude from the end of a run whether its agent is limited."""
    name, failure = run.agent.name, outcome.failure
    if failure is not None and failure.category in LIMIT_CATEGORIES:
        if _speaks_for_agent(step.state, run):
            _limit(step, name, failure)
    elif (
        run.report.facts.turn_count > 0
        and not is_limited(step.state, name)
        and name in step.state.limited_agents
    ):
        _forget(step, name)


def _update(step: Step, name: str, limited: LimitedAgent) -> None:
    step.update(limited_agents={**step.state.limited_agents, name: limited})


def _forget(step: Step, name: str) -> None:
    others = {key: limited for key, limited in step.state.limited_agents.items() if key != name}
    recovered = RecoveredAgent(limited=step.state.limited_agents[name], at_ms=step.now_ms)
    step.update(limited_agents=others, recovered_agents={**step.state.recovered_agents, name: recovered})
    step.notify("info", "agent_recovered", agent=name)


def _speaks_for_agent(state: State, run: Running) -> bool:
    """Whether a limit of the run holds for its agent on all hosts.

    With several hosts it does only if the last run on each other host also failed at a limit.
    """
    others = (state.troubled_hosts.get(host) for host in state.settings.hosts if host != run.host)
    return run.host is None or all(
        other is not None and other.failure.category in LIMIT_CATEGORIES for other in others
    )


def _limit(step: Step, name: str, failure: Failure) -> None:
    """Start or prolong the wait of an agent.

    Runs that began before the limit was known end for the same reason. They do not count as another time.
    """
    known = step.state.limited_agents.get(name) or _recently_limited(step, name)
    repeated = known is not None and known.until_ms is None
    times = 1 if known is None else known.times + int(repeated)
    until_ms = step.now_ms + agent_limit_wait_ms(failure, times)
    if known is not None and known.until_ms is not None:
        until_ms = max(until_ms, known.until_ms)
    since_ms = step.now_ms if known is None else known.since_ms
    _update(step, name, LimitedAgent(until_ms=until_ms, since_ms=since_ms, failure=failure, times=times))
    step.set_timer(Timer(TimerKind.LIMIT, name), until_ms)
    if known is None or repeated:
        level = "warning" if known is None else "info"
        delay_ms = until_ms - step.now_ms
        step.notify(level, "agent_limited", agent=name, reason=failure.line, delay_ms=delay_ms, times=times)


def _recently_limited(step: Step, name: str) -> LimitedAgent | None:
    """The limit that ended a moment ago, restored as one whose wait is over."""
    recovered = step.state.recovered_agents.get(name)
    if recovered is None or step.now_ms - recovered.at_ms >= _LONGEST_WAIT_MS:
        return None
    return replace(recovered.limited, until_ms=None)


def on_limit_over(step: Step, name: str) -> None:
    """Let the agent take an issue again."""
    _update(step, name, replace(step.state.limited_agents[name], until_ms=None, probe=None))
    step.notify("info", "agent_tried_again", agent=name)


def lift_limits(step: Step, issue: Issue) -> None:
    """End the waits of the agents that may take an issue, because a person wants it tried now."""
    chosen = choose_agent(step.state, issue)
    for name in {chosen.name, chosen.instead_of or chosen.name}:
        if is_limited(step.state, name):
            step.clear_timer(Timer(TimerKind.LIMIT, name))
            on_limit_over(step, name)
