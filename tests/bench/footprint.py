"""What an idle program holds, and what each further session that only waits adds.

The daemon loads its web server a moment after it began to serve: that is part of what it holds, so we wait.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from bench.kit import Kind, Program, Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Resident memory in MB without sessions, per further session, and threads with few and with many."""

    idle_mb: dict[Kind, float]
    per_session_mb: dict[Kind, float]
    threads: dict[Kind, tuple[int, int]]


def footprint(place: Path, agent: tuple[str, ...], *, sessions: int) -> Footprint:
    """A few sessions first, because they load and start what all of them use; then many, all silent."""
    found = {kind: _measure(place / kind, agent, kind, sessions) for kind in _KINDS}
    return Footprint(
        idle_mb={kind: one[0] for kind, one in found.items()},
        per_session_mb={kind: one[1] for kind, one in found.items()},
        threads={kind: one[2] for kind, one in found.items()},
    )


_LOADED_S = 1.0
_KINDS: tuple[Kind, Kind] = ("floor", "symphony")


def _measure(
    place: Path, agent: tuple[str, ...], kind: Kind, sessions: int
) -> tuple[float, float, tuple[int, int]]:
    scene = Scene(
        place=place, agent=agent, limit=sessions, switches=("--hold",), settings={"stall_timeout_ms": 0}
    )
    with scene.run(kind) as program:
        if kind == "symphony":
            scene.wait_told("fetch", 1)
            time.sleep(_LOADED_S)
        program.settle()
        idle_kb = program.rss_kb
        few = max(sessions // 10, 1)
        few_kb, few_threads = _grow(program, range(few))
        many_kb, many_threads = _grow(program, range(few, sessions))
        return idle_kb / 1024, (many_kb - few_kb) / 1024 / (sessions - few), (few_threads, many_threads)


def _grow(program: Program, numbers: range) -> tuple[int, int]:
    """Memory in KB and threads when these sessions have come as well, and all is quiet."""
    for number in numbers:
        program.appear(f"IDLE-{number}")
    program.scene.wait_agents("turn", numbers.stop)
    program.settle()
    return program.rss_kb, program.threads
