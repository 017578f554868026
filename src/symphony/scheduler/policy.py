"""Judgements on one issue: where it stands, whether it may start, in which order, after which wait.

The reason that `eligible` gives is the text of `explain`, of the log line, of the API and of the terminal:
there is no second wording anywhere.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC
from enum import StrEnum

from symphony.domain import Blame, Category, Failure, Issue, add_counts, is_routable, normalise_state
from symphony.scheduler.messages import (
    AssignmentRule,
    Outcome,
    Resume,
    ResumeReason,
    RunReport,
    SchedulerSettings,
    Spent,
    Timer,
    TimerKind,
)
from symphony.scheduler.state import AgentChoice, Drain, LimitedAgent, Retry, Running, Spender, State, Step

# What an issue and a day may use up before a person is asked (`agent.budget`).
#
# Tokens and turns are counted as the pump reports them. The tokens of an issue are judged at once, in mid-
# turn; its turns, and the day, at the end of the turn and at each start.


MOST_REMEMBERED = 10_000
_NOTHING = Spent()


def count(work: Step, run: Running, report: RunReport) -> None:
    """Book what a run used since its last report; beyond the bound, issues of long ago are forgotten.

    Whose report uses up the day is told, as any agent's word counts for all issues.
    """
    tokens = max(report.total_tokens - run.report.total_tokens, 0)
    turns = max(report.turn_count - run.report.turn_count, 0)
    if not tokens and not turns:
        return
    spent = dict(work.state.spent)
    before = spent.pop(run.issue.id, _NOTHING)
    spent[run.issue.id] = Spent(
        tokens=add_counts(before.tokens, tokens), turns=add_counts(before.turns, turns)
    )
    if len(spent) > MOST_REMEMBERED:
        del spent[next(iter(spent))]
    day_before, limit = work.state.day_tokens, work.state.settings.max_tokens_per_day
    day_after = add_counts(day_before, tokens)
    work.update(spent=spent, day_tokens=day_after)
    if limit is not None and day_before < limit <= day_after:
        spender = Spender(issue=run.issue.identifier, agent=run.agent.name, tokens=report.total_tokens)
        work.update(day_spender=spender)
        work.notify(
            "warning",
            "day_budget_used",
            run.issue,
            run_id=run.run_id,
            agent=spender.agent,
            tokens=spender.tokens,
            day_tokens=day_after,
            limit=limit,
        )


def forget(work: Step, issue_id: str) -> None:
    """Count an issue anew."""
    if issue_id in work.state.spent:
        work.update(spent={key: spent for key, spent in work.state.spent.items() if key != issue_id})


def _failure(category: Category, what: str, used: int, limit: int, key: str, hint: str) -> Failure:
    unit = "turns" if "turns" in key else "tokens"
    return Failure(
        category=category,
        blame=Blame.AGENT,
        message=f"{what} is used up: {used:,} of {limit:,} {unit} (agent.budget.{key})",
        retryable=False,
        hint=hint,
    )


def tokens_used(state: State, issue: Issue) -> Failure | None:
    """Why the tokens of an issue are used up, or null while some are left."""
    limit, spent = state.settings.max_tokens_per_issue, state.spent.get(issue.id, _NOTHING)
    if limit is None or spent.tokens < limit:
        return None
    what, hint = "the token budget of this issue", _raise_or_unblock(issue)
    return _failure(Category.BUDGET_ISSUE, what, spent.tokens, limit, "max_tokens_per_issue", hint)


def _turns_used(state: State, issue: Issue) -> Failure | None:
    limit, spent = state.settings.max_turns_per_issue, state.spent.get(issue.id, _NOTHING)
    if limit is None or spent.turns < limit:
        return None
    what, hint = "the turn budget of this issue", _raise_or_unblock(issue)
    return _failure(Category.BUDGET_ISSUE, what, spent.turns, limit, "max_turns_per_issue", hint)


def _raise_or_unblock(issue: Issue) -> str:
    return (
        f"run `symphony unblock {issue.identifier}`, raise the budget in WORKFLOW.md, or change the issue's "
        "state, labels, title or description"
    )


def issue_used(state: State, issue: Issue) -> Failure | None:
    """Why the budget of an issue is used up, or null while some is left."""
    return tokens_used(state, issue) or _turns_used(state, issue)


def day_used(state: State, issue: Issue) -> Failure | None:
    """Why the budget of the day is used up for an issue, or null."""
    limit = state.settings.max_tokens_per_day
    if limit is None or state.day_tokens < limit or issue.id in state.budget_waivers:
        return None
    hint = f"wait for the next day (UTC), raise the budget, or run `symphony unblock {issue.identifier}`"
    what, spender = "the token budget of today", state.day_spender
    failure = _failure(Category.BUDGET_DAY, what, state.day_tokens, limit, "max_tokens_per_day", hint)
    if spender is None:
        return failure
    by = f"the last of it by {spender.issue} (agent {spender.agent}), whose run used {spender.tokens:,}"
    return replace(failure, message=f"{failure.message}; {by}")


def budget_failure(state: State, issue: Issue) -> Failure | None:
    """Why an issue may use up no more, or null."""
    return issue_used(state, issue) or day_used(state, issue)


# Which agent an issue is given to, judged whenever a run starts (`agent.rules`).
#
# The first rule that fits the issue names the agent, else it is the default. A conversation that its agent
# can go on with keeps it, though it be the fallback. While the agent is limited its fallback takes over.
# Where nobody is left the issue waits: a session that is known to fail is not started.


LIMITS = frozenset({Category.AGENT_RATE_LIMITED, Category.AGENT_USAGE_LIMIT})
"""Ends of runs that say nothing about the issue, and something about every run of the agent."""

_WORDS = {Category.AGENT_RATE_LIMITED: "rate limited", Category.AGENT_USAGE_LIMIT: "out of credit"}


def is_limited(state: State, agent: str) -> bool:
    """Whether sessions of the agent would fail now, as far as anybody knows."""
    limited = state.limited_agents.get(agent)
    return limited is not None and limited.until_ms is not None


def limit_words(state: State, agent: str) -> str:
    """What is the matter with a limited agent: `claude is out of credit`."""
    return f"{agent} is {_WORDS.get(state.limited_agents[agent].failure.category, 'limited')}"


def _fits(rule: AssignmentRule, issue: Issue) -> bool:
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


def choose_agent(state: State, issue: Issue, thread_agent: str | None = None) -> AgentChoice:
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
    facts = state.settings.agent_info(chosen.name)
    return replace(chosen, kind=facts.kind, model=facts.model)


def agent_limited_until(state: State, issue: Issue, thread_agent: str | None = None) -> int | None:
    """Until when nobody may take the issue, as whoever might is limited; null where somebody may."""
    if not is_limited(state, choose_agent(state, issue, thread_agent).name):
        return None
    name, fallback, _ = _asked(state.settings, issue)
    held = (limited for agent, limited in state.limited_agents.items() if agent in {name, fallback})
    return min(limited.until_ms for limited in held if limited.until_ms is not None)


def thread_agent(resume: Resume | None) -> str | None:
    """The agent of the conversation that an issue would go on with."""
    return resume.thread.agent if resume is not None and resume.thread is not None else None


def plan_run(state: State, issue: Issue, resume: Resume | None) -> tuple[AgentChoice, Resume | None]:
    """Who runs an issue now, and with what: the conversation of another agent is left behind.

    An answer of a person is not: it travels in the first prompt then.
    """
    chosen = choose_agent(state, issue, thread_agent(resume))
    if resume is not None and thread_agent(resume) not in {None, chosen.name}:
        resume = replace(resume, thread=None)
    return chosen, resume


CONTINUATION_DELAY_MS = 1_000
_FIRST_BACKOFF_MS = 10_000
_MAX_EXPONENT = 10
_UNRANKED = 5
_RANKS = range(1, 5)


class TrackerStatus(StrEnum):
    """What an issue's present snapshot means for work on it (SC12)."""

    ACTIVE = "active"
    TERMINAL = "terminal"
    UNROUTABLE = "unroutable"
    INACTIVE = "inactive"
    MISSING = "missing"


