"""What a one-shot agent prints, as events: a line is a word to people. Sans-IO.

Nothing is known of the meaning of a line, so each is text; of many at once the last ones are told, and the
others count as signs of life. What steers a terminal is taken out, and of a line that was written over, as by
a bar of progress, the last state is what counts.
"""

from symphony.agents.events import Activity, AgentEvent, Text
from symphony.agents.redaction import redact
from symphony.agents.wire.lines import Garbled, Lines

__all__ = ["MAX_TEXTS", "Output"]

MAX_TEXTS = 32
_MAX_LINE_BYTES = 262_144
_MAX_TEXT_BYTES = 8_192


class Output:
    """The output of one turn."""

    def __init__(self) -> None:
        self._lines = Lines(max_line_bytes=_MAX_LINE_BYTES)
        self._last = ""

    @property
    def last(self) -> str:
        """The last line that is not blank, fit to be shown; empty for none."""
        return self._last

    def receive(self, data: bytes) -> list[AgentEvent]:
        """What a read brought; never nothing, because any output is a sign of life."""
        return self._events(self._lines.receive(data)) or [Activity(count=1)]

    def close(self) -> list[AgentEvent]:
        """What the end leaves: an unfinished line counts as a whole one."""
        return self._events(self._lines.close())

    def _events(self, lines: list[bytes | Garbled]) -> list[AgentEvent]:
        quiet = max(0, len(lines) - MAX_TEXTS)
        events: list[AgentEvent] = []
        for line in lines[quiet:]:
            text = "" if isinstance(line, Garbled) else _shown(line)
            if text:
                self._last = text
                events.append(Text(message=text))
            else:
                quiet += 1
        return [*([Activity(count=quiet)] if quiet else []), *events]


def _shown(line: bytes) -> str:
    text = line[-_MAX_TEXT_BYTES:].decode("utf-8", "replace")
    if len(line) > _MAX_TEXT_BYTES:
        text = f"…{text}"
    states = [state for state in text.split("\r") if state.strip()]
    return redact(states[-1]) if states else ""
