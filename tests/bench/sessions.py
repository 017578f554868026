"""Many issues, few slots: the rate of sessions, their price, and whether the limit holds."""

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from bench.kit import Kind, Scene, median

_TURN_MS = 400
_PAUSE_S = 0.1  # each look reads long journals, on the processors that the programs need


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One program that worked a whole board off.

    Attributes:
        rate: sessions per second, from the first agent's start to the last one's end.
        cpu_ms: processor time of the program per issue; launching it and reading the board once not counted.
        tree_ms: the same of all that the program has started, agents too.
        peak: most agents alive at a time.
        repeated: issues that were started more than once.
        requests: what the tracker was asked by id because of sessions, per session.
        per_poll: requests per poll that no session caused: the poll and its reconciliation.
    """

    rate: float
    cpu_ms: float
    tree_ms: float
    peak: int
    repeated: int
    requests: float
    per_poll: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Medians over the rounds of each program; `peak` and `repeated` are the worst ones.

    `cpu_ms` is that of all processes but the agents. An agent costs what it costs the floor, which has no
    other processes.
    """

    rate: dict[Kind, float]
    cpu_ms: dict[Kind, float]
    peak: dict[Kind, int]
    repeated: int
    requests: float
    per_poll: float


def sessions(place: Path, agent: tuple[str, ...], *, issues: int, limit: int, rounds: int) -> Sessions:
    """Both programs by turns, each on a fresh board of the same issues."""
    done: dict[Kind, list[Round]] = {"floor": [], "symphony": []}
    for number in range(rounds):
        for kind, found in done.items():
            found.append(_round(place / f"{kind}-{number}", agent, kind, issues=issues, limit=limit))
    ours = done["symphony"]
    agents_ms = median(one.tree_ms - one.cpu_ms for one in done["floor"])
    return Sessions(
        rate={kind: median(one.rate for one in found) for kind, found in done.items()},
        cpu_ms={kind: median(one.tree_ms for one in found) - agents_ms for kind, found in done.items()},
        peak={kind: max(one.peak for one in found) for kind, found in done.items()},
        repeated=max(one.repeated for one in ours),
        requests=median(one.requests for one in ours),
        per_poll=max(one.per_poll for one in ours),
    )


def _round(place: Path, agent: tuple[str, ...], kind: Kind, *, issues: int, limit: int) -> Round:
    switches = ("--turn-ms", str(_TURN_MS), "--move", "Done")
    scene = Scene(place=place, agent=agent, limit=limit, switches=switches)
    for number in range(issues):
        scene.issue(f"MANY-{number:03}")
    with scene.run(kind) as program:
        scene.wait_agents("start", 1)
        before, tree_before = program.cpu_ns, program.tree_cpu_ns
        scene.wait_agents("exit", issues, pause_s=_PAUSE_S)
        scene.wait_told("ended", issues, pause_s=_PAUSE_S)
        spent, tree_spent = program.cpu_ns - before, program.tree_cpu_ns - tree_before
    starts, exits = scene.agents("start"), scene.agents("exit")
    span_s = (exits[-1].at_ns - starts[0].at_ns) / 1e9
    polls, refreshes = len(scene.told("fetch")), len(scene.told("refresh"))
    reconciled = min(polls, refreshes)  # a poll that finds something running asks about it, once
    times = sorted([(entry.at_ns, 1) for entry in starts] + [(entry.at_ns, -1) for entry in exits])
    return Round(
        rate=issues / span_s,
        cpu_ms=spent / 1e6 / issues,
        tree_ms=tree_spent / 1e6 / issues,
        peak=max(accumulate(change for _, change in times)),
        repeated=sum(count > 1 for count in Counter(entry.issue for entry in starts).values()),
        requests=max(refreshes - reconciled, 0) / issues,
        per_poll=(polls + reconciled) / polls if polls else 0.0,
    )
