"""Which agent an issue is given to, judged whenever a run starts (`agent.rules`).

The first rule that fits the issue names the agent, else it is the default. A conversation that its agent
can go on with keeps it, though it be the fallback. While the agent is limited its fallback takes over.
Where nobody is left the issue waits: a session that is known to fail is not started.
"""

from dataclasses import replace

from symphony.domain.failures import Category
from symphony.domain.issue import Issue, normalise_state
from symphony.scheduler.inputs import Resume
from symphony.scheduler.settings import Rule, SchedulerSettings
from symphony.scheduler.state import AgentChoice, State

__all__ = ["LIMITS", "choose", "is_limited", "limit_words", "plan", "thread_agent", "waits_until"]

LIMITS = frozenset({Category.AGENT_RATE_LIMITED, Category.AGENT_USAGE_LIMIT})
"""Ends of runs that say nothing about the issue, and something about every run of the agent."""

_WORDS = {Category.AGENT_RATE_LIMITED: "rate limited", Category.AGENT_USAGE_LIMIT: "out of credit"}


def is_limited(state: State, agent: str) -> bool:
    """Whether sessions of the agent would fail now, as far as anybody knows."""
    limited = state.limited.get(agent)
    return limited is not None and limited.until_ms is not None


def limit_words(state: State, agent: str) -> str:
    """What is the matter with a limited agent: `claude is out of credit`."""
    return f"{agent} is {_WORDS.get(state.limited[agent].failure.category, 'limited')}"


def _fits(rule: Rule, issue: Issue) -> bool:
    labels = {label.strip().lower() for label in issue.labels}
    return rule.label in {None, *labels} and rule.state in {None, normalise_state(issue.state)}


def _asked(settings: SchedulerSettings, issue: Issue) -> tuple[str, str | None, str]:
    """Who is asked for, by name; its fallback; and why."""
    for index, rule in enumerate(settings.rules):
        if _fits(rule, issue):
            told = (("label", rule.label), ("state", rule.state))
            why = " and ".join(f"{what} {value!r}" for what, value in told if value is not None)
            fallback = settings.fallback if rule.fallback is None else rule.fallback
            return rule.use, fallback if fallback != rule.use else None, f"agent.rules[{index}]: {why}"
    return settings.agent, settings.fallback, "the default (agent.kind)"


def choose(state: State, issue: Issue, thread_agent: str | None = None) -> AgentChoice:
    """The agent that a run of the issue would get now; `thread_agent` has a conversation to go on with.

    One that is limited is chosen only where nobody can take its place: then the issue waits for it.
    """
    name, fallback, why = _asked(state.settings, issue)
    chosen = AgentChoice(name=name, reason=why)
    if fallback is not None:
        if is_limited(state, name) and not is_limited(state, fallback):
            reason = f"{limit_words(state, name)}; it would be the agent by {why}"
            chosen = AgentChoice(name=fallback, reason=reason, instead_of=name)
        elif thread_agent == fallback and not is_limited(state, fallback):
            reason = f"it goes on with its conversation; {name} would be the agent by {why}"
            chosen = AgentChoice(name=fallback, reason=reason, instead_of=name)
    facts = state.settings.facts(chosen.name)
    return replace(chosen, kind=facts.kind, model=facts.model)


def waits_until(state: State, issue: Issue, thread_agent: str | None = None) -> int | None:
    """Until when nobody may take the issue, as whoever might is limited; null where somebody may."""
    if not is_limited(state, choose(state, issue, thread_agent).name):
        return None
    name, fallback, _ = _asked(state.settings, issue)
    held = (limited for agent, limited in state.limited.items() if agent in {name, fallback})
    return min(limited.until_ms for limited in held if limited.until_ms is not None)


def thread_agent(resume: Resume | None) -> str | None:
    """The agent of the conversation that an issue would go on with."""
    return resume.thread.agent if resume is not None and resume.thread is not None else None


def plan(state: State, issue: Issue, resume: Resume | None) -> tuple[AgentChoice, Resume | None]:
    """Who runs an issue now, and with what: the conversation of another agent is left behind.

    An answer of a person is not: it travels in the first prompt then.
    """
    chosen = choose(state, issue, thread_agent(resume))
    if resume is not None and thread_agent(resume) not in {None, chosen.name}:
        resume = replace(resume, thread=None)
    return chosen, resume
