"""The outbox: a job is done once, after whatever outage, the newest of each key."""

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import anyio
import pytest
from msgspec import structs
from structlog.testing import capture_logs
from typing_extensions import override

from harness.binding import FakeTracker, make_context
from harness.outbox import Outbox
from harness.rings import mostly_slow
from harness.scheduling import make_failure
from kit.virtual_time import in_virtual_time
from symphony.daemon.context import RuntimeContext
from symphony.daemon.jobs import KEPT_MS, Attempt, JobKind, NotYetError
from symphony.domain import Failure, SymphonyError
from symphony.journal.jobs import GIVE_UP_MS, Job
from symphony.journal.model import CodecError
from symphony.scheduler import State

pytestmark = pytest.mark.asyncio
DAY_S = 86_400
DOWN = make_failure("down")
REFUSED = make_failure("no", retryable=False)


@dataclass
class Receiver(JobKind):
    """A receiver that may be down, late, or unable to take one payload.

    Attributes:
        taken: the payloads in the order in which they arrived, with the time in seconds.
        poison: payloads that it never takes.
        outage: why it takes nothing now.
        takes_s: how long it takes.
        attempts: how often it was asked.
        most_at_once: the most that it was asked at the same time.
    """

    taken: list[tuple[str, float]] = field(default_factory=list)
    poison: dict[str, Failure] = field(default_factory=dict)
    outage: Failure | None = None
    takes_s: float = 0.01
    attempts: int = 0
    most_at_once: int = 0
    over: set[str] = field(default_factory=set)
    _now: int = 0

    @override
    def is_needed(self, job: Job, state: State, context: RuntimeContext) -> bool:
        del state, context
        if job.payload == "damaged":
            raise CodecError("damaged")
        return job.key not in self.over

    @override
    async def carry_out(self, attempt: Attempt) -> None:
        self.attempts += 1
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            await anyio.sleep(self.takes_s)
        finally:
            self._now -= 1
        failure = self.outage or self.poison.get(attempt.job.payload)
        if failure is not None:
            raise SymphonyError(failure)
        self.taken.append((attempt.job.payload, anyio.current_time()))

    @property
    def payloads(self) -> list[str]:
        return [payload for payload, _ in self.taken]


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def outbox(tmp_path: Path, receiver: Receiver) -> Outbox:
    return Outbox(make_context(tmp_path, FakeTracker()), kinds={"note": receiver})


def queue(
    outbox: Outbox, payload: str, *, key: str = "1", issue: str | None = None, to: str = "r", wait_ms: int = 0
) -> None:
    outbox.jobs.queue(
        kind="note",
        key=key,
        receiver=to,
        issue_id=issue or key,
        issue_identifier=f"SYM-{issue or key}",
        payload=payload,
        wait_ms=wait_ms,
    )


@in_virtual_time
async def test_a_job_is_recorded_carried_out_and_forgotten(outbox: Outbox, receiver: Receiver) -> None:
    queue(outbox, "hello")
    assert [job.payload for job in outbox.journal.values()] == ["hello"], "before it is tried"
    await outbox.settle()
    assert receiver.payloads == ["hello"]
    assert outbox.journal == {}


@pytest.mark.parametrize("outage_s", mostly_slow([1, 90, DAY_S], fast=2))
@in_virtual_time
async def test_it_arrives_within_a_minute_after_an_outage(
    outbox: Outbox, receiver: Receiver, outage_s: int
) -> None:
    receiver.outage = DOWN
    for number in range(20):
        queue(outbox, f"hello {number}", key=str(number))
    async with outbox.at_work():
        await anyio.sleep(outage_s)
        receiver.outage, asked = None, receiver.attempts
        await anyio.sleep(60)
    assert sorted(receiver.payloads) == sorted(f"hello {number}" for number in range(20))
    assert asked < 30 + outage_s / 19, "one asks whether it is back, and the others wait"
    assert outbox.journal == {}


@pytest.mark.parametrize("outage_s", mostly_slow([0, DAY_S]))
@in_virtual_time
async def test_a_successor_goes_on_where_a_daemon_was_killed(
    outbox: Outbox, receiver: Receiver, outage_s: int
) -> None:
    receiver.outage = DOWN
    queue(outbox, "hello")
    async with outbox.at_work():
        await anyio.sleep(outage_s)
    receiver.outage = None
    later = outbox.successor(kinds={"note": receiver})
    await later.settle()
    assert receiver.payloads == ["hello"]
    assert later.journal == {}


