"""Which Markdown board a command means, and which issue numbers were ever used on it.

Only single sections of WORKFLOW.md are read, so that a prompt that does not compile, or a variable that is
not set, does not keep anyone from working with the board.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from symphony.cli.failures import CommandError, warn
from symphony.cli.journal import journal_path
from symphony.cli.options import WORKFLOW_NAME, current_directory, directories_upwards
from symphony.config import STATE_DIR_VARIABLE, ResolveError, default_workspace_root, resolve_root
from symphony.daemon.state_dir import locate
from symphony.domain import BRANCH_PREFIX, Blame, Category, Failure, SymphonyError
from symphony.frontmatter import FrontMatterError, Profile, load, split
from symphony.trackers.markdown import DEFAULT_PATH, Board, BoardConfig, IssueNumbers
from symphony.workspaces import BRANCH_CLAIMS, Layout, all_refs, common_dir

_MAX_BYTES: Final = 1_048_576
_NUMBERS: Final = "symphony/numbers"
_KEY_DIGEST: Final = re.compile(r"-[0-9a-f]{8}\Z")
"""The end of a workspace key that differs from the identifier, because another issue has that key."""


def open_board(workflow: Path | None) -> Board:
    """The board of a workflow file; without one, the nearest board from the current directory upwards.

    Raises:
        CommandError: there is no board, or the workflow file cannot be used.
        TrackerError: its `tracker` section does not describe a usable board.
    """
    if workflow is not None:
        config = _configured_board(workflow.absolute())
        if config is None:
            hint = "name the WORKFLOW.md of a board, or use `symphony tracker`"
            raise _unusable(workflow, "tracker.kind is not `markdown`", hint)
        return Board(config)
    here = current_directory()
    for folder in directories_upwards(here):
        file = folder / WORKFLOW_NAME
        try:
            config = _configured_board(file) if file.is_file() else None
        except SymphonyError as error:
            failure = error.failure
            warn(f"{failure.where or file}: {failure.message}; the default states are used")
            config = None
        if config is not None:
            return Board(config)
        if (folder / DEFAULT_PATH).is_dir():
            return Board(BoardConfig(path=folder / DEFAULT_PATH))
    raise CommandError(
        Failure(
            category=Category.TRACKER_REQUEST,
            blame=Blame.TRACKER,
            message=f"there is no board: no {DEFAULT_PATH} in {here} or above it in its repository",
            hint=f"`symphony init` makes one; so does `mkdir -p {DEFAULT_PATH}`; -C DIR names another place",
        )
    )


def used_numbers(board: Path, workflow: Path | None, environment: Mapping[str, str]) -> IssueNumbers:
    """Issues that left a trace, so that a new one does not get the number, and the branch, of a deleted one.

    Traces are branches here and in remotes, records of workspaces, and the journal; a source that cannot be
    read is skipped. The highest number is kept in the git directory around the board, which linked worktrees
    share and which is never committed; in the folder of the board if there is no writable git directory.

    Args:
        board: the folder of the issue files.
        workflow: the workflow file; None stands for the nearest one above the board.
        environment: variables that its `workspace` section may refer to.
    """
    git_dirs = (common_dir(folder) for folder in board.parents if os.path.lexists(folder / ".git"))
    git_dir = next((found for found in git_dirs if found is not None), None)
    if workflow is None:
        files = (folder / WORKFLOW_NAME for folder in board.parents)
        workflow = next((file for file in files if file.is_file()), None)
    names = set() if git_dir is None else set(_branch_names(git_dir))
    if workflow is not None:
        names.update(_workspace_names(workflow, environment))
        names.update(_journal_names(journal_path(workflow, environment)))
    names |= {_KEY_DIGEST.sub("", name) for name in names}
    folder = board if git_dir is None or not os.access(git_dir, os.W_OK) else git_dir / _NUMBERS
    return IssueNumbers(folder=folder, names=frozenset(names))


def _configured_board(file: Path) -> BoardConfig | None:
    """The board that a WORKFLOW.md describes; None if it describes another kind of tracker."""
    tracker = _read_section(file, "tracker")
    if tracker.get("kind") != "markdown":
        return None
    provider = tracker.get("provider")
    return BoardConfig.of(
        provider if isinstance(provider, dict) else {},
        base_dir=file.parent,
        active=_strings(tracker.get("active_states")),
        terminal=_strings(tracker.get("terminal_states")),
    )


def _strings(value: object) -> tuple[str, ...] | None:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else None


def _read_section(file: Path, name: str) -> Mapping[str, object]:
    """A section of the front matter as it is written; empty if it is missing or not a mapping.

    Raises:
        CommandError: the file or its front matter cannot be read.
    """
    try:
        with file.open("rb") as opened:
            parts = split(opened.read(_MAX_BYTES))
        front = None if parts is None else load(parts.front, profile=Profile.CORE)
    except OSError as error:
        hint = "name the file with --workflow, or its directory with -C"
        raise _unusable(file, error.strerror or str(error), hint) from error
    except FrontMatterError as error:
        raise _unusable(file, error.message, "correct the front matter", line=error.line) from error
    section = None if front is None else front.value.get(name)
    return section if isinstance(section, dict) else {}


def _unusable(file: Path, message: str, hint: str, *, line: int | None = None) -> CommandError:
    missing = line is None and not file.is_file()
    return CommandError(
        Failure(
            category=Category.MISSING_WORKFLOW_FILE if missing else Category.INVALID_WORKFLOW_CONFIG,
            blame=Blame.CONFIG,
            message=message,
            retryable=False,
            hint=hint,
            where=str(file) if line is None else f"{file}:{line}",
        )
    )


def _branch_names(git_dir: Path) -> Iterator[str]:
    """The issues that have, or had, a branch here or in a remote."""
    for ref in (*all_refs(git_dir, "refs/heads/"), *all_refs(git_dir, "refs/remotes/")):
        _, found, name = ref.partition(f"/{BRANCH_PREFIX}")
        if found:
            yield name
    yield from _json_stems(git_dir / BRANCH_CLAIMS)


def _workspace_names(workflow: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The issues that have a workspace, or a branch in a mirror or in the repository of the workspaces."""
    try:
        section = _read_section(workflow, "workspace")
    except CommandError:
        section = {}
    root = None
    if configured := section.get("root"):
        variables = {**environment, STATE_DIR_VARIABLE: str(locate(workflow, environment))}
        with suppress(ResolveError):
            root = resolve_root(str(configured), base=workflow.parent, environment=variables)
    layout = Layout(root or default_workspace_root(environment))
    yield from _json_stems(layout.records)
    repositories = [path for path in _entries(layout.mirrors) if path.suffix == ".git"]
    repo = section.get("repo")
    if isinstance(repo, str) and (local := workflow.parent / repo).is_dir():
        repositories += filter(None, [common_dir(local)])
    for repository in repositories:
        yield from _branch_names(repository)


def _journal_names(journal: Path) -> Iterable[str]:
    if not journal.is_file():
        return ()
    from symphony.journal.model import UnusableError  # imports SQLite
    from symphony.journal.reader import open_reader

    try:
        with open_reader(journal) as reader:
            return reader.identifiers()
    except UnusableError:
        return ()


def _json_stems(folder: Path) -> Iterator[str]:
    return (path.stem for path in _entries(folder) if path.suffix == ".json")


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
