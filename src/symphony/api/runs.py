"""The runs in the journal as a document: rows, sums by a criterion, and the sum of all.

Pure. The API, the page and `symphony runs` show this document.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Final

from msgspec import structs

from symphony.api import models
from symphony.api.interface import RunQuery
from symphony.api.models import utc_text
from symphony.domain import NO_USAGE, Usage
from symphony.journal.model import RunRecord

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_USD_DIGITS: Final = 6
_KEYS: Final[Mapping[str, Callable[[RunRecord], str | None]]] = {
    "day": lambda run: models.wall_text(run.started_wall_ms)[:10],
    "agent": lambda run: run.agent_name,
    "issue": lambda run: run.issue_identifier,
    "state": lambda run: run.issue_state,
}


def since_wall_ms(query: RunQuery, now: datetime) -> int:
    """The start of the earliest run that the query selects, in ms since 1970."""
    if query.since_s is None:
        return 0
    return max((now - _EPOCH) // timedelta(milliseconds=1) - int(query.since_s * 1000), 0)


def runs_document(records: Iterable[RunRecord], query: RunQuery, *, now: datetime) -> models.Runs:
    """The runs that a query selects, newest first, with their sums.

    Args:
        records: runs of the journal, newest first.
        query: selects runs; `limit` limits the rows, but no sum.
        now: the present time; live runs count until then.
    """
    since_ms = since_wall_ms(query, now)
    chosen = [run for run in records if run.started_wall_ms >= since_ms and _selected(run, query)]
    rows = [_row(run, now) for run in chosen]
    groups: dict[str | None, list[models.RunRow]] = {}
    if query.by is not None:
        for run, row in zip(chosen, rows, strict=True):
            groups.setdefault(_KEYS[query.by](run), []).append(row)
    sums = [_sums(key, members) for key, members in groups.items()]
    if query.by != "day":  # days are in order, the latest first
        sums.sort(key=lambda one: (-(one.cost_usd or 0), -one.tokens.total_tokens, -one.runs, one.key or ""))
    return models.Runs(
        generated_at=utc_text(now),
        since=models.wall_text(since_ms) if since_ms else None,
        by=query.by,
        runs=tuple(rows[: query.limit]),
        left_out=max(len(rows) - query.limit, 0),
        groups=tuple(sums),
        total=_sums(None, rows),
    )


def past_run(record: RunRecord) -> models.PastRun:
    """A run of the journal; a running one has no end."""
    return models.PastRun(
        **structs.asdict(record.facts.rounded()),
        run_id=record.run_id,
        attempt=record.attempt,
        agent=record.agent_name,
        started_at=models.wall_text(record.started_wall_ms),
        ended_at=None if record.ended_wall_ms is None else models.wall_text(record.ended_wall_ms),
        outcome=record.outcome,
        reason=record.reason,
        verified=record.verified,
        head=record.head,
        attempt_number=record.attempt_number,
        attempt_limit=record.attempt_limit,
        progress=record.progress,
        agent_reason=record.agent_reason,
    )


def usd(amount: float | None) -> float | None:
    """An amount in the form of documents, to a millionth of a dollar."""
    return None if amount is None else round(amount, _USD_DIGITS)


def _selected(run: RunRecord, query: RunQuery) -> bool:
    return (
        (not query.issues or run.issue_identifier in query.issues)
        and (not query.agents or run.agent_name in query.agents)
        and (not query.outcomes or (run.outcome or "running") in query.outcomes)
    )


def _row(record: RunRecord, now: datetime) -> models.RunRow:
    ended_ms = record.ended_wall_ms
    if ended_ms is None:
        ended_ms = (now - _EPOCH) // timedelta(milliseconds=1)
    return models.RunRow(
        **structs.asdict(past_run(record)),
        issue_id=record.issue_id,
        issue_identifier=record.issue_identifier,
        issue_state=record.issue_state,
        issue_title=record.issue_title,
        seconds=max(ended_ms - record.started_wall_ms, 0) / 1000,
    )


def _sums(key: str | None, rows: Iterable[models.RunRow]) -> models.RunSums:
    rows = tuple(rows)
    usage = reduce(Usage.plus, rows, NO_USAGE)
    return models.RunSums(
        key=key,
        runs=len(rows),
        turns=sum(row.turn_count for row in rows),
        seconds=round(sum(row.seconds for row in rows), 3),
        commits=sum(row.work.commits for row in rows),
        **structs.asdict(usage.rounded()),
    )
