"""What the pages show, made from the documents of the API.

All functions are pure. A view holds moments and no durations, so that two equal views are one unchanged page,
whenever they are made.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final
from urllib.parse import quote, urlencode

from msgspec import json, structs

from symphony.api import models
from symphony.api.conditions import Condition, conditions, day_tokens, placed
from symphony.api.explain import explain
from symphony.api.formatting import duration, seconds_between, tokens
from symphony.api.forms import Notice as FormNotice
from symphony.api.interface import MAX_RUNS, RUN_OUTCOMES, RUN_SUMS, BranchDiff, RunQuery
from symphony.domain import Selection, Tokens, natural_order, one_line, plural
from symphony.journal import transcripts

SECTIONS: Final = (
    ("Board", "/"),
    ("History", "/history"),
    ("Skills", "/skills"),
    ("System", "/system"),
)
WAITING_SHOWN: Final = 50
RUNS_SHOWN: Final = 100
ENTRIES_SHOWN: Final = 200
MAX_WAITING_SHOWN: Final = 1_000
RATED_STATUSES: Final = frozenset({"ready", "ended"})
"""Statuses of an issue whose work people can judge."""
MOMENT_MARK: Final = "\x1f"
"""Before and after a moment in a sentence; no text of trackers and agents has control characters."""
ENDED_SHOWN: Final = 8
_PROPOSALS_SHOWN: Final = 5
_MORE_AT_ONCE: Final = 200
_DAYS_SHOWN: Final = 60
_CHART_WIDTH: Final = 480
_CHART_HEIGHT: Final = 90
_FEWEST_BARS: Final = 7
_NO_RUNS: Final[Mapping[str, Any]] = {
    "runs": 0,
    "turns": 0,
    "seconds": 0.0,
    "commits": 0,
    "tokens": Tokens(),
    "cost_usd": None,
    "unpriced_tokens": 0,
}
_AGES: Final = {"24h": "24 hours", "7d": "7 days", "30d": "30 days", "": "ever"}
_GIST_CHARS: Final = 200
_SILENT_S: Final = 120
_HEALTH: Final = {
    "ok": ("ok", "Healthy"),
    "starting": ("info", "Starting"),
    "draining": ("warn", "Ending after the present turns"),
}
_STATUS: Final = {
    "running": "Running",
    "retrying": "Retrying",
    "blocked": "Blocked",
    "waiting": "Waiting",
    "ready": "Ready for review",
    "ended": "Ended",
}
_LINE_KINDS: Final = {"+": "added", "-": "removed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What is around the content of a page, as the request has it.

    Attributes:
        twin: the path of the same facts as JSON.
        theme: `auto`, `light` or `dark`.
        path: the path and query of the page, to return to it.
        csrf: the value that every form sends back; empty where none is needed.
        root: the path below which this browser finds all pages; empty without one.
        signed_in: whether the browser has a sign-in to end.
        notice: what came of the form that led here, or `None`.
        sections: the navigation: names and paths.
    """

    twin: str
    theme: str
    path: str
    csrf: str
    root: str
    signed_in: bool
    notice: FormNotice | None
    sections: tuple[tuple[str, str], ...] = SECTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a page cannot be shown."""

    title: str
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonLink:
    """A reason for which issues wait, how many do, and the page that lists only these."""

    code: str
    count: int
    href: str
    selected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The board.

    Attributes:
        tone: of the health: `ok`, `info`, `warn` or `error`.
        health: the health in a word or two.
        next_request_at: when the tracker is asked next; `None` while a request is under way.
        last_poll_at: when the tracker last answered.
        notices: what is not normal.
        paused: whether an operator paused the daemon.
        slots_used: running agents.
        slots_limit: how many may run.
        total_tokens: of all runs since the start.
        day_tokens: tokens of today against the budget of the day; `None` without a budget.
        day_cost_usd: cost of today; `None` if it is not known.
        search: the text that is searched for.
        filtered: whether only some issues are listed.
        needs_you: how many issues wait for a person.
        questions: issues whose agents ask something, the longest waiting first.
        blocked: other issues that wait for a person, the longest waiting first.
        ready: work to be reviewed, the newest first.
        running: in the order of their identifiers.
        silent: identifiers of running issues without a sign of life for two minutes.
        retrying: the next first.
        waiting: the first ones to start.
        waiting_count: all that wait, whatever is listed.
        waiting_left_out: selected ones without a row.
        more: the page with more of them; `None` if there are no more, or too many.
        reasons: why they wait.
        ended: runs that ended in the last hours, the newest first.
        proposals: open changes of skills, the oldest first.
        proposals_left_out: those without a row.
        draining: the daemon ends after the present turns.
        selecting: see `board_view`.
        creates: the daemon can create issues at the tracker.
    """

    tone: str
    health: str
    next_request_at: str | None
    last_poll_at: str | None
    notices: tuple[Condition, ...]
    paused: bool
    slots_used: int
    slots_limit: int
    total_tokens: int
    day_tokens: str | None
    day_cost_usd: float | None
    search: str
    filtered: bool
    needs_you: int
    questions: tuple[models.BlockedRow, ...]
    blocked: tuple[models.BlockedRow, ...]
    ready: tuple[models.ReadyRow, ...]
    running: tuple[models.RunningRow, ...]
    silent: tuple[str, ...]
    retrying: tuple[models.RetryingRow, ...]
    waiting: tuple[models.WaitingRow, ...]
    waiting_count: int
    waiting_left_out: int
    more: str | None
    reasons: tuple[ReasonLink, ...]
    ended: tuple[models.RunRow, ...]
    proposals: tuple[models.LibraryProposal, ...]
    proposals_left_out: int
    draining: bool
    selecting: bool
    creates: bool


