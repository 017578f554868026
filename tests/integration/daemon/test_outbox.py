"""A job for the tracker is done: over an outage, and over the end of the daemon."""

import json
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from harness.forks import SYMPHONY
from harness.project import Project, forks
from harness.serving import DEADLINE_S, serving
from published.schemas import conforms_to
from symphony.domain import Blame, Category, Failure
from symphony.scheduler import MoveIssue, PostComment
from symphony.trackers.base import TrackerError
from symphony.trackers.markdown import MarkdownTracker

pytestmark = pytest.mark.asyncio
DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
DOWN = TrackerError(
    Failure(category=Category.TRACKER_STATUS, blame=Blame.TRACKER, message="503 Service Unavailable")
)


class Outage:
    """While it lasts, the board takes neither comments nor the daemon's moves."""

    lasts = True


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    outage = Outage()
    for name in ("put_comment", "list_comments", "move_issue"):
        monkeypatch.setattr(MarkdownTracker, name, _failing(outage, getattr(MarkdownTracker, name)))
    return outage


def _failing(outage: Outage, does: Callable[..., Any]) -> Callable[..., Any]:
    async def method(*arguments: Any, **named: Any) -> Any:
        if outage.lasts:
            raise DOWN
        return await does(*arguments, **named)

    return method


async def _soon(holds: Callable[[], bool]) -> None:
    """Wait for something that the daemon does within a minute."""
    with anyio.fail_after(DEADLINE_S):
        while not await to_thread.run_sync(holds):  # noqa: ASYNC110 - files tell no change
            await anyio.sleep(0.05)


def _question(project: Project) -> None:
    project.workflow(
        tracker={"on_block": "Human Review", "on_start": "In Progress"},
        agent={"skills": {"enabled": False}},
    )
    project.issue("SYM-1", [{"ask_input": "Which colour?"}, {"write": "colour", "text": "red"}, DONE])


def _told(project: Project) -> Callable[[], bool]:
    def holds() -> bool:
        comments = project.comments("SYM-1", kind="blocked")
        return len(comments) == 1 and project.written_state("SYM-1") == "Human Review"

    return holds


async def test_a_question_and_its_move_arrive_when_the_tracker_is_back(
    project: Project, outage: Outage
) -> None:
    await to_thread.run_sync(_question, project)
    async with serving(project) as served:
        await served.watcher.until(
            lambda: any(one.kind == "blocked" for one in served.watcher.all(PostComment))
        )
        outage.lasts = False
        await _soon(_told(project))
    assert len(await to_thread.run_sync(project.comments, "SYM-1")) == 1


async def test_they_arrive_by_the_next_daemon(project: Project, outage: Outage) -> None:
    await to_thread.run_sync(_question, project)
    async with serving(project) as served:
        await served.watcher.until(lambda: len(served.watcher.all(MoveIssue)) > 1)
        await _soon(lambda: _listed(project, source="daemon", attempts=1) is not None)
    assert await to_thread.run_sync(lambda: _listed(project, source="files", attempts=1))
    outage.lasts = False
    async with serving(project):
        await _soon(_told(project))


