"""The actions of an operator: which are possible now, and what they do.

`refusal` says in advance, with a stable code, whether an action is possible. `on_operator_asked` checks
again, because the state may have changed meanwhile. An action on the daemon that is already in effect does
nothing.

    stop      ends a run in the middle of a turn, or gives up a retry; the issue is blocked
    retry     makes a retry due, or continues a blocked issue; budgets still apply, agent limits do not
    unblock   continues a blocked issue and counts its budget from zero; the budget of today does not stop it
    answer    continues the conversation with a person's answer, or starts a new one with it
    approve   as an answer that approves the request for approval that is open, for this conversation
    deny      as an answer that denies it
    verify    runs the checks on finished work again; only the result changes
    pause     starts nothing; what runs continues, with further turns
    resume    ends the pause
    drain     lets turns end, however long they take, starts nothing, then ends the daemon
"""

import shlex
from dataclasses import replace
from typing import Final, assert_never

from symphony.domain import Category, Issue
from symphony.scheduler import (
    agents,
    blocks,
    budgets,
    hosts,
    messages,
    policy,
    polling,
    pull_requests,
    runs,
    verification,
)
from symphony.scheduler.messages import Refusal
from symphony.scheduler.policy import ReasonCode
from symphony.scheduler.resume import resume_with_answer, resume_without_answer
from symphony.scheduler.state import Blocked, Drain, State, Step

ISSUE_ACTIONS: Final = frozenset(
    {
        messages.OperatorAction.STOP,
        messages.OperatorAction.RETRY,
        messages.OperatorAction.UNBLOCK,
        messages.OperatorAction.ANSWER,
        messages.OperatorAction.APPROVE,
        messages.OperatorAction.DENY,
        messages.OperatorAction.VERIFY,
    }
)
"""The actions on one issue; the others are on the daemon."""

_INTERRUPTIONS: Final = frozenset({Category.BUDGET_ISSUE, Category.BUDGET_DAY, Category.STOPPED_BY_OPERATOR})
"""Blocks that the conversation did not cause, so it continues."""

# --- is it possible --------------------------------------------------------------------------------------


def already_done(state: State, action: messages.OperatorAction) -> bool:
    """Whether an action on the daemon is in effect already."""
    if action is messages.OperatorAction.PAUSE:
        return state.paused
    if action is messages.OperatorAction.RESUME:
        return not state.paused
    return action is messages.OperatorAction.DRAIN and state.drain is not Drain.NO


def refusal(  # noqa: PLR0911 - one case per action
    state: State, action: messages.OperatorAction, issue_id: str | None = None, text: str | None = None
) -> Refusal | None:
    """Why an action is not possible now, or `None`."""
    issue_id = issue_id or ""
    # `verify` is for finished work, whatever has become of its issue.
    left = action in ISSUE_ACTIONS and action is not messages.OperatorAction.VERIFY
    if left and (refused := _refusal_of_left_issue(state, issue_id)):
        return refused
    match action:
        case messages.OperatorAction.STOP:
            return _refusal_of_stop(state, issue_id)
        case messages.OperatorAction.RETRY:
            return _refusal_of_retry(state, issue_id)
        case messages.OperatorAction.UNBLOCK if issue_id not in state.blocked:
            return Refusal(code="not_blocked", message="the issue is not blocked")
        case messages.OperatorAction.ANSWER | messages.OperatorAction.APPROVE | messages.OperatorAction.DENY:
            return _refusal_of_answer(state, action, issue_id, text)
        case messages.OperatorAction.VERIFY:
            return _refusal_of_verify(state, issue_id)
        case _:
            return None


def _refusal_of_left_issue(state: State, issue_id: str) -> Refusal | None:
    """Why nothing is possible for an issue that has left the active states."""
    result = state.results.get(issue_id)
    if result is None or result.status is messages.ResultStatus.OPEN:
        return None
    if result.status is messages.ResultStatus.GONE:
        message, hint = f"the tracker does not find {result.issue.identifier} any more", None
    else:
        message, hint = not_active_text(result.issue, state.settings)
    return Refusal(code="not_active", message=message, hint=hint)


def not_active_text(issue: Issue, settings: messages.SchedulerSettings) -> tuple[str, str]:
    """Message and hint for an issue that is not worked on as the tracker shows it."""
    reason = policy.unsuitable(issue, settings)
    if reason is None or reason.code in {ReasonCode.INACTIVE, ReasonCode.TERMINAL}:
        message = f"{issue.identifier} is in {issue.state}, which is no active state"
        return message, f"move it to {settings.on_return or 'an active state'} to have it worked on"
    return f"{issue.identifier} is not to be worked on: {reason.message}", "settle that in the tracker"


def _refusal_of_stop(state: State, issue_id: str) -> Refusal | None:
    if run := state.running.get(issue_id):
        if run.stopping is None:
            return None
        message, hint = f"the run is being stopped already: {run.stopping.words}", None
    elif issue_id in state.retrying:
        return None
    elif issue_id in state.blocked:
        message, hint = "nothing runs: the issue is blocked already", None
    else:
        message = "nothing runs for this issue"
        hint = "move it to a state that is not active to keep it from being started"
    return Refusal(code="not_running", message=message, hint=hint)


