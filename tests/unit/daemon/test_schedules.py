"""Schedules with the outbox: deaths, pauses, reloads, trackers that fail, texts that do not render."""

import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from structlog.testing import capture_logs
from typing_extensions import override

from harness.binding import SECRET, FakeTracker, make_context
from harness.outbox import Outbox
from harness.scheduling import make_failure
from kit.virtual_time import in_virtual_time
from symphony.daemon.context import RuntimeContext
from symphony.daemon.new_issues import IssueCreations
from symphony.daemon.schedules import ScheduleRunner
from symphony.domain import Issue
from symphony.scheduler import Recovered
from symphony.trackers.base import IssueToCreate, TrackerError
from symphony.trackers.memory import MemoryTracker

pytestmark = pytest.mark.asyncio

HOUR_S, DAY_S = 3_600.0, 86_400.0
NIGHTLY: dict[str, Any] = {
    "name": "nightly",
    "cron": "0 3 * * *",
    "title": "Night of {{ now | date: '%Y-%m-%d' }}",
    "body": f"{{% if previous %}}After {{{{ previous.identifier }}}}.{{% endif %}} {SECRET}",
}


class DyingTracker(MemoryTracker):
    """A board on which the daemon can die before or after an issue is created, and which can be down."""

    def __init__(self) -> None:
        super().__init__()
        self.dies: str | None = None
        self.down = False

    @override
    async def create_issue(self, new: IssueToCreate, *, key: str, since: datetime) -> Issue:
        if self.down:
            raise TrackerError(make_failure())
        if self.dies == "before":
            await anyio.sleep_forever()
        issue = await super().create_issue(new, key=key, since=since)
        if self.dies == "after":
            await anyio.sleep_forever()
        return issue

    async def board(self) -> list[Issue]:
        return list(await self.fetch_issues_by_states(["Todo", "In Progress", "Done"]))


@dataclass
class Desk:
    """Daemons one after the other on one board; `settings` is what the journal keeps."""

    path: Path
    tracker: DyingTracker = field(default_factory=DyingTracker)
    schedules: list[dict[str, Any]] = field(default_factory=lambda: [NIGHTLY])
    settings: dict[str, str] = field(default_factory=dict)
    outbox: Outbox | None = None

    def context(self) -> RuntimeContext:
        more = json.dumps({"schedules": self.schedules})
        return make_context(self.path, cast("FakeTracker", self.tracker), more=more)

    def record(self, name: str, value: str | None) -> None:
        assert value is not None
        self.settings[name] = value

    async def serve(self, seconds: float, *, paused: bool = False) -> ScheduleRunner:
        """Run a daemon for some time, then it is gone without a farewell."""
        left = () if self.outbox is None else tuple(self.outbox.journal.values())
        self.outbox = outbox = Outbox(self.context(), left)
        schedules = ScheduleRunner(
            outbox.core, outbox.jobs, recovered=self.settings, longest_wait_s=600, record=self.record
        )
        outbox.jobs.kinds = {"issue": IssueCreations(on_created=schedules.created)}
        outbox.state = outbox.state.changed(paused=paused)
        async with anyio.create_task_group() as tasks, outbox.at_work():
            tasks.start_soon(schedules.run)
            await anyio.sleep(seconds)
            tasks.cancel_scope.cancel()
        return schedules


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    made.context()  # outside of a loop it may read the files of time zones
    return made


@in_virtual_time
async def test_an_issue_a_night_that_names_the_former_one_and_no_secret(desk: Desk) -> None:
    await desk.serve(DAY_S)
    (first,) = await desk.tracker.board()
    desk.tracker.move(first.id, "Done")
    await desk.serve(DAY_S)
    _, second = await desk.tracker.board()
    assert (first.title, second.title) == ("Night of 2026-01-01", "Night of 2026-01-02")
    assert "After MEM-1." in (second.description or "")
    assert SECRET not in f"{first} {second} {desk.settings}"


@pytest.mark.parametrize("dies", ["before", "after"])
@in_virtual_time
async def test_a_daemon_that_dies_around_the_create_files_one_issue(desk: Desk, dies: str) -> None:
    desk.tracker.dies = dies
    await desk.serve(3 * HOUR_S + 1)
    assert desk.outbox is not None
    assert list(desk.outbox.journal) == ["issue:nightly"]
    desk.tracker.dies = None
    schedules = await desk.serve(HOUR_S)
    (issue,) = await desk.tracker.board()
    (row,) = schedules.documents()
    assert (row.issue_identifier, desk.outbox.journal) == (issue.identifier, {})


@in_virtual_time
async def test_a_daemon_that_dies_before_the_journal_has_anything_decides_the_same_again(desk: Desk) -> None:
    await desk.serve(HOUR_S)
    settings = dict(desk.settings)
    await desk.serve(3 * HOUR_S)
    (issue,) = await desk.tracker.board()
    desk.settings, desk.outbox = settings, None
    await desk.serve(HOUR_S)
    assert [each.id for each in await desk.tracker.board()] == [issue.id], "its key is that of the due time"


