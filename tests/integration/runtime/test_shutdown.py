import os
import signal
from collections.abc import Callable

import anyio
import pytest
from structlog.testing import capture_logs

from harness.project import Project
from harness.serving import DEADLINE_S, Watcher, make_service
from symphony.domain.failures import Category, SymphonyError
from symphony.runtime.shutdown import serve_until_signalled
from symphony.scheduler.inputs import DrainAsked, Input, Polled, RunEnded, StopAsked

pytestmark = pytest.mark.asyncio

SLEEP = [{"write": "a", "text": "a"}, {"commit": "A"}, {"wait_for": "never"}]


async def serve_and_signal(project: Project, when: Callable[[Watcher], bool]) -> Watcher:
    """Serve; send SIGTERM once it polls, and once more when `when` holds afterwards."""
    watcher = Watcher()
    service = await make_service(project, watcher)
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_until_signalled, service)
            await watcher.until_seen(Polled)
            await watcher.until(lambda: when(watcher))
            os.kill(os.getpid(), signal.SIGTERM)
            await watcher.until_seen(DrainAsked)
            if watcher.running:
                os.kill(os.getpid(), signal.SIGINT)
    return watcher


@pytest.mark.conformance("L-3")
async def test_one_signal_ends_an_idle_daemon(project: Project) -> None:
    project.workflow()
    with capture_logs() as logs:
        watcher = await serve_and_signal(project, lambda _: True)
    assert watcher.all(StopAsked) == []
    told = [(line["signal"], line["now"]) for line in logs if line["event"] == "signal_received"]
    assert told == [("SIGTERM", False)]


@pytest.mark.conformance("S-21")
async def test_a_second_signal_stops_what_the_first_one_let_run(project: Project) -> None:
    project.workflow()
    project.issue("SYM-1", SLEEP)
    with capture_logs() as logs:
        watcher = await serve_and_signal(
            project, lambda seen: any(run.report.session_id for run in seen.running)
        )
    kinds: list[type[Input]] = [type(fact) for fact in watcher.facts]
    assert kinds.index(DrainAsked) < kinds.index(StopAsked) < kinds.index(RunEnded)
    assert watcher.outcomes == ["canceled"]
    told = [(line["signal"], line["now"]) for line in logs if line["event"] == "signal_received"]
    assert told == [("SIGTERM", False), ("SIGINT", True)]


async def test_a_start_that_is_refused_is_raised_as_it_is(project: Project) -> None:
    project.workflow(command="/nowhere/agent")
    service = await make_service(project)
    with pytest.raises(SymphonyError) as told:
        await serve_until_signalled(service)
    assert told.value.failure.category is Category.CODEX_NOT_FOUND
