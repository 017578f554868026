"""What is put and not written yet, and what a new file would have to know: bounded memory, no disk.

The newest record of a key replaces the one before it, also here: a transaction that writes the whole backlog
has the effect of all puts in their order, so that each of them is atomic.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from symphony.domain.issue import Issue
from symphony.journal.model import (
    ClaimGone,
    ClaimRecord,
    CommentRecord,
    DayRecord,
    EventRecord,
    IssueSpent,
    Record,
    Remembered,
    RunRecord,
    SettingRecord,
    SkillsRecord,
)
from symphony.scheduler.inputs import Spent

__all__ = ["MAX_EVENT_CHARS", "MAX_HISTORY", "Backlog", "Batch", "Mirror", "key_of"]

MAX_EVENT_CHARS = 32 * 1024 * 1024
MAX_HISTORY = 2_000
_EVENT_CHARS = 300
_UNSPENT = Spent()
Key = tuple[str, ...]


def key_of(record: Record) -> Key:
    """What the record is about; of two with the same key only the newer one matters."""
    match record:
        case ClaimRecord(issue=Issue(id=issue_id)) | ClaimGone(issue_id=issue_id):
            key: Key = ("claim", issue_id)
        case RunRecord() | SkillsRecord():
            key = (type(record).__name__, record.run_id)
        case CommentRecord():
            key = ("comment", record.issue_id, record.kind)
        case IssueSpent():
            key = ("spent", record.issue_id)
        case DayRecord():
            key = ("day", record.day)
        case SettingRecord():
            key = ("setting", record.name)
        case EventRecord():  # none replaces another, and they never come here
            key = ("event", record.issue_id, str(record.at_wall_ms))
        case _:
            assert_never(record)
    return key


def _is_history(record: Record) -> bool:
    """Whether losing it costs history alone."""
    if isinstance(record, RunRecord):
        return record.ended_wall_ms is not None
    return isinstance(record, CommentRecord | SkillsRecord)


def _is_nothing(record: Record) -> bool:
    """Whether it says that there is nothing to know: no claim, nothing used up."""
    return isinstance(record, ClaimGone) or (isinstance(record, IssueSpent) and record.spent == _UNSPENT)


@dataclass(slots=True, kw_only=True)
class Batch:
    """What one transaction writes: the newest records of their keys, and events in their order."""

    current: dict[Key, Record] = field(default_factory=dict)
    history: dict[Key, Record] = field(default_factory=dict)
    events: deque[EventRecord] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.current or self.history or self.events)

    @property
    def records(self) -> Iterable[Record]:
        """All but the events."""
        yield from self.current.values()
        yield from self.history.values()


class Backlog:
    """Collects what is put; `lost` counts what had no room while nothing could be written."""

    def __init__(self) -> None:
        self._batch = Batch()
        self._chars = 0
        self.lost = 0

    def __bool__(self) -> bool:
        return bool(self._batch)

    def add(self, records: Iterable[Record]) -> None:
        """Take the records of one put."""
        for record in records:
            if isinstance(record, EventRecord):
                self._batch.events.append(record)
                self._chars += _EVENT_CHARS + len(record.message)
            else:
                self._keep(record)
        self._bound()

    def _keep(self, record: Record) -> None:
        key = key_of(record)
        if _is_history(record):
            self._batch.current.pop(key, None)
            self._batch.history[key] = record
        else:
            self._batch.history.pop(key, None)
            self._batch.current[key] = record

    def _bound(self) -> None:
        while self._chars > MAX_EVENT_CHARS:
            self._chars -= _EVENT_CHARS + len(self._batch.events.popleft().message)
            self.lost += 1
        while len(self._batch.history) > MAX_HISTORY:
            del self._batch.history[next(iter(self._batch.history))]
            self.lost += 1

    def take(self) -> Batch:
        """All of it; the backlog is empty then."""
        taken, self._batch, self._chars = self._batch, Batch(), 0
        return taken

    def give_back(self, batch: Batch) -> None:
        """Put what could not be written before what came since."""
        newer = self.take()
        self.add([*batch.records, *batch.events, *newer.records, *newer.events])


class Mirror:
    """The newest truth about what is not history: what a file begun anew must hold before anything else."""

    def __init__(self, remembered: Remembered) -> None:
        self._held: dict[Key, Record] = {}
        self.add(remembered.claims)
        self.add(remembered.live_runs)
        self.add(IssueSpent(issue_id=key, spent=spent) for key, spent in remembered.spent.items())
        self.add(DayRecord(day=day, tokens=tokens) for day, tokens in remembered.days.items())
        self.add(SettingRecord(name=name, value=value) for name, value in remembered.settings.items())

    def add(self, records: Iterable[Record]) -> None:
        """Follow one put."""
        for record in records:
            if isinstance(record, EventRecord):
                continue
            if _is_nothing(record) or _is_history(record):
                self._held.pop(key_of(record), None)
            else:
                self._held[key_of(record)] = record

    def copy(self) -> tuple[Record, ...]:
        """All that is true now; a setting that was forgotten is told as such."""
        return tuple(self._held.values())
