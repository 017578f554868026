"""`symphony demo`: a demonstration on a small real repository, with an agent that needs no model."""

import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import click
from msgspec import structs
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from symphony import scheduler, to_thread
from symphony.agents.registry import SECTIONS
from symphony.api.documents import waiting_issues
from symphony.api.models import Feedback, Link, Stars
from symphony.cli.client import Client
from symphony.cli.commands.open import open_privately
from symphony.cli.documents import DemoComment, DemoIssue, DemoLearned, DemoResult
from symphony.cli.endpoint import read_record
from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.main import program_name
from symphony.cli.options import json_option, print_json
from symphony.cli.repository import git
from symphony.cli.serving import serve
from symphony.cli.summary import RunSummary, delivery_lines, summary_table
from symphony.config import load_workflow
from symphony.daemon.clock import monotonic_ms
from symphony.daemon.core import StepObserver
from symphony.domain import Issue, SymphonyError, natural_order, one_line, plural
from symphony.library.model import Authorship, LibrarySkill, SkillText
from symphony.library.store import LIBRARY_FILE, Library
from symphony.testing import scripted_agent
from symphony.trackers.base import Comment
from symphony.trackers.markdown import BoardConfig, MarkdownTracker
from symphony.trackers.registry import TRACKERS

_EPILOG = """\b
Examples:
  symphony demo                     takes some seconds and costs nothing: no model is involved
  symphony demo --dir /var/tmp/d    keep the repository, the board and the log
  symphony demo --agent codex       use the Codex that is installed and logged in
  symphony demo --page              watch it in a browser until you press a key
  symphony demo --learn             rate the work, and see a skill improve
  symphony demo --json              print one JSON object at the end
"""


@click.command(epilog=_EPILOG, short_help="Demonstrate Symphony on a small repository.")
@click.option(
    "--agent",
    type=click.Choice(["scripted", "codex"]),
    default="scripted",
    show_default=True,
    help="scripted: follows a script, no model is involved. codex: the real agent.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep everything in this new or empty directory.",
)
@click.option("--page", is_flag=True, help="Show the page in a browser until you press a key.")
@click.option("--learn", is_flag=True, help="Rate the work, and accept the skill that is learned from it.")
@json_option
def demo(agent: str, directory: Path | None, *, page: bool, learn: bool, as_json: bool) -> int:
    """Demonstrate Symphony: four issues, three skills and one malformed skill become commits."""
    if directory is not None and directory.exists() and any(directory.iterdir()):
        raise CommandError.of(
            f"{directory} is not empty", hint="name a new or empty directory", code=ExitCode.USAGE
        )
    if page and learn:
        raise click.UsageError("--page and --learn cannot be combined")
    ok = run_demo(agent=agent, directory=directory, page=page, learn=learn, as_json=as_json)
    return ExitCode.OK if ok else ExitCode.FAILURE


# --- the run ---------------------------------------------------------------------------------------------
#
# Creates a repository and a board, serves them once, and shows the results.

_WIDTH = 110
_SCRIPT = re.compile(r"\n```scripted\n.*?\n```\n", re.DOTALL)
_GIT_SETTINGS = (
    "user.name=Symphony Demo",
    "user.email=demo@localhost",
    "commit.gpgSign=false",  # signing could ask for a passphrase
    "core.hooksPath=/dev/null",
)


def run_demo(*, agent: str, directory: Path | None, page: bool, learn: bool, as_json: bool) -> bool:
    """Run the demo; return whether every issue is done.

    Args:
        agent: `scripted` or `codex`.
        directory: keeps everything; None for a directory that is removed at the end.
        page: show the page in a browser, and end when a key is pressed.
        learn: give feedback on the work, and accept what is learned from it.
        as_json: print one document at the end, and progress on stderr.

    Raises:
        SymphonyError: the daemon cannot start, for example because the agent is not installed.
    """
    console = Console(stderr=as_json)
    if not console.is_terminal:
        console = Console(stderr=as_json, width=_WIDTH)
    with _demo_directory(directory) as root:
        with _setup_errors(root):
            _create_repository(root / "repo", agent)
        if not as_json:
            scripted = "the scripted agent: it follows a script in each issue, no model is involved"
            name = scripted if agent == "scripted" else "Codex, with your login: this uses your quota"
            kept = "" if directory else " (removed at the end; keep it with --dir)"
            _print(
                console, "[bold]Symphony demo[/]: four issues on a Markdown board become commits on branches."
            )
            _print(console, f"Agent: {name}.")
            _print(console, f"Place: {escape(str(root))}{kept}\n")
        workflow = root / "repo" / "WORKFLOW.md"
        with show_progress(console) as progress:
            shown: DemoPage | DemoLearning | None = DemoPage(root / "state", console) if page else None
            if learn:
                shown = DemoLearning(root / "state", console, scripted=agent == "scripted")
                shown.prepare()
            tally = serve(
                workflow,
                environment=dict(os.environ),
                once=shown is None,
                log_format="json",
                log_path=root / "symphony.log",
                state_path=root / "state",
                observers=(progress,) if shown is None else (progress, shown),
                beside=None if shown is None else shown.run,
            )
        provider = load_workflow(
            workflow, environment=os.environ, tracker_kinds=TRACKERS.names, agent_kinds=SECTIONS
        ).settings.tracker.provider
        config = BoardConfig.of(provider, base_dir=workflow.parent)
        issues, comments = anyio.run(_read_board, config)
        learned = shown.learned if isinstance(shown, DemoLearning) else None
        document = result_document(root, tally, issues, comments, learned=learned)
        if learn and learned is None:
            document = structs.replace(document, ok=False)
        if as_json:
            print_json(document)
        else:
            _print_results(console, root, tally, document, kept=directory is not None)
        return document.ok