def _refusal_of_retry(state: State, issue_id: str) -> Refusal | None:
    if issue_id in state.running:
        return Refusal(code="running", message="an agent is running")
    entry = state.entry(issue_id)
    if entry is None:
        message = "the issue is neither blocked nor being retried"
        hint = "`symphony explain` shows what the issue waits for"
        return Refusal(code="not_waiting", message=message, hint=hint)
    if failure := budgets.budget_failure(state, entry.issue):
        hint = f"`symphony unblock {shlex.quote(entry.issue.identifier)}` counts its budget from zero"
        return Refusal(code="budget_used", message=failure.message, hint=hint)
    return None


def _refusal_of_answer(
    state: State, action: messages.OperatorAction, issue_id: str, text: str | None
) -> Refusal | None:
    blocked = state.blocked.get(issue_id)
    if blocked is None or not blocks.takes_answer(blocked):
        return Refusal(code="no_question", message="the issue waits for no answer")
    if action is not messages.OperatorAction.ANSWER:
        if blocks.awaits_approval(blocked):
            return None
        hint = "answer it with a text"
        return Refusal(code="no_approval", message="the agent has not asked for an approval", hint=hint)
    if not (text or "").strip():
        return Refusal(code="empty_answer", message="the answer is empty")
    return None


def _refusal_of_verify(state: State, issue_id: str) -> Refusal | None:
    """Why the work of an issue cannot be verified by hand now."""
    if state.settings.verify_rounds is None:
        hint = "docs/verification.md has an example"
        return Refusal(code="no_checks", message="verify.commands of WORKFLOW.md is not set", hint=hint)
    if state.entry(issue_id) is not None:
        return Refusal(code="claimed", message="the issue is not finished: it is being worked on, or waits")
    result = state.results.get(issue_id)
    if result is None or result.delivered is None or result.status is messages.ResultStatus.GONE:
        return Refusal(code="nothing_delivered", message="no run has delivered work on this issue")
    if state.paused or state.drain is not Drain.NO:
        return Refusal(
            code="nothing_starts",
            message=f"the daemon is {'paused' if state.paused else 'ending'}, and starts nothing",
            hint="`symphony resume` ends a pause",
        )
    return None


# --- what it does ----------------------------------------------------------------------------------------


def on_operator_asked(step: Step, event: messages.OperatorAsked) -> None:  # noqa: C901 - one case per action
    """Carry out an action, or log why it is refused."""
    action, issue_id = event.action, event.issue_id or ""
    entry = step.state.entry(issue_id)
    result = step.state.results.get(issue_id)
    issue = entry.issue if entry else result.issue if result else None
    if refused := refusal(step.state, action, issue_id, event.text):
        step.notify("warning", "operator_refused", issue, verb=action.value, reason=refused.message)
        return
    step.notify("info", "operator_asked", issue, verb=action.value)
    if already_done(step.state, action):
        return
    match action:
        case messages.OperatorAction.STOP:
            _stop(step, issue_id)
        case messages.OperatorAction.RETRY:
            _retry(step, issue_id)
        case messages.OperatorAction.UNBLOCK:
            _unblock(step, issue_id)
        case messages.OperatorAction.ANSWER | messages.OperatorAction.APPROVE | messages.OperatorAction.DENY:
            _answer(step, issue_id, event)
        case messages.OperatorAction.VERIFY:
            verification.order(step, step.state.results[issue_id])
        case messages.OperatorAction.PAUSE:
            step.update(paused=True)
        case messages.OperatorAction.RESUME:
            step.update(paused=False)
            runs.on_resumed(step)
            polling.wake(step)
        case messages.OperatorAction.DRAIN:
            runs.drain(step, without_timeout=True)
        case _:
            assert_never(action)


def _stop(step: Step, issue_id: str) -> None:
    if run := step.state.running.get(issue_id):
        runs.stop(step, run, messages.StopReason.OPERATOR)
    else:
        retry = step.state.retrying[issue_id]
        blocks.block(step, retry.issue, runs.stopped_by_operator(retry.issue), held=retry)


def _retry(step: Step, issue_id: str) -> None:
    if retry := step.state.retrying.get(issue_id):
        agents.lift_limits(step, retry.issue)
        hosts.end_rests(step)
        runs.make_due(step, retry)
    else:
        blocked = step.state.blocked[issue_id]
        agents.lift_limits(step, blocked.issue)
        hosts.end_rests(step)
        _continue(step, blocked, resume_without_answer(blocked), reason="an operator asked to retry it")


def _unblock(step: Step, issue_id: str) -> None:
    """Start a new conversation as after a change of the issue, unless the old one was only interrupted."""
    blocked = step.state.blocked[issue_id]
    blocks.waive_budget(step, blocked)
    resume = resume_without_answer(blocked)
    if blocked.failure.category not in _INTERRUPTIONS and resume.reason is not messages.ResumeReason.ANSWERED:
        resume = replace(resume, thread=None, decisions={})
    _continue(step, blocked, resume, reason="an operator unblocked it")


def _answer(step: Step, issue_id: str, event: messages.OperatorAsked) -> None:
    text = event.action.value if event.text is None else event.text
    blocked = step.state.blocked[issue_id]
    approves = blocks.decision_in(text) if blocks.awaits_approval(blocked) else None
    resume = resume_with_answer(blocked, text, by=event.by, approves=approves)
    blocks.unblock(step, blocked, resume, reason="a person answered")


def _continue(step: Step, blocked: Blocked, resume: messages.Resume, *, reason: str) -> None:
    if blocks.is_by_pull_request(blocked):
        pull_requests.lift(step, blocked, resume, reason=reason)
    else:
        blocks.unblock(step, blocked, resume, reason=reason)
