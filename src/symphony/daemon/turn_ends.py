"""From the end of a turn to the end of a run: which failure it is, and how the run is said to have ended."""

from symphony.agents.events import AgentEvent, InputRequired, TurnEnded, TurnStatus
from symphony.domain.failures import Blame, Category, Failure
from symphony.scheduler.inputs import OutcomeKind

__all__ = ["kind_of", "needs_person", "turn_failure"]

_INPUT_CATEGORIES = frozenset({Category.TURN_INPUT_REQUIRED, Category.APPROVAL_REQUIRED})
_TIMEOUTS = frozenset({Category.TURN_TIMEOUT, Category.RESPONSE_TIMEOUT})


def kind_of(failure: Failure) -> OutcomeKind:
    """How a run ended that failed like this."""
    if failure.category in _INPUT_CATEGORIES:
        return OutcomeKind.INPUT_REQUIRED
    return OutcomeKind.TIMED_OUT if failure.category in _TIMEOUTS else OutcomeKind.FAILED


def needs_person(event: InputRequired, section: str) -> Failure:
    """Why a person is asked; `section` is where the agent's settings are written."""
    return Failure(
        category=Category.APPROVAL_REQUIRED if event.approval else Category.TURN_INPUT_REQUIRED,
        blame=Blame.AGENT,
        message=f"the agent needs a person: {event.reason}",
        retryable=False,
        hint=f"say in the issue's description how to do without it, or change {section}.on_approval"
        if event.approval
        else "write the answer as a comment on the issue",
    )


def turn_failure(last: AgentEvent | None) -> Failure:
    """What is wrong with a turn that neither completed nor told a failure."""
    interrupted = isinstance(last, TurnEnded) and last.status is TurnStatus.INTERRUPTED
    return Failure(
        category=Category.TURN_CANCELLED if interrupted else Category.TURN_FAILED,
        blame=Blame.AGENT,
        message="the turn was interrupted" if interrupted else "the turn ended without a result",
    )
