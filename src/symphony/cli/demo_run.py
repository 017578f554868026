"""Builds the demo's repository and board, serves them once, and shows what came of it."""

import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import anyio
import msgspec
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from symphony.agents.registry import SECTIONS
from symphony.api.documents import IssueRow, describe_blocked, issue_rows
from symphony.cli.documents import DemoComment, DemoIssue, DemoResult
from symphony.cli.failures import CommandError, program
from symphony.cli.repository import git
from symphony.cli.serving import serve
from symphony.cli.summary import RunSummary, delivery_lines, summary_table
from symphony.config import load_workflow
from symphony.domain import Issue, natural_order, one_line
from symphony.scheduler import (
    Command,
    ContinueRun,
    Event,
    OutcomeKind,
    RunEnded,
    Running,
    StartRun,
    State,
)
from symphony.testing import scripted_agent
from symphony.trackers.base import Comment
from symphony.trackers.markdown import BoardConfig, MarkdownTracker
from symphony.trackers.registry import TRACKERS

# Live progress for people: a table that redraws on a terminal, one line per milestone elsewhere.


_PAUSED = "paused: nothing new starts before `symphony resume`"
_COLOURS = {"running": "green", "retrying": "yellow", "blocked": "red", "waiting": "dim", "ended": "cyan"}


class DemoProgress(Protocol):
    """An observer that is entered before the daemon starts."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        """One step of the scheduler."""
        ...


def progress_on(console: Console) -> DemoProgress:
    """What this console can show; a dumb terminal cannot redraw and would stay empty until the end."""
    live = console.is_terminal and not console.is_dumb_terminal
    return TableProgress(console) if live else LineProgress(console)


class TableProgress:
    """Redraws one table in place; issues that ended stay in it."""

    def __init__(self, console: Console) -> None:
        self._known: dict[str, IssueRow] = {}
        self._ended: set[str] = set()
        self._paused = False
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Redraw after a step."""
        del before, fact, commands
        self._paused = after.paused
        current = {row.issue_id: row for row in issue_rows(after)}
        self._ended = self._known.keys() - current.keys()
        self._known |= current
        self._live.update(self.picture())

    def picture(self) -> Table:
        """The table as it stands."""
        caption = Text(_PAUSED, style="yellow") if self._paused else None
        table = Table(header_style="bold", pad_edge=False, expand=True, caption=caption)
        for column, options in (
            ("Issue", {"width": 8}),
            ("Title", {"ratio": 2}),
            ("Status", {"width": 9}),
            ("Turn", {"width": 4, "justify": "right"}),
            ("What is happening", {"ratio": 3}),
        ):
            table.add_column(column, no_wrap=True, **options)
        for row in sorted(self._known.values(), key=lambda item: natural_order(item.issue_identifier)):
            status = "ended" if row.issue_id in self._ended else row.status
            detail = "no longer active" if status == "ended" else row.detail
            turn = str(row.turn) if row.turn else ""
            colour = Text(status, style=_COLOURS[status])
            words = [Text(one_line(text)) for text in (row.issue_identifier, row.title, detail)]
            table.add_row(words[0], words[1], colour, turn, words[2])
        return table


class LineProgress:
    """Prints one line per milestone; for pipes, logs and CI."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Say what a step did, if it was a milestone."""
        for command in commands:
            match command:
                case StartRun(issue=issue):
                    self._say(issue.identifier, f"started: {issue.title}")
                case ContinueRun(issue=issue, turn=turn):
                    self._say(issue.identifier, f"turn {turn}")
        if isinstance(fact, RunEnded) and (run := _run(before, fact.run_id)):
            words = "finished" if fact.outcome.kind is OutcomeKind.SUCCEEDED else fact.outcome.kind.value
            why = f" ({fact.outcome.failure.line})" if fact.outcome.failure else ""
            commits = fact.outcome.commits
            self._say(
                run.issue.identifier,
                f"{words}{why}, {commits} commit{'' if commits == 1 else 's'} on its branch",
            )
        for issue_id in after.blocked.keys() - before.blocked.keys():
            blocked = after.blocked[issue_id]
            self._say(blocked.issue.identifier, f"blocked: {describe_blocked(blocked)}")
        if after.paused is not before.paused:
            self._say("", _PAUSED if after.paused else "resumed: issues are started again")

    def _say(self, identifier: str, text: str) -> None:
        self._console.print(
            f"{one_line(identifier):8} {one_line(text)}", markup=False, highlight=False, soft_wrap=True
        )


