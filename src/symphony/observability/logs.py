"""Logs by structlog: lines for people, console lines, JSON for machines; secrets masked in all (LG1-LG6)."""

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

import structlog
from msgspec import Struct, UnsetType
from typing_extensions import override

from symphony.domain import MASK, Redaction, one_line, plain

# Masks secrets in a nested value on its way out: in every text, and whole under telling keys.


MAX_DEPTH: Final = 64
TOO_DEEP: Final = "(nested too deep)"
_LARGEST: Final = 2**63 - 1

_SECRET_KEYS = re.compile(r"(?i)(token|secret|password|passwd|api_?key|authorization|cookie|credential)")
_NOT_SECRET_KEYS = re.compile(r"(?i)_tokens$|^tokens$")


@lru_cache(maxsize=1_024)
def _is_telling(key: str) -> bool:
    """Whether a key says that a secret stands under it; the same few keys come again and again."""
    return bool(_SECRET_KEYS.search(key)) and not _NOT_SECRET_KEYS.search(key)


def masked(value: Any, text: Callable[[str], str], *, key: str = "") -> Any:
    """The value with `text` applied to all texts in it, keys too; under a telling key all is hidden.

    A document stays one of its type. What comes out can be written as JSON: what nests deeper than
    `MAX_DEPTH` is left out, and a number of more than 64 bits becomes the nearest one that has no more.
    """
    return _masked(value, text, key, MAX_DEPTH)


def _masked(value: Any, text: Callable[[str], str], key: str, levels: int) -> Any:
    shown: Any
    match value:
        case None | bool() | float() | UnsetType():
            shown = value
        case int():
            shown = max(min(value, _LARGEST), -_LARGEST)
        case _ if _is_telling(key):
            shown = MASK
        case str():
            shown = text(value)
        case Mapping() | list() | tuple() | set() | frozenset() if levels == 0:
            shown = TOO_DEEP
        case Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            texts = {name: _masked(item, text, name, levels - 1) for name, item in fields.items()}
            lists = {name: tuple(texts[name]) for name, item in fields.items() if isinstance(item, tuple)}
            shown = type(value)(**texts | lists)
        case Mapping():
            shown = {text(str(key)): _masked(item, text, str(key), levels - 1) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            shown = [_masked(item, text, "", levels - 1) for item in value]
        case _:
            shown = text(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))
    return shown


# Where log lines go: a stream, a file that rotates. A sink that fails loses a line and nothing else (LG3).
#
# The file gets one JSON object per line whatever the stream shows, so that a record with a stack is one
# line.


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


# The terminal of `symphony run`: one line for each event that people care about, with local time and issue.
#
# What goes well and is of no news (which skills were listed, that a comment was posted) is left to the log.
# Warnings and errors are always shown, also those that this page has no words for. All of it is text of
# others: one line, and nothing in it steers the terminal.


Event = Mapping[str, Any]

_ID_WIDTH: Final = 8
_TITLE_CHARS: Final = 80
_COLOURS: Final = {"dim": "2", "bold": "1", "green": "32", "yellow": "33", "red": "31", "cyan": "36"}
_LEVELS: Final = {"warning": "yellow", "error": "red", "critical": "red"}
_CODE: Final = re.compile(r"[a-z]+(?:_[a-z]+)*: (?=\S)")
_KEPT: Final = 999
_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60 * _SECOND_MS
_OTHER: Final = frozenset(
    {
        *("event", "level", "exception", "hint", "reason", "where", "path"),
        *("issue_id", "issue_identifier", "run_id", "session_id"),
    }
)
"""Fields that an event without words of its own does not list."""


