"""Budgets of tokens and turns, per issue and per day (`agent.budget`).

The tokens of an issue are checked with every report, even in the middle of a turn, because the rest of a turn
may cost any number. Its turns, and the tokens of the day, are checked at the end of a turn and at each start.

If the tokens of an issue are limited, so are its silent turns, in which its agent reports no tokens.
"""

import shlex
from dataclasses import replace
from typing import Final

from symphony.domain import Blame, Category, Failure, Issue, Spent, add_counts
from symphony.scheduler.messages import RunReport
from symphony.scheduler.state import BudgetSpender, Running, State, Step

MAX_ISSUES: Final = 10_000
"""How many issues are counted at the same time; beyond that the oldest counts are forgotten."""

MAX_SILENT_TURNS: Final = 100
"""How many turns without any reported tokens an issue gets under `max_tokens_per_issue`, in all attempts."""

_UNUSED = Spent()


def count_usage(step: Step, run: Running, report: RunReport) -> None:
    """Count what a run used since its last report, and warn when the daily budget is used up."""
    facts, known = report.facts, run.report.facts
    day_cost = step.state.day_cost.plus(facts.above(known))
    if day_cost != step.state.day_cost:
        step.update(day_cost=day_cost)
    tokens = max(facts.tokens.total_tokens - known.tokens.total_tokens, 0)
    turns = max(facts.turn_count - known.turn_count, 0)
    if not tokens and not turns:
        return
    spent = dict(step.state.spent)
    before = spent.pop(run.issue.id, _UNUSED)
    spent[run.issue.id] = Spent(
        tokens=add_counts(before.tokens, tokens), turns=add_counts(before.turns, turns)
    )
    silent = dict(step.state.silent_turns)
    ended_silence = reports_tokens(run, report) and run.reported_turn < facts.turn_count
    silent[run.issue.id] = max(silent.pop(run.issue.id, 0) + turns - ended_silence, 0)
    for counts in (spent, silent):
        if len(counts) > MAX_ISSUES:
            del counts[next(iter(counts))]
    day_before, limit = step.state.day_tokens, step.state.settings.budget.max_tokens_per_day
    day_after = add_counts(day_before, tokens)
    step.update(spent=spent, silent_turns=silent, day_tokens=day_after)
    if limit is not None and day_before < limit <= day_after:
        spender = BudgetSpender(
            issue=run.issue.identifier, agent=run.agent.name, tokens=report.facts.tokens.total_tokens
        )
        step.update(day_spender=spender)
        step.notify(
            "warning",
            "day_budget_used",
            run.issue,
            run_id=run.run_id,
            agent=spender.agent,
            tokens=spender.tokens,
            day_tokens=day_after,
            limit=limit,
        )


def reports_tokens(run: Running, report: RunReport) -> bool:
    """Whether a report has more tokens than the one before."""
    return report.facts.tokens.total_tokens > run.report.facts.tokens.total_tokens


def tell_silence(step: Step, run: Running) -> None:
    """Warn once if the token limit of an issue has no effect because its agent reports no tokens."""
    is_limited, is_told = step.state.settings.budget.max_tokens_per_issue is not None, step.state.silence_told
    if is_limited and run.issue.id not in is_told and _silent_turns(step.state, run.issue):
        step.update(silence_told=step.remember(is_told, run.issue.id))
        step.notify(
            "warning",
            "agent_reports_no_tokens",
            run.issue,
            run_id=run.run_id,
            agent=run.agent.name,
            max_turns=MAX_SILENT_TURNS,
        )


def _silent_turns(state: State, issue: Issue) -> int:
    """The silent turns of an issue, including those before a restart if no token was ever reported."""
    spent = state.spent.get(issue.id, _UNUSED)
    return state.silent_turns.get(issue.id, 0) if spent.tokens else spent.turns


def reset_usage(step: Step, issue_id: str) -> None:
    """Start counting an issue from zero."""
    if issue_id in step.state.spent:
        without = {
            name: {key: count for key, count in getattr(step.state, name).items() if key != issue_id}
            for name in ("spent", "silent_turns")
        }
        step.update(**without, silence_told=step.state.silence_told - {issue_id})


def token_budget_failure(state: State, issue: Issue) -> Failure | None:
    """Why an issue may use no more tokens, or `None`."""
    limit, used = state.settings.budget.max_tokens_per_issue, state.spent.get(issue.id, _UNUSED).tokens
    return None if limit is None or used < limit else _issue_failure(issue, "token", used, limit)


def issue_budget_failure(state: State, issue: Issue) -> Failure | None:
    """Why the budget of an issue is used up, or `None`."""
    if failure := token_budget_failure(state, issue):
        return failure
    limit, used = state.settings.budget.max_turns_per_issue, state.spent.get(issue.id, _UNUSED).turns
    if limit is not None and used >= limit:
        return _issue_failure(issue, "turn", used, limit)
    silent = _silent_turns(state, issue)
    if state.settings.budget.max_tokens_per_issue is None or silent < MAX_SILENT_TURNS:
        return None
    message = (
        f"its agent reported no tokens in {silent:,} turns, and at most {MAX_SILENT_TURNS:,} such turns are "
        "allowed under agent.budget.max_tokens_per_issue"
    )
    return replace(_issue_failure(issue, "turn", silent, MAX_SILENT_TURNS), message=message)


def day_budget_failure(state: State, issue: Issue) -> Failure | None:
    """Why the budget of the day stops an issue, or `None`."""
    limit = state.settings.budget.max_tokens_per_day
    if limit is None or state.day_tokens < limit or issue.id in state.budget_waivers:
        return None
    message = f"the token budget of today is used up: {state.day_tokens:,} of {limit:,} tokens"
    message += " (agent.budget.max_tokens_per_day)"
    if by := state.day_spender:
        message += f"; the last of it by {by.issue} (agent {by.agent}), whose run used {by.tokens:,}"
    return Failure(
        category=Category.BUDGET_DAY,
        blame=Blame.AGENT,
        message=message,
        retryable=False,
        hint=f"wait for the next day (UTC), raise the budget, or run `{_unblock(issue)}`",
    )


def budget_failure(state: State, issue: Issue) -> Failure | None:
    """Why an issue may use no more, or `None`."""
    return issue_budget_failure(state, issue) or day_budget_failure(state, issue)


def _issue_failure(issue: Issue, unit: str, used: int, limit: int) -> Failure:
    key = f"agent.budget.max_{unit}s_per_issue"
    return Failure(
        category=Category.BUDGET_ISSUE,
        blame=Blame.AGENT,
        message=f"the {unit} budget of this issue is used up: {used:,} of {limit:,} {unit}s ({key})",
        retryable=False,
        hint=(
            f"run `{_unblock(issue)}`, raise the budget in WORKFLOW.md, or change the "
            "issue's state, labels, title or description"
        ),
    )


def _unblock(issue: Issue) -> str:
    """The command that counts the budget of an issue from zero."""
    return f"symphony unblock {shlex.quote(issue.identifier)}"