def board_view(
    state: models.State,
    only: Selection,
    ended: Sequence[models.RunRow],
    proposals: Sequence[models.LibraryProposal] = (),
    *,
    selecting: bool = False,
) -> Board:
    """The board of a state whose rows `only` has selected.

    Args:
        state: the document.
        only: the filter.
        ended: runs that ended lately.
        proposals: the open ones of the library.
        selecting: a person selects issues, so that the page must not reload itself.
    """
    tone, health = health_words(state)
    blocked = sorted(state.blocked, key=lambda row: row.blocked_at)
    filtered, shown = bool(only.text or only.states or only.codes), len(state.waiting)
    runs = [run for run in ended if _found(only, run.issue_identifier, run.issue_title)]
    changes = [one for one in proposals if _found(only, one.name, one.description, one.issue_identifier)]
    if only.states or only.codes:
        runs, changes = [], []
    may_show_more = state.waiting_left_out and shown < MAX_WAITING_SHOWN
    return Board(
        tone=tone,
        health=health,
        next_request_at=state.tracker.asks_next_at,
        last_poll_at=state.health.last_poll_at,
        notices=_conditions(state),
        paused=state.paused,
        slots_used=state.slots.used,
        slots_limit=state.slots.limit,
        total_tokens=state.codex_totals.total_tokens,
        day_tokens=day_tokens(state.budgets),
        day_cost_usd=state.budgets.day_cost_usd,
        search=only.text,
        filtered=filtered,
        needs_you=len(blocked) + len(state.ready) if filtered else needing(state),
        questions=tuple(row for row in blocked if row.question is not None),
        blocked=tuple(row for row in blocked if row.question is None),
        ready=state.ready,
        running=tuple(sorted(state.running, key=lambda row: natural_order(row.issue_identifier))),
        silent=tuple(row.issue_identifier for row in state.running if _is_silent(row, state.generated_at)),
        retrying=tuple(sorted(state.retrying, key=lambda row: row.due_at)),
        waiting=state.waiting,
        waiting_count=shown + state.waiting_left_out,
        waiting_left_out=state.waiting_left_out,
        more=_query(only, waiting=min(shown + _MORE_AT_ONCE, MAX_WAITING_SHOWN)) if may_show_more else None,
        reasons=tuple(
            ReasonLink(
                code=code,
                count=count,
                href=_query(only, codes=only.codes ^ {code}),
                selected=code in only.codes,
            )
            for code, count in state.waiting_by_reason.items()
        ),
        ended=tuple(runs[:ENDED_SHOWN]),
        proposals=tuple(changes[:_PROPOSALS_SHOWN]),
        proposals_left_out=max(len(changes) - _PROPOSALS_SHOWN, 0),
        draining=state.health.status == "draining",
        selecting=selecting,
        creates=bool(state.creates_in),
    )


