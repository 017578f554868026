"""Random schedules with the real effects, workers, timers, comments and moves, in virtual time."""

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from secrets import randbelow
from typing import Any, cast

import pytest
import structlog

from harness.broken_steps import BROKEN_STEPS
from harness.nightly import SCHEDULES
from kit.real_runtime import live_through
from symphony.daemon.frames import (
    AnyFrame,
    DaemonFrame,
    FrameDecoder,
    FrameEncoder,
    Start,
    WorkerFrame,
)
from symphony.daemon.runs.worker import Worker
from symphony.domain import FaultPoint

COUNT = int(SCHEDULES or 500) // 25
FIRST = randbelow(10**9) if SCHEDULES else 0
ENOUGH = 25
_QUIET = structlog.make_filtering_bound_logger(logging.CRITICAL)
LATE = {"never unblocks": 6, "leaves the last issues": 2}
"""The schedules that find these; where the search for them starts is only a saving of time."""
BITTEN = (
    "frees the slot at StopRun",
    "forgets a run that delivers",
    "drops the timer of a retry",
    "doubles a run",
    "asks twice",
    "cleans under a run",
    "counts a conversation anew",
    "speaks to the deaf",
    "never unblocks",
    "leaves the last issues",
)


pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"  # a daemon that dies closes no stream
)


@pytest.fixture(autouse=True)
def without_a_log() -> None:
    """Thousands of lines that nobody reads; `tests/conftest.py` puts the log back."""
    structlog.configure(wrapper_class=_QUIET)


@pytest.mark.slow
@pytest.mark.timeout(0 if SCHEDULES else 400)
def test_the_real_runtime_keeps_every_rule_in_random_worlds(tmp_path: Path) -> None:
    starts, deaths = 0, Counter[str]()
    for seed in range(FIRST, FIRST + COUNT):
        folder = tmp_path / str(seed)
        folder.mkdir()
        world = live_through(seed, folder)
        assert world.violation is None, f"seed {seed}: {world.violation}"
        starts += world.starts
        deaths.update(world.crashes.deaths)
    assert starts > COUNT, "agents work"
    assert deaths.total() > COUNT // 3, "daemons die"
    assert len(deaths.keys() & set(FaultPoint)) > 5, "also in the middle of a run"


class Encoded:
    """A worker whose frames are bytes in between: it shares no object with the daemon's end."""

    def __init__(self, start: Start, send: Callable[[WorkerFrame], None], **context: Any) -> None:
        self._to_worker, self._to_daemon = over_the_wire(), over_the_wire()
        self._worker = Worker(
            cast("Start", self._to_worker(start)),
            lambda frame: send(cast("WorkerFrame", self._to_daemon(frame))),
            **context,
        )

    def on_frame(self, frame: DaemonFrame) -> None:
        self._worker.on_frame(cast("DaemonFrame", self._to_worker(frame)))

    async def run(self) -> None:
        await self._worker.run()


def over_the_wire() -> Callable[[AnyFrame], AnyFrame]:
    """One direction: each frame as its bytes tell it."""
    encoder, decoder = FrameEncoder(), FrameDecoder()

    def send(frame: AnyFrame) -> AnyFrame:
        decoder.feed(encoder.encode(frame))
        arrived = decoder.take()
        assert arrived is not None
        return arrived

    return send


def test_workers_that_share_nothing_but_frames_keep_every_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("symphony.daemon.effects.Worker", Encoded)
    starts = 0
    for seed in range(FIRST, FIRST + COUNT // 4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        world = live_through(seed, folder)
        assert world.violation is None, f"seed {seed}: {world.violation}"
        starts += world.starts
    assert starts > COUNT // 4


@pytest.mark.slow
@pytest.mark.parametrize("name", BITTEN)
def test_a_broken_scheduler_is_found_under_the_real_runtime(name: str, tmp_path: Path) -> None:
    broken, expected = BROKEN_STEPS[name]
    first = LATE.get(name, 0)
    for seed in range(first, first + ENOUGH):
        folder = tmp_path / str(seed)
        folder.mkdir()
        if (found := live_through(seed, folder, step=broken).violation) is not None:
            assert found.invariant == expected
            return
    pytest.fail(f"not found in {ENOUGH} schedules")


@pytest.mark.slow
def test_a_daemon_that_ends_no_agents_of_its_predecessor_is_found(tmp_path: Path) -> None:
    for seed in range(ENOUGH):
        folder = tmp_path / str(seed)
        folder.mkdir()
        if (found := live_through(seed, folder, reaps=False).violation) is not None:
            assert found.invariant == "one-agent-per-issue"
            return
    pytest.fail(f"not found in {ENOUGH} schedules")
