"""What an operator may ask for, judged and carried out (DESIGN 11a).

`refusal` says in advance whether a verb fits the present state, with a stable code. The machine judges
again when the verb arrives, as the state may have changed meanwhile. A verb about the daemon never fails for
being given twice: where the daemon is `already` as it asks for, the verb changes nothing.

    stop      a run ends in mid-turn, a waiting retry is given up; the issue is blocked for a person
    retry     a waiting retry comes due, a blocked issue goes on with its conversation; budgets stay,
              and its agent is asked again even if it is limited
    unblock   a blocked issue goes on and its budget is counted anew; that of today does not hold for it
    answer    the answer goes into the same conversation where there is one, else into the next first prompt
    pause     nothing is started; what runs goes on, further turns included
    resume    the end of a pause
    drain     turns come to their end however long they take, nothing is started, then the daemon ends
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from symphony.domain import Category, Issue
from symphony.scheduler import blocks, policy, polling, runs
from symphony.scheduler.messages import (
    OperatorAction,
    OperatorAsked,
    ResultStatus,
    ResumeReason,
    SchedulerSettings,
    StopReason,
)
from symphony.scheduler.policy import ReasonCode
from symphony.scheduler.state import Blocked, ClaimEntry, Drain, State, Step

ISSUE_VERBS = frozenset(
    {OperatorAction.STOP, OperatorAction.RETRY, OperatorAction.UNBLOCK, OperatorAction.ANSWER}
)
"""The verbs that are about one issue; the others are about the daemon."""

_INTERRUPTIONS = frozenset({Category.BUDGET_ISSUE, Category.BUDGET_DAY, Category.STOPPED_BY_OPERATOR})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a verb does not fit; `code` is stable, `message` and `hint` are for people."""

    code: str
    message: str
    hint: str | None = None


def awaits_answer(blocked: Blocked) -> bool:
    """Whether the agent waits for words of a person."""
    return blocks.awaits_answer(blocked.failure, blocked.question)


def already_done(state: State, verb: OperatorAction) -> bool:
    """Whether the daemon is as the verb asks for, so that the verb changes nothing."""
    if verb is OperatorAction.PAUSE:
        return state.paused
    if verb is OperatorAction.RESUME:
        return not state.paused
    return verb is OperatorAction.DRAIN and state.drain is not Drain.NO


def refusal(
    state: State, verb: OperatorAction, issue_id: str | None = None, text: str | None = None
) -> Refusal | None:
    """Why the verb cannot be carried out now, or null when it can."""
    if verb in ISSUE_VERBS:
        return _out_of_hand(state, issue_id or "") or _REFUSALS[verb](state, issue_id or "", text)
    return None


def _out_of_hand(state: State, issue_id: str) -> Refusal | None:
    """Why nothing can be done about an issue that is not in an active state any more."""
    result = state.results.get(issue_id)
    if result is None or result.status is ResultStatus.OPEN:
        return None
    issue = result.issue
    if result.status is ResultStatus.GONE:
        message, hint = f"the tracker does not find {issue.identifier} any more", None
    else:
        message, hint = not_active_text(issue, state.settings)
    return Refusal(code="not_active", message=message, hint=hint)


def not_active_text(issue: Issue, settings: SchedulerSettings) -> tuple[str, str]:
    """What is to be said of an issue that nobody is to work on as it stands, and what to do about it."""
    unfit = policy.unfit(issue, settings)
    if unfit is None or unfit.code in {ReasonCode.INACTIVE, ReasonCode.TERMINAL}:
        message = f"{issue.identifier} is in {issue.state}, which is no active state"
        return message, f"move it to {settings.on_return or 'an active state'} to have it worked on"
    return f"{issue.identifier} is not to be worked on: {unfit.message}", "settle that in the tracker"


def _refuse_stop(state: State, issue_id: str, _text: str | None) -> Refusal | None:
    run = state.running.get(issue_id)
    if run is not None and run.stopping is not None:
        return Refusal(code="not_running", message=f"the run is being stopped already: {run.stopping.value}")
    if run is not None or issue_id in state.retrying:
        return None
    if issue_id in state.blocked:
        return Refusal(code="not_running", message="nothing runs: the issue is blocked already")
    hint = "move it to a state that is not active to keep it from being started"
    return Refusal(code="not_running", message="nothing runs for this issue", hint=hint)


