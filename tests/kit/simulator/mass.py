"""Many schedules, seed after seed, shared among processes: what they came to, and those that broke a rule."""

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from typing import Any

from kit.simulator.result import Result
from kit.simulator.schedules import run_schedule
from symphony.scheduler import StepFunction

__all__ = ["Broken", "Mass", "share"]


_CHUNK = 50
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A schedule that broke a rule: its report for people, and the shape of `--json`."""

    seed: int
    report: str
    told: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Mass:
    """What schedules came to; of the broken ones all seeds, and the first few in full."""

    schedules: int = 0
    inputs: int = 0
    lives: int = 0
    crashes: Counter[str] = field(default_factory=Counter)
    broken_seeds: list[int] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)

    def add(self, result: Result, *, last: int) -> None:
        """Count one; `last` is how many steps its report shows."""
        self.schedules += 1
        self.inputs += result.statistics.inputs
        self.lives += result.statistics.lives
        self.crashes.update(result.statistics.crashes)
        if result.violations:
            self.broken_seeds.append(result.seed)
            if len(self.broken) < _SHOWN:
                report = result.report(last=last)
                self.broken.append(Broken(seed=result.seed, report=report, told=result.as_json()))

    def join(self, other: "Mass") -> None:
        """Count what another process has found."""
        self.schedules += other.schedules
        self.inputs += other.inputs
        self.lives += other.lives
        self.crashes.update(other.crashes)
        self.broken_seeds = sorted([*self.broken_seeds, *other.broken_seeds])
        self.broken = sorted([*self.broken, *other.broken], key=lambda one: one.seed)[:_SHOWN]

    def as_json(self, first: int) -> dict[str, Any]:
        """The shape of `--json`."""
        return {
            "first_seed": first,
            "schedules": self.schedules,
            "inputs": self.inputs,
            "lives": self.lives,
            "crashes": dict(sorted(self.crashes.items())),
            "broken_seeds": self.broken_seeds,
            "broken": [one.told for one in self.broken],
        }


def share(first: int, count: int, *, jobs: int, step: StepFunction, last: int) -> Iterator[Mass]:
    """Run the schedules of so many seeds in processes of their own; what each chunk came to, as it comes."""
    chunks = (range(at, min(at + _CHUNK, first + count)) for at in range(first, first + count, _CHUNK))
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(_run, chunk, step, last) for chunk in islice(chunks, 4 * jobs)}
        while waiting:
            done = next(as_completed(waiting))
            waiting.remove(done)
            waiting.update(pool.submit(_run, chunk, step, last) for chunk in islice(chunks, 1))
            yield done.result()


def _run(seeds: Iterable[int], step: StepFunction, last: int) -> Mass:
    found = Mass()
    for seed in seeds:
        found.add(run_schedule(seed, step=step), last=last)
    return found
