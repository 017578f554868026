"""What the journal tells of one issue, line by line: its events in their order, and each run's begin and end.

Events outside of a run stand where they happened and end no run. A run's end is told behind its last event.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from symphony.cli.documents import LoggedBegin, LoggedEnd, LoggedEvent, LoggedRun
from symphony.cli.wording import count, lasting, plural
from symphony.domain.plain import one_line
from symphony.journal.model import RunRecord
from symphony.journal.reader import JournalReader, NumberedEvent

__all__ = ["Begun", "Ended", "Follower", "Line", "as_json", "as_text"]

_RUNS: Final = 1_000
_EVENTS: Final = 1_000
_MAX_CHARS: Final = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """From here on events are of this run; `record` is null where the journal has forgotten it."""

    run_id: str
    record: RunRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run is over."""

    record: RunRecord


Line = NumberedEvent | Begun | Ended


class Follower:
    """Tells the lines of one issue, each of them once, from one look to the next.

    `run_id` leaves out all other runs, and what happened outside of a run.
    """

    def __init__(self, identifier: str, *, run_id: str | None = None) -> None:
        self._identifier = identifier
        self._run_id = run_id
        self._after_id = 0
        self._current: str | None = None
        self._ended: set[str] = set()

    def first(self, reader: JournalReader, *, limit: int | None) -> Iterator[Line]:
        """The last `limit` events, or all of them."""
        if limit is None:
            yield from self.rest(reader)
            return
        latest = reader.latest(self._identifier, run_id=self._run_id, limit=limit)
        yield from self._lines(reader, latest)

    def rest(self, reader: JournalReader) -> Iterator[Line]:
        """What came since the last look."""
        while found := reader.events(
            self._identifier, after_id=self._after_id, run_id=self._run_id, limit=_EVENTS
        ):
            yield from self._lines(reader, found, whole=len(found) < _EVENTS)
        if self._current is not None:
            yield from self._end(self._runs(reader))

    def _lines(
        self, reader: JournalReader, found: tuple[NumberedEvent, ...], *, whole: bool = True
    ) -> Iterator[Line]:
        runs = self._runs(reader)
        for numbered in found:
            run_id = numbered.event.run_id
            self._after_id = numbered.id
            if run_id is not None and run_id != self._current:
                yield from self._end(runs)
                self._current = run_id
                yield Begun(run_id=run_id, record=runs.get(run_id))
            elif run_id is None and self._over(runs, numbered.event.at_wall_ms):
                yield from self._end(runs)
            yield numbered
        if whole:
            yield from self._end(runs)

    def _over(self, runs: dict[str, RunRecord], wall_ms: int) -> bool:
        """Whether the present run had ended at a moment."""
        record = runs.get(self._current or "")
        return record is not None and record.ended_wall_ms is not None and record.ended_wall_ms <= wall_ms

    def _end(self, runs: dict[str, RunRecord]) -> Iterator[Line]:
        """The end of the present run, once, if it is over."""
        record = None if self._current is None else runs.get(self._current)
        if record is not None and record.ended_wall_ms is not None and record.run_id not in self._ended:
            self._ended.add(record.run_id)
            yield Ended(record=record)

    def _runs(self, reader: JournalReader) -> dict[str, RunRecord]:
        return {run.run_id: run for run in reader.runs(self._identifier, limit=_RUNS)}


def as_text(line: Line) -> str:
    """The line for people, with local time; nothing in it steers a terminal."""
    match line:
        case Begun(run_id=run_id, record=record):
            return _rule(f"run {run_id}{_beginning(record)}")
        case Ended(record=record):
            return _rule(f"run {record.run_id} {_outcome(record)}")
        case NumberedEvent(event=event):
            words = f"{one_line(event.event):20} {one_line(event.message, _MAX_CHARS)}"
            return f"{_local(event.at_wall_ms)}  {words.rstrip()}"


def _beginning(record: RunRecord | None) -> str:
    if record is None:
        return ""
    number = (record.attempt or 0) + 1 if record.attempt_number is None else record.attempt_number
    limit = "" if record.attempt_limit is None else f" of {record.attempt_limit}"
    agent = "" if record.agent_name is None else f", by {record.agent_name}"
    return f", attempt {number}{limit}{agent}, since {_local(record.started_wall_ms)}"


def _rule(text: str) -> str:
    return f"── {one_line(text, _MAX_CHARS)} ──"


def _outcome(record: RunRecord) -> str:
    ended = record.started_wall_ms if record.ended_wall_ms is None else record.ended_wall_ms
    took = lasting((ended - record.started_wall_ms) / 1000)
    facts = [plural(record.turns, "turn"), plural(record.commits, "commit")]
    if record.total_tokens:
        facts.append(f"{count(record.total_tokens)} tokens")
    reason = "" if record.reason is None else f" ({record.reason})"
    return f"{record.outcome or 'ended'} after {took}{reason}: {', '.join(facts)}"


def _local(wall_ms: int) -> str:
    """A moment as the clock on the wall shows it here."""
    return datetime.fromtimestamp(wall_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def as_json(line: Line) -> LoggedEvent | LoggedBegin | LoggedEnd:
    """The line as it is printed with `--json`; times are UTC, to the millisecond."""
    match line:
        case Begun(run_id=run_id, record=record):
            return LoggedBegin(run_id=run_id, run=None if record is None else _run(record))
        case Ended(record=record):
            return LoggedEnd(run_id=record.run_id, run=_run(record))
        case NumberedEvent(id=number, event=event):
            return LoggedEvent(
                id=number,
                at=_utc(event.at_wall_ms),
                issue_id=event.issue_id,
                issue_identifier=event.issue_identifier,
                run_id=event.run_id,
                event=event.event,
                message=event.message,
            )


def _run(record: RunRecord) -> LoggedRun:
    return LoggedRun(
        attempt=record.attempt,
        attempt_number=record.attempt_number,
        attempt_limit=record.attempt_limit,
        started_at=_utc(record.started_wall_ms),
        ended_at=None if record.ended_wall_ms is None else _utc(record.ended_wall_ms),
        outcome=record.outcome,
        reason=record.reason,
        progress=record.progress,
        turns=record.turns,
        commits=record.commits,
        total_tokens=record.total_tokens,
        session_id=record.session_id,
        thread_id=record.thread_id,
        branch=record.branch,
        agent=record.agent_name,
        agent_reason=record.agent_reason,
    )


def _utc(wall_ms: int) -> str:
    return (
        datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
