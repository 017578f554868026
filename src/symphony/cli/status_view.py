"""`symphony status` for people: a head, then one block per kind of issue.

Nothing that matters is cut: long texts wrap in their own column. Without a terminal there is no colour, and
the same document gives the same bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from symphony.cli.explanation import UNBLOCK
from symphony.cli.wording import ago, cell, count, lasting, plural, seconds_between
from symphony.domain.failures import Failure

__all__ = ["console_for", "status_view", "trouble_view"]

Document = Mapping[str, Any]

_PIPE_WIDTH: Final = 160
_QUIET_S: Final = 120


def console_for(**options: Any) -> Console:
    """A console on stdout that adds nothing to what it is given; wide where it is a pipe."""
    console = Console(highlight=False, emoji=False, markup=False, **options)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console


def status_view(document: Document, *, workflow: str, max_waiting: int | None = None) -> RenderableType:
    """The whole picture; with `max_waiting`, only so many of those that wait."""
    blocks = [_head(document, workflow)]
    if problems := list(_problems(document)):
        blocks.append(Group(*problems))
    for title, rows, table in (
        ("RUNNING", _rows(document, "running"), _running),
        ("RETRYING", _rows(document, "retrying"), _retrying),
        ("BLOCKED", _rows(document, "blocked"), _blocked),
    ):
        if rows:
            blocks.append(table(title, rows, document))
    waits = _rows(document, "waiting")
    if waits:
        blocks.append(_waiting(waits, max_waiting))
    if not any(_rows(document, kind) for kind in ("running", "retrying", "blocked", "waiting")):
        blocks.append(Text(_nothing(document)))
    return _spaced(blocks)


def trouble_view(failure: Failure) -> RenderableType:
    """What stands there while nothing can be told."""
    hint = [Text.assemble(("→ ", "bold"), cell(failure.hint))] if failure.hint else []
    return Group(Text.assemble(("Nothing can be told now: ", "bold red"), cell(failure.line)), *hint)


# --- the head --------------------------------------------------------------------------------------------


def _head(document: Document, workflow: str) -> RenderableType:
    if document.get("source") != "daemon":
        first = Text.assemble(("No daemon is running", "bold yellow"), " for ", cell(workflow), ".")
        return Group(first, Text("This is what the files say; `symphony run` starts one.", style="dim"))
    daemon, polling = _map(document, "daemon"), _map(document, "polling")
    since = seconds_between(daemon.get("started_at"), document.get("generated_at"))
    word, style = _health(document)
    parts = [f"pid {daemon.get('pid')}", f"up {lasting(since)}", _next_poll(polling)]
    first = Text.assemble((f"Daemon {word}", style), Text(f"  {' · '.join(parts)}"))
    return Group(first, Text(_counts(document), style="dim"))


def _health(document: Document) -> tuple[str, str]:
    match _map(document, "health").get("status"):
        case "ok":
            return "healthy", "bold green"
        case "starting":
            return "starting", "bold cyan"
        case "draining":
            return "ending: running turns may finish, nothing new starts", "bold yellow"
        case _:
            return "in trouble", "bold red"


def _next_poll(polling: Document) -> str:
    if polling.get("checking"):
        return "asking the tracker now"
    due_ms = polling.get("next_poll_in_ms")
    return "no poll due" if due_ms is None else f"next poll in {lasting(due_ms / 1000)}"


def _counts(document: Document) -> str:
    counts, totals = _map(document, "counts"), _map(document, "codex_totals")
    limit = _map(document, "slots").get("limit")
    slots = (
        f"{counts.get('running', 0)} of {plural(limit, 'slot')} used"
        if limit
        else f"{counts.get('running', 0)} running"
    )
    others = [f"{counts.get(kind, 0)} {kind}" for kind in ("retrying", "blocked", "waiting")]
    return " · ".join([slots, *others, f"{count(totals.get('total_tokens'))} tokens"])


def _problems(document: Document) -> Iterator[Text]:
    """What is wrong, in plain words, and what to do."""
    health = _map(document, "health")
    for name, words in (
        (
            "workflow_failure",
            "WORKFLOW.md cannot be used, so nothing new starts and the last good one holds:",
        ),
        ("poll_failure", "The tracker did not answer the last poll:"),
    ):
        failure = health.get(name)
        if isinstance(failure, Mapping):
            yield Text(words, style="red")
            where = f"{failure['where']}: " if failure.get("where") else ""
            yield Text.assemble("  ", cell(f"{where}{failure.get('message')}"))
            if failure.get("hint"):
                yield Text.assemble("  ", ("→ ", "bold"), cell(failure["hint"]))


def _nothing(document: Document) -> str:
    if isinstance(_map(document, "health").get("poll_failure"), Mapping):
        return "Nothing is known of the issues."
    return "Nothing to do: the tracker lists no issue in an active state."


# --- the issues ------------------------------------------------------------------------------------------


def _running(title: str, rows: Sequence[Document], document: Document) -> RenderableType:
    now = document.get("generated_at")
    table = _table(
        title,
        rows,
        "green",
        ("TURN", "right"),
        ("AGE", "right"),
        ("SIGN OF LIFE", "left"),
        ("TOKENS", "right"),
    )
    for row in rows:
        quiet = seconds_between(row.get("last_event_at"), now)
        said = row.get("last_message") or str(row.get("stage") or "").replace("_", " ")
        if row.get("stopping"):
            said = f"stopping: {row['stopping']}"
        table.add_row(
            cell(row.get("issue_identifier"), "green"),
            Text(str(row.get("turn", ""))),
            Text(lasting(seconds_between(row.get("started_at"), now))),
            Text(
                "none yet" if quiet is None else ago(quiet), style="yellow" if (quiet or 0) > _QUIET_S else ""
            ),
            Text(count(_map(row, "tokens").get("total_tokens"))),
            _stack(cell(row.get("title")), cell(said, "dim")),
        )
    return table


def _retrying(title: str, rows: Sequence[Document], document: Document) -> RenderableType:
    table = _table(title, rows, "yellow", ("ATTEMPT", "right"), ("DUE IN", "right"))
    for row in rows:
        wait = seconds_between(document.get("generated_at"), row.get("due_at"))
        error = row.get("error")
        why = f"after: {error}" if error else "the last attempt ended well; it is looked at once more"
        table.add_row(
            cell(row.get("issue_identifier"), "yellow"),
            Text(str(row.get("attempt", ""))),
            Text("now" if wait is not None and wait <= 0 else lasting(wait)),
            _stack(cell(row.get("title")), cell(why, "dim")),
        )
    return table


def _blocked(title: str, rows: Sequence[Document], document: Document) -> RenderableType:
    table = _table(title, rows, "red", ("SINCE", "right"))
    for row in rows:
        failure = row.get("failure")
        hint = failure.get("hint") if isinstance(failure, Mapping) else None
        table.add_row(
            cell(row.get("issue_identifier"), "red"),
            Text(lasting(seconds_between(row.get("blocked_at"), document.get("generated_at")))),
            _stack(
                cell(row.get("title")),
                cell(row.get("error"), "red"),
                Text.assemble(("→ ", "bold"), cell(hint or UNBLOCK)),
            ),
        )
    return table


def _waiting(rows: Sequence[Document], most: int | None) -> RenderableType:
    shown = rows if most is None else rows[:most]
    table = _table("WAITING", shown, "cyan")
    for row in shown:
        table.add_row(
            cell(row.get("issue_identifier"), "cyan"),
            _stack(cell(row.get("title")), cell(_map(row, "reason").get("message"), "dim")),
        )
    if len(shown) < len(rows):
        more = f"and {len(rows) - len(shown)} more; `symphony status` without --watch lists all"
        return Group(table, Text(more, style="dim"))
    return table


def _table(title: str, rows: Iterable[Document], style: str, *columns: tuple[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=f"bold {style}")
    widest = max((len(cell(row.get("issue_identifier")).plain) for row in rows), default=0)
    table.add_column(title, min_width=max(len("RETRYING"), min(widest, 20)), max_width=40, overflow="fold")
    for name, justify in columns:
        table.add_column(name, justify=justify, no_wrap=True)
    table.add_column("", overflow="fold", ratio=1)
    return table


def _stack(*texts: Text) -> Text:
    return Text("\n").join(text for text in texts if text.plain)


def _spaced(blocks: Sequence[RenderableType]) -> RenderableType:
    spaced: list[RenderableType] = []
    for block in blocks:
        spaced += [Text(""), block] if spaced else [block]
    return Group(*spaced)


def _rows(document: Document, kind: str) -> Sequence[Document]:
    found = document.get(kind)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def _map(document: Document, name: str) -> Document:
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}
