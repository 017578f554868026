"""Finds states of the settings that are probably misspelt, because issues stand in others."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from symphony.domain import Issue, normalise_state
from symphony.trackers.markdown.config import DEFAULT_STATES, BoardConfig
from symphony.trackers.markdown.errors import printable

_MAX_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtfulState:
    """A state of the settings that no issue and no other setting uses.

    Attributes:
        state: as the settings spell it.
        message: one line, which names the states in which issues stand instead.
        nearest: the most similar of those; `None` if none is similar.
    """

    state: str
    message: str
    nearest: str | None


def doubtful_states(
    config: BoardConfig, named: Sequence[str], issues: Sequence[Issue]
) -> Iterator[DoubtfulState]:
    """States that one setting names and nothing uses, while issues stand in states that no setting names.

    A state with a usual name, such as In Progress, is doubted only if issues stand in a similar one.

    Args:
        config: the board.
        named: the states of all settings; one that several settings name is there several times.
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
