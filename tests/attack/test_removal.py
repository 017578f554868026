"""Removing a workspace touches nothing outside of it, whatever is in it or is renamed and linked meanwhile.

The agent's process has no sandbox here, so it could delete by itself what is outside; what counts is that the
daemon does not do it.
"""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from harness.ordinary import ordinary_user
from symphony.workspaces import Layout, delete_old_entries, delete_tree, discard

Rounds = Callable[..., Iterator[Random]]

_RACER = """
import os, sys
bait, tree, *places = sys.argv[1:]
os.chdir(tree)
print("here", flush=True)
number = 0
while True:
    for place in places:
        try:
            entries = [entry.name for entry in os.scandir(place) if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        for name in entries:
            number += 1
            try:
                if not name.startswith("stolen"):
                    os.rename(f"{place}/{name}", f"{place}/stolen{number}")
                    os.symlink(bait, f"{place}/{name}")
            except OSError:
                pass
"""

_ODD_NAMES = [b"-rf", b" ", b"a\nb", b"\xff\xfe", b"*", b"x" * 255, "\u202e".encode(), b".git", b"..."]


@pytest.fixture
def place() -> Iterator[Path]:
    with ordinary_user() as made:
        yield made


@pytest.fixture
def bait(place: Path) -> Path:
    """A directory of this user's outside of every workspace."""
    top = place / "bait"
    for folder in (top, top / "sub", top / "sub" / "closed"):
        folder.mkdir()
    for number in range(20):
        (top / f"file{number}").write_text(f"precious {number}")
        (top / "sub" / f"file{number}").write_text(f"precious {number}")
    (top / "file0").chmod(0o400)
    (top / "sub" / "closed").chmod(0o500)
    top.chmod(0o750)
    return top


def _seen(top: Path) -> dict[str, tuple[int, bytes | None]]:
    """Each entry with its mode and content."""
    found = sorted([top, *top.rglob("*")])
    return {
        str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else None) for path in found
    }


@contextmanager
def _racer(bait: Path, tree: Path, *places: str) -> Iterator[None]:
    """A process that goes with the tree and puts links to the bait where directories are in these places."""
    racer = subprocess.Popen([sys.executable, "-c", _RACER, bait, tree, *places], stdout=subprocess.PIPE)
    try:
        assert racer.stdout is not None
        assert racer.stdout.readline()
        yield
    finally:
        racer.kill()
        racer.communicate()


def _grow(random: Random, top: Path, bait: Path) -> None:
    """An agent's tree: of everything that a file system knows, and of any mode."""
    folders, closed = [top], []
    top.mkdir()
    for number in range(random.randrange(5, 60)):
        name = random.choice(_ODD_NAMES) if random.random() < 0.3 else b"e%d" % number
        path = random.choice(folders) / os.fsdecode(name)
        with suppress(FileExistsError):
            if random.random() < 0.3:
                path.mkdir()
                folders.append(path)
                closed += [path] * (random.random() < 0.4)
            else:
                _put(random, path, bait)
    if random.random() < 0.3:
        _nest(top, random.randrange(1, 400))
    for path in reversed(closed):
        path.chmod(random.choice([0, 0o100, 0o200, 0o400, 0o500, 0o555]))


def _put(random: Random, path: Path, bait: Path) -> None:
    match random.randrange(6):
        case 0:
            path.symlink_to(random.choice([bait, bait / "sub", Path(".."), Path("nowhere"), Path("/")]))
        case 1:
            os.mkfifo(path, 0)
        case 2:
            os.mknod(path, stat.S_IFSOCK | 0o600)
        case 3:
            path.hardlink_to(bait / "file1")
        case 4:
            path.touch(exist_ok=False)
            os.truncate(path, 1 << 40)
        case _:
            path.touch(random.choice([0, 0o400, 0o777]), exist_ok=False)


def _nest(top: Path, levels: int) -> None:
    """Directories in each other, deeper than a path may be long."""
    inner = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("deep", dir_fd=inner)
        outer, inner = inner, os.open("deep", os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)


def test_links_put_in_the_place_of_directories_lead_nowhere(place: Path, bait: Path) -> None:
    before = _seen(bait)
    for number in range(3):
        tree = place / f"trash{number}" / "tree"
        for folder in range(150):
            (tree / f"d{folder}" / "in" / "side").mkdir(parents=True)
        with _racer(bait, tree, ".", ".."), suppress(OSError):
            delete_tree(tree)
        assert _seen(bait) == before

    for trash in place.glob("trash*"):
        delete_tree(trash)

    assert [path.name for path in place.iterdir()] == ["bait"]
    assert _seen(bait) == before


def test_any_tree_goes_and_nothing_else(rounds: Rounds, place: Path, bait: Path) -> None:
    before = _seen(bait)
    for random in rounds():
        tree = Path(tempfile.mkdtemp(dir=place)) / "tree"
        _grow(random, tree, bait)

        delete_tree(tree)

        assert list(tree.parent.iterdir()) == []
        assert _seen(bait) == before


def test_any_workspace_is_discarded_while_its_agent_goes_on(rounds: Rounds, place: Path, bait: Path) -> None:
    before = _seen(bait)
    for random in rounds(8):
        layout = Layout(Path(tempfile.mkdtemp(dir=place)))
        workspace = layout.workspace("MT-1")
        _grow(random, workspace, bait)
        neighbour = layout.workspace("MT-2")
        neighbour.mkdir()
        (neighbour / "work").write_text("work")

        workspace.chmod(0o700)
        with _racer(bait, workspace, "."):
            discard(layout, workspace)
        delete_old_entries(layout.trash, older_than_s=0)

        assert list(layout.trash.iterdir()) == []
        assert (neighbour / "work").read_text() == "work"
        assert _seen(bait) == before


@pytest.mark.parametrize("mode", [0, 0o200, 0o400, 0o500])
def test_a_workspace_that_its_agent_closed_goes_too(place: Path, mode: int) -> None:
    layout = Layout(place)
    workspace = layout.workspace("MT-1")
    (workspace / "in" / "side").mkdir(parents=True)
    (workspace / "in" / "side" / "file").write_text("x")
    for folder in (workspace / "in" / "side", workspace / "in", workspace):
        folder.chmod(mode)

    discard(layout, workspace)

    assert not workspace.exists()
    assert list(layout.trash.iterdir()) == []


@pytest.mark.slow
def test_a_very_deep_tree_costs_no_descriptors() -> None:
    """Deeper than paths, stacks and descriptors go; in memory, where many directories take little time."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        _nest(tree, 20_000)

        subprocess.run([sys.executable, "-c", _WITH_FEW_DESCRIPTORS, tree], check=True)

        assert list(Path(folder).iterdir()) == []


_WITH_FEW_DESCRIPTORS = """
import resource, sys
from pathlib import Path
from symphony.workspaces import delete_tree
resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
delete_tree(Path(sys.argv[1]))
"""
