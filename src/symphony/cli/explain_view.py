"""`symphony explain` for people: the answer first, then the facts behind it, then what happened."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from symphony.cli.conditions_view import condition_lines, tokens_today
from symphony.cli.explanation import Explanation, unasked
from symphony.cli.wording import cell, count, moment, plural

__all__ = ["explain_view"]

Document = Mapping[str, Any]

_COLOURS = {"running": "green", "retrying": "yellow", "blocked": "red"}
_SOURCE_FILES = "No daemon is running; this is what the tracker and the files say."


def explain_view(document: Document, explanation: Explanation, *, state_dir: Path) -> RenderableType:
    """The whole picture of one issue; paths of logs are below the daemon's state directory."""
    colour = _COLOURS.get(str(document.get("status")), "cyan")
    head = Text.assemble(
        cell(document.get("issue_identifier"), f"bold {colour}"), "  ", cell(document.get("title"), "bold")
    )
    blocks: list[RenderableType] = [head, Text(), cell(explanation.answer)]
    blocks.append(Text.assemble(("Next: ", "bold"), cell(explanation.next)))
    if explanation.advice:
        blocks.append(Text.assemble(("You can: ", "bold"), cell(explanation.advice)))
    blocks += condition_lines(document)
    if document.get("daemon") is None:
        blocks.append(Text(_SOURCE_FILES, style="dim"))
    blocks += [Text(), _facts(document, explanation, state_dir)]
    if events := document.get("recent_events"):
        blocks += [Text(), Text("What happened last (UTC)", style="bold"), _events(events)]
    return Group(*blocks)


def _facts(document: Document, explanation: Explanation, state_dir: Path) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    facts = {**_standing(document, explanation), **_traces(document, state_dir), **_skills(document)}
    for name, value in facts.items():
        if value not in {None, ""}:
            table.add_row(name, cell(value))
    return table


def _standing(document: Document, explanation: Explanation) -> dict[str, Any]:
    attempts, run = _part(document, "attempts"), _part(document, "running")
    blocked = _part(document, "blocked")
    return {
        "status": _status(document.get("status"), explanation.code),
        "state": document.get("state"),
        "since": explanation.since,
        "attempt": _attempt(attempts),
        "agent": _agent(_part(document, "agent")),
        "tokens": count(_part(run, "tokens").get("total_tokens")) if run else None,
        "budget": _budget(document),
        "today": f"{today} tokens used" if (today := tokens_today(document)) else None,
        "asks": blocked.get("question") if unasked(blocked) else None,
        "resumed": _resumed(_part(run, "resumed_from")),
        "said last": run.get("last_message"),
        "url": document.get("issue_url"),
    }


def _status(status: Any, code: str) -> str:
    return code if status == code else f"{status} ({code})"


def _attempt(attempts: Document) -> str | None:
    current, runs = attempts.get("current_retry_attempt") or 0, attempts.get("runs_started") or 0
    if not current and not runs:
        return None
    number = "first" if not current else f"number {current}"
    return f"{number}; runs since the daemon began: {runs}"


def _agent(agent: Document) -> str | None:
    """Who has it, or would get it, and why."""
    if not agent:
        return None
    told = [agent.get("kind"), agent.get("model")]
    what = ", ".join(str(one) for one in told if one not in {None, agent.get("name")})
    named = f"{agent.get('name')} ({what})" if what else str(agent.get("name"))
    place = f", instead of {agent['instead_of']}" if agent.get("instead_of") else ""
    return f"{named}{place}: {agent.get('reason')}"


def _budget(document: Document) -> str | None:
    """What the issue used of its own budget; null where nothing is limited."""
    budgets, spent = _part(document, "budgets"), _part(document, "spent")
    tokens, turns = budgets.get("max_tokens_per_issue"), budgets.get("max_turns_per_issue")
    used = []
    if tokens is not None:
        used.append(f"{count(spent.get('tokens'))} of {count(tokens)} tokens")
    if turns is not None:
        used.append(f"{spent.get('turns', 0)} of {plural(turns, 'turn')}")
    return f"{', '.join(used)} used" if used else None


def _resumed(resumed: Document) -> str | None:
    if not resumed:
        return None
    thread = resumed.get("thread_id")
    how = "anew, told what was asked and answered" if thread is None else f"the conversation {thread} goes on"
    return f"after it was {resumed.get('reason')}: {how}"


def _traces(document: Document, state_dir: Path) -> dict[str, Any]:
    workspace, logs = _part(document, "workspace"), _items(_part(document, "logs"), "codex_session_logs")
    return {
        "workspace": workspace.get("path"),
        "branch": workspace.get("branch"),
        "last error": document.get("last_error"),
        "agent's log": next((str(state_dir / str(one.get("path"))) for one in logs), None),
    }


def _skills(document: Document) -> dict[str, Any]:
    skills = document.get("skills")
    if not isinstance(skills, Mapping):
        return {}
    malformed = [one for one in _items(skills, "problems") if one.get("severity") == "error"]
    return {
        "skills": ", ".join(_names(skills, "listed")) or "none listed",
        "not listed": ", ".join(_not_listed(_items(skills, "dropped"))),
        "malformed": ", ".join(_place(one) for one in malformed),
    }


def _not_listed(dropped: Iterable[Document]) -> Iterator[str]:
    """Each with its reason; those that the session searches may be thousands, so only how many."""
    searched = 0
    for one in dropped:
        if one.get("reason") == "search":
            searched += 1
        else:
            yield f"{one.get('name')} ({one.get('reason')})"
    if searched:
        yield f"{searched} that the session searches"


def _place(problem: Document) -> str:
    place = "" if problem.get("line") is None else f":{problem['line']}"
    return f"{problem.get('path')}{place} ({problem.get('code')})"


def _events(events: Iterable[Document]) -> RenderableType:
    """Oldest first; what happened again and again is told once, with the last time. Times are UTC."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for (name, message), group in groupby(events, lambda one: (one.get("event"), one.get("message"))):
        times = [moment(one.get("at")) for one in group]
        last = times[-1]
        often = f" ({len(times)} times)" if len(times) > 1 else ""
        table.add_row(
            "" if last is None else last.strftime("%H:%M:%S"), cell(name), cell(f"{message or ''}{often}")
        )
    return Padding(table, (0, 0, 0, 2))


def _names(skills: Document, kind: str) -> Iterator[str]:
    found = skills.get(kind)
    for one in found if isinstance(found, list) else []:
        yield str(one.get("name")) if isinstance(one, Mapping) else str(one)


def _items(document: Document, name: str) -> list[Document]:
    found = document.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _part(document: Document, name: str) -> Document:
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}
