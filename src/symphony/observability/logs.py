"""Logs by structlog: console lines for people, JSON for machines, secrets masked in both (LG1-LG6)."""

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

import structlog

from symphony.domain.redaction import Redaction
from symphony.observability.masking import masked

__all__ = ["Redactor", "configure"]

_IDS_LAST = ("run_id", "issue_id", "session_id")
_SESSION_CHARS = 12


class Redactor:
    """A structlog processor that masks secrets in every value, however deep, and under telling keys."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        """One log line, masked."""
        return {key: masked(value, self._redaction.text, key=key) for key, value in event.items()}


def configure(
    *,
    stream: TextIO | None = None,
    as_json: bool | None = None,
    level: str = "info",
    redaction: Redaction | None = None,
) -> None:
    """Send log lines to `stream` (stderr), as JSON unless it is a terminal.

    The redactor runs last before rendering, so that no earlier processor can add a secret after it.
    """
    out = stream or sys.stderr
    console = out.isatty() if as_json is None else not as_json
    renderer: structlog.typing.Processor
    if console:
        renderer = structlog.dev.ConsoleRenderer(colors=out.isatty(), pad_event_to=24, sort_keys=False)
    else:
        renderer = structlog.processors.JSONRenderer(ensure_ascii=False, default=str)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if console else "iso", utc=not console),
            structlog.processors.format_exc_info,
            Redactor(redaction or Redaction()),
            *([_for_people] if console else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=_SafeLoggerFactory(out),
        cache_logger_on_first_use=False,
    )


def _for_people(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """The issue first and the long ids last: session ids by their end, an id that says the same not twice."""
    line = dict(event)
    first = {name: line.pop(name) for name in ("issue_identifier",) if name in line}
    last = {name: line.pop(name) for name in _IDS_LAST if name in line}
    if last.get("issue_id") == event.get("issue_identifier"):
        last.pop("issue_id", None)
    if isinstance(session := last.get("session_id"), str) and len(session) > _SESSION_CHARS:
        last["session_id"] = f"…{session[-_SESSION_CHARS:]}"
    return {**first, **line, **last}


class _SafeLogger:
    """Writes lines; a sink that fails loses its line and nothing else (LG3)."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, message: str) -> None:
        try:
            self._write(message + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            return

    def _write(self, line: str) -> None:
        try:
            self._stream.write(line)
        except UnicodeEncodeError:  # a file name that is not text
            self._stream.write(line.encode("ascii", "backslashreplace").decode("ascii"))

    debug = info = warning = error = critical = exception = log = fatal = msg


class _SafeLoggerFactory:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, *_: Any) -> _SafeLogger:
        return _SafeLogger(self._stream)
