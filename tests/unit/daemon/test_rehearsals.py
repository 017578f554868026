"""When merges are rehearsed: for another set of ready branches, and when the base moves; one at a time."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import anyio
import pytest
from msgspec import structs

from harness.binding import StoryCore
from harness.scheduling import make_failure, make_issue, make_settings
from kit.virtual_time import in_virtual_time
from symphony.api import models
from symphony.api.interface import ConflictError, UnavailableError
from symphony.daemon.rehearsals import Rehearsals
from symphony.domain import DeliveredBranch, SymphonyError
from symphony.scheduler import (
    DrainAsked,
    IssueResult,
    ResultStatus,
    State,
    initial_state,
)
from symphony.workspaces import BranchRehearsal, Fate, Rehearsal

if TYPE_CHECKING:
    from symphony.daemon.context import RuntimeContext

pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0


@dataclass
class Repository:
    """Stands for the workspaces: it tells what it was asked, and waits where a test wants it."""

    base: str = "a" * 40
    fails: SymphonyError | None = None
    asked: list[tuple[str, ...]] = field(default_factory=list)
    at_once: int = 0
    most: int = 0
    hold: anyio.Event | None = None
    changed: anyio.Event = field(default_factory=anyio.Event)

    async def rehearse(self, branches: Mapping[str, str]) -> Rehearsal:
        self.asked.append(tuple(branches.values()))
        self.changed.set()
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            if self.hold is not None:
                await self.hold.wait()
            if self.fails is not None:
                raise self.fails
        finally:
            self.at_once -= 1
        rows = tuple(BranchRehearsal(branch=one, head=None, fate=Fate.MERGES) for one in branches.values())
        return Rehearsal(base="main", base_commit=self.base, tree="t" * 40, branches=rows)

    async def look_at_base(self) -> tuple[str | None, str]:
        return "main", self.base

    async def until_asked(self, times: int) -> None:
        with anyio.fail_after(DEADLINE_S):
            while len(self.asked) < times:
                self.changed = anyio.Event()
                await self.changed.wait()


def ready(*names: str, head: str = "h") -> State:
    results = {
        name: IssueResult(
            issue=make_issue(name, priority=place + 1),
            status=ResultStatus.READY,
            delivered=DeliveredBranch(branch=f"symphony/{name}", head=head),
        )
        for place, name in enumerate(names)
    }
    return initial_state(make_settings(), epoch="e").changed(results=results)


async def _never(*_: object) -> models.Rehearsal:
    raise AssertionError("it is not asked for")


@dataclass
class Stage:
    """Rehearsals with a repository and a state that a test changes."""

    repository: Repository = field(default_factory=Repository)
    state: State = field(default_factory=ready)
    results: list[str] = field(default_factory=list)
    notices: int = 0
    look_s: float = 600.0
    timeout_s: float = DEADLINE_S
    verify: Callable[[object, models.Rehearsal], Awaitable[models.Rehearsal]] | None = None

    def made(self) -> Rehearsals:
        settings = SimpleNamespace(
            workspace=SimpleNamespace(repo="/repo"),
            verify="the commands",
            rehearse=SimpleNamespace(verify=self.verify is not None),
        )
        context = cast("RuntimeContext", SimpleNamespace(settings=settings, workspaces=self.repository))
        return Rehearsals(
            StoryCore(state=lambda: self.state, context=lambda: context),
            on_result=self.results.append,
            on_changed=self.noticed,
            look_s=self.look_s,
            timeout_s=self.timeout_s,
            verify=self.verify or _never,
        )

    async def until_verified(self, rehearsals: Rehearsals) -> str:
        """The base of the rehearsal that shows a result of the commands."""
        with anyio.fail_after(DEADLINE_S):
            while rehearsals.latest is None or rehearsals.latest.verified is None:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        return rehearsals.latest.base_commit

    def noticed(self) -> None:
        self.notices += 1

    def becomes(self, rehearsals: Rehearsals, state: State) -> None:
        before, self.state = self.state, state
        rehearsals(before, DrainAsked(), state, ())


async def test_another_set_of_ready_branches_is_rehearsed_in_the_order_of_the_board() -> None:
    stage = Stage()
    rehearsals = stage.made()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rehearsals.run)
        await anyio.wait_all_tasks_blocked()
        assert stage.repository.asked == []
        for times, state in enumerate((ready("2", "1"), ready("2", "1", head="new")), start=1):
            stage.becomes(rehearsals, state)
            await stage.repository.until_asked(times)
            await anyio.wait_all_tasks_blocked()
        assert stage.repository.asked == [("symphony/2", "symphony/1")] * 2
        stage.becomes(rehearsals, ready("2", "1", head="new"))  # the same again
        await anyio.wait_all_tasks_blocked()
        assert len(stage.repository.asked) == 2
        assert rehearsals.latest is not None
        stage.becomes(rehearsals, ready())
        await anyio.wait_all_tasks_blocked()
        assert rehearsals.latest is None
        tasks.cancel_scope.cancel()
    assert stage.notices >= 2


@in_virtual_time
async def test_a_base_that_moved_is_found_at_a_look() -> None:
    stage = Stage(state=ready("1"), look_s=0.01)
    rehearsals = stage.made()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rehearsals.run)
        await stage.repository.until_asked(1)
        stage.repository.base = "b" * 40
        with anyio.fail_after(DEADLINE_S):
            while rehearsals.latest is None or rehearsals.latest.base_commit != "b" * 40:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


async def test_two_who_ask_wait_for_each_other() -> None:
    stage = Stage(state=ready("1", "2"), repository=Repository(hold=anyio.Event()))
    rehearsals = stage.made()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rehearsals.rehearse, ("SYM-1",))
        tasks.start_soon(rehearsals.rehearse, ("SYM-2",))
        await anyio.wait_all_tasks_blocked()
        assert stage.repository.hold is not None
        stage.repository.hold.set()
    assert (len(stage.repository.asked), stage.repository.most) == (2, 1)
    assert rehearsals.latest is None, "the result of chosen issues is not that of all"


@in_virtual_time
async def test_a_failure_keeps_no_old_result_and_is_tried_again() -> None:
    stage = Stage(state=ready("1"), look_s=0.01)
    rehearsals = stage.made()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rehearsals.run)
        await stage.repository.until_asked(1)
        stage.repository.fails, stage.repository.base = SymphonyError(make_failure()), "b" * 40
        await stage.repository.until_asked(3)
        assert rehearsals.latest is None
        stage.repository.fails = None
        with anyio.fail_after(DEADLINE_S):
            while rehearsals.latest is None:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert {"ok", "failed"} == set(stage.results)


async def test_what_cannot_be_rehearsed_is_refused_with_a_code() -> None:
    stage = Stage()
    with pytest.raises(ConflictError) as caught:
        await stage.made().rehearse()
    assert caught.value.code == "nothing_ready"
    stage.state = ready("1")
    with pytest.raises(ConflictError) as caught:
        await stage.made().rehearse(("SYM-7",))
    assert caught.value.code == "not_delivered"


@in_virtual_time
async def test_a_rehearsal_that_takes_too_long_is_given_up() -> None:
    stage = Stage(state=ready("1"), repository=Repository(hold=anyio.Event()), timeout_s=0.01)
    with pytest.raises(UnavailableError) as caught:
        await stage.made().rehearse()
    assert caught.value.code == "rehearsal_timeout"


@in_virtual_time
async def test_a_result_of_the_commands_is_for_one_base_and_is_kept_for_it() -> None:
    tried = list[str]()
    stage = Stage(state=ready("1"), look_s=0.01)

    async def verify(_: object, found: models.Rehearsal) -> models.Rehearsal:
        tried.append(found.base_commit)
        if len(tried) == 1:  # the base moves meanwhile
            stage.repository.base = "b" * 40
            await stage.repository.until_asked(2)
            await anyio.wait_all_tasks_blocked()
        passed = models.VerifiedMerge(status="passed", breaks=None, message="", checks=())
        return structs.replace(found, verified=passed)

    stage.verify = verify
    rehearsals = stage.made()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rehearsals.run)
        assert await stage.until_verified(rehearsals) == "b" * 40
        stage.becomes(rehearsals, ready())
        await anyio.wait_all_tasks_blocked()
        stage.becomes(rehearsals, ready("1"))
        assert await stage.until_verified(rehearsals) == "b" * 40
        tasks.cancel_scope.cancel()
    assert tried == ["a" * 40, "b" * 40]


@in_virtual_time
async def test_a_rehearsal_that_someone_asked_for_is_verified_at_once() -> None:
    async def verify(_: object, found: models.Rehearsal) -> models.Rehearsal:
        passed = models.VerifiedMerge(status="passed", breaks=None, message="", checks=())
        return structs.replace(found, verified=passed)

    stage = Stage(state=ready("1"), verify=verify)
    rehearsals = stage.made()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rehearsals.run)
        await stage.until_verified(rehearsals)
        await anyio.sleep(stage.look_s / 2)
        stage.repository.base = "b" * 40
        await rehearsals.rehearse()
        before_s = anyio.current_time()
        assert await stage.until_verified(rehearsals) == "b" * 40
        assert anyio.current_time() - before_s < 1
        tasks.cancel_scope.cancel()


@in_virtual_time
async def test_commands_that_cannot_be_run_are_tried_again_for_other_branches_only() -> None:
    tried = list[int]()

    async def verify(_: object, found: models.Rehearsal) -> models.Rehearsal:
        tried.append(len(found.branches))
        raise SymphonyError(make_failure())

    stage = Stage(state=ready("1"), look_s=0.01, verify=verify)
    rehearsals = stage.made()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rehearsals.run)
        await stage.repository.until_asked(1)
        await anyio.sleep(0.05)
        stage.becomes(rehearsals, ready("1", "2"))
        with anyio.fail_after(DEADLINE_S):
            while len(tried) < 2:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert tried == [1, 2]
