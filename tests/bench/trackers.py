"""What an idle board costs: polls by the adapter, beside a client that remembers nothing.

Nothing changes, and the daemon ticks every 30 seconds: a list of all active issues, and for Linear once more
with sessions that run, whose issues are read by id. The naive client is the same adapter, made anew for each
tick, so that it asks for all of it each time. The services are the stateful fakes of the contract suite, in
this process; their own processor time is taken off. There is no network in the figures.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.kit import Kind
from contract.desks import DESKS
from contract.vendor import Given, Vendor
from symphony.trackers.remote import RemoteTracker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contract.desk import Desk
    from symphony.http import Send

__all__ = ["SAVING", "Polling", "polling"]

TICK_MS = 30_000
RUNNING = 10
_TICKS_A_MINUTE = 60_000 / TICK_MS
_KINDS = tuple(name for name in DESKS if "," not in name)
SAVING = tuple(name for name in _KINDS if DESKS[name].can & {"conditional", "cheap"})
"""The services that can tell that nothing changed without sending all of it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """Per minute at steady state: requests and bytes of answers; processor time of one tick in ms.

    `running` is how many sessions run meanwhile.
    """

    service: str
    running: int
    requests: dict[Kind, float]
    bytes: dict[Kind, float]
    cpu_ms: dict[Kind, float]


class _Clocked:
    """The service of a desk, with the processor time that it takes itself."""

    def __init__(self, vendor: Vendor) -> None:
        self._vendor = vendor
        self.cpu_s = 0.0
        self._exchange = vendor.exchange
        vendor.exchange = self.exchange  # type: ignore[method-assign]  # to stand around it

    def exchange(self, method: str, address: str, headers: Mapping[str, str], content: bytes | None) -> Given:
        begun = time.process_time()
        try:
            return self._exchange(method, address, headers, content)
        finally:
            self.cpu_s += time.process_time() - begun

    @asynccontextmanager
    async def session(self, base: str) -> "AsyncIterator[Send]":
        async with self._vendor.session(base) as send:
            yield send


def polling(*, issues: int, ticks: int) -> list[Polling]:
    """Every adapter over HTTP that has a service in memory."""
    return [
        asyncio.run(_measured(name, issues, ticks, running))
        for name in _KINDS
        for running in ((0, RUNNING) if name == "linear" else (0,))
    ]


async def _measured(name: str, issues: int, ticks: int, running: int) -> Polling:
    desk = DESKS[name]()
    for number in range(1, issues + 1):
        desk.put(number)
    clocked = _Clocked(desk.vendor)
    await _tick(desk, desk.tracker, issues, running)  # what every client has to ask once
    found: dict[Kind, tuple[float, float, float]] = {
        "symphony": await _spent(desk, clocked, issues, ticks, running, naive=False),
        "floor": await _spent(desk, clocked, issues, max(1, ticks // 4), running, naive=True),
    }
    return Polling(
        service=name,
        running=running,
        requests={kind: one[0] * _TICKS_A_MINUTE for kind, one in found.items()},
        bytes={kind: one[1] * _TICKS_A_MINUTE for kind, one in found.items()},
        cpu_ms={kind: one[2] for kind, one in found.items()},
    )


async def _spent(
    desk: "Desk", clocked: _Clocked, issues: int, ticks: int, running: int, *, naive: bool
) -> tuple[float, float, float]:
    """Requests, bytes and ms of processor time of a tick, on average."""
    requests, received = len(desk.vendor.requests), desk.vendor.received
    theirs, begun = clocked.cpu_s, time.process_time()
    for _ in range(ticks):
        await _tick(desk, desk.another() if naive else desk.tracker, issues, running)
    used_s = time.process_time() - begun - (clocked.cpu_s - theirs)
    return (
        (len(desk.vendor.requests) - requests) / ticks,
        (desk.vendor.received - received) / ticks,
        used_s * 1000 / ticks,
    )


async def _tick(desk: "Desk", tracker: RemoteTracker, issues: int, running: int) -> None:
    desk.clock.pass_ms(TICK_MS)
    found = await tracker.fetch_issues_by_states((desk.todo, desk.doing))
    assert len(found) == issues
    await tracker.fetch_issues_by_ids([issue.id for issue in found[:running]])
