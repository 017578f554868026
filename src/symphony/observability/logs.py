"""Logs by structlog: console lines for people, JSON for machines, secrets masked in both (LG1-LG6)."""

import logging
import re
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, TextIO

import structlog

__all__ = ["Redactor", "configure", "redact_text"]

MASK = "[redacted]"
_SHAPES = re.compile(
    r"""(?ix)
    lin_(?:api|oauth)_[A-Za-z0-9]{8,}
    | gh[pousr]_[A-Za-z0-9]{16,}
    | github_pat_[A-Za-z0-9_]{20,}
    | glpat-[A-Za-z0-9_-]{10,}
    | ATATT[A-Za-z0-9_=-]{16,}
    | sk-[A-Za-z0-9_-]{16,}
    | (?<=bearer\ )[A-Za-z0-9._~+/=-]{8,}
    | (?<=basic\ )[A-Za-z0-9+/=]{8,}
    | (?<=://)[^/\s:@]+:[^/\s@]+(?=@)
    """
)
_SECRET_KEYS = re.compile(r"(?i)(token|secret|password|passwd|api_?key|authorization|cookie|credential)")
_NOT_SECRET_KEYS = re.compile(r"(?i)_tokens$|^tokens$")
_MIN_SECRET_LENGTH = 6


def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without known secret values and without anything that has the shape of a credential."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return _SHAPES.sub(MASK, text)


class Redactor:
    """A structlog processor that masks secrets in every value, however deep, and under telling keys."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = sorted({s for s in secrets if len(s) >= _MIN_SECRET_LENGTH}, key=len, reverse=True)

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        """One log line, masked."""
        return {key: self._value(key, value) for key, value in event.items()}

    def _value(self, key: str, value: Any) -> Any:
        if _SECRET_KEYS.search(key) and not _NOT_SECRET_KEYS.search(key) and isinstance(value, str):
            return MASK
        match value:
            case str():
                return redact_text(value, self._secrets)
            case Mapping():
                return {str(inner): self._value(str(inner), item) for inner, item in value.items()}
            case list() | tuple() | set() | frozenset():
                return [self._value("", item) for item in value]
            case None | bool() | int() | float():
                return value
            case _:
                return redact_text(str(value), self._secrets)


def configure(
    *,
    stream: TextIO | None = None,
    as_json: bool | None = None,
    level: str = "info",
    secrets: Iterable[str] = (),
) -> None:
    """Send log lines to `stream` (stderr), as JSON unless it is a terminal.

    The redactor runs last before rendering, so that no earlier processor can add a secret after it.
    """
    out = stream or sys.stderr
    console = out.isatty() if as_json is None else not as_json
    renderer: structlog.typing.Processor
    if console:
        renderer = structlog.dev.ConsoleRenderer(colors=out.isatty(), pad_event_to=24)
    else:
        renderer = structlog.processors.JSONRenderer(ensure_ascii=False, default=str)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if console else "iso", utc=not console),
            structlog.processors.format_exc_info,
            Redactor(secrets),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=_SafeLoggerFactory(out),
        cache_logger_on_first_use=False,
    )


class _SafeLogger:
    """Writes lines; a sink that fails loses its line and nothing else (LG3)."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, message: str) -> None:
        try:
            self._stream.write(message + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            return

    debug = info = warning = error = critical = exception = log = fatal = msg


class _SafeLoggerFactory:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, *_: Any) -> _SafeLogger:
        return _SafeLogger(self._stream)
