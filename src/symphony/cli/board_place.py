"""Which Markdown board a command means: that of `--workflow`, or the nearest one upwards in the repository.

Only the `tracker` section of WORKFLOW.md is looked at, so that a prompt that does not compile or a variable
that is not set keeps nobody from working with the board.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from symphony.cli.failures import CommandError, warn
from symphony.cli.workflow_option import NAME, current_directory, directories_upwards
from symphony.domain.failures import Blame, Category, Failure, SymphonyError
from symphony.frontmatter import FrontMatterError, Profile, load, split
from symphony.trackers.markdown import DEFAULT_PATH, Board, BoardConfig

__all__ = ["open_board"]

_MAX_BYTES = 1_048_576


def open_board(workflow: Path | None) -> Board:
    """The board of `workflow`, or the nearest one from the current directory upwards.

    Raises:
        CommandError: there is none, or WORKFLOW.md cannot be used.
        TrackerError: its `tracker` section is no usable board configuration.
    """
    if workflow is None:
        return Board(_nearest(current_directory()))
    config = _configured(workflow.absolute())
    if config is None:
        hint = "name the WORKFLOW.md of a board, or use `symphony tracker`"
        raise _unusable(workflow, "tracker.kind is not `markdown`", hint)
    return Board(config)


def _nearest(cwd: Path) -> BoardConfig:
    for folder in directories_upwards(cwd):
        config = _tolerant(folder / NAME)
        if config is not None:
            return config
        if (folder / DEFAULT_PATH).is_dir():
            return BoardConfig(path=folder / DEFAULT_PATH)
    raise CommandError(
        Failure(
            category=Category.TRACKER_REQUEST,
            blame=Blame.TRACKER,
            message=f"there is no board: no {DEFAULT_PATH} in {cwd} or above it in its repository",
            hint=f"`symphony init` makes one; so does `mkdir -p {DEFAULT_PATH}`; -C DIR names another place",
        )
    )


def _tolerant(file: Path) -> BoardConfig | None:
    """As `_configured`, but a file that cannot be used is only warned about."""
    if not file.is_file():
        return None
    try:
        return _configured(file)
    except SymphonyError as error:
        warn(f"{error.failure.where or file}: {error.failure.message}; the default states are used")
        return None


def _configured(file: Path) -> BoardConfig | None:
    """The board that a WORKFLOW.md describes; null when it describes another kind of tracker."""
    tracker = _tracker(file)
    if tracker.get("kind") != "markdown":
        return None
    provider = tracker.get("provider")
    return BoardConfig.of(
        provider if isinstance(provider, dict) else {},
        base_dir=file.parent,
        active=_names(tracker.get("active_states")),
        terminal=_names(tracker.get("terminal_states")),
    )


def _tracker(file: Path) -> Mapping[str, Any]:
    try:
        with file.open("rb") as opened:
            pieces = split(opened.read(_MAX_BYTES))
        front = None if pieces is None else load(pieces.front, profile=Profile.CORE)
    except OSError as error:
        raise _unusable(
            file, error.strerror or str(error), "name the file with --workflow, or its directory with -C"
        ) from error
    except FrontMatterError as error:
        raise _unusable(file, error.message, "correct the front matter", line=error.line) from error
    section = None if front is None else front.value.get("tracker")
    return section if isinstance(section, dict) else {}


def _names(value: object) -> tuple[str, ...] | None:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else None


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
