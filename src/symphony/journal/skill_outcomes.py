"""Queries to the journal: the outcomes of runs by the skills in their lists.

A version of a skill counts runs that ended. Runs that a restart of the daemon interrupted are left out,
because their work goes on in another run.
"""

import json
import sqlite3
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from symphony.journal.skill_usage import OutcomeCounts

_VERSIONS: Final = """
WITH ended AS MATERIALIZED (
    SELECT run_id, started_wall_ms,
        record ->> '$.agent_name' AS agent, record ->> '$.facts.model' AS model,
        coalesce(record ->> '$.delivered', 0) AS delivered, coalesce(record ->> '$.ready', 0) AS ready,
        coalesce(record ->> '$.verified' = 'passed', 0) AS verified,
        coalesce(record ->> '$.verified' = 'failed', 0) AS verify_failed,
        coalesce(record ->> '$.merged', 0) AS merged, coalesce(record ->> '$.blocked', 0) AS blocked,
        coalesce(record ->> '$.attempt_number', 1) AS attempt,
        coalesce(record ->> '$.facts.turn_count', 0) AS turns,
        coalesce(record ->> '$.facts.tokens.total_tokens', 0) AS tokens
    FROM runs WHERE ended_wall_ms IS NOT NULL AND outcome <> 'interrupted' AND started_wall_ms >= ?
)
SELECT name, sha256, agent, model, count(*), sum(seen), sum(delivered), sum(verified), sum(verify_failed),
    sum(ready), sum(merged), sum(blocked),
    json_group_array(attempt), json_group_array(turns), json_group_array(tokens), max(started_wall_ms),
    max(run_id)
FROM ended JOIN skill_uses USING (run_id) WHERE listed GROUP BY name, sha256, agent, model
"""
_LIBRARY_VERSION: Final = """
SELECT record ->> ('$.library_versions."' || ? || '"') FROM runs WHERE run_id = ?
"""
_STARS: Final = """
SELECT name, sha256, record ->> '$.agent_name', record ->> '$.facts.model', json_group_array(star.value)
FROM json_each(?) AS star JOIN runs ON runs.run_id = star.key JOIN skill_uses ON skill_uses.run_id = star.key
WHERE listed AND ended_wall_ms IS NOT NULL AND outcome <> 'interrupted' AND started_wall_ms >= ?
GROUP BY 1, 2, 3, 4
"""


class VersionOutcomes(Struct, frozen=True, kw_only=True):
    """The runs of one agent and model that listed one version of a skill.

    Attributes:
        library_version: its number in the library; `None` for a skill of the repository or the user.
        attempts: the value of each run, like `turns` and `tokens`.
        stars: the stars of each rated run.
    """

    name: str
    sha256: str | None
    library_version: int | None
    agent: str | None
    model: str | None
    counts: OutcomeCounts
    attempts: list[int]
    turns: list[int]
    tokens: list[int]
    last_used_wall_ms: int
    stars: list[int] = msgspec.field(default_factory=list)


def version_outcomes(
    connection: sqlite3.Connection, since_wall_ms: int, stars: Mapping[str, int]
) -> tuple[VersionOutcomes, ...]:
    """The outcomes of all versions in the runs since then; `stars` are by run id."""
    rated = {
        tuple(key): json.loads(values)
        for *key, values in connection.execute(_STARS, (json.dumps(dict(stars)), since_wall_ms))
    }
    found = []
    for row in connection.execute(_VERSIONS, (since_wall_ms,)).fetchall():
        name, sha256, agent, model, *counts, attempts, turns, tokens, last_used_wall_ms, run_id = row
        (library_version,) = connection.execute(_LIBRARY_VERSION, (name, run_id)).fetchone()
        found.append(
            VersionOutcomes(
                name=name,
                sha256=sha256,
                library_version=library_version,
                agent=agent,
                model=model,
                counts=OutcomeCounts(*counts),
                attempts=json.loads(attempts),
                turns=json.loads(turns),
                tokens=json.loads(tokens),
                last_used_wall_ms=last_used_wall_ms,
                stars=rated.get((name, sha256, agent, model), []),
            )
        )
    return tuple(found)