@in_virtual_time
async def test_a_new_schedule_is_looked_at_at_once(desk: Desk) -> None:
    schedules, desk.schedules = desk.schedules, []
    outbox = Outbox(desk.context(), kinds={})
    runner = ScheduleRunner(outbox.core, outbox.jobs, recovered={}, longest_wait_s=DAY_S, record=desk.record)
    async with anyio.create_task_group() as tasks, outbox.at_work():
        tasks.start_soon(runner.run)
        await anyio.sleep(1)
        assert desk.settings == {}
        desk.schedules = schedules
        outbox.context = desk.context()
        runner.reconfigure(outbox.context)
        await anyio.sleep(1)
        assert list(desk.settings) == ["schedule.nightly"]
        tasks.cancel_scope.cancel()


@in_virtual_time
async def test_what_is_due_at_a_start_is_filed_as_soon_as_the_state_of_the_last_daemon_is_known(
    desk: Desk,
) -> None:
    await desk.serve(1)
    await anyio.sleep(2 * DAY_S)
    outbox, known = Outbox(desk.context(), kinds={}), dict(desk.settings)
    runner = ScheduleRunner(outbox.core, outbox.jobs, recovered=known, record=desk.record)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runner.run)
        await anyio.sleep(60)
        assert desk.settings == known, "the last daemon may have been paused"
        outbox.core.stepped(outbox.state, Recovered(), outbox.state, ())
        await anyio.sleep(1)
        tasks.cancel_scope.cancel()
    assert len(outbox.waiting) == 1


@in_virtual_time
async def test_nothing_is_filed_while_the_former_issue_is_open(desk: Desk) -> None:
    with capture_logs() as lines:
        schedules = await desk.serve(3 * DAY_S)
    assert len(await desk.tracker.board()) == 1
    assert [line["event"] for line in lines] == ["issue_filed", "schedule_skipped", "schedule_skipped"]
    (row,) = schedules.documents()
    assert (row.skipped, row.due, row.failure) == (True, False, None)


@in_virtual_time
async def test_a_paused_daemon_files_nothing_and_then_catches_up_once(desk: Desk) -> None:
    desk.schedules = [{**NIGHTLY, "skip_while_open": False}]
    await desk.serve(HOUR_S)
    paused = await desk.serve(5 * DAY_S, paused=True)
    assert (await desk.tracker.board(), paused.documents()[0].due) == ([], True)
    await desk.serve(HOUR_S)
    assert len(await desk.tracker.board()) == 1


@in_virtual_time
async def test_a_tracker_that_is_down_for_hours_gets_one_issue(desk: Desk) -> None:
    desk.tracker.down = True
    schedules = await desk.serve(5 * HOUR_S)
    assert schedules.documents()[0].failure is not None
    desk.tracker.down = False
    schedules = await desk.serve(HOUR_S)
    assert len(await desk.tracker.board()) == 1
    assert schedules.documents()[0].failure is None


@in_virtual_time
async def test_a_text_that_cannot_be_rendered_stays_due_and_is_told_once(desk: Desk) -> None:
    body = desk.path / "body.md"
    body.write_text("{{ previous.identifier }}", encoding="utf-8")
    desk.schedules = [{**NIGHTLY, "body": None, "file": "body.md"}]
    with capture_logs() as lines:
        schedules = await desk.serve(6 * HOUR_S)
    assert [line["event"] for line in lines] == ["schedule_failed"]
    assert (schedules.documents()[0].due, await desk.tracker.board()) == (True, [])
    body.write_text("Fixed.", encoding="utf-8")
    await desk.serve(HOUR_S)
    assert [each.description for each in await desk.tracker.board()] == ["Fixed."]


@in_virtual_time
async def test_a_schedule_that_was_taken_out_for_days_catches_nothing_up(desk: Desk) -> None:
    await desk.serve(HOUR_S)
    desk.schedules = []
    await desk.serve(5 * DAY_S)
    desk.schedules = [NIGHTLY]
    await desk.serve(HOUR_S)
    assert await desk.tracker.board() == []


@in_virtual_time
async def test_one_is_filed_now_though_another_is_open_and_its_time_stays(desk: Desk) -> None:
    schedules = await desk.serve(4 * HOUR_S)
    before = schedules.documents()[0].next_at
    (settings,) = desk.context().settings.schedules
    issue = await schedules.file_now(settings)
    await schedules.refresh()
    (row,) = schedules.documents()
    assert (row.issue_identifier, row.issue_state, row.next_at) == (issue.identifier, "Todo", before)
    assert len(await desk.tracker.board()) == 2
    assert {record.name for record in schedules.records()} == {"schedule.nightly"}