class PeopleLines:
    """Makes the lines of events; one for each stream, as it remembers what it has said of an issue."""

    def __init__(self, out: TextIO) -> None:
        plain_terminal = os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
        self._coloured = out.isatty() and not plain_terminal
        self._failed: dict[str, str] = {}
        self._bad_skills: set[str] = set()

    def __call__(self, event: Event) -> str:
        """The line, without its end; empty for an event that is not shown."""
        words = self._words(event)
        if not words:
            return ""
        level, name = str(event.get("level")), str(event.get("event"))
        about = str(event.get("issue_identifier") or "")
        moment = self._painted(time.strftime("%H:%M:%S"), "dim")
        issue = self._painted(f"{one_line(about):{_ID_WIDTH}}", "bold")
        colour = _LEVELS.get(level) or _GOOD.get(name, "")
        lines = [f"{moment}  {issue}  {self._painted(one_line(words), colour)}"]
        indent = " " * (len("00:00:00") + 2 + _ID_WIDTH + 2)
        hint = event.get("hint")
        if hint and event.get("outcome") is None:  # what follows the end of a run has the hint again
            lines.append(f"{indent}→ {one_line(str(hint))}")
        if stack := event.get("exception"):
            lines += [f"{indent}{line}" for line in plain(str(stack)).splitlines()]
        return "\n".join(lines)

    def _words(self, event: Event) -> str:
        """What is said, but for what was said a moment ago."""
        name, about = str(event.get("event")), str(event.get("issue_identifier") or "")
        match name:
            case "run_ended" if event.get("reason"):
                self._failed = {**dict(list(self._failed.items())[-_KEPT:]), about: str(event["reason"])}
            case "run_retrying" if self._failed.pop(about, None) == str(event.get("reason")):
                return _again(event)
            case "skill_problem":  # it comes again with every session
                told = f"{event.get('path')} {event.get('code')}"
                if event.get("level") not in _LEVELS or told in self._bad_skills:
                    return ""
                self._bad_skills = {*list(self._bad_skills)[-_KEPT:], told}
                return f"a skill cannot be loaded: {event.get('path')} ({event.get('code')})"
            case _:
                pass
        say = WORDS.get(name)
        if say is not None:
            return say(event)
        return _without_words(event) if event.get("level") in _LEVELS else ""

    def _painted(self, text: str, colour: str) -> str:
        code = _COLOURS.get(colour)
        return f"\x1b[{code}m{text}\x1b[0m" if code and self._coloured else text


def _without_words(event: Event) -> str:
    """Any warning or error: what it is about, why, and whatever else it tells."""
    name = str(event.get("event")).replace("_", " ")
    where = event.get("where") or event.get("path")
    rest = ", ".join(
        f"{key} {value}" for key, value in event.items() if key not in _OTHER and value not in (None, "")
    )
    told = [str(one) for one in (where, event.get("reason"), rest) if one]
    return ": ".join([name, *told])