def _refuse_retry(state: State, issue_id: str, _text: str | None) -> Refusal | None:
    if issue_id in state.running:
        return Refusal(code="running", message="an agent is running")
    held = state.retrying.get(issue_id) or state.blocked.get(issue_id)
    if held is None:
        hint = "`symphony explain` says what the issue waits for"
        return Refusal(
            code="not_waiting", message="the issue is neither blocked nor being retried", hint=hint
        )
    if failure := policy.budget_failure(state, held.issue):
        hint = f"`symphony unblock {held.issue.identifier}` counts its budget anew"
        return Refusal(code="budget_used", message=failure.message, hint=hint)
    return None


def _refuse_unblock(state: State, issue_id: str, _text: str | None) -> Refusal | None:
    if issue_id in state.blocked:
        return None
    return Refusal(code="not_blocked", message="the issue is not blocked")


def _refuse_answer(state: State, issue_id: str, text: str | None) -> Refusal | None:
    blocked = state.blocked.get(issue_id)
    if blocked is None or not awaits_answer(blocked):
        return Refusal(code="no_question", message="the issue waits for no answer")
    if not (text or "").strip():
        return Refusal(code="empty_answer", message="the answer is empty")
    return None


_REFUSALS: Mapping[OperatorAction, Callable[[State, str, str | None], Refusal | None]] = {
    OperatorAction.STOP: _refuse_stop,
    OperatorAction.RETRY: _refuse_retry,
    OperatorAction.UNBLOCK: _refuse_unblock,
    OperatorAction.ANSWER: _refuse_answer,
}


# --- carried out -----------------------------------------------------------------------------------------


def act(work: Step, fact: OperatorAsked) -> None:
    """Carry a verb out, or say why not and change nothing."""
    issue_id = fact.issue_id or ""
    claim = _claim(work.state, issue_id)
    issue = claim.issue if claim else None
    if refused := refusal(work.state, fact.action, issue_id, fact.text):
        work.notify("warning", "operator_refused", issue, verb=fact.action.value, reason=refused.message)
        return
    work.notify("info", "operator_asked", issue, verb=fact.action.value)
    if already_done(work.state, fact.action):
        return
    _ACTS[fact.action](work, issue_id, fact.text or "")


def _claim(state: State, issue_id: str) -> ClaimEntry | None:
    return state.running.get(issue_id) or state.retrying.get(issue_id) or state.blocked.get(issue_id)


def _stop(work: Step, issue_id: str, _text: str) -> None:
    if run := work.state.running.get(issue_id):
        runs.stop(work, run, StopReason.OPERATOR)
    else:
        retry = work.state.retrying[issue_id]
        failure = runs.stopped_by_operator(retry.issue)
        blocks.block(work, retry.issue, failure, held=retry)


def _retry(work: Step, issue_id: str, _text: str) -> None:
    if retry := work.state.retrying.get(issue_id):
        policy.lift(work, retry.issue)
        runs.make_due(work, retry)
    else:
        blocked = work.state.blocked[issue_id]
        policy.lift(work, blocked.issue)
        blocks.go_on(work, blocked, blocks.put_back(blocked), reason="an operator asked to retry it")


def _unblock(work: Step, issue_id: str, _text: str) -> None:
    """As after a change of the issue: start anew, unless what ended the last run was no fault of its own."""
    blocked = work.state.blocked[issue_id]
    blocks.forgive(work, blocked)
    resume = blocks.put_back(blocked)
    if blocked.failure.category not in _INTERRUPTIONS and resume.reason is not ResumeReason.ANSWERED:
        resume = replace(resume, thread=None)
    blocks.go_on(work, blocked, resume, reason="an operator unblocked it")


def _answer(work: Step, issue_id: str, text: str) -> None:
    blocked = work.state.blocked[issue_id]
    blocks.go_on(work, blocked, blocks.answered(blocked, text), reason="a person answered")


def _pause(work: Step, _issue_id: str, _text: str) -> None:
    work.update(paused=True)


def _resume(work: Step, _issue_id: str, _text: str) -> None:
    work.update(paused=False)
    runs.end_of_pause(work)
    polling.wake(work)


def _drain(work: Step, _issue_id: str, _text: str) -> None:
    runs.drain(work, patient=True)


_ACTS: Mapping[OperatorAction, Callable[[Step, str, str], None]] = {
    OperatorAction.STOP: _stop,
    OperatorAction.RETRY: _retry,
    OperatorAction.UNBLOCK: _unblock,
    OperatorAction.ANSWER: _answer,
    OperatorAction.PAUSE: _pause,
    OperatorAction.RESUME: _resume,
    OperatorAction.DRAIN: _drain,
}
