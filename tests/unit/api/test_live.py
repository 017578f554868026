"""`GET /api/v1/events`: what a page learns of a step, how soon, and how often."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import anyio
import pytest
from starlette.types import Message

from harness.chronicle import Chronicle
from harness.scheduling import Story, make_failure, make_issue
from kit.virtual_time import run
from symphony.api.interface import UnavailableError
from symphony.api.live import HEARTBEAT_S, MAX_STREAMS, Changes, changed_scopes
from symphony.scheduler import OutcomeKind, State


@dataclass
class Reader:
    """A client of a stream, in virtual time: `got` has moment and scope of each event (`None`: a comment)."""

    changes: Changes
    after: str | None = None
    got: list[tuple[float, str | None]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    leaves: anyio.Event = field(default_factory=anyio.Event)
    takes: int = 10_000
    deadlines: int = 0
    complete: bool = False

    async def read(self) -> None:
        stream = self.changes.open_stream(self.after)
        scope = {"type": "http", "method": "GET", "state": {"restart_deadline": self.restart_deadline}}
        await stream(scope, self.receive, self.send)

    def restart_deadline(self) -> None:
        self.deadlines += 1

    async def receive(self) -> Message:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] != "http.response.body":
            return
        self.complete = not message["more_body"]
        if message["more_body"] and self.takes == 0:
            await anyio.sleep_forever()
        self.takes -= 1
        for block in message["body"].decode().split("\n\n"):
            lines = dict(line.partition(": ")[::2] for line in block.splitlines())
            if lines.get("event") == "heartbeat":
                self.got.append((anyio.current_time(), None))
            elif "data" in lines:
                assert lines["event"] == "changed"
                self.ids.append(lines["id"])
                self.got.append((anyio.current_time(), json.loads(lines["data"])["scope"]))


def started() -> Story:
    story = Chronicle(*(make_issue(str(number)) for number in range(1, 4)), max_concurrent_agents=2).begin()
    story.advance(1_500)
    story.slow = True
    return story


def step_of(story: Story, act: Callable[[], Any]) -> tuple[State, Any, State]:
    """One step: the state before, the event, and the state after."""
    before = story.state
    act()
    return before, story.inputs[-1][1], story.state


def test_a_step_changes_the_board_and_the_issues_that_it_is_about() -> None:
    story = started()
    assert changed_scopes(*step_of(story, lambda: story.streams("1", turn_count=1))) == {
        "board",
        "issue:SYM-1",
    }
    failed = step_of(story, lambda: story.fails("2", make_failure()))
    assert changed_scopes(*failed) == {"board", "issue:SYM-2"}
    ended = step_of(story, lambda: story.ends("1", OutcomeKind.INPUT_REQUIRED, make_failure()))
    assert changed_scopes(*ended) == {"board", "issue:SYM-1"}


def test_a_poll_may_have_changed_any_issue() -> None:
    story = Story(make_issue("1"))
    story.slow = True
    story.begin()
    before = story.state
    story.answer_poll()
    assert changed_scopes(before, story.inputs[-1][1], story.state) == {"all"}


def test_events_come_at_once_and_then_once_a_second_however_much_happens() -> None:
    story = started()

    async def main() -> None:
        changes = Changes()
        reader = Reader(changes, after=changes.id)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader.read)
            await anyio.sleep(5)
            for number in range(300):  # 100 a second
                before, event, after = step_of(story, partial(story.streams, "1", event_count=number + 1))
                changes(before, event, after, ())
                await anyio.sleep(0.01)
            await anyio.sleep(40)
            reader.leaves.set()
        moments = [at for at, scope in reader.got if scope == "issue:SYM-1"]
        assert moments[0] == 5
        assert all(later - at > 0.99 for at, later in pairwise(moments))
        assert 7.9 < moments[-1] < 7.9 + 1.5, "the last change is not lost"
        assert len(moments) == 4
        assert [scope for at, scope in reader.got if at == 5] == ["board", "issue:SYM-1"]
        beats = [at for at, scope in reader.got if scope is None]
        assert beats
        assert all(later - at <= HEARTBEAT_S + 1 for (at, _), (later, _) in pairwise(reader.got))
        assert reader.deadlines == len({at for at, _ in reader.got})
        assert (reader.complete, changes.streams) == (True, set())
        assert reader.ids[-1] == changes.id

    run(main)


def test_a_stream_begins_with_everything_unless_it_has_seen_the_present() -> None:
    async def main() -> None:
        changes = Changes()
        readers = [Reader(changes, after=given) for given in (None, "0-0", "nonsense", changes.id)]
        async with anyio.create_task_group() as tasks:
            for reader in readers:
                tasks.start_soon(reader.read)
            await anyio.sleep(1)
            changes.close()
        assert [reader.got for reader in readers] == [[(0, "all")], [(0, "all")], [(0, "all")], []]

    run(main)


def test_a_change_of_the_library_is_an_event_of_its_own() -> None:
    async def main() -> None:
        changes = Changes()
        before = changes.id
        reader = Reader(changes, after=before)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader.read)
            await anyio.sleep(3)
            changes.library_changed()
            await anyio.sleep(3)
            reader.leaves.set()
        assert [each for each in reader.got if each[1]] == [(3, "library")]
        late = Reader(changes, after=before)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(late.read)
            await anyio.sleep(1)
            late.leaves.set()
        assert [scope for _, scope in late.got] == ["all"], "it changed before the stream began"

    run(main)


def test_the_end_ends_every_stream_at_once_and_takes_no_other() -> None:
    async def main() -> None:
        changes = Changes()
        readers = [Reader(changes, takes=takes) for takes in [10_000] * (MAX_STREAMS - 1) + [1]]
        async with anyio.create_task_group() as tasks:
            for reader in readers:
                tasks.start_soon(reader.read)
            await anyio.sleep(7)
            assert len(changes.streams) == MAX_STREAMS
            with pytest.raises(UnavailableError):
                changes.open_stream(None)
            changes.close()
        assert anyio.current_time() == 7
        assert all(reader.complete for reader in readers), "also of one that reads nothing"
        with pytest.raises(UnavailableError):
            changes.open_stream(None)

    run(main)


def test_without_a_listener_a_step_costs_a_number() -> None:
    story, changes = started(), Changes()
    before = changes.id
    changes(story.state, story.inputs[-1][1], story.state, ())
    assert changes.id == before, "nothing has changed"
    changes(*step_of(story, lambda: story.streams("1", turn_count=1)), ())
    assert changes.id != before
