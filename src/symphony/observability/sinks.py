"""Where log lines go: a stream, a file that rotates. A sink that fails loses a line and nothing else (LG3).

The file gets one JSON object per line whatever the stream shows, so that a record with a stack is one line.
"""

import logging
from collections.abc import Callable, Mapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

import structlog
from typing_extensions import override

__all__ = ["LogFile", "Render", "Sink", "StreamSink"]

MAX_BYTES: Final = 10 * 1024 * 1024
BACKUPS: Final = 5
_log = structlog.get_logger(__name__)

Render = Callable[[Mapping[str, Any]], str]
"""Makes a line, without its end, of an event whose secrets are masked already; empty where it shows none."""


class Sink(Protocol):
    """Takes events; never raises."""

    def write(self, event: Mapping[str, Any]) -> None:
        """One event."""
        ...


class StreamSink:
    """Lines on a stream; what the stream does not take is lost, since there is nobody left to tell."""

    def __init__(self, stream: TextIO, render: Render) -> None:
        self._stream = stream
        self._render = render

    def write(self, event: Mapping[str, Any]) -> None:
        """One line, seen at once."""
        try:
            if line := self._render(event):
                self._put(line + "\n")
                self._stream.flush()
        except (OSError, ValueError):
            return

    def _put(self, line: str) -> None:
        try:
            self._stream.write(line)
        except UnicodeEncodeError:  # a file name that is not text
            self._stream.write(line.encode("ascii", "backslashreplace").decode("ascii"))


class LogFile:
    """`<root>/log/symphony.log`, rotated at 10 MiB with five old files kept (LG4).

    The first line that cannot be written is told to the other sinks, once until writing works again; each
    later line is another attempt, so that a disk with room again needs no restart.
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
        """Let go of the file."""
        self._file.close()

    def _complain(self, reason: str) -> None:
        told, self._failed = self._failed, True
        if not told:
            _log.warning("log_sink_failed", path=str(self.path), reason=reason)


class _Rotating(RotatingFileHandler):
    """The handler of the standard library, which shall raise and not print where it fails."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, delay=True, **options)
        self._path = path

    def put(self, line: str) -> None:
        """Append one line. Raises `OSError`; the next call opens the file anew then."""
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
