"""Where the daemon's control group may be divided, nothing escapes: no mark, no parent, no session needed."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from symphony.processes.cgroups import RunGroups, own_cgroup
from symphony.processes.table import ProcessTable

# A daemon in small, which joins the group first. What it starts loses mark, parents and session.
_DAEMON = """
import anyio, os, psutil, sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
from symphony.processes.local import LocalHost
async def main():
    name = Path(sys.argv[1]).name
    host = LocalHost(instance=name)
    if sys.argv[2] == "reap":
        left = host.find_survivors()
        ended = await host.end(left, grace_ms=100)
        print(sorted(one.pid for one in left), ended, host.find_survivors(), flush=True)
        return
    env = {"PATH": os.environ["PATH"], "SYMPHONY_RUN_ID": f"{name}-1"}
    here = Path.cwd()
    child = await host.spawn(["sh", "-c", sys.argv[3]], cwd=here, env=env, stderr_path=here / "stderr")
    told = (await child.receive()).decode().strip()
    family = child.descendants()
    print(told, [one.pid for one in family], flush=True)
    if sys.argv[2] == "leave":
        psutil.Process(child.identity.pid).parent().kill()  # the subreaper, which would see to it
        os.kill(os.getpid(), 9)
    survivors = await host.end(family, grace_ms=100)
    # What was just being forked when the family was read is in the next look, as in a sweep of the daemon.
    survivors += await host.end(host.find_marked([f"{name}-1"]), grace_ms=100)
    print(survivors, host.find_marked([f"{name}-1"]), flush=True)
    env["SYMPHONY_RUN_ID"] = f"{name}-2"
    await (await host.spawn(["true"], cwd=here, env=env, stderr_path=here / "stderr")).wait()
anyio.run(main)
"""
_ESCAPES = "(env -i setsid -f sh -c 'trap \"\" TERM; echo $$; exec sleep 623') & wait; exec sleep 624"
_V2 = [
    line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[2] == "cgroup2"
]


def _made(place: Path) -> bool:
    try:
        place.mkdir()
    except OSError:
        return False
    return (place / "cgroup.kill").exists()


@pytest.fixture
def delegated() -> Iterator[Path]:
    """A group as a service with `Delegate=yes` has one; gone at the end with all that is in it."""
    own = own_cgroup()
    tops = [own] if own is not None else [Path(mount) for mount in _V2]
    places = [top / f"symphony-test-{uuid.uuid4().hex}" for top in tops]
    place = next((place for place in places if _made(place)), None)
    if place is None:
        pytest.skip("no control group that this user may divide")
    yield place
    (place / "cgroup.kill").write_text("1")
    for pid in [int(line) for path in place.rglob("cgroup.procs") for line in path.read_text().split()]:
        psutil.Process(pid).wait(60)
    for directory, _, _ in os.walk(place, topdown=False):
        Path(directory).rmdir()


def _daemon(place: Path, tmp_path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", _DAEMON, str(place), *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def _lives(pid: str) -> bool:
    table = ProcessTable()
    found = table.identify(int(pid))
    return found is not None and table.is_alive(found)


def test_what_lost_mark_parent_and_session_ends_with_its_run(delegated: Path, tmp_path: Path) -> None:
    done = _daemon(delegated, tmp_path, "end", _ESCAPES)

    first, second = done.stdout.splitlines()
    pid, _, family = first.partition(" ")
    assert pid in family
    assert second == "() ()"
    assert not _lives(pid)
    left = [place.name for place in delegated.glob("symphony-*/*/")]
    assert left == [f"{delegated.name}-2"], "a group that nobody is in is removed when another run begins"


def test_a_successor_finds_it_after_a_crash(delegated: Path, tmp_path: Path) -> None:
    died = _daemon(delegated, tmp_path, "leave", _ESCAPES)
    assert died.returncode == -signal.SIGKILL, died.stderr
    pid = died.stdout.split()[0]
    assert _lives(pid), "it survives its daemon: the control"

    reaped = _daemon(delegated, tmp_path, "reap")

    left, _, survived = reaped.stdout.partition("] ")
    assert pid in left, reaped.stderr
    assert survived == "() ()\n"
    assert not _lives(pid)


def _proc(tmp_path: Path, cgroup: str, mountinfo: str) -> Path:
    (tmp_path / "cgroup").write_text(cgroup)
    (tmp_path / "mountinfo").write_text(mountinfo)
    return tmp_path


def _line(root: str, mount: Path, kind: str = "cgroup2") -> str:
    root, place = (path.replace("\\", r"\134").replace(" ", r"\040") for path in (root, str(mount)))
    return f"36 35 0:30 {root} {place} rw,nosuid - {kind} cgroup2 rw\n"


def test_the_own_group_is_found_below_its_mount(tmp_path: Path) -> None:
    own = tmp_path / "mount" / "service"
    own.mkdir(parents=True)
    (own / "cgroup.procs").touch()
    for cgroup, root in (("0::/service\n", "/"), ("1:cpu:/x\n0::/a\\x2db/service\n", "/a\\x2db")):
        proc = _proc(tmp_path, cgroup, _line("/", tmp_path, "tmpfs") + _line(root, own.parent))
        (own / "cgroup.kill").unlink(missing_ok=True)
        assert own_cgroup(proc) is None, "a group that cannot be killed is that of the machine, or too old"
        (own / "cgroup.kill").touch()
        assert own_cgroup(proc) == own


@pytest.mark.parametrize(
    ("cgroup", "mountinfo"),
    [
        ("", ""),
        ("1:cpu:/x\n", "36 35 0:30 / /m rw - cgroup2 cgroup2 rw\n"),
        ("0::/service\n", "36 35 0:30 /other /m rw - cgroup2 cgroup2 rw\n"),
        ("0::/service\n", "36 35 0:30 / /m rw - tmpfs tmpfs rw\n"),
        ("0::/service\n", "36 - cgroup2 cgroup2 rw\n"),
    ],
)
def test_where_there_is_no_such_group_nothing_is_divided(tmp_path: Path, cgroup: str, mountinfo: str) -> None:
    assert own_cgroup(_proc(tmp_path, cgroup, mountinfo)) is None
    assert own_cgroup(tmp_path / "nowhere") is None


def test_empty_groups_go_when_another_run_begins(delegated: Path) -> None:
    groups, root = RunGroups(delegated, "i"), delegated / "symphony-i"
    with subprocess.Popen(["sleep", "600"]) as first, subprocess.Popen(["sleep", "600"]) as second:
        groups.add("run-1", first.pid)
        groups.add("run-2", second.pid)
        both = sorted(place.name for place in root.iterdir() if place.is_dir())
        members = list(groups.members(["run-1"]))
        first.kill()
        first.wait()
        groups.add("run-3", second.pid)
        left = [place.name for place in root.iterdir() if place.is_dir()]
        second.kill()

    assert (both, members) == (["run-1", "run-2"], [first.pid])
    assert "run-1" not in left
    assert "run-3" in left


def test_what_the_kernel_refuses_is_as_if_there_were_no_groups(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    groups = RunGroups(tmp_path / "file", "i")
    for run_id in ("../run", "", "run-1"):
        groups.add(run_id, os.getpid())
    groups.kill([os.getpid()])
    assert list(groups.members()) == []
    assert list(groups.members(["run-1"])) == []
    made = RunGroups(tmp_path, "i")
    made.add("run-1", os.getpid())
    assert [path.name for path in (tmp_path / "symphony-i").iterdir()] == ["run-1"]
    (tmp_path / "symphony-i" / "run-1" / "cgroup.procs").write_text("no number")
    assert list(made.members()) == []
