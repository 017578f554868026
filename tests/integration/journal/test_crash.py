"""Killed at any moment, a journal holds a beginning of what was put, and never half a put."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from harness.journalling import opened
from symphony.journal.model import HealthState, RecoveredState
from symphony.journal.reader import open_reader


def counted_until_killed(path: Path, first: int, lines: int) -> int:
    """The last number that the child said was flushed before it was killed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "harness.journal_child", "count", str(path), str(first)]
    with (
        commands_that_read(path),
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child,
    ):
        assert child.stdout is not None
        flushed = first
        for _ in range(lines):
            flushed = json.loads(child.stdout.readline())["flushed"]
        child.kill()
        for line in child.stdout:
            flushed = json.loads(line)["flushed"] if line.endswith("\n") else flushed
    return flushed


@contextmanager
def commands_that_read(path: Path) -> Iterator[None]:
    """Another process opens, checks and closes the file again and again."""
    program = "import sys; from pathlib import Path; from symphony.journal.reader import checkup\n"
    loop = "while True: checkup(Path(sys.argv[1]))"
    with subprocess.Popen([sys.executable, "-c", program + loop, str(path)]) as process:
        yield
        process.kill()


async def remembered(path: Path) -> RecoveredState:
    journal = await opened(path)
    assert journal.health.state is HealthState.OK
    assert journal.take_notices() == ()
    found = journal.recovered_state
    await journal.close()
    return found


@pytest.mark.parametrize(
    "kills", [(1, 5), pytest.param((1, 2, 5, 9, 3, 20), marks=pytest.mark.slow)], ids=len
)
def test_a_kill_leaves_a_beginning_of_whole_puts(tmp_path: Path, kills: Sequence[int]) -> None:
    """The child is killed each time after it said that many times what is flushed."""
    path = tmp_path / "journal.db"
    first = 1
    for lines in kills:
        flushed = counted_until_killed(path, first, lines)
        with open_reader(path) as reader:
            last = reader.latest_events("SYM-1", limit=1)[0].event.message
        found = asyncio.run(remembered(path))
        number = int(found.settings["a"])
        assert number >= flushed, "what was flushed is there"
        assert found.claims[0].claim.attempt == number, "a put is whole"
        assert last == f"message {number}"
        assert number - int(found.settings["b"]) in {0, 1}, "the puts are a beginning of all puts"
        first = number + 1
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