def health_words(state: models.State) -> tuple[str, str]:
    """The tone of a daemon's health, and the health in a word or two."""
    tone, health = _HEALTH.get(state.health.status, ("error", "In trouble"))
    return ("warn", "Paused") if state.paused and tone == "ok" else (tone, health)


def issue_path(identifier: str) -> str:
    """The path of the page of an issue."""
    return f"/issues/{quote(identifier, safe='')}"


def needing(state: models.State) -> int:
    """How many issues wait for a person."""
    return state.counts.blocked + state.counts.ready


def _found(only: Selection, *texts: str | None) -> bool:
    """Whether the text that is searched for is in one of these."""
    return not only.text or only.text.casefold() in " ".join(filter(None, texts)).casefold()


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What people may order about issues: the word for it, what it does, and what it costs."""

    label: str
    effect: str
    danger: bool = False


ACTIONS: Final = {
    "retry": Action(
        label="Retry",
        effect="Tries it again now, with what is left of its budget: tokens, turns and attempts.",
    ),
    "unblock": Action(
        label="Unblock",
        effect="Counts its budget from zero and tries it again, so it may cost as much as it has so far.",
    ),
    "stop": Action(
        label="Stop",
        effect="Ends the run and delivers what is committed. The issue stays blocked until it is retried.",
        danger=True,
    ),
    "move": Action(
        label="Move",
        effect="Changes its state at the tracker. A run whose issue leaves the active states is stopped.",
    ),
}
"""By verb."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """An issue that a person has selected; without a title and a status if it is not known any more."""

    identifier: str
    title: str
    status: str | None
    icon: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """The page that asks before an action on several issues.

    Attributes:
        verb: the action.
        action: what it is.
        issues: in the order in which they were selected.
        states: where they can be moved to; empty for other actions.
        back: the page that led here.
    """

    verb: str
    action: Action
    issues: tuple[Chosen, ...]
    states: tuple[str, ...]
    back: str


def confirm_view(verb: str, found: Mapping[str, models.Issue | None], back: str) -> Confirm:
    """The page that asks before an action on the issues of these identifiers."""
    known = [issue for issue in found.values() if issue is not None]
    states = dict.fromkeys(state for issue in known for state in issue.moves_to) if verb == "move" else {}
    return Confirm(
        verb=verb,
        action=ACTIONS[verb],
        issues=tuple(
            Chosen(
                identifier=identifier,
                title="" if issue is None else issue.title,
                status=None if issue is None else _STATUS.get(issue.status, issue.status),
                icon="failed" if issue is None else issue.status,
            )
            for identifier, issue in found.items()
        ),
        states=tuple(states),
        back=back,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryView:
    """An entry of a transcript.

    Attributes:
        kind: as in the document.
        shown: the entry.
        gist: its first line.
        added: lines, of an edit.
        removed: lines, of an edit.
    """

    kind: str
    shown: transcripts.TranscriptEntry
    gist: str
    added: int
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueView:
    """The page of an issue.

    Attributes:
        issue: the document.
        icon: of its status.
        status: in words.
        silent: a running agent gave no sign of life for two minutes.
        notices: what is not normal and affects all issues.
        session_id: the agent's conversation.
        events: the newest first.
        run_id: the run whose transcript is shown.
        entries: the part of the transcript that is shown.
        missing: what is missing in it.
        earlier: the page with the entries before; `None` if these are the first.
        later: the page with the entries after; `None` if these are the last.
        asks_feedback: a person is asked for feedback: the work is done and has none yet.
        why: why it is, or is not, being worked on; its moments are between `MOMENT_MARK`s.
    """

    issue: models.Issue
    icon: str
    status: str
    silent: bool
    notices: tuple[Condition, ...]
    session_id: str | None
    events: tuple[models.Event, ...]
    run_id: str | None
    entries: tuple[EntryView, ...]
    missing: tuple[str, ...]
    earlier: str | None
    later: str | None
    asks_feedback: bool
    why: models.Explanation


def issue_view(
    issue: models.Issue, transcript: models.Transcript | None, path: str, *, asks_feedback: bool = True
) -> IssueView:
    """The page of an issue at that path; without a transcript if it has none.

    With `asks_feedback` a person is asked for feedback when the work is done.
    """
    asks = issue.blocked is not None and issue.blocked.question is not None
    claim = issue.running or issue.blocked
    run, found = issue.running, transcript.entries if transcript else ()
    run_id = transcript.run_id if transcript else None
    first = found[0].seq if found else 1
    return IssueView(
        issue=_steady(issue),
        icon="question" if asks else issue.status,
        status="Asks you" if asks else _STATUS.get(issue.status, issue.status),
        silent=run is not None and _is_silent(run, issue.generated_at),
        notices=tuple(conditions(issue)),
        session_id=claim.session_id if claim else None,
        events=issue.recent_events[::-1],
        run_id=run_id,
        entries=tuple(
            _entry(entry)
            for entry in transcripts.latest(found)
            if not isinstance(entry, transcripts.UsageEntry)
        ),
        missing=transcript.missing if transcript else (),
        earlier=_part(path, run_id, max(first - 1 - ENTRIES_SHOWN, 0)) if first > 1 else None,
        later=_part(path, run_id, transcript.next_after) if transcript and transcript.more else None,
        asks_feedback=asks_feedback
        and issue.status in RATED_STATUSES
        and bool(issue.runs)
        and not issue.feedback,
        why=explain(issue, when=lambda moment: f"{MOMENT_MARK}{moment}{MOMENT_MARK}"),
    )


def _steady(issue: models.Issue) -> models.Issue:
    """The document without what changes as time passes."""
    return structs.replace(issue, generated_at="", tracker=structs.replace(issue.tracker, asks_next_at=None))


def _part(path: str, run_id: str | None, after: int) -> str:
    return f"{path}?{urlencode({'run': run_id or '', 'after': after})}"


def _entry(entry: transcripts.TranscriptEntry) -> EntryView:
    files: tuple[transcripts.EditedFile, ...] = ()
    match entry:
        case (
            transcripts.MessageEntry()
            | transcripts.ReasoningEntry()
            | transcripts.QuestionEntry()
            | transcripts.AnswerEntry()
            | transcripts.NoteEntry()
        ):
            text = entry.text
        case transcripts.PlanEntry():
            text = entry.text or plural(len(entry.steps), "step")
        case transcripts.CommandEntry():
            text = entry.command
        case transcripts.CheckEntry():
            text = f"{entry.name} {entry.result}"
        case transcripts.EditEntry():
            files, text = entry.files, ", ".join(file.path for file in entry.files)
        case transcripts.ToolEntry():
            text = entry.name
        case _:
            text = ""
    return EntryView(
        kind=str(entry.__struct_config__.tag),
        shown=entry,
        gist=one_line(text, _GIST_CHARS),
        added=sum(file.added for file in files),
        removed=sum(file.removed for file in files),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """A line of a diff; `kind` is `head`, `hunk`, `added`, `removed` or `same`."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """What a diff says about one file; `name` is its path, or both paths of a renamed file."""

    name: str
    lines: tuple[DiffLine, ...]
    added: int
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffView:
    """The page of what a branch changes; `cut` says that not all of it is shown."""

    issue_identifier: str
    branch: str
    files: tuple[FileDiff, ...]
    cut: bool


def diff_view(identifier: str, diff: BranchDiff) -> DiffView:
    """The page of what the branch of an issue changes."""
    # No line of a file begins so: in a patch, each has a sign before it.
    parts = f"\n{diff.text}".split("\ndiff --git ")[1:]
    return DiffView(
        issue_identifier=identifier,
        branch=diff.branch,
        files=tuple(_file_diff(part) for part in parts),
        cut=diff.cut,
    )


def _file_diff(part: str) -> FileDiff:
    header, *rest = part.split("\n")
    path = header[: len(header) // 2]
    lines, kind = list[DiffLine](), "head"
    for line in rest:
        if line.startswith("@@"):
            kind = "hunk"
        elif kind != "head":
            kind = _LINE_KINDS.get(line[:1], "same")
        lines.append(DiffLine(kind=kind, text=line))
    return FileDiff(
        name=path if header == f"{path} {path}" else header,
        lines=tuple(lines),
        added=sum(line.kind == "added" for line in lines),
        removed=sum(line.kind == "removed" for line in lines),
    )


def _is_silent(run: models.Run, now: str) -> bool:
    return (seconds_between(run.last_event_at or run.started_at, now) or 0) > _SILENT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A choice of a filter."""

    value: str
    text: str
    selected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A day in a chart, in its units; `text` says the day and its amount."""

    x: float
    width: float
    height: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A bar for each day, days without runs included.

    Attributes:
        name: what it shows, for an id.
        title: what it shows.
        description: the sum, the largest day and the last one, for people who do not see it.
        bars: the latest last.
        most: the largest amount.
        first, last: days.
    """

    name: str
    title: str
    description: str
    bars: tuple[Bar, ...]
    most: str
    first: str
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Sums over runs, the name of what they have in common, and the page of these runs."""

    name: str
    href: str | None
    sums: models.RunSums


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryView:
    """The runs in the journal.

    Attributes:
        since, by, outcomes: the choices of the filters.
        issue, agent: what the filters contain.
        total: sums over all selected runs.
        charts: runs by day, and what they cost, or their tokens where no cost is known.
        days: sums by day, the latest first.
        group_name: what `groups` are made by.
        groups: in the order of the document; none if they are days.
        priced: whether a cost is known of any run.
        runs: the newest first.
        left_out: selected runs without a row.
        more: the page with more rows; `None` if there are none, or too many.
    """

    since: tuple[Option, ...]
    by: tuple[Option, ...]
    outcomes: tuple[Option, ...]
    issue: str
    agent: str
    total: models.RunSums
    charts: tuple[Chart, ...]
    days: tuple[Group, ...]
    group_name: str
    groups: tuple[Group, ...]
    priced: bool
    runs: tuple[models.RunRow, ...]
    left_out: int
    more: str | None


def history_view(runs: models.Runs, days: models.Runs, query: RunQuery, since: str) -> HistoryView:
    """The runs that the query selects; `days` has their sums by day, and `since` is an age or empty."""
    by = query.by or "day"
    priced, sums = runs.total.cost_usd is not None, _each_day(days)
    outcome = next(iter(query.outcomes), "")
    issue, agent = (", ".join(sorted(each)) for each in (query.issues, query.agents))
    kept = {"since": since, "outcome": outcome, "issue": issue, "agent": agent}
    return HistoryView(
        since=_options(_AGES, since),
        by=_options({each: each for each in RUN_SUMS}, by),
        outcomes=_options({"": "any"} | {each: each.replace("_", " ") for each in RUN_OUTCOMES}, outcome),
        issue=issue,
        agent=agent,
        total=structs.replace(runs.total, seconds=round(runs.total.seconds, -1)),
        charts=(
            _chart("runs", "Runs by day", [(day, one.runs, plural(one.runs, "run")) for day, one in sums]),
            _chart("cost", "Cost by day", [(day, one.cost_usd or 0, _usd(one)) for day, one in sums])
            if priced
            else _chart("tokens", "Tokens by day", [(day, _tokens_of(one), _told(one)) for day, one in sums]),
        )
        if sums
        else (),
        days=tuple(_group("day", day, kept) for day in days.groups[:_DAYS_SHOWN]),
        group_name=by,
        groups=() if by == "day" else tuple(_group(by, group, kept) for group in runs.groups),
        priced=priced,
        runs=tuple(run if run.ended_at else structs.replace(run, seconds=0) for run in runs.runs),
        left_out=runs.left_out,
        more=f"/history?{urlencode({**kept, 'by': by, 'limit': MAX_RUNS})}"
        if runs.left_out and len(runs.runs) < MAX_RUNS
        else None,
    )


def _options(choices: Mapping[str, str], selected: str) -> tuple[Option, ...]:
    choices = choices if selected in choices else {selected: selected, **choices}
    return tuple(
        Option(value=value, text=text, selected=value == selected) for value, text in choices.items()
    )


def _each_day(days: models.Runs) -> list[tuple[str, models.RunSums]]:
    """The sums of each day, also of those between without runs; the latest last."""
    found = {date.fromisoformat(sums.key): sums for sums in days.groups if sums.key}
    if not found:
        return []
    none = structs.replace(days.total, **_NO_RUNS)
    last = max(found)
    count = min((last - min(found)).days + 1, _DAYS_SHOWN)
    shown = (last - timedelta(days=back) for back in reversed(range(count)))
    return [(day.isoformat(), found.get(day, none)) for day in shown]


def _chart(name: str, title: str, days: Sequence[tuple[str, float, str]]) -> Chart:
    most_day, most, most_text = max(days, key=lambda day: day[1])
    step = _CHART_WIDTH / max(len(days), _FEWEST_BARS)
    return Chart(
        name=name,
        title=title,
        description=f"{plural(len(days), 'day')}; the most on {most_day}: {most_text}; last: {days[-1][2]}.",
        bars=tuple(
            Bar(
                x=round(at * step + step * 0.1, 1),
                width=round(step * 0.8, 1),
                height=round(max(amount / (most or 1) * _CHART_HEIGHT, 1), 1),
                text=f"{day}: {text}",
            )
            for at, (day, amount, text) in enumerate(days)
        ),
        most=most_text,
        first=days[0][0],
        last=days[-1][0],
    )


def _usd(sums: models.RunSums) -> str:
    return f"${sums.cost_usd or 0:,.2f}"


def _tokens_of(sums: models.RunSums) -> int:
    return sums.tokens.total_tokens


def _told(sums: models.RunSums) -> str:
    return f"{tokens(_tokens_of(sums))} tokens"


def _group(by: str, sums: models.RunSums, kept: Mapping[str, str]) -> Group:
    return Group(name=sums.key or "unknown", href=_group_path(by, sums.key, kept), sums=sums)


def _group_path(by: str, key: str | None, kept: Mapping[str, str]) -> str | None:
    """The page with the runs of a group; `None` if no filter selects them."""
    if key is None or by not in {"agent", "issue"}:
        return None
    return f"/history?{urlencode({**kept, by: key})}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How much of something is used; `text` says it in words, and `scarce` that using it up is bad."""

    name: str
    used: float
    limit: float
    text: str
    scarce: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemView:
    """The page of the system: what is not normal, findings about the machine, and facts of the daemon.

    `tracing` has the settings in force of that section, by their keys. `given` are those that WORKFLOW.md
    sets, and `default` the others. `limits` are what is used of what there is.
    """

    notices: tuple[Condition, ...]
    checks: tuple[models.DoctorCheck, ...]
    system: models.System
    tracker: models.Tracker
    polls: int
    last_poll_at: str | None
    poll_interval_ms: int
    agents: tuple[models.AgentInUse, ...]
    rate_limits: tuple[tuple[str, str], ...]
    limits: tuple[Limit, ...]
    given: tuple[models.Setting, ...]
    default: tuple[models.Setting, ...]
    budgets: models.Budgets
    journal: models.JournalHealth | None
    slots: models.Slots
    notifications: tuple[models.NotifyTarget, ...]
    tracing: Mapping[str, str]


