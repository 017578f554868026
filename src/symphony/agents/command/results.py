"""What the end of a one-shot agent means: its exit code, and what it said before (AG12). Pure."""

import signal

from symphony.agents.command.profiles import Profile, Sign
from symphony.agents.events import TurnEnded, TurnStatus
from symphony.agents.redaction import redact
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["Signs", "result"]

_NOT_FOUND = frozenset({126, 127})
_SIGNALLED = 128  # by which a shell tells of a signal


class Signs:
    """What an agent has told so far of why it cannot work."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._latest: tuple[Sign, str] | None = None

    def hear(self, line: str) -> None:
        """Take a line of its output."""
        if self._profile.worked is not None and self._profile.worked.search(line):
            self._latest = None
        sign = next((sign for sign in self._profile.signs if sign.pattern.search(line)), None)
        if sign is not None:
            self._latest = (sign, line)

    @property
    def failure(self) -> Failure | None:
        """Why it could not work; null where it told nothing of the kind, or went on."""
        if self._latest is None:
            return None
        sign, line = self._latest
        return Failure(
            category=sign.category,
            blame=Blame.CONFIG if sign.ours else Blame.AGENT,
            message=redact(f"the agent said: {line}"),
            retryable=not sign.ours,
            hint=sign.hint,
        )


def result(code: int, last: str, profile: Profile, told: Failure | None = None) -> TurnEnded:
    """The end of a turn by what the agent told of it, else by exit code and last line.

    The shell tells by 126 and 127 that a program cannot be executed or does not exist.
    """
    if told is not None:
        failure = told
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