@in_virtual_time
async def test_the_end_waits_for_what_is_tried_and_not_longer(outbox: Outbox, receiver: Receiver) -> None:
    queue(outbox, "slow", key="1")
    receiver.takes_s = 3
    async with outbox.at_work():
        await anyio.sleep(0.1)
        receiver.takes_s, receiver.poison = 0.01, {"refused": DOWN}
        queue(outbox, "refused", key="2", to="another")  # is tried again while the end waits for the slow one
        await anyio.sleep(0.1)
        begun_s = anyio.current_time()
        await outbox.jobs.finish()
    assert 2 < anyio.current_time() - begun_s < 4
    assert receiver.payloads == ["slow"]


@pytest.mark.parametrize("shift_s", [-30 * DAY_S, -1_200, 30 * DAY_S])
@in_virtual_time
async def test_a_daemon_whose_wall_clock_was_set_tries_it_all_the_same(
    outbox: Outbox, receiver: Receiver, shift_s: int
) -> None:
    receiver.outage = DOWN
    queue(outbox, "hello")
    await outbox.once()
    receiver.outage = None
    later = outbox.successor(kinds={"note": receiver}, wall_shift_ms=shift_s * 1_000)
    begun_s = anyio.current_time()
    await later.settle()
    assert receiver.payloads == ["hello"]
    assert anyio.current_time() - begun_s < 60


@in_virtual_time
async def test_a_successor_comes_again_when_the_receiver_said(outbox: Outbox, receiver: Receiver) -> None:
    receiver.outage = replace(DOWN, retry_after_ms=1_800_000)
    queue(outbox, "hello")
    await outbox.once()
    receiver.outage = None
    later = outbox.successor(kinds={"note": receiver})
    async with later.at_work():
        await anyio.sleep(1_700)
        assert receiver.attempts == 1
        await anyio.sleep(200)
    assert receiver.payloads == ["hello"]


@pytest.mark.parametrize("keys", mostly_slow([300, 5_000]))
@in_virtual_time
async def test_two_jobs_a_key_after_a_day_are_drained_within_limits_newest_per_key(
    outbox: Outbox, receiver: Receiver, keys: int
) -> None:
    receiver.outage = DOWN
    async with outbox.at_work():
        for word in ("old", "new"):
            for number in range(keys):
                queue(outbox, f"{word} {number}", key=str(number))
            await anyio.sleep(DAY_S / 2)
        receiver.outage = None
        await anyio.sleep(60)
    assert Counter(receiver.payloads) == {f"new {number}": 1 for number in range(keys)}
    assert receiver.most_at_once <= 8


@pytest.mark.parametrize("failure", [DOWN, REFUSED], ids=["fails", "refused"])
@in_virtual_time
async def test_a_job_that_fails_for_ever_holds_up_no_other_and_is_given_up(
    outbox: Outbox, receiver: Receiver, failure: Failure
) -> None:
    receiver.poison["bad"] = failure
    with capture_logs() as logs:
        async with outbox.at_work():
            queue(outbox, "bad", key="bad")
            for number in range(100):
                queue(outbox, f"good {number}", key=str(number))
                await anyio.sleep(60)
                assert f"good {number}" in receiver.payloads
            await anyio.sleep(GIVE_UP_MS / 1000)
    assert len(receiver.taken) == 100
    (job,) = outbox.jobs.jobs
    assert (job.payload, job.state) == ("bad", "given_up")
    assert [line["log_level"] for line in logs if line["event"] == "job_given_up"] == ["warning"]
    assert sum(line["log_level"] == "warning" for line in logs) == 2, "one for the failure"
    assert outbox.journal[job.key] == job


@in_virtual_time
async def test_a_receiver_that_hangs_holds_up_no_other(outbox: Outbox, receiver: Receiver) -> None:
    receiver.takes_s = 10_000
    other = Receiver()
    outbox = Outbox(outbox.context, kinds={"note": receiver, "other": other})
    async with outbox.at_work():
        queue(outbox, "hello", to="slow")
        outbox.jobs.queue(
            kind="other", key="2", receiver="quick", issue_id="2", issue_identifier="SYM-2", payload="there"
        )
        await anyio.sleep(1)
        assert other.payloads == ["there"]
        await anyio.sleep(60)
        (job,) = outbox.jobs.jobs
        assert job.failure is not None
        assert "no answer within 30 s" in job.failure
        receiver.takes_s = 0.01
        await anyio.sleep(60)
    assert receiver.payloads == ["hello"]


