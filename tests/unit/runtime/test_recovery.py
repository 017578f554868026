from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from typing_extensions import override

from harness.left_runs import leave_run
from symphony.domain.failures import Category
from symphony.hosts.base import Completed, HostProcess, Identity
from symphony.hosts.local import LocalHost
from symphony.runtime.recovery import glance, reap_predecessor
from symphony.runtime.state_dir import LiveRun, StateDirectory, StateDirectoryError

pytestmark = pytest.mark.asyncio


def who(pid: int) -> Identity:
    return Identity(boot_id="b", pid=pid, started=1.0)


class Machine(LocalHost):
    """Processes by run id; the immortal ones survive every signal, forks appear after one."""

    def __init__(
        self, marked: Mapping[str, Sequence[Identity]], *, immortal: Sequence[Identity] = ()
    ) -> None:
        super().__init__()
        self.marks = {run_id: set(found) for run_id, found in marked.items()}
        self.recorded: set[Identity] = set()
        self.left: set[Identity] = set()
        self.immortal = set(immortal)
        self.forks: list[tuple[str, Identity]] = []
        self.ended: list[set[Identity]] = []

    @override
    def find_marked(self, run_ids: Sequence[str]) -> tuple[Identity, ...]:
        return tuple(one for run_id in run_ids for one in self.marks.get(run_id, ()))

    @override
    def find_left(self) -> tuple[Identity, ...]:
        return tuple(self.left)

    @override
    def alive(self, identity: Identity) -> bool:
        return identity in self.recorded | self.left or any(
            identity in found for found in self.marks.values()
        )

    @override
    async def end(self, targets: Sequence[Identity], *, grace_ms: int) -> tuple[Identity, ...]:
        self.ended.append(set(targets))
        dead = set(targets) - self.immortal
        self.recorded -= dead
        self.left -= dead
        for found in self.marks.values():
            found.difference_update(dead)
        if self.forks:
            run_id, child = self.forks.pop(0)
            self.marks[run_id].add(child)
        return tuple(self.immortal & set(targets))

    @override
    async def run(self, argv: Sequence[str], **_: object) -> Completed:
        raise AssertionError("nothing is to be run")

    @override
    async def spawn(self, argv: Sequence[str], **_: object) -> HostProcess:
        raise AssertionError("nothing is to be started")


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    made = StateDirectory(tmp_path)
    made.create()
    return made


def left(state: StateDirectory, run_id: str, agent: Identity | None = None) -> None:
    leave_run(state, LiveRun(run_id=run_id, issue_id="1", issue_identifier="SYM-1", agent=agent))


def files(state: StateDirectory) -> list[str]:
    return sorted(path.stem for path in state.runs.glob("*.json"))


async def reap(state: StateDirectory, machine: Machine) -> int:
    return await reap_predecessor(state, machine, await glance(state, machine))


async def test_without_a_predecessor_nobody_is_looked_for(state: StateDirectory) -> None:
    assert await reap(state, Machine({"x": [who(1)]})) == 0


async def test_marked_and_recorded_processes_end_and_others_do_not(state: StateDirectory) -> None:
    left(state, "e-1", agent=who(10))
    left(state, "e-2")
    machine = Machine({"e-1": [who(11)], "e-2": [who(12)], "other": [who(13)]})
    machine.recorded = {who(10), who(14)}
    with capture_logs() as logs:
        assert await reap(state, machine) == 3
    assert machine.ended == [{who(10), who(11), who(12)}]
    assert machine.alive(who(13))
    assert machine.alive(who(14))
    assert files(state) == []
    assert [(line["event"], line["runs"], line["processes"]) for line in logs] == [
        ("predecessor_reaped", 2, 3)
    ]


async def test_what_carries_the_mark_of_the_instance_ends_although_no_file_tells_of_it(
    state: StateDirectory,
) -> None:
    machine = Machine({})
    machine.left = {who(10), who(11)}
    with capture_logs() as logs:
        assert await reap(state, machine) == 2
    assert machine.ended == [{who(10), who(11)}]
    assert [(line["event"], line["runs"], line["processes"]) for line in logs] == [
        ("predecessor_reaped", 0, 2)
    ]


async def test_a_recorded_process_number_that_somebody_else_has_now_is_left_alone(
    state: StateDirectory,
) -> None:
    left(state, "e-1", agent=who(10))
    machine = Machine({})
    with capture_logs() as logs:
        assert await reap(state, machine) == 0
    assert (machine.ended, files(state), logs) == ([], [], [])


async def test_what_was_seen_once_ends_although_it_hides_from_the_next_look(state: StateDirectory) -> None:
    machine = Machine({})
    machine.left = {who(10)}
    first = await glance(state, machine)
    machine.left = set()
    assert await reap_predecessor(state, machine, first) == 1
    assert machine.ended == [{who(10)}]


async def test_what_hid_from_the_first_look_ends_and_so_does_what_the_journal_tells_of(
    state: StateDirectory,
) -> None:
    machine = Machine({})
    first = await glance(state, machine)
    machine.left, machine.recorded = {who(10)}, {who(11), who(12)}
    assert await reap_predecessor(state, machine, first, agents=[who(11), who(13)]) == 2
    assert machine.ended == [{who(10), who(11)}]


async def test_a_child_born_between_look_and_signal_is_found_by_the_next_look(state: StateDirectory) -> None:
    left(state, "e-1")
    machine = Machine({"e-1": [who(1)]})
    machine.forks = [("e-1", who(2))]
    assert await reap(state, machine) == 2
    assert files(state) == []


async def test_what_survives_even_the_kill_ends_the_start_and_keeps_its_file(state: StateDirectory) -> None:
    left(state, "e-1")
    left(state, "e-2")
    machine = Machine({"e-1": [who(1)], "e-2": [who(2)]}, immortal=[who(1)])
    with pytest.raises(StateDirectoryError, match=r"survive even SIGKILL: pid 1$") as refused:
        await reap(state, machine)
    assert refused.value.failure.category is Category.PREDECESSOR_ALIVE
    assert files(state) == ["e-1"]


async def test_processes_that_fork_faster_than_the_sweeps_keep_their_file(state: StateDirectory) -> None:
    left(state, "e-1")
    machine = Machine({"e-1": [who(1)]})
    machine.forks = [("e-1", who(pid)) for pid in range(2, 22)]
    with pytest.raises(StateDirectoryError, match=r"pid 21$"):
        await reap(state, machine)
    assert machine.alive(who(21))
    assert files(state) == ["e-1"], "the next start must find it again"
