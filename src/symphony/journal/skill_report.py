"""What became of the runs that were told of each skill, summed up from rows of the journal."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["SkillReport", "skill_reports"]

_USES = """
SELECT used.name, used.run_id, used.listed, used.seen, used.sha256,
    coalesce(run.started_wall_ms, told.at_wall_ms),
    CASE WHEN run.run_id IS NOT NULL AND run.ended_wall_ms IS NULL THEN 'running'
        ELSE coalesce(run.outcome, 'unknown') END
FROM skill_uses AS used
JOIN skill_runs AS told ON told.run_id = used.run_id
LEFT JOIN runs AS run ON run.run_id = used.run_id
WHERE coalesce(run.started_wall_ms, told.at_wall_ms) >= ?
ORDER BY used.name
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillReport:
    """One skill over many runs.

    `listed` and `seen` count runs; `outcomes` tells how those that listed it ended, `seen_outcomes` those
    that looked at it. A run that lives counts as `running`, one whose end nobody knows as `unknown`.
    `versions` is the number of its different contents, `last_used_wall_ms` the start of the
    latest of the runs.
    """

    name: str
    listed: int
    seen: int
    outcomes: Mapping[str, int]
    seen_outcomes: Mapping[str, int]
    versions: int
    last_used_wall_ms: int


@dataclass(slots=True, kw_only=True)
class _Tally:
    listed: dict[str, str] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)
    last_wall_ms: int = 0


def skill_reports(connection: sqlite3.Connection, *, since_wall_ms: int) -> tuple[SkillReport, ...]:
    """Every skill that a run since then was told of, by name.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    return _summed_up(connection.execute(_USES, (since_wall_ms,)))


def _summed_up(rows: Iterable[tuple[str, str, int, int, str | None, int, str]]) -> tuple[SkillReport, ...]:
    tallies: dict[str, _Tally] = {}
    for name, run_id, listed, seen, sha256, at_wall_ms, outcome in rows:
        tally = tallies.setdefault(name, _Tally())
        if listed:
            tally.listed[run_id] = outcome
        if seen:
            tally.seen[run_id] = outcome
        if sha256 is not None:
            tally.versions.add(sha256)
        tally.last_wall_ms = max(tally.last_wall_ms, at_wall_ms)
    return tuple(_report(name, tally) for name, tally in tallies.items())


def _report(name: str, tally: _Tally) -> SkillReport:
    return SkillReport(
        name=name,
        listed=len(tally.listed),
        seen=len(tally.seen),
        outcomes=dict(sorted(Counter(tally.listed.values()).items())),
        seen_outcomes=dict(sorted(Counter(tally.seen.values()).items())),
        versions=len(tally.versions),
        last_used_wall_ms=tally.last_wall_ms,
    )
