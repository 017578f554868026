"""Logs through structlog: lines for people, console lines or JSON, always with secrets masked."""

import logging
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

import structlog
from typing_extensions import override

from symphony.domain import Redaction
from symphony.observability.console import PeopleLines
from symphony.observability.redaction import masked

# Sinks for log lines: a stream, and a file that rotates. A failing sink loses only a line. The file gets one
# JSON object per line, whatever the stream shows, so that a record with a stack is one line.

MAX_BYTES: Final = 10 * 1024 * 1024
BACKUPS: Final = 5
_log = structlog.get_logger(__name__)

Render = Callable[[Mapping[str, Any]], str]
"""Makes a line without its line break from a masked event; empty if the event is not shown."""


class Sink(Protocol):
    """Takes events; never raises."""

    def write(self, event: Mapping[str, Any]) -> None:
        """One event."""
        ...


class StreamSink:
    """Writes lines to a stream.

    A line that the stream refuses is lost, because it cannot be reported elsewhere.
    """

    def __init__(self, stream: TextIO, render: Render) -> None:
        self._stream = stream
        self._render = render

    def write(self, event: Mapping[str, Any]) -> None:
        """Write and flush one line."""
        try:
            if line := self._render(event):
                self._put(line + "\n")
                self._stream.flush()
        except (OSError, ValueError):
            return

    def _put(self, line: str) -> None:
        try:
            self._stream.write(line)
        except UnicodeEncodeError:  # a file name with bytes that are not text
            self._stream.write(line.encode("ascii", "backslashreplace").decode("ascii"))


class RotatedLogFile:
    """`<root>/log/symphony.log`, rotated at 10 MiB with five old files kept.

    The first line that cannot be written is reported to the other sinks, once until writing works again; each
    later line is another attempt, so that no restart is needed once the disk has space again.
    """

    def __init__(self, root: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = root.absolute() / "log" / "symphony.log"
        self._file = _Rotating(
            self.path, maxBytes=max_bytes, backupCount=BACKUPS, encoding="utf-8", errors="backslashreplace"
        )
        self._render = structlog.processors.JSONRenderer(ensure_ascii=False, default=str)
        self._stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
        self._failed = False

    def write(self, event: Mapping[str, Any]) -> None:
        """One line."""
        line = self._render(None, "", dict(self._stamp(None, "", dict(event))))
        try:
            self._file.put(str(line))
        except (OSError, ValueError) as error:
            self._complain(getattr(error, "strerror", None) or str(error))
        else:
            self._failed = False

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _complain(self, reason: str) -> None:
        told, self._failed = self._failed, True
        if not told:
            _log.warning("log_sink_failed", path=str(self.path), reason=reason)


class _Rotating(RotatingFileHandler):
    """The standard library's handler, but it raises errors instead of printing them."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, delay=True, **options)
        self._path = path

    def put(self, line: str) -> None:
        """Append one line. Raises `OSError`; the next call opens the file again."""
        if self.stream is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.emit(logging.makeLogRecord({"msg": line}))
        except BaseException:
            self.close()
            raise

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        raise  # noqa: PLE0704 - called by the base class while it handles what went wrong


_IDS_LAST = ("run_id", "issue_id", "session_id")
_SESSION_CHARS = 12
_REMEMBERED = 1_024
_SHORT_CHARS = 200


class Redactor:
    """A structlog processor that masks secrets in every value at any depth, and values under secret keys."""

    def __init__(self, redaction: Redaction) -> None:
        # Ids and names repeat, so the results for short texts are cached.
        remembered = lru_cache(maxsize=_REMEMBERED)(redaction.text)
        self._text: Callable[[str], str] = lambda text: (
            remembered(text) if len(text) <= _SHORT_CHARS else redaction.text(text)
        )

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        """One log line, masked."""
        return {key: masked(value, self._text, key=key) for key, value in event.items()}


def configure(
    *,
    stream: TextIO | None = None,
    as_json: bool | None = None,
    for_people: bool = False,
    level: str = "info",
    redaction: Redaction | None = None,
    file: RotatedLogFile | None = None,
) -> None:
    """Send log lines to `stream` (stderr), as JSON unless it is a terminal, and to `file` if there is one.

    If `as_json` is None and `for_people` is set, a terminal gets the lines of `PeopleLines`. The redactor
    runs after every processor that could add a secret; sinks add only a time stamp.
    """
    out = stream or sys.stderr
    console = out.isatty() if as_json is None else not as_json
    people = for_people and console and as_json is None
    render: Render = PeopleLines(out) if people else _renderer(out, console=console)
    sinks: tuple[Sink, ...] = (StreamSink(out, render),)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            Redactor(redaction or Redaction()),
            _hand_over,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=_FanFactory(sinks if file is None else (*sinks, file)),
        cache_logger_on_first_use=False,
    )


def _hand_over(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> tuple[tuple[Mapping[str, Any]], Mapping[str, Any]]:
    """Pass the event unchanged to the logger; each sink renders it in its own way."""
    return (event,), {}


def _renderer(out: TextIO, *, console: bool) -> Render:
    stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S" if console else "iso", utc=not console)
    render: structlog.typing.Processor
    if console:
        render = structlog.dev.ConsoleRenderer(colors=out.isatty(), pad_event_to=24, sort_keys=False)
    else:
        render = structlog.processors.JSONRenderer(ensure_ascii=False, default=str)

    def line(event: Mapping[str, Any]) -> str:
        stamped = dict(stamp(None, "", dict(event)))
        shown = dict(_for_people(None, "", stamped)) if console else stamped
        return str(render(None, "", shown))

    return line


def _for_people(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Sort the fields for people: the issue first, long ids last, session ids shortened to their end.

    Duplicate ids are left out. Attempts are counted from 1.
    """
    line = dict(event)
    if (number := line.pop("attempt_number", None)) is not None:
        line["attempt"] = f"{number} of {line.pop('attempt_limit', '?')}"
    first = {name: line.pop(name) for name in ("issue_identifier",) if name in line}
    last = {name: line.pop(name) for name in _IDS_LAST if name in line}
    if last.get("issue_id") == event.get("issue_identifier"):
        last.pop("issue_id", None)
    if isinstance(session := last.get("session_id"), str) and len(session) > _SESSION_CHARS:
        last["session_id"] = f"…{session[-_SESSION_CHARS:]}"
    return {**first, **line, **last}


class _Fan:
    """The logger at the end of the chain: every sink gets every event."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks

    def msg(self, event: Mapping[str, Any]) -> None:
        for sink in self._sinks:
            sink.write(event)

    debug = info = warning = error = critical = exception = log = fatal = msg


class _FanFactory:
    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks

    def __call__(self, *_: Any) -> _Fan:
        return _Fan(self._sinks)