class ReasonCode(StrEnum):
    """Why an issue does not start; stable codes of `waiting[]` in the API (DESIGN 11a)."""

    INCOMPLETE = "incomplete"
    TERMINAL = "terminal"
    INACTIVE = "inactive"
    NOT_DISPATCHABLE = "not_dispatchable"
    LABEL_MISSING = "label_missing"
    RUNNING = "running"
    RETRYING = "retrying"
    BLOCKED = "blocked"
    BLOCKER_RUNNING = "blocker_running"
    SAME_IDENTIFIER = "same_identifier"
    DRAINING = "draining"
    WORKFLOW_INVALID = "workflow_invalid"
    PAUSED = "paused"
    DAY_BUDGET = "day_budget"
    AGENT_LIMITED = "agent_limited"
    NO_SLOT = "no_slot"
    NO_STATE_SLOT = "no_state_slot"


@dataclass(frozen=True, slots=True)
class Eligible:
    """The issue may start now."""


@dataclass(frozen=True, slots=True)
class Ineligible:
    """The issue may not start now; `message` is for people."""

    code: ReasonCode
    message: str


def in_active_state(issue: Issue, settings: SchedulerSettings) -> bool:
    """Whether the state is active and not terminal: terminal beats active when a name is in both."""
    state = normalise_state(issue.state)
    return state in settings.active_states and state not in settings.terminal_states


