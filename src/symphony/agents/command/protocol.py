"""The meaning of a one-shot agent's output and exit code. No I/O.

Nothing is known about the meaning of a line, so the lines are messages to people: the last line of a read is
one, and the lines before it another one. If a line was overwritten, as by a progress bar, its last state
counts.
"""

import signal
from typing import Final

from symphony.agents.command.profiles import CommandProfile, FailurePattern
from symphony.agents.events import Activity, AgentEvent, Text, TurnEnd, TurnStatus, redact
from symphony.agents.wire import LineSplitter, MalformedLine
from symphony.domain import Blame, Category, Failure, mask_credentials, plain_text

_MAX_LINE_BYTES: Final = 262_144
_NOT_FOUND_EXITS: Final = frozenset({126, 127})  # the shell: not executable, not found
_SIGNAL_EXITS: Final = 128  # the shell adds the number of the signal


class TurnOutput:
    """The output of one turn."""

    def __init__(self, profile: CommandProfile) -> None:
        self._profile = profile
        self._lines = LineSplitter(max_line_bytes=_MAX_LINE_BYTES)
        self._last_line = ""
        self._failure: tuple[FailurePattern, str] | None = None

    def receive(self, data: bytes) -> list[AgentEvent]:
        """Return the events of a read, at least one: any output shows that the agent is alive."""
        return self._events(self._lines.receive(data)) or [Activity(count=1)]

    def close(self) -> list[AgentEvent]:
        """Return the events that the end leaves: an unfinished line counts as a whole one."""
        return self._events(self._lines.close())

    def turn_end(self, exit_code: int, stderr_line: str) -> TurnEnd:
        """Return the end of the turn by a line that showed a failure, else by the exit code."""
        failure = self._failure
        if failure is None and exit_code == 0:
            return TurnEnd(status=TurnStatus.COMPLETED)
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
        return TurnEnd(status=TurnStatus.FAILED, failure=found)

    def _events(self, lines: list[bytes | MalformedLine]) -> list[AgentEvent]:
        texts = [text for line in lines if (text := _shown(line))]
        for text in texts:
            self._last_line = redact(text)
            self._look_for_failure(self._last_line)
        activity = len(lines) - len(texts)
        earlier, last = "\n".join(texts[:-1]), texts[-1:]
        return [
            *([Activity(count=activity)] if activity else []),
            *(Text(message=text) for text in (earlier, *last) if text),
        ]

    def _look_for_failure(self, line: str) -> None:
        profile = self._profile
        if profile.progress is not None and profile.progress.search(line):
            self._failure = None
        for failure in profile.failures:
            if failure.pattern.search(line):
                self._failure = (failure, line)
                return


def _shown(line: bytes | MalformedLine) -> str:
    """Return the last state of a line; of a line above the limit its beginning."""
    text = line.excerpt if isinstance(line, MalformedLine) else line.decode("utf-8", "replace")
    states = [state for state in text.split("\r") if state.strip()]
    return mask_credentials(plain_text(states[-1])).rstrip() if states else ""


def _describe_exit(code: int) -> str:
    try:
        name = signal.Signals(-code if code < 0 else code - _SIGNAL_EXITS).name
    except ValueError:
        return f"the agent ended with exit code {code}"
    return f"the agent was ended by {name}"
