"""Children carry the mark of their instance, die with the daemon, and are found when they did not."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from harness.shell import word
from symphony.processes.base import Identity
from symphony.processes.local import LocalHost
from symphony.processes.table import ProcessTable

_ENV = {"PATH": os.environ["PATH"]}
# A daemon in small: it starts what it is told to, says the number, and stays.
_DAEMON = """
import anyio, os, sys
from pathlib import Path
from symphony.processes.local import LocalHost
async def main():
    host = LocalHost(instance=sys.argv[1])
    env = {"PATH": os.environ["PATH"]}
    here = Path(sys.argv[2])
    if sys.argv[3] == "spawn":
        child = await host.spawn(["sh", "-c", sys.argv[4]], cwd=here, env=env, stderr_path=here / "stderr")
        print((await child.receive()).decode(), end="", flush=True)
        await child.wait()
    else:
        await host.run(["sh", "-c", sys.argv[4]], env=env, timeout_ms=600_000)
anyio.run(main)
"""

# A daemon with two threads that adopts orphans, and one agent; it tells the agent's first line and its end.
_ADOPTING = """
import anyio, os, sys, threading, time
from pathlib import Path
from symphony.agents.process import AgentProcess, Launch
from symphony.processes.local import LocalHost
from symphony.processes.supervisor_program import become_subreaper
async def main():
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    become_subreaper()
    host, here = LocalHost(instance=sys.argv[1], adopt_orphans=True), Path(sys.argv[2])
    env = {"PATH": os.environ["PATH"], "SYMPHONY_RUN_ID": sys.argv[1]}
    launch = Launch(command="", cwd=here, env=env, stderr_path=here / "log")
    child = await host.spawn(["sh", "-c", sys.argv[3]], cwd=here, env=env, stderr_path=here / "log")
    agent = AgentProcess(host, child, launch, grace_ms=1_000)
    print((await agent.receive()).decode(), end="", flush=True)
    await agent.stop()
    print("stopped", flush=True)
    sys.stdin.read()
