"""What the pages show, made from the documents of the API.

All functions are pure. A view holds moments and no durations, so that two equal views are one unchanged page,
whenever they are made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from msgspec import json, structs

from symphony.api import models
from symphony.api.conditions import Condition, conditions, day_tokens, placed
from symphony.api.explain import explain
from symphony.api.formatting import seconds_between, tokens
from symphony.api.forms import Notice as FormNotice
from symphony.api.interface import MAX_RUNS, RUN_OUTCOMES, RUN_SUMS, RunQuery
from symphony.domain import Selection, natural_order, one_line, plural
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
_MORE_AT_ONCE: Final = 200
_DAYS_SHOWN: Final = 60
_BAR_HEIGHT: Final = 24
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


def board_view(state: models.State, only: Selection, ended: Sequence[models.RunRow]) -> Board:
    """The board of a state whose rows `only` has selected, and of runs that ended lately."""
    tone, health = _HEALTH.get(state.health.status, ("error", "In trouble"))
    if state.paused and tone == "ok":
        tone, health = "warn", "Paused"
    blocked = sorted(state.blocked, key=lambda row: row.blocked_at)
    shown = len(state.waiting)
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
        filtered=bool(only.text or only.states or only.codes),
        needs_you=state.counts.blocked + state.counts.ready,
        questions=tuple(row for row in blocked if row.question is not None),
        blocked=tuple(row for row in blocked if row.question is None),
        ready=state.ready,
        running=tuple(sorted(state.running, key=lambda row: natural_order(row.issue_identifier))),
        silent=tuple(row.issue_identifier for row in state.running if _is_silent(row, state.generated_at)),
        retrying=tuple(sorted(state.retrying, key=lambda row: row.due_at)),
        waiting=state.waiting,
        waiting_count=state.counts.waiting,
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
        ended=() if only.text or only.states or only.codes else tuple(ended),
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
    """A day in a small chart; `height` is from 1 to 24."""

    height: int
    text: str


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
        runs_by_day, tokens_by_day, cost_by_day: one bar for each day, the latest last.
        group_name: what `groups` are made by.
        groups: in the order of the document.
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
    runs_by_day: tuple[Bar, ...]
    tokens_by_day: tuple[Bar, ...]
    cost_by_day: tuple[Bar, ...]
    group_name: str
    groups: tuple[Group, ...]
    runs: tuple[models.RunRow, ...]
    left_out: int
    more: str | None


def history_view(runs: models.Runs, days: models.Runs, query: RunQuery, since: str) -> HistoryView:
    """The runs that the query selects; `days` has their sums by day, and `since` is an age or empty."""
    by = query.by or "day"
    latest_days = days.groups[:_DAYS_SHOWN][::-1]
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
        runs_by_day=_bars([(day.key, day.runs, plural(day.runs, "run")) for day in latest_days]),
        tokens_by_day=_bars(
            [
                (day.key, day.tokens.total_tokens, f"{tokens(day.tokens.total_tokens)} tokens")
                for day in latest_days
            ]
        ),
        cost_by_day=_bars(
            [(day.key, day.cost_usd or 0, f"${day.cost_usd or 0:,.2f}") for day in latest_days]
        ),
        group_name=by,
        groups=tuple(
            Group(name=group.key or "unknown", href=_group_path(by, group.key, kept), sums=group)
            for group in runs.groups
        ),
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


def _bars(days: Sequence[tuple[str | None, float, str]]) -> tuple[Bar, ...]:
    most = max((amount for _, amount, _ in days), default=0) or 1
    return tuple(
        Bar(height=max(round(amount / most * _BAR_HEIGHT), 1), text=f"{day}: {text}")
        for day, amount, text in days
    )


def _group_path(by: str, key: str | None, kept: Mapping[str, str]) -> str | None:
    """The page with the runs of a group; `None` if no filter selects them."""
    if key is None or by not in {"agent", "issue"}:
        return None
    return f"/history?{urlencode({**kept, by: key})}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemView:
    """The page of the system: what is not normal, findings about the machine, and facts of the daemon.

    `tracing` has the settings in force of that section, by their keys.
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
            (name, json.encode(value).decode()) for name, value in (state.rate_limits or {}).items()
        ),
        budgets=state.budgets,
        journal=state.journal,
        slots=state.slots,
        notifications=state.notifications,
        tracing={each.key: each.value for each in system.settings if each.key.startswith("tracing.")},
    )


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