# --- the repository --------------------------------------------------------------------------------------


@contextmanager
def _demo_directory(directory: Path | None) -> Iterator[Path]:
    if directory is not None:
        root = directory.absolute()
        with _setup_errors(root):
            root.mkdir(parents=True, exist_ok=True)
        yield root
        return
    # Not in the temp directory: the sandboxes of agents let every session write there.
    cache = Path.home() / ".cache" / "symphony"
    with _setup_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
        root = Path(tempfile.mkdtemp(prefix="demo-", dir=cache))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _setup_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"the demo cannot be set up in {root}: {error.strerror or error}"
        raise CommandError.of(message, hint="name another place with --dir") from error


def _create_repository(repository: Path, agent: str) -> None:
    with resources.as_file(resources.files("symphony.cli") / "demo_content") as content:
        shutil.copytree(content / "repo", repository, ignore=shutil.ignore_patterns("__pycache__"))
        board = repository / ".symphony" / "issues"
        board.mkdir(parents=True)
        for source in sorted((content / "issues").glob("*.md")):
            text = source.read_text(encoding="utf-8")
            text = text if agent == "scripted" else _SCRIPT.sub("\n", text)
            (board / source.name).write_text(text, encoding="utf-8")
    if agent == "scripted":
        workflow = repository / "WORKFLOW.md"
        command = json.dumps(scripted_agent.command("--threads", str(repository.parent / "threads")))
        line = f"command: {command}  # the scripted agent: no model is involved"
        text = workflow.read_text(encoding="utf-8").replace("command: codex app-server", line)
        workflow.write_text(text, encoding="utf-8")
    settings = [word for setting in _GIT_SETTINGS for word in ("-c", setting)]
    _git(repository, "init", "--quiet", "--initial-branch=main")
    # The board is not committed, so that `git log` shows only the work.
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "exclude").write_text("/.symphony/issues/\n", encoding="utf-8")
    _git(repository, "add", "--all")
    _git(repository, *settings, "commit", "--quiet", "--message", "Begin with a small greeter")


def _git(repository: Path, *arguments: str) -> None:
    done = git(repository, *arguments)
    if done.returncode != 0:
        message = f"git {' '.join(arguments)} failed: {done.stderr.strip() or done.returncode}"
        raise CommandError.of(message, hint="check your git configuration and your version of git")


async def _read_board(config: BoardConfig) -> tuple[list[Issue], list[tuple[Issue, Comment]]]:
    """All issues of the board in their final state, and the comments on them."""
    tracker = MarkdownTracker(config)
    issues = list(await tracker.fetch_issues_by_states(config.states))
    return issues, [(issue, comment) for issue in issues for comment in await tracker.list_comments(issue.id)]


# --- results ---------------------------------------------------------------------------------------------


def result_document(
    root: Path,
    tally: RunSummary,
    issues: list[Issue],
    comments: list[tuple[Issue, Comment]],
    *,
    learned: LibrarySkill | None = None,
) -> DemoResult:
    """The results; `ok` if every issue is done and has commits."""
    listed = []
    for issue in issues:
        entry = tally.issues.get(issue.id)
        listed.append(
            DemoIssue(
                identifier=issue.identifier,
                state=issue.state,
                attempts=entry.attempts if entry else 0,
                turns=entry.turns if entry else 0,
                branch=entry.branch if entry else None,
                commits=entry.commits if entry else 0,
                workspace=entry.workspace if entry else None,
            )
        )
    return DemoResult(
        ok=bool(listed) and all(entry.state == "Done" and entry.commits > 0 for entry in listed),
        dir=str(root),
        issues=tuple(listed),
        comments=tuple(
            DemoComment(
                issue_identifier=issue.identifier, id=comment.id, mine=comment.mine, body=comment.body
            )
            for issue, comment in comments
        ),
        learned=None if learned is None else DemoLearned(skill=learned.name, version=learned.version),
    )


