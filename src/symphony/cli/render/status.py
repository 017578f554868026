"""`symphony status`: a head that says how the daemon is, then one section per kind of issue.

Nothing that matters is cut: long texts wrap in their own column. Only a screen without room for that gets one
line per text, and if that is too much as well, as many rows of each kind as fit. Rows that are left out are
counted. The sections are in the order of the page: first what needs a person, then what runs, then what
waits. Issues that need a person are the last to be left out. Issues are shown in the order of their
identifiers; if not all of a kind are shown, those are the first of the document.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeVar

from msgspec import Struct
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from symphony.api import formatting, models
from symphony.api.conditions import day_tokens, placed
from symphony.api.explain import failure_before, remedy
from symphony.cli.documents import Status
from symphony.cli.formatting import arrow, cell, instruction_problems, table
from symphony.cli.render.conditions import condition_lines
from symphony.cli.render.explain import question_to_show
from symphony.domain import Category, Failure, natural_order, plural, without_codes

_Column = tuple[str, Literal["left", "right"]]
_RowType = TypeVar("_RowType", bound=models.Row)

_WIDE: Final = 100
"""From this width on texts have their own column; below it, they are under the title."""
_NARROW: Final = 72
"""Below this width values are under the title, too."""
_ID_WIDTH: Final = 8
_SILENT_S: Final = 120
_SKIPPED_IN_BRIEF: Final = 3
_COUNT_REASONS_ABOVE: Final = 10
_HEALTH: Final = {
    "ok": ("healthy", "bold green"),
    "starting": ("starting", "bold cyan"),
    "draining": ("ending: running turns may finish, nothing new starts", "bold yellow"),
}
_COMMAND: Final = re.compile(r"`(symphony [^`]+)`|(symphony (?:answer|unblock|retry) .+)")
"""The command in a hint."""
_PUSHES: Final = {
    "pushed": " (pushed)",
    "pushing": " (being pushed)",
    "waiting": " (not pushed yet)",
    "failed": " (not pushed)",
}
_WAITS: Final = {
    "no_slot": "no free slot",
    "no_state_slot": "no free slot in their state",
    "no_host_slot": "no free slot on a host",
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
"""What issues wait for, by reason code; other codes are shown as they are."""


def status_view(
    status: Status,
    *,
    workflow: str,
    width: int,
    limits: Mapping[str, int] | None = None,
    brief: bool = False,
    selected: bool = False,
    cursor: str | None = None,
) -> RenderableType:
    """The picture for a number of columns.

    Args:
        status: what is shown.
        workflow: the name of the workflow file.
        width: columns of the screen.
        limits: how many issues of a kind are shown; a kind without a limit shows all.
        brief: whether each text gets one line.
        selected: whether `status` has only the issues that a person asked for.
        cursor: the identifier of the issue that is highlighted.
    """
    blocks = [head_view(status, workflow=workflow, brief=brief)]
    for kind, section_of in _SECTIONS.items():
        section = section_of(status, (limits or {}).get(kind))
        if section.rows:
            table = _draw(section, width=width, brief=brief, cursor=cursor)
            hidden = _count(status, kind) - len(section.rows)
            blocks.append(table if not hidden else Group(table, _hidden_line(hidden, kind)))
    if not any(_rows(status, kind) for kind in _SECTIONS):
        blocks.append(Text(_nothing_to_show(status.health, selected=selected)))
    return _spaced(blocks)


class Screen(Struct, frozen=True):
    """A picture that fits a console, and the identifiers of the issues in it from top to bottom."""

    picture: RenderableType
    issues: Sequence[str]


def status_screen(
    console: Console,
    status: Status,
    *,
    workflow: str,
    selected: bool = False,
    cursor: str | None = None,
    keep_free: int = 0,
) -> Screen:
    """What fits the console, with a number of lines kept free; other arguments as for `status_view`."""
    width, height = console.width, console.height - keep_free

    def picture(limits: Mapping[str, int] | None = None) -> RenderableType:
        return status_view(
            status,
            workflow=workflow,
            width=width,
            limits=limits,
            brief=limits is not None,
            selected=selected,
            cursor=cursor,
        )

    if sum(_count(status, kind) for kind in _SECTIONS) <= height:
        whole = picture()
        if _height(console, whole) <= height:
            return Screen(whole, _identifiers(status, {}))
    room = height - _height(console, head_view(status, workflow=workflow, brief=True))
    limits = _fitting_limits(status, room, width)
    return Screen(picture(limits), _identifiers(status, limits))


def head_view(status: Status, *, workflow: str, brief: bool = False) -> RenderableType:
    """How the daemon is, and what is wrong."""
    health = status.health
    problems = [
        *condition_lines(status),
        *_skipped(health, _SKIPPED_IN_BRIEF if brief else None),
        *_instruction_problems(status),
    ]
    return _spaced([Group(*_head(status, workflow)), *([Group(*problems)] if problems else [])])


def unavailable_view(failure: Failure) -> RenderableType:
    """The picture while there is no status."""
    message = failure.message if failure.category is Category.COMMAND else failure.line
    first = Text.assemble(("The status cannot be read: ", "bold red"), cell(message))
    return Group(first, *([arrow(failure.hint, indent=0)] if failure.hint else []))


# --- the head ---------------------------------------------------------------------------------------------


def _head(status: Status, workflow: str) -> Iterator[Text]:
    if status.daemon is None or status.source != "daemon":
        yield Text.assemble(("No daemon is running", "bold yellow"), " for ", cell(workflow), ".")
        if status.notice:
            yield cell(status.notice, "yellow")
        yield Text("This is read from the files. `symphony run` starts a daemon.", style="dim")
    else:
        health, style = _HEALTH.get(status.health.status, ("in trouble", "bold red"))
        up = formatting.duration(formatting.seconds_between(status.daemon.started_at, status.generated_at))
        due_ms = status.polling.next_poll_in_ms
        if status.polling.checking:
            poll = "asking the tracker now"
        else:
            poll = "no poll due" if due_ms is None else f"next poll in {formatting.duration(due_ms / 1000)}"
        yield Text.assemble((f"Daemon {health}", style), f"  pid {status.daemon.pid} · up {up} · {poll}")
        if status.notice:
            yield cell(status.notice, "yellow")
            yield arrow("restart the daemon when its runs allow it")
        yield Text(_counts(status), style="dim")
    total = sum(status.waiting_by_reason.values())
    if total > _COUNT_REASONS_ABOVE:
        reasons = sorted(status.waiting_by_reason.items(), key=lambda item: -item[1])
        waits = ", ".join(f"{number:,} {_WAITS.get(code, code)}" for code, number in reasons)
        yield cell(f"{total:,} wait: {waits}", "cyan")


def _counts(state: models.State) -> str:
    counts, limit = state.counts, state.slots.limit
    parts = [
        f"{counts.blocked:,} blocked",
        *([f"{counts.ready:,} ready for review"] if counts.ready else []),
        f"{counts.running} of {plural(limit, 'slot')} used" if limit else f"{counts.running} running",
        f"{counts.retrying:,} retrying",
        f"{counts.waiting:,} waiting",
    ]
    today = day_tokens(state.budgets)
    parts.append(
        f"{formatting.tokens(state.codex_totals.total_tokens)} tokens{f', {today} today' if today else ''}"
    )
    return " · ".join(parts)


def _skipped(health: models.DaemonHealth, limit: int | None) -> Iterator[Text]:
    """The issues whose records cannot be read, or whose state is not known."""
    records = health.skipped_records
    if not records:
        return
    count = plural(len(records), "issue")
    yield Text(f"The tracker leaves out {count}, so nothing starts there:", style="red")
    for record in records[:limit]:
        yield Text.assemble("  ", cell(placed(record.where, record.message)))
    if hidden := len(records) - len(records[:limit]):
        yield Text(f"  and {hidden} more; `symphony status --all-issues` lists all", style="dim")
    yield from map(arrow, dict.fromkeys(record.hint for record in records if record.hint))


def _instruction_problems(state: models.State) -> Iterator[Text]:
    """Why running sessions do not have the instructions of the source, each reason once."""
    found = [row.instructions for row in state.running if row.instructions is not None]
    lines = dict.fromkeys(line for one in found for line in instruction_problems(one))
    if lines:
        yield Text("The instructions of running sessions have problems:", style="yellow")
        for line in lines:
            yield Text.assemble("  ", cell(line))


def _nothing_to_show(health: models.DaemonHealth, *, selected: bool) -> str:
    if selected:
        return "No issue is in a state and has a code that was asked for."
    if health.poll_failure is not None:
        return "Nothing is known of the issues."
    if health.skipped_records:
        return "Nothing else to do: no other issue is in an active state."
    return "Nothing to do: the tracker lists no issue in an active state."


# --- the sections -----------------------------------------------------------------------------------------


class _Line(Struct, frozen=True, kw_only=True):
    """One issue: `values` fill the columns of the section, `texts` stand below each other.

    `brief` are the texts where each gets one line, if they differ.
    """

    row: models.Row
    values: Sequence[Text]
    texts: Sequence[Text]
    brief: Sequence[Text] = ()


class _Section(Struct, frozen=True, kw_only=True):
    """The issues of one kind; `heading` is that of the texts."""

    title: str
    style: str
    columns: Sequence[_Column]
    heading: str
    rows: Sequence[_Line]


def _questions(status: Status, limit: int | None) -> _Section:
    return _stuck(status, _asking(status), limit, title="QUESTIONS", heading="QUESTION, AND HOW TO ANSWER")


def _blocked(status: Status, limit: int | None) -> _Section:
    return _stuck(status, _not_asking(status), limit, title="BLOCKED", heading="WHY, AND WHAT TO DO")


def _stuck(
    status: Status, rows: Sequence[models.BlockedRow], limit: int | None, *, title: str, heading: str
) -> _Section:
    """Blocked issues: why, and what helps. Brief advice is the command alone, which no screen cuts off."""
    lines = []
    for row in _first(rows, limit):
        question = question_to_show(row)
        error = without_codes(row.error)
        why = cell(f"{error}; it asks: {question}" if question else error, "red")
        advice = remedy(row, row.issue_identifier, row.issue_url)
        command = _COMMAND.search(advice)
        waits = Text(formatting.duration(formatting.seconds_between(row.blocked_at, status.generated_at)))
        lines.append(
            _Line(
                row=row,
                values=[waits],
                texts=[why, arrow(advice, indent=0)],
                brief=[why, arrow(command[1] or command[2], indent=0)] if command else (),
            )
        )
    return _Section(title=title, style="red", columns=[("FOR", "right")], heading=heading, rows=lines)


def _ready(status: Status, limit: int | None) -> _Section:
    lines = []
    has_stars = any(row.stars is not None for row in status.ready)
    for row in _first(status.ready, limit):
        values = [
            cell(row.state),
            Text(str(row.delivered.work.commits)),
            Text(row.delivered.work.lines),
            Text(formatting.ago(formatting.seconds_between(row.ended_at, status.generated_at))),
        ]
        if has_stars:
            values.append(Text("" if row.stars is None else f"{row.stars} of 5"))
        message = f": {row.summary}" if row.summary else ""
        done = row.delivered
        missing = "" if done.branch_failure is None else " (not in the repository)"
        work = cell(f"{done.branch}{missing}{_PUSHES.get(done.push or '', '')}{message}")
        look = [arrow(row.look[0], indent=0)] if row.look else []
        pull = [] if row.pull_request is None else [_pull_request(row.pull_request)]
        merges = [] if row.rehearsal is None else [_rehearsal(row.rehearsal)]
        checks = [] if row.verified is None else [_verified(row.verified)]
        known = [work, *checks, *pull, *merges]
        lines.append(_Line(row=row, values=values, texts=[*known, *look], brief=known))
    columns: list[_Column] = [
        ("STATE", "left"),
        ("COMMITS", "right"),
        ("LINES", "right"),
        ("SINCE", "right"),
    ]
    if has_stars:
        columns.append(("STARS", "right"))
    heading = "BRANCH, AND WHAT THE AGENT SAID"
    return _Section(title="READY FOR REVIEW", style="green", columns=columns, heading=heading, rows=lines)


def _verified(verified: models.Verified) -> Text:
    touched = (
        f"; it changes {', '.join(verified.protected_changes[:3])}" if verified.protected_changes else ""
    )
    kind, style = ("verified", "green") if verified.passed else ("not verified", "yellow")
    return cell(f"{kind}: {verified.message}{touched}", style)


def _rehearsal(branch: models.RehearsedBranch) -> Text:
    return cell(branch.message, "yellow" if branch.conflicts or branch.outcome == "breaks" else "dim")


def _pull_request(pull: models.PullRequest) -> Text:
    name = "pull request" if pull.number is None else f"#{pull.number}"
    if pull.failure is not None:
        return cell(f"{name}: {pull.failure.message}", "yellow")
    return cell(f"{name}: {pull.message}", "yellow" if pull.needs_you else "dim")


def _running(status: Status, limit: int | None) -> _Section:
    rows, now = _first(status.running, limit), status.generated_at
    retried, phased = any(row.attempt for row in rows), any(row.phase for row in rows)
    hosted = any(row.worker_host for row in rows)
    lines = []
    for row in rows:
        silent_s = formatting.seconds_between(row.last_event_at, now)
        action = row.last_message or row.stage.replace("_", " ")
        words = row.last_words if row.last_words != action else None
        texts = [cell(words), cell(action, "dim")] if words else [cell(action, "dim")]
        if row.stopping:
            texts = [cell(f"it is being stopped: {formatting.stop_words(row.stopping)}", "dim")]
        values = [
            *_agent(status, row),
            *([cell(row.worker_host or "")] if hosted else []),
            *([cell(row.phase.name if row.phase else "")] if phased else []),
            *([Text(formatting.attempt_of(row))] if retried else []),
            Text(str(row.turn)),
            Text(formatting.duration(formatting.seconds_between(row.started_at, now))),
            Text("none yet" if silent_s is None else formatting.ago(silent_s)),
            Text(formatting.tokens(row.tokens.total_tokens)),
        ]
        if silent_s is not None and silent_s > _SILENT_S:
            values[-2].stylize("yellow")
        shared = [cell(formatting.overlap_words(one), "yellow") for one in row.overlaps]
        lines.append(_Line(row=row, values=values, texts=[*texts, *shared], brief=[*texts[:1], *shared[:1]]))
    columns: list[_Column] = [
        *_agent_column(status),
        *([_HOST] if hosted else []),
        *([_PHASE] if phased else []),
        *([_ATTEMPT] if retried else []),
        ("TURN", "right"),
        ("AGE", "right"),
        ("SIGN OF LIFE", "left"),
        ("TOKENS", "right"),
    ]
    return _Section(title="RUNNING", style="green", columns=columns, heading="LAST WORDS", rows=lines)


def _retrying(status: Status, limit: int | None) -> _Section:
    lines = []
    for row in _first(status.retrying, limit):
        wait_s, error = (
            formatting.seconds_between(status.generated_at, row.due_at),
            failure_before(row, row.last_error),
        )
        due = "now" if wait_s is not None and wait_s <= 0 else formatting.duration(wait_s)
        values = [*_agent(status, row), Text(formatting.attempt_of(row)), Text(due)]
        why = f"after: {without_codes(error)}" if error else "it continues if the issue is still active"
        lines.append(_Line(row=row, values=values, texts=[cell(why, "dim")]))
    columns: list[_Column] = [*_agent_column(status), _ATTEMPT, ("DUE IN", "right")]
    return _Section(title="RETRYING", style="yellow", columns=columns, heading="WHY", rows=lines)


def _waiting(status: Status, limit: int | None) -> _Section:
    lines = [
        _Line(
            row=row,
            values=[cell(row.state), *_agent(status, row)],
            texts=[cell(without_codes(row.reason.message), "dim")],
        )
        for row in _first(status.waiting, limit)
    ]
    columns: list[_Column] = [("STATE", "left"), *_agent_column(status)]
    return _Section(title="WAITING", style="cyan", columns=columns, heading="WHY", rows=lines)


_ATTEMPT: Final[_Column] = ("ATTEMPT", "right")
_PHASE: Final[_Column] = ("PHASE", "left")
_HOST: Final[_Column] = ("HOST", "left")
_SECTIONS: Final[Mapping[str, Callable[[Status, int | None], _Section]]] = {
    "questions": _questions,
    "blocked": _blocked,
    "ready": _ready,
    "running": _running,
    "retrying": _retrying,
    "waiting": _waiting,
}
"""By kind of issue, in the order in which they are shown."""


def _first(rows: Sequence[_RowType], limit: int | None) -> list[_RowType]:
    return sorted(rows[:limit], key=lambda row: natural_order(row.issue_identifier))


def _agent_column(state: models.State) -> list[_Column]:
    """The column of the agent, if there is more than one."""
    return [("AGENT", "left")] if len(state.agents) > 1 else []


def _agent(
    state: models.State, row: models.RunningRow | models.RetryingRow | models.WaitingRow
) -> list[Text]:
    """The agent's name; a star marks a substitute for another agent."""
    star = "*" if row.agent.instead_of else ""
    return [cell(f"{row.agent.name}{star}")] if len(state.agents) > 1 else []


