import json
from pathlib import Path

import pytest

from symphony.daemon.state_dir import KNOWN_FOLDER, parse_known_state_dir, register_state_dir


def _known(home: Path) -> list[Path]:
    """The places that are remembered below this home."""
    files = (home / "symphony" / KNOWN_FOLDER).glob("*.json")
    return sorted(Path(json.loads(file.read_text())["state_dir"]) for file in files)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "home")}


def test_a_place_of_its_own_is_remembered_once(tmp_path: Path, environment: dict[str, str]) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    register_state_dir(place, environment)
    (file,) = (tmp_path / "home" / "symphony" / KNOWN_FOLDER).iterdir()
    before = file.stat().st_mtime_ns
    register_state_dir(place, environment)
    assert _known(tmp_path / "home") == [place]
    assert file.stat().st_mtime_ns == before


def test_a_place_that_is_found_by_listing_needs_no_word(tmp_path: Path, environment: dict[str, str]) -> None:
    register_state_dir(tmp_path / "home" / "symphony" / "app-0123456789ab", environment)
    register_state_dir(Path("/var/lib/symphony/app"), environment)
    assert _known(tmp_path / "home") == []


def test_what_is_gone_is_forgotten_and_what_is_not_ours_stays(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    gone, stays = tmp_path / "gone", tmp_path / "stays"
    gone.mkdir()
    stays.mkdir()
    register_state_dir(gone, environment)
    gone.rmdir()
    folder = tmp_path / "home" / "symphony" / KNOWN_FOLDER
    (folder / "mine.json").write_text("[my notes]")
    (folder / "folder.json").mkdir()
    register_state_dir(stays, environment)
    (folder / "folder.json").rmdir()
    assert (folder / "mine.json").read_text() == "[my notes]"
    (folder / "mine.json").unlink()
    assert _known(tmp_path / "home") == [stays]


def test_a_place_that_cannot_be_looked_at_stays_and_keeps_no_other_from_being_remembered(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = tmp_path / "home" / "symphony" / KNOWN_FOLDER
    folder.mkdir(parents=True)
    unseen = "/" + "x" * 300  # no file system has such names, so the kernel refuses to look
    (folder / "unseen.json").write_text(json.dumps({"state_dir": unseen}))
    place = tmp_path / "elsewhere"
    place.mkdir()
    register_state_dir(place, environment)
    assert _known(tmp_path / "home") == sorted([Path(unseen), place])


def test_a_home_that_cannot_be_written_holds_nothing_up(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    register_state_dir(tmp_path / "state", {"XDG_STATE_HOME": str(tmp_path / "file")})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b"7",
        b'{"state_dir": 7}',
        b'{"state_dir": "a"}',
        b'{"state_dir": "/a\\u0000"}',
        b"[" * 9_999,
    ],
)
def test_what_names_no_place_is_no_place(content: bytes) -> None:
    assert parse_known_state_dir(content) is None


def test_the_place_that_is_named() -> None:
    assert parse_known_state_dir(b'{"state_dir": "/var/x"}') == Path("/var/x")
