"""Machines that run sessions: they die, are cut off, freeze, and come back.

A worker ends its agent when it has heard nothing for its lease. The daemon counts a run as ended once a
program on the host ended it, or once the lease is surely over. What an earlier daemon left on a host is
ended, or waited for, before the next run of the same issue.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from kit.simulator.clock import Clock
from kit.simulator.dice import Dice
from kit.simulator.profiles import HostHabits

__all__ = ["EXTRA_MS", "LEASE_MS", "Hosts", "RemoteWorker"]

LEASE_MS = 30_000
EXTRA_MS = 30_000
_ENDED_MS = 1_000  # a connection and a program that ends a run
_REFUSED_MS = 5_000
_HELLO_MS = 2_000


class RemoteWorker(Protocol):
    """A worker on a host."""

    agent: bool

    @property
    def host(self) -> str | None:
        """Where it is."""
        ...

    def lose(self, *, agent_ms: int, ended_ms: int) -> None:
        """It is cut off: its agent ends after a time, and the daemon is told of its end after another."""
        ...


class Trouble(StrEnum):
    """What happens to a host."""

    DIES = "dies"
    CUT = "cut"
    FREEZES = "freezes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A host that cannot be reached until then."""

    trouble: Trouble
    until_ms: int


class Hosts:
    """The hosts of one world. `workers` gives the live workers of the present daemon."""

    def __init__(
        self, clock: Clock, dice: Dice, habits: HostHabits, workers: Callable[[], Iterable[RemoteWorker]]
    ) -> None:
        self._clock = clock
        self._dice = dice
        self._habits = habits
        self._workers = workers
        self._outages: dict[str, Outage] = {}
        self._resting = False
        self._next()

    def rest(self) -> None:
        """All hosts come back, and nothing happens to them any more."""
        self._resting = True
        self._outages.clear()

    def refusal_ms(self, host: str | None) -> int | None:
        """How long it takes to see that a host cannot carry out a run; `None` if it can."""
        if host in self._habits.old:
            return _HELLO_MS
        return _REFUSED_MS if self._outage(host) else None

    def fence_ms(self, host: str | None, since_ms: int) -> int:
        """How long it takes from now until a run that was left on a host is surely over."""
        over_ms = max(since_ms + LEASE_MS + EXTRA_MS - self._clock.now_ms, 0)
        outage = self._outage(host)
        back_ms = 0 if outage is None else outage.until_ms - self._clock.now_ms
        return min(over_ms, back_ms + _ENDED_MS)

    def _outage(self, host: str | None) -> Outage | None:
        outage = self._outages.get(host or "")
        return None if outage is None or outage.until_ms <= self._clock.now_ms else outage

    def _next(self) -> None:
        if self._habits.trouble_every_ms is not None and self._habits.names:
            self._clock.after(self._dice.around(self._habits.trouble_every_ms), self._strike)

    def _strike(self) -> None:
        if self._resting:
            return
        self._next()
        host, trouble = self._dice.pick(self._habits.names), self._dice.pick(tuple(Trouble))
        span = self._habits.freeze_ms if trouble is Trouble.FREEZES else self._habits.down_ms
        lasts_ms = self._dice.between(span)
        if self._outage(host):
            return
        now_ms = self._clock.now_ms
        self._outages[host] = Outage(trouble=trouble, until_ms=now_ms + lasts_ms)
        if trouble is Trouble.FREEZES and lasts_ms < LEASE_MS:
            return  # nobody noticed
        # The daemon hears nothing for a lease, then tries to end the run, and waits for the lease at most.
        silent_ms = LEASE_MS
        ended_ms = silent_ms + min(LEASE_MS + EXTRA_MS, max(lasts_ms - silent_ms, 0) + _ENDED_MS)
        agent_ms = {
            Trouble.DIES: 0,
            Trouble.CUT: min(LEASE_MS, ended_ms),
            Trouble.FREEZES: lasts_ms,
        }[trouble]
        for worker in tuple(self._workers()):
            if worker.host == host:
                worker.lose(agent_ms=agent_ms, ended_ms=ended_ms)
