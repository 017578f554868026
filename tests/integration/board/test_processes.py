"""Several processes on one board: nothing is lost, nothing is taken twice, a crash leaves nothing visible."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from symphony.trackers.markdown import Board, BoardConfig, IssueDraft

START = """
import sys
from pathlib import Path
from symphony.trackers.markdown import Board, BoardConfig, IssueDraft, CommentStore
board = Board(BoardConfig(path=Path(sys.argv[1])))
name = sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
"""
CREATE = (
    START
    + """
for number in range(25):
    print(board.create(IssueDraft(title=f"{name} {number}", state="Todo")).id)
"""
)
MOVE = (
    START
    + """
states = ["Todo", "In Progress", "Human Review", "Done"]
for number in range(40):
    board.move("SYM-1", states[number % len(states)])
"""
)
APPEND = (
    START
    + """
path = Path(sys.argv[1]) / "SYM-1.md"
from symphony.trackers.markdown import files
for number in range(40):
    while True:
        with files.locked(path.parent):
            before = path.read_bytes()
            after = before + f"{name} {number}\\n".encode()
            if files.replace(path, after, expected=before, root=path.parent):
                break
"""
)
COMMENT = (
    START
    + """
comments = CommentStore(Path(sys.argv[1]), now=board.now)
for number in range(10):
    comments.put("SYM-1", f"{name} {number}", key="k", comment_id=None)
    comments.add("SYM-1", f"{name} {number}", author="ann")
"""
)
CRASH = (
    START
    + """
import os
from symphony.trackers.markdown import files
Path.replace = lambda self, target: os._exit(9)
Path.hardlink_to = lambda self, target: os._exit(9)
if name == "move":
    board.move("SYM-1", "Done")
else:
    board.create(IssueDraft(title="x", state="Todo"))
"""
)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(BoardConfig(path=tmp_path))


def start(program: str, folder: Path, name: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(folder), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def race(folder: Path, *programs: str) -> list[str]:
    """Start all, let them go at once, and return what each printed."""
    children = [start(program, folder, f"p{index}") for index, program in enumerate(programs)]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    outputs = [child.communicate(timeout=60)[0] for child in children]
    assert [child.returncode for child in children] == [0] * len(children)
    return outputs


def test_two_processes_never_get_the_same_number(board: Board) -> None:
    outputs = race(board.config.path, CREATE, CREATE)
    ids = [issue_id for output in outputs for issue_id in output.split()]
    assert sorted(ids, key=lambda text: int(text[4:])) == [f"SYM-{number}" for number in range(1, 51)]
    snapshot = board.all()
    assert not snapshot.problems
    assert len({issue.title for issue in snapshot.issues}) == 50


@pytest.mark.slow
def test_moves_and_edits_of_several_processes_lose_nothing(board: Board) -> None:
    board.create(IssueDraft(title="x", state="Todo", description="body"))
    race(board.config.path, MOVE, APPEND, MOVE)
    issue = board.find("SYM-1")
    assert issue.state == "Done"
    assert str(issue.description).splitlines() == ["body", *(f"p1 {number}" for number in range(40))]
    names = os.listdir(board.config.path)  # noqa: PTH208 - names, dot files included
    assert sorted(names) == [".sym.number", "SYM-1.md"]


@pytest.mark.slow
def test_two_daemons_keep_one_comment_and_people_s_comments_all_stay(board: Board) -> None:
    board.create(IssueDraft(title="x", state="Todo"))
    race(board.config.path, COMMENT, COMMENT)
    names = [path.name for path in (board.config.path / "SYM-1" / "comments").iterdir()]
    assert len([name for name in names if "-symphony-" in name]) == 1
    assert len([name for name in names if "-ann-" in name]) == 20


@pytest.mark.parametrize("name", ["move", "new"])
def test_a_crash_before_the_rename_leaves_only_a_hidden_file_that_is_cleaned_later(
    board: Board, name: str
) -> None:
    made = board.create(IssueDraft(title="x", state="Todo"))
    before = board.store.path(made.id).read_bytes()
    child = start(CRASH, board.config.path, name)
    child.communicate("go\n", timeout=50)
    assert child.returncode == 9
    (left,) = board.config.path.glob(".symphony-*")
    kept = {left.name, ".sym.number", "SYM-1.md"}
    assert {path.name for path in board.config.path.iterdir()} == kept
    snapshot = board.all()
    assert ([issue.id for issue in snapshot.issues], snapshot.problems) == (["SYM-1"], {})
    assert board.store.path("SYM-1").read_bytes() == before
    long_ago = time.time() - 3_600
    os.utime(left, (long_ago, long_ago))
    board.move("SYM-1", "Done")
    assert not left.exists()
