import os
import signal
import subprocess
from pathlib import Path

import psutil

from symphony.processes.table import ProcessTable


def test_identity_comes_from_boot_id_and_start_time() -> None:
    identity = ProcessTable().identify(os.getpid())

    assert identity is not None
    assert identity.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert abs(psutil.boot_time() + identity.started - psutil.Process().create_time()) < 2


def test_where_there_is_no_proc_file_system_psutil_answers(tmp_path: Path) -> None:
    identity = ProcessTable(proc=tmp_path).identify(os.getpid())

    assert identity is not None
    assert identity.boot_id == str(psutil.boot_time())
    assert identity.started == psutil.Process().create_time()


def test_a_name_with_brackets_and_blanks_does_not_confuse_the_start_time(tmp_path: Path) -> None:
    fields = " ".join(str(number) for number in range(3, 53))
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "stat").write_text(f"42 (evil) (name 7) {fields}\n")

    identity = ProcessTable(proc=tmp_path).identify(42)

    assert identity is not None
    assert identity.started == 22 / os.sysconf("SC_CLK_TCK")


def test_the_own_process_is_never_found_by_its_mark() -> None:
    os.environ["SYMPHONY_RUN_ID"] = "mine"
    try:
        assert ProcessTable().marked(["mine"]) == ()
    finally:
        del os.environ["SYMPHONY_RUN_ID"]


def test_where_there_is_no_proc_file_system_psutil_finds_and_judges_processes(tmp_path: Path) -> None:
    table = ProcessTable(proc=tmp_path)
    marked = {**os.environ, "SYMPHONY_RUN_ID": "by-psutil"}
    with subprocess.Popen(["sleep", "611"], env=marked) as child:
        [found] = table.marked(["by-psutil"])
        assert found.pid == child.pid
        assert found in table.family(os.getpid())
        assert table.family(child.pid, "by-psutil") == (found,)
        assert table.is_alive(found)
        table.send(signal.SIGKILL, [found])
        child.wait()
    assert not table.is_alive(found)
    assert table.identify(child.pid) is None
    assert table.family(child.pid) == ()


def test_a_zombie_is_not_alive(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        for table in (ProcessTable(), ProcessTable(proc=tmp_path)):
            who = table.identify(child.pid)
            assert who is not None
            assert not table.is_alive(who)
