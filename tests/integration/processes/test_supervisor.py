"""One process starts all commands: what it keeps apart, and what its end or silence costs."""

import errno
import os
import resource
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import psutil
import pytest
from structlog.testing import capture_logs

from harness.other_user import NOBODY, ordinary_python, search_path
from harness.project import until
from symphony.processes.supervisor import SupervisedChild, Supervisor
from symphony.processes.table import ProcessTable

_ENV = {"PATH": os.environ["PATH"]}
_INSPECT = """
import anyio, os, resource, psutil, sys
from pathlib import Path
from symphony.processes.local import LocalHost
async def main():
    host, here = LocalHost(instance=sys.argv[2]), Path(sys.argv[1])
    env = {"PATH": os.environ["PATH"], "SECRET": "hunter2"}
    child = await host.spawn(["cat"], cwd=here, env=env, stderr_path=here / "log")
    (supervisor,) = psutil.Process().children()
    (subreaper,) = supervisor.children()
    for one in (supervisor, subreaper):
        print("secret", b"hunter2" in Path(f"/proc/{one.pid}/environ").read_bytes())
    print("secret", b"hunter2" in Path(f"/proc/{child.identity.pid}/environ").read_bytes())
    _, most = resource.prlimit(supervisor.pid, resource.RLIMIT_NPROC)
    resource.prlimit(supervisor.pid, resource.RLIMIT_NPROC, (1, most))
    try:
        await host.run(["true"], env={"PATH": os.environ["PATH"]}, timeout_ms=60_000)
    except OSError as error:
        print("errno", error.errno)
    resource.prlimit(supervisor.pid, resource.RLIMIT_NPROC, (most, most))
    done = await host.run(["true"], env={"PATH": os.environ["PATH"]}, timeout_ms=60_000)
    print("exit", done.exit_code, child.exit_code)
    await child.close_stdin()
    await child.wait()
anyio.run(main)
"""


_MANY = """
import anyio, os, resource, sys
from symphony.processes.local import LocalHost
async def main():
    host, env = LocalHost(instance=sys.argv[2]), {"PATH": os.environ["PATH"]}
    before, codes = len(os.listdir("/proc/self/fd")), []
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    async def one():
        try:
            done = await host.run(["sleep", "1"], env=env, timeout_ms=60_000, supervised=bool(sys.argv[1]))
            codes.append(done.exit_code)
        except OSError as error:
            codes.append(error.errno)
    async with anyio.create_task_group() as tasks:
        for _ in range(1_000):
            tasks.start_soon(one)
    failed = [each for each in codes if each != 0]
    last = await host.run(["true"], env=env, timeout_ms=60_000)
    print(len(failed), codes.count(0), len(os.listdir("/proc/self/fd")) - before, last.exit_code)
anyio.run(main)
"""


def _supervisor(answer_s: float = 60.0) -> Supervisor:
    return Supervisor(uuid.uuid4().hex, ProcessTable(), None, answer_s=answer_s)


async def _start(supervisor: Supervisor, *argv: str, env: dict[str, str] = _ENV) -> SupervisedChild:
    return await supervisor.start(argv, cwd=None, env=env, stderr=2, last_signal=signal.SIGTERM, run_id=None)


def _parent(child: SupervisedChild, generations: int) -> psutil.Process:
    found = psutil.Process(child.identity.pid)
    for _ in range(generations):
        above = found.parent()
        assert above is not None
        found = above
    return found


async def _end(child: SupervisedChild) -> int | None:
    with anyio.fail_after(60):
        await child.exited()
    return child.reap()


@asynccontextmanager
async def _running(supervisor: Supervisor) -> AsyncIterator[SupervisedChild]:
    child = await _start(supervisor, "cat")
    try:
        yield child
    finally:
        child.stdin.close()


def _ended(pid: int) -> bool | None:
    """True, or None while the process lives; it is not reaped here."""
    identity = ProcessTable().identify(pid)
    return True if identity is None or not ProcessTable().is_alive(identity) else None


def _stopped(process: psutil.Process) -> bool | None:
    return True if process.status() == psutil.STATUS_STOPPED else None


async def _gone(pid: int) -> None:
    await anyio.to_thread.run_sync(until, partial(_ended, pid), lambda: f"{pid} lives")


async def _is_whole(child: SupervisedChild) -> bool:
    await child.stdin.send(b"still\n")
    with anyio.fail_after(60):
        return await child.stdout.receive(64) == b"still\n"