def _run(state: State, run_id: str) -> Running | None:
    return next((run for run in state.running.values() if run.run_id == run_id), None)


_WIDTH = 110
_SCRIPT = re.compile(r"\n```scripted\n.*?\n```\n", re.DOTALL)
_OURS = (
    "user.name=Symphony Demo",
    "user.email=demo@localhost",
    "commit.gpgSign=false",  # nobody is there to unlock a key
    "core.hooksPath=/dev/null",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the demo happens."""

    root: Path
    kept: bool

    @property
    def repository(self) -> Path:
        """The repository that is worked on; its board is in `.symphony/issues`."""
        return self.root / "repo"


def show(*, agent: str, directory: Path | None, as_json: bool) -> bool:
    """Run the demo; true when every issue is done.

    Raises:
        SymphonyError: the daemon could not start, for example because the agent is not installed.
    """
    console = Console(stderr=as_json)
    if not console.is_terminal:
        console = Console(stderr=as_json, width=_WIDTH)
    with _place(directory) as place:
        with _told(place.root):
            _build(place, agent)
        if not as_json:
            _introduce(console, place, agent)
        with progress_on(console) as progress:
            tally = _serve(place, progress)
        issues, comments = anyio.run(_read_board, _board(place.repository / "WORKFLOW.md"))
        result = _result(place, tally, issues, comments)
        if as_json:
            print(json.dumps(msgspec.to_builtins(result), indent=2, ensure_ascii=False))  # noqa: T201 - the command's output
        else:
            _conclude(console, place, tally, result)
        return result.ok


# --- the place -------------------------------------------------------------------------------------------


@contextmanager
def _place(directory: Path | None) -> Iterator[Place]:
    if directory is not None:
        root = directory.absolute()
        with _told(root):
            root.mkdir(parents=True, exist_ok=True)
        yield Place(root=root, kept=True)
        return
    # Not below the temp directory: agent sandboxes leave that one writable for every session.
    base = Path.home() / ".cache" / "symphony"
    with _told(base):
        base.mkdir(parents=True, exist_ok=True)
        root = Path(tempfile.mkdtemp(prefix="demo-", dir=base))
    try:
        yield Place(root=root, kept=False)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _told(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "name another place with --dir"
        message = f"the demo cannot be set up in {root}: {error.strerror or error}"
        raise CommandError.of(message, hint=hint) from error


def _build(place: Place, agent: str) -> None:
    repository = place.repository
    with resources.as_file(resources.files("symphony.cli") / "demo_content") as content:
        shutil.copytree(content / "repo", repository, ignore=shutil.ignore_patterns("__pycache__"))
        board = repository / ".symphony" / "issues"
        board.mkdir(parents=True)
        for source in sorted((content / "issues").glob("*.md")):
            text = source.read_text(encoding="utf-8")
            shown = text if agent == "scripted" else _SCRIPT.sub("\n", text)
            (board / source.name).write_text(shown, encoding="utf-8")
    if agent == "scripted":
        _use_scripted_agent(repository / "WORKFLOW.md")
    _commit_everything(repository)


def _use_scripted_agent(workflow: Path) -> None:
    text = workflow.read_text(encoding="utf-8")
    line = f"command: {json.dumps(scripted_agent.command())}  # the scripted agent: no model is involved"
    workflow.write_text(text.replace("command: codex app-server", line), encoding="utf-8")


def _commit_everything(repository: Path) -> None:
    _git(repository, "init", "--quiet", "--initial-branch=main")
    # The board stays out of the history here, so that `git log` shows the work and nothing else.
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "exclude").write_text("/.symphony/issues/\n", encoding="utf-8")
    _git(repository, "add", "--all")
    _git(
        repository,
        *(word for setting in _OURS for word in ("-c", setting)),
        "commit",
        "--quiet",
        "--message",
        "Begin with a small greeter",
    )


def _git(repository: Path, *arguments: str) -> None:
    done = git(repository, *arguments)
    if done.returncode != 0:
        message = f"git {' '.join(arguments)} failed: {done.stderr.strip() or done.returncode}"
        raise CommandError.of(message, hint="look at your git configuration, and at your version of git")


# --- the run ---------------------------------------------------------------------------------------------


def _serve(place: Place, progress: DemoProgress) -> RunSummary:
    return serve(
        place.repository / "WORKFLOW.md",
        environment=dict(os.environ),
        once=True,
        log_format="json",
        log_path=place.root / "symphony.log",
        state_path=place.root / "state",
        observers=(progress,),
    )


def _board(workflow: Path) -> BoardConfig:
    settings = load_workflow(
        workflow, environment=os.environ, tracker_kinds=TRACKERS.names, agent_kinds=SECTIONS
    ).settings.tracker
    return BoardConfig.of(settings.provider, base_dir=workflow.parent)


async def _read_board(config: BoardConfig) -> tuple[list[Issue], list[tuple[Issue, Comment]]]:
    """All issues of the board as they stand now, and the comments on them."""
    tracker = MarkdownTracker(config)
    issues = list(await tracker.fetch_issues_by_states(config.states))
    comments = [(issue, comment) for issue in issues for comment in await tracker.list_comments(issue.id)]
    return issues, comments


# --- the result ------------------------------------------------------------------------------------------


def _result(
    place: Place, tally: RunSummary, issues: list[Issue], comments: list[tuple[Issue, Comment]]
) -> DemoResult:
    listed = tuple(_issue_result(issue, tally) for issue in issues)
    done = [entry.state == "Done" and entry.commits > 0 for entry in listed]
    return DemoResult(
        ok=bool(done) and all(done),
        dir=str(place.root),
        issues=listed,
        comments=tuple(
            DemoComment(
                issue_identifier=issue.identifier, id=comment.id, mine=comment.mine, body=comment.body
            )
            for issue, comment in comments
        ),
    )


def _issue_result(issue: Issue, tally: RunSummary) -> DemoIssue:
    entry = tally.issues.get(issue.id)
    return DemoIssue(
        identifier=issue.identifier,
        state=issue.state,
        attempts=entry.attempts if entry else 0,
        turns=entry.turns if entry else 0,
        branch=entry.branch if entry else None,
        commits=entry.commits if entry else 0,
        workspace=entry.workspace if entry else None,
    )


def _introduce(console: Console, place: Place, agent: str) -> None:
    who = (
        "the scripted agent: it follows a script in each issue, no model is involved"
        if agent == "scripted"
        else "Codex, with your login: this uses your quota"
    )
    kept = "" if place.kept else " (removed at the end; keep it with --dir)"
    _say(console, "[bold]Symphony demo[/]: four issues on a Markdown board become commits on branches.")
    _say(console, f"Agent: {who}.")
    _say(console, f"Place: {escape(str(place.root))}{kept}\n")


def _conclude(console: Console, place: Place, tally: RunSummary, result: DemoResult) -> None:
    states = {entry.identifier: entry.state for entry in result.issues}
    console.print()
    console.print(summary_table(tally, states, width=console.width))
    for line in delivery_lines(tally, lambda _, branch: _look(place, branch)):
        _say(console, escape(line))
    _show_comments(console, result.comments)
    if not result.ok:
        _show_unfinished(console, place, tally, states)
        return
    if place.kept:
        _say(
            console,
            f"\nLook at the work: [bold]git -C {escape(str(place.repository))} log --oneline --all[/]",
        )
    _say(console, f"\nNext, in your own repository: [bold]{escape(program())} init[/]")


def _look(place: Place, branch: str) -> str | None:
    """What shows the work, where it is kept."""
    return f"git -C {shlex.quote(str(place.repository))} diff main...{branch}" if place.kept else None


def _show_unfinished(console: Console, place: Place, tally: RunSummary, states: dict[str, str]) -> None:
    """What is not done and why; the log is for those who want to know more."""
    failures = {
        entry.issue.identifier: entry.blocked or entry.last_failure for entry in tally.issues.values()
    }
    _say(console, "\n[red]Not everything finished:[/]")
    for identifier, state in states.items():
        if state != "Done":
            failure = failures.get(identifier)
            _say(console, escape(f"  {identifier} is in {state}{f': {failure.line}' if failure else ''}"))
    log = place.root / "symphony.log"
    _say(console, escape(f"Log: {log}") if place.kept else "To keep the log: symphony demo --dir DIRECTORY")


def _show_comments(console: Console, comments: tuple[DemoComment, ...]) -> None:
    """The daemon's comments on skills, each text once with the issues it stands on.

    Those on finished work say what was said above.
    """
    where: dict[str, list[str]] = {}
    for comment in comments:
        if comment.mine and "<!-- symphony:delivery " not in comment.body:
            lines = [line for line in comment.body.splitlines() if line and not line.startswith("<!--")]
            where.setdefault("\n".join(f"  {line}" for line in lines), []).append(comment.issue_identifier)
    for body, identifiers in where.items():
        _say(console, f"\n[bold]Comment on {', '.join(identifiers)}[/], one each, about the malformed skill:")
        _say(console, escape(body))


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False)
