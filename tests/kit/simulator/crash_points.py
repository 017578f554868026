"""Where a simulated daemon may die: the points of the real one, and those between its decisions and effects.

The real daemon's points (`symphony.domain.fault_points`) lie along a run. The simulator adds those that no
test could reach from outside: between a decision, what is kept of it, and each single thing that is done
about it. For each the table of `docs/RELIABILITY.md` says what may be lost, and what is seen twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from symphony.domain import FaultPoint
from symphony.scheduler import (
    Command,
    ContinueRun,
    Exit,
    FetchCandidates,
    FinishRun,
    PushBranch,
    ReadAnswers,
    RefreshIssues,
    SetTimer,
    StartRun,
    StopRun,
)

__all__ = [
    "ALL_POINTS",
    "AROUND",
    "OUTCOMES",
    "RECOVERY_POINTS",
    "CrashPoint",
    "Outcome",
    "StepPoint",
    "table",
]


class StepPoint(StrEnum):
    """Points inside one step of the daemon, each with its `meaning`."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        """A member is its name, and says what is done and what is not."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    HEARD = "step:heard", "a fact arrived; nothing is decided"
    DECIDED = "step:decided", "it is decided what to do; nothing is kept, nothing is done"
    KEPT = "step:kept", "what is decided was given to the journal, which may not have written it"
    BEFORE_POLL = "before:poll", "the tracker is to be asked for candidates"
    AFTER_POLL = "after:poll", "the tracker was asked for candidates; no answer has come"
    BEFORE_REFRESH = "before:refresh", "the tracker is to be asked for issues by id"
    AFTER_REFRESH = "after:refresh", "the tracker was asked for issues by id; no answer has come"
    BEFORE_READ = "before:read", "the comments of an issue that waits for an answer are to be read"
    AFTER_READ = "after:read", "the comments of an issue were asked for; no answer has come"
    BEFORE_START = "before:start", "a claim is kept; its run has no worker"
    AFTER_START = "after:start", "the worker of a run exists and has done nothing"
    BEFORE_DIRECTIVE = "before:directive", "a worker between turns is to get its directive"
    AFTER_DIRECTIVE = "after:directive", "a worker between turns has got its directive"
    BEFORE_STOP = "before:stop", "a run is to be stopped"
    AFTER_STOP = "after:stop", "a run was asked to stop and has not ended"
    BEFORE_TIMER = "before:timer", "a wait is kept, such as that of a retry; no timer is armed"
    AFTER_TIMER = "after:timer", "a wait is kept, and its timer is armed"
    BEFORE_EXIT = "before:exit", "nothing runs, and the daemon is about to end by itself"


CrashPoint = FaultPoint | StepPoint

AROUND: Mapping[type[Command], tuple[CrashPoint, CrashPoint]] = {
    FetchCandidates: (StepPoint.BEFORE_POLL, StepPoint.AFTER_POLL),
    RefreshIssues: (StepPoint.BEFORE_REFRESH, StepPoint.AFTER_REFRESH),
    ReadAnswers: (StepPoint.BEFORE_READ, StepPoint.AFTER_READ),
    StartRun: (StepPoint.BEFORE_START, StepPoint.AFTER_START),
    ContinueRun: (StepPoint.BEFORE_DIRECTIVE, StepPoint.AFTER_DIRECTIVE),
    FinishRun: (StepPoint.BEFORE_DIRECTIVE, StepPoint.AFTER_DIRECTIVE),
    StopRun: (StepPoint.BEFORE_STOP, StepPoint.AFTER_STOP),
    SetTimer: (StepPoint.BEFORE_TIMER, StepPoint.AFTER_TIMER),
    PushBranch: (FaultPoint.BEFORE_PUSH, FaultPoint.AFTER_PUSH),
    Exit: (StepPoint.BEFORE_EXIT, StepPoint.BEFORE_EXIT),
}
"""The points before and after a command is carried out."""

RECOVERY_POINTS: tuple[CrashPoint, ...] = (
    FaultPoint.LOCKED,
    FaultPoint.REAPED,
    FaultPoint.CHECKED,
    StepPoint.HEARD,
    StepPoint.DECIDED,
    StepPoint.KEPT,
    StepPoint.BEFORE_TIMER,
    FaultPoint.BEFORE_COMMENT,
)
"""Where a daemon may die again while it makes up for the death of its predecessor."""