def tracker_status(issue: Issue | None, settings: SchedulerSettings) -> TrackerStatus:
    """Where a refreshed issue stands, in the order of tests of SC12; null is one that is gone."""
    if issue is None:
        return TrackerStatus.MISSING
    if normalise_state(issue.state) in settings.terminal_states:
        return TrackerStatus.TERMINAL
    if not is_routable(issue, settings.required_labels):
        return TrackerStatus.UNROUTABLE
    return TrackerStatus.ACTIVE if in_active_state(issue, settings) else TrackerStatus.INACTIVE


def dispatch_order(issue: Issue) -> tuple[int, bool, float, str, str]:
    """Dispatch order: priority 1..4 then the rest, oldest first, identifier last (SC6, DM9).

    A date without zone counts as UTC, so that the order does not depend on the machine. The id settles what
    identifiers should: sets of ids are sorted by this key too, and have no order of their own.
    """
    rank = issue.priority if issue.priority in _RANKS else _UNRANKED
    created = issue.created_at
    if created is not None and created.tzinfo is None:
        created = created.replace(tzinfo=UTC)
    age = created.timestamp() if created else 0.0
    return (rank or _UNRANKED, created is None, age, issue.identifier, issue.id)


def backoff_ms(attempt: int, cap_ms: int) -> int:
    """Wait before failure attempt `attempt` >= 1: 10 s doubling up to the cap (RT2, RT3)."""
    exponent = min(max(attempt, 1) - 1, _MAX_EXPONENT)
    return int(min(_FIRST_BACKOFF_MS * 2**exponent, cap_ms))


def same_content(before: Issue, after: Issue) -> bool:
    """Whether nothing changed that would unblock an issue: state, labels, title, description (RT5)."""
    return (
        normalise_state(before.state) == normalise_state(after.state)
        and set(before.labels) == set(after.labels)
        and before.title == after.title
        and before.description == after.description
    )


