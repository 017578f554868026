"""`symphony status` for people: a head, then one block per kind of issue.

Nothing that matters is cut: long texts wrap in their own column. Only a screen that has no room for that
(`status_screen`) asks for the brief form, which says what it leaves out. Without a terminal there is no
colour, and the same document gives the same bytes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from symphony.cli.conditions_view import condition_lines, tokens_today
from symphony.cli.explanation import after, remedy, unasked
from symphony.cli.wording import ago, cell, count, lasting, plural, seconds_between
from symphony.domain.failures import Category, Failure

__all__ = [
    "KINDS",
    "Most",
    "console_for",
    "head_view",
    "lines_per_row",
    "rows",
    "show",
    "status_view",
    "trouble_view",
]

Document = Mapping[str, Any]
Most = Mapping[str, int]
"""By kind, how many issues there is room for; each of them then gets as few lines as possible."""

_Column = tuple[str, Literal["left", "right"]]

KINDS: Final = ("running", "retrying", "blocked", "waiting")
"""In the order in which they are shown."""

_PIPE_WIDTH: Final = 160
_WIDE: Final = 100
_NARROW: Final = 72
_ID_WIDTH: Final = 8
_QUIET_S: Final = 120
_FEW: Final = 3


def console_for(**options: Any) -> Console:
    """A console on stdout that adds nothing to what it is given; wide where it is a pipe."""
    console = Console(highlight=False, emoji=False, markup=False, **options)
    if not console.is_terminal and "width" not in options:
        console.width = _PIPE_WIDTH
    return console


def show(console: Console, *pictures: RenderableType) -> None:
    """Print, without blanks at the ends of lines."""
    with console.capture() as captured:
        console.print(*pictures, sep="\n")
    lines = captured.get().splitlines()
    console.file.write("".join(f"{line.rstrip()}\n" for line in lines))
    console.file.flush()


def status_view(document: Document, *, workflow: str, width: int, most: Most | None = None) -> RenderableType:
    """The whole picture, for so many columns; with `most` the brief one, on which every text has one line."""
    now = document.get("generated_at")
    blocks = [head_view(document, workflow=workflow, brief=most is not None)]
    for kind in KINDS:
        found = rows(document, kind)
        if shown := found if most is None else found[: most[kind]]:
            block = _BLOCKS[kind](
                shown, now, _Space(width=width, brief=most is not None, agents=_many(document))
            )
            blocks.append(_with_the_rest(block.table, len(found) - len(shown), kind))
    if not any(rows(document, kind) for kind in KINDS):
        blocks.append(Text(_nothing(document)))
    return _spaced(blocks)


def head_view(document: Document, *, workflow: str, brief: bool = False) -> RenderableType:
    """What stands above the issues: how the daemon is, and what is wrong."""
    few = _FEW if brief else None
    problems = [*_problems(document), *condition_lines(document), *_skipped(document, few)]
    return _spaced([_head(document, workflow), *([Group(*problems)] if problems else [])])


def rows(document: Document, kind: str) -> Sequence[Document]:
    """The issues of one kind."""
    found = document.get(kind)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def lines_per_row(kind: str, width: int) -> int:
    """How many lines an issue takes in the brief form, at most."""
    words = 2 if kind == "blocked" else 1
    if width >= _WIDE:
        return words
    return words + (2 if width < _NARROW else 1)


def trouble_view(failure: Failure) -> RenderableType:
    """What stands there while nothing can be told."""
    hint = [Text.assemble(("→ ", "bold"), cell(failure.hint))] if failure.hint else []
    words = failure.message if failure.category is Category.COMMAND else failure.line
    return Group(Text.assemble(("Nothing can be told now: ", "bold red"), cell(words)), *hint)


# --- the head --------------------------------------------------------------------------------------------


def _head(document: Document, workflow: str) -> RenderableType:
    if document.get("source") != "daemon":
        first = Text.assemble(("No daemon is running", "bold yellow"), " for ", cell(workflow), ".")
        notice = [cell(document["notice"], "yellow")] if document.get("notice") else []
        then = Text("This is what the files say; `symphony run` starts one.", style="dim")
        return Group(first, *notice, then)
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
    today = tokens_today(document)
    tokens = f"{count(totals.get('total_tokens'))} tokens{f', {today} today' if today else ''}"
    return " · ".join([slots, *others, tokens])


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


def _skipped(document: Document, most: int | None) -> Iterator[Text]:
    """The issues of which nothing can be told, because their records cannot be read."""
    found = rows(_map(document, "health"), "skipped_records")
    if not found:
        return
    yield Text(
        f"The tracker could not read {plural(len(found), 'issue')}, so nothing starts there:", style="red"
    )
    for row in found[:most]:
        where = f"{row['where']}: " if row.get("where") else ""
        yield Text.assemble("  ", cell(f"{where}{row.get('message')}"))
    if (left_out := len(found) - len(found[:most])) > 0:
        yield Text(f"  and {left_out} more; `symphony status` lists all", style="dim")
    for hint in dict.fromkeys(row["hint"] for row in found if row.get("hint")):
        yield Text.assemble("  ", ("→ ", "bold"), cell(hint))


def _nothing(document: Document) -> str:
    health = _map(document, "health")
    if isinstance(health.get("poll_failure"), Mapping):
        return "Nothing is known of the issues."
    if health.get("skipped_records"):
        return "Nothing else to do: no other issue is in an active state."
    return "Nothing to do: the tracker lists no issue in an active state."


# --- the issues ------------------------------------------------------------------------------------------


def _running(rows: Sequence[Document], now: Any, space: "_Space") -> "_Block":
    columns: list[_Column] = [
        *_agent_column(space),
        ("TURN", "right"),
        ("AGE", "right"),
        ("SIGN OF LIFE", "left"),
        ("TOKENS", "right"),
    ]
    block = _Block("RUNNING", rows, "green", columns, "LAST WORD", space)
    for row in rows:
        quiet = seconds_between(row.get("last_event_at"), now)
        said = row.get("last_message") or str(row.get("stage") or "").replace("_", " ")
        if row.get("stopping"):
            said = f"stopping: {row['stopping']}"
        block.add(
            row,
            *_agent_fact(row, space),
            Text(str(row.get("turn", ""))),
            Text(lasting(seconds_between(row.get("started_at"), now))),
            Text(
                "none yet" if quiet is None else ago(quiet), style="yellow" if (quiet or 0) > _QUIET_S else ""
            ),
            Text(count(_map(row, "tokens").get("total_tokens"))),
            words=[cell(said, "dim")],
        )
    return block


def _retrying(rows: Sequence[Document], now: Any, space: "_Space") -> "_Block":
    block = _Block(
        "RETRYING",
        rows,
        "yellow",
        (*_agent_column(space), ("ATTEMPT", "right"), ("DUE IN", "right")),
        "WHY",
        space,
    )
    for row in rows:
        wait, error = seconds_between(now, row.get("due_at")), after(row.get("error"), row.get("last_error"))
        why = f"after: {error}" if error else "it goes on, if it is still active"
        block.add(
            row,
            *_agent_fact(row, space),
            Text(str(row.get("attempt", ""))),
            Text("now" if wait is not None and wait <= 0 else lasting(wait)),
            words=[cell(why, "dim")],
        )
    return block


def _blocked(rows: Sequence[Document], now: Any, space: "_Space") -> "_Block":
    block = _Block("BLOCKED", rows, "red", (("FOR", "right"),), "WHY, AND WHAT TO DO", space)
    for row in rows:
        asks = f"; it asks: {row['question']}" if unasked(row) else ""
        block.add(
            row,
            Text(lasting(seconds_between(row.get("blocked_at"), now))),
            words=[
                cell(f"{row.get('error')}{asks}", "red"),
                Text.assemble(("→ ", "bold"), cell(remedy(row))),
            ],
        )
    return block


def _waiting(rows: Sequence[Document], _now: Any, space: "_Space") -> "_Block":
    block = _Block("WAITING", rows, "cyan", (("STATE", "left"), *_agent_column(space)), "WHY", space)
    for row in rows:
        why = cell(_map(row, "reason").get("message"), "dim")
        block.add(row, cell(row.get("state")), *_agent_fact(row, space), words=[why])
    return block


def _many(document: Document) -> bool:
    """Whether there is more than one agent to tell apart."""
    agents = document.get("agents")
    return isinstance(agents, list) and len(agents) > 1


def _agent_column(space: "_Space") -> tuple[_Column, ...]:
    return (("AGENT", "left"),) if space.agents else ()


def _agent_fact(row: Document, space: "_Space") -> tuple[Text, ...]:
    """Its name; a star says that it takes the place of another."""
    agent = _map(row, "agent")
    star = "*" if agent.get("instead_of") else ""
    return (cell(f"{agent.get('name')}{star}"),) if space.agents else ()


def _with_the_rest(table: Table, left_out: int, kind: str) -> RenderableType:
    if not left_out:
        return table
    words = f"and {left_out} more {kind}; `symphony status` lists all"
    return Group(table, Text(words, style="dim", no_wrap=True, overflow="ellipsis"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Space:
    """How much room there is.

    Attributes:
        width: columns of the screen.
        brief: whether each text has to do with one line.
        agents: whether it is told which agent each issue has.
    """

    width: int
    brief: bool
    agents: bool = False


class _Block:
    """The issues of one kind, drawn for the columns there are.

    Wide: facts, title and words each in a column. Else the words stand below the title, and on a very narrow
    terminal the facts too, because columns would leave no room for a word.
    """

    def __init__(
        self,
        title: str,
        rows: Sequence[Document],
        style: str,
        facts: Sequence[_Column],
        words: str,
        space: _Space,
    ) -> None:
        self._style, self._brief = style, space.brief
        self._wide, self._narrow = space.width >= _WIDE, space.width < _NARROW
        self._names = [name.lower() for name, _ in facts]
        self.table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=f"bold {style}")
        widest = max((len(cell(row.get("issue_identifier")).plain) for row in rows), default=0)
        self.table.add_column(title, min_width=max(_ID_WIDTH, min(widest, 2 * _ID_WIDTH)), overflow="fold")
        for name, justify in () if self._narrow else facts:
            self.table.add_column(name, justify=justify, overflow="fold")
        self.table.add_column("TITLE", overflow="fold", ratio=2)
        if self._wide:
            self.table.add_column(words, overflow="fold", ratio=3)

    def add(self, row: Document, *facts: Text, words: Sequence[Text]) -> None:
        """One issue."""
        identifier, title = cell(row.get("issue_identifier"), self._style), cell(row.get("title"))
        said = [text for text in words if text.plain]
        if self._wide:
            self.table.add_row(identifier, *facts, self._lines(title), self._lines(*said))
        elif self._narrow:
            named = (Text(f"{name} ") + fact for name, fact in zip(self._names, facts, strict=True))
            self.table.add_row(identifier, self._lines(title, Text(" · ").join(named), *said))
        else:
            self.table.add_row(identifier, *facts, self._lines(title, *said))

    def _lines(self, *texts: Text) -> Text:
        lines = Text("\n").join(texts)
        if self._brief:
            lines.no_wrap, lines.overflow = True, "ellipsis"
        return lines


_BLOCKS: Final[Mapping[str, Callable[[Sequence[Document], Any, _Space], _Block]]] = {
    "running": _running,
    "retrying": _retrying,
    "blocked": _blocked,
    "waiting": _waiting,
}


def _spaced(blocks: Sequence[RenderableType]) -> RenderableType:
    spaced: list[RenderableType] = []
    for block in blocks:
        spaced += [Text(""), block] if spaced else [block]
    return Group(*spaced)


def _map(document: Document, name: str) -> Document:
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}