@in_virtual_time
async def test_jobs_of_one_issue_come_one_after_the_other(outbox: Outbox, receiver: Receiver) -> None:
    for number in range(5):
        queue(outbox, str(number), key=str(number), issue="1")
    await outbox.settle()
    assert receiver.payloads == ["0", "1", "2", "3", "4"]
    assert receiver.most_at_once == 1


@in_virtual_time
async def test_what_is_replaced_while_it_is_tried_is_followed_by_the_newer(
    outbox: Outbox, receiver: Receiver
) -> None:
    async with outbox.at_work():
        receiver.takes_s = 5
        queue(outbox, "old")
        await anyio.sleep(1)
        queue(outbox, "new")
        await anyio.sleep(20)
    assert receiver.payloads == ["old", "new"]
    assert outbox.journal == {}


@in_virtual_time
async def test_the_same_thing_again_is_one_job(outbox: Outbox, receiver: Receiver) -> None:
    for _ in range(3):
        queue(outbox, "hello")
    await outbox.settle()
    assert receiver.payloads == ["hello"]


@in_virtual_time
async def test_a_receiver_that_says_when_to_come_again_is_obeyed(outbox: Outbox, receiver: Receiver) -> None:
    receiver.outage = replace(DOWN, retry_after_ms=120_000)
    async with outbox.at_work():
        queue(outbox, "one", key="1")
        await anyio.sleep(1)
        queue(outbox, "two", key="2")
        await anyio.sleep(110)
        assert receiver.attempts == 1
        receiver.outage = None
        await anyio.sleep(20)
    assert sorted(receiver.payloads) == ["one", "two"]


class Together(Receiver):
    """Takes everything that waits at once; `not_yet_s` is how long it takes nothing."""

    together: ClassVar[bool] = True
    not_yet_s = 0.0

    @override
    async def carry_out(self, attempt: Attempt) -> None:
        if self.not_yet_s:
            raise NotYetError(self.not_yet_s)
        batch = " ".join(sorted(job.payload for job in attempt.jobs))
        await super().carry_out(structs.replace(attempt, jobs=(replace(attempt.job, payload=batch),)))


class TestWhatGoesTogether:
    @in_virtual_time
    async def test_it_is_gathered_tried_and_done_together(self, outbox: Outbox) -> None:
        receiver = Together(outage=DOWN)
        outbox = Outbox(outbox.context, kinds={"note": receiver})
        async with outbox.at_work():
            for number in "123":
                queue(outbox, number, key=number, wait_ms=5_000)
                await anyio.sleep(2)
            assert (receiver.attempts, len(outbox.journal)) == (1, 3)
            assert {job.attempts for job in outbox.jobs.jobs} == {1}
            receiver.outage = None
            await anyio.sleep(60)
        assert receiver.payloads == ["1 2 3"]
        assert outbox.journal == {}

    @in_virtual_time
    async def test_the_end_and_the_next_daemon_do_not_wait_until_it_is_gathered(self, outbox: Outbox) -> None:
        receiver = Together()
        outbox = Outbox(outbox.context, kinds={"note": receiver})
        queue(outbox, "1", key="1", wait_ms=3_600_000)
        later = outbox.successor(kinds={"note": receiver})
        async with later.at_work():
            await anyio.sleep(1)
            assert receiver.payloads == ["1"]
            queue(later, "2", key="2", wait_ms=3_600_000)
            await later.jobs.finish()
        assert receiver.payloads == ["1", "2"]

    @in_virtual_time
    async def test_a_receiver_that_is_to_get_nothing_now_has_not_failed(self, outbox: Outbox) -> None:
        receiver = Together()
        receiver.not_yet_s = 600
        outbox = Outbox(outbox.context, kinds={"note": receiver})
        queue(outbox, "1", key="1")
        async with outbox.at_work():
            await outbox.jobs.finish()
            assert [job.attempts for job in outbox.jobs.jobs] == [0]
            receiver.not_yet_s = 0
            await anyio.sleep(599)
            assert receiver.payloads == []
            await anyio.sleep(2)
        assert receiver.payloads == ["1"]

    @in_virtual_time
    async def test_an_answer_that_comes_late_ends_nothing_newer(self, outbox: Outbox) -> None:
        receiver = Together(takes_s=20)
        outbox = Outbox(outbox.context, kinds={"note": receiver})
        async with outbox.at_work():
            queue(outbox, "old")
            await anyio.sleep(1)
            queue(outbox, "new")
            await anyio.sleep(20)
            assert [job.payload for job in outbox.jobs.jobs] == ["new"]
            await anyio.sleep(60)
        assert receiver.payloads == ["old", "new"]


