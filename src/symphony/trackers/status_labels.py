"""Workflow states that are kept in labels, on trackers whose issues are only open or closed.

A label stands for a state: `status:in-progress` for `In Progress`, unless the settings name another one. An
issue with two of them contradicts itself, and is held back instead of guessed at. A closed issue is over,
whatever its labels say.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from symphony.domain.issue import normalise_state
from symphony.trackers.provider import ProviderReader

__all__ = ["CLOSED", "OPEN", "LabelState", "StatusLabels"]

OPEN, CLOSED = "open", "closed"
DEFAULT_PREFIX = "status:"
_MAX_PREFIX = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelState:
    """The state that labels give an issue; `objection` says why they do not give it a clear one."""

    state: str
    objection: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusLabels:
    """Which label stands for which state.

    `by_state` is in the order of the settings; `opened` is what the service calls an open issue.
    """

    prefix: str = DEFAULT_PREFIX
    by_state: Mapping[str, str] = field(default_factory=dict)
    opened: str = OPEN

    @classmethod
    def of(
        cls,
        reader: ProviderReader,
        part: Mapping[str, Any],
        states: Sequence[str],
        *,
        default_prefix: str = DEFAULT_PREFIX,
        opened: str = OPEN,
    ) -> "StatusLabels":
        """Read `prefix` and `labels` below `tracker.provider.states`; the reader is told mistakes.

        `states` are those that other settings name. What `labels` names besides is a state too: people and
        agents can move an issue there, and nothing more is known of it.
        """
        prefix = part.get("prefix", default_prefix)
        if not isinstance(prefix, str) or not prefix.strip() or len(prefix) > _MAX_PREFIX:
            reader.wrong("states", f"needs `prefix` to be a short text, like {default_prefix}")
            prefix = default_prefix
        named = part.get("labels", {})
        if not isinstance(named, Mapping) or not all(_is_name(name) for name in named.values()):
            reader.wrong("states", "needs `labels` to be a map from states to labels")
            named = {}
        given = {normalise_state(str(state)): str(label).strip() for state, label in named.items()}
        spelled: dict[str, str] = {}
        for state in (*states, *map(str, named)):
            spelled.setdefault(normalise_state(state), state.strip())
        by_state = {
            state: given.get(name, f"{prefix}{name.replace(' ', '-')}")
            for name, state in spelled.items()
            if name not in {"", opened, CLOSED}
        }
        if len({label.lower() for label in by_state.values()}) < len(by_state):
            reader.wrong("states", "has one label for two states")
        return cls(prefix=prefix.strip().lower(), by_state=by_state, opened=opened)

    def label(self, state: str) -> str | None:
        """The label of a state, or null for the service's own states and what is not configured."""
        wanted = normalise_state(state)
        return next((label for name, label in self.by_state.items() if normalise_state(name) == wanted), None)

    def of_status(self, labels: Iterable[str]) -> tuple[str, ...]:
        """Those of an issue's labels that stand for states, known or not."""
        ours = {label.lower() for label in self.by_state.values()}
        return tuple(
            label
            for label in dict.fromkeys(label.strip() for label in labels)
            if label.lower() in ours or label.lower().startswith(self.prefix)
        )

    def read(self, labels: Iterable[str], *, closed: bool, terminal: frozenset[str]) -> LabelState:
        """The state of an issue with these labels; `terminal` are normalised names of what is over."""
        found = {label.lower(): self._state(label) for label in self.of_status(labels)}
        states = tuple(found.values())
        if closed:
            over = [state for state in states if normalise_state(state) in terminal]
            return LabelState(state=over[0] if over else CLOSED)
        if not states:
            return LabelState(state=self.opened)
        if len(states) == 1:
            return LabelState(state=states[0])
        going_on = [state for state in states if normalise_state(state) not in terminal]
        names = " and ".join(f"`{label}`" for label in self.of_status(labels))
        return LabelState(
            state=(going_on or list(states))[0], objection=f"its labels contradict each other: {names}"
        )

    def _state(self, label: str) -> str:
        for state, name in self.by_state.items():
            if name.lower() == label.lower():
                return state
        return label[len(self.prefix) :].strip() or label


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "," not in value  # which separates labels