def system_view(system: models.System, state: models.State) -> SystemView:
    """The page of the system; errors stand first, then warnings."""
    checks = system.diagnosis.checks if system.diagnosis else ()
    return SystemView(
        notices=_conditions(state),
        checks=tuple(sorted(checks, key=lambda check: ("error", "warning", "ok").index(check.status))),
        system=structs.replace(system, generated_at=""),
        tracker=structs.replace(state.tracker, asks_next_at=None),
        polls=state.health.polls,
        last_poll_at=state.health.last_poll_at,
        poll_interval_ms=state.polling.poll_interval_ms,
        agents=state.agents,
        rate_limits=tuple(
            (name, json.encode(value).decode())
            for name, value in (state.rate_limits or {}).items()
            if value is not None and _window(name, value) is None
        ),
        limits=tuple(_limits(state)),
        given=tuple(setting for setting in system.settings if setting.given),
        default=tuple(setting for setting in system.settings if not setting.given),
        budgets=state.budgets,
        journal=state.journal,
        slots=state.slots,
        notifications=state.notifications,
        tracing={each.key: each.value for each in system.settings if each.key.startswith("tracing.")},
    )


def _limits(state: models.State) -> Iterator[Limit]:
    """What is used of the slots, of the day's tokens, and of the windows that an agent tells of."""
    slots, budgets = state.slots, state.budgets
    used = f"{slots.used} of {plural(slots.limit, 'slot')}"
    yield Limit(name="Slots", used=slots.used, limit=slots.limit, text=used, scarce=False)
    if budgets.max_tokens_per_day:
        text = f"{day_tokens(budgets)} tokens"
        yield Limit(name="Today", used=budgets.day_tokens, limit=budgets.max_tokens_per_day, text=text)
    for name, value in (state.rate_limits or {}).items():
        if (window := _window(name, value)) is not None:
            yield window


