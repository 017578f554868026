"""What processes of their own do with one library file; `multiprocessing` starts them."""

import os
import sqlite3
import threading
import traceback
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path

from msgspec import structs

from symphony.library.model import Authorship, SkillText, StaleVersionError
from symphony.library.store import Library, check

__all__ = ["be_a_command", "be_a_daemon", "names_in", "write_versions"]

ADA = Authorship(author="ada")
BUSY_S = 60.0
WRITERS, READERS = 2, 2


def write_versions(path: Path, writer: int, count: int) -> list[int]:
    """Make so many versions of the only skill, each on top of the newest; their numbers."""
    library = Library(path)
    made: list[int] = []
    (head,) = library.skills()
    while len(made) < count:
        present = library.skill(head.name)
        text = structs.replace(present.text, content=f"By {writer}: {len(made)}\n")
        change = Authorship(author=f"writer-{writer}")
        try:
            made.append(library.edit(text, change, base_version=present.version).version)
        except StaleVersionError:
            continue  # another one was first
    return made


def be_a_daemon(path: Path, who: str, kept: Path) -> None:
    """Add skills in some threads, and read, check, copy and checkpoint in others, until it is killed.

    The names of kept skills are lines of the file `kept`. A failure of any thread ends the process with 1.
    """
    Library(path, busy_s=BUSY_S).skills()
    jobs = [
        *(_adding(path, f"{who}-{one}", kept) for one in range(WRITERS)),
        *[partial(Library(path).skills)] * READERS,
        partial(check, path),
        partial(_checkpoint, path),
        _copying(path, who, kept),
    ]
    for job in jobs:
        threading.Thread(target=_again_and_again, args=(job,)).start()


def be_a_command(path: Path, who: str, kept: Path) -> None:
    """As `be_a_daemon`, with one thread that opens, adds and closes."""
    _again_and_again(_adding(path, who, kept))


def names_in(kept: Path) -> set[str]:
    """The names of the skills that were answered as kept so far."""
    return set(kept.read_text().split("\n")[:-1])


def _again_and_again(job: Callable[[], object]) -> None:
    try:
        while True:
            job()
    except BaseException:  # noqa: BLE001 - the process ends with it, as a whole
        traceback.print_exc()
        os._exit(1)


def _adding(path: Path, who: str, kept: Path) -> Callable[[], object]:
    library, numbers = Library(path, busy_s=BUSY_S), count()

    def add() -> None:
        name = f"{who}-{next(numbers)}"
        library.add(SkillText(name=name, description="Style.", when_to_use="", content="Be brief.\n"), ADA)
        with kept.open("a") as lines:
            lines.write(f"{name}\n")

    return add


def _copying(path: Path, who: str, kept: Path) -> Callable[[], object]:
    library, copy = Library(path, busy_s=BUSY_S), path.with_name(f"backup-{who}")

    def back_up() -> None:
        before = names_in(kept)
        library.backup(copy)
        missing = before - {one.name for one in Library(copy).skills()}
        assert not missing, missing
        copy.unlink()

    return back_up


def _checkpoint(path: Path) -> None:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=BUSY_S)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
