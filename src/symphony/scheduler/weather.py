"""Whether the tracker is asked now."""

from enum import StrEnum

from symphony.scheduler.state import State

__all__ = ["Circuit", "circuit"]


class Circuit(StrEnum):
    """Whether the tracker is asked."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


def circuit(state: State, now_ms: int) -> Circuit:
    """The state of the circuit."""
    if not state.weather.failures or state.weather.until_ms is None:
        return Circuit.CLOSED
    return Circuit.OPEN if now_ms < state.weather.until_ms else Circuit.HALF_OPEN
