import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.workspaces import all_refs, branch_of_head, read_ref

_A, _B, _C = "a" * 40, "b" * 40, "c" * 64


@pytest.fixture
def git_dir(tmp_path: Path) -> Path:
    (tmp_path / "refs" / "heads" / "symphony").mkdir(parents=True)
    (tmp_path / "HEAD").write_text("ref: refs/heads/symphony/MT-1\n")
    (tmp_path / "refs" / "heads" / "symphony" / "MT-1").write_text(f"{_A}\n")
    (tmp_path / "packed-refs").write_text(
        "# pack-refs with: peeled fully-peeled sorted \n"
        f"{_B} refs/heads/main\n{_B} refs/heads/symphony/MT-1\n"
        f"{_C} refs/tags/v1\n^{_A}\nnonsense\n{_A} refs/heads/../../evil\n"
    )
    return tmp_path


def test_head_is_followed_to_its_commit(git_dir: Path) -> None:
    assert read_ref(git_dir, "HEAD") == _A
    assert branch_of_head(git_dir) == "symphony/MT-1"


def test_a_detached_head_is_its_commit(git_dir: Path) -> None:
    (git_dir / "HEAD").write_text(_C)

    assert (read_ref(git_dir, "HEAD"), branch_of_head(git_dir)) == (_C, None)


def test_a_head_on_something_that_is_no_branch_has_none(git_dir: Path) -> None:
    (git_dir / "HEAD").write_text("ref: refs/tags/v1")

    assert (read_ref(git_dir, "HEAD"), branch_of_head(git_dir)) == (_C, None)


def test_packed_refs_are_read_and_loose_ones_win(git_dir: Path) -> None:
    assert read_ref(git_dir, "refs/heads/main") == _B
    assert all_refs(git_dir, "refs/heads/") == {"refs/heads/main": _B, "refs/heads/symphony/MT-1": _A}
    assert all_refs(git_dir, "refs/tags/") == {"refs/tags/v1": _C}
    assert all_refs(git_dir, "refs/none/") == {}


def test_symbolic_and_broken_refs_are_not_listed(git_dir: Path) -> None:
    (git_dir / "refs" / "heads" / "symbolic").write_text("ref: refs/heads/main")
    (git_dir / "refs" / "heads" / "broken").write_text("abc")
    (git_dir / "refs" / "heads" / "odd name").write_text(_A)

    assert set(all_refs(git_dir, "refs/heads/")) == {"refs/heads/main", "refs/heads/symphony/MT-1"}


def test_links_to_directories_are_not_walked(git_dir: Path) -> None:
    (git_dir / "refs" / "heads" / "again").symlink_to(git_dir / "refs" / "heads")

    assert len(all_refs(git_dir, "refs/heads/")) == 2


def test_a_ref_that_is_a_link_or_a_pipe_reads_as_none(git_dir: Path) -> None:
    (git_dir / "refs" / "heads" / "link").symlink_to(git_dir / "refs" / "heads" / "symphony" / "MT-1")
    os.mkfifo(git_dir / "refs" / "heads" / "pipe")

    assert read_ref(git_dir, "refs/heads/link") is None
    assert read_ref(git_dir, "refs/heads/pipe") is None


def test_a_circle_of_symbolic_refs_ends(git_dir: Path) -> None:
    (git_dir / "refs" / "heads" / "one").write_text("ref: refs/heads/two")
    (git_dir / "refs" / "heads" / "two").write_text("ref: refs/heads/one")

    assert read_ref(git_dir, "refs/heads/one") is None


def test_an_endless_number_of_refs_is_told(git_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symphony.workspaces.files.MAX_ENTRIES", 3)
    (git_dir / "refs" / "many").mkdir()
    for number in range(3):
        (git_dir / "refs" / "many" / str(number)).write_text(_A)
    assert len(all_refs(git_dir, "refs/many/")) == 3

    (git_dir / "refs" / "many" / "3").write_text(_A)
    with pytest.raises(OSError, match="more than 3"):
        all_refs(git_dir, "refs/many/")


@pytest.mark.parametrize(
    "content",
    ["", "ref: ", "ref: /etc/passwd", "ref: refs/../x", f"{_A} more", _A[:-1], _A.upper(), "ref: HEAD"],
)
def test_what_is_not_exactly_a_ref_reads_as_none(git_dir: Path, content: str) -> None:
    (git_dir / "HEAD").write_text(content)

    assert (read_ref(git_dir, "HEAD"), branch_of_head(git_dir)) == (None, None)


@given(content=st.binary(max_size=200))
def test_any_head_reads_as_a_commit_or_as_none(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    git_dir = tmp_path_factory.mktemp("any")
    (git_dir / "HEAD").write_bytes(content)

    commit = read_ref(git_dir, "HEAD")

    assert commit is None or content.strip().decode() == commit