async def test_a_delivery_is_told_by_the_next_once(project: Project, outage: Outage) -> None:
    def setup() -> None:
        project.workflow()
        project.issue("SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, DONE])

    await to_thread.run_sync(setup)
    async with serving(project, once=True) as served:
        await served.ended()
    assert await to_thread.run_sync(project.comments, "SYM-1") == []
    outage.lasts = False
    async with serving(project, once=True) as served:
        await served.ended()
    assert len(await to_thread.run_sync(lambda: project.comments("SYM-1", kind="delivery"))) == 1


def _cli(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, in a process of its own: the log of the daemon goes to the output of this one."""
    (project.root / "home").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=project.root) as output:
        return forks().run(
            SYMPHONY,
            arguments,
            cwd=project.repo,
            env=project.env(),
            output=Path(output),
            timeout_s=DEADLINE_S,
        )


def _listed(project: Project, *, source: str, attempts: int) -> list[dict[str, Any]] | None:
    """What `symphony outbox list` says, once there are a comment and a move, and one was tried so often."""
    done = _cli(project, "outbox", "list", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    conforms_to("outbox", found)
    assert found["source"] == source
    jobs: list[dict[str, Any]] = found["jobs"]
    return jobs if len(jobs) == 2 and any(job["attempts"] >= attempts for job in jobs) else None


@asynccontextmanager
async def queueing(project: Project) -> AsyncIterator[None]:
    """A daemon with the jobs of a comment and of a move, both tried."""
    await to_thread.run_sync(_question, project)
    async with serving(project) as served:
        await served.watcher.until(lambda: len(served.watcher.all(MoveIssue)) > 1)
        await _soon(lambda: _listed(project, source="daemon", attempts=1) is not None)
        yield


@pytest.mark.usefixtures("outage")
class TestTheCommand:
    @pytest.mark.slow
    async def test_status_says_that_something_does_not_arrive(self, project: Project) -> None:
        async with queueing(project):
            done = await to_thread.run_sync(lambda: _cli(project, "status", "--json"))
            found = json.loads(done.stdout)["outbox"]
            assert (found["waiting"], found["failing"] > 0, found["given_up"]) == (2, True, 0)
            assert "503 Service Unavailable" in found["failure"]
            shown = await to_thread.run_sync(lambda: _cli(project, "status"))
            assert "symphony outbox list" in shown.stdout

    async def test_list_names_what_why_and_when(self, project: Project) -> None:
        async with queueing(project):
            done = await to_thread.run_sync(lambda: _cli(project, "outbox", "list"))
            assert "comment:" in done.stdout
            assert "move:" in done.stdout
            assert "503 Service Unavailable" in done.stdout

    @pytest.mark.slow
    async def test_drop_forgets_one_and_retry_tries_the_rest(self, project: Project, outage: Outage) -> None:
        async with queueing(project):
            jobs = await to_thread.run_sync(lambda: _listed(project, source="daemon", attempts=1))
            assert jobs is not None
            (move,) = [job["key"] for job in jobs if job["kind"] == "move"]
            dropped = await to_thread.run_sync(lambda: _cli(project, "outbox", "drop", move, "--json"))
            assert [job["key"] for job in json.loads(dropped.stdout)["jobs"]] == [move]
            outage.lasts = False
            tried = await to_thread.run_sync(lambda: _cli(project, "outbox", "retry", "SYM-1"))
            assert tried.returncode == 0, tried.stderr
            await _soon(lambda: len(project.comments("SYM-1", kind="blocked")) == 1)
            assert project.written_state("SYM-1") != "Human Review"

    async def test_an_unknown_job_is_an_error_with_a_hint(self, project: Project) -> None:
        async with queueing(project):
            for verb in ("retry", "drop"):
                done = await to_thread.run_sync(_cli, project, "outbox", verb, "SYM-9")
                assert done.returncode == 1
                assert "hint: symphony outbox list" in done.stderr


async def test_without_a_daemon_nothing_can_be_changed(project: Project) -> None:
    await to_thread.run_sync(project.workflow)
    done = await to_thread.run_sync(lambda: _cli(project, "outbox", "retry", "SYM-1"))
    assert done.returncode == 5
    listed = await to_thread.run_sync(lambda: _cli(project, "outbox", "list"))
    assert (listed.returncode, listed.stdout) == (0, "No job waits.\n")


@pytest.mark.slow
async def test_a_receiver_that_hangs_does_not_hold_up_the_end(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hangs when `agent.drain_timeout_ms` has passed is left to the next daemon."""

    async def hangs(*_: Any, **__: Any) -> Any:
        await anyio.sleep_forever()

    monkeypatch.setattr(MarkdownTracker, "put_comment", hangs)

    def setup() -> Path:
        project.workflow(agent={"drain_timeout_ms": 1_000})
        return project.issue("SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, DONE])

    await to_thread.run_sync(setup)
    async with serving(project) as served:
        await served.watcher.until(lambda: len(served.watcher.all(PostComment)) > 0)
        served.service.request_shutdown()
        await served.ended()
    left = await to_thread.run_sync(lambda: json.loads(_cli(project, "outbox", "list", "--json").stdout))
    assert "comment:SYM-1:delivery" in [job["key"] for job in left["jobs"]]
