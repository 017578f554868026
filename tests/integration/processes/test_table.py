import os
import subprocess
from pathlib import Path

import psutil
import pytest

from symphony.domain import Blame
from symphony.processes.base import HostError
from symphony.processes.table import ProcessTable, ProcFs, Stat

MARK = "SYMPHONY_RUN_ID"


def process(
    root: Path,
    pid: int,
    environ: bytes = b"",
    *,
    flags: int = 0,
    state: str = "S",
    parent: int = 1,
    session: int = 1,
    command: bytes = b"",
) -> Path:
    place = root / str(pid)
    (place / "task" / str(pid)).mkdir(parents=True)
    (place / "environ").write_bytes(environ)
    (place / "cmdline").write_bytes(command)
    fields = [state, str(parent), "1", str(session), "0", "-1", str(flags), *["0"] * 12, "4711", *["0"] * 30]
    (place / "stat").write_text(f"{pid} (a name) {' '.join(fields)}\n")
    return place


def found(table: ProcFs, *values: str) -> list[int]:
    return sorted(table.marked(MARK, values))


def test_processes_are_found_by_their_whole_mark(tmp_path: Path) -> None:
    process(tmp_path, 10, b"PATH=/bin\0SYMPHONY_RUN_ID=mine\0HOME=/\0")
    process(tmp_path, 11, b"SYMPHONY_RUN_ID=mine\0")
    process(tmp_path, 12, b"SYMPHONY_RUN_ID=mine-too\0")
    process(tmp_path, 13, b"NO_SYMPHONY_RUN_ID=mine\0TEXT=SYMPHONY_RUN_ID=mine\0")
    (tmp_path / "self").mkdir()
    assert found(ProcFs(tmp_path), "mine") == [10, 11]
    assert found(ProcFs(tmp_path), "mine", "mine-too") == [10, 11, 12]


def test_a_process_is_looked_at_once_and_a_number_used_again_is_another_process(tmp_path: Path) -> None:
    table = ProcFs(tmp_path)
    place = process(tmp_path, 10, b"SYMPHONY_RUN_ID=mine\0")
    assert found(table, "mine") == [10]
    (place / "environ").write_bytes(b"EMPTIED=1\0")
    assert found(table, "mine") == [10]
    place.rename(tmp_path / "gone")  # its inode stays in use, so the next one has another
    process(tmp_path, 10, b"OTHER=1\0")
    assert found(table, "mine") == []


@pytest.mark.parametrize("unreadable", [False, True])
def test_what_is_not_settled_is_looked_at_again(tmp_path: Path, *, unreadable: bool) -> None:
    table = ProcFs(tmp_path)
    place = process(tmp_path, 10)
    if unreadable:
        (place / "environ").unlink()
    assert found(table, "mine") == []
    (place / "environ").write_bytes(b"SYMPHONY_RUN_ID=mine\0")
    assert found(table, "mine") == [10]


def test_a_child_of_ours_may_get_its_mark_after_it_was_seen_without(tmp_path: Path) -> None:
    """Between `fork` and `exec` it has our environment."""
    table = ProcFs(tmp_path)
    places = [
        process(tmp_path, pid, b"OURS=1\0", parent=parent) for pid, parent in ((10, os.getpid()), (11, 1))
    ]
    assert found(table, "mine") == []
    for place in places:
        (place / "environ").write_bytes(b"SYMPHONY_RUN_ID=mine\0")
    assert found(table, "mine") == [10], "what is not ours changes its mark no more"


@pytest.mark.parametrize("environ", [b"", b"LD_LIBRARY_PATH=/lib\0"])
def test_what_a_subreaper_has_forked_may_get_its_mark_and_a_subreaper_is_looked_at_once(
    tmp_path: Path, environ: bytes
) -> None:
    """Until it executes its command it is the supervisor's program, first in its session, then in its own."""
    table = ProcFs(tmp_path)
    program = b"".join(
        word + b"\0" for word in (b"python", b"-I", b"-S", b"/x/supervisor_program.py", b"5", b"i")
    )
    process(tmp_path, 9, environ, parent=5, session=9, command=program)
    forks = {10: (9, 9), 11: (10, 9), 12: (10, 12)}  # a subreaper, and two processes of commands
    for pid, (parent, session) in forks.items():
        process(tmp_path, pid, environ, parent=parent, session=session, command=program)
    assert found(table, "mine") == []
    for pid in forks:
        (tmp_path / str(pid) / "environ").write_bytes(b"SYMPHONY_RUN_ID=mine\0")
        (tmp_path / str(pid) / "cmdline").write_bytes(b"agent\0")
    assert found(table, "mine") == [11, 12], "a subreaper executes nothing"


@pytest.mark.parametrize("unreadable", [False, True])
def test_kernel_threads_are_looked_at_once(tmp_path: Path, *, unreadable: bool) -> None:
    table = ProcFs(tmp_path)
    place = process(tmp_path, 2, flags=0x00200000)
    if unreadable:
        (place / "environ").unlink()
    assert found(table, "mine") == []
    (place / "environ").write_bytes(b"SYMPHONY_RUN_ID=mine\0")
    assert found(table, "mine") == []


