"""What one run attempt does: a script in virtual time, told by small builders.

Session.succeeds(after_s=90)                     one turn, then the issue is Done
Session.succeeds(turns=3, moves_to="In Review")
Session.fails(Category.TURN_FAILED, after_s=5)
Session.stalls(after_s=20), Session.asks(), Session.crashes_at_launch(), Session.workspace_fails()
Session.succeeds().stubborn(for_s=40).idle()     refuses to stop for 40 s, leaves no progress
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from symphony.domain import Blame, Category, Failure

__all__ = ["Ending", "Session", "Turn"]


class Ending(StrEnum):
    """How a turn ends."""

    COMPLETES = "completes"
    FAILS = "fails"
    ASKS = "asks"
    TIMES_OUT = "times_out"
    HANGS = "hangs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn: how long it lasts, how it ends, and which state the session gives its own issue half-way.

    A turn that hangs gives signs of life until `lasts_ms` and none after it. `failure` belongs to an ending
    that is one. `silent` turns give no sign of life at all between begin and end.
    """

    lasts_ms: int = 60_000
    ending: Ending = Ending.COMPLETES
    failure: Failure | None = None
    moves_to: str | None = None
    sign_every_ms: int = 60_000
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One run attempt from `StartRun` to `RunEnded`.

    Attributes:
        prepare_ms: clone and hooks; `prepare_failure` ends the attempt there.
        launch_ms: from process start to the first turn; `launch_failure` ends the attempt there.
        turns: in order; when the scheduler asks for more, the last one is repeated.
        deliver_ms: from the last word to `RunEnded`.
        stop_ms: how long it takes to end when it is asked to stop.
        progress: whether it leaves a new commit or a changed tree; null where nobody can tell.
        tokens: of each turn, at its begin; half as many come at its end.
        survives: whether the agent outlives a daemon that is killed.
        forgets: whether it cannot go on with an earlier conversation.
    """

    prepare_ms: int = 2_000
    prepare_failure: Failure | None = None
    launch_ms: int = 500
    launch_failure: Failure | None = None
    turns: tuple[Turn, ...] = (Turn(),)
    deliver_ms: int = 1_000
    stop_ms: int = 500
    progress: bool | None = True
    tokens: int = 1_000
    survives: bool = True
    forgets: bool = False

    @classmethod
    def succeeds(cls, *, after_s: float = 60, turns: int = 1, moves_to: str | None = "Done") -> Self:
        """Complete `turns` turns of `after_s` seconds each; move the issue in the last one (null: never)."""
        turn = Turn(lasts_ms=round(after_s * 1000))
        return cls(turns=(*(turn for _ in range(turns - 1)), replace(turn, moves_to=moves_to)))

    @classmethod
    def fails(
        cls,
        category: Category = Category.TURN_FAILED,
        *,
        after_s: float = 30,
        blame: Blame = Blame.AGENT,
        message: str = "the turn failed",
        retry_after_ms: int | None = None,
    ) -> Self:
        """Fail in the first turn, and leave nothing behind."""
        failure = Failure(category=category, blame=blame, message=message, retry_after_ms=retry_after_ms)
        turn = Turn(lasts_ms=round(after_s * 1000), ending=Ending.FAILS, failure=failure)
        return cls(turns=(turn,), progress=False)

    @classmethod
    def stalls(cls, *, after_s: float = 30) -> Self:
        """Give signs of life for so long, then be silent until somebody ends it."""
        return cls(turns=(Turn(lasts_ms=round(after_s * 1000), ending=Ending.HANGS),), progress=False)

    @classmethod
    def asks(cls, *, after_s: float = 30) -> Self:
        """Ask a person, which no daemon answers by itself."""
        failure = Failure(
            category=Category.TURN_INPUT_REQUIRED,
            blame=Blame.AGENT,
            message="the agent asks: which one?",
            retryable=False,
        )
        turn = Turn(lasts_ms=round(after_s * 1000), ending=Ending.ASKS, failure=failure)
        return cls(turns=(turn,))

    @classmethod
    def crashes_at_launch(cls) -> Self:
        """Start the agent, which ends before it says a word."""
        failure = Failure(
            category=Category.PORT_EXIT, blame=Blame.AGENT, message="the agent ended with code 127"
        )
        return cls(launch_failure=failure, progress=False)

    @classmethod
    def workspace_fails(cls, category: Category = Category.WORKSPACE_HOOK_FAILED) -> Self:
        """Fail before there is an agent."""
        failure = Failure(
            category=category, blame=Blame.WORKSPACE, message="the workspace could not be prepared"
        )
        return cls(prepare_failure=failure, progress=None)

    def stubborn(self, *, for_s: float = 60) -> Self:
        """The same, but it ends only so long after it was asked to stop."""
        return replace(self, stop_ms=round(for_s * 1000))

    def idle(self) -> Self:
        """The same, but it leaves neither a commit nor a changed tree."""
        return replace(self, progress=False)
