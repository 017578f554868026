"""The views of the pages, made from the documents of the API. All functions are pure.

A view contains points in time and no durations, so equal views give equal pages at any time.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Final
from urllib.parse import quote, urlencode

from msgspec import Struct, json, structs

from symphony.api import interface, models
from symphony.api.conditions import Condition, conditions, day_tokens, placed
from symphony.api.explain import explain
from symphony.api.formatting import duration, outcome_words, run_words, seconds_between, tokens
from symphony.api.forms import FormResult as FormNotice
from symphony.domain import FileChange, Selection, Tokens, natural_order, one_line, plural
from symphony.journal import transcripts

SECTIONS: Final = (
    ("Board", "/"),
    ("History", "/history"),
    ("Skills", "/skills"),
    ("System", "/system"),
)
KEYS: Final = (
    (("/",), "search"),
    (("j", "k"), "next, previous issue"),
    (("Enter",), "open it"),
    (("d",), "what it changes"),
    (("a",), "go to Approve, which still asks"),
    (("s",), "go to Send back, which still asks"),
    (("?",), "this help"),
    (("Esc",), "close"),
)
"""The keys of the pages, and what each does."""
WAITING_SHOWN: Final = 50
RUNS_SHOWN: Final = 100
ENTRIES_SHOWN: Final = 200
COMMENTS_SHOWN: Final = 8
MAX_WAITING_SHOWN: Final = 1_000
RATED_STATUSES: Final = frozenset({"ready", "ended", "inactive"})
"""Statuses of issues whose work people can rate."""
MOMENT_MARK: Final = "\x1f"
"""Marks a time in a sentence, before and after; texts of trackers and agents have no control characters."""
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
_LAST_LINES: Final = 12
_FILES_SHOWN: Final = 30
_ENTRIES_BEFORE: Final = 20
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
    "inactive": "Not being worked on",
}


class PageFrame(Struct, frozen=True, kw_only=True):
    """The frame around the content of a page, by the request.

    Attributes:
        twin: the path of the same facts as JSON.
        theme: `auto`, `light` or `dark`.
        path: the path and query of the page, to return to it.
        csrf: the value that every form sends back; empty if none is needed.
        root: the path below which this browser finds all pages; empty without one.
        signed_in: whether the browser is signed in and can sign out.
        notice: the result of the form that led here, or `None`.
        sections: the navigation: names and paths.
        keys: the keys, with what they do.
    """

    twin: str
    theme: str
    path: str
    csrf: str
    root: str
    signed_in: bool
    notice: FormNotice | None
    sections: tuple[tuple[str, str], ...] = SECTIONS
    keys: tuple[tuple[tuple[str, ...], str], ...] = KEYS


class Problem(Struct, frozen=True, kw_only=True):
    """Why a page cannot be shown."""

    title: str
    message: str
    hint: str | None = None


class ReasonLink(Struct, frozen=True, kw_only=True):
    """A reason why issues wait, how many do, and the page that lists only these."""

    code: str
    count: int
    href: str
    selected: bool


class BoardView(Struct, frozen=True, kw_only=True):
    """The board.

    Attributes:
        tone: the tone of the health: `ok`, `info`, `warn` or `error`.
        health: the health in a word or two.
        next_request_at: when the tracker is asked next; `None` while a request is in progress.
        last_poll_at: when the tracker last answered.
        notices: abnormal conditions.
        paused: whether an operator paused the daemon.
        slots_used: how many agents run.
        slots_limit: how many may run.
        total_tokens: the tokens of all runs since the start.
        day_tokens: today's tokens and the daily budget; `None` without a budget.
        day_cost_usd: today's cost; `None` if unknown.
        search: the searched text.
        filtered: whether only some issues are listed.
        needs_you: how many issues wait for a person.
        questions: issues whose agents ask something, the longest waiting first.
        blocked: other issues that wait for a person, the longest waiting first.
        ready: work to review, the newest first.
        running: running issues by identifier.
        silent: identifiers of running issues without a sign of life for two minutes.
        retrying: retrying issues, the next first.
        waiting: the first waiting issues to start.
        waiting_count: how many issues wait in total.
        waiting_left_out: how many selected ones have no row.
        more: the page with more of them; `None` if there are no more, or too many.
        reasons: why they wait.
        ended: runs that ended in the last hours, the newest first.
        proposals: open changes of skills, the oldest first.
        proposals_left_out: how many have no row.
        draining: whether the daemon ends after the present turns.
        selecting: see `board_view`.
        creates: whether the daemon can create issues at the tracker.
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
) -> BoardView:
    """The board of a state with the rows that `only` selected.

    Args:
        state: the document.
        only: the filter.
        ended: runs that ended recently.
        proposals: the open proposals of the library.
        selecting: whether a person is selecting issues, so that the page must not reload itself.
    """
    tone, health = health_words(state)
    blocked = sorted(state.blocked, key=lambda row: row.blocked_at)
    filtered, shown = bool(only.text or only.states or only.codes), len(state.waiting)
    runs = [run for run in ended if _found(only, run.issue_identifier, run.issue_title)]
    changes = [one for one in proposals if _found(only, one.name, one.description, one.issue_identifier)]
    if only.states or only.codes:
        runs, changes = [], []
    may_show_more = state.waiting_left_out and shown < MAX_WAITING_SHOWN
    return BoardView(
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
    """Whether one of these contains the searched text."""
    return not only.text or only.text.casefold() in " ".join(filter(None, texts)).casefold()


class Action(Struct, frozen=True, kw_only=True):
    """An action on issues: its name, its effect, and its cost."""

    label: str
    effect: str
    danger: bool = False


ACTIONS: Final = {
    "retry": Action(
        label="Retry",
        effect="Tries it again now, with the rest of its budget: tokens, turns and attempts.",
    ),
    "unblock": Action(
        label="Unblock",
        effect="Counts its budget from zero and tries it again, so it may cost as much as it has so far.",
    ),
    "stop": Action(
        label="Stop",
        effect="Ends the run and delivers its commits. The issue stays blocked until it is retried.",
        danger=True,
    ),
    "move": Action(
        label="Move",
        effect="Changes its state at the tracker. If the issue leaves the active states, its run is stopped.",
    ),
}
"""The actions by verb."""


class Chosen(Struct, frozen=True, kw_only=True):
    """A selected issue; without title and status if it is no longer known."""

    identifier: str
    title: str
    status: str | None
    icon: str


class Confirm(Struct, frozen=True, kw_only=True):
    """The page that asks before an action on several issues.

    Attributes:
        verb: the verb of the action.
        action: the action in words.
        issues: the issues in the order of their selection.
        states: the states to which they can be moved; empty for other actions.
        back: the page that led here.
    """

    verb: str
    action: Action
    issues: tuple[Chosen, ...]
    states: tuple[str, ...]
    back: str


def confirm_view(verb: str, found: Mapping[str, models.Issue | None], back: str) -> Confirm:
    """The page that asks before an action on these issues."""
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


class EntryView(Struct, frozen=True, kw_only=True):
    """An entry of a transcript.

    Attributes:
        kind: the kind in the document.
        number: the number of the entry, or of the one that it replaces, so that it stays the same during the
            work.
        shown: the entry.
        gist: its first line.
        added: added lines of an edit.
        removed: removed lines of an edit.
        output: the output of a command, a check or a tool.
        last_lines: the last lines of a longer output; else empty.
        place: the page that shows the entry among the others; `None` if this page does.
    """

    kind: str
    number: int
    shown: transcripts.TranscriptEntry
    gist: str
    added: int
    removed: int
    output: str
    last_lines: str
    place: str | None


class RunStory(Struct, frozen=True, kw_only=True):
    """A run with its events, newest first.

    Attributes:
        run: the run; `None` for events before the first run.
        words: how it ended, in one sentence.
        events: the events between its start and the start of the next run.
    """

    run: models.PastRun | None
    words: str
    events: tuple[models.Event, ...]


class IssueView(Struct, frozen=True, kw_only=True):
    """The page of an issue.

    Attributes:
        issue: the document.
        task: the tracker's snapshot of the issue; `None` if unknown.
        comments: the newest comments, the newest last.
        earlier_comments: the comments before them.
        stories: the runs with their events, the newest first.
        writes: whether the form for a comment is open even without JavaScript, so that the page does not
            reload itself.
        icon: the icon of its status.
        status: its status in words.
        silent: whether a running agent gave no sign of life for two minutes.
        notices: abnormal conditions that affect all issues.
        session_id: the agent's conversation.
        run_id: the run whose transcript is shown.
        entries: the shown part of the transcript.
        missing: what is missing in it.
        earlier: the page with the entries before; `None` if these are the first.
        later: the page with the entries after; `None` if these are the last.
        first, last: the numbers of the first and the last entry of the part; 0 without entries.
        newest: the page with the last entries; `None` if it is this page, which grows with the transcript.
        search: the searched text in the transcript.
        work: the files that a running agent has changed so far; `None` if unknown.
        work_left_out: how many more there are.
        asks_feedback: whether to ask for feedback, because the work is done and has none yet.
        why: why it is, or is not, being worked on; times are between `MOMENT_MARK`s.
    """

    issue: models.Issue
    task: models.Task | None
    comments: tuple[models.TaskComment, ...]
    earlier_comments: tuple[models.TaskComment, ...]
    stories: tuple[RunStory, ...]
    writes: bool
    icon: str
    status: str
    silent: bool
    notices: tuple[Condition, ...]
    session_id: str | None
    run_id: str | None
    entries: tuple[EntryView, ...]
    missing: tuple[str, ...]
    earlier: str | None
    later: str | None
    first: int
    last: int
    newest: str | None
    search: str
    work: tuple[FileChange, ...] | None
    work_left_out: int
    asks_feedback: bool
    why: models.Explanation


def issue_view(
    issue: models.Issue,
    task: models.Task | None,
    transcript: models.Transcript | None,
    path: str,
    part: interface.TranscriptQuery = interface.NEWEST_ENTRIES,
    *,
    work: tuple[FileChange, ...] | None = None,
    asks_feedback: bool = True,
    writes: bool = False,
) -> IssueView:
    """The page of an issue at this path, with a part of its transcript, if it has one.

    `work` are the files that its workspace has changed so far. With `asks_feedback` the page asks for
    feedback when the work is done. See `IssueView.writes`.
    """
    asks = issue.blocked is not None and issue.blocked.question is not None
    claim = issue.running or issue.blocked
    run, found = issue.running, transcript.entries if transcript else ()
    run_id = transcript.run_id if transcript else None
    first = found[0].seq if found else 0
    asked = {"run": run_id or "", "q": part.text} if part.text else {"run": run_id or ""}
    is_newest = part.after is None and part.before is None and not part.text
    comments = () if task is None else task.comments
    return IssueView(
        issue=_steady(issue),
        task=None if task is None else structs.replace(task, generated_at=""),
        comments=comments[-COMMENTS_SHOWN:],
        earlier_comments=comments[:-COMMENTS_SHOWN],
        stories=_stories(issue.runs, issue.recent_events),
        writes=writes,
        icon="question" if asks else issue.status,
        status="Asks you" if asks else _STATUS.get(issue.status, issue.status),
        silent=run is not None and _is_silent(run, issue.generated_at),
        notices=tuple(conditions(issue)),
        session_id=claim.session_id if claim else None,
        run_id=run_id,
        entries=tuple(
            _entry(entry, _place(path, run_id, entry.replaces or entry.seq) if part.text else None)
            for entry in transcripts.latest(found)
            if not isinstance(entry, transcripts.UsageEntry)
        ),
        missing=transcript.missing if transcript else (),
        earlier=f"{path}?{urlencode({**asked, 'before': first})}"
        if transcript and transcript.earlier and found
        else None,
        later=f"{path}?{urlencode({**asked, 'after': transcript.next_after})}"
        if transcript and transcript.more
        else None,
        first=first,
        last=found[-1].seq if found else 0,
        newest=None if is_newest else f"{path}?{urlencode({'run': run_id or ''})}#newest",
        search=part.text,
        work=None if work is None else work[:_FILES_SHOWN],
        work_left_out=max(len(work or ()) - _FILES_SHOWN, 0),
        asks_feedback=asks_feedback
        and issue.status in RATED_STATUSES
        and bool(issue.runs)
        and not issue.feedback,
        why=explain(issue, when=lambda moment: f"{MOMENT_MARK}{moment}{MOMENT_MARK}"),
    )


def _stories(runs: Sequence[models.PastRun], events: Sequence[models.Event]) -> tuple[RunStory, ...]:
    """The runs, newest first, each with the events since its start; events before all runs come last."""
    left, stories = list(events), list[RunStory]()
    for run in runs:
        own = [event for event in left if event.at >= run.started_at]
        left = left[: len(left) - len(own)]
        stories.append(RunStory(run=run, words=run_words(run), events=tuple(own[::-1])))
    if left:
        stories.append(RunStory(run=None, words="Before these runs", events=tuple(left[::-1])))
    return tuple(stories)


def _steady(issue: models.Issue) -> models.Issue:
    """The document without parts that change as time passes."""
    return structs.replace(issue, generated_at="", tracker=structs.replace(issue.tracker, asks_next_at=None))


def _place(path: str, run_id: str | None, number: int) -> str:
    """The page with an entry and some entries before it."""
    after = max(number - _ENTRIES_BEFORE, 0)
    return f"{path}?{urlencode({'run': run_id or '', 'after': after})}#e{number}"


def _entry(entry: transcripts.TranscriptEntry, place: str | None) -> EntryView:
    files: tuple[transcripts.EditedFile, ...] = ()
    output = ""
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
            text, output = entry.command, entry.output
        case transcripts.CheckEntry():
            text, output = f"{entry.name} {entry.result}", entry.output
        case transcripts.EditEntry():
            files, text = entry.files, ", ".join(file.path for file in entry.files)
        case transcripts.ToolEntry():
            text, output = entry.name, entry.result
        case _:
            text = ""
    output = output.strip("\n")
    lines = output.split("\n")
    return EntryView(
        kind=str(entry.__struct_config__.tag),
        number=entry.replaces or entry.seq,
        shown=entry,
        gist=one_line(text, _GIST_CHARS),
        added=sum(file.added for file in files),
        removed=sum(file.removed for file in files),
        output=output,
        last_lines="\n".join(lines[-_LAST_LINES:]) if len(lines) > _LAST_LINES else "",
        place=place,
    )


def _is_silent(run: models.Run, now: str) -> bool:
    return (seconds_between(run.last_event_at or run.started_at, now) or 0) > _SILENT_S


class Option(Struct, frozen=True, kw_only=True):
    """A choice of a filter."""

    value: str
    text: str
    selected: bool


class Bar(Struct, frozen=True, kw_only=True):
    """A day in a chart, in its units; `text` says the day and its amount."""

    x: float
    width: float
    height: float
    text: str


class Chart(Struct, frozen=True, kw_only=True):
    """A bar for each day, including days without runs.

    Attributes:
        name: its id.
        title: its title.
        description: the sum, the largest day and the last one, for people who cannot see it.
        bars: the bars, the latest last.
        most: the largest amount.
        first, last: the first and the last day.
    """

    name: str
    title: str
    description: str
    bars: tuple[Bar, ...]
    most: str
    first: str
    last: str


class Group(Struct, frozen=True, kw_only=True):
    """Sums over runs, their common property, and the page of these runs."""

    name: str
    href: str | None
    sums: models.RunSums


class HistoryView(Struct, frozen=True, kw_only=True):
    """The runs in the journal.

    Attributes:
        since, by, outcomes: the choices of the filters.
        issue, agent: the texts in the filters.
        total: sums over all selected runs.
        charts: runs by day, and their cost, or their tokens if no cost is known.
        days: sums by day, the latest first.
        group_name: the criterion of `groups`.
        groups: the groups in the order of the document; none if they are days.
        priced: whether the cost of any run is known.
        runs: the runs, newest first.
        left_out: how many selected runs have no row.
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


def history_view(runs: models.Runs, days: models.Runs, query: interface.RunQuery, since: str) -> HistoryView:
    """The runs that the query selects; `days` has their sums by day, and `since` is an age or empty."""
    by = query.by or "day"
    priced, sums = runs.total.cost_usd is not None, _each_day(days)
    outcome = next(iter(query.outcomes), "")
    issue, agent = (", ".join(sorted(each)) for each in (query.issues, query.agents))
    kept = {"since": since, "outcome": outcome, "issue": issue, "agent": agent}
    return HistoryView(
        since=_options(_AGES, since),
        by=_options({each: each for each in interface.RUN_SUMS}, by),
        outcomes=_options(
            {"": "any"} | {each: outcome_words(each) for each in interface.RUN_OUTCOMES}, outcome
        ),
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
        more=f"/history?{urlencode({**kept, 'by': by, 'limit': interface.MAX_RUNS})}"
        if runs.left_out and len(runs.runs) < interface.MAX_RUNS
        else None,
    )


def _options(choices: Mapping[str, str], selected: str) -> tuple[Option, ...]:
    choices = choices if selected in choices else {selected: selected, **choices}
    return tuple(
        Option(value=value, text=text, selected=value == selected) for value, text in choices.items()
    )


def _each_day(days: models.Runs) -> list[tuple[str, models.RunSums]]:
    """The sums of each day, including days without runs in between; the latest last."""
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


class Limit(Struct, frozen=True, kw_only=True):
    """How much of a limit is used; `text` says it in words, and `scarce` means that using it up is bad."""

    name: str
    used: float
    limit: float
    text: str
    scarce: bool = True


class SystemView(Struct, frozen=True, kw_only=True):
    """The page of the system: abnormal conditions, findings about the machine, and facts of the daemon.

    `tracing` has the settings in force of that section, by key. `given` are the settings in WORKFLOW.md, and
    `default` the others. `limits` show how much of each limit is used.
    """

    notices: tuple[Condition, ...]
    checks: tuple[models.DoctorCheck, ...]
    system: models.System
    tracker: models.TrackerHealth
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
    """The page of the system; errors come first, then warnings."""
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
    """The use of the slots, of the day's tokens, and of the rate-limit windows that agents report."""
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
    """A window of an agent's rate limit; `None` for any other reported value."""
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
    """The abnormal conditions, errors first."""
    skipped = (
        Condition(
            tone="error",
            text=f"An issue cannot be read: {placed(record.where, record.message)}",
            hint=record.hint,
        )
        for record in state.health.skipped_records
    )
    return tuple(sorted((*conditions(state), *skipped), key=lambda one: one.tone != "error"))
