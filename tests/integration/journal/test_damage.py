"""Whatever happened to the bytes of a journal, a start gets one that works, and nothing is raised."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.journalling import NOW, claim, comment, event, full_claim, opened, run, skills
from harness.nightly import NIGHTLY
from symphony.journal.model import ClaimRecord, DayRecord, HealthState, SettingRecord, SkillUse, UnusableError
from symphony.journal.reader import checkup, open_reader

FILES = ("journal.db", "journal.db-wal", "journal.db-shm")


@pytest.fixture(scope="module")
def sound() -> Iterator[Path]:
    """A journal as a killed daemon leaves it: half in the main file, half in the log."""

    async def write(place: Path) -> None:
        journal = await opened(place / "live" / "journal.db")
        journal.put(full_claim(), claim(1), *(run(number) for number in range(30)), comment())
        journal.put(*(event(number, message="m" * 300) for number in range(200)))
        await journal.close()
        journal = await opened(place / "live" / "journal.db")
        journal.put(claim(2), *(run(number, ended_wall_ms=NOW) for number in range(20)))
        journal.put(skills(1, SkillUse(name="a", path="/a", sha256="1", listed=True)))
        journal.put(DayRecord(day="2026-01-01", tokens=1), SettingRecord(name="paused", value="true"))
        await journal.flush()
        await asyncio.to_thread(shutil.copytree, place / "live", place / "killed")
        await journal.close()

    with tempfile.TemporaryDirectory() as place:
        asyncio.run(write(Path(place)))
        yield Path(place) / "killed"


async def used(path: Path) -> tuple[HealthState, tuple[ClaimRecord, ...]]:
    """A start, one more claim, and an end; then what the next start knows."""
    first = await opened(path)
    first.put(claim(7), event(1))
    await first.flush()
    await first.close()
    second = await opened(path)
    remembered = second.recovered_state
    await second.close()
    return second.health.state, remembered.claims


def look(path: Path) -> None:
    checkup(path)
    try:
        with open_reader(path) as reader:
            reader.runs()
            reader.claims()
            reader.events("SYM-1")
            reader.comments()
            reader.skills_report()
    except UnusableError as error:
        assert error.failure.hint  # noqa: PT017 - a reader may refuse, with a hint


def test_an_undamaged_copy_is_whole(sound: Path, tmp_path: Path) -> None:
    shutil.copytree(sound, tmp_path / "copy")
    state, claims = asyncio.run(used(tmp_path / "copy" / "journal.db"))
    assert state is HealthState.OK
    assert claims == (claim(1), claim(2), claim(7), full_claim())


@settings(max_examples=120 if NIGHTLY else 40)
@given(data=st.data())
def test_no_damage_stops_a_start(sound: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "copy"
        shutil.copytree(sound, place)
        for _ in range(data.draw(st.integers(1, 3))):
            damage(place / data.draw(st.sampled_from(FILES)), data)
        look(place / "journal.db")
        state, claims = asyncio.run(used(place / "journal.db"))
        if state is HealthState.OK:
            assert claim(7) in claims
        else:
            assert (place / "journal.db").read_bytes(), "what is not ours by its header is left alone"


def test_bytes_that_are_no_text_in_the_words_of_an_error_are_damage(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    content = bytearray((sound / "journal.db").read_bytes())
    place = content.index(b"CREATE TABLE days")
    content[place : place + 6] = b"\xce" * 6
    path.write_bytes(bytes(content))
    found = checkup(path)
    assert found.failure is not None
    assert "damaged" in found.failure.message
    assert asyncio.run(used(path)) == (HealthState.OK, (claim(7),))


def damage(file: Path, data: st.DataObject) -> None:
    if not file.exists():
        return
    content = bytearray(file.read_bytes())
    kind = data.draw(st.sampled_from(["flip", "early", "cut", "zero", "remove"]))
    place = data.draw(st.integers(0, max(len(content) - 1, 0)))
    match kind:
        case "remove":
            file.unlink()
            return
        case "cut":
            del content[place:]
        case "zero":
            content[place : place + 2_000] = bytes(len(content[place : place + 2_000]))
        case "early" if content:
            content[place % min(len(content), 200)] ^= 1 << data.draw(st.integers(0, 7))
        case "flip" if content:
            content[place] ^= 1 << data.draw(st.integers(0, 7))
        case _:
            pass
    file.write_bytes(bytes(content))
