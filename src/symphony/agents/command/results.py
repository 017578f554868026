"""What the end of a one-shot agent means: its exit code, and what it said before (AG12). Pure."""

import signal
from collections.abc import Collection

from symphony.agents.command.profiles import Profile, Sign
from symphony.agents.events import TurnEnded, TurnStatus
from symphony.agents.redaction import redact
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["result", "sign_in"]

_NOT_FOUND = frozenset({126, 127})
_SIGNALLED = 128  # by which a shell tells of a signal


def sign_in(line: str, profile: Profile) -> Sign | None:
    """How the agent tells in this line why it cannot work; null for any other line."""
    return next((sign for sign in profile.signs if sign.pattern.search(line)), None)


def result(code: int, last: str, profile: Profile, signs: Collection[Sign] = ()) -> TurnEnded:
    """The end of a turn by exit code and last line; `signs` are those that it showed, the latest last.

    The shell tells by 126 and 127 that a program cannot be executed or does not exist.
    """
    shown = next(reversed(tuple(signs)), None)
    if shown is not None:
        failure = Failure(
            category=shown.category,
            blame=Blame.AGENT,
            message=redact(f"the agent said: {last}"),
            retryable=shown.category is not Category.AGENT_AUTH,
            hint=shown.hint,
        )
    elif code == 0:
        return TurnEnded(status=TurnStatus.COMPLETED)
    elif code in _NOT_FOUND:
        failure = Failure(
            category=Category.AGENT_NOT_FOUND,
            blame=Blame.CONFIG,
            message=redact(_with("the agent's program was not found", last)),
            hint=profile.install_hint,
        )
    else:
        failure = Failure(
            category=Category.TURN_FAILED, blame=Blame.AGENT, message=redact(_with(_ended(code), last))
        )
    return TurnEnded(status=TurnStatus.FAILED, failure=failure)


def _ended(code: int) -> str:
    number = -code if code < 0 else code - _SIGNALLED
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"the agent ended with exit code {code}"
    return f"the agent was ended by {name}"


def _with(text: str, last: str) -> str:
    return f"{text}: {last}" if last else text