def _print_results(
    console: Console, root: Path, tally: RunSummary, document: DemoResult, *, kept: bool
) -> None:
    repository = shlex.quote(str(root / "repo"))
    states = {entry.identifier: entry.state for entry in document.issues}
    console.print()
    console.print(summary_table(tally, states, width=console.width))
    for line in delivery_lines(
        tally, lambda _, branch: f"git -C {repository} diff main...{branch}" if kept else None
    ):
        _print(console, escape(line))
    print_comments(console, document.comments)
    if document.ok:
        if kept:
            log = f"git -C {escape(repository)} log --oneline --all"
            _print(console, f"\nLook at the work: [bold]{log}[/]")
        _print(console, f"\nNext, in your own repository: [bold]{escape(program_name())} init[/]")
        return
    failures = {
        entry.issue.identifier: entry.blocked or entry.last_failure for entry in tally.issues.values()
    }
    _print(console, "\n[red]Not everything finished:[/]")
    for identifier, state in states.items():
        if state != "Done":
            failure = failures.get(identifier)
            reason = f": {failure.message}" if failure else ""
            _print(console, escape(f"  {identifier} is in {state}{reason}"))
    log = f"Log: {root / 'symphony.log'}" if kept else "To keep the log: symphony demo --dir DIRECTORY"
    _print(console, escape(log))


def print_comments(console: Console, comments: tuple[DemoComment, ...]) -> None:
    """Print the daemon's comments on skills, each text once with the issues it was posted on.

    Comments on finished work are left out: they repeat the summary.
    """
    identifiers: dict[str, list[str]] = {}
    for comment in comments:
        if comment.mine and "<!-- symphony:delivery " not in comment.body:
            lines = [line for line in comment.body.splitlines() if line and not line.startswith("<!--")]
            text = "\n".join(f"  {line}" for line in lines)
            identifiers.setdefault(text, []).append(comment.issue_identifier)
    for text, names in identifiers.items():
        _print(console, f"\n[bold]Comment on {', '.join(names)}[/], one each, about the malformed skill:")
        _print(console, escape(text))


def _print(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False)


# --- --page ----------------------------------------------------------------------------------------------
#
# Shows the page of the demo's daemon, and keeps both up until a key is pressed.

_CHUNK_BYTES: Final = 1_024


class DemoPage:
    """Observes the demo's daemon, and runs beside it.

    Args:
        state_dir: the state directory of the daemon.
        console: gets the link, and what to do.
    """

    def __init__(self, state_dir: Path, console: Console) -> None:
        self._state_dir = state_dir
        self._console = console
        self._serving = anyio.Event()
        self._finished = anyio.Event()

    def __call__(
        self,
        before: scheduler.State,
        event: scheduler.Event,
        after: scheduler.State,
        commands: tuple[scheduler.Command, ...],
    ) -> None:
        """See whether the daemon serves, and whether nothing is left to do."""
        del before, commands
        if isinstance(event, scheduler.Polled):
            self._serving.set()
        if scheduler.run_once_finished(after, monotonic_ms()):
            self._finished.set()

    async def run(self) -> None:
        """Show the page; return when all is done and a key was pressed, or the input has ended."""
        await self._serving.wait()
        link = await to_thread.run_sync(self._link)
        if link is not None and await to_thread.run_sync(open_privately, link.url, self._state_dir):
            self._print("The page is open in a browser.")
        elif link is not None:
            self._print(f"Open this in a browser, within two minutes: {link.url}")
        await self._finished.wait()
        with _single_keys() as terminal:
            self._print(f"All is done. {'Press a key' if terminal else 'Close the input'} to end.")
            await _key_or_end()

    def _link(self) -> Link | None:
        try:
            record = read_record(self._state_dir)
            return None if record is None or record.endpoint is None else Client(record.endpoint).open_page()
        except SymphonyError as error:
            self._print(f"The page cannot be shown: {error.failure.line}")
            return None

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True, highlight=False)


