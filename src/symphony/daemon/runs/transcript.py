"""Turns a run's messages to its agent and the agent's events into entries of its transcript.

On the event loop, `on_event` only stores the event. A thread masks, encodes and writes stored events: each
second, at the end of each turn, and at the end of the run.
"""

import os
import posixpath
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import structlog
from msgspec import Struct

from symphony import to_thread
from symphony.agents import events
from symphony.agents.base import Turn
from symphony.agents.event_queue import event_size
from symphony.daemon.clock import wall_ms
from symphony.domain import CheckRun, Redaction, Tokens
from symphony.journal import transcripts

FLUSH_S: Final = 1.0
MAX_TEXT_CHARS: Final = 65_536
"""The longest text of an entry."""
MAX_OUTPUT_CHARS: Final = 4_096
"""How many characters of the end of a command's output are kept."""
_MAX_ARGUMENT_CHARS: Final = 8_192
_MAX_PATH_CHARS: Final = 1_000
_MARGIN_CHARS: Final = 4_096  # is masked before it is cut, so that no secret is cut first
_MAX_PENDING_EVENTS: Final = 50_000
_MAX_PENDING_CHARS: Final = 64 * 1024 * 1024
_MAX_OPEN: Final = 1_000
_SHORT_CHARS: Final = 100
_CACHED_TEXTS: Final = 500
_COMMANDS: Final = frozenset({"commandExecution", "execute"})
_EDITS: Final = frozenset({"fileChange", "edit", "delete", "move"})
_log = structlog.get_logger(__name__)


class Answered(Struct, frozen=True, kw_only=True):
    """A person's answer to the question of an earlier run; `approves` and `by` are as in `Resume`."""

    text: str
    by: str | None = None
    approves: bool | None = None


class ReviewerBegins(Struct, frozen=True, kw_only=True):
    """From here on, entries belong to the reviewer with this agent name, which works in `checkout`."""

    reviewer: str
    checkout: Path


class _Writing(Struct, frozen=True, kw_only=True):
    """The message that the agent is writing, so far."""

    text: str


class EntryWriter(Protocol):
    """Writes entries; `problem` is why some are missing, or `None`."""

    problem: str | None

    def write(self, entries: Sequence[transcripts.TranscriptEntry]) -> None:
        """Write entries; blocking, one call at a time."""
        ...

    def close(self) -> None:
        """Close the transcript; nothing more is written."""
        ...


class RunTranscript:
    """Writes the transcript of one run.

    Args:
        writer: writes the entries.
        redaction: masks secrets.
        tokens: returns the usage of the run so far.
        pending_message: the message that the agent is writing.
        on_problem: called with the reason if entries cannot be written, once for each reason.
        clock: the wall clock in milliseconds.
    """

    def __init__(
        self,
        writer: EntryWriter,
        redaction: Redaction,
        *,
        tokens: Callable[[], Tokens],
        pending_message: Callable[[], str] = str,
        on_problem: Callable[[str], None] = lambda _: None,
        clock: Callable[[], int] = wall_ms,
    ) -> None:
        self._writer = writer
        self._fold = TranscriptFold(redaction)
        self._tokens = tokens
        self._pending_message = pending_message
        self._on_problem = on_problem
        self._clock = clock
        self._pending: list[tuple[int, Any]] = []
        self._pending_chars = 0
        self._dropped = 0
        self._last_written = ""
        self._lock = anyio.Lock(fast_acquire=True)
        self._logged_problem: str | None = None

    def on_event(self, event: events.AgentEvent | Turn | Answered | CheckRun | ReviewerBegins) -> None:
        """Store an event, or a message to the agent."""
        match event:
            case events.Activity() | events.RateLimits() | events.SessionStarted() | events.ToolCalled():
                return  # the agent also reports the call of a tool of the daemon as an item
            case events.UsageUpdate():
                self._remember(self._tokens())
            case _:
                self._remember(event)

    def work_in(self, workspace: Path) -> None:
        """The agent works in this directory."""
        self._fold.work_in(workspace)

    async def run(self) -> None:
        """Write stored events every second, until cancelled."""
        while True:
            await anyio.sleep(FLUSH_S)
            await self.write_now()

    async def write_now(self) -> None:
        """Write stored events, and the agent's unfinished message if it has grown."""
        text = self._pending_message()
        if text.strip() and text != self._last_written:
            self._last_written = text
            self._remember(_Writing(text=text))
        await self.flush()

    async def flush(self) -> None:
        """Write stored events. A failure is logged once, and never ends the run."""
        async with self._lock:
            if self._pending:
                batch, self._pending, self._pending_chars = self._pending, [], 0
                dropped, self._dropped = self._dropped, 0
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(self._write, batch, dropped)
        problem = self._writer.problem
        if problem is not None and problem != self._logged_problem:
            self._logged_problem = problem
            _log.warning("transcript_incomplete", reason=problem)
            self._on_problem(problem)

    async def close(self) -> None:
        """Write the rest and close the file."""
        await self.flush()
        self._writer.close()

    def _remember(self, event: Any) -> None:
        fits = len(self._pending) < _MAX_PENDING_EVENTS and self._pending_chars < _MAX_PENDING_CHARS
        if fits or isinstance(event, events.TurnEnd | events.InputRequired):
            self._pending.append((self._clock(), event))
            self._pending_chars += event_size(event)
        else:
            self._dropped += 1

    def _write(self, batch: list[tuple[int, Any]], dropped: int) -> None:
        entries = [entry for at_ms, event in batch for entry in self._fold.entries(at_ms, event)]
        self._writer.write(entries)
        if dropped:
            self._fold.skip(dropped)
            self._writer.problem = f"the agent reported {dropped} events more than could be written in time"


