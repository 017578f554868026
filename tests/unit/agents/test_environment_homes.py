import stat
from pathlib import Path

import pytest

from symphony.agents.base import AgentError, BackendContext
from symphony.agents.environment import private_home
from symphony.domain import Category
from symphony.processes.local import LocalHost


def context(homes: Path, **environ: str) -> BackendContext:
    return BackendContext(host=LocalHost(), environ=environ, secret_names=frozenset(), homes=homes)


def test_a_home_is_made_for_this_user_alone(tmp_path: Path) -> None:
    home = private_home(context(tmp_path / "state" / "homes"), "codex")
    assert home == tmp_path / "state" / "homes" / "codex"
    assert [stat.S_IMODE(place.stat().st_mode) for place in (home, home.parent)] == [0o700, 0o700]


def test_a_home_that_is_there_keeps_what_is_in_it_and_is_closed_again(tmp_path: Path) -> None:
    home = private_home(context(tmp_path), "codex")
    (home / "auth.json").write_text("{}", "utf-8")
    home.chmod(0o755)
    assert private_home(context(tmp_path), "codex") == home
    assert (home / "auth.json").exists()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "a\nb"])
def test_a_name_that_would_leave_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(AgentError) as caught:
        private_home(context(tmp_path / "homes"), name)
    assert caught.value.failure.category is Category.STATE_DIRECTORY
    assert not (tmp_path / "homes").exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "codex").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AgentError, match="not a directory of this user"):
        private_home(context(tmp_path), "codex")


def test_a_file_in_the_way_is_told_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "homes").write_text("", "utf-8")
    with pytest.raises(AgentError) as caught:
        private_home(context(tmp_path / "homes"), "codex")
    assert "Not a directory" in caught.value.failure.message
    assert "SYMPHONY_STATE_DIR" in str(caught.value.failure.hint)


def test_a_home_below_the_temp_directory_is_refused_only_where_the_agent_would(tmp_path: Path) -> None:
    place = context(tmp_path / "homes", TMPDIR=str(tmp_path))
    assert private_home(place, "claude").is_dir()
    with pytest.raises(AgentError, match="lies below the temp directory"):
        private_home(place, "codex", outside_temp=True)
    assert not (tmp_path / "homes" / "codex").exists()
    elsewhere = context(tmp_path / "homes", TMPDIR=str(tmp_path / "t"))
    assert private_home(elsewhere, "codex", outside_temp=True).is_dir()