_JOURNAL = frozenset(
    {
        FaultPoint.CLAIM_PUT,
        FaultPoint.CLAIM_WRITTEN,
        FaultPoint.CONVERSATION_WRITTEN,
        FaultPoint.END_PUT,
        FaultPoint.END_WRITTEN,
        FaultPoint.RETRY_PUT,
        FaultPoint.RETRY_WRITTEN,
        FaultPoint.JOB_PUT,
        FaultPoint.JOB_WRITTEN,
        FaultPoint.JOB_DONE_PUT,
        FaultPoint.JOB_DONE_WRITTEN,
    }
)
"""The writes of the real journal: here one point, `step:kept`, and the dice say how much was written."""

_ELSEWHERE = frozenset(
    {
        FaultPoint.BEFORE_MOVE,
        FaultPoint.AFTER_MOVE,
        FaultPoint.BEFORE_MERGE,
        FaultPoint.AFTER_MERGE,
        FaultPoint.BEFORE_NOTIFICATION,
        FaultPoint.AFTER_NOTIFICATION,
    }
)
"""The boards of these worlds are moved by agents and people alone; nobody is notified or reviews."""

ALL_POINTS: tuple[CrashPoint, ...] = (
    *(point for point in FaultPoint if point not in _JOURNAL | _ELSEWHERE),
    *StepPoint,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What comes of a death at a point.

    `lost` is what nobody knows afterwards; `repeats` what is done twice, and whether that can be seen;
    `rules` are the invariants that would notice more than that. Null means nothing.
    """

    lost: str | None = None
    repeats: str | None = None
    rules: tuple[str, ...]


_NEWS = "what the journal had not written: of the last moments"
_TURN = "the turn that ran; what it changed in the workspace stays"
_ALIVE = ("one-agent-per-issue", "claims-survive")
_VERIFIED = ("unverified-work-stays-claimed", "claims-survive")
_COMMENT = ("no-comment-twice", "block-is-told")

OUTCOMES: Mapping[CrashPoint, Outcome] = {
    FaultPoint.LOCKED: Outcome(rules=("one-agent-per-issue",)),
    FaultPoint.REAPED: Outcome(rules=("one-agent-per-issue",)),
    FaultPoint.CHECKED: Outcome(rules=("claims-survive",)),
    FaultPoint.BEFORE_PREPARE: Outcome(rules=_ALIVE),
    FaultPoint.WORKSPACE_RECORDED: Outcome(rules=_ALIVE),
    FaultPoint.WORKSPACE_POPULATED: Outcome(
        repeats="`after_create`, in a new clone; visible where the hook acts outside of the workspace",
        rules=_ALIVE,
    ),
    FaultPoint.AFTER_PREPARE: Outcome(rules=_ALIVE),
    FaultPoint.BEFORE_SPAWN: Outcome(
        repeats="`before_run`; visible where the hook acts outside of the workspace", rules=_ALIVE
    ),
    FaultPoint.AFTER_SPAWN: Outcome(rules=_ALIVE),
    FaultPoint.TURN_ENDED: Outcome(
        repeats="a turn, should the issue be active still", rules=("tokens-once",)
    ),
    FaultPoint.BEFORE_TOOL: Outcome(lost=_TURN, rules=("tokens-once",)),
    FaultPoint.AFTER_TOOL: Outcome(
        lost=_TURN,
        repeats="the tool call, should the agent ask again: a move is not seen twice, a comment that the "
        "agent writes itself is, as it has no marker of ours",
        rules=("clean-after-end", "finished-or-blocked"),
    ),
    FaultPoint.AGENT_STOPPED: Outcome(lost="how the run ended", rules=_ALIVE),
    FaultPoint.BEFORE_DELIVER: Outcome(
        lost="how the run ended",
        repeats="`after_run`; visible where the hook acts outside of the workspace",
        rules=_ALIVE,
    ),
    FaultPoint.AFTER_DELIVER: Outcome(
        lost="how the run ended", repeats="the delivery, which finds everything there", rules=_ALIVE
    ),
    FaultPoint.BEFORE_VERIFY: Outcome(lost="how the run ended", rules=_VERIFIED),
    FaultPoint.CHECK_ENDED: Outcome(
        lost="the result", repeats="the verification, by a run without a session", rules=_VERIFIED
    ),
    FaultPoint.BEFORE_REVIEWER: Outcome(
        lost="the result", repeats="the verification, by a run without a session", rules=_VERIFIED
    ),
    FaultPoint.AFTER_REVIEWER: Outcome(
        lost="the verdict",
        repeats="the verification, by a run without a session; the reviewer uses tokens again",
        rules=_VERIFIED,
    ),
    FaultPoint.AFTER_VERIFY: Outcome(
        lost="the result", repeats="the verification, by a run without a session", rules=_VERIFIED
    ),
    FaultPoint.BEFORE_PUSH: Outcome(rules=("push-is-tried-again",)),
    FaultPoint.AFTER_PUSH: Outcome(
        repeats="the push, which finds everything there", rules=("push-is-tried-again",)
    ),
    FaultPoint.BEFORE_COMMENT: Outcome(repeats="the wish; the comment is written once", rules=_COMMENT),
    FaultPoint.AFTER_COMMENT: Outcome(
        lost="the comment's id",
        repeats="the comment: found by its marker and left; a tracker that shows no new comment for a while "
        "would get it twice",
        rules=_COMMENT,
    ),
    FaultPoint.BEFORE_CLEAN: Outcome(
        repeats="`before_remove`; visible where the hook acts outside of the workspace",
        rules=("clean-after-end",),
    ),
    FaultPoint.MOVED_ASIDE: Outcome(rules=("clean-after-end",)),
    FaultPoint.AFTER_CLEAN: Outcome(rules=("clean-after-end",)),
    StepPoint.HEARD: Outcome(
        lost="the fact: an operator who saw no answer asks again; agents and tracker are asked anew",
        rules=("claims-survive", "finished-or-blocked"),
    ),
    StepPoint.DECIDED: Outcome(lost="the decision, of which nothing was done", rules=("claims-survive",)),
    StepPoint.KEPT: Outcome(
        lost=_NEWS,
        rules=("claims-survive", "retries-survive", "blocks-survive", "budgets-survive", "pause-survives"),
    ),
    StepPoint.BEFORE_POLL: Outcome(rules=("liveness",)),
    StepPoint.AFTER_POLL: Outcome(repeats="the question", rules=("liveness",)),
    StepPoint.BEFORE_REFRESH: Outcome(rules=("fresh-start",)),
    StepPoint.AFTER_REFRESH: Outcome(repeats="the question", rules=("fresh-start",)),
    StepPoint.BEFORE_READ: Outcome(rules=("answers-once",)),
    StepPoint.AFTER_READ: Outcome(repeats="the question", rules=("answers-once", "comments-are-heard")),
    StepPoint.BEFORE_START: Outcome(lost=_NEWS, rules=_ALIVE),
    StepPoint.AFTER_START: Outcome(lost=_NEWS, rules=_ALIVE),
    StepPoint.BEFORE_DIRECTIVE: Outcome(rules=("answers-arrive", "tokens-once")),
    StepPoint.AFTER_DIRECTIVE: Outcome(lost=_NEWS, rules=("budget-holds", "tokens-once")),
    StepPoint.BEFORE_STOP: Outcome(
        lost="the wish to stop; an issue that is out of budget, or not to be worked on, is not started again",
        rules=("budget-holds", "fresh-start"),
    ),
    StepPoint.AFTER_STOP: Outcome(lost="the wish to stop; an operator's own is written", rules=_ALIVE),
    StepPoint.BEFORE_TIMER: Outcome(lost=_NEWS, rules=("retries-survive",)),
    StepPoint.AFTER_TIMER: Outcome(lost=_NEWS, rules=("retries-survive",)),
    StepPoint.BEFORE_EXIT: Outcome(lost=_NEWS, rules=("claims-survive", "finished-or-blocked")),
}


def table() -> str:
    """What comes of a death at each point, as Markdown."""
    rows = [
        "| point | at this moment | what may be lost | what repeats | judged by |",
        "|---|---|---|---|---|",
    ]
    for point in ALL_POINTS:
        found = OUTCOMES[point]
        rules = ", ".join(f"`{rule}`" for rule in found.rules)
        rows.append(
            f"| `{point}` | {point.meaning} | {found.lost or 'nothing'} | {found.repeats or 'nothing'} "
            f"| {rules} |"
        )
    return "\n".join(rows)
