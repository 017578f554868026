import os
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import psutil
import pytest
from anyio import to_thread

from harness.descriptors import open_descriptors
from symphony.processes.base import Completed, Host, HostProcess, Identity
from symphony.processes.local import LocalHost

pytestmark = pytest.mark.asyncio

_ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
def host() -> Iterator[LocalHost]:
    """A host after which no further child of this test process may be left."""
    before = psutil.Process().children(recursive=True)
    yield LocalHost()
    left = [child for child in psutil.Process().children(recursive=True) if _runs(child)]
    assert [child for child in left if child not in before] == []


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def _shell(host: Host, script: str, *, cwd: Path, timeout_ms: int = 60_000) -> Completed:
    return await host.run(["sh", "-c", script], cwd=cwd, env=_ENV, timeout_ms=timeout_ms)


async def _told(path: Path) -> str:
    """What is written to a named pipe by the first that writes to it; `_pipe` makes it."""
    with anyio.fail_after(60):
        return (await to_thread.run_sync(path.read_text, abandon_on_cancel=True)).strip()


def _pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


async def _identity(host: LocalHost, pipe: Path) -> Identity:
    """What wrote its pid to a named pipe and then became `sleep`; during that exec it has no environment."""
    identity = host.identify(int(await _told(pipe)))
    assert identity is not None
    with anyio.fail_after(60):
        while psutil.Process(identity.pid).name() != "sleep":  # noqa: ASYNC110
            await anyio.sleep(0.01)
    assert host.is_alive(identity)
    return identity


def _ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def _line(process: HostProcess) -> bytes:
    with anyio.fail_after(60):
        data = b""
        while not data.endswith(b"\n"):
            chunk = await process.receive()
            assert chunk, "stdout ended before the line did"
            data += chunk
    return data


async def test_a_command_gives_its_output_and_its_exit_code(host: LocalHost, tmp_path: Path) -> None:
    done = await host.run(
        ["sh", "-c", 'cat; echo "$PWD $WORD"; echo oops >&2; exit 3'],
        cwd=tmp_path,
        env={**_ENV, "WORD": "hello"},
        timeout_ms=60_000,
        stdin=b"given\n",
    )

    assert done == Completed(
        exit_code=3, stdout=f"given\n{tmp_path} hello\n".encode(), stderr=b"oops\n", timed_out=False
    )


async def test_a_command_sees_only_the_environment_it_was_given(host: LocalHost, tmp_path: Path) -> None:
    os.environ["SYMPHONY_TEST_SECRET"] = "hunter2"
    try:
        done = await _shell(host, "env", cwd=tmp_path)
    finally:
        del os.environ["SYMPHONY_TEST_SECRET"]

    assert b"hunter2" not in done.stdout


async def test_a_command_that_ignores_its_input_is_no_error(host: LocalHost) -> None:
    done = await host.run(["true"], env=_ENV, timeout_ms=60_000, stdin=b"x" * 1_000_000)

    assert done.exit_code == 0


async def test_ten_megabytes_of_output_are_read_to_the_end_but_not_kept(host: LocalHost) -> None:
    script = "import sys; sys.stdout.write('a' * 10_000_000); sys.stderr.write('b' * 10_000_000)"

    done = await host.run([sys.executable, "-c", script], env=_ENV, timeout_ms=60_000, max_output_bytes=1_000)

    assert (done.exit_code, done.stdout, done.stderr) == (0, b"a" * 1_000, b"b" * 1_000)


@pytest.mark.parametrize("keep_end", [False, True])
@pytest.mark.parametrize("count", [100_000, 150_000, 250_000])
async def test_output_below_the_limit_is_whole_and_else_its_beginning_or_end(
    host: LocalHost, count: int, *, keep_end: bool
) -> None:
    script = f"for number in range({count}): print(f'{{number:08}}', end='')"
    whole, limit = "".join(f"{number:08}" for number in range(count)).encode(), 1_600_000

    done = await host.run(
        [sys.executable, "-c", script],
        env=_ENV,
        timeout_ms=60_000,
        max_output_bytes=limit,
        keep_end=keep_end,
    )

    assert done.stdout == (whole[-limit:] if keep_end else whole[:limit])