_OUTAGES = frozenset(
    {
        Category.AGENT_RATE_LIMITED,
        Category.AGENT_USAGE_LIMIT,
        Category.AGENT_AUTH,
        Category.CODEX_NOT_FOUND,
        Category.AGENT_NOT_FOUND,
    }
)


def counts_as_no_progress(failure: Failure | None) -> bool:
    """Whether an attempt without progress speaks against the issue.

    An outage of the tracker, the host, the repository, the login or the model's quota does not: otherwise one
    bad hour at night would block every issue until somebody came to look. A bug of ours does, as it may
    repeat for ever and cost tokens each time, and so does a repository that is configured wrongly.
    """
    if failure is None or failure.category is Category.INTERNAL:
        return True
    if failure.category is Category.WORKSPACE_REPOSITORY:
        return failure.blame is Blame.CONFIG
    return failure.blame not in {Blame.TRACKER, Blame.HOST} and failure.category not in _OUTAGES


def attempt_numbers(entry: Running | Retry, settings: SchedulerSettings) -> tuple[int, int]:
    """Which attempt runs or comes next, as people count them, and which one is the last.

    The first is 1. After the last a person is asked, unless an attempt makes progress before; that, and one
    that an outage ends, moves the last. The `attempt` of the specification is another number:
    it is None for the first run, 1 again after every clean end, and a retry that finds no slot raises it.
    """
    number = entry.runs if isinstance(entry, Running) else entry.runs + 1
    left = settings.max_attempts_without_progress - entry.attempts_without_progress
    return number, number - 1 + max(left, 1)


def attempt_words(entry: Running | Retry, settings: SchedulerSettings) -> str:
    """The same for people: `3 of 5`."""
    number, last = attempt_numbers(entry, settings)
    return f"{number} of {last}"


def attempt_facts(entry: Running | Retry, settings: SchedulerSettings) -> dict[str, int | None]:
    """The same as fields of a log line or a document, with the number of the specification."""
    number, last = attempt_numbers(entry, settings)
    return {"attempt": entry.attempt, "attempt_number": number, "attempt_limit": last}


def given_up(retry: Retry, settings: SchedulerSettings) -> bool:
    """Whether `run --once` no longer waits for this retry: hopeless, or failed too often in a row."""
    return retry.non_retryable or retry.failures >= settings.max_attempts_without_progress


def slot_shortage(issue: Issue, state: State, *, picked: Counter[str] | None = None) -> Ineligible | None:
    """Why there is no slot for the issue, or null when there is one (SC7, SC8).

    Usage counts running entries by their current state; `picked` adds those about to start, by state.
    """
    picked = picked or Counter()
    limit = state.settings.max_concurrent_agents
    if len(state.running) + picked.total() >= limit:
        return Ineligible(ReasonCode.NO_SLOT, f"all {limit} agent slots are in use")
    own = normalise_state(issue.state)
    cap = state.settings.max_concurrent_by_state.get(own)
    if cap is not None:
        used = sum(normalise_state(run.issue.state) == own for run in state.running.values())
        if used + picked[own] >= cap:
            message = f"all {cap} agent slots for state {issue.state!r} are in use"
            return Ineligible(ReasonCode.NO_STATE_SLOT, message)
    return None


def retry_text(retry: Retry, settings: SchedulerSettings) -> str:
    """What a waiting claim waits for."""
    if retry.error is None and retry.resume is not None:
        answered = retry.resume.reason is ResumeReason.ANSWERED
        return "a person answered; it goes on in a moment" if answered else "it was interrupted and goes on"
    if retry.error is None:
        return "the last attempt ended well; is there more to do?"
    return f"waiting for attempt {attempt_words(retry, settings)} after: {retry.error}"


def _claimed(issue: Issue, state: State) -> Ineligible | None:
    if issue.id in state.running:
        return Ineligible(ReasonCode.RUNNING, "an agent is running")
    if retry := state.retrying.get(issue.id):
        return Ineligible(ReasonCode.RETRYING, retry_text(retry, state.settings))
    if blocked := state.blocked.get(issue.id):
        return Ineligible(ReasonCode.BLOCKED, f"waiting for a person: {blocked.failure.message}")
    return None


