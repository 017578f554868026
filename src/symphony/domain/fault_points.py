"""The points at which a test may end the daemon for good: beside all that a crash could leave half-done.

Code that reaches such a point says so to a `Fault`, which a daemon gets as a constructor argument and which
does nothing unless a test gave it something to do. The points are the rows of the crash matrix.
"""

from collections.abc import Callable
from enum import StrEnum

__all__ = ["Fault", "FaultPoint", "no_fault"]


class FaultPoint(StrEnum):
    """One point each, in the order in which a run passes them."""

    LOCKED = "locked"
    """The instance lock is held; nothing of a predecessor was looked for yet."""
    REAPED = "reaped"
    """What a predecessor left is ended; nothing was asked of agent or tracker yet."""
    CHECKED = "checked"
    """The check of the agent has passed; nothing is dispatched yet."""
    BEFORE_PREPARE = "before:prepare"
    """An issue is claimed; its workspace was not touched."""
    WORKSPACE_RECORDED = "workspace:recorded"
    """The record of a new workspace is written; there is no directory."""
    WORKSPACE_POPULATED = "workspace:populated"
    """The directory of a new workspace is in place; `after_create` has not run, the record says half-made."""
    AFTER_PREPARE = "after:prepare"
    """The workspace is whole; `before_run` has not run."""
    BEFORE_SPAWN = "before:spawn"
    """The prompt is ready; there is no agent."""
    AFTER_SPAWN = "after:spawn"
    """The agent's session is open; it was given no prompt."""
    TURN_ENDED = "turn:ended"
    """The agent has ended a turn; the scheduler does not know."""
    BEFORE_TOOL = "before:tool"
    """The agent asked for a tool of ours; it was not executed."""
    AFTER_TOOL = "after:tool"
    """A tool was executed, such as moving the issue; the agent does not know."""
    AGENT_STOPPED = "agent:stopped"
    """No process of the agent is left; `after_run` has not run."""
    BEFORE_DELIVER = "before:deliver"
    """`after_run` has run; the branch is in the workspace alone."""
    AFTER_DELIVER = "after:deliver"
    """The branch is delivered; the scheduler does not know that the run has ended."""
    BEFORE_COMMENT = "before:comment"
    """A comment is wanted; the tracker was not asked."""
    AFTER_COMMENT = "after:comment"
    """The comment is on the issue; nobody remembers its id."""
    BEFORE_CLEAN = "before:clean"
    """A workspace is to go; it is there as a whole."""
    MOVED_ASIDE = "workspace:moved-aside"
    """A workspace is in the trash; it is not deleted, and its record is still there."""
    AFTER_CLEAN = "after:clean"
    """A workspace and its record are gone; the scheduler does not know."""


Fault = Callable[[FaultPoint], None]


def no_fault(point: FaultPoint) -> None:
    """What a daemon does at a fault point: nothing."""
    del point
