"""The settings of the board: `tracker.provider` and the states of `tracker`."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec import Struct

from symphony.domain import BOARD_PATH, Issue, normalise_state
from symphony.trackers.base import ConfigProblem, TrackerConfigError, unique
from symphony.trackers.markdown.document import MalformedError
from symphony.trackers.markdown.errors import config_problem, printable
from symphony.trackers.markdown.layout import (
    BACKLOG_COMMENTS,
    BACKLOG_CONFIG,
    BACKLOG_TASKS,
    OWN,
    BacklogLayout,
    BacklogSettings,
    BoardLayout,
)

_MAX_NAMES = 5

PROVIDER_KEYS = ("path", "prefix", "states", "layout")
DEFAULT_PREFIX = "SYM"
DEFAULT_STATES = ("Backlog", "Todo", "In Progress", "Human Review", "Done", "Cancelled")
PARKING_STATES = ("Backlog", "Human Review")
"""States in which issues may be although no setting names them."""
DEFAULT_ACTIVE = ("Todo", "In Progress")
DEFAULT_TERMINAL = ("Done", "Cancelled")
_OWN_LAYOUT, _BACKLOG_LAYOUT = "symphony", "backlog.md"
_BACKLOG_PATH = "backlog"
_BACKLOG_ACTIVE = ("To Do", "Todo", "In Progress")
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardConfig:
    """Where the board is and what its states mean.

    Attributes:
        path: the folder of the issue files, absolute.
        prefix: the part before the number of a new id (`SYM` gives `SYM-12`).
        states: every legal state, in the order in which people see them and in the spelling to write.
        active: states in which an issue is worked on.
        terminal: states in which an issue is over.
        layout: how issues are stored in the folder.
        comments_path: the folder of the comments; by default that of the issues.
        lists_states: whether the settings, or another program's board, list the states.
    """

    path: Path
    prefix: str = DEFAULT_PREFIX
    states: tuple[str, ...] = DEFAULT_STATES
    active: tuple[str, ...] = DEFAULT_ACTIVE
    terminal: tuple[str, ...] = DEFAULT_TERMINAL
    layout: BoardLayout = OWN
    comments_path: Path | None = None
    lists_states: bool = field(default=False, compare=False)

    @property
    def comments(self) -> Path:
        """The folder of the comments."""
        return self.comments_path or self.path

    def state(self, name: str) -> str | None:
        """The configured spelling of a state; `None` if there is no such state."""
        return next((state for state in self.states if normalise_state(state) == normalise_state(name)), None)

    def names(self, state: str) -> bool:
        """Whether the settings name a state; issues may be in `PARKING_STATES` anyway."""
        named = self.states if self.lists_states else (*self.active, *self.terminal, *PARKING_STATES)
        return normalise_state(state) in map(normalise_state, named)

    @classmethod
    def of(
        cls,
        provider: Mapping[str, Any],
        *,
        base_dir: Path,
        active: Sequence[str] | None = None,
        terminal: Sequence[str] | None = None,
    ) -> "BoardConfig":
        """Read the settings.

        Without `states` the legal states are the defaults and those in `active` and `terminal`. With `layout:
        backlog.md` the states are those of the board's `config.yml`, which is read here. Other keys are
        ignored.

        Args:
            provider: `tracker.provider`.
            base_dir: the directory of WORKFLOW.md, where relative paths start.
            active: active states; `None` for the legal ones among the defaults, an empty list for no state.
            terminal: terminal states, likewise.

        Raises:
            TrackerConfigError: with every key that does not fit.
        """
        reader = _Reader(provider, base_dir)
        layout = provider.get("layout", _OWN_LAYOUT)
        if layout == _BACKLOG_LAYOUT:
            return reader.backlog(active, terminal)
        if layout != _OWN_LAYOUT:
            reader.wrong("layout", f"must be {_OWN_LAYOUT} or {_BACKLOG_LAYOUT}")
        states = reader.states(unique((*DEFAULT_STATES, *(active or ()), *(terminal or ()))))
        config = cls(
            path=reader.path(BOARD_PATH),
            prefix=reader.prefix(),
            states=states,
            active=reader.chosen("active_states", active, DEFAULT_ACTIVE, states),
            terminal=reader.chosen("terminal_states", terminal, DEFAULT_TERMINAL, states),
            lists_states=provider.get("states") is not None,
        )
        reader.done()
        return config


class _Reader:
    """Reads single settings and collects mistakes. Each method returns a default after a mistake."""

    def __init__(self, provider: Mapping[str, Any], base_dir: Path) -> None:
        self._provider = provider
        self._base_dir = base_dir
        self._problems: list[ConfigProblem] = []

    def done(self) -> None:
        """Raise `TrackerConfigError` if there were mistakes."""
        if self._problems:
            raise TrackerConfigError(self._problems)

    def wrong(self, key: str, message: str) -> None:
        """Note a mistake in a key of the provider."""
        self._problems.append(config_problem(f"tracker.provider.{key}", message))

    def backlog(self, active: Sequence[str] | None, terminal: Sequence[str] | None) -> BoardConfig:
        """A board of Backlog.md, whose own settings define prefix and states."""
        folder = self.path(_BACKLOG_PATH)
        for key in ("prefix", "states"):
            if key in self._provider:
                self.wrong(key, f"is not for this layout: {BACKLOG_CONFIG} of the board says it")
        self.done()
        file = folder / BACKLOG_CONFIG
        try:
            known = BacklogSettings.read(folder)
        except MalformedError as error:
            problem = f"leads to a board that cannot be used: {file}:{error.line}: {error.message}"
            raise TrackerConfigError([config_problem("tracker.provider.path", problem)]) from error
        except OSError as error:
            problem = f"leads to no board of Backlog.md: {file}: {error.strerror or type(error).__name__}"
            hint = "`backlog init` makes a board; `tracker.provider.path` is its folder"
            raise TrackerConfigError([config_problem("tracker.provider.path", problem, hint=hint)]) from error
        states = known.statuses
        config = BoardConfig(
            path=folder / BACKLOG_TASKS,
            prefix=known.prefix.upper(),
            states=states,
            active=self.chosen("active_states", active, _BACKLOG_ACTIVE, states),
            terminal=self.chosen("terminal_states", terminal, states[-1:], states),
            layout=BacklogLayout(known),
            comments_path=folder / BACKLOG_COMMENTS,
            lists_states=True,
        )
        self.done()
        return config

    def path(self, default: str) -> Path:
        value = self._provider.get("path", default)
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            self.wrong("path", "must be the path of a folder")
            return self._base_dir
        try:
            return self._base_dir.absolute() / Path(value).expanduser()
        except RuntimeError as error:
            self.wrong("path", f"cannot be used: {error}")
            return self._base_dir

    def prefix(self) -> str:
        value = self._provider.get("prefix", DEFAULT_PREFIX)
        if isinstance(value, str) and _PREFIX.fullmatch(value):
            return value
        self.wrong("prefix", "must begin with a letter and have at most 32 letters, digits, `_` and `-`")
        return DEFAULT_PREFIX

    def states(self, default: tuple[str, ...]) -> tuple[str, ...]:
        """The legal states; empty after a mistake."""
        value = self._provider.get("states")
        if value is None:
            return default
        if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
            self.wrong("states", "must be a list of names")
            return ()
        states = unique(value)
        if not states:
            self.wrong("states", "must name at least one state")
        return states

    def chosen(
        self, key: str, wanted: Sequence[str] | None, default: Sequence[str], states: Sequence[str]
    ) -> tuple[str, ...]:
        """The states of `active_states` or `terminal_states` in their legal spelling."""
        legal = {normalise_state(state): state for state in states}
        if wanted is None:
            found = [legal[name] for name in map(normalise_state, default) if name in legal]
            if legal and not found:
                problem = "must be set: no state of the board has a default name"
                self._problems.append(config_problem(f"tracker.{key}", problem))
            return tuple(found)
        if not legal:  # after a mistake in `states`
            return unique(wanted)
        found = []
        for name in unique(wanted):
            if normalise_state(name) in legal:
                found.append(legal[normalise_state(name)])
            else:
                problem = f"names {name!r}, which is no state of the board"
                hint = f"states: {', '.join(states)}"
                self._problems.append(config_problem(f"tracker.{key}", problem, hint=hint))
        return tuple(found)


class DoubtfulState(Struct, frozen=True, kw_only=True):
    """A state of the settings that no issue and no other setting uses.

    Attributes:
        state: as the settings spell it.
        message: one line, which names the states in which issues are instead.
        nearest: the most similar of those; `None` if none is similar.
    """

    state: str
    message: str
    nearest: str | None


def doubtful_states(
    config: BoardConfig, named: Sequence[str], issues: Sequence[Issue]
) -> Iterator[DoubtfulState]:
    """States that one setting names and nothing uses, while issues are in states that no setting names.

    A state with a usual name, such as In Progress, is doubtful only if issues are in a similar one.

    Args:
        config: the board.
        named: the states of all settings; a state that several settings name occurs several times.
        issues: all issues of the board.
    """
    usual = set(map(normalise_state, DEFAULT_STATES))
    counted = Counter(map(normalise_state, named))
    used = {normalise_state(issue.state) for issue in issues}
    stray = {
        normalise_state(issue.state): issue.state
        for issue in issues
        if not config.names(issue.state) and normalise_state(issue.state) not in counted
    }
    names = ", ".join(sorted(map(printable, stray.values()))[:_MAX_NAMES])
    for state in dict.fromkeys(named):
        key = normalise_state(state)
        if not stray or counted[key] > 1 or key in used:
            continue
        near = next(iter(get_close_matches(key, stray, n=1, cutoff=0.6)), None)
        if near is not None or key not in usual:
            message = f"no issue is in {state!r}, and issues stand in states that no setting names: {names}"
            yield DoubtfulState(state=state, message=message, nearest=near and stray[near])
