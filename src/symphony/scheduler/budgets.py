"""What an issue and a day may use up before a person is asked (`agent.budget`).

Tokens and turns are counted as the pump reports them. The tokens of an issue are judged at once, in
mid-turn; its turns, and the day, at the end of the turn and at each start.
"""

from dataclasses import replace

from symphony.domain.counts import added
from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.issue import Issue
from symphony.scheduler.inputs import RunReport, Spent
from symphony.scheduler.state import Running, Spender, State
from symphony.scheduler.work import Work

__all__ = ["MOST_REMEMBERED", "count", "day_used", "forget", "issue_used", "tokens_used", "used"]

MOST_REMEMBERED = 10_000
_NOTHING = Spent()


def count(work: Work, run: Running, report: RunReport) -> None:
    """Book what a run used since its last report; beyond the bound, issues of long ago are forgotten.

    Whose report uses up the day is told, as any agent's word counts for all issues.
    """
    tokens = max(report.total_tokens - run.report.total_tokens, 0)
    turns = max(report.turn_count - run.report.turn_count, 0)
    if not tokens and not turns:
        return
    spent = dict(work.state.spent)
    before = spent.pop(run.issue.id, _NOTHING)
    spent[run.issue.id] = Spent(tokens=added(before.tokens, tokens), turns=added(before.turns, turns))
    if len(spent) > MOST_REMEMBERED:
        del spent[next(iter(spent))]
    day_before, limit = work.state.day_tokens, work.state.settings.max_tokens_per_day
    day_after = added(day_before, tokens)
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


def forget(work: Work, issue_id: str) -> None:
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
    if limit is None or state.day_tokens < limit or issue.id in state.exempt:
        return None
    hint = f"wait for the next day (UTC), raise the budget, or run `symphony unblock {issue.identifier}`"
    what, spender = "the token budget of today", state.day_spender
    failure = _failure(Category.BUDGET_DAY, what, state.day_tokens, limit, "max_tokens_per_day", hint)
    if spender is None:
        return failure
    by = f"the last of it by {spender.issue} (agent {spender.agent}), whose run used {spender.tokens:,}"
    return replace(failure, message=f"{failure.message}; {by}")


def used(state: State, issue: Issue) -> Failure | None:
    """Why an issue may use up no more, or null."""
    return issue_used(state, issue) or day_used(state, issue)
