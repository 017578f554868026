"""What an agent writes beside its protocol, as events: it is shown, and means nothing else (AG7)."""

import re

from symphony.agents.events import Malformed, Notice
from symphony.agents.redaction import redact
from symphony.agents.wire.lines import Chatter, Garbled

__all__ = ["noise"]

_LOOKS_BAD = re.compile(
    r"\b(?:error|fail(?:ed|ure)?|fatal|panic(?:ked)?|exception|traceback|denied|warn\w*)\b", re.IGNORECASE
)


def noise(heard: Chatter | Garbled) -> Notice | Malformed:
    """The event of a line that is no message of the protocol."""
    if isinstance(heard, Garbled):
        return Malformed(excerpt=redact(heard.excerpt))
    level = "warning" if _LOOKS_BAD.search(heard.text) else "info"
    return Notice(level=level, message=redact(heard.text))