def _asking(state: models.State) -> list[models.BlockedRow]:
    return [row for row in state.blocked if row.question is not None]


def _not_asking(state: models.State) -> list[models.BlockedRow]:
    return [row for row in state.blocked if row.question is None]


def _rows(state: models.State, kind: str) -> Sequence[models.Row]:
    if kind == "questions":
        return _asking(state)
    if kind == "blocked":
        return _not_asking(state)
    rows: Sequence[models.Row] = getattr(state, kind)
    return rows


def _identifiers(state: models.State, limits: Mapping[str, int]) -> list[str]:
    """The identifiers of the issues that are shown, from top to bottom."""
    return [
        row.issue_identifier for kind in _SECTIONS for row in _first(_rows(state, kind), limits.get(kind))
    ]


def _count(state: models.State, kind: str) -> int:
    """How many issues of a kind there are, including those that the document left out."""
    return len(_rows(state, kind)) + (state.waiting_left_out if kind == "waiting" else 0)


def _hidden_line(count: int, kind: str) -> Text:
    text = f"and {count:,} more {kind}; `symphony status --all-issues` lists all"
    return Text(text, style="dim", no_wrap=True, overflow="ellipsis")


def _draw(section: _Section, *, width: int, brief: bool, cursor: str | None) -> Table:
    """The table of a section, with the issue of the cursor in reverse video.

    A wide screen shows the values, the title and the texts side by side. A narrower one shows the texts under
    the title. A very narrow one shows the values there too, because columns would leave no room for a word.
    """
    wide, narrow = width >= _WIDE, width < _NARROW
    style = section.style
    shown = table(style=style)
    widest = max(len(cell(line.row.issue_identifier).plain) for line in section.rows)
    shown.add_column(section.title, min_width=max(_ID_WIDTH, min(widest, 2 * _ID_WIDTH)), overflow="fold")
    for name, justify in () if narrow else section.columns:
        shown.add_column(name, justify=justify, overflow="fold")
    shown.add_column("TITLE", overflow="fold", ratio=2)
    if wide:
        shown.add_column(section.heading, overflow="fold", ratio=3)

    def below_each_other(*texts: Text) -> Text:
        joined = Text("\n").join(texts)
        if brief:
            joined.no_wrap, joined.overflow = True, "ellipsis"
        return joined

    for line in section.rows:
        name = line.row.issue_identifier
        identifier, title = cell(name, f"{style} reverse" if name == cursor else style), cell(line.row.title)
        texts = [text for text in (line.brief if brief and line.brief else line.texts) if text.plain]
        if wide:
            shown.add_row(identifier, *line.values, below_each_other(title), below_each_other(*texts))
        elif narrow:
            values = Text(" · ").join(
                Text(f"{name.lower()} ") + value
                for (name, _), value in zip(section.columns, line.values, strict=True)
            )
            shown.add_row(identifier, below_each_other(title, values, *texts))
        else:
            shown.add_row(identifier, *line.values, below_each_other(title, *texts))
    return shown