async def _key_or_end() -> None:
    """Wait for a key on a terminal, or for the end of any other input."""
    while True:
        try:
            await anyio.wait_readable(sys.stdin)
        except OSError:  # a file, or /dev/null
            return
        if not os.read(sys.stdin.fileno(), _CHUNK_BYTES) or sys.stdin.isatty():
            return


@contextmanager
def _single_keys() -> Iterator[bool]:
    """Let the terminal pass each key on at once; yields whether the input is a terminal."""
    if not sys.stdin.isatty():
        yield False
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield True
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


# --- --learn ---------------------------------------------------------------------------------------------
#
# A person's feedback on the work of the demo becomes a better skill.

_ISSUE: Final = "DEMO-1"
_RULE: Final = "Run the tests before you commit."
_LESSON: Final = [[{"append": "skills/house-style/SKILL.md", "text": f"- {_RULE}\n"}]]
_SKILL: Final = SkillText(
    name="house-style",
    description="How we work in this team.",
    when_to_use="Before each commit.",
    content="# House style\n\n- Commit small steps.\n",
)
_LOOK_S: Final = 0.1
_LEARNING: Final = frozenset({"waiting", "running"})


class DemoLearning:
    """Observes the demo's daemon, and runs beside it.

    Args:
        state_dir: the state directory of the daemon.
        console: gets what happens.
        scripted: the agent follows scripts, also that of the lesson.
    """

    def __init__(self, state_dir: Path, console: Console, *, scripted: bool) -> None:
        self._state_dir = state_dir
        self._console = console
        self._scripted = scripted
        self._finished = anyio.Event()
        self._library = Library(state_dir / LIBRARY_FILE)
        self.learned: LibrarySkill | None = None

    def prepare(self) -> None:
        """Put a skill into the library."""
        self._library.add(_SKILL, Authorship(author="symphony demo"))

    def __call__(
        self,
        before: scheduler.State,
        event: scheduler.Event,
        after: scheduler.State,
        commands: tuple[scheduler.Command, ...],
    ) -> None:
        """See whether the work is done."""
        del before, event, commands
        if scheduler.run_once_finished(after, monotonic_ms()):
            self._finished.set()

    async def run(self) -> None:
        """Give feedback, wait for what is learned, and accept it."""
        await self._finished.wait()
        comment = f"{_RULE}\n\n```scripted\n{json.dumps(_LESSON)}\n```\n" if self._scripted else _RULE
        self._print(f"\nA person rates the work on {_ISSUE}: 2 of 5 stars. “{_RULE}”")
        client = await to_thread.run_sync(self._client)
        await to_thread.run_sync(client.feedback, Stars(stars=2, comment=comment), _ISSUE)
        self._print("A learning run begins beside the work: an agent improves the skills of the library.")
        feedback = await self._wait(client)
        if not feedback.learning.proposals:
            self._print(f"Nothing was learned: {one_line(feedback.learning.reason or 'no skill changed')}")
            return
        await to_thread.run_sync(self._accept, feedback.learning.proposals)

    def _client(self) -> Client:
        record = read_record(self._state_dir)
        if record is None or record.endpoint is None:
            raise CommandError.of("the daemon of the demo does not answer", hint="run the demo again")
        return Client(record.endpoint)

    async def _wait(self, client: Client) -> Feedback:
        while True:
            issue = await to_thread.run_sync(client.issue, _ISSUE)
            if issue is not None and issue.feedback and issue.feedback[0].learning.state not in _LEARNING:
                return issue.feedback[0]
            await anyio.sleep(_LOOK_S)

    def _accept(self, proposals: tuple[int, ...]) -> None:
        for number in proposals:
            proposal = self._library.proposal(number)
            name = proposal.text.name
            self._print(f"Proposal {number} changes {name}, because of the work on {_ISSUE}.")
            self._print(f"`symphony library proposals {number}` shows the difference:")
            before = "" if proposal.before is None else proposal.before.content
            known = set(before.splitlines())
            for line in proposal.text.content.splitlines():
                self._print(f"  {' ' if line in known else '+'} {one_line(line)}")
            self.learned = self._library.accept(number, "symphony demo")
            self._print(f"A person accepts it, as by `symphony library accept {number}`:")
            self._print(f"{name} is at version {self.learned.version}.")

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True, highlight=False)


# --- what happens meanwhile ------------------------------------------------------------------------------

_PAUSED = "paused: nothing new starts before `symphony resume`"
_COLOURS = {"running": "green", "retrying": "yellow", "blocked": "red", "waiting": "dim", "ended": "cyan"}


