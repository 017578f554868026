"""`symphony explain`: why an issue is, or is not, being worked on.

`explain_issue` computes the answer, what happens next, and what a person can do. The reason itself is worded
by `scheduler.policy`, as everywhere. `explain_view` shows the answer, the details behind it, and recent
events.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from symphony.api import models
from symphony.api.conditions import day_tokens
from symphony.api.formatting import (
    ago,
    attempt_of,
    duration,
    event_words,
    parse_time,
    seconds_between,
    sentence,
    stop_words,
    tokens,
)
from symphony.cli.documents import Explanation, KnownIssue
from symphony.cli.formatting import cell, describe_instructions, instruction_problems, unbroken
from symphony.cli.render.conditions import condition_lines
from symphony.domain import Category, one_line, plural, without_codes
from symphony.scheduler import WAITING_FOR_SLOT

_NEEDS_PERSON: Final = "the agent needs a person: "
_NEXT_POLL: Final = "Every poll of the tracker looks at it again."
_NOTHING: Final = "Nothing, as long as it stays like this."
_NO_DAEMON: Final = "Nothing before a daemon runs."
_START_DAEMON: Final = "start a daemon: symphony run"
_CHANGE_ISSUE: Final = "change its state, labels, title or description"
_MOVE_ISSUE: Final = "move it to an active state to have it worked on"
_PAUSED: Final = ("It starts once the daemon is resumed; what runs goes on.", "run: symphony resume")
NEXT_AND_ADVICE: Final[Mapping[str, tuple[str, str | None]]] = {
    "incomplete": (_NEXT_POLL, "complete the issue in the tracker"),
    "terminal": (_NOTHING, _MOVE_ISSUE),
    "inactive": (_NOTHING, _MOVE_ISSUE),
    "not_dispatchable": (_NEXT_POLL, "settle what it waits for, in the tracker"),
    "label_missing": (_NEXT_POLL, "add the label, or change tracker.required_labels"),
    "running": ("The run goes on.", None),
    "retrying": ("The next attempt begins when its wait is over.", None),
    "blocked": (_NOTHING, _CHANGE_ISSUE),
    "blocker_running": ("It starts once that run has ended and delivered its work.", None),
    "same_identifier": (
        "It starts once the other one is over; the two share a workspace.",
        "give one of them another identifier",
    ),
    "draining": ("The daemon ends; the next one takes the issue up.", "start the daemon again: symphony run"),
    "workflow_invalid": (
        "It starts once WORKFLOW.md is usable again; what runs goes on.",
        "correct WORKFLOW.md; the daemon reads it within a second",
    ),
    "paused": _PAUSED,
    "day_budget": ("It starts when the next day (UTC) begins.", "raise agent.budget.max_tokens_per_day"),
    "agent_limited": (
        "It starts when the agent's limit or outage ends, or when another agent may take its place.",
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
_COMMENT_CHARS: Final = 200
_COLOURS: Final = {"running": "green", "retrying": "yellow", "blocked": "red"}


def explain_issue(issue: KnownIssue) -> Explanation:
    """Why it is, or is not, being worked on."""
    if issue.running is not None:
        return _explain_run(issue.running, issue.generated_at)
    if issue.retry is not None:
        explanation = _explain_retry(issue, issue.retry)
        if issue.source == "files":
            explanation = replace(explanation, next=_NO_DAEMON)
    elif issue.blocked is not None:
        explanation = _explain_block(issue, issue.blocked)
    elif issue.status in {"ready", "ended"}:
        return _explain_result(issue)
    else:
        return _explain_waiting(issue)
    if issue.source == "files":  # a remembered claim: a daemon has to take up every operator action
        explanation = replace(explanation, advice=_join(_START_DAEMON, explanation.advice))
    return explanation


def failure_before(retry: models.Retry, last_error: str | None) -> str | None:
    """How the last run failed, and why the retry waits if that differs; None after a clean end."""
    errors = [error for error in (last_error, retry.error) if error]
    return "; then: ".join(dict.fromkeys(errors)) if retry.error else None


def remedy(block: models.Block, identifier: str, url: str | None) -> str:
    """What a person can do about a blocked issue: the hint of the failure, or the command that helps."""
    hint, name = one_line(block.failure.hint or ""), _shell_word(identifier)
    if block.question is not None and "symphony answer" not in hint:
        where = f"the issue ({one_line(url)})" if url else "the issue"
        return f'answer it by a comment on {where}, or: symphony answer {name} "…"'
    return hint or f"have it tried again: symphony unblock {name}"


def question_to_show(block: models.Block) -> str | None:
    """The question of a block, unless its error contains it already."""
    if block.question is None or one_line(block.question) in one_line(block.error):
        return None
    return block.question


def explain_view(
    issue: KnownIssue,
    explanation: Explanation,
    *,
    state_dir: Path,
    new_comments: Sequence[models.PromptComment] = (),
) -> RenderableType:
    """The whole picture of one issue; paths of logs are below the daemon's state directory.

    `new_comments` are the comments of people that the next run is told.
    """
    colour = _COLOURS.get(issue.status, "cyan")
    blocks: list[RenderableType] = [
        Text.assemble(cell(issue.issue_identifier, f"bold {colour}"), "  ", cell(issue.title, "bold")),
        Text(),
        unbroken(cell(explanation.answer)),
        unbroken(Text.assemble(("Next: ", "bold"), cell(explanation.next))),
    ]
    if explanation.advice:
        blocks.append(unbroken(Text.assemble(("You can: ", "bold"), cell(explanation.advice))))
    blocks += map(unbroken, condition_lines(issue))
    if issue.daemon is None:
        text = "No daemon is running; this is what the tracker and the files say."
        blocks.append(Text(text, style="dim"))
    details = [(name, value) for name, value in _details(issue, explanation, state_dir).items() if value]
    details += [("is told", f"{one.author}: {one_line(one.body, _COMMENT_CHARS)}") for one in new_comments]
    width = max(len(name) for name, _ in details)
    lines = (Text.assemble((f"{name:{width}}  ", "dim"), cell(value)) for name, value in details)
    blocks += [Text(), *map(unbroken, lines)]
    if issue.recent_events:
        blocks += [Text(), Text("What happened last (UTC)", style="bold"), _events(issue.recent_events)]
    return Group(*blocks)


# --- the explanation --------------------------------------------------------------------------------------


def _explain_run(run: models.Run, now: str) -> Explanation:
    silent_s, began = seconds_between(run.last_event_at, now), ago(seconds_between(run.started_at, now))
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
    elif run.session_id is None and silent_s is None:
        answer = f"A run has begun {began}; it is {run.stage.replace('_', ' ')}."
    else:
        answer = f"An agent is at work: turn {run.turn}, begun {began}, last sign of life {ago(silent_s)}."
    return Explanation(
        running=True,
        code="running",
        answer=answer,
        since=run.started_at,
        next="Each turn ends with a look at the issue: still active means another turn, otherwise delivery.",
        advice=None,
    )


def _explain_retry(issue: KnownIssue, retry: models.Retry) -> Explanation:
    wait_s = seconds_between(issue.generated_at, retry.due_at)
    due = "now" if wait_s is not None and wait_s <= 0 else f"in {duration(wait_s)}"
    if error := failure_before(retry, issue.last_error):
        answer = sentence(f"It waits for attempt {attempt_of(retry)}, after: {error}")
        follows = f"That attempt begins {due}, if there is a slot ({retry.due_at})."
    else:
        answer = "It goes on, if it is still active."
        follows = f"It is looked at once more {due} ({retry.due_at})."
    follows, advice = _PAUSED if issue.paused else (follows, None)
    return Explanation(running=False, code="retrying", answer=answer, since=None, next=follows, advice=advice)


def _explain_block(issue: KnownIssue, block: models.Block) -> Explanation:
    advice = remedy(block, issue.issue_identifier, issue.issue_url)
    by_pull_request = block.failure.code.startswith("pull_request_")  # its hint says all; labels lift nothing
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


def _explain_result(issue: KnownIssue) -> Explanation:
    """An issue that has left the active states."""
    where, result = "No tracker list has it any more", issue.result
    if issue.state:
        where = f"It is in {issue.state}, which is no active state"
    if result is None:
        return Explanation(
            running=False,
            code=issue.status,
            answer=sentence(f"{where}, and no branch of it is remembered"),
            since=None,
            next=_NOTHING,
            advice=_MOVE_ISSUE,
        )
    ready, pull = issue.status == "ready", result.pull_request
    merged = pull is not None and pull.code == "merged"
    size = f"{plural(result.commits, 'commit')}, +{result.insertions} -{result.deletions}"
    answer = f"{where}; its work is on the branch {result.branch} ({size})"
    if result.branch_failure:
        answer = f"{where}; its work ({size}) is kept by the daemon: {result.branch_failure.message}"
    if result.push == "pushing":
        answer += "; it is being pushed to origin"
    elif result.push_failure:
        answer += f"; it could not be pushed: {result.push_failure.message}"
    hints = [one.hint for one in (result.branch_failure, result.push_failure) if one and one.hint]
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
        text += f" (the last step failed: {pull.failure.message}; tried again at {pull.next_try_at})"
    return text


def _explain_waiting(issue: KnownIssue) -> Explanation:
    if issue.waiting is None:  # a status of a later version
        reason = models.Reason(code=issue.status, message=issue.status)
    else:
        reason = issue.waiting.reason
    follows, advice = NEXT_AND_ADVICE.get(reason.code, (_NEXT_POLL, None))
    if issue.daemon is None and reason.code not in {"terminal", "inactive"}:
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


# --- the picture ------------------------------------------------------------------------------------------


def _feedback(feedback: models.Feedback) -> str:
    """One feedback and what was learned from it."""
    learning, text = feedback.learning, f"{feedback.stars} of 5"
    if feedback.comment:
        text += f", {one_line(feedback.comment, 200)!r}"
    found = {"created": learning.created, "updated": learning.updated, "unchanged": learning.unchanged}
    names = (f"{what} {', '.join(skills)}" for what, skills in found.items() if skills)
    text += f" (learning {learning.state}: {', '.join(names) or learning.reason or 'no skill yet'})"
    commands = (f"`symphony library proposals {number}`" for number in learning.proposals)
    return f"{text}; see {', '.join(commands)}" if learning.proposals else text


def _branch_line(issue: models.Issue) -> str | None:
    """The branch, and why it is not where it should be; also an earlier one of a removed workspace."""
    branch, result = issue.workspace.branch, issue.result
    if branch is None or result is None or result.branch is None:
        return branch
    if branch != result.branch:
        return f"{branch}; earlier work is on {result.branch}"
    parts = [branch]
    if result.branch_failure is not None:
        parts.append(f"not in the repository ({result.branch_failure.message})")
    if result.push in {"pushing", "waiting"}:
        parts.append("being pushed to origin" if result.push == "pushing" else "not pushed yet")
    if result.push_failure is not None:
        parts.append(f"not pushed ({result.push_failure.message})")
    return ", ".join(parts)


def _details(issue: models.Issue, explanation: Explanation, state_dir: Path) -> Mapping[str, str | None]:
    """The details by name; empty ones are not shown."""
    run, block, runs, budgets = issue.running, issue.blocked, issue.attempts.runs_started, issue.budgets
    going = run or issue.retry
    details = {
        "status": issue.status
        if issue.status == explanation.code
        else f"{issue.status} ({explanation.code})",
        "state": issue.state,
        "since": explanation.since,
        "attempt": attempt_of(going) if going else None,
        "runs": f"{runs} since the daemon began" if runs else None,
        "agent": _agent(issue.agent),
        "phase": f"{issue.phase.name}: {issue.phase.reason}" if issue.phase else None,
        "tokens": tokens(run.tokens.total_tokens) if run else None,
        "budget": _budget(issue),
        "today": f"{today} tokens used" if (today := day_tokens(budgets)) else None,
    }
    if block is not None:
        details["asks"] = question_to_show(block)
        details["not obeyed"] = "; ".join(
            f"{comment.author} (no write access): {comment.text}" for comment in block.not_obeyed
        )
        details["comments"] = block.answers_failure.message if block.answers_failure else None
    if run is not None:
        if (resumed := run.resumed_from) is not None:
            how = "anew, with the question and the answer"
            if resumed.thread_id is not None:
                how = f"the conversation {resumed.thread_id} goes on"
            details["resumed"] = f"after it was {resumed.reason}: {how}"
        details["said last"] = run.last_words or run.last_message
    details |= {
        "url": issue.issue_url,
        "host": issue.workspace.host,
        "workspace": issue.workspace.path,
        "branch": _branch_line(issue),
        "pull request": _pull_request_line(issue),
        "last error": issue.last_error and without_codes(issue.last_error),
        "agent's log": next((str(state_dir / log.path) for log in issue.logs.codex_session_logs), None),
    }
    details["feedback"] = "; ".join(map(_feedback, issue.feedback))
    if issue.instructions is not None:
        details["instructions"] = describe_instructions(issue.instructions)
        details["instructions' source"] = "; ".join(instruction_problems(issue.instructions))
    if issue.skills is not None:
        details["skills"] = ", ".join(skill.name for skill in issue.skills.listed) or "none listed"
        details["not listed"] = ", ".join(_dropped_skills(issue.skills.dropped))
        details["malformed"] = ", ".join(
            f"{problem.path}{'' if problem.line is None else f':{problem.line}'} ({problem.code})"
            for problem in issue.skills.problems
            if problem.severity == "error"
        )
    return details


def _pull_request_line(issue: models.Issue) -> str | None:
    pull = None if issue.result is None else issue.result.pull_request
    return None if pull is None else " ".join(filter(None, (pull.url, f"({pull.code})")))


def _agent(agent: models.Agent) -> str:
    """The agent of the issue, and why it is this one."""
    kind = ", ".join(part for part in (agent.kind, agent.model) if part and part != agent.name)
    name = f"{agent.name} ({kind})" if kind else agent.name
    place = f", instead of {agent.instead_of}" if agent.instead_of else ""
    return f"{name}{place}: {agent.reason}"


def _budget(issue: models.Issue) -> str | None:
    """What the issue used of its own budget; None if it has no limit."""
    max_tokens, max_turns = issue.budgets.max_tokens_per_issue, issue.budgets.max_turns_per_issue
    used = []
    if max_tokens is not None:
        used.append(f"{tokens(issue.spent.tokens)} of {tokens(max_tokens)} tokens")
    if max_turns is not None:
        used.append(f"{issue.spent.turns} of {plural(max_turns, 'turn')}")
    return f"{', '.join(used)} used" if used else None


def _dropped_skills(dropped: Iterable[models.DroppedSkill]) -> Iterator[str]:
    """Each with its reason. Those that a session can search may be thousands, so they are counted."""
    searched = 0
    for skill in dropped:
        if skill.reason == "search":
            searched += 1
        else:
            yield f"{skill.name} ({skill.reason})"
    if searched:
        yield f"{searched} that the session searches"


def _events(events: Iterable[models.Event]) -> RenderableType:
    """Oldest first. Repeated events are one line, with the number and the last time."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for (name, message), group in groupby(events, lambda event: (event.event, event.message)):
        times = [parse_time(event.at) for event in group]
        repeated = f" ({len(times)} times)" if len(times) > 1 else ""
        last = "" if times[-1] is None else f"{times[-1]:%H:%M:%S}"
        table.add_row(last, cell(event_words(name)), cell(f"{without_codes(message)}{repeated}"))
    return Padding(table, (0, 0, 0, 2))
