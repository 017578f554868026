"""How long an agent may be silent within a turn (AG9)."""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from symphony.agents.base import AgentError
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["silence_limit"]

_OVERSLEPT_S = 10.0


@contextmanager
def silence_limit(limit_ms: int) -> Iterator[None]:
    """Bound one read of the agent's output: any output is a sign of life, so each read begins anew.

    A limit that is noticed far too late says that the machine slept, not that the agent was silent: the read
    is given up, and nothing is raised.

    Raises:
        AgentError: `turn_timeout`.
    """
    deadline = anyio.current_time() + limit_ms / 1000
    with anyio.move_on_at(deadline) as silence:
        yield
    if silence.cancelled_caught and anyio.current_time() - deadline < _OVERSLEPT_S:
        message = f"the agent has been silent for {limit_ms} ms"
        raise AgentError(Failure(category=Category.TURN_TIMEOUT, blame=Blame.AGENT, message=message))