def test_a_zombie_has_ended_and_what_is_gone_is_nothing(tmp_path: Path) -> None:
    process(tmp_path, 10, state="Z")
    assert ProcFs(tmp_path).stat(10) == Stat(
        parent=1, session=1, started_ticks=4711, ended=True, kernel=False
    )
    assert ProcFs(tmp_path).stat(11) is None


def tree(root: Path, children: dict[int, list[int]], *, listed: bool) -> ProcFs:
    """A process table with these children, by parent; whether the kernel lists children."""
    parents = {child: parent for parent, found in children.items() for child in found}
    for pid, below in children.items():
        place = process(root, pid, parent=parents.get(pid, 1))
        if listed:
            (place / "task" / str(pid) / "children").write_text("".join(f"{one} " for one in below))
    if listed:
        (root / "thread-self").mkdir()
        (root / "thread-self" / "children").touch()
    return ProcFs(root)


@pytest.mark.parametrize("listed", [True, False])
def test_descendants_are_found_whether_the_kernel_lists_children_or_not(
    tmp_path: Path, *, listed: bool
) -> None:
    table = tree(tmp_path, {10: [11, 12], 11: [], 12: [14], 13: [15], 14: [], 15: []}, listed=listed)
    assert sorted(table.children(10)) == [11, 12]
    assert sorted(table.with_descendants([10])) == [10, 11, 12, 14]
    assert table.with_descendants([14, 13])[:2] == [14, 13]
    assert sorted(table.with_descendants([14, 13, 12])) == [12, 13, 14, 15]
    assert table.with_descendants([99]) == [99]
    assert table.with_descendants([]) == []


def test_children_of_every_thread_are_found(tmp_path: Path) -> None:
    table = tree(tmp_path, {10: [11], 11: []}, listed=True)
    second = tmp_path / "10" / "task" / "99"
    second.mkdir()
    (second / "children").write_text("13 ")
    assert sorted(table.with_descendants([10])) == [10, 11, 13]


def test_ancestors_are_found_nearest_first(tmp_path: Path) -> None:
    table = tree(tmp_path, {10: [11], 11: [12], 12: []}, listed=False)
    assert table.ancestors(12) == [11, 10, 1]


def test_the_boot_and_the_current_directory_of_a_process_are_read(tmp_path: Path) -> None:
    assert ProcFs(tmp_path).boot_time() is None
    assert ProcFs(tmp_path).cwd(os.getpid()) is None
    (tmp_path / "stat").write_text("cpu  1 2 3\nbtime 1700000000\nprocesses 1\n")
    assert ProcFs(tmp_path).boot_time() == 1_700_000_000
    assert ProcFs(Path("/proc")).cwd(os.getpid()) == Path.cwd()


# --- the table ---


def fake_table(root: Path) -> ProcessTable:
    boot = root / "sys" / "kernel" / "random"
    boot.mkdir(parents=True)
    (boot / "boot_id").write_text("a-boot\n")
    (root / "self").symlink_to(str(os.getpid()))
    return ProcessTable(proc=root)


def test_a_machine_without_proc_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(HostError) as refused:
        ProcessTable(proc=tmp_path)
    assert refused.value.failure.blame is Blame.HOST
    assert not refused.value.failure.retryable
    assert "Linux" in (refused.value.failure.hint or "")


def test_identity_comes_from_boot_id_and_start_time() -> None:
    identity = ProcessTable().identify(os.getpid())

    assert identity is not None
    assert identity.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert abs(psutil.boot_time() + identity.started - psutil.Process().create_time()) < 2


def test_a_name_with_brackets_and_blanks_does_not_confuse_the_start_time(tmp_path: Path) -> None:
    fields = " ".join(str(number) for number in range(3, 53))
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "stat").write_text(f"42 (evil) (name 7) {fields}\n")

    identity = fake_table(tmp_path).identify(42)

    assert identity is not None
    assert identity.started == 22 / os.sysconf("SC_CLK_TCK")


def test_the_own_process_is_never_found_by_its_mark() -> None:
    os.environ["SYMPHONY_RUN_ID"] = "mine"
    try:
        assert ProcessTable().marked(["mine"]) == ()
    finally:
        del os.environ["SYMPHONY_RUN_ID"]


def test_the_start_of_a_process_is_told_by_the_wall_clock() -> None:
    started = ProcessTable().started_at(os.getpid())

    assert started is not None
    assert abs(started.timestamp() - psutil.Process().create_time()) < 2
    assert ProcessTable().started_at(2**22 + 1) is None


def test_a_process_that_works_in_a_directory_is_found(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    with subprocess.Popen(["sleep", "611"], cwd=tmp_path / "below") as child:
        assert ProcessTable().working_in(tmp_path) == child.pid
        child.kill()
    assert ProcessTable().working_in(tmp_path) is None


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        identity = ProcessTable().identify(child.pid)
        assert identity is not None
        assert not ProcessTable().is_alive(identity)
        assert ProcessTable().started_at(child.pid) is None
