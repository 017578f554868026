"""`symphony skills import` takes what is fit from a hostile source, and nothing from or to anywhere else.

Whatever stands in the source, what cannot be taken costs one line each, the command ends by itself, and files
are opened below the source and written below `.symphony/skills` alone, plain ones without special modes.
"""

import json
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result

from attack.conftest import Rounds
from harness.project import Project
from symphony.cli.main import main
from symphony.skills import Severity, SkillOptions, load

SKILL = "---\nname: {}\ndescription: d\n---\nbody\n"
SECRET = "SECRET-of-somebody-else"
TERABYTE = 1024**4


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A repository, current, beside a place with a secret that nobody may look at."""
    made = Project(root=tmp_path).create()
    outside = tmp_path / "outside"
    (outside / "skills/stolen").mkdir(parents=True)
    for path in (outside / "secret", outside / "skills/stolen/SKILL.md", outside / "flat.md"):
        path.write_text(SKILL.format("stolen") + SECRET)
    monkeypatch.chdir(made.repo)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return made


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The real paths of all that was opened by a descriptor."""
    paths: list[str] = []
    real = os.open

    def spy(*args: Any, **kwargs: Any) -> int:
        descriptor = real(*args, **kwargs)
        paths.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        return descriptor

    monkeypatch.setattr(os, "open", spy)
    return paths


