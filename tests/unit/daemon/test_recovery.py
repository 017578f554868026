from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs
from typing_extensions import override

from symphony.daemon.instance_lock import StateDirectoryError
from symphony.daemon.recovery import reap_predecessor, scan_orphans
from symphony.domain import Category
from symphony.processes.base import Completed, HostProcess, Identity
from symphony.processes.local import LocalHost

pytestmark = pytest.mark.asyncio


def who(pid: int) -> Identity:
    return Identity(boot_id="b", pid=pid, started=1.0)


class Machine(LocalHost):
    """Processes with our mark (`left`) and without (`others`); `immortal` ones survive every signal.

    One of `forks` appears with our mark after each signal.
    """

    def __init__(self, *left: Identity, immortal: Sequence[Identity] = ()) -> None:
        super().__init__()
        self.left = set(left)
        self.others: set[Identity] = set()
        self.immortal = set(immortal)
        self.forks: list[Identity] = []
        self.ended: list[set[Identity]] = []

    @override
    def find_survivors(self) -> tuple[Identity, ...]:
        return tuple(self.left)

    @override
    def is_alive(self, identity: Identity) -> bool:
        return identity in self.left | self.others

    @override
    async def end(self, targets: Sequence[Identity], *, grace_ms: int) -> tuple[Identity, ...]:
        self.ended.append(set(targets))
        dead = set(targets) - self.immortal
        self.left -= dead
        self.others -= dead
        if self.forks:
            self.left.add(self.forks.pop(0))
        return tuple(self.immortal & set(targets))

    @override
    async def run(self, argv: Sequence[str], **_: object) -> Completed:
        raise AssertionError("nothing is to be run")

    @override
    async def spawn(self, argv: Sequence[str], **_: object) -> HostProcess:
        raise AssertionError("nothing is to be started")


async def reap(machine: Machine, *agents: Identity) -> int:
    return await reap_predecessor(machine, await scan_orphans(machine), agents=agents)


async def test_without_a_predecessor_nothing_is_ended() -> None:
    machine = Machine()
    machine.others = {who(1)}
    assert await reap(machine) == 0
    assert machine.ended == []


async def test_what_carries_the_mark_or_stands_in_the_journal_ends_and_nothing_else_does() -> None:
    machine = Machine(who(10), who(11))
    machine.others = {who(12), who(13)}
    with capture_logs() as logs:
        assert await reap(machine, who(12)) == 3
    assert machine.ended == [{who(10), who(11), who(12)}]
    assert machine.is_alive(who(13))
    assert [(line["event"], line["runs"], line["processes"]) for line in logs] == [
        ("predecessor_reaped", 1, 3)
    ]


async def test_a_recorded_process_number_that_another_process_has_now_is_left_alone() -> None:
    machine = Machine()
    with capture_logs() as logs:
        assert await reap(machine, who(10)) == 0
    assert (machine.ended, logs) == ([], [])


async def test_what_was_seen_once_ends_although_it_hides_from_the_next_look() -> None:
    machine = Machine(who(10))
    first = await scan_orphans(machine)
    machine.left = set()
    assert await reap_predecessor(machine, first) == 1
    assert machine.ended == [{who(10)}]


async def test_what_hid_from_the_first_look_ends_and_so_does_what_the_journal_tells_of() -> None:
    machine = Machine()
    first = await scan_orphans(machine)
    machine.left, machine.others = {who(10)}, {who(11), who(12)}
    assert await reap_predecessor(machine, first, agents=[who(11), who(13)]) == 2
    assert machine.ended == [{who(10), who(11)}]


async def test_a_child_born_between_look_and_signal_is_found_by_the_next_look() -> None:
    machine = Machine(who(1))
    machine.forks = [who(2)]
    assert await reap(machine) == 2
    assert machine.left == set()


async def test_what_survives_even_the_kill_ends_the_start() -> None:
    machine = Machine(who(1), who(2), immortal=[who(1)])
    with pytest.raises(StateDirectoryError, match=r"pid 1$") as refused:
        await reap(machine)
    assert refused.value.failure.category is Category.PREDECESSOR_ALIVE
    assert machine.left == {who(1)}


async def test_processes_that_fork_faster_than_the_sweeps_end_the_start() -> None:
    machine = Machine(who(1))
    machine.forks = [who(pid) for pid in range(2, 22)]
    with pytest.raises(StateDirectoryError, match=r"pid 21$"):
        await reap(machine)
    assert machine.is_alive(who(21)), "the next start must find it again"