class TestTheEndOfTheDaemon:
    @in_virtual_time
    async def test_it_waits_for_what_was_not_tried(self, outbox: Outbox, receiver: Receiver) -> None:
        for number in range(100):
            queue(outbox, str(number), key=str(number))
        await outbox.once()
        assert len(receiver.taken) == 100

    @in_virtual_time
    async def test_it_does_not_wait_for_a_receiver_that_is_down(
        self, outbox: Outbox, receiver: Receiver
    ) -> None:
        receiver.outage = DOWN
        for number in range(100):
            queue(outbox, str(number), key=str(number))
        begun_s = anyio.current_time()
        await outbox.once()
        assert anyio.current_time() - begun_s < 1
        assert len(outbox.journal) == 100


class TestWhatAPersonDoes:
    @in_virtual_time
    async def test_retry_tries_at_once_also_what_was_given_up(
        self, outbox: Outbox, receiver: Receiver
    ) -> None:
        receiver.poison["hello"] = REFUSED
        async with outbox.at_work():
            queue(outbox, "hello")
            await anyio.sleep(7_200)
            assert outbox.waiting == []
            receiver.poison.clear()
            assert outbox.jobs.retry("note:1")
            await anyio.sleep(1)
        assert receiver.payloads == ["hello"]
        assert not outbox.jobs.retry("note:1")

    @in_virtual_time
    async def test_drop_forgets_it(self, outbox: Outbox, receiver: Receiver) -> None:
        queue(outbox, "hello")
        assert outbox.jobs.drop("note:1")
        assert not outbox.jobs.drop("note:1")
        await outbox.once()
        assert receiver.attempts == 0
        assert outbox.journal == {}


class TestWhatIsNotNeededAnyMore:
    @in_virtual_time
    async def test_it_is_forgotten_without_being_tried(self, outbox: Outbox, receiver: Receiver) -> None:
        queue(outbox, "hello")
        receiver.over.add("note:1")
        await outbox.settle()
        assert (receiver.attempts, outbox.journal) == (0, {})

    @pytest.mark.parametrize(("kind", "payload"), [("note", "damaged"), ("telegram", "hello")])
    @in_virtual_time
    async def test_what_cannot_be_read_is_dropped_with_a_warning(
        self, outbox: Outbox, receiver: Receiver, kind: str, payload: str
    ) -> None:
        with capture_logs() as logs:
            outbox.jobs.queue(
                kind=kind, key="1", receiver="r", issue_id="1", issue_identifier="SYM-1", payload=payload
            )
            queue(outbox, "hello", key="2")
            await outbox.settle()
        assert [(line["event"], line["log_level"]) for line in logs] == [("job_dropped", "warning")]
        assert receiver.payloads == ["hello"]

    @in_virtual_time
    async def test_too_much_costs_the_oldest(self, outbox: Outbox, receiver: Receiver) -> None:
        outbox = Outbox(outbox.context, kinds={"note": receiver}, max_jobs=2)
        with capture_logs() as logs:
            for number in "123":
                queue(outbox, number, key=number)
        assert sorted(outbox.journal) == ["note:2", "note:3"]
        assert [line["key"] for line in logs] == ["note:1"]

    @in_virtual_time
    async def test_what_was_given_up_long_ago_is_forgotten_at_the_next_start(
        self, outbox: Outbox, receiver: Receiver
    ) -> None:
        receiver.poison["hello"] = REFUSED
        async with outbox.at_work():
            queue(outbox, "hello")
            await anyio.sleep(7_200)
        for shift_ms, left in ((0, 1), (KEPT_MS, 0)):
            later = outbox.successor(kinds={"note": receiver})
            later.wall_shift_ms = shift_ms
            async with later.at_work():
                await anyio.sleep(1)
            assert len(later.journal) == left
