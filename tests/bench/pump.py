"""The event pump: what it costs to take in what an agent says, and that nothing of it gets lost."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.kit import Kind, Program, Scene, median

ISSUE = "PUMP-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pumped:
    """Per program: processor seconds per 10,000 events (median of the bursts), growth of the memory.

    Helpers are included, agents are not.
    """

    cpu_s: dict[Kind, float]
    growth_mb: dict[Kind, float]


def pump(place: Path, agent: tuple[str, ...], *, events: int, bursts: int) -> Pumped:
    """Bursts into both programs by turns; each has one agent, and both live all the time."""
    spent: dict[Kind, list[int]] = {"floor": [], "symphony": []}
    memory: dict[Kind, list[int]] = {"floor": [], "symphony": []}
    with ExitStack() as stack:
        programs: list[Program] = []
        for kind in spent:
            switches = ("--events", str(events), "--bursts", str(bursts + 1))
            scene = Scene(place=place / kind, agent=agent, switches=switches)
            scene.issue(ISSUE)
            programs.append(stack.enter_context(scene.run(kind)))
        for program in programs:
            program.scene.wait_agents("turn", 1)
        for number in range(1, bursts + 2):
            for program in programs:
                program.settle()
                before = program.helped_cpu_ns
                program.scene.open(f"{ISSUE}.{number}")
                program.scene.wait_agents("burst_end", number)
                program.settle()
                spent[program.kind].append(program.helped_cpu_ns - before)
                memory[program.kind].append(program.pss_kb)
    return Pumped(
        cpu_s={kind: median(taken[1:]) / 1e9 / events * 10_000 for kind, taken in spent.items()},
        growth_mb={
            kind: (sizes[-1] - sizes[0]) / 1024 / (bursts * events) * 100_000
            for kind, sizes in memory.items()
        },
    )
