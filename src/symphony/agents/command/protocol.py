"""The meaning of a one-shot agent's output and exit code. No I/O.

Nothing is known about the meaning of a line, so each line is a message to people. Of many lines at once only
the last ones become events, and the others count as activity. Control characters are removed, and of a line
that was overwritten, as by a progress bar, the last state counts.
"""

import signal
from typing import Final

from symphony.agents.command.profiles import CommandProfile, FailurePattern
from symphony.agents.events import Activity, AgentEvent, Text, TurnEnded, TurnStatus, redact
from symphony.agents.wire import Lines, MalformedLine
from symphony.domain import Blame, Category, Failure

MAX_TEXTS: Final = 32
_MAX_LINE_BYTES: Final = 262_144
_MAX_TEXT_BYTES: Final = 8_192
_NOT_FOUND_EXITS: Final = frozenset({126, 127})  # the shell: not executable, not found
_SIGNAL_EXITS: Final = 128  # the shell adds the number of the signal


class TurnOutput:
    """The output of one turn."""

    def __init__(self, profile: CommandProfile) -> None:
        self._profile = profile
        self._lines = Lines(max_line_bytes=_MAX_LINE_BYTES)
        self._last_line = ""
        self._failure: tuple[FailurePattern, str] | None = None

    def receive(self, data: bytes) -> list[AgentEvent]:
        """Return the events of a read, at least one: any output shows that the agent is alive."""
        return self._events(self._lines.receive(data)) or [Activity(count=1)]

    def close(self) -> list[AgentEvent]:
        """Return the events that the end leaves: an unfinished line counts as a whole one."""
        return self._events(self._lines.close())

    def turn_end(self, exit_code: int, stderr_line: str) -> TurnEnded:
        """Return the end of the turn by a line that showed a failure, else by the exit code."""
        failure = self._failure
        if failure is None and exit_code == 0:
            return TurnEnded(status=TurnStatus.COMPLETED)
        last_line = stderr_line or self._last_line
        details = f": {last_line}" if last_line else ""
        if failure is not None:
            pattern, line = failure
            found = Failure(
                category=pattern.category,
                blame=Blame.CONFIG if pattern.permanent else Blame.AGENT,
                message=redact(f"the agent said: {line}"),
                retryable=not pattern.permanent,
                hint=pattern.hint,
            )
        elif exit_code in _NOT_FOUND_EXITS:
            found = Failure(
                category=Category.AGENT_NOT_FOUND,
                blame=Blame.CONFIG,
                message=redact(f"the agent's program was not found{details}"),
                hint=self._profile.install_hint,
            )
        else:
            text = f"{_describe_exit(exit_code)}{details}"
            found = Failure(category=Category.TURN_FAILED, blame=Blame.AGENT, message=redact(text))
        return TurnEnded(status=TurnStatus.FAILED, failure=found)

    def _events(self, lines: list[bytes | MalformedLine]) -> list[AgentEvent]:
        texts = ["" if isinstance(line, MalformedLine) else _shown(line) for line in lines[-MAX_TEXTS:]]
        events: list[AgentEvent] = [Text(message=text) for text in texts if text]
        activity = len(lines) - len(events)
        for text in texts:
            if text:
                self._last_line = text
                self._look_for_failure(text)
        return [*([Activity(count=activity)] if activity else []), *events]

    def _look_for_failure(self, line: str) -> None:
        profile = self._profile
        if profile.progress is not None and profile.progress.search(line):
            self._failure = None
        for failure in profile.failures:
            if failure.pattern.search(line):
                self._failure = (failure, line)
                return


def _shown(line: bytes) -> str:
    cut = "…" if len(line) > _MAX_TEXT_BYTES else ""  # shows the masking that a secret may be cut here
    text = cut + line[-_MAX_TEXT_BYTES:].decode("utf-8", "replace")
    states = [state for state in text.split("\r") if state.strip()]
    return redact(states[-1]) if states else ""


def _describe_exit(code: int) -> str:
    try:
        name = signal.Signals(-code if code < 0 else code - _SIGNAL_EXITS).name
    except ValueError:
        return f"the agent ended with exit code {code}"
    return f"the agent was ended by {name}"
