import stat
from pathlib import Path

import pytest

from symphony.daemon.state_dir import TOKEN_VARIABLE, StateDirectory, operator_token
from symphony.domain import Blame, Category, SymphonyError

GOOD = "0123456789abcdef"


@pytest.fixture
def state_dir(tmp_path: Path) -> StateDirectory:
    directory = StateDirectory(tmp_path / "state")
    directory.create()
    return directory


def refused(state_dir: StateDirectory, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(SymphonyError) as error:
        operator_token(state_dir, environment or {})
    failure = error.value.failure
    assert (failure.category, failure.blame) == (Category.HTTP_SERVER, Blame.CONFIG)
    assert failure.hint
    return failure.message


def test_a_token_is_made_once_for_this_user_alone(state_dir: StateDirectory) -> None:
    token = operator_token(state_dir, {})
    path = state_dir.path / "operator.token"
    assert len(token) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert operator_token(state_dir, {}) == token


def test_the_environment_wins_and_nothing_is_written(state_dir: StateDirectory) -> None:
    assert operator_token(state_dir, {TOKEN_VARIABLE: f" {GOOD}\n"}) == GOOD
    assert not (state_dir.path / "operator.token").exists()


@pytest.mark.parametrize("given", ["", "short", "a token with blanks in it", "ünicode-is-not-a-token"])
def test_what_protects_nothing_is_refused_and_not_shown(state_dir: StateDirectory, given: str) -> None:
    message = refused(state_dir, {TOKEN_VARIABLE: given})
    assert given == "" or given not in message


def test_a_file_that_others_can_read_is_refused(state_dir: StateDirectory) -> None:
    path = state_dir.path / "operator.token"
    path.write_text(GOOD)
    path.chmod(0o644)
    assert "others" in refused(state_dir)
    path.chmod(0o600)
    assert operator_token(state_dir, {}) == GOOD


def test_a_link_or_a_directory_in_its_place_is_refused(state_dir: StateDirectory, tmp_path: Path) -> None:
    path = state_dir.path / "operator.token"
    (tmp_path / "elsewhere").write_text(GOOD)
    path.symlink_to(tmp_path / "elsewhere")
    refused(state_dir)
    path.unlink()
    path.mkdir(mode=0o700)
    refused(state_dir)


def test_bytes_that_are_no_text_are_refused(state_dir: StateDirectory) -> None:
    path = state_dir.path / "operator.token"
    path.write_bytes(b"\xff" * 32)
    path.chmod(0o600)
    refused(state_dir)


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    assert "written" in refused(StateDirectory(tmp_path / "absent" / "state"))
