"""The rules about what lasts: over restarts, deaths and the loss of the journal.

A daemon that starts is compared with what its predecessor had written when it ended: that much must come
back, as it was, and nothing else. `AGENT`, `COMMENT`, `TOLD` and `FINISHED` are judged by the world.
"""

from collections.abc import Mapping

from kit.simulator.books import Left, Moment
from kit.simulator.rules import Broken, Rules
from symphony.domain import Spent
from symphony.scheduler import (
    AgentReported,
    AnswersRead,
    Blocked,
    ContinueRun,
    Recovered,
    Retry,
    Running,
    RunStage,
    StartRun,
    State,
    StopReason,
    thread_of,
)

__all__ = ["RULES"]


RULES = Rules()
_invariant = RULES.invariant
_NOTHING = Spent()


def _left(moment: Moment) -> Left | None:
    """What the daemon that has just been told of its predecessor could know; null at any other moment."""
    if not isinstance(moment.fact, Recovered) or not moment.books.remembers:
        return None
    return moment.books.left


# --- restarts --------------------------------------------------------------------------------------------


@_invariant("claims-survive", "RT9, FL1")
def _claims_survive(moment: Moment) -> Broken | None:
    """What was claimed is claimed after a restart, and nothing else; what ran is due at once and goes on.

    It has the number of its attempt and its conversation. What an operator was stopping is blocked. A lost
    journal leaves no claim.
    """
    if not isinstance(moment.fact, Recovered) or not moment.books.remembers:
        return None
    left, after = moment.books.left, moment.after
    was = _claims(left.state) if left else {}
    now = _claims(after)
    if strange := now.keys() - was.keys():
        return Broken("claimed by nobody before the restart", min(strange))
    if lost := was.keys() - now.keys():
        return Broken("its claim was lost", min(lost))
    for key, run in left.state.running.items() if left else ():
        if run.stopping is StopReason.OPERATOR:
            if key not in after.blocked:
                return Broken("an operator was stopping it, and it is not blocked", key)
        elif words := _not_taken_up(run, after.retrying.get(key), moment.now_ms):
            return Broken(words, key)
    return None


def _claims(state: State) -> dict[str, object]:
    return {**state.running, **state.retrying, **state.blocked}


def _not_taken_up(run: Running, retry: Retry | None, now_ms: int) -> str | None:
    if retry is None or retry.due_ms != now_ms:
        return "it ran, and is not due"
    if retry.attempt != (run.attempt or 1):
        return f"it ran as attempt {run.attempt}, and goes on as {retry.attempt}"
    wanted, found = thread_of(run), retry.resume.thread if retry.resume else None
    return None if found == wanted else f"it goes on with {found} instead of {wanted}"


@_invariant("retries-survive", "RT9")
def _retries_survive(moment: Moment) -> Broken | None:
    """A retry keeps its number and its moment over a restart, whatever the wall clock was set to."""
    if (left := _left(moment)) is None:
        return None
    longest_ms = moment.now_ms + left.max_wait_ms
    for key, retry in left.state.retrying.items():
        found = moment.after.retrying.get(key)
        if (
            found is None
            or found.attempt != retry.attempt
            or found.attempts_without_progress != retry.attempts_without_progress
        ):
            return Broken(f"attempt {retry.attempt} was waited for", key)
        due_ms = min(max(retry.due_ms, moment.now_ms), longest_ms)
        if found.due_ms != due_ms and not left.clock_set:
            return Broken(f"due {found.due_ms - due_ms} ms later than it was", key)
        if not moment.now_ms <= found.due_ms <= longest_ms:
            return Broken("due at an impossible time", key)
    return None


@_invariant("blocks-survive", "RT9, SM7")
def _blocks_survive(moment: Moment) -> Broken | None:
    """What was blocked is blocked after a restart, with its reason and question."""
    if (left := _left(moment)) is None:
        return None
    for key, blocked in left.state.blocked.items():
        found = moment.after.blocked.get(key)
        if found is None or _reason(found) != _reason(blocked):
            return Broken("it was blocked, and is not as it was", key)
    return None


def _reason(blocked: Blocked) -> tuple[object, ...]:
    return blocked.failure, blocked.question, blocked.attempt, blocked.resume


