"""Places for commands: a state directory beside no daemon, and no workspaces of others."""

from pathlib import Path

import pytest

from symphony.daemon.state_dir import JOURNAL_FILE, StateDirectory


@pytest.fixture(autouse=True)
def no_workspaces_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are below the temporary directory by default, and the numbers of their issues count as used."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state directory of the current directory."""
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    StateDirectory(tmp_path / "state").create()
    return tmp_path / "state"


@pytest.fixture
def journal(state: Path) -> Path:
    """Where its journal is."""
    return state / JOURNAL_FILE
