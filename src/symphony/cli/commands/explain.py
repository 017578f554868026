"""`symphony explain`: why is this issue running, or why is it not?"""

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from symphony.api.models import Agent, Block, DroppedSkill, Event, Issue, ResumedFrom, SkillProblem
from symphony.cli.documents import Explanation, KnownIssue
from symphony.cli.formatting import attempt, cell, count, moment, plural
from symphony.cli.options import issue_argument, json_option, print_json, workflow_option
from symphony.cli.render.reasons import condition_lines, tokens_today, unasked

# `symphony explain` for people: the answer first, then the facts behind it, then what happened.


_COLOURS = {"running": "green", "retrying": "yellow", "blocked": "red"}
_SOURCE_FILES = "No daemon is running; this is what the tracker and the files say."


def explain_view(issue: KnownIssue, explanation: Explanation, *, state_dir: Path) -> RenderableType:
    """The whole picture of one issue; paths of logs are below the daemon's state directory."""
    colour = _COLOURS.get(issue.status, "cyan")
    head = Text.assemble(cell(issue.issue_identifier, f"bold {colour}"), "  ", cell(issue.title, "bold"))
    blocks: list[RenderableType] = [head, Text(), cell(explanation.answer)]
    blocks.append(Text.assemble(("Next: ", "bold"), cell(explanation.next)))
    if explanation.advice:
        blocks.append(Text.assemble(("You can: ", "bold"), cell(explanation.advice)))
    blocks += condition_lines(issue)
    if issue.daemon is None:
        blocks.append(Text(_SOURCE_FILES, style="dim"))
    blocks += [Text(), _facts(issue, explanation, state_dir)]
    if issue.recent_events:
        blocks += [Text(), Text("What happened last (UTC)", style="bold"), _events(issue.recent_events)]
    return Group(*blocks)


def _facts(issue: Issue, explanation: Explanation, state_dir: Path) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in {
        **_standing(issue, explanation),
        **_traces(issue, state_dir),
        **_skills(issue),
    }.items():
        if value:
            table.add_row(name, cell(value))
    return table


def _standing(issue: Issue, explanation: Explanation) -> Mapping[str, str | None]:
    run, block, runs = issue.running, issue.blocked, issue.attempts.runs_started
    going, status = run or issue.retry, issue.status
    return {
        "status": status if status == explanation.code else f"{status} ({explanation.code})",
        "state": issue.state,
        "since": explanation.since,
        "attempt": attempt(going) if going else None,
        "runs": f"{runs} since the daemon began" if runs else None,
        "agent": _agent(issue.agent),
        "tokens": count(run.tokens.total_tokens) if run else None,
        "budget": _budget(issue),
        "today": f"{today} tokens used" if (today := tokens_today(issue.budgets)) else None,
        "asks": block.question if block and unasked(block) else None,
        "not obeyed": _not_obeyed(block) if block else None,
        "comments": block.answers_failure.message if block and block.answers_failure else None,
        "resumed": _resumed(run.resumed_from) if run and run.resumed_from else None,
        "said last": run.last_message if run else None,
        "url": issue.issue_url,
    }


def _not_obeyed(block: Block) -> str:
    """Comments that answer nothing, as their authors may not write to the project."""
    return "; ".join(f"{one.author} (no write access): {one.text}" for one in block.not_obeyed)


def _agent(agent: Agent) -> str:
    """Which one has it, or would get it, and why."""
    what = ", ".join(one for one in (agent.kind, agent.model) if one not in {None, agent.name} and one)
    named = f"{agent.name} ({what})" if what else agent.name
    place = f", instead of {agent.instead_of}" if agent.instead_of else ""
    return f"{named}{place}: {agent.reason}"


def _budget(issue: Issue) -> str | None:
    """What the issue used of its own budget; `None` where nothing is limited."""
    tokens, turns = issue.budgets.max_tokens_per_issue, issue.budgets.max_turns_per_issue
    used = []
    if tokens is not None:
        used.append(f"{count(issue.spent.tokens)} of {count(tokens)} tokens")
    if turns is not None:
        used.append(f"{issue.spent.turns} of {plural(turns, 'turn')}")
    return f"{', '.join(used)} used" if used else None


def _resumed(resumed: ResumedFrom) -> str:
    thread = resumed.thread_id
    how = "anew, told what was asked and answered" if thread is None else f"the conversation {thread} goes on"
    return f"after it was {resumed.reason}: {how}"


def _traces(issue: Issue, state_dir: Path) -> Mapping[str, str | None]:
    return {
        "workspace": issue.workspace.path,
        "branch": issue.workspace.branch,
        "last error": issue.last_error,
        "agent's log": next((str(state_dir / one.path) for one in issue.logs.codex_session_logs), None),
    }


def _skills(issue: Issue) -> Mapping[str, str | None]:
    skills = issue.skills
    if skills is None:
        return {}
    return {
        "skills": ", ".join(one.name for one in skills.listed) or "none listed",
        "not listed": ", ".join(_not_listed(skills.dropped)),
        "malformed": ", ".join(_place(one) for one in skills.problems if one.severity == "error"),
    }


def _not_listed(dropped: Iterable[DroppedSkill]) -> Iterator[str]:
    """Each with its reason; those that the session searches may be thousands, so only how many."""
    searched = 0
    for one in dropped:
        if one.reason == "search":
            searched += 1
        else:
            yield f"{one.name} ({one.reason})"
    if searched:
        yield f"{searched} that the session searches"


def _place(problem: SkillProblem) -> str:
    place = "" if problem.line is None else f":{problem.line}"
    return f"{problem.path}{place} ({problem.code})"


def _events(events: Iterable[Event]) -> RenderableType:
    """Oldest first; what happened again and again is told once, with the last time. Times are UTC."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for (name, message), group in groupby(events, lambda one: (one.event, one.message)):
        times = [moment(one.at) for one in group]
        last = times[-1]
        often = f" ({len(times)} times)" if len(times) > 1 else ""
        table.add_row(
            "" if last is None else last.strftime("%H:%M:%S"), cell(name), cell(f"{message}{often}")
        )
    return Padding(table, (0, 0, 0, 2))


_EPILOG = """\b
Examples:
  symphony explain SYM-3
  symphony explain SYM-3 --json | jq -r .explanation.code

Works without a daemon too: then the tracker and the journal are read, and judged as a
daemon would.

Exit codes: 0 explained, 1 there is no such issue, 3 the workflow is invalid, 5 the daemon does not answer.
"""


@click.command(epilog=_EPILOG)
@issue_argument
@json_option
@workflow_option
def explain(*, issue: str, as_json: bool, workflow: Path) -> None:
    """Tell why an issue is running, or is not.

    And what happens next, and what you can do about it.
    """
    # Imported here: `--help` of any command stays fast.
    from msgspec import structs

    from symphony.cli.documents import Explained
    from symphony.cli.queries import Queries, resolve_issue
    from symphony.cli.render.reasons import explained
    from symphony.daemon.state_dir import locate

    facts = Queries(workflow, os.environ)
    found = resolve_issue(issue, facts.issue, facts.identifiers)
    explanation = explained(found)
    if as_json:
        print_json(Explained(**structs.asdict(found), explanation=explanation))
        return
    from symphony.cli.render.status import console_for, print_blocks

    print_blocks(console_for(), explain_view(found, explanation, state_dir=locate(workflow, os.environ)))
