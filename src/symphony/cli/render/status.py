"""`symphony status` on a terminal: what of a status fits one screen.

All of it where it fits. Else each text gets one line; and where that is too much as well, every kind of issue
shows as many rows as there is room for and says how many it leaves out. Issues that need a person are the
last to go; the head counts even those of which nothing is shown.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from symphony.api.models import (
    BlockedRow,
    DaemonHealth,
    Polling,
    ReadyRow,
    RetryingRow,
    Row,
    RunningRow,
    State,
    WaitingRow,
)
from symphony.cli.documents import Status
from symphony.cli.formatting import ago, attempt, cell, count, lasting, plural, seconds_between
from symphony.cli.render.reasons import after, condition_lines, remedy, tokens_today, unasked
from symphony.domain import Category, Failure, natural_order

# `symphony status` for people: a head, then one block per kind of issue.
#
# Nothing that matters is cut: long texts wrap in their own column. Only a screen that has no room for that
# (`status_screen`) asks for the brief form. What is left out is counted. Without a terminal there is no
# colour, and the same document gives the same bytes. Issues stand in the order of their identifiers; where
# not all of a kind are shown, the first of the document are.


Most = Mapping[str, int]
"""By kind, how many issues there is room for; a kind that is not named has room for all."""

_Column = tuple[str, Literal["left", "right"]]

KINDS: Final = ("running", "retrying", "blocked", "ready", "waiting")
"""In the order in which they are shown."""

_ATTEMPT: Final[_Column] = ("ATTEMPT", "right")
_DUE_IN: Final[_Column] = ("DUE IN", "right")
_PIPE_WIDTH: Final = 160
_WIDE: Final = 100
_NARROW: Final = 72
_ID_WIDTH: Final = 8
_QUIET_S: Final = 120
_NONE_SELECTED: Final = "No issue is in a state and has a code that was asked for."
_FEW: Final = 3
_MANY: Final = 10
_WAITS: Final = {
    "no_slot": "no free slot",
    "no_state_slot": "no free slot in their state",
    "not_dispatchable": "held back in the tracker",
    "label_missing": "without a required label",
    "blocker_running": "behind a run that has not ended",
    "same_identifier": "behind an issue of the same name",
    "workflow_invalid": "for a usable WORKFLOW.md",
    "draining": "for the next daemon",
    "paused": "for `symphony resume`",
    "day_budget": "for tomorrow's budget",
    "agent_limited": "for an agent that is limited",
    "starting": "about to start",
    "deferred": "for the next poll",
}
"""What issues wait for, by the code of the reason; other codes stand for themselves."""


def console_for(**options: Any) -> Console:
    """A console on stdout that adds nothing to what it is given; wide where it is a pipe."""
    console = Console(highlight=False, emoji=False, markup=False, **options)
    if not console.is_terminal and "width" not in options:
        console.width = _PIPE_WIDTH
    return console


def print_blocks(console: Console, *pictures: RenderableType) -> None:
    """Print, without blanks at the ends of lines."""
    with console.capture() as captured:
        console.print(*pictures, sep="\n")
    lines = captured.get().splitlines()
    console.file.write("".join(f"{line.rstrip()}\n" for line in lines))
    console.file.flush()


def status_view(
    document: Status,
    *,
    workflow: str,
    width: int,
    most: Most | None = None,
    brief: bool = False,
    selected: bool = False,
) -> RenderableType:
    """The picture for so many columns, of so many issues.

    `brief`: every text has one line. `selected`: the document has only issues that somebody asked for.
    """
    space = _Space(width=width, brief=brief, agents=len(document.agents) > 1)
    blocks = [head_view(document, workflow=workflow, brief=brief)]
    for kind in KINDS:
        found = rows(document, kind)
        shown = found[: (most or {}).get(kind)]
        if shown:
            shown = sorted(shown, key=lambda row: natural_order(row.issue_identifier))
            block = _BLOCKS[kind](shown, document.generated_at, space)
            rest = len(found) - len(shown) + left_out(document, kind)
            blocks.append(_with_the_rest(block.table, rest, kind))
    if not any(rows(document, kind) for kind in KINDS):
        blocks.append(Text(_NONE_SELECTED if selected else _nothing(document.health)))
    return _spaced(blocks)


def head_view(document: Status, *, workflow: str, brief: bool = False) -> RenderableType:
    """What stands above the issues: how the daemon is, and what is wrong."""
    few = _FEW if brief else None
    problems = [*_problems(document.health), *condition_lines(document), *_skipped(document.health, few)]
    return _spaced([_head(document, workflow), *([Group(*problems)] if problems else [])])


def rows(state: State, kind: str) -> Sequence[Row]:
    """The issues of one of the kinds."""
    found: Sequence[Row] = getattr(state, kind)
    return found


def left_out(state: State, kind: str) -> int:
    """How many issues of a kind the document itself has left out."""
    return state.waiting_left_out if kind == "waiting" else 0


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


def _head(document: Status, workflow: str) -> RenderableType:
    if document.daemon is None or document.source != "daemon":
        first = Text.assemble(("No daemon is running", "bold yellow"), " for ", cell(workflow), ".")
        notice = [cell(document.notice, "yellow")] if document.notice else []
        then = Text("This is what the files say; `symphony run` starts one.", style="dim")
        return Group(first, *notice, then, *_waits(document))
    since = seconds_between(document.daemon.started_at, document.generated_at)
    word, style = _health(document.health)
    parts = [f"pid {document.daemon.pid}", f"up {lasting(since)}", _next_poll(document.polling)]
    first = Text.assemble((f"Daemon {word}", style), Text(f"  {' · '.join(parts)}"))
    return Group(first, Text(_counts(document), style="dim"), *_waits(document))


def _health(health: DaemonHealth) -> tuple[str, str]:
    match health.status:
        case "ok":
            return "healthy", "bold green"
        case "starting":
            return "starting", "bold cyan"
        case "draining":
            return "ending: running turns may finish, nothing new starts", "bold yellow"
        case _:
            return "in trouble", "bold red"


def _next_poll(polling: Polling) -> str:
    if polling.checking:
        return "asking the tracker now"
    due_ms = polling.next_poll_in_ms
    return "no poll due" if due_ms is None else f"next poll in {lasting(due_ms / 1000)}"


def _counts(state: State) -> str:
    counts, limit = state.counts, state.slots.limit
    slots = f"{counts.running} of {plural(limit, 'slot')} used" if limit else f"{counts.running} running"
    others = [f"{counts.retrying:,} retrying", f"{counts.blocked:,} blocked", f"{counts.waiting:,} waiting"]
    if counts.ready:
        others.append(f"{counts.ready:,} ready for review")
    today = tokens_today(state.budgets)
    tokens = f"{count(state.codex_totals.total_tokens)} tokens{f', {today} today' if today else ''}"
    return " · ".join([slots, *others, tokens])


def _waits(state: State) -> Iterator[Text]:
    """How many issues wait for what, where they are too many to count at a glance."""
    counted = state.waiting_by_reason
    total = sum(counted.values())
    if total > _MANY:
        parts = [
            f"{number:,} {_WAITS.get(code, code)}"
            for code, number in sorted(counted.items(), key=lambda item: -item[1])
        ]
        yield cell(f"{total:,} wait: {', '.join(parts)}", "cyan")


def _problems(health: DaemonHealth) -> Iterator[Text]:
    """What is wrong, in plain words, and what to do."""
    invalid = "WORKFLOW.md cannot be used, so nothing new starts and the last good one holds:"
    silent = "The tracker did not answer the last poll:"
    for failure, words in ((health.workflow_failure, invalid), (health.poll_failure, silent)):
        if failure is not None:
            yield Text(words, style="red")
            where = f"{failure.where}: " if failure.where else ""
            yield Text.assemble("  ", cell(f"{where}{failure.message}"))
            if failure.hint:
                yield Text.assemble("  ", ("→ ", "bold"), cell(failure.hint))


def _skipped(health: DaemonHealth, most: int | None) -> Iterator[Text]:
    """The issues of which nothing can be told, because their records cannot be read."""
    found = health.skipped_records
    if not found:
        return
    yield Text(
        f"The tracker could not read {plural(len(found), 'issue')}, so nothing starts there:", style="red"
    )
    for record in found[:most]:
        where = f"{record.where}: " if record.where else ""
        yield Text.assemble("  ", cell(f"{where}{record.message}"))
    if (rest := len(found) - len(found[:most])) > 0:
        yield Text(f"  and {rest} more; `symphony status --all-issues` lists all", style="dim")
    for hint in dict.fromkeys(record.hint for record in found if record.hint):
        yield Text.assemble("  ", ("→ ", "bold"), cell(hint))


def _nothing(health: DaemonHealth) -> str:
    if health.poll_failure is not None:
        return "Nothing is known of the issues."
    if health.skipped_records:
        return "Nothing else to do: no other issue is in an active state."
    return "Nothing to do: the tracker lists no issue in an active state."


# --- the issues ------------------------------------------------------------------------------------------


def _running(rows: Sequence[RunningRow], now: str, space: "_Space") -> "_Block":
    again = any(row.attempt for row in rows)
    columns: list[_Column] = [
        *_agent_column(space),
        *([_ATTEMPT] if again else []),
        ("TURN", "right"),
        ("AGE", "right"),
        ("SIGN OF LIFE", "left"),
        ("TOKENS", "right"),
    ]
    block = _Block("RUNNING", rows, "green", columns, "LAST WORD", space)
    for row in rows:
        quiet = seconds_between(row.last_event_at, now)
        said = row.last_message or row.stage.replace("_", " ")
        if row.stopping:
            said = f"stopping: {row.stopping}"
        block.add(
            row,
            *_agent_fact(row, space),
            *([Text(attempt(row))] if again else []),
            Text(str(row.turn)),
            Text(lasting(seconds_between(row.started_at, now))),
            Text(
                "none yet" if quiet is None else ago(quiet), style="yellow" if (quiet or 0) > _QUIET_S else ""
            ),
            Text(count(row.tokens.total_tokens)),
            words=[cell(said, "dim")],
        )
    return block


def _retrying(rows: Sequence[RetryingRow], now: str, space: "_Space") -> "_Block":
    facts = (*_agent_column(space), _ATTEMPT, _DUE_IN)
    block = _Block("RETRYING", rows, "yellow", facts, "WHY", space)
    for row in rows:
        wait, error = seconds_between(now, row.due_at), after(row, row.last_error)
        why = f"after: {error}" if error else "it goes on, if it is still active"
        block.add(
            row,
            *_agent_fact(row, space),
            Text(attempt(row)),
            Text("now" if wait is not None and wait <= 0 else lasting(wait)),
            words=[cell(why, "dim")],
        )
    return block


def _blocked(rows: Sequence[BlockedRow], now: str, space: "_Space") -> "_Block":
    block = _Block("BLOCKED", rows, "red", (("FOR", "right"),), "WHY, AND WHAT TO DO", space)
    for row in rows:
        asks = f"; it asks: {row.question}" if unasked(row) else ""
        way = remedy(row, row.issue_identifier, row.issue_url)
        block.add(
            row,
            Text(lasting(seconds_between(row.blocked_at, now))),
            words=[cell(f"{row.error}{asks}", "red"), Text.assemble(("→ ", "bold"), cell(way))],
        )
    return block


def _ready(rows: Sequence[ReadyRow], now: str, space: "_Space") -> "_Block":
    facts: tuple[_Column, ...] = (
        ("STATE", "left"),
        ("COMMITS", "right"),
        ("LINES", "right"),
        ("SINCE", "right"),
    )
    block = _Block("READY FOR REVIEW", rows, "green", facts, "BRANCH, AND WHAT THE AGENT SAID", space)
    for row in rows:
        pushed = {"pushed": " (pushed)", "failed": " (not pushed)"}.get(row.push or "", "")
        said = f": {row.summary}" if row.summary else ""
        block.add(
            row,
            cell(row.state),
            Text(str(row.commits)),
            Text(f"+{row.insertions} -{row.deletions}"),
            Text(ago(seconds_between(row.ended_at, now))),
            words=[cell(f"{row.branch}{pushed}{said}")],
        )
    return block


def _waiting(rows: Sequence[WaitingRow], _now: str, space: "_Space") -> "_Block":
    block = _Block("WAITING", rows, "cyan", (("STATE", "left"), *_agent_column(space)), "WHY", space)
    for row in rows:
        why = cell(row.reason.message, "dim")
        block.add(row, cell(row.state), *_agent_fact(row, space), words=[why])
    return block


def _agent_column(space: "_Space") -> tuple[_Column, ...]:
    return (("AGENT", "left"),) if space.agents else ()


def _agent_fact(row: RunningRow | RetryingRow | WaitingRow, space: "_Space") -> tuple[Text, ...]:
    """Its name; a star says that it takes the place of another."""
    star = "*" if row.agent.instead_of else ""
    return (cell(f"{row.agent.name}{star}"),) if space.agents else ()


def _with_the_rest(table: Table, rest: int, kind: str) -> RenderableType:
    if not rest:
        return table
    words = f"and {rest:,} more {kind}; `symphony status --all-issues` lists all"
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
        rows: Sequence[Row],
        style: str,
        facts: Sequence[_Column],
        words: str,
        space: _Space,
    ) -> None:
        self._style, self._brief = style, space.brief
        self._wide, self._narrow = space.width >= _WIDE, space.width < _NARROW
        self._names = [name.lower() for name, _ in facts]
        self.table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=f"bold {style}")
        widest = max((len(cell(row.issue_identifier).plain) for row in rows), default=0)
        self.table.add_column(title, min_width=max(_ID_WIDTH, min(widest, 2 * _ID_WIDTH)), overflow="fold")
        for name, justify in () if self._narrow else facts:
            self.table.add_column(name, justify=justify, overflow="fold")
        self.table.add_column("TITLE", overflow="fold", ratio=2)
        if self._wide:
            self.table.add_column(words, overflow="fold", ratio=3)

    def add(self, row: Row, *facts: Text, words: Sequence[Text]) -> None:
        """One issue."""
        identifier, title = cell(row.issue_identifier, self._style), cell(row.title)
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


_BLOCKS: Final[Mapping[str, Callable[[Any, str, _Space], _Block]]] = {
    "running": _running,
    "retrying": _retrying,
    "blocked": _blocked,
    "ready": _ready,
    "waiting": _waiting,
}


def _spaced(blocks: Sequence[RenderableType]) -> RenderableType:
    spaced: list[RenderableType] = []
    for block in blocks:
        spaced += [Text(""), block] if spaced else [block]
    return Group(*spaced)


_BY_IMPORTANCE: Final = ("blocked", "retrying", "running", "ready", "waiting")
_BLOCK_LINES: Final = 2
"""A blank line and a heading."""
_REST_LINES: Final = 1
"""How many are left out."""


def status_screen(
    console: Console,
    document: Status,
    *,
    workflow: str,
    selected: bool = False,
    keep_free: int = 0,
) -> RenderableType:
    """The picture for a console that is so high and wide, with so many lines kept free."""
    width, height = console.width, console.height - keep_free
    counts = {kind: len(rows(document, kind)) for kind in KINDS}
    beyond = {kind: left_out(document, kind) for kind in KINDS}
    if sum(counts.values()) + sum(beyond.values()) <= height:
        whole = status_view(document, workflow=workflow, width=width, selected=selected)
        if _height(console, whole) <= height:
            return whole
    room = height - _height(console, head_view(document, workflow=workflow, brief=True))
    most = _shared_out(counts, beyond, room, width)
    return status_view(document, workflow=workflow, width=width, most=most, brief=True, selected=selected)


def _shared_out(
    counts: Mapping[str, int], beyond: Mapping[str, int], room: int, width: int
) -> dict[str, int]:
    """How many issues of each kind, by importance: one of each that fits, and then as many as there are.

    `beyond` are those that are not at hand, so that a line says at least how many they are.
    """
    all_lines = sum(
        _BLOCK_LINES + counts[kind] * lines_per_row(kind, width) + (_REST_LINES if beyond[kind] else 0)
        for kind in KINDS
        if counts[kind]
    )
    if all_lines <= room:
        return dict(counts)
    most = dict.fromkeys(counts, 0)
    for kind in _BY_IMPORTANCE:
        least = (
            _BLOCK_LINES
            + lines_per_row(kind, width)
            + (_REST_LINES if counts[kind] + beyond[kind] > 1 else 0)
        )
        if counts[kind] and room >= least:
            most[kind] = 1
            room -= least
    for kind in _BY_IMPORTANCE:
        if most[kind]:
            more = min(counts[kind] - 1, room // lines_per_row(kind, width))
            most[kind] += more
            room -= more * lines_per_row(kind, width)
    return most


def _height(console: Console, picture: RenderableType) -> int:
    return len(console.render_lines(picture, pad=False))
