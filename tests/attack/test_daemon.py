"""An agent reads nothing out of the daemon's process, and removing its lock file lets no second one in."""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.other_user import as_ordinary_user
from harness.project import Project, until
from harness.shell import word

_DONE = {"tool": "board_move", "arguments": {"state": "Done"}}


@pytest.fixture
def project() -> Iterator[Project]:
    root = Path(tempfile.mkdtemp(prefix="symphony-attack-", dir="/var/tmp"))
    root.chmod(0o755)
    yield Project(root=root).create()
    shutil.rmtree(root)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc")
def test_an_agent_cannot_read_the_environment_memory_and_descriptors_of_the_daemon(project: Project) -> None:
    names = ("environ", "mem", "maps", "fd/0", "cwd/README.md", "root/etc/hostname")
    read = "; ".join(f"head -c 1 /proc/$pid/{name} && echo {name} >> read" for name in names)
    daemon_pid = (
        f"pid=$(sed 's/.*\"pid\": //; s/,.*//' {word(project.state_dir)}/lock); test -e /proc/$pid/stat"
    )
    script = (
        f"{daemon_pid} && echo tried > read; ({read}) 2>/dev/null; cp read {word(project.root)}/home/read"
    )
    (project.root / "home").mkdir()
    project.issue("SYM-1", [{"run": script}, _DONE])
    project.workflow()
    project.workflow(command=as_ordinary_user(project))
    with project.daemon() as daemon:
        daemon.wait_for("run_ended", outcome="succeeded")
        limits = Path(f"/proc/{daemon.process.pid}/limits").read_text()
        status = project.symphony("status", "--json")
        everywhere = project.symphony("status", "--all", "--json")
        daemon.signal(signal.SIGINT)
        assert daemon.end() == 0
    assert (project.root / "home" / "read").read_text().split() == ["tried"]
    assert "Max core file size        0 " in limits
    assert status.returncode == 0
    assert [row["status"] for row in json.loads(everywhere.stdout)["daemons"]] == ["running"]


@pytest.mark.slow
def test_a_lock_file_that_is_removed_or_replaced_is_taken_anew(project: Project) -> None:
    project.workflow()
    lock = project.state_dir / "lock"
    with project.daemon() as daemon:
        daemon.wait_for("serving")
        for damage in (
            lock.unlink,
            lambda: lock.rename(lock.with_name("aside")),
            lambda: shutil.rmtree(lock.parent),
        ):
            before = len([line for line in daemon.events() if line["event"] == "instance_lock_restored"])
            damage()

            def again(before: int = before) -> bool | None:
                told = [line for line in daemon.events() if line["event"] == "instance_lock_restored"]
                return True if len(told) > before else None

            until(again, daemon.log.read_text)
            second = project.symphony("run", "--once")
            assert second.returncode == 1
            assert f"pid {daemon.process.pid}" in second.stderr
        daemon.signal(signal.SIGINT)
        assert daemon.end() == 0


def _remove_all_but_the_journal(project: Project) -> None:
    """A daemon whose journal is taken away ends for that reason."""
    for path in project.state_dir.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif not path.name.startswith("journal.db"):
            path.unlink()


@pytest.mark.parametrize("everything", [False, True], ids=["the lock file", "the state directory"])
def test_a_second_daemon_ends_no_agent_of_a_living_one(project: Project, *, everything: bool) -> None:
    gate = project.root / "gate"
    project.issue("SYM-1", [{"run": f"while ! [ -e {word(gate)} ]; do sleep 0.05; done"}, _DONE])
    project.workflow()
    with project.daemon() as daemon:
        agent = psutil.Process(daemon.wait_for("turn_started")["pid"])
        daemon.signal(signal.SIGSTOP)  # so that it does not lock anew before the second one looks
        _remove_all_but_the_journal(project) if everything else (project.state_dir / "lock").unlink()
        second = project.symphony("run", "--once")
        daemon.signal(signal.SIGCONT)
        assert second.returncode == 1
        assert "another symphony" in second.stderr
        assert agent.is_running()
        gate.touch()
        daemon.wait_for("run_ended", outcome="succeeded")
        daemon.signal(signal.SIGINT)
        assert daemon.end() == 0


def test_a_daemon_whose_lock_another_one_has_ends_in_order(project: Project) -> None:
    project.workflow()
    with project.daemon() as first:
        first.wait_for("serving")
        first.signal(signal.SIGSTOP)
        _remove_all_but_the_journal(
            project
        )  # the control socket too: nothing tells the second one of the first
        with project.daemon() as second:
            second.wait_for("serving")
            os.kill(first.process.pid, signal.SIGCONT)
            assert first.end() == 1
            assert [line for line in first.events() if line["event"] == "instance_lock_lost"]
            assert second.process.poll() is None
            second.signal(signal.SIGINT)
            assert second.end() == 0
