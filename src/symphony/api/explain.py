"""Why an issue is, or is not, being worked on, what happens next, and what a person can do.

Pure. `symphony explain` and the page of an issue show these sentences. `scheduler.policy` words the reason
itself.
"""

import shlex
from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from symphony.api import models
from symphony.api.formatting import ago, attempt_of, duration, seconds_between, sentence, stop_words
from symphony.api.models import Explanation
from symphony.domain import Category, one_line, plural
from symphony.scheduler import WAITING_FOR_SLOT

_NEEDS_PERSON: Final = "the agent needs a person: "
_NEXT_POLL: Final = "Every poll of the tracker looks at it again."
_NOTHING: Final = "Nothing, as long as it stays like this."
_NO_DAEMON: Final = "Nothing before a daemon runs."
_START_DAEMON: Final = "start a daemon: symphony run"
_CHANGE_ISSUE: Final = "change its state, labels, title or description"
_MOVE_ISSUE: Final = "move it to an active state to have it worked on"
_PAUSED: Final = ("It starts when the daemon is resumed. Running sessions continue.", "run: symphony resume")
NEXT_AND_ADVICE: Final[Mapping[str, tuple[str, str | None]]] = {
    "incomplete": (_NEXT_POLL, "complete the issue in the tracker"),
    "terminal": (_NOTHING, _MOVE_ISSUE),
    "inactive": (_NOTHING, _MOVE_ISSUE),
    "not_dispatchable": (_NEXT_POLL, "resolve in the tracker what it waits for"),
    "label_missing": (_NEXT_POLL, "add the label, or change tracker.required_labels"),
    "running": ("The run continues.", None),
    "retrying": ("The next attempt begins after the wait.", None),
    "blocked": (_NOTHING, _CHANGE_ISSUE),
    "blocker_running": ("It starts once that run has ended and delivered its work.", None),
    "same_identifier": (
        "It starts when the other one has ended: the two share a workspace.",
        "change the identifier of one of them",
    ),
    "draining": ("The daemon ends; the next one takes the issue up.", "start the daemon again: symphony run"),
    "workflow_invalid": (
        "It starts when WORKFLOW.md is usable again. Running sessions continue.",
        "correct WORKFLOW.md; the daemon reads it within a second",
    ),
    "paused": _PAUSED,
    "day_budget": ("It starts when the next day (UTC) begins.", "raise agent.budget.max_tokens_per_day"),
    "agent_limited": (
        "It starts when the agent's limit or outage ends, or when a fallback is available.",
        "name a fallback (agent.fallback), or buy credit and run: symphony retry",
    ),
    "no_slot": (
        "It starts when a slot is free, in the order of priority and age.",
        "raise agent.max_concurrent_agents, or give it a higher priority",
    ),
    "no_state_slot": (
        "It starts when a slot of its state is free.",
        "raise agent.max_concurrent_agents_by_state for that state",
    ),
    "no_host_slot": (
        "It starts when a host has a free slot.",
        "see `symphony hosts`; raise worker.max_concurrent_agents_per_host, or add to worker.ssh_hosts",
    ),
    "starting": ("It starts as soon as the tracker has confirmed it.", None),
    "deferred": (_NEXT_POLL, None),
}
"""By reason code: what happens next, and what a person can do."""


def explain(
    issue: models.Issue,
    *,
    has_daemon: bool = True,
    of_files: bool = False,
    when: Callable[[str], str] | None = None,
) -> Explanation:
    """Why the issue is, or is not, being worked on.

    Args:
        issue: the document of the issue.
        has_daemon: whether a daemon runs.
        of_files: whether the document was made from files, so that its claims are remembered ones.
        when: words for a time in the document; by default the time since or until then.
    """
    when = when or (lambda moment: _distance(moment, issue.generated_at))
    if issue.running is not None:
        return _explain_run(issue.running, when)
    if issue.retry is not None:
        explanation = _explain_retry(issue, issue.retry, when)
        if of_files:
            explanation = replace(explanation, next=_NO_DAEMON)
    elif issue.blocked is not None:
        explanation = _explain_block(issue, issue.blocked)
    elif issue.status in {"ready", "ended"}:
        return _explain_result(issue)
    else:
        return _explain_waiting(issue, has_daemon=has_daemon)
    if of_files:  # a remembered claim: every operator action needs a daemon
        explanation = replace(explanation, advice=_join(_START_DAEMON, explanation.advice))
    return explanation


def failure_before(retry: models.Retry, last_error: str | None) -> str | None:
    """How the last run failed, and why the retry waits if that differs; `None` after a clean end."""
    errors = [error for error in (last_error, retry.error) if error]
    return "; then: ".join(dict.fromkeys(errors)) if retry.error else None


def remedy(block: models.Block, identifier: str, url: str | None) -> str:
    """What a person can do about a blocked issue: the hint of the failure, or the command that helps."""
    hint, name = one_line(block.failure.hint or ""), _shell_word(identifier)
    if block.question is not None and "symphony answer" not in hint:
        where = f"the issue ({one_line(url)})" if url else "the issue"
        return f'answer it by a comment on {where}, or: symphony answer {name} "…"'
    return hint or f"have it tried again: symphony unblock {name}"


def _distance(moment: str, now: str) -> str:
    """The time since or until a moment."""
    past_s = seconds_between(moment, now)
    return f"in {duration(-past_s)}" if past_s is not None and past_s < 0 else ago(past_s)


