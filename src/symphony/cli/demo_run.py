"""The run of `symphony demo`: creates a repository and a board, serves them once, and shows the results."""

import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import anyio
from msgspec import structs
from rich.console import Console
from rich.markup import escape

from symphony.agents.registry import SECTIONS
from symphony.cli.demo_learning import DemoLearning
from symphony.cli.demo_page import DemoPage
from symphony.cli.demo_progress import show_progress
from symphony.cli.documents import DemoComment, DemoIssue, DemoLearned, DemoResult
from symphony.cli.failures import CommandError
from symphony.cli.main import program_name
from symphony.cli.options import print_json
from symphony.cli.repository import git
from symphony.cli.serving import serve
from symphony.cli.summary import RunSummary, delivery_lines, summary_table
from symphony.config import load_workflow
from symphony.domain import Issue
from symphony.library.model import LibrarySkill
from symphony.testing import scripted_agent
from symphony.trackers.base import Comment
from symphony.trackers.markdown import BoardConfig, MarkdownTracker
from symphony.trackers.registry import TRACKERS

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
        command = json.dumps(scripted_agent.command())
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
