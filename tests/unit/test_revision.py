import subprocess
from pathlib import Path

import pytest

from symphony import __version__
from symphony.revision import FILE_NAME, commit, version_text

ROOT = Path(__file__).parents[2]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package in a source tree without git."""
    path = tmp_path / "src" / "symphony"
    path.mkdir(parents=True)
    return path


def _repository(tree: Path) -> str:
    for command in (
        ("init", "--quiet"),
        (
            "-c",
            "user.name=T",
            "-c",
            "user.email=t@localhost",
            "commit",
            "--quiet",
            "--allow-empty",
            "-m",
            "x",
        ),
    ):
        subprocess.run(["git", "-C", str(tree), *command], check=True, capture_output=True)
    asked = ["git", "-C", str(tree), "rev-parse", "HEAD"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def test_the_build_tells_it(package: Path) -> None:
    (package / FILE_NAME).write_text("0123456789abcdef\n")
    assert version_text(package) == f"{__version__} (commit 0123456)"


def test_a_source_tree_asks_git_and_nobody_elses(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "of-a-hook"))
    assert commit(package) is None, "no repository"
    commit.cache_clear()
    monkeypatch.delenv("GIT_DIR")
    head = _repository(tmp_path)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "of-a-hook"))
    assert commit(package) == head[:7]
    inner = tmp_path / "venv" / "symphony"
    inner.mkdir(parents=True)
    assert commit(inner) is None, "it lies in a repository, and is not of it"


@pytest.mark.parametrize("damage", [b"", b"\xff\xff", b"../../etc\n"])
def test_without_a_commit_the_version_stands_alone(package: Path, damage: bytes) -> None:
    (package / FILE_NAME).write_bytes(damage)
    assert version_text(package) == __version__


def test_without_git_it_is_not_known(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").write_text("nonsense")
    assert commit(package) is None, "git refuses"
    commit.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(package) is None, "there is no git"
