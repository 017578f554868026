"""`symphony explain`: why an issue is, or is not, being worked on.

`api.explain` has the answer, what happens next, and what a person can do. `explain_view` shows them, the
details behind it, and recent events.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from symphony.api import models
from symphony.api.conditions import day_tokens
from symphony.api.explain import explain
from symphony.api.formatting import attempt_of, event_words, parse_time, tokens
from symphony.cli.documents import KnownIssue
from symphony.cli.formatting import cell, describe_instructions, instruction_problems, unbroken
from symphony.cli.render.conditions import condition_lines
from symphony.domain import AgentChoice, one_line, plural, without_codes

_COMMENT_CHARS: Final = 200
_COLOURS: Final = {"running": "green", "retrying": "yellow", "blocked": "red"}


def explain_issue(issue: KnownIssue) -> models.Explanation:
    """Why it is, or is not, being worked on."""
    return explain(issue, has_daemon=issue.daemon is not None, of_files=issue.source == "files")


def question_to_show(block: models.Block) -> str | None:
    """The question of a block, unless its error contains it already."""
    if block.question is None or one_line(block.question) in one_line(block.error):
        return None
    return block.question


def explain_view(
    issue: KnownIssue,
    explanation: models.Explanation,
    *,
    state_dir: Path,
    new_comments: Sequence[models.PromptComment] = (),
) -> RenderableType:
    """The whole picture of one issue; paths of logs are below the daemon's state directory.

    `new_comments` are the comments of people for the next run.
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
        text = "No daemon is running. This is read from the tracker and the files."
        blocks.append(Text(text, style="dim"))
    details = [(name, value) for name, value in _details(issue, explanation, state_dir).items() if value]
    details += [("is told", f"{one.author}: {one_line(one.body, _COMMENT_CHARS)}") for one in new_comments]
    width = max(len(name) for name, _ in details)
    lines = (Text.assemble((f"{name:{width}}  ", "dim"), cell(value)) for name, value in details)
    blocks += [Text(), *map(unbroken, lines)]
    if issue.recent_events:
        blocks += [Text(), Text("What happened last (UTC)", style="bold"), _events(issue.recent_events)]
    return Group(*blocks)


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
    """The branch, and why it has not reached its repositories; also an earlier one of a removed workspace."""
    branch, delivered = issue.workspace.branch, issue.result.delivered if issue.result else None
    if branch is None or delivered is None:
        return branch
    if branch != delivered.branch:
        return f"{branch}; earlier work is on {delivered.branch}"
    parts = [branch]
    if delivered.branch_failure is not None:
        parts.append(f"not in the repository ({delivered.branch_failure.message})")
    if delivered.push in {"pushing", "waiting"}:
        parts.append("being pushed to origin" if delivered.push == "pushing" else "not pushed yet")
    if delivered.push_failure is not None:
        parts.append(f"not pushed ({delivered.push_failure.message})")
    return ", ".join(parts)


def _details(
    issue: models.Issue, explanation: models.Explanation, state_dir: Path
) -> Mapping[str, str | None]:
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
            how = "a new conversation, with the question and the answer"
            if resumed.thread_id is not None:
                how = f"the conversation {resumed.thread_id} goes on"
            details["resumed"] = f"after it was {resumed.reason}: {how}"
        details["said last"] = run.last_words or run.last_message
    details |= {
        "url": issue.issue_url,
        "host": issue.workspace.host,
        "workspace": issue.workspace.path,
        "branch": _branch_line(issue),
        "verified": _verified_line(issue),
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


def _verified_line(issue: models.Issue) -> str | None:
    """What the checks said of the delivered commit, and the files that they left."""
    made = None if issue.result is None else issue.result.verified
    if made is None:
        return None
    files = ", ".join(each.name for each in made.artifacts)
    said = f"{'yes' if made.passed else 'no'}, at {made.head[:12]}: {made.message}"
    return f"{said}; it left {files}" if files else said


def _pull_request_line(issue: models.Issue) -> str | None:
    pull = None if issue.result is None else issue.result.pull_request
    return None if pull is None else " ".join(filter(None, (pull.url, f"({pull.code})")))


def _agent(agent: AgentChoice) -> str:
    """The agent of the issue, and why it is this one."""
    kind = ", ".join(part for part in (agent.kind, agent.model) if part and part != agent.name)
    name = f"{agent.name} ({kind})" if kind else agent.name
    place = f", instead of {agent.instead_of}" if agent.instead_of else ""
    return f"{name}{place}: {agent.reason}"


def _budget(issue: models.Issue) -> str | None:
    """How much of its budget the issue used; `None` if it has no limit."""
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
