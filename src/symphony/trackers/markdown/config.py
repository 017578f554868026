"""What `tracker.provider` and the state lists mean for the Markdown board (TR10)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symphony.domain.issue import normalise_state
from symphony.trackers.base import ConfigProblem, TrackerConfigError
from symphony.trackers.markdown.backlog import CONFIG, NOTES, TASKS, BacklogLayout, read_settings
from symphony.trackers.markdown.document import MalformedError
from symphony.trackers.markdown.layout import OWN, Layout
from symphony.trackers.markdown.refusals import invalid_config

__all__ = [
    "DEFAULT_ACTIVE",
    "DEFAULT_PATH",
    "DEFAULT_PREFIX",
    "DEFAULT_STATES",
    "DEFAULT_TERMINAL",
    "PROVIDER_KEYS",
    "BoardConfig",
]

PROVIDER_KEYS = ("path", "prefix", "states", "layout")
OWN_LAYOUT, BACKLOG_LAYOUT = "symphony", "backlog.md"
DEFAULT_BACKLOG = "backlog"
BACKLOG_ACTIVE = ("To Do", "Todo", "In Progress")
DEFAULT_PATH = ".symphony/issues"
DEFAULT_PREFIX = "SYM"
DEFAULT_STATES = ("Backlog", "Todo", "In Progress", "Human Review", "Done", "Cancelled")
DEFAULT_ACTIVE = ("Todo", "In Progress")
DEFAULT_TERMINAL = ("Done", "Cancelled")

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardConfig:
    """Where the board is and what its states mean.

    Attributes:
        path: the folder of the issue files, absolute.
        prefix: what stands before the number of a new id (`SYM` gives `SYM-12`).
        states: every legal state in the order people see them, in the spelling that is written.
        active: states in which an issue is worked on; `terminal`: states in which it is over.
        layout: how issues lie in the folder.
        notes: the folder of the comments, where it is another one.
    """

    path: Path
    prefix: str = DEFAULT_PREFIX
    states: tuple[str, ...] = DEFAULT_STATES
    active: tuple[str, ...] = DEFAULT_ACTIVE
    terminal: tuple[str, ...] = DEFAULT_TERMINAL
    layout: Layout = OWN
    notes: Path | None = None

    @property
    def comments(self) -> Path:
        """Below which folder the comments are."""
        return self.notes or self.path

    @classmethod
    def of(
        cls,
        provider: Mapping[str, Any],
        *,
        base_dir: Path,
        active: Sequence[str] | None = None,
        terminal: Sequence[str] | None = None,
    ) -> "BoardConfig":
        """Read `path`, `prefix` and `states`; relative paths start at `base_dir`, WORKFLOW.md's directory.

        With `layout: backlog.md` the states are those of its `config.yml`, which is read here.

        Other keys are ignored. Without `states` the default states are legal, and with them whatever
        `active` and `terminal` name. Null for `active` or `terminal` stands for those defaults that are
        legal states; an empty list is an empty list: nothing is worked on, or nothing is ever over.

        Raises:
            TrackerConfigError: category `invalid_tracker_config`, every key that does not fit.
        """
        problems: list[ConfigProblem] = []
        layout = provider.get("layout", OWN_LAYOUT)
        if layout == BACKLOG_LAYOUT:
            return cls._of_backlog(provider, base_dir, active, terminal)
        if layout != OWN_LAYOUT:
            problems.append(
                invalid_config("tracker.provider.layout", f"must be {OWN_LAYOUT} or {BACKLOG_LAYOUT}")
            )
        wanted = provider.get("states")
        everything = _unique((*DEFAULT_STATES, *(active or ()), *(terminal or ())))
        states = everything if wanted is None else _states(wanted, problems)
        config = cls(
            path=_path(provider.get("path", DEFAULT_PATH), base_dir, problems),
            prefix=_prefix(provider.get("prefix", DEFAULT_PREFIX), problems),
            states=states,
            active=_chosen("tracker.active_states", active, DEFAULT_ACTIVE, states, problems),
            terminal=_chosen("tracker.terminal_states", terminal, DEFAULT_TERMINAL, states, problems),
        )
        if problems:
            raise TrackerConfigError(problems)
        return config

    @classmethod
    def _of_backlog(
        cls,
        provider: Mapping[str, Any],
        base_dir: Path,
        active: Sequence[str] | None,
        terminal: Sequence[str] | None,
    ) -> "BoardConfig":
        problems: list[ConfigProblem] = []
        folder = _path(provider.get("path", DEFAULT_BACKLOG), base_dir, problems)
        problems.extend(
            invalid_config(
                f"tracker.provider.{key}", f"is not for this layout: {CONFIG} of the board says it"
            )
            for key in ("prefix", "states")
            if key in provider
        )
        if problems:
            raise TrackerConfigError(problems)
        try:
            known = read_settings(folder)
        except (MalformedError, OSError) as error:
            raise TrackerConfigError([_no_backlog(folder / CONFIG, error)]) from error
        states = known.statuses
        config = cls(
            path=folder / TASKS,
            prefix=known.prefix.upper(),
            states=states,
            active=_chosen("tracker.active_states", active, BACKLOG_ACTIVE, states, problems),
            terminal=_chosen("tracker.terminal_states", terminal, states[-1:], states, problems),
            layout=BacklogLayout(known),
            notes=folder / NOTES,
        )
        if problems:
            raise TrackerConfigError(problems)
        return config

    def state(self, text: str) -> str | None:
        """The configured spelling of a state, or null when there is no such state (DM7)."""
        return next((state for state in self.states if normalise_state(state) == normalise_state(text)), None)


def _path(value: object, base_dir: Path, problems: list[ConfigProblem]) -> Path:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        problems.append(invalid_config("tracker.provider.path", "must be the path of a folder"))
        return base_dir
    try:
        return base_dir.absolute() / Path(value).expanduser()
    except RuntimeError as error:
        problems.append(invalid_config("tracker.provider.path", f"cannot be used: {error}"))
        return base_dir


def _no_backlog(file: Path, error: MalformedError | OSError) -> ConfigProblem:
    if isinstance(error, OSError):
        hint = "`backlog init` makes a board; `tracker.provider.path` says where it is"
        what = f"{file}: {error.strerror or type(error).__name__}"
        return invalid_config("tracker.provider.path", f"leads to no board of Backlog.md: {what}", hint=hint)
    what = f"{file}:{error.line}: {error.message}"
    return invalid_config("tracker.provider.path", f"leads to a board that cannot be used: {what}")


def _prefix(value: object, problems: list[ConfigProblem]) -> str:
    if isinstance(value, str) and _PREFIX.fullmatch(value):
        return value
    rule = "must begin with a letter and hold at most 32 letters, digits, `_` and `-`"
    problems.append(invalid_config("tracker.provider.prefix", rule))
    return DEFAULT_PREFIX


def _states(value: object, problems: list[ConfigProblem]) -> tuple[str, ...]:
    """The legal states; empty where they cannot be told, and then nobody is held to them."""
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        problems.append(invalid_config("tracker.provider.states", "must be a list of names"))
        return ()
    states = _unique(value)
    if not states:
        problems.append(invalid_config("tracker.provider.states", "must name at least one state"))
    return states


def _chosen(
    key: str,
    wanted: Sequence[str] | None,
    default: Sequence[str],
    states: Sequence[str],
    problems: list[ConfigProblem],
) -> tuple[str, ...]:
    """The states of one list in their legal spelling; names outside `states` are refused, blanks ignored."""
    legal = {normalise_state(state): state for state in states}
    names = _unique(wanted or ())
    if not legal:
        return names
    unknown = [name for name in names if normalise_state(name) not in legal]
    problems.extend(
        invalid_config(
            key, f"names {name!r}, which is no state of the board", hint=f"states: {', '.join(states)}"
        )
        for name in unknown
    )
    chosen = names
    if wanted is None:
        chosen = tuple(state for state in default if normalise_state(state) in legal)
    if wanted is None and not chosen:
        problems.append(invalid_config(key, "must be set: no state of the board has a default name"))
    return tuple(legal[normalise_state(name)] for name in chosen if name not in unknown)


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """Trimmed names without blanks (DM7) or repeats, in first-seen order and spelling."""
    seen: dict[str, str] = {}
    for name in names:
        if name.strip():
            seen.setdefault(normalise_state(name), name.strip())
    return tuple(seen.values())