class TranscriptFold:
    """Turns events into numbered entries; `redaction` masks secrets in their texts."""

    def __init__(self, redaction: Redaction) -> None:
        self._workspace: Path | None = None
        self._roots: Sequence[str] = ()
        self._mask = redaction.text
        self._mask_short = lru_cache(maxsize=_CACHED_TEXTS)(redaction.text)
        self._seq = 0
        self._turn = 0
        self._envelope: str | None = None
        self._at = self._second_text = ""
        self._second = -1
        self._left_out = 0
        self._open: dict[str, tuple[int, events.ItemStarted]] = {}
        self._writing: int | None = None
        self._reviewer: str | None = None

    def work_in(self, workspace: Path) -> None:
        """Name files below this directory relative to it."""
        self._workspace, self._roots = workspace, ()

    def skip(self, count: int) -> None:
        """Skip the numbers of lost entries."""
        self._seq += count

    def entries(self, at_ms: int, event: Any) -> Iterator[transcripts.TranscriptEntry]:  # noqa: C901, PLR0912, PLR0915 - one case per event
        """The entries of one event, usually one; `at_ms` is a wall-clock time."""
        second, ms = divmod(at_ms, 1_000)
        if second != self._second:
            self._second, self._second_text = (
                second,
                f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}",
            )
        self._at = f"{self._second_text}.{ms:03}Z"
        match event:
            case Turn():
                self._turn = event.number if self._reviewer is None else self._turn
                text = event.envelope.text
                envelope = None if text in {None, self._envelope} else self._text(text or "")
                self._envelope = text or self._envelope
                prompt = self._text(event.prompt)
                yield transcripts.TurnEntry(
                    status="started", prompt=prompt, envelope=envelope, **self._head()
                )
            case ReviewerBegins():
                self._reviewer, self._envelope = self._text(event.reviewer, 200), None
                self.work_in(event.checkout)
            case Answered():
                by = None if event.by is None else self._text(event.by, 1_000)
                decision = None if event.approves is None else "approved" if event.approves else "denied"
                yield transcripts.AnswerEntry(
                    text=self._text(event.text), by=by, decided=decision, **self._head()
                )
            case CheckRun():
                yield transcripts.CheckEntry(
                    name=self._text(event.name, 200),
                    passed=event.passed,
                    result=self._text(event.ended, 1_000),
                    exit_code=event.exit_code,
                    duration_ms=event.duration_ms,
                    output=self._tail(event.output_tail),
                    **self._head(),
                )
            case _Writing():
                text = self._text(event.text)
                yield transcripts.MessageEntry(text=text, status="writing", **self._head(self._writing))
                self._writing = self._writing or self._seq
            case events.Text():
                yield transcripts.MessageEntry(
                    text=self._text(event.message),
                    status="interrupted" if event.interrupted else "complete",
                    **self._head(self._writing),
                )
                self._writing = None
            case events.Reasoning():
                yield transcripts.ReasoningEntry(text=self._text(event.text), **self._head())
            case events.PlanUpdated():
                steps = tuple(
                    transcripts.TranscriptPlanStep(
                        text=self._text(step.text, 1_000), status=self._text(step.status, 100)
                    )
                    for step in event.steps
                )
                yield transcripts.PlanEntry(steps=steps, text=self._text(event.text), **self._head())
            case events.ItemStarted():
                yield self._work(event, "started")
                if event.item_id and len(self._open) < _MAX_OPEN:
                    self._open[event.item_id] = (self._seq, event)
            case events.ItemFinished():
                replaces, started = self._open.pop(event.item_id, (None, None))
                yield self._work(started or event, event.status, event, replaces)
            case events.ApprovalAnswered():
                subject = self._text(event.subject or event.kind, _MAX_ARGUMENT_CHARS)
                yield transcripts.ApprovalEntry(subject=subject, decision=event.decision, **self._head())
            case events.InputRequired():
                yield from self._unfinished()
                if event.approval:
                    text = self._text(event.reason, _MAX_ARGUMENT_CHARS)
                    yield transcripts.ApprovalEntry(subject=text, decision="required", **self._head())
                else:
                    yield transcripts.QuestionEntry(
                        text=self._text(event.question or event.reason), **self._head()
                    )
                yield transcripts.TurnEntry(status="input_required", **self._head())
            case Tokens():
                yield transcripts.UsageEntry(
                    input_tokens=event.input_tokens,
                    output_tokens=event.output_tokens,
                    total_tokens=event.total_tokens,
                    **self._head(),
                )
            case events.TurnEnd():
                yield from self._unfinished()
                reason = None if event.failure is None else self._text(event.failure.line, 1_000)
                yield transcripts.TurnEntry(
                    status=event.status.value, reason=reason, cost_usd=event.cost_usd, **self._head()
                )
            case events.ContextCompacted():
                yield transcripts.NoteEntry(
                    level="info", text="the conversation was compacted", **self._head()
                )
            case events.LogNotice():
                yield transcripts.NoteEntry(level=event.level, text=self._text(event.message), **self._head())
            case events.Malformed():
                text = f"malformed message: {self._text(event.excerpt)}"
                yield transcripts.NoteEntry(level="warning", text=text, **self._head())
            case _:
                return

    def _work(
        self,
        item: events.ItemStarted | events.ItemFinished,
        status: str,
        ended: events.ItemFinished | None = None,
        replaces: int | None = None,
    ) -> transcripts.TranscriptEntry:
        """The entry of a piece of work; `item` names it, `ended` has its result."""
        status = self._text(status, 100)
        given = (item.input if isinstance(item, events.ItemStarted) else "") or item.summary
        output = "" if ended is None else ended.output
        if item.kind in _COMMANDS:
            command, tail = self._text(given), self._tail(output)
            code = None if ended is None else ended.exit_code
            head = self._head(replaces)
            return transcripts.CommandEntry(
                command=command, status=status, exit_code=code, output=tail, **head
            )
        changes = (ended.changes if ended else ()) or item.changes
        if changes or item.kind in _EDITS:
            files = tuple(self._file(change) for change in changes)
            return transcripts.EditEntry(files=files, status=status, **self._head(replaces))
        name = item.summary if item.kind in {"dynamicToolCall", "mcpToolCall"} else item.kind
        return transcripts.ToolEntry(
            name=self._text(name, 200),
            status=status,
            arguments=self._text(given, _MAX_ARGUMENT_CHARS),
            result=self._text(output, _MAX_ARGUMENT_CHARS),
            **self._head(replaces),
        )

    def _unfinished(self) -> Iterator[transcripts.TranscriptEntry]:
        """The entries of work that is unfinished at the end of the turn."""
        for seq, item in self._open.values():
            yield self._work(item, "unfinished", None, seq)
        self._open.clear()

    def _file(self, change: events.FileEdit) -> transcripts.EditedFile:
        if self._workspace is not None and not self._roots:
            self._roots = tuple(dict.fromkeys([str(self._workspace), os.path.realpath(self._workspace)]))
        path = posixpath.normpath(change.path) if change.path else ""
        below = (path[len(root) + 1 :] for root in self._roots if path.startswith(f"{root}/"))
        return transcripts.EditedFile(
            path=self._text(next(below, path), _MAX_PATH_CHARS),
            change=self._text(change.change, 100),
            added=change.added,
            removed=change.removed,
        )

    def _head(self, replaces: int | None = None) -> dict[str, Any]:
        """The common fields of entries; made last, because they count omitted text."""
        self._seq += 1
        left_out, self._left_out = self._left_out, 0
        return {
            "seq": self._seq,
            "at": self._at,
            "turn": self._turn,
            "replaces": replaces,
            "left_out": left_out,
            "reviewer": self._reviewer,
        }

    def _text(self, text: str, limit: int = MAX_TEXT_CHARS) -> str:
        """The masked beginning of a text."""
        if len(text) <= _SHORT_CHARS:  # such as a status, or the command of ended work
            return self._mask_short(text)[:limit]
        self._left_out += max(0, len(text) - limit)
        return self._mask(text[: limit + _MARGIN_CHARS])[:limit]

    def _tail(self, text: str) -> str:
        """The masked end of a text."""
        self._left_out += max(0, len(text) - MAX_OUTPUT_CHARS)
        return self._mask(text[-MAX_OUTPUT_CHARS - _MARGIN_CHARS :])[-MAX_OUTPUT_CHARS:]