def run(source: Path, *arguments: str) -> Result:
    done = CliRunner().invoke(main, ["skills", "import", str(source), *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in {0, 1}, done.output
    assert SECRET not in done.output
    assert "\x1b" not in done.output
    return done


def document(source: Path) -> dict[str, Any]:
    done = run(source, "--json")
    if not done.stdout:
        assert "there are no skills in" in done.stderr
        return {"created": [], "skipped": []}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def everything(root: Path) -> dict[str, tuple[int, bytes]]:
    """What there is, without following a link."""
    found = {}
    for directory, folders, files in os.walk(root):
        for path in (Path(directory, name) for name in (*folders, *files)):
            status = path.lstat()
            small = stat.S_ISREG(status.st_mode) and status.st_size < 1024**2
            found[str(path)] = (status.st_mode, path.read_bytes() if small else b"")
    return found


def assert_tame(project: Project) -> None:
    """What was written is plain, holds nothing of anybody else, and is what the loader takes."""
    root = project.repo / ".symphony/skills"
    for path, (mode, data) in everything(root).items():
        assert stat.S_ISDIR(mode) or stat.S_ISREG(mode), path
        assert not mode & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX), path
        assert SECRET.encode() not in data, path
    assert not [one for one in load(project.repo, SkillOptions()).problems if one.severity is Severity.ERROR]


# --- one at a time ---


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # such a path may have few characters
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


def zeros(path: Path) -> None:
    """A device without an end, where this user may make one; else a pipe."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o644, os.makedev(1, 5))
    except PermissionError:
        os.mkfifo(path)


def giant(path: Path) -> None:
    path.touch()
    os.truncate(path, TERABYTE)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def folder(path: Path) -> None:
    path.mkdir()


def out(path: Path) -> None:
    path.symlink_to(path.parents[len(path.parts) - 2] / "etc/passwd")


@pytest.mark.parametrize("where", ["a/SKILL.md", "a/extra", "skills/flat.md", "skills/manifest.yaml"])
@pytest.mark.parametrize("make", [fifo, unix_socket, zeros, giant, loop, folder, out])
def test_what_is_no_plain_file_costs_one_line_and_hides_nothing(
    project: Project, make: Callable[[Path], None], where: str
) -> None:
    source = project.root / "source"
    for name in ("a", "skills/good"):
        (source / name).mkdir(parents=True)
        (source / name / "SKILL.md").write_text(SKILL.format(Path(name).name))
    (source / where).unlink(missing_ok=True)
    make(source / where)
    done = document(source)
    assert "good" in [one["name"] for one in done["created"]]
    assert len(done["skipped"]) <= 1
    assert_tame(project)


@pytest.mark.parametrize(
    "place", [".symphony/skills", "skills", "skills/a", "plugins/p/skills", "x", "skills/x.md"]
)
def test_no_link_leads_out(project: Project, opened: list[str], place: str) -> None:
    source = project.root / "source"
    (source / "kept/good").mkdir(parents=True)
    (source / "kept/good/SKILL.md").write_text(SKILL.format("good"))
    link = source / place
    link.parent.mkdir(parents=True, exist_ok=True)
    outside = project.root / "outside"
    link.symlink_to(outside / "flat.md" if link.suffix else outside / "skills")
    before = everything(outside)
    done = document(source)
    assert [one["name"] for one in done["created"]] == ["good"]
    assert [one["source"] for one in done["skipped"]] == [place]
    assert not [path for path in opened if path.startswith(str(outside))]
    assert everything(outside) == before
    assert_tame(project)


@pytest.mark.slow
def test_thousands_of_folders_cost_one_line(project: Project) -> None:
    source = project.root / "source"
    (source / "a").mkdir(parents=True)
    (source / "a/SKILL.md").write_text(SKILL.format("a"))
    for number in range(10_050):
        (source / f"x{number}").mkdir()
    done = document(source)
    assert [one["name"] for one in done["created"]] == ["a"]
    assert len(done["skipped"]) == 1


def test_many_giants_are_not_read(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is refused by its size: 200 of 32 MiB would be 6 GiB to read."""
    source = project.root / "source"
    for number in range(200):
        path = source / f"s{number}"
        path.mkdir(parents=True)
        (path / "SKILL.md").write_text(SKILL.format(path.name))
        giant(path / "weights")
    read = 0
    real = os.read

    def count(descriptor: int, length: int) -> bytes:
        nonlocal read
        data = real(descriptor, length)
        read += len(data)
        return data

    monkeypatch.setattr(os, "read", count)
    done = document(source)
    assert (len(done["skipped"]), done["created"]) == (200, [])
    assert read < 1024**2


def test_what_is_refused_takes_of_the_room_as_well(project: Project) -> None:
    """Else a source could have 30 MiB read again and again, by a link out behind each."""
    source = project.root / "source"
    for number in range(20):
        path = source / f"s{number:02}"
        path.mkdir(parents=True)
        (path / "SKILL.md").write_text(SKILL.format(path.name))
        (path / "big").touch()
        os.truncate(path / "big", 31 * 1024**2)
        (path / "link").symlink_to("/etc/passwd")
    reasons = [one["reason"] for one in document(source)["skipped"]]
    assert len(reasons) == 20
    assert sum("larger than one import" in reason for reason in reasons) > 10


def test_folders_that_differ_by_their_letters_alone_are_one(project: Project) -> None:
    source = project.root / "source"
    for name in ("straße", "STRASSE", "cafe\u0301", "caf\u00e9", "K\u212a", "kk"):
        (source / name).mkdir(parents=True)
        (source / name / "SKILL.md").write_text(SKILL.format("x") + name)
    done = document(source)
    assert len({one["path"] for one in done["created"]}) == len(done["created"]) <= 3


def test_special_modes_stay_behind(project: Project) -> None:
    source = project.root / "source/a"
    source.mkdir(parents=True)
    (source / "SKILL.md").write_text(SKILL.format("a"))
    (source / "run").write_text("x")
    (source / "run").chmod(0o6755)
    source.chmod(0o7777)
    assert [one["name"] for one in document(source.parent)["created"]] == ["a"]
    mode = (project.repo / ".symphony/skills/a/run").stat().st_mode
    assert mode & stat.S_IXUSR
    assert_tame(project)


# --- whole trees by chance ---

NAMES = (
    "a",
    "A",
    "b",
    "skills",
    "plugins",
    ".claude",
    ".git",
    "node_modules",
    "SKILL.md",
    "skill.md",
    "x.md",
    "manifest.yaml",
    "-rf",
    "...",
    "a b ",
    "new\nline",
    "\x1b[2J",
    "\udcff\udcfe",
    "~",
    "$HOME",
    "%2e%2e",
    "cafe\u0301",
    "caf\u00e9",
    "n" * 255,
)
TEXTS = (
    SKILL.format("a"),
    SKILL.format("../../escape"),
    SKILL.format("b") + "x" * 100_000,
    '---\nname: "\\e[2J"\ndescription: d\n---\n',
    "---\nname: [\n---\n",
    "---\nname: &a [*a]\n---\n",
    "Bare.\n",
    "",
    "\x00" * 50,
    'version: "1"\nskills: [{name: ../x, file: ../../outside/flat.md}, {file: a/SKILL.md, priority: 1}]\n',
    'version: "1"\nskills: [{name: "x", file: "x.md", phases: [T]}, {file: /etc/passwd}]\n',
)


class Builder:
    """Grows a hostile tree, and counts what stands in it."""

    def __init__(self, random: Random, source: Path, outside: Path) -> None:
        self._random = random
        self._outside = outside
        self._source = source
        self.things = 0

    def grow(self, folder: Path, depth: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(self._random.randrange(1, 7)):
            path = folder / self._random.choice(NAMES)
            if not os.path.lexists(path):
                self.things += 1
                with suppress(OSError):  # the whole path is too long
                    self._put(path, depth)

    def _put(self, path: Path, depth: int) -> None:
        random = self._random
        match random.randrange(9):
            case 0 | 1 | 2 if depth < 8:
                path.mkdir()
                self.grow(path, depth + 1)
            case 3:
                path.symlink_to(
                    random.choice(("..", ".", "a", "../a", "SKILL.md", str(self._source), "gone"))
                )
            case 4:
                out = random.choice(("", "secret", "skills", "skills/stolen", "flat.md"))
                path.symlink_to(self._outside / out)
            case 5:
                random.choice((fifo, giant, zeros, loop))(path)
            case _:
                text = random.choice(TEXTS)
                self.things += text.count(
                    "file:"
                )  # a manifest may cost a line for each file that is not there
                path.write_text(text)
                path.chmod(random.choice((0o644, 0o755, 0o6777, 0o000)))


def test_no_tree_makes_it_read_or_write_elsewhere(
    project: Project, opened: list[str], rounds: Rounds
) -> None:
    outside = project.root / "outside"
    before = everything(outside)
    for number, random in enumerate(rounds(10)):
        source = project.root / f"source{number}"
        builder = Builder(random, source, outside)
        builder.grow(source)
        beside = {path.name for path in project.root.iterdir()} | {"home"}
        opened.clear()
        done = document(source)
        assert len(done["skipped"]) <= builder.things
        assert not [path for path in opened if path.startswith(str(outside))]
        assert everything(outside) == before
        assert {path.name for path in project.root.iterdir()} <= beside
        assert_tame(project)