@pytest.mark.parametrize("argv", [["no-such-program-here"], ["/no/such/program"]])
async def test_a_missing_program_is_reported_as_such(host: LocalHost, argv: list[str]) -> None:
    with pytest.raises(FileNotFoundError):
        await host.run(argv, env=_ENV, timeout_ms=60_000)


async def test_a_missing_directory_is_reported_as_such(host: LocalHost, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        await host.run(["true"], cwd=tmp_path / "nowhere", env=_ENV, timeout_ms=60_000)


async def test_failed_starts_leak_no_descriptor(host: LocalHost) -> None:
    before = open_descriptors()
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            await host.run(["no-such-program-here"], env=_ENV, timeout_ms=60_000)
        await host.run(["true"], env=_ENV, timeout_ms=60_000)

    assert open_descriptors() <= before


@pytest.mark.conformance("K-9")
async def test_the_deadline_ends_the_shell_and_all_it_started(host: LocalHost, tmp_path: Path) -> None:
    script = "sleep 600 & echo $!; setsid sleep 600 & sleep 600"

    done = await _shell(host, script, cwd=tmp_path, timeout_ms=4_000)

    assert done.timed_out
    assert done.exit_code != 0
    assert _ended(int(done.stdout.splitlines()[0]))


@pytest.mark.conformance("K-9")
async def test_the_deadline_ends_a_command_that_ignores_sigterm(host: LocalHost, tmp_path: Path) -> None:
    script = "trap '' TERM; while :; do sleep 600; done"

    done = await _shell(host, script, cwd=tmp_path, timeout_ms=4_000)

    assert (done.timed_out, done.exit_code) == (True, -signal.SIGKILL)


@pytest.mark.conformance("K-9")
async def test_the_deadline_reaches_a_grandchild_in_a_session_of_its_own(
    host: LocalHost, tmp_path: Path
) -> None:
    script = "setsid sh -c 'echo $$ > escaped; exec sleep 600' & sleep 600"
    seen: list[Identity] = []
    _pipe(tmp_path / "escaped")

    async with anyio.create_task_group() as group:
        group.start_soon(_remember, host, tmp_path / "escaped", seen)
        done = await _shell(host, script, cwd=tmp_path, timeout_ms=4_000)

    assert done.timed_out
    assert not host.is_alive(seen[0])


async def _remember(host: LocalHost, path: Path, seen: list[Identity]) -> None:
    seen.append(await _identity(host, path))


async def test_a_background_process_that_keeps_stdout_open_does_not_hang_the_command(
    host: LocalHost, tmp_path: Path
) -> None:
    with anyio.fail_after(60):
        done = await _shell(host, "sleep 600 & echo $!", cwd=tmp_path)

    assert (done.exit_code, done.timed_out) == (0, False)
    assert _ended(int(done.stdout.splitlines()[0]))


async def test_a_background_process_that_ignores_sigterm_ends_with_its_command(
    host: LocalHost, tmp_path: Path
) -> None:
    script = "(trap '' TERM; echo ready > ready; while :; do sleep 600; done) & read line < ready"
    _pipe(tmp_path / "ready")

    with anyio.fail_after(60):
        done = await _shell(host, script, cwd=tmp_path)

    assert done.exit_code == 0


async def test_an_escaped_process_that_keeps_stdout_open_does_not_hang_the_command(
    host: LocalHost, tmp_path: Path
) -> None:
    """Nothing links such a process to the command any more; it is ended by the test."""
    script = "setsid sh -c 'echo $$ > escaped; exec sleep 600' & read pid < escaped; echo $pid"
    _pipe(tmp_path / "escaped")

    with anyio.fail_after(60):
        done = await _shell(host, script, cwd=tmp_path)
    escaped = host.identify(int(done.stdout))
    assert escaped is not None
    assert await host.end([escaped], grace_ms=5_000) == ()

    assert (done.exit_code, done.timed_out) == (0, False)


@pytest.mark.conformance("K-9")
async def test_cancelling_a_command_ends_its_group(host: LocalHost, tmp_path: Path) -> None:
    script = "sleep 600 & echo $! > inner; sleep 600"
    _pipe(tmp_path / "inner")

    async with anyio.create_task_group() as group:
        group.start_soon(_shell_in, host, script, tmp_path)
        inner = await _identity(host, tmp_path / "inner")
        group.cancel_scope.cancel()

    assert not host.is_alive(inner)


async def _shell_in(host: Host, script: str, cwd: Path) -> None:
    await _shell(host, script, cwd=cwd)


async def test_a_spawned_child_talks_over_its_pipes_and_logs_to_a_private_file(
    host: LocalHost, tmp_path: Path
) -> None:
    log = tmp_path / "stderr.log"
    child = await host.spawn(
        ["sh", "-c", "echo noise >&2; cat; exit 7"], cwd=tmp_path, env=_ENV, stderr_path=log
    )

    assert child.exit_code is None
    assert host.is_alive(child.identity)
    await child.send(b"hello\n")
    assert await _line(child) == b"hello\n"
    await child.close_stdin()
    await child.close_stdin()
    with anyio.fail_after(60):
        assert await child.receive() == b""
        assert await child.wait() == 7
        assert await child.wait() == 7
    assert child.exit_code == 7
    assert await child.receive() == b""
    assert not host.is_alive(child.identity)
    assert log.read_text() == "noise\n"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


async def test_stderr_of_a_second_child_is_appended(host: LocalHost, tmp_path: Path) -> None:
    for word in ("one", "two"):
        child = await host.spawn(
            ["sh", "-c", f"echo {word} >&2"], cwd=tmp_path, env=_ENV, stderr_path=tmp_path / "log"
        )
        with anyio.fail_after(60):
            await child.wait()

    assert (tmp_path / "log").read_text() == "one\ntwo\n"


async def test_a_line_of_ten_megabytes_passes_both_ways(host: LocalHost, tmp_path: Path) -> None:
    line = b"x" * 10_000_000 + b"\n"
    child = await host.spawn(["cat"], cwd=tmp_path, env=_ENV, stderr_path=tmp_path / "log")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(child.send, line)
            assert await _line(child) == line
        await child.close_stdin()
        await child.wait()


async def test_sending_to_a_child_that_is_gone_raises_broken_pipe(host: LocalHost, tmp_path: Path) -> None:
    child = await host.spawn(["true"], cwd=tmp_path, env=_ENV, stderr_path=tmp_path / "log")
    with anyio.fail_after(60):
        await child.wait()

    with pytest.raises(BrokenPipeError):
        await child.send(b"anyone?")
    await child.close_stdin()
    with pytest.raises(BrokenPipeError):
        await child.send(b"anyone?")


async def test_a_cancelled_receive_loses_nothing(host: LocalHost, tmp_path: Path) -> None:
    child = await host.spawn(["cat"], cwd=tmp_path, env=_ENV, stderr_path=tmp_path / "log")
    with anyio.move_on_after(0.02) as scope:
        await child.receive()
    assert scope.cancelled_caught

    await child.send(b"late\n")
    assert await _line(child) == b"late\n"
    await child.close_stdin()
    with anyio.fail_after(60):
        await child.wait()


async def test_wait_returns_although_a_grandchild_holds_stdout_open(host: LocalHost, tmp_path: Path) -> None:
    child = await host.spawn(
        ["sh", "-c", "sleep 600 & exit 5"],
        cwd=tmp_path,
        env={**_ENV, "SYMPHONY_RUN_ID": f"r-holds-{os.getpid()}"},
        stderr_path=tmp_path / "log",
    )

    with anyio.fail_after(60):
        assert await child.wait() == 5
        while not (left := child.descendants()):  # noqa: ASYNC110
            await anyio.sleep(0.01)  # in the middle of an exec it has no environment
    assert len(left) == 1
    assert await host.end(left, grace_ms=5_000) == ()


async def test_descendants_name_the_child_first_and_find_a_shell_in_its_own_session(
    host: LocalHost, tmp_path: Path
) -> None:
    script = "setsid sh -c 'echo $$ > escaped; exec sleep 600' & sleep 600"
    _pipe(tmp_path / "escaped")
    child = await host.spawn(["sh", "-c", script], cwd=tmp_path, env=_ENV, stderr_path=tmp_path / "log")
    escaped = await _identity(host, tmp_path / "escaped")

    family = child.descendants()

    assert family[0] == child.identity
    assert escaped in family
    child.signal(signal.SIGKILL, family)
    with anyio.fail_after(60):
        assert await child.wait() == -signal.SIGKILL
    assert await host.end([escaped], grace_ms=5_000) == ()


async def test_an_orphan_is_found_by_its_run_id_after_its_parent_was_killed(
    host: LocalHost, tmp_path: Path
) -> None:
    script = "setsid sh -c 'echo $$ > orphan; exec sleep 600' & sleep 600"
    _pipe(tmp_path / "orphan")
    child = await host.spawn(
        ["sh", "-c", script],
        cwd=tmp_path,
        env={**_ENV, "SYMPHONY_RUN_ID": f"run-of-this-test-{os.getpid()}"},
        stderr_path=tmp_path / "log",
    )
    orphan = await _identity(host, tmp_path / "orphan")
    assert child.identity in host.find_marked([f"run-of-this-test-{os.getpid()}"])
    child.signal(signal.SIGKILL, [child.identity])
    with anyio.fail_after(60):
        await child.wait()

    assert orphan in host.find_marked(["another-run", f"run-of-this-test-{os.getpid()}"])
    assert orphan in child.descendants()
    assert child.identity not in child.descendants()
    assert host.find_marked(["another-run"]) == ()
    assert host.find_marked([]) == ()

    assert await host.end(host.find_marked([f"run-of-this-test-{os.getpid()}"]), grace_ms=5_000) == ()
    assert host.find_marked([f"run-of-this-test-{os.getpid()}"]) == ()


async def test_a_child_of_a_marked_process_is_found_although_it_dropped_the_mark(
    host: LocalHost, tmp_path: Path
) -> None:
    inner = "env -i sh -c 'echo $$ > dropped; exec /bin/sleep 600' & wait"
    _pipe(tmp_path / "dropped")
    child = await host.spawn(
        ["sh", "-c", 'setsid sh -c "$INNER" & sleep 600'],
        cwd=tmp_path,
        env={**_ENV, "SYMPHONY_RUN_ID": f"run-that-drops-{os.getpid()}", "INNER": inner},
        stderr_path=tmp_path / "log",
    )
    dropped = await _identity(host, tmp_path / "dropped")
    child.signal(signal.SIGKILL, [child.identity])
    with anyio.fail_after(60):
        await child.wait()

    family = child.descendants()
    assert dropped in family
    assert await host.end(family, grace_ms=5_000) == ()


async def test_end_kills_what_ignores_sigterm(host: LocalHost, tmp_path: Path) -> None:
    child = await host.spawn(
        ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 600; done"],
        cwd=tmp_path,
        env=_ENV,
        stderr_path=tmp_path / "log",
    )
    assert await _line(child) == b"ready\n"

    assert await host.end(child.descendants(), grace_ms=100) == ()
    with anyio.fail_after(60):
        assert await child.wait() == -signal.SIGKILL


async def test_a_signal_never_reaches_another_process_with_the_same_number(
    host: LocalHost, tmp_path: Path
) -> None:
    child = await host.spawn(["cat"], cwd=tmp_path, env=_ENV, stderr_path=tmp_path / "log")
    who = child.identity
    earlier = Identity(boot_id=who.boot_id, pid=who.pid, started=who.started - 1)
    before_reboot = Identity(boot_id="another boot", pid=who.pid, started=who.started)

    child.signal(signal.SIGKILL, [earlier, before_reboot])
    assert await host.end([earlier, before_reboot], grace_ms=5_000) == ()

    assert not host.is_alive(earlier)
    await child.send(b"still here\n")
    assert await _line(child) == b"still here\n"
    await child.close_stdin()
    with anyio.fail_after(60):
        assert await child.wait() == 0


async def test_a_zombie_is_not_alive(host: LocalHost, tmp_path: Path) -> None:
    child = await host.spawn(["true"], cwd=tmp_path, env=_ENV, stderr_path=tmp_path / "log")
    with anyio.fail_after(60):
        await to_thread.run_sync(os.waitid, os.P_PID, child.identity.pid, os.WEXITED | os.WNOWAIT)

    assert not host.is_alive(child.identity)
    assert psutil.Process(child.identity.pid).status() == psutil.STATUS_ZOMBIE
    assert await child.wait() == 0


async def test_nobody_has_an_unused_number(host: LocalHost, tmp_path: Path) -> None:
    done = await _shell(host, "echo $$", cwd=tmp_path)

    assert host.identify(int(done.stdout)) is None


async def test_the_host_is_called_local(host: LocalHost) -> None:
    seam: Host = host

    assert seam.name == "local"
