"""The rules about who gets an issue: agents by rules, fallbacks with a reason, limits that end.

In words of their own, so that the scheduler's choice is not its own judge.
"""

from collections import Counter

from kit.simulator.books import Moment
from kit.simulator.rules import Broken, Rules
from symphony.domain import Category, Issue, normalise_state
from symphony.scheduler import MAX_AGENT_LIMIT_MS, RunEnded, SchedulerSettings, State, Timer, TimerKind

__all__ = ["RULES"]


RULES = Rules()
_invariant = RULES.invariant
_LIMITS = (Category.AGENT_RATE_LIMITED, Category.AGENT_USAGE_LIMIT, Category.AGENT_UNAVAILABLE)


def _asked_for(settings: SchedulerSettings, issue: Issue) -> tuple[str, str | None]:
    """Who shall have an issue, and who in its place."""
    for rule in settings.rules:
        if rule.label is not None and rule.label not in issue.labels:
            continue
        if rule.state is None or rule.state == normalise_state(issue.state):
            return rule.use, rule.fallback or settings.fallback
    return settings.agent, settings.fallback


def _limited(state: State, agent: str | None) -> bool:
    held = state.limited_agents.get(agent or "")
    return held is not None and held.until_ms is not None


def _tried(state: State, agent: str | None) -> bool:
    held = state.limited_agents.get(agent or "")
    return held is not None and held.probe in {run.run_id for run in state.running.values()}


@_invariant("agent-by-rules", "AG22")
def _agent_by_rules(moment: Moment) -> Broken | None:
    """A run is given to the agent that the first fitting rule asks for, or to its fallback."""
    for start in moment.starts:
        if start.agent not in _asked_for(moment.after.settings, start.issue):
            return Broken(f"given to {start.agent}, for whom nobody asked", start.issue.id)
    return None


@_invariant("fallback-has-reason", "AG22")
def _fallback_has_reason(moment: Moment) -> Broken | None:
    """A fallback gets a run only while the agent is limited or tried, or because it has the conversation."""
    for start in moment.starts:
        use, _ = _asked_for(moment.after.settings, start.issue)
        if start.agent == use or _limited(moment.after, use) or _tried(moment.after, use):
            continue
        thread = start.resume.thread if start.resume else None
        if thread is None or thread.agent != start.agent:
            return Broken(f"given to {start.agent}, and {use} is there", start.issue.id)
    return None


@_invariant("no-start-on-limited-agent", "AG13")
def _not_on_a_limited_agent(moment: Moment) -> Broken | None:
    """No run is given to an agent that is limited or in an outage; the first one after that is alone."""
    begun = Counter(start.agent for start in moment.starts)
    for start in moment.starts:
        if _limited(moment.after, start.agent):
            return Broken(f"given to {start.agent}, which is limited", start.issue.id)
        tried = _tried(moment.before, start.agent) and _tried(moment.after, start.agent)
        if tried or (_tried(moment.after, start.agent) and begun[start.agent] > 1):
            return Broken(f"given to {start.agent}, which another run tries", start.issue.id)
    return None


@_invariant("conversation-has-its-agent", "AG23")
def _conversation_has_its_agent(moment: Moment) -> Broken | None:
    """A run goes on only with a conversation of the agent that runs it."""
    for start in moment.starts:
        thread = start.resume.thread if start.resume else None
        if thread is not None and thread.agent != start.agent:
            words = f"{start.agent} shall go on with a conversation of {thread.agent}"
            return Broken(words, start.issue.id)
    return None


@_invariant("limits-are-known-and-end", "AG13")
def _limits_end(moment: Moment) -> Broken | None:
    """A run that ends at a limit or in an outage limits its agent: an hour at most, with a timer armed.

    One of several hosts may be the only one with a limit: then the host is in trouble.
    """
    fact, after = moment.fact, moment.after
    for name, held in after.limited_agents.items():
        if held.until_ms is None:
            continue
        if not moment.armed(Timer(TimerKind.LIMIT, name)):
            return Broken(f"{name} is limited without end")
        if held.until_ms - moment.now_ms > MAX_AGENT_LIMIT_MS:
            return Broken(f"{name} is limited for {held.until_ms - moment.now_ms} ms")
    if not isinstance(fact, RunEnded) or fact.outcome.failure is None:
        return None
    run = next((run for run in moment.before.running.values() if run.run_id == fact.run_id), None)
    if run is None or fact.outcome.failure.category not in _LIMITS:
        return None
    known = _limited(after, run.agent.name) or run.host in after.troubled_hosts
    return None if known else Broken("its limit is not known", run.issue.id)