def _plural(number: object, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _why(event: Event) -> str:
    """The reason without the code of its category, which the log has."""
    reason = str(event.get("reason"))
    match = _CODE.match(reason)
    return reason[match.end() :] if match else reason


def _lasting(ms: object) -> str:
    """`20 s`, `5 min`: how long it is until something."""
    length = ms if isinstance(ms, int) else 0
    if length < _MINUTE_MS:
        return f"{-(-length // _SECOND_MS)} s"
    minutes, rest = divmod(length // _SECOND_MS, 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def _attempt(event: Event) -> str:
    return f"attempt {event.get('attempt_number')} of {event.get('attempt_limit')}"


def _started(event: Event) -> str:
    title = one_line(str(event.get("title") or ""), _TITLE_CHARS)
    facts = [_attempt(event)] if event.get("attempt_number") != 1 else []
    if not str(event.get("agent_reason", "")).startswith("the default"):
        facts.append(f"by {event.get('agent')}: {event.get('agent_reason')}")
    more = f" ({'; '.join(facts)})" if facts else ""
    return f"started: {title}{more}"


def _ended(event: Event) -> str:
    did = f"{_plural(event.get('turns'), 'turn')}, {_plural(event.get('commits'), 'commit')}"
    if event.get("outcome") == "succeeded":
        return f"ended: {did}"
    if event.get("outcome") == "input_required":
        return f"stopped to ask a person: {did}"
    reason = f": {_why(event)}" if event.get("reason") else ""
    return f"{str(event.get('outcome')).replace('_', ' ')} after {did}{reason}"


def _again(event: Event) -> str:
    return f"retry in {_lasting(event.get('delay_ms'))} ({_attempt(event)})"


def _signal(event: Event) -> str:
    does = "what runs is stopped now" if event.get("now") else "running turns may end, nothing new starts"
    return f"{event.get('signal')}: {does}"


WORDS: Final[Mapping[str, Callable[[Event], str]]] = {
    "serving": lambda event: (
        f"works on the issues of {event.get('workflow')}"
        f"{' until nothing is left to do' if event.get('once') else '; Ctrl-C stops it'}"
    ),
    "agent_ready": lambda event: (
        f"the agent {event.get('agent')} is ready: {event.get('program')} {event.get('version')}"
    ),
    "agent_notice": lambda event: f"the agent {event.get('agent')}: {event.get('reason')}",
    "http_serving": lambda event: f"the API listens on http://{event.get('host')}:{event.get('port')}",
    "predecessor_reaped": lambda event: (
        f"ended what a killed daemon had left (processes: {event.get('processes')})"
    ),
    "claim_recovered": lambda event: f"taken over from the last daemon, which left it {event.get('kind')}",
    "run_started": _started,
    "turn_started": lambda event: f"turn {event.get('turn')}",
    "thread_resumed": lambda event: f"goes on with the earlier conversation ({event.get('reason')})",
    "run_stopping": lambda event: f"is being stopped: {event.get('reason')}",
    "run_ended": _ended,
    "run_interrupted": lambda _: "interrupted; the next daemon goes on with it",
    "run_retrying": lambda event: f"{_again(event)}, because: {_why(event)}",
    "issue_blocked": lambda event: f"blocked: {_why(event)}",
    "issue_unblocked": lambda event: f"goes on: {event.get('reason')}",
    "issue_moved": lambda event: f"moved to {event.get('state')}",
    "claim_released": lambda event: f"is in {event.get('state')} now; no more work here",
    "workflow_reloaded": lambda _: "WORKFLOW.md was read again, and holds from now on",
    "workflow_rejected": lambda event: f"WORKFLOW.md cannot be used: {event.get('reason')}",
    "workflow_warning": lambda event: f"{event.get('where')}: {event.get('reason')}",
    "circuit_closed": lambda _: "the tracker answers again",
    "agent_recovered": lambda event: f"the agent {event.get('agent')} may be asked again",
    "operator_asked": lambda event: f"an operator asked: {event.get('verb')}",
    "day_budget_used": lambda event: f"its agent {event.get('agent')} used up the token budget of today",
    "day_began": lambda event: f"a new day for budgets: {event.get('day')}",
    "journal_recovered": lambda _: "the journal can be written again",
    "signal_received": _signal,
    "stopped": lambda _: "stopped",
}
"""What people read, by event; an event of the level info that is not named here is left to the log."""
_GOOD: Final = {"run_started": "cyan", "run_ended": "green"}

_IDS_LAST = ("run_id", "issue_id", "session_id")
_SESSION_CHARS = 12
_REMEMBERED = 1_024
_SHORT_CHARS = 200


class Redactor:
    """A structlog processor that masks secrets in every value, however deep, and under telling keys."""

    def __init__(self, redaction: Redaction) -> None:
        # Ids and names come again and again: what a short text becomes is remembered.
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
    file: LogFile | None = None,
) -> None:
    """Send log lines to `stream` (stderr), as JSON unless it is a terminal, and to `file` if there is one.

    Where `as_json` is None and `for_people` is set, a terminal gets the lines of `terminal`.
    The redactor runs after every processor that could add a secret; what the sinks add is a time stamp.
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
    """The event as it is, as the argument of the logger: each sink renders it its own way."""
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
    """The issue first and the long ids last: session ids by their end, an id that says the same not twice.

    Attempts are told as people count them.
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