_REQUIRED = ("id", "identifier", "title", "state")


def _missing_labels(issue: Issue, required: Iterable[str]) -> str:
    missing = [repr(label) for label in required if not is_routable(issue, [label])]
    return f"required label{'s' if len(missing) > 1 else ''} missing: {', '.join(missing)}"


def unfit(issue: Issue, settings: SchedulerSettings) -> Ineligible | None:
    """Why the issue, as it stands at the tracker, is not to be worked on; `None` if it is."""
    empty = [name for name in _REQUIRED if not getattr(issue, name).strip()]
    if empty:
        return Ineligible(ReasonCode.INCOMPLETE, f"the tracker gave no {', '.join(empty)}")
    match tracker_status(issue, settings):
        case TrackerStatus.TERMINAL:
            return Ineligible(ReasonCode.TERMINAL, f"state {issue.state!r} is terminal")
        case TrackerStatus.UNROUTABLE if not issue.dispatchable:
            reason = issue.not_dispatchable_reason or "the tracker marks it as not dispatchable"
            return Ineligible(ReasonCode.NOT_DISPATCHABLE, reason)
        case TrackerStatus.UNROUTABLE:
            return Ineligible(ReasonCode.LABEL_MISSING, _missing_labels(issue, settings.required_labels))
        case TrackerStatus.INACTIVE:
            return Ineligible(ReasonCode.INACTIVE, f"state {issue.state!r} is not active")
        case _:
            return None


def _behind(issue: Issue, state: State) -> Ineligible | None:
    """A blocker may be over on the board while its run still delivers the work that this issue waits for."""
    for blocker in issue.blocked_by:
        if blocker.id in state.running:
            message = f"the run of {blocker.identifier or blocker.id} has not ended yet"
            return Ineligible(ReasonCode.BLOCKER_RUNNING, message)
    return None


def _twin(issue: Issue, state: State) -> Ineligible | None:
    """Two issues of one identifier, against the rule (DM4), would work in one directory at the same time."""
    for run in state.running.values():
        if run.issue.identifier == issue.identifier and run.issue.id != issue.id:
            message = f"another issue is called {issue.identifier} too (id {run.issue.id}), and is running"
            return Ineligible(ReasonCode.SAME_IDENTIFIER, message)
    return None


def _closed(state: State) -> Ineligible | None:
    if state.drain is not Drain.NO:
        return Ineligible(ReasonCode.DRAINING, "the daemon is shutting down")
    if state.config_error is not None:
        return Ineligible(ReasonCode.WORKFLOW_INVALID, f"the workflow is invalid: {state.config_error.line}")
    if state.paused:
        return Ineligible(ReasonCode.PAUSED, "an operator paused the daemon")
    return None


def _out_of_budget(issue: Issue, state: State) -> Ineligible | None:
    used = day_used(state, issue)
    return Ineligible(ReasonCode.DAY_BUDGET, used.message) if used else None


def _without_agent(issue: Issue, state: State) -> Ineligible | None:
    if not state.limited_agents:
        return None
    retry = state.retrying.get(issue.id)
    of_thread = thread_agent(retry.resume) if retry else None
    if agent_limited_until(state, issue, of_thread) is None:
        return None
    words = limit_words(state, choose_agent(state, issue, of_thread).name)
    return Ineligible(ReasonCode.AGENT_LIMITED, f"the agent {words}, and no other may take its place now")


def eligibility(
    issue: Issue, state: State, *, picked: Counter[str] | None = None, own_claim: bool = False
) -> Eligible | Ineligible:
    """Whether the issue may start now, or the first reason why not (SC5).

    `own_claim` ignores the issue's own retry entry, for the moment when that retry comes due (RT6).
    """
    return (
        unfit(issue, state.settings)
        or (None if own_claim else _claimed(issue, state))
        or _behind(issue, state)
        or _closed(state)
        or _out_of_budget(issue, state)
        or _without_agent(issue, state)
        or slot_shortage(issue, state, picked=picked)
        or _twin(issue, state)
        or Eligible()
    )


