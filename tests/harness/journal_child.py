"""A process with a journal, for tests that kill it, limit it, or put it on a disk of its own.

python -m harness.journal_child count PATH FIRST    put numbered things for ever, say what is flushed
python -m harness.journal_child limited PATH        run into a file size limit, and out of it again
python -m harness.journal_child full PATH           the same with a file system that is full
python -m harness.journal_child readonly PATH       a file system that cannot be written any more
"""

import asyncio
import json
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.journalling import claim, event, opened, run
from symphony.journal.model import HealthState, SettingRecord
from symphony.journal.reader import checkup, open_reader
from symphony.journal.store import Journal


def _say(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


async def count(path: Path, number: int) -> None:
    journal = await opened(path)
    for look in (_read, checkup):  # as the API, the page and doctor do, in threads of the daemon
        threading.Thread(target=_again_and_again, args=(look, path), daemon=True).start()
    while True:
        journal.put(event(number), SettingRecord(name="a", value=str(number)), claim(1, attempt=number))
        journal.put(SettingRecord(name="b", value=str(number)))
        if number % 7 == 0:
            await journal.flush()
            _say(flushed=number)
        number += 1


def _again_and_again(look: Callable[[Path], object], path: Path) -> None:
    while True:
        look(path)


def _read(path: Path) -> None:
    with open_reader(path) as reader:
        reader.latest_events("SYM-1", limit=1)


async def limited(path: Path) -> None:
    journal = await opened(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
    await _until_memory(journal)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await _back(journal, path)


async def full(path: Path) -> None:
    journal = await opened(path)
    filler = path.with_name("filler")
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4_096))
        except OSError:
            pass
    await _until_memory(journal)
    filler.unlink()
    await _back(journal, path)


async def _until_memory(journal: Journal) -> None:
    journal.put(claim(1), run(1))
    await journal.flush()
    for number in range(400):
        journal.put(event(number, run_id=f"r-{number // 100}", message="x" * 2_000))
        await journal.flush()
        if journal.health.state is HealthState.MEMORY:
            break
    failure = journal.health.failure
    journal.put(claim(2), event(9_999))
    _say(state=journal.health.state, message=failure and failure.message, hint=failure and failure.hint)


async def _back(journal: Journal, path: Path) -> None:
    await journal.flush()
    state = journal.health.state
    await journal.close()
    again = await opened(path)
    remembered = again.recovered_state
    await again.close()
    with open_reader(path) as reader:
        last = reader.latest_events("SYM-1", limit=1)[0].event.message
    _say(
        state=state,
        notices=[failure.message for failure in again.take_notices()],
        claims=[held.claim.issue.id for held in remembered.claims],
        live=[held.run_id for held in remembered.live_runs],
        last=last,
    )


async def readonly(path: Path) -> None:
    journal = await opened(path)
    journal.put(claim(1), event(1))
    await journal.close()
    subprocess.run(["mount", "-o", "remount,bind,ro", str(path.parent)], check=True)  # noqa: ASYNC221 - as above
    with open_reader(path) as reader:
        _say(claims=[held.claim.issue.id for held in reader.claims()])
    journal = await opened(path)
    failure = journal.health.failure
    _say(state=journal.health.state, message=failure and failure.message)
    journal.put(claim(2))
    await journal.flush()
    await journal.close()


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    if what == "count":
        asyncio.run(count(Path(place), int(rest[0])))
    else:
        asyncio.run({"limited": limited, "full": full, "readonly": readonly}[what](Path(place)))