# --- what fits a screen -----------------------------------------------------------------------------------

_BY_IMPORTANCE: Final = ("questions", "blocked", "running", "ready", "retrying", "waiting")
_FRAME_LINES: Final = 2
"""A blank line and a heading."""


def _fitting_limits(status: Status, room: int, width: int) -> Mapping[str, int]:
    """How many issues of each kind fit a number of lines, in the brief form.

    First one of each kind, the most important kinds first; then as many as fit.
    """
    rows = {kind: len(_rows(status, kind)) for kind in _SECTIONS}
    height = {kind: _lines_per_row(kind, width) for kind in _SECTIONS}
    whole = sum(
        _FRAME_LINES + rows[kind] * height[kind] + (_count(status, kind) > rows[kind])
        for kind in _SECTIONS
        if rows[kind]
    )
    if whole <= room:
        return rows
    limits = dict.fromkeys(rows, 0)
    for kind in _BY_IMPORTANCE:
        least = _FRAME_LINES + height[kind] + (_count(status, kind) > 1)
        if rows[kind] and room >= least:
            limits[kind] = 1
            room -= least
    for kind in _BY_IMPORTANCE:
        if limits[kind]:
            more = min(rows[kind] - 1, room // height[kind])
            limits[kind] += more
            room -= more * height[kind]
    return limits


def _lines_per_row(kind: str, width: int) -> int:
    """How many lines an issue takes at most in the brief form."""
    texts = 2 if kind in {"questions", "blocked"} else 1
    if width >= _WIDE:
        return texts
    return texts + (2 if width < _NARROW else 1)


def _height(console: Console, picture: RenderableType) -> int:
    return len(console.render_lines(picture, pad=False))


def _spaced(blocks: Sequence[RenderableType]) -> RenderableType:
    """Blocks with a blank line between them."""
    spaced: list[RenderableType] = []
    for block in blocks:
        spaced += [Text(""), block] if spaced else [block]
    return Group(*spaced)
