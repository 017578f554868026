"""A worker in another process: the same run over two pipes, whichever side dies, freezes or says nonsense."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import anyio
import msgspec
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

import symphony
from harness.hosts import DONE, HOST, STUBBORN, live_run, lose_its_worker, until_alive, until_gone, worker_of
from harness.project import SYMPHONY, Project, scripted
from harness.scheduling import make_issue
from harness.serving import move, serving
from harness.ssh import namespace, ssh_server
from symphony.agents.registry import SECTIONS
from symphony.config import Workflow, load_workflow
from symphony.daemon.context import RuntimeContext
from symphony.daemon.frames import (
    MAX_FRAME_BYTES,
    AnyFrame,
    CommentsAsked,
    FrameDecoder,
    FrameEncoder,
    Hello,
    Ping,
    RequestAnswered,
    RunOutcome,
    Site,
    Spawned,
    Start,
    Stop,
    WorkerFrame,
)
from symphony.daemon.hosts.sites import site_of
from symphony.daemon.hosts.stdio_worker import StdioWorker
from symphony.daemon.runs.transcript import EntryWriter
from symphony.domain import Category, ToolResult
from symphony.journal.transcripts import TranscriptEntry, read_transcript, transcript_path
from symphony.processes.base import HostProcess
from symphony.scheduler import OutcomeKind, RunEnded, StartRun
from symphony.trackers.registry import TRACKERS

pytestmark = pytest.mark.asyncio

DEADLINE_S = 120.0
LEASE_MS = 5_000
"""Short enough to wait for its end, and longer than a busy machine makes a program wait."""


def unchecked(frame: WorkerFrame) -> WorkerFrame:
    """In place of `HostReports`: the worker is on this machine."""
    return frame


@dataclass
class Hosts:
    """Carries every run of a daemon in this process out by `argv`; `made` are the carriers."""

    project: Project
    argv: Sequence[str] = (*SYMPHONY, "worker", "--stdio")
    lease_ms: int = 30_000
    made: list[StdioWorker] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        own = {"SYMPHONY_STATE_DIR": str(self.project.root / "worker-state")}
        return {**self.project.env(), **own, "PYTHONPATH": str(Path(symphony.__file__).parents[1])}

    def carry(
        self,
        start: Start,
        send: Callable[[WorkerFrame], None],
        *,
        context: RuntimeContext,
        transcript: EntryWriter,
        **_: object,
    ) -> StdioWorker:
        made = StdioWorker(
            host=HOST,
            argv=self.argv,
            env=self.env,
            lease_ms=self.lease_ms,
            stderr_path=self.project.root / "worker.stderr",
            sweep=start.command.run_id,
        )
        made.take_run(send, transcript, unchecked, DEADLINE_S)
        site = site_of(context.workflow, lease_ms=self.lease_ms)
        made.on_frame(msgspec.structs.replace(start, site=site))
        self.made.append(made)
        return made


@pytest.fixture
def hosts(project: Project, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    made = Hosts(project)
    monkeypatch.setattr("symphony.daemon.effects.Worker", made.carry)
    return made


def parsed(project: Project) -> Workflow:
    return load_workflow(
        project.repo / "WORKFLOW.md",
        environment=project.env(),
        tracker_kinds=TRACKERS.names,
        agent_kinds=SECTIONS,
    )


# --- the daemon with its workers behind pipes ---


async def test_a_run_does_the_same_over_two_pipes(project: Project, hosts: Hosts) -> None:
    project.skill("style", body="commit-prefix: docs")
    project.commit("A skill")
    check = {"name": "tests", "run": "echo 1 passed; test -e new.txt; echo left >left.xml"}
    verify = {"commands": [check], "artifacts": ["*.xml"]}
    project.workflow(command=scripted(), hooks={"before_run": "pwd > ../hook"}, verify=verify)
    steps: list[dict[str, Any]] = [
        {"skill": "style"},
        {"write": "new.txt", "text": "a\n"},
        {"commit": "{skill_value}: one"},
    ]
    project.issue("SYM-1", steps, [{"say": "moving it"}, DONE])
    with capture_logs() as logs:
        async with serving(project) as served:
            await served.watcher.until_seen(RunEnded)
    (ended,) = served.watcher.all(RunEnded)
    assert len(hosts.made) == 1
    assert ended.outcome.kind is OutcomeKind.SUCCEEDED, ended
    assert ended.outcome.delivered is not None
    assert ended.outcome.verification is not None
    assert ended.outcome.verification.head == ended.outcome.delivered.head
    assert [(one.passed, one.output_tail) for one in ended.outcome.verification.checks] == [
        (True, "1 passed\n")
    ]
    assert project.branch_log("SYM-1") == ["docs: one"]
    assert project.written_state("SYM-1") == "Done", "the tool ran in the daemon"
    run = next(state.running[one] for state in served.watcher.states for one in state.running)
    page = await to_thread.run_sync(read_transcript, transcript_path(project.state_dir, run.run_id))
    assert "moving it" in str(page)
    assert {"turn_started", "turn_ended", "tool_called", "skills_listed"} <= {log["event"] for log in logs}
    assert (project.workspaces / "hook").exists()
    assert ended.outcome.verification is not None
    assert ended.outcome.verification.passed
    assert (project.state_dir / "artifacts" / run.run_id / "left.xml").read_text() == "left\n"


@pytest.mark.usefixtures("hosts")
async def test_a_stop_reaches_the_agent_wherever_it_is(project: Project) -> None:
    project.workflow(command=scripted())
    issue = project.issue("SYM-1", [{"sleep_ms": 600_000}])
    async with serving(project) as served:
        run = await live_run(served.watcher)
        await move(issue, "Done")
        await served.watcher.until_seen(RunEnded)
    assert served.watcher.outcomes == ["canceled"]
    assert not HOST.find_marked([run.run_id])


@pytest.mark.slow
@pytest.mark.usefixtures("hosts")
async def test_an_agent_that_ignores_everything_ends_with_its_killed_worker(project: Project) -> None:
    project.workflow(command=STUBBORN, agent={"max_retry_backoff_ms": 600_000})
    project.issue("SYM-1", [{"sleep_ms": 600_000}])
    await lose_its_worker(project, lambda run_id: worker_of(run_id).kill())


PRINTS_HELLO = """
import sys, time, symphony
from symphony.daemon.frames import RunOutcome, FrameEncoder, Hello, Ping, Stop
from symphony.scheduler import Outcome, OutcomeKind
encoder, out = FrameEncoder(), sys.stdout.buffer
out.write(encoder.encode(Hello(version={version})))
out.flush()
{then}
out.flush()
"""


def says_hello(then: str, *, version: str = "symphony.__version__") -> Sequence[str]:
    return sys.executable, "-c", PRINTS_HELLO.format(version=version, then=then)


NO_WORKERS: dict[str, tuple[Sequence[str], str]] = {
    "absent": (("/nonexistent/symphony", "worker"), "cannot be started"),
    "profile": (("sh", "-c", "echo Welcome to build-1; exec cat"), "Welcome to build-1"),
    "exits": (("sh", "-c", "exit 3"), "the stream ended"),
    "other release": (
        says_hello("sys.stdin.read()", version="'0.0.1'"),
        "release 0.0.1",
    ),
    "wrong side": (
        (
            sys.executable,
            "-c",
            PRINTS_HELLO.format(version="symphony.__version__", then="out.write(encoder.encode(Stop()))"),
        ),
        "Stop came from the wrong side",
    ),
    "huge": (
        (
            sys.executable,
            "-c",
            PRINTS_HELLO.format(version="symphony.__version__", then="out.write(bytes([9] * 4))"),
        ),
        "larger than the limit",
    ),
    "silent": (
        says_hello("time.sleep(600)"),
        "silent",
    ),
}


@pytest.mark.parametrize("case", NO_WORKERS)
async def test_what_is_no_worker_costs_one_attempt_with_a_reason(
    case: str, project: Project, hosts: Hosts
) -> None:
    hosts.argv, reason = NO_WORKERS[case]
    hosts.lease_ms = 700 if case == "silent" else 30_000
    project.workflow(command=scripted(), agent={"max_retry_backoff_ms": 600_000})
    project.issue("SYM-1", [DONE])
    async with serving(project) as served:
        ended = await served.watcher.until_seen(RunEnded)
    failure = ended.outcome.failure
    assert failure is not None
    assert (failure.category, failure.retryable) == (Category.WORKER_LOST, True)
    assert reason in failure.message
    assert project.written_state("SYM-1") == "Todo", "nothing was begun"


class NoEntries:
    """A transcript that stays empty."""

    problem: str | None = None

    def write(self, entries: Sequence[TranscriptEntry]) -> None:
        raise AssertionError(entries)

    def close(self) -> None:
        """Nothing is open."""


def worker_that(then: str, hosts: Hosts) -> tuple[StdioWorker, list[WorkerFrame]]:
    """A worker that says hello and then does something else, and the frames that come of it."""
    worker = StdioWorker(
        host=HOST,
        argv=says_hello(then),
        env=hosts.env,
        lease_ms=30_000,
        stderr_path=hosts.project.root / "stderr",
    )
    sent: list[WorkerFrame] = []
    worker.take_run(sent.append, NoEntries(), unchecked, 1)
    return worker, sent


def start(text: bytes) -> Start:
    site = Site(workflow="/w.md", text=text, lease_ms=30_000)
    return Start(command=StartRun(run_id="r-1", issue=make_issue("1"), attempt=None), site=site)


async def test_a_run_that_fits_into_no_frame_costs_one_attempt(hosts: Hosts) -> None:
    worker, sent = worker_that("sys.stdin.read()", hosts)
    worker.on_frame(start(bytes(MAX_FRAME_BYTES)))
    await worker.run()
    (ended,) = sent
    assert isinstance(ended, RunOutcome)
    assert ended.outcome.failure is not None
    assert "larger than the limit" in ended.outcome.failure.message


async def test_a_worker_that_takes_frames_too_slowly_ends_and_none_are_kept_for_it(hosts: Hosts) -> None:
    worker, sent = worker_that("time.sleep(600)", hosts)
    worker.on_frame(start(b""))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await worker.until_ready()
        for number in range(1_000):
            worker.on_frame(
                RequestAnswered(request=number, result=ToolResult(success=True, text="a" * 1_000))
            )
        assert not sent
    (ended,) = sent
    assert isinstance(ended, RunOutcome)
    assert ended.outcome.failure is not None
    assert ended.outcome.failure.category is Category.WORKER_LOST
    assert "too slow" in ended.outcome.failure.message


SAYS_IT_ENDED = "out.write(encoder.encode(RunOutcome(outcome=Outcome(kind=OutcomeKind.CANCELED))))"
GOES_ON = "while True: out.write(encoder.encode(Ping())); out.flush(); time.sleep(0.05)"


@pytest.mark.parametrize(
    ("then", "kind"), [(SAYS_IT_ENDED, OutcomeKind.CANCELED), (GOES_ON, OutcomeKind.FAILED)]
)
async def test_a_worker_that_is_told_to_stop_and_goes_on_is_cut_off(
    then: str, kind: OutcomeKind, hosts: Hosts
) -> None:
    worker, sent = worker_that(then, hosts)
    worker.on_frame(start(b""))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await worker.until_ready()
        worker.on_frame(Stop())
    (ended,) = (frame for frame in sent if isinstance(frame, RunOutcome))
    assert ended.outcome.kind is kind
    assert worker.reported_end is (kind is OutcomeKind.CANCELED)


# --- a worker whose daemon vanishes ---


class Alone:
    """A worker program at the other end of our pipes, which we may leave alone."""

    def __init__(self, child: HostProcess) -> None:
        self.child = child
        self.run_id = f"alone-{token_hex(4)}"
        self._encoder = FrameEncoder()
        self._decoder = FrameDecoder()

    async def send(self, frame: AnyFrame) -> None:
        await self.child.send(self._encoder.encode(frame))

    async def until(self, kind: type[AnyFrame], *, keeps_alive: bool = False) -> AnyFrame:
        """The next frame of a kind; `keeps_alive` answers each ping, so that the lease goes on."""
        with anyio.fail_after(DEADLINE_S):
            while True:
                while (frame := self._decoder.take()) is not None:
                    if isinstance(frame, kind):
                        return frame
                    if keeps_alive and isinstance(frame, Ping):
                        await self.send(Ping())
                data = await self.child.receive()
                assert data, "the worker ended"
                self._decoder.feed(data)


@asynccontextmanager
async def alone(hosts: Hosts, *, lease_ms: int) -> AsyncIterator[Alone]:
    """A worker with a stubborn agent in the middle of a turn."""
    project = hosts.project
    project.workflow(command=STUBBORN)
    path = project.issue("SYM-1", [{"sleep_ms": 600_000}])
    workflow = await to_thread.run_sync(parsed, project)
    (project.root / "home").mkdir(exist_ok=True)
    issue = make_issue("1", description=path.read_text())
    child = await HOST.spawn(
        hosts.argv, cwd=project.root, env=hosts.env, stderr_path=project.root / "worker.stderr"
    )
    worker = Alone(child)
    try:
        await worker.until(Hello)
        await worker.send(
            Start(
                command=StartRun(run_id=worker.run_id, issue=issue, attempt=None),
                site=site_of(workflow, lease_ms=lease_ms),
            )
        )
        asked = await worker.until(CommentsAsked, keeps_alive=True)
        assert isinstance(asked, CommentsAsked)
        await worker.send(RequestAnswered(request=asked.request))
        await worker.until(Spawned, keeps_alive=True)
        await to_thread.run_sync(until_alive, worker.run_id)
        yield worker
    finally:
        with anyio.CancelScope(shield=True):
            child.signal(signal.SIGKILL, child.descendants())
            await child.wait()


@pytest.mark.slow
async def test_a_worker_that_hears_nothing_for_its_lease_ends_its_agent(hosts: Hosts) -> None:
    async with alone(hosts, lease_ms=LEASE_MS) as worker:
        ended = await worker.until(RunOutcome)
        assert isinstance(ended, RunOutcome)
        assert ended.outcome.kind is OutcomeKind.CANCELED
        with anyio.fail_after(DEADLINE_S):
            await worker.child.wait()
        assert not HOST.find_marked([worker.run_id])


@pytest.mark.slow
async def test_a_worker_whose_daemon_is_gone_ends_its_agent(hosts: Hosts) -> None:
    async with alone(hosts, lease_ms=600_000) as worker:
        await worker.child.close_stdin()
        with anyio.fail_after(DEADLINE_S):
            await worker.child.wait()
        assert not HOST.find_marked([worker.run_id])


async def test_a_worker_gets_no_credential(project: Project) -> None:
    project.environment["TRACKER_TOKEN"] = "tok-secret-1"
    project.workflow(
        tracker={"kind": "github", "repository": "o/r", "token": "$TRACKER_TOKEN"},
        workspace={"repo": "https://me:hunter2secret@example.invalid/r.git"},
        hooks={"env": ["GH_TOKEN", "TRACKER_TOKEN"]},
        worker={"ssh_hosts": ["build-1"], "env": ["GITLAB_TOKEN"]},
    )
    workflow = await to_thread.run_sync(parsed, project)
    text = site_of(workflow, lease_ms=1).text.decode()
    assert '"env":["GH_TOKEN","GITLAB_TOKEN"]' in text, "hooks on a host get what is passed to hosts"
    assert "TRACKER_TOKEN" not in text
    assert "tok-secret-1" not in text
    assert "hunter2secret" not in text
    assert "https://example.invalid/r.git" in text


# --- over a real OpenSSH ---


def by_way_of(hosts: Hosts, client: Sequence[str]) -> Hosts:
    """Workers at the other end of `ssh`, which passes none of our variables on."""
    passed = {key: hosts.env[key] for key in ("PATH", "HOME", "PYTHONPATH", "SYMPHONY_STATE_DIR", "NO_COLOR")}
    command = ["env", *(f"{key}={value}" for key, value in passed.items()), *hosts.argv]
    hosts.argv = (*client, shlex.join(command))
    return hosts


@pytest.fixture
def over_ssh(hosts: Hosts, tmp_path: Path) -> Iterator[Hosts]:
    with ssh_server(tmp_path / "sshd") as server:
        yield by_way_of(hosts, server.client)


@pytest.fixture
def cable(hosts: Hosts, tmp_path: Path) -> Iterator[tuple[Hosts, str]]:
    """A host in a network namespace of its own, and the interface of ours that leads to it."""
    name = f"sy{os.getpid()}"
    with (
        namespace(name) as address,
        ssh_server(tmp_path / "sshd", address, inside=("ip", "netns", "exec", name)) as server,
    ):
        yield by_way_of(hosts, server.client), name


@pytest.mark.slow
@pytest.mark.usefixtures("over_ssh")
async def test_a_run_does_the_same_over_ssh(project: Project) -> None:
    project.workflow(command=scripted())
    project.issue("SYM-1", [{"write": "new.txt", "text": "a\n"}, {"commit": "One"}, DONE])
    async with serving(project) as served:
        ended = await served.watcher.until_seen(RunEnded)
    assert ended.outcome.kind is OutcomeKind.SUCCEEDED, ended
    assert project.branch_log("SYM-1") == ["One"]
    assert project.written_state("SYM-1") == "Done"


@pytest.mark.slow
async def test_an_agent_ends_on_its_host_when_ssh_is_killed(over_ssh: Hosts) -> None:
    async with alone(over_ssh, lease_ms=600_000) as worker:
        worker.child.signal(signal.SIGKILL, worker.child.descendants())
        await worker.child.wait()
        await to_thread.run_sync(until_gone, worker.run_id)


@pytest.mark.slow
async def test_an_agent_ends_on_its_host_when_the_link_is_cut(cable: tuple[Hosts, str]) -> None:
    hosts, interface = cable
    async with alone(hosts, lease_ms=LEASE_MS) as worker, anyio.create_task_group() as tasks:

        async def keep_alive() -> None:
            with suppress(BrokenPipeError):  # ssh gave up
                while True:
                    await worker.send(Ping())
                    await anyio.sleep(0.3)

        tasks.start_soon(keep_alive)
        for _ in range(5):  # the worker sends three of them in the time of its lease
            await worker.until(Ping)
        assert HOST.find_marked([worker.run_id]), "the positive control: pings keep it alive"
        await to_thread.run_sync(
            partial(subprocess.run, ["ip", "link", "set", interface, "down"], check=True)
        )
        await to_thread.run_sync(until_gone, worker.run_id)
        tasks.cancel_scope.cancel()
