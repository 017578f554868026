"""The log of one issue from the journal: its events in order, with the begin and the end of each run.

Events outside of a run stand where they happened and do not end a run. The end of a run follows its last
event.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import structs

from symphony.cli.documents import LoggedBegin, LoggedEnd, LoggedEvent, LoggedRun
from symphony.cli.formatting import duration, event_words, parse_time, plural, seconds_between, tokens
from symphony.domain import one_line, without_codes
from symphony.journal.model import RunRecord
from symphony.journal.reader import JournalReader, NumberedEvent

LoggedLine = LoggedEvent | LoggedBegin | LoggedEnd

_MAX_RUNS: Final = 1_000
_BATCH: Final = 1_000
_MAX_CHARS: Final = 4_000


class IssueLog:
    """Reads the lines of one issue, each of them once, however often it is asked.

    With `run_id`, other runs and events outside of a run are left out.
    """

    def __init__(self, identifier: str, *, run_id: str | None = None) -> None:
        self._identifier = identifier
        self._run_id = run_id
        self._last_id = 0
        self._current_run: str | None = None
        self._ended: set[str] = set()

    def first_lines(self, reader: JournalReader, *, limit: int | None) -> Iterator[LoggedLine]:
        """The last `limit` events; None stands for all."""
        if limit is None:
            yield from self.new_lines(reader)
        else:
            events = reader.latest_events(self._identifier, run_id=self._run_id, limit=limit)
            yield from self._lines(events, self._runs(reader), complete=True)

    def new_lines(self, reader: JournalReader) -> Iterator[LoggedLine]:
        """What came since the last call."""
        while events := reader.events(
            self._identifier, after_id=self._last_id, run_id=self._run_id, limit=_BATCH
        ):
            yield from self._lines(events, self._runs(reader), complete=len(events) < _BATCH)
        if self._current_run is not None:
            yield from self._end_of_run(self._runs(reader))

    def _lines(
        self, events: Sequence[NumberedEvent], runs: Mapping[str, RunRecord], *, complete: bool
    ) -> Iterator[LoggedLine]:
        for numbered in events:
            event = numbered.event
            self._last_id = numbered.id
            if event.run_id is not None and event.run_id != self._current_run:
                yield from self._end_of_run(runs)
                self._current_run = event.run_id
                run = runs.get(event.run_id)
                yield LoggedBegin(run_id=event.run_id, run=None if run is None else _logged_run(run))
            elif event.run_id is None:
                yield from self._end_of_run(runs, before_ms=event.at_wall_ms)
            yield LoggedEvent.of(event, id=numbered.id, at=_utc(event.at_wall_ms))
        if complete:
            yield from self._end_of_run(runs)

    def _end_of_run(
        self, runs: Mapping[str, RunRecord], *, before_ms: int | None = None
    ) -> Iterator[LoggedEnd]:
        """The end of the current run, once, if it has ended (until a time)."""
        run = runs.get(self._current_run or "")
        if run is None or run.ended_wall_ms is None or run.run_id in self._ended:
            return
        if before_ms is None or run.ended_wall_ms <= before_ms:
            self._ended.add(run.run_id)
            yield LoggedEnd(run_id=run.run_id, run=_logged_run(run))

    def _runs(self, reader: JournalReader) -> Mapping[str, RunRecord]:
        return {run.run_id: run for run in reader.runs(self._identifier, limit=_MAX_RUNS)}


def log_text(line: LoggedLine) -> str:
    """The line for people, in local time and without control characters."""
    if isinstance(line, LoggedEvent):
        message = without_codes(one_line(line.message, _MAX_CHARS))
        text = f"{one_line(event_words(line.event)):20} {message}"
        return f"{_local(line.at)}  {text.rstrip()}"
    run, text = line.run, f"run {line.run_id}"
    if run is not None and isinstance(line, LoggedBegin):
        number = (run.attempt or 0) + 1 if run.attempt_number is None else run.attempt_number
        limit = "" if run.attempt_limit is None else f" of {run.attempt_limit}"
        agent = "" if run.agent is None else f", by {run.agent}"
        text += f", attempt {number}{limit}{agent}, since {_local(run.started_at)}"
    elif run is not None:
        took = duration(seconds_between(run.started_at, run.ended_at))
        reason = "" if run.reason is None else f" ({without_codes(run.reason)})"
        work = [plural(run.turn_count, "turn"), plural(run.commits, "commit")]
        if run.tokens.total_tokens:
            work.append(f"{tokens(run.tokens.total_tokens)} tokens")
        text += f" {run.outcome or 'ended'} after {took}{reason}: {', '.join(work)}"
    return f"── {one_line(text, _MAX_CHARS)} ──"


def _logged_run(record: RunRecord) -> LoggedRun:
    return LoggedRun(
        **structs.asdict(record.facts),
        attempt=record.attempt,
        attempt_number=record.attempt_number,
        attempt_limit=record.attempt_limit,
        outcome=record.outcome,
        reason=record.reason,
        progress=record.progress,
        agent_reason=record.agent_reason,
        started_at=_utc(record.started_wall_ms),
        ended_at=None if record.ended_wall_ms is None else _utc(record.ended_wall_ms),
        agent=record.agent_name,
    )


def _utc(wall_ms: int) -> str:
    moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _local(instant: str) -> str:
    moment = parse_time(instant)
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