def _explain_run(run: models.Run, when: Callable[[str], str]) -> Explanation:
    began, last_event = when(run.started_at), run.last_event_at
    if run.stopping:
        answer = f"An agent is being stopped: {stop_words(run.stopping)}."
    elif run.last_event == WAITING_FOR_SLOT:
        return Explanation(
            running=True,
            code=WAITING_FOR_SLOT,
            answer=sentence(f"It waits: {run.last_message}"),
            since=run.started_at,
            next="Its agent starts when Ray has a slot for it, in the order in which the runs asked.",
            advice="see `symphony hosts check`; offer more of worker.ray.slots_resource, or fewer labels",
        )
    elif run.session_id is None and last_event is None:
        answer = f"A run has begun {began}; it is {run.stage.replace('_', ' ')}."
    else:
        alive = "never" if last_event is None else when(last_event)
        answer = f"An agent is at work: turn {run.turn}, begun {began}, last sign of life {alive}."
    return Explanation(
        running=True,
        code="running",
        answer=answer,
        since=run.started_at,
        next="Each turn ends with a look at the issue: still active means another turn, otherwise delivery.",
        advice=None,
    )


def _explain_retry(issue: models.Issue, retry: models.Retry, when: Callable[[str], str]) -> Explanation:
    wait_s = seconds_between(issue.generated_at, retry.due_at)
    due = "now" if wait_s is not None and wait_s <= 0 else when(retry.due_at)
    if error := failure_before(retry, issue.last_error):
        answer = sentence(f"It waits for attempt {attempt_of(retry)}, after: {error}")
        follows = f"That attempt begins {due}, if there is a slot ({retry.due_at})."
    else:
        answer = "It continues if the issue is still active."
        follows = f"It is looked at once more {due} ({retry.due_at})."
    follows, advice = _PAUSED if issue.paused else (follows, None)
    return Explanation(running=False, code="retrying", answer=answer, since=None, next=follows, advice=advice)


def _explain_block(issue: models.Issue, block: models.Block) -> Explanation:
    advice = remedy(block, issue.issue_identifier, issue.issue_url)
    by_pull_request = block.failure.code.startswith("pull_request_")  # labels lift nothing
    if not by_pull_request and "state, labels, title or description" not in advice:
        command = f"have it tried again: symphony unblock {_shell_word(issue.issue_identifier)}"
        advice = advice if "symphony " in advice else _join(advice, command)
        stopped = block.failure.code == Category.STOPPED_BY_OPERATOR
        advice = f"{advice}; or {'move it to another state' if stopped else _CHANGE_ISSUE}"
    return Explanation(
        running=False,
        code="blocked",
        answer=sentence(f"It waits for a person: {block.error.removeprefix(_NEEDS_PERSON)}"),
        since=block.blocked_at,
        next=_NOTHING,
        advice=advice,
    )


def _explain_result(issue: models.Issue) -> Explanation:
    """An issue that has left the active states."""
    where, result = "No tracker list has it any more", issue.result
    if issue.state:
        where = f"It is in {issue.state}, which is no active state"
    if result is None:
        return Explanation(
            running=False,
            code=issue.status,
            answer=sentence(f"{where}, and its branch is not known"),
            since=None,
            next=_NOTHING,
            advice=_MOVE_ISSUE if issue.state else None,
        )
    ready, pull = issue.status == "ready", result.pull_request
    merged = pull is not None and pull.code == "merged"
    delivered = result.delivered
    size = f"{plural(delivered.work.commits, 'commit')}, {delivered.work.lines}"
    answer = f"{where}; its work is on the branch {delivered.branch} ({size})"
    if delivered.branch_failure:
        answer = f"{where}; its work ({size}) is kept by the daemon: {delivered.branch_failure.message}"
    if result.verified is not None:
        answer += f"; {'verified' if result.verified.passed else 'not verified'}: {result.verified.message}"
    if delivered.push == "pushing":
        answer += "; it is being pushed to origin"
    elif delivered.push_failure:
        answer += f"; it could not be pushed: {delivered.push_failure.message}"
    hints = [one.hint for one in (delivered.branch_failure, delivered.push_failure) if one and one.hint]
    if pull is not None and merged:
        answer = f"{where}; its work ({size}) is merged: pull request {pull.number}"
    elif pull is not None:
        answer += f"; {_pull_request(pull)}"
    review = "It waits for a review; changes in the tracker are noticed within ten minutes."
    moves = ["move it to a terminal state" if merged else _MOVE_ISSUE] if ready else []
    return Explanation(
        running=False,
        code=issue.status,
        answer=sentence(answer),
        since=result.ended_at,
        next=review if ready and not merged else _NOTHING,
        advice="; or ".join([f"look at it: {' or '.join(result.look)}", *hints, *moves]),
    )


def _pull_request(pull: models.PullRequest) -> str:
    """The pull request and what it waits for, as a part of a sentence."""
    name = "its pull request" if pull.number is None else f"pull request {pull.number} ({pull.code})"
    text = f"{name}: {pull.message}"
    if pull.failure is not None:
        text += f" (the last step failed: {pull.failure.message}; it is tried again)"
    return text


def _explain_waiting(issue: models.Issue, *, has_daemon: bool) -> Explanation:
    if issue.waiting is None:  # a status from a later version
        reason = models.Reason(code=issue.status, message=issue.status)
    else:
        reason = issue.waiting.reason
    follows, advice = NEXT_AND_ADVICE.get(reason.code, (_NEXT_POLL, None))
    if not has_daemon and reason.code not in {"terminal", "inactive"}:
        follows, advice = _NO_DAEMON, _join(advice, _START_DAEMON)
    return Explanation(
        running=False,
        code=reason.code,
        answer=sentence(f"It is not running: {reason.message}"),
        since=None,
        next=follows,
        advice=advice,
    )


def _shell_word(identifier: str) -> str:
    return shlex.quote(one_line(identifier))


def _join(*parts: str | None) -> str:
    return "; ".join(part for part in parts if part)
