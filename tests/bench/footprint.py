"""What an idle program holds with its helpers, and what sessions that only wait add.

The daemon loads its web server a moment after it began to serve: that is part of what it holds, so we wait.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.kit import Kind, Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Memory (PSS) in MB with the helpers, and threads of the program, by the number of silent sessions."""

    memory_mb: dict[Kind, dict[int, float]]
    threads: dict[Kind, dict[int, int]]


def footprint(place: Path, agent: tuple[str, ...], *, counts: Sequence[int]) -> Footprint:
    """Without a session, and with each of these growing numbers of them."""
    memory_mb, threads = dict[Kind, dict[int, float]](), dict[Kind, dict[int, int]]()
    for kind in _KINDS:
        memory_mb[kind], threads[kind] = {}, {}
        scene = Scene(
            place=place / kind,
            agent=agent,
            limit=counts[-1],
            switches=("--hold",),
            settings={"stall_timeout_ms": 0},
        )
        with scene.run(kind) as program:
            if kind == "symphony":
                scene.wait_told("fetch", 1)
                time.sleep(_LOADED_S)
            before = 0
            for count in (0, *counts):
                for number in range(before, count):
                    program.appear(f"IDLE-{number}")
                scene.wait_agents("turn", count)
                program.settle()
                memory_mb[kind][count], threads[kind][count] = program.pss_kb / 1024, program.threads
                before = count
    return Footprint(memory_mb=memory_mb, threads=threads)


_LOADED_S = 1.0
_KINDS: tuple[Kind, Kind] = ("floor", "symphony")