def _window(name: str, value: object) -> Limit | None:
    """A window of an agent's allowance; `None` for anything else that the agent told."""
    if not isinstance(value, Mapping):
        return None
    percent, minutes = (
        next((value[key] for key in keys if isinstance(value.get(key), int | float)), None)
        for keys in (("usedPercent", "used_percent"), ("windowDurationMins", "window_minutes"))
    )
    if percent is None:
        return None
    of = f" of {duration(minutes * 60)}" if minutes else ""
    return Limit(name=f"Allowance, {name}", used=percent, limit=100, text=f"{percent:g} %{of}")


def _query(only: Selection, *, waiting: int | None = None, codes: frozenset[str] | None = None) -> str:
    """The address of the board with this selection."""
    pairs = [("q", only.text)] if only.text else []
    pairs += [("state", state) for state in sorted(only.states)]
    pairs += [("reason", code) for code in sorted(only.codes if codes is None else codes)]
    if waiting is not None:
        pairs.append(("waiting", str(waiting)))
    return f"/?{urlencode(pairs)}" if pairs else "/"


def _conditions(state: models.State) -> tuple[Condition, ...]:
    """What is not normal, errors first."""
    skipped = (
        Condition(
            tone="error",
            text=f"An issue cannot be read: {placed(record.where, record.message)}",
            hint=record.hint,
        )
        for record in state.health.skipped_records
    )
    return tuple(sorted((*conditions(state), *skipped), key=lambda one: one.tone != "error"))