anyio.run(main)
"""


@pytest.fixture
def instance() -> Iterator[str]:
    """A fresh name; nothing that carries it may be left."""
    name = uuid.uuid4().hex
    yield name
    for one in ProcessTable().left_by(name):
        _gone(one.pid)  # a subreaper ends behind its command
    left = ProcessTable().left_by(name)
    ProcessTable().send(signal.SIGKILL, left)
    assert left == ()


def _daemon(instance: str, place: Path, how: str, script: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _DAEMON, instance, str(place), how, script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@contextmanager
def _marked(instance: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that carries the mark, seen to be through with its `exec`."""
    with subprocess.Popen(
        ["sh", "-c", "echo up; read x"],
        env={**_ENV, "SYMPHONY_INSTANCE": instance},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            process.kill()


def _told(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def _gone(pid: int) -> None:
    try:
        psutil.Process(pid).wait(60)
    except psutil.NoSuchProcess:
        return


def _who(pid: int) -> Identity:
    found = ProcessTable().identify(pid)
    assert found is not None
    return found


@pytest.mark.asyncio
async def test_every_child_carries_the_mark_whatever_environment_it_was_given(tmp_path: Path) -> None:
    host = LocalHost(instance="one-of-a-test")
    env = {**_ENV, "SYMPHONY_INSTANCE": "forged"}

    done = await host.run(["sh", "-c", "echo $SYMPHONY_INSTANCE"], env=env, timeout_ms=60_000)
    child = await host.spawn(
        ["sh", "-c", "echo $SYMPHONY_INSTANCE"], cwd=tmp_path, env=env, stderr_path=tmp_path / "log"
    )

    assert done.stdout == b"one-of-a-test\n"
    assert await child.receive() == b"one-of-a-test\n"
    assert await child.wait() == 0


@pytest.mark.asyncio
async def test_without_an_instance_nothing_is_marked_and_nothing_was_left() -> None:
    done = await LocalHost().run(["sh", "-c", "echo $SYMPHONY_INSTANCE"], env=_ENV, timeout_ms=60_000)

    assert done.stdout == b"\n"
    assert LocalHost().find_survivors() == ()


@pytest.mark.asyncio
async def test_what_escaped_its_parents_is_found_with_all_below_it_and_ends(
    tmp_path: Path, instance: str
) -> None:
    """In a session of its own, deaf to SIGTERM, its parents dead; below it one that dropped the mark."""
    os.mkfifo(tmp_path / "told")
    deaf = "trap '' TERM; env -i /bin/sh -c 'echo $$ > told; exec /bin/sleep 600' & wait; sleep 600"
    script = f'setsid sh -c "{deaf.replace("$$", chr(92) + "$$")}" & echo $$; sleep 600'
    daemon = _daemon(instance, tmp_path, "spawn", script)
    child = _told(daemon)
    below = int((tmp_path / "told").read_text())
    os.kill(psutil.Process(child).ppid(), signal.SIGKILL)  # the subreaper, which would see to it
    daemon.kill()
    daemon.communicate()
    host = LocalHost(instance=instance)

    left = host.find_survivors()

    assert _who(below) in left
    assert os.getpid() not in {one.pid for one in left}
    assert await host.end(left, grace_ms=100) == ()
    assert host.find_survivors() == ()


def test_neither_we_nor_those_above_us_nor_other_instances_are_found(instance: str) -> None:
    """A daemon that a session of its predecessor started carries the mark, and so does that session."""
    look = "from symphony.processes.local import LocalHost; print(LocalHost(instance='{}').find_survivors())"
    script = f'{word(sys.executable)} -c "$LOOK"; echo'
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SYMPHONY_INSTANCE": instance}
    with _marked(instance + "x"):
        seen = subprocess.run(
            ["sh", "-c", script],
            env={**env, "LOOK": look.format(instance)},
            capture_output=True,
            text=True,
            check=True,
        )

    assert seen.stdout.split() == ["()"]


def test_processes_of_another_user_are_none_of_ours(instance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with _marked(instance) as other:
        uid = os.getuid()
        assert [one.pid for one in ProcessTable().left_by(instance)] == [other.pid]
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
        assert ProcessTable().left_by(instance) == ()
        monkeypatch.undo()


@pytest.mark.parametrize("deaf", ["", "trap '' TERM; "], ids=["ordinary", "deaf to SIGTERM"])
def test_a_session_dies_with_a_daemon_that_is_killed(tmp_path: Path, instance: str, deaf: str) -> None:
    daemon = _daemon(instance, tmp_path, "spawn", f"{deaf}echo $$; exec sleep 600")
    child = _told(daemon)
    daemon.kill()
    daemon.communicate()

    _gone(child)


def test_a_command_is_told_to_end_when_the_daemon_is_killed(tmp_path: Path, instance: str) -> None:
    os.mkfifo(tmp_path / "told")
    script = f"echo $$ > {word(tmp_path)}/told; exec sleep 600"
    daemon = _daemon(instance, tmp_path, "run", script)
    child = int((tmp_path / "told").read_text())
    daemon.kill()
    daemon.communicate()

    _gone(child)


@pytest.mark.parametrize("after", ["kill -9 $0; ", ""], ids=["its subreaper is killed", "it ends by itself"])
def test_nothing_of_an_agent_is_left_when_it_is_stopped(tmp_path: Path, instance: str, after: str) -> None:
    """Not even what dropped its mark, in a session of its own, with no parent left."""
    below = f"echo $$; {after}exec sleep 600 >/dev/null"
    script = f"env -i setsid sh -c '{below}' $PPID & read x"
    with subprocess.Popen(
        [sys.executable, "-c", _ADOPTING, instance, str(tmp_path), script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as daemon:
        left = _told(daemon)
        assert daemon.stdout is not None
        assert "stopped\n" in iter(daemon.stdout.readline, "")
        assert ProcessTable().identify(left) is None
        daemon.communicate("")


@pytest.mark.asyncio
async def test_a_subreaper_says_that_nothing_is_left_and_one_that_was_killed_says_nothing(
    tmp_path: Path,
) -> None:
    host = LocalHost(instance="one-of-a-test")
    start = partial(host.spawn, cwd=tmp_path, env=_ENV, stderr_path=tmp_path / "log")
    for _ in range(20):
        child = await start(["sh", "-c", "sleep 600 & exit 3"])
        assert await child.wait() == 3
        assert child.left_only_orphans()

    child = await start(["cat"])
    (subreaper,) = psutil.Process(child.identity.pid).parents()[:1]
    subreaper.kill()
    assert await child.wait() == -signal.SIGKILL
    assert not child.left_only_orphans()


@pytest.mark.asyncio
async def test_a_program_that_is_not_there_still_fails_to_start(tmp_path: Path) -> None:
    host = LocalHost(instance="one-of-a-test")
    (tmp_path / "here").write_text("#!/bin/sh\nexit 4\n")
    (tmp_path / "here").chmod(0o755)

    for argv in (["no-such-program-here"], ["/no/such/program"], ["./nowhere"]):
        with pytest.raises(FileNotFoundError):
            await host.run(argv, env=_ENV, cwd=tmp_path, timeout_ms=60_000)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        await host.run(["true"], cwd=tmp_path / "nowhere", env=_ENV, timeout_ms=60_000)
    assert (await host.run(["./here"], cwd=tmp_path, env=_ENV, timeout_ms=60_000)).exit_code == 4
