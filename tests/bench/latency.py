"""How long until the next agent lives: after a slot is freed, after an issue is seen, after the launch."""

import time
from dataclasses import dataclass
from pathlib import Path

from bench.journal import write_claims
from bench.kit import Kind, Scene, median

_KINDS: tuple[Kind, Kind] = ("floor", "symphony")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Medians in ms."""

    ms: dict[Kind, float]


def slot_gap(
    place: Path, agent: tuple[str, ...], *, issues: int, rounds: int, repo: Path | None = None
) -> Delay:
    """From the last word of an agent (its turn has ended) to the first instruction of the next, limit 1.

    The poll interval is 30 s: whoever waits for the next poll shows it here.
    """
    gaps: dict[Kind, list[float]] = {"floor": [], "symphony": []}
    for number in range(rounds):
        for kind in _KINDS:
            scene = Scene(
                place=place / f"{kind}-{number}", agent=agent, switches=("--move", "Done"), repo=repo
            )
            for issue in range(issues):
                scene.issue(f"GAP-{number}-{issue:03}")
            with scene.run(kind):
                scene.wait_agents("exit", issues)
            starts, ends = scene.agents("start"), scene.agents("turn_end")
            pairs = zip(ends, starts[1:], strict=False)
            gaps[kind] += [(start.at_ns - end.at_ns) / 1e6 for end, start in pairs]
    return Delay(ms={kind: median(found) for kind, found in gaps.items()})


def seen_to_start(place: Path, agent: tuple[str, ...], *, issues: int) -> tuple[Delay, float]:
    """From the moment an idle program knows of an issue to the first instruction of its agent.

    The second value is the time from the saved file to the agent, of the daemon alone.
    """
    waits: dict[Kind, list[float]] = {"floor": [], "symphony": []}
    saved_ms: list[float] = []
    scenes = {
        kind: Scene(place=place / kind, agent=agent, limit=1, switches=("--move", "Done")) for kind in _KINDS
    }
    with scenes["floor"].run("floor") as floor, scenes["symphony"].run("symphony") as daemon:
        scenes["symphony"].wait_told("fetch", 1)
        for number in range(1, issues + 1):
            for program in (floor, daemon):
                program.settle()
                saved_ns = time.monotonic_ns()
                program.appear(f"SEEN-{number}")
                start = program.scene.wait_agents("start", number)[-1]
                seen = program.scene.wait_told("seen", number)[-1]
                if program is daemon:
                    saved_ms.append((start.at_ns - saved_ns) / 1e6)
                waits[program.kind].append((start.at_ns - seen.at_ns) / 1e6)
                program.scene.wait_told("ended", number)
    return Delay(ms={kind: median(found) for kind, found in waits.items()}), median(saved_ms or [0.0])


def launch(place: Path, agent: tuple[str, ...], *, rounds: int) -> Delay:
    """From the start of the program to the first agent of an issue that waits on the board.

    The daemon is `symphony run` itself. It starts a first agent for its preflight, which the floor does not
    have; that one is not the one waited for, and its time is in the figure. The first round fills caches.
    """
    waits: dict[Kind, list[float]] = {"floor": [], "symphony": []}
    for number in range(rounds + 1):
        for kind in _KINDS:
            scene = Scene(place=place / f"{kind}-{number}", agent=agent, switches=("--hold",))
            scene.issue("LAUNCH-1")
            with scene.run(kind, module="symphony" if kind == "symphony" else None) as program:
                start = scene.wait_agents("start", 1)[0]
                waits[kind].append((start.at_ns - program.started_ns) / 1e6)
    return Delay(ms={kind: median(found[1:]) for kind, found in waits.items()})


def restart(place: Path, agent: tuple[str, ...], *, claims: int, rounds: int) -> Delay:
    """From the start of the daemon to the first agent, with that many issues on the board.

    The floor is the same daemon that remembers nothing; the other one holds a due retry of every issue. The
    first round fills caches.
    """
    waits: dict[Kind, list[float]] = {"floor": [], "symphony": []}
    for number in range(rounds + 1):
        for kind in _KINDS:
            scene = Scene(place=place / f"{kind}-{number}", agent=agent, switches=("--hold",))
            for issue in range(claims):
                scene.issue(f"id-{issue}")
            if kind == "symphony":
                (scene.place / "state").mkdir(mode=0o700)
                write_claims(scene.place / "state" / "journal.db", claims)
            with scene.run("symphony", module="symphony") as program:
                start = scene.wait_agents("start", 1)[0]
                waits[kind].append((start.at_ns - program.started_ns) / 1e6)
    return Delay(ms={kind: median(found[1:]) for kind, found in waits.items()})
