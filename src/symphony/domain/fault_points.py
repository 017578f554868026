"""The points at which tests kill the daemon: before and after each action that a crash could interrupt.

A daemon gets a `FaultHook` as a constructor argument and calls it at each point. Outside of tests the hook
does nothing. The points are the rows of the crash matrix.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Self


class FaultPoint(StrEnum):
    """A point and its `meaning`, in the order in which a run passes them."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        """Make a member with its value, the name on the command line, and its meaning."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    LOCKED = "locked", "the instance lock is held; nothing of a predecessor was looked for yet"
    REAPED = "reaped", "what a predecessor left is ended; nothing was asked of agent or tracker yet"
    CHECKED = "checked", "the check of the agent has passed; nothing is dispatched yet"
    CLAIM_PUT = "claim:put", "an issue is claimed; the journal has not written it"
    CLAIM_WRITTEN = "claim:written", "the journal has the claim; what follows from it may have begun"
    BEFORE_PREPARE = "before:prepare", "an issue is claimed; its workspace was not touched"
    WORKSPACE_RECORDED = (
        "workspace:recorded",
        "the record of a workspace is written; there is no directory",
    )
    WORKSPACE_POPULATED = (
        "workspace:populated",
        "a new workspace is in place; `after_create` has not run, and it counts as half-made",
    )
    AFTER_PREPARE = "after:prepare", "the workspace is whole; `before_run` has not run"
    BEFORE_SPAWN = "before:spawn", "the prompt is ready; there is no agent"
    AFTER_SPAWN = "after:spawn", "the agent's session is open; it was given no prompt"
    CONVERSATION_WRITTEN = (
        "conversation:written",
        "the journal has the conversation of the agent's session; it was given no prompt",
    )
    TURN_ENDED = "turn:ended", "the agent has ended a turn; the scheduler has not received it"
    BEFORE_TOOL = "before:tool", "the agent called a tool of Symphony; it was not executed"
    AFTER_TOOL = (
        "after:tool",
        "a tool was executed, such as moving the issue; the agent has not received the result",
    )
    AGENT_STOPPED = "agent:stopped", "no process of the agent is left; `after_run` has not run"
    BEFORE_DELIVER = "before:deliver", "`after_run` has run; the branch is in the workspace alone"
    AFTER_DELIVER = (
        "after:deliver",
        "the branch is delivered; the scheduler has not received the end of the run",
    )
    BEFORE_VERIFY = "before:verify", "the branch is delivered and is to be verified; no command has begun"
    CHECK_ENDED = "check:ended", "a command of a verification has ended; others may follow"
    BEFORE_REVIEWER = (
        "before:reviewer",
        "the commands of a verification have passed; its reviewer was not started",
    )
    AFTER_REVIEWER = (
        "after:reviewer",
        "the reviewer has given its verdict and is gone; nothing but its worker knows of it",
    )
    AFTER_VERIFY = "after:verify", "the work is verified; the scheduler has not received the result"
    END_PUT = "end:put", "the run has ended; the journal has not written it"
    END_WRITTEN = "end:written", "the journal has the end of the run; its workspace is still there"
    RETRY_PUT = "retry:put", "a retry is set; the journal has not written it"
    RETRY_WRITTEN = "retry:written", "the journal has the retry, with the time when it is due"
    BEFORE_PUSH = "before:push", "the journal has the branch that is to be pushed; git was not asked"
    AFTER_PUSH = "after:push", "the branch is pushed; the scheduler has not received it"
    JOB_PUT = "job:put", "a job is queued; the journal has not written it"
    JOB_WRITTEN = "job:written", "the journal has the job; its receiver was not asked"
    BEFORE_COMMENT = "before:comment", "a comment is wanted; the tracker was not asked"
    AFTER_COMMENT = "after:comment", "the comment is on the issue; its id is not recorded"
    BEFORE_MOVE = "before:move", "the issue was read, and is to be moved"
    AFTER_MOVE = "after:move", "the issue is moved; its job still counts as waiting"
    BEFORE_MERGE = "before:merge", "the journal has an approval; nothing is merged"
    AFTER_MERGE = "after:merge", "the work is merged; nothing was said and the issue was not moved"
    BEFORE_NOTIFICATION = "before:notification", "a target was not asked yet to take what waits for it"
    AFTER_NOTIFICATION = "after:notification", "the target has it; its job still counts as waiting"
    JOB_DONE_PUT = "job:done-put", "a job is done; the journal has not written it"
    JOB_DONE_WRITTEN = "job:done-written", "the journal knows that the job is done"
    BEFORE_CLEAN = "before:clean", "a workspace is to be removed; it is complete"
    MOVED_ASIDE = (
        "workspace:moved-aside",
        "a workspace is in the trash; it is not deleted, and its record still stands",
    )
    AFTER_CLEAN = "after:clean", "a workspace and its record are gone; the scheduler has not received it"


FaultHook = Callable[[FaultPoint], None]


def no_fault(point: FaultPoint) -> None:
    """The hook of a real daemon: does nothing."""
    del point
