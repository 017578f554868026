import json
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from symphony.cli.commands import status
from symphony.cli.commands.status import (
    StateDirectories,
    find_state_directories,
    list_daemons,
    user_name,
)
from symphony.cli.documents import Daemons, SkippedDirectory

OTHER = os.geteuid() + 1


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where state directories are made; nothing of this machine is looked at."""
    monkeypatch.setattr(status, "SYSTEM_STATE_HOMES", (tmp_path / "host", tmp_path / "private"))
    monkeypatch.setattr(pwd, "getpwall", list)
    path = tmp_path / "symphony"
    path.mkdir()
    return path


def found(homes: Path, **environment: str) -> tuple[list[str], dict[str, str]]:
    directories = find_state_directories({"XDG_STATE_HOME": str(homes.parent), **environment})
    return sorted(path.name for path in directories.found), reasons(directories)


def reasons(directories: StateDirectories) -> dict[str, str]:
    return {path.name: reason for path, reason in directories.skipped.items()}


def test_each_place_counts_once_wherever_it_is_named(homes: Path, tmp_path: Path) -> None:
    (homes / "a").mkdir()
    (homes / "known").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name, place in (("1", homes / "a"), ("2", elsewhere)):
        (homes / "known" / f"{name}.json").write_text(json.dumps({"state_dir": str(place)}))
    (tmp_path / "host" / "service").mkdir(parents=True)
    assert found(homes, SYMPHONY_STATE_DIR=str(elsewhere)) == (["a", "elsewhere", "service"], {})


def test_a_user_is_not_asked_for_what_others_own(
    homes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "host" / "service").mkdir(parents=True)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    mine = user_name(homes.stat().st_uid)
    assert found(homes) == ([], {"service": f"only {mine} and root can ask there"})


def test_root_looks_below_every_home(homes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "ann" / ".local" / "state" / "symphony" / "app"
    below.mkdir(parents=True)
    users = [
        SimpleNamespace(pw_dir=str(tmp_path / "ann"), pw_uid=below.stat().st_uid),
        SimpleNamespace(pw_dir=str(tmp_path / "nobody"), pw_uid=OTHER),
        SimpleNamespace(pw_dir="relative", pw_uid=OTHER),
    ]
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert found(homes)[0] == ["app"]


def test_a_large_directory_is_cut_and_said_to_be(homes: Path) -> None:
    for name in "abc":
        (homes / name).mkdir()
    directories = find_state_directories({"XDG_STATE_HOME": str(homes.parent)}, max_entries=2)
    assert len(directories.found) == 2
    assert reasons(directories) == {"symphony": "there are more than 2 entries, and the rest is left out"}


def test_what_cannot_be_looked_at_is_named(homes: Path) -> None:
    directories = StateDirectories()
    directories.add(homes / ("x" * 300), None)
    assert list(directories.skipped.values()) == ["File name too long"]
    homes.rmdir()
    homes.symlink_to(homes.name)
    assert found(homes)[1]["symphony"] == "Too many levels of symbolic links"


def test_a_place_whose_files_cannot_be_read_is_named(homes: Path) -> None:
    (homes / "a").mkdir()
    (homes / "a" / "control.json").symlink_to("control.json")
    found = list_daemons({"XDG_STATE_HOME": str(homes.parent)})
    skipped = SkippedDirectory(path=str(homes / "a"), reason="Too many levels of symbolic links")
    assert found == Daemons(daemons=(), skipped=(skipped,))


def test_a_user_without_a_name_is_a_number() -> None:
    assert user_name(0) == "root"
    assert user_name(4_000_000_000) == "uid 4000000000"