# Agents that are rate limited or out of credit: how long nobody is given to them.
#
# One run says it for all: what it met, every other session of that agent would meet. It waits as long as
# the agent told, else a minute (rate) or a quarter of an hour (credit), doubled for each time in a row up
# to an hour, after which one more try is worth its cost. A run of it that ends in any other way after a
# turn shows that it answers again. None of this survives the daemon: a new one looks for itself.


MAX_AGENT_LIMIT_MS = 3_600_000
_FIRST_WAIT_MS = {Category.AGENT_RATE_LIMITED: 60_000, Category.AGENT_USAGE_LIMIT: 900_000}


def learn(work: Step, run: Running, outcome: Outcome) -> None:
    """Take from the end of a run whether its agent is limited."""
    failure = outcome.failure
    if failure is not None and failure.category in LIMITS:
        _limit(work, run, failure)
    elif run.report.turn_count > 0 and not is_limited(work.state, run.agent.name):
        _forget(work, run.agent.name)


def _limit(work: Step, run: Running, failure: Failure) -> None:
    """Runs that began before the limit was known end for the same reason, which is no other time."""
    name = run.agent.name
    known = work.state.limited_agents.get(name)
    again = known is not None and known.until_ms is None
    times = 1 if known is None else known.times + int(again)
    until_ms = work.now_ms + agent_limit_wait_ms(failure, times)
    if known is not None and known.until_ms is not None:
        until_ms = max(until_ms, known.until_ms)
    work.update(
        limited_agents={
            **work.state.limited_agents,
            name: LimitedAgent(until_ms=until_ms, failure=failure, times=times),
        }
    )
    work.set_timer(Timer(TimerKind.LIMIT, name), until_ms)
    if known is None or again:
        delay_ms = until_ms - work.now_ms
        work.notify("warning", "agent_limited", agent=name, reason=failure.line, delay_ms=delay_ms)


def agent_limit_wait_ms(failure: Failure, times: int) -> int:
    """How long nobody is given to an agent that ended a run like this for the `times`-th time in a row."""
    doubled = 2 ** min(times - 1, _MAX_EXPONENT)
    own_ms = int(_FIRST_WAIT_MS[failure.category] * doubled)
    asked_ms = own_ms if failure.retry_after_ms is None else failure.retry_after_ms
    return min(max(asked_ms, 0), MAX_AGENT_LIMIT_MS)


def on_over(work: Step, name: str) -> None:
    """The time is over: issues are given to the agent again."""
    over = replace(work.state.limited_agents[name], until_ms=None)
    work.update(limited_agents={**work.state.limited_agents, name: over})
    work.notify("info", "agent_recovered", agent=name, reason="it is tried again")


def lift(work: Step, issue: Issue) -> None:
    """A person wants the issue tried: whoever it would be given to is asked, limited or not."""
    chosen = choose_agent(work.state, issue)
    for name in {chosen.name, chosen.instead_of or chosen.name}:
        if is_limited(work.state, name):
            work.clear_timer(Timer(TimerKind.LIMIT, name))
            on_over(work, name)


def _forget(work: Step, name: str) -> None:
    if name in work.state.limited_agents:
        work.update(
            limited_agents={key: held for key, held in work.state.limited_agents.items() if key != name}
        )


def hopeful(state: State) -> bool:
    """Whether `run --once` waits for an agent: it told of a limit that passes, and not too often in a row."""
    most = state.settings.max_attempts_without_progress
    return any(
        held.until_ms is not None and held.failure.retryable and held.times < most
        for held in state.limited_agents.values()
    )