@pytest.mark.asyncio
async def test_every_command_has_a_subreaper_and_all_have_one_supervisor() -> None:
    supervisor = _supervisor()
    async with _running(supervisor) as one, _running(supervisor) as other:
        assert _parent(one, 1) != _parent(other, 1)
        assert _parent(one, 2) == _parent(other, 2)
        assert _parent(one, 3).pid == os.getpid()


@pytest.mark.asyncio
async def test_a_command_gets_its_three_streams_and_no_other_descriptor() -> None:
    supervisor = _supervisor()
    async with _running(supervisor) as other:
        child = await _start(supervisor, "sh", "-c", "echo /proc/$$/fd/*")
        told = await child.stdout.receive(4_096)
        held = {str(path.readlink()) for path in Path(f"/proc/{other.root.pid}/fd").iterdir()}  # noqa: ASYNC240

    assert [path.rpartition("/")[2] for path in told.decode().split()] == ["0", "1", "2", "3"], (
        "3 is the directory"
    )
    assert {name.partition(":")[0] for name in held} == {"pipe", os.devnull}
    assert await _end(child) == 0


@pytest.mark.asyncio
async def test_no_signal_is_blocked_or_ignored_in_a_command() -> None:
    child = await _start(_supervisor(), "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    told = await child.stdout.receive(4_096)

    blocked, ignored = (int(line.split()[1], 16) for line in told.splitlines())
    assert blocked == 0
    assert ignored & 0x7FFF_FFFF == 0, "real-time signals are the C library's own"
    assert await _end(child) == 0


@pytest.mark.asyncio
async def test_a_large_environment_and_odd_words_arrive() -> None:
    large, odd = "x" * 100_000, "a=b\n\udcff 'c'"
    env = {**_ENV, "LARGE": large, "EMPTY": "", "ODD": odd}
    script = 'printf "%s|" "${#LARGE}" "${EMPTY-unset}" "$ODD" "$@"'
    child = await _start(_supervisor(), "sh", "-c", script, "sh", "", odd, env=env)

    told = await child.stdout.receive(4_096)

    assert told.split(b"|") == [b"100000", b"", os.fsencode(odd), b"", os.fsencode(odd), b""]
    assert await _end(child) == 0


@pytest.mark.asyncio
async def test_a_supervisor_that_is_killed_takes_its_commands_along_and_another_one_goes_on() -> None:
    supervisor = _supervisor()
    async with _running(supervisor) as lost:
        _parent(lost, 2).kill()
        assert await _end(lost) in {-signal.SIGTERM, -signal.SIGKILL}

    with capture_logs() as logs:
        child = await _start(supervisor, "true")

    assert await _end(child) == 0
    assert [line["event"] for line in logs] == ["supervisor_replaced"]


@pytest.mark.asyncio
async def test_a_command_whose_subreaper_is_killed_is_killed() -> None:
    async with _running(_supervisor()) as child:
        _parent(child, 1).kill()
        assert await _end(child) == -signal.SIGKILL
        await _gone(child.identity.pid)


@pytest.mark.asyncio
async def test_a_supervisor_that_is_stopped_fails_one_start_and_ends_no_command(tmp_path: Path) -> None:
    supervisor = _supervisor(answer_s=10)
    async with _running(supervisor) as before:
        stopped = _parent(before, 2)
        stopped.suspend()
        await anyio.to_thread.run_sync(until, partial(_stopped, stopped), lambda: "it runs")
        with capture_logs() as logs, pytest.raises(TimeoutError, match="supervisor"):
            await _start(supervisor, "touch", str(tmp_path / "too late"))
        async with _running(supervisor) as after:
            stopped.resume()
            assert await _is_whole(before)
            assert await _is_whole(after)
            assert _parent(after, 2) != stopped
    assert await _end(before) == 0
    await _gone(stopped.pid)

    assert [line["event"] for line in logs] == ["supervisor_replaced"]
    assert not (tmp_path / "too late").exists(), "a start that was given up must not happen later"


@pytest.mark.asyncio
async def test_a_supervisor_that_is_stopped_keeps_no_start_waiting_however_many_there_are() -> None:
    supervisor, ended = _supervisor(answer_s=10), list[int | None]()

    async def start() -> None:
        try:
            ended.append(await _end(await _start(supervisor, "true")))
        except TimeoutError:
            ended.append(None)

    async with _running(supervisor) as before:
        stopped = _parent(before, 2)
        stopped.suspend()
        await anyio.to_thread.run_sync(until, partial(_stopped, stopped), lambda: "it runs")
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for _ in range(100):
                    tasks.start_soon(start)
        stopped.resume()
        assert await _is_whole(before)
    assert len(ended) == 100
    assert set(ended) == {0, None}


@pytest.mark.asyncio
async def test_a_command_for_which_there_is_no_memory_fails_alone() -> None:
    supervisor, large = _supervisor(), {f"V{number}": "x" * 100_000 for number in range(15)}
    async with _running(supervisor) as before:
        program = _parent(before, 2)
        _, most = resource.prlimit(program.pid, resource.RLIMIT_AS)
        resource.prlimit(program.pid, resource.RLIMIT_AS, (program.memory_info().vms + 3 * 2**20, most))
        with pytest.raises(OSError, match="true") as failed:
            await _start(supervisor, "true", env={**_ENV, **large})
        assert failed.value.errno == errno.ENOMEM
        assert await _end(await _start(supervisor, "true")) == 0
        assert await _is_whole(before)
        assert _parent(before, 2) == program


@pytest.mark.asyncio
async def test_everything_ends_with_a_daemon_also_below_a_supervisor_that_is_stopped(tmp_path: Path) -> None:
    daemon = """
import anyio, os, psutil, sys
from pathlib import Path
from symphony.processes.local import LocalHost
async def main():
    host, here = LocalHost(instance=sys.argv[2]), Path(sys.argv[1])
    env = {"PATH": os.environ["PATH"]}
    child = await host.spawn(["sleep", "600"], cwd=here, env=env, stderr_path=here / "log")
    psutil.Process(child.identity.pid).parent().parent().suspend()
    print(child.identity.pid, flush=True)
    os.kill(os.getpid(), 9)
anyio.run(main)
"""
    done = await anyio.run_process(
        [sys.executable, "-c", daemon, str(tmp_path), uuid.uuid4().hex],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )

    assert done.returncode == -signal.SIGKILL
    await _gone(int(done.stdout))


@pytest.mark.asyncio
async def test_a_subreaper_that_its_command_stops_goes_on_and_a_command_that_is_stopped_stays_so() -> None:
    supervisor = _supervisor()
    stopped = await _start(supervisor, "sh", "-c", "kill -STOP $$")
    await anyio.to_thread.run_sync(until, partial(_stopped, _parent(stopped, 0)), lambda: "it runs")

    child = await _start(supervisor, "sh", "-c", "kill -STOP $PPID; exit 7")

    assert await _end(child) == 7
    assert _stopped(_parent(stopped, 0))
    _parent(stopped, 0).kill()
    assert await _end(stopped) == -signal.SIGKILL


@pytest.mark.asyncio
async def test_a_command_ends_with_its_subreaper_stopped_when_the_supervisor_is_killed() -> None:
    async with _running(_supervisor()) as child:
        supervisor, subreaper = _parent(child, 2), _parent(child, 1)
        supervisor.suspend()
        subreaper.suspend()
        await anyio.to_thread.run_sync(until, partial(_stopped, subreaper), lambda: "it runs")
        supervisor.kill()
        await _gone(child.identity.pid)
        await _gone(subreaper.pid)


@pytest.mark.slow
@pytest.mark.parametrize("supervised", [True, False])
def test_a_thousand_commands_without_descriptors_fail_one_by_one_and_leave_none_open(
    *, supervised: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MANY, str(supervised or ""), uuid.uuid4().hex],
        env={**_ENV, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    failed, succeeded, left, last = map(int, done.stdout.split())
    assert failed
    assert failed + succeeded == 1_000
    assert left <= 2, "the supervisor's"
    assert last == 0


@pytest.mark.slow
def test_it_never_has_the_environment_and_a_fork_that_fails_costs_one_command(reachable: Path) -> None:
    root = os.geteuid() == 0
    reachable.chmod(0o777)
    done = subprocess.run(
        [ordinary_python() if root else sys.executable, "-c", _INSPECT, str(reachable), uuid.uuid4().hex],
        env={**_ENV, "PYTHONPATH": search_path()},
        user=NOBODY if root else None,
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    *seen, command, number, codes = done.stdout.splitlines()
    assert seen == ["secret False"] * 2
    assert command == "secret True", "the control"
    assert number == f"errno {errno.EAGAIN}"
    assert codes == "exit 0 None"
