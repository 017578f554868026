"""Promise: a library that cannot be used is told with a hint, loses nothing, and holds back no work."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.ordinary import ordinary_user
from harness.project import Daemon, Project, until
from symphony.library.model import Authorship, SkillText
from symphony.library.store import LIBRARY_FILE, VERSION, Library

STYLE = SkillText(name="style", description="How to commit.", when_to_use="Always.", content="Be brief.\n")
BETTER = "Run the tests before you commit."
WORK: list[dict[str, Any]] = [
    {"write": "work.txt", "text": "work\n"},
    {"commit": "Work"},
    {"tool": "board_move", "arguments": {"state": "Done"}},
]
LESSON = [[{"append": "skills/style/SKILL.md", "text": f"{BETTER}\n"}]]
Spoil = Callable[[Path], Iterator[None]]


def damaged(path: Path) -> Iterator[None]:
    """The first page is overwritten; a person restores a backup."""
    data = path.read_bytes()
    path.write_bytes(b"no database at all" * 300)
    yield
    path.write_bytes(data)


def newer(path: Path) -> Iterator[None]:
    def set_version(number: int) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {number}")

    set_version(VERSION + 1)
    yield
    set_version(VERSION)


def locked(path: Path) -> Iterator[None]:
    """Another process reads and writes it alone."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        yield


def read_only(path: Path) -> Iterator[None]:
    path.chmod(0o400)
    yield
    for file in path.parent.glob(f"{path.name}*"):  # SQLite gives the files beside it the same mode
        file.chmod(0o600)


@contextmanager
def spoilt(path: Path, how: Spoil) -> Iterator[None]:
    """The library cannot be used in the block, and can be used after it as before."""
    steps = how(path)
    next(steps)
    yield
    next(steps, None)


@pytest.fixture
def ordinary_project() -> Iterator[Project]:
    """A project in which the modes of files mean something, for its daemon too."""
    with ordinary_user() as place:
        # Any variable of Python makes the daemon a child of this thread, so that it has its rights.
        yield Project(root=place, environment={"PYTHONUTF8": "1"}).create()


def rate(project: Project, comment: str = "") -> tuple[int, str]:
    text = f"{BETTER}\n\n```scripted\n{json.dumps(LESSON)}\n```\n" if comment else ""
    done = project.symphony("feedback", "SYM-1", "--stars", "2", "--comment", text)
    return done.returncode, done.stderr


def finished(project: Project, daemon: Daemon, name: str) -> None:
    until(lambda: project.written_state(name) == "Done" or None, daemon.log.read_text)
    assert daemon.wait_for("run_ended", issue_identifier=name)["outcome"] == "succeeded"


def holds_back_nothing(project: Project, how: Spoil) -> None:
    library = Library(project.state_dir / LIBRARY_FILE)
    library.add(STYLE, Authorship(author="ada"))
    project.workflow()
    project.issue("SYM-1", WORK)
    with spoilt(library.path, how), project.daemon() as daemon:
        finished(project, daemon, "SYM-1")
        if how is not read_only:
            assert daemon.wait_for("library_unavailable", issue_identifier="SYM-1")["hint"]
        code, told = rate(project)
        assert (code, "hint:" in told) == (1, True)
        shown = json.loads(project.symphony("explain", "SYM-1", "--json").stdout)
        assert shown["feedback"] == [], "what is not stored is not shown"
    assert [one.text for one in library.history("style")] == [STYLE]
    with project.daemon() as daemon:
        project.issue("SYM-2", [{"skill": "style"}, *WORK])
        finished(project, daemon, "SYM-2")
        assert daemon.wait_for("library_skills_written", issue_identifier="SYM-2")["versions"] == {"style": 1}
        assert rate(project, BETTER) == (0, "")
        daemon.wait_for("learning_ended", issue_identifier="SYM-1")
    (proposal,) = library.proposals()
    assert proposal.text.content == f"Be brief.\n{BETTER}\n"


@pytest.mark.parametrize("how", [damaged, newer, locked])
def test_a_library_that_cannot_be_used_holds_back_no_work(project: Project, how: Spoil) -> None:
    holds_back_nothing(project, how)


@pytest.mark.slow
def test_a_library_that_cannot_be_written_holds_back_no_work(ordinary_project: Project) -> None:
    holds_back_nothing(ordinary_project, read_only)


@pytest.mark.slow
def test_an_agent_that_deletes_and_floods_skills_changes_nothing(project: Project) -> None:
    library = Library(project.state_dir / LIBRARY_FILE)
    library.add(STYLE, Authorship(author="ada"))
    project.workflow()
    flood = (
        "rm -r .agents/skills/style && for i in $(seq 1000); do "
        "printf 'Flood %s.\\n' $i > .agents/skills/flood-$i.md; done"
    )
    project.issue("SYM-1", [*WORK[:2], {"run": flood}, WORK[2]])
    with project.daemon() as daemon:
        finished(project, daemon, "SYM-1")
        assert daemon.wait_for("skills_sync_failed", issue_identifier="SYM-1")["reason"]
        project.issue("SYM-2", [{"skill": "style"}, *WORK])
        finished(project, daemon, "SYM-2")
        assert (project.workspaces / "SYM-2/.agents/skills/style/SKILL.md").exists()
    assert library.proposals(state=None) == ()
    assert [(one.name, one.version) for one in library.skills()] == [("style", 1)]
