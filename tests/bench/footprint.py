"""What an idle program holds, and what each further session that only waits adds."""

from dataclasses import dataclass
from pathlib import Path

from bench.kit import Kind, Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Resident memory in MB without sessions, per session in MB, and threads without and with sessions."""

    idle_mb: dict[Kind, float]
    per_session_mb: dict[Kind, float]
    threads: dict[Kind, tuple[int, int]]


def footprint(place: Path, agent: tuple[str, ...], *, sessions: int) -> Footprint:
    """One session first, because the first one loads what all of them use; then many, all silent."""
    found = {kind: _measure(place / kind, agent, kind, sessions) for kind in _KINDS}
    return Footprint(
        idle_mb={kind: one[0] for kind, one in found.items()},
        per_session_mb={kind: one[1] for kind, one in found.items()},
        threads={kind: one[2] for kind, one in found.items()},
    )


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
        program.settle()
        idle_kb, idle_threads = program.rss_kb, program.threads
        program.appear("IDLE-0")
        scene.wait_agents("turn", 1)
        program.settle()
        one_kb = program.rss_kb
        for number in range(1, sessions):
            program.appear(f"IDLE-{number}")
        scene.wait_agents("turn", sessions)
        program.settle()
        grown_kb = program.rss_kb - one_kb
        return idle_kb / 1024, grown_kb / 1024 / (sessions - 1), (idle_threads, program.threads)