@contextmanager
def show_progress(console: Console) -> Iterator[StepObserver]:
    """An observer that shows progress: a live table on a terminal, else a line per milestone."""
    if console.is_terminal and not console.is_dumb_terminal:  # a dumb terminal cannot redraw
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            yield ProgressTable(live)
    else:
        yield ProgressLines(console)


class ProgressTable:
    """Redraws one table in place; issues that ended stay in it."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._rows: dict[str, IssueRow] = {}

    def __call__(
        self,
        before: scheduler.State,
        event: scheduler.Event,
        after: scheduler.State,
        commands: tuple[scheduler.Command, ...],
    ) -> None:
        """Redraw after a step."""
        del before, event, commands
        active = {row.issue.id: row for row in issue_rows(after)}
        self._rows |= active
        caption = Text(_PAUSED, style="yellow") if after.paused else None
        table = Table(header_style="bold", pad_edge=False, expand=True, caption=caption)
        table.add_column("Issue", no_wrap=True, width=8)
        table.add_column("Title", no_wrap=True, ratio=2)
        table.add_column("Status", no_wrap=True, width=9)
        table.add_column("Turn", no_wrap=True, width=4, justify="right")
        table.add_column("What is happening", no_wrap=True, ratio=3)
        for row in sorted(self._rows.values(), key=lambda item: natural_order(item.issue.identifier)):
            ended = row.issue.id not in active
            status = "ended" if ended else row.status
            table.add_row(
                Text(one_line(row.issue.identifier)),
                Text(one_line(row.issue.title)),
                Text(status, style=_COLOURS[status]),
                str(row.turn) if row.turn else "",
                Text("no longer active" if ended else one_line(row.detail)),
            )
        self._live.update(table)


class ProgressLines:
    """Prints one line per milestone, for pipes, logs and CI."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(
        self,
        before: scheduler.State,
        event: scheduler.Event,
        after: scheduler.State,
        commands: tuple[scheduler.Command, ...],
    ) -> None:
        """Print the milestone of a step, if there is one."""
        for command in commands:
            match command:
                case scheduler.StartRun(issue=issue):
                    self._print(issue.identifier, f"started: {issue.title}")
                case scheduler.ContinueRun(issue=issue, turn=turn):
                    self._print(issue.identifier, f"turn {turn}")
        if isinstance(event, scheduler.RunEnded):
            run = next((run for run in before.running.values() if run.run_id == event.run_id), None)
            if run is not None:
                outcome = event.outcome
                result = "finished" if outcome.kind is scheduler.OutcomeKind.SUCCEEDED else outcome.kind.value
                reason = f" ({outcome.failure.message})" if outcome.failure else ""
                commits = plural(run.report.facts.work.commits, "commit")
                self._print(run.issue.identifier, f"{result}{reason}, {commits} on its branch")
                checked = outcome.verification
                if checked is not None:
                    known = "verified" if checked.passed else "not verified, sent back to its agent"
                    self._print(run.issue.identifier, f"{known}: {checked.line}")
        for issue_id in after.blocked.keys() - before.blocked.keys():
            blocked = after.blocked[issue_id]
            self._print(blocked.issue.identifier, f"blocked: {describe_blocked(blocked)}")
        if after.paused is not before.paused:
            self._print("", _PAUSED if after.paused else "resumed: issues are started again")

    def _print(self, identifier: str, text: str) -> None:
        self._console.print(
            f"{one_line(identifier):8} {one_line(text)}", markup=False, highlight=False, soft_wrap=True
        )


class IssueRow(NamedTuple):
    """An issue in the table; `status` is `running`, `retrying`, `blocked` or `waiting`."""

    issue: Issue
    status: str
    detail: str
    turn: int = 0


def issue_rows(state: scheduler.State) -> Iterator[IssueRow]:
    """All known issues."""
    for run in state.running.values():
        stage = run.report.stage.value.replace("_", " ")
        yield IssueRow(run.issue, "running", run.report.last_message or stage, run.turn)
    for retry in state.retrying.values():
        yield IssueRow(retry.issue, "retrying", scheduler.retry_text(retry, state.settings))
    for blocked in state.blocked.values():
        yield IssueRow(blocked.issue, "blocked", describe_blocked(blocked))
    for issue, reason in waiting_issues(state):
        yield IssueRow(issue, "waiting", reason.message)


def describe_blocked(blocked: scheduler.Blocked) -> str:
    """Why an issue is blocked, what its agent asks, and what to do, on one line."""
    failure, question = blocked.failure, blocked.question
    asks = "" if question is None or question in failure.message else f", which asks: {question}"
    return f"{failure.message}{asks}{'' if failure.hint is None else f' → {failure.hint}'}"
