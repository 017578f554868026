import os
import shutil
from pathlib import Path

import pytest

from symphony.processes.table import ProcFs, Stat

MARK = "SYMPHONY_RUN_ID"


def process(
    root: Path, pid: int, environ: bytes = b"", *, flags: int = 0, state: str = "S", parent: int = 1
) -> Path:
    place = root / str(pid)
    (place / "task" / str(pid)).mkdir(parents=True)
    (place / "environ").write_bytes(environ)
    fields = [state, str(parent), *["1", "1", "0", "-1"], str(flags), *["0"] * 12, "4711", *["0"] * 30]
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


def test_descendants_of_every_thread_are_found(tmp_path: Path) -> None:
    for pid, children in ((10, "11 12 "), (11, ""), (12, "14 "), (14, "")):
        place = process(tmp_path, pid)
        (place / "task" / str(pid) / "children").write_text(children)
    second = tmp_path / "10" / "task" / "99"
    second.mkdir()
    (second / "children").write_text("13 ")
    assert sorted(ProcFs(tmp_path).below(10) or []) == [11, 12, 13, 14]


def test_a_kernel_that_does_not_list_children_says_so(tmp_path: Path) -> None:
    process(tmp_path, 10)
    assert ProcFs(tmp_path).below(10) is None
    shutil.rmtree(tmp_path / "10")
    assert ProcFs(tmp_path).below(10) == []


def test_the_real_one_knows_this_process() -> None:
    table = ProcFs(Path("/proc"))
    assert table.mounted()
    stat = table.stat(os.getpid())
    assert stat is not None
    assert not stat.ended