@_invariant("pause-survives", "DESIGN 11a")
def _pause_survives(moment: Moment) -> Broken | None:
    """A paused daemon is paused after a restart, and nothing is started while it is."""
    if moment.starts and moment.after.paused:
        return Broken("started though the daemon is paused", moment.starts[0].issue.id)
    if (left := _left(moment)) is not None and left.state.paused != moment.after.paused:
        return Broken("paused and not, over a restart")
    return None


# --- budgets ---------------------------------------------------------------------------------------------


@_invariant("budgets-survive", "RT5")
def _budgets_survive(moment: Moment) -> Broken | None:
    """What an issue and a day have used up is known after a restart."""
    if (left := _left(moment)) is None:
        return None
    was, after = left.state, moment.after
    if wrong := _other_spent(was.spent, after.spent):
        return Broken("what it has used up was forgotten", wrong)
    same_day = was.day == after.day
    if same_day and (was.day_tokens, was.budget_waivers) != (after.day_tokens, after.budget_waivers):
        return Broken(f"today used {was.day_tokens} tokens before the restart, {after.day_tokens} after it")
    return None


def _other_spent(was: Mapping[str, Spent], now: Mapping[str, Spent]) -> str | None:
    keys = sorted(was.keys() | now.keys())
    return next((key for key in keys if was.get(key, _NOTHING) != now.get(key, _NOTHING)), None)


@_invariant("budget-holds", "RT5")
def _budget_holds(moment: Moment) -> Broken | None:
    """No run and no turn begins once a budget is used up, and a turn that uses up its issue's is stopped."""
    for command in moment.commands:
        if isinstance(command, StartRun | ContinueRun) and _used_up(moment.after, command.issue.id):
            return Broken("it goes on without budget", command.issue.id)
    fact = moment.fact
    if not isinstance(fact, AgentReported) or fact.report.stage is not RunStage.STREAMING_TURN:
        return None
    key = moment.live.get(fact.run_id, "")
    run, limit = moment.after.running.get(key), moment.after.settings.budget.max_tokens_per_issue
    if run is None or limit is None or run.awaiting_refresh or run.finishing or run.stopping:
        return None
    over = moment.after.spent.get(key, _NOTHING).tokens >= limit
    return Broken("its turn goes on without budget", key) if over else None


def _used_up(state: State, key: str) -> bool:
    settings, spent = state.settings, state.spent.get(key, _NOTHING)
    tokens, turns, day = (
        settings.budget.max_tokens_per_issue,
        settings.budget.max_turns_per_issue,
        settings.budget.max_tokens_per_day,
    )
    if (tokens is not None and spent.tokens >= tokens) or (turns is not None and spent.turns >= turns):
        return True
    return day is not None and state.day_tokens >= day and key not in state.budget_waivers


@_invariant("tokens-once", "TK4")
def _tokens_once(moment: Moment) -> Broken | None:
    """No token is counted twice: of an issue never more than its agents have used, whatever went on."""
    books = moment.books
    if books.tokens is None or not isinstance(moment.fact, AgentReported):
        return None
    key = moment.live.get(moment.fact.run_id, "")
    counted, used = books.counted.get(key, 0), books.tokens.get(key, 0)
    return Broken(f"{counted} tokens counted, {used} used", key) if counted > used else None


# --- words of people -------------------------------------------------------------------------------------


@_invariant("answers-once", "SM7")
def _answers_once(moment: Moment) -> Broken | None:
    """A comment that answers an open question is taken, and never as the answer to a second one."""
    fact = moment.fact
    if not isinstance(fact, AnswersRead) or not fact.answers:
        return None
    key, was = fact.issue_id, moment.before.blocked.get(fact.issue_id)
    asked = (
        was is not None
        and was.answer_check.in_progress
        and was.unblock_reason is None  # an operator may have answered meanwhile
        and (was.run_id or "") == fact.question
    )
    if asked and moment.after.blocked.get(key) is not None:
        return Broken("a person's comment was not taken", key)
    if any(len(moment.books.taken.get(remark.id, ())) > 1 for remark in fact.answers):
        return Broken("a person's comment was taken twice", key)
    return None


@_invariant("answers-arrive", "SM7")
def _answers_arrive(moment: Moment) -> Broken | None:
    """An answer goes with every run of its issue until a turn began with it, over restarts too."""
    for start in moment.starts:
        text = moment.books.answers.get(start.issue.id)
        if text is not None and (start.resume is None or start.resume.answer != text):
            return Broken("a person's answer was dropped", start.issue.id)
    return None
