"""Checks of a root, and of paths in it by one lstat, which agrees with following every segment."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.domain import Category
from symphony.workspaces import Layout, WorkspaceError, check_path, is_launchable, resolve_contained
from symphony.workspaces.directories import try_writing

_NAMES = st.sampled_from(["dir", "file", "missing", "out", "beside", "up", "self", "loop", "dangling"])
_ROOTS = st.sampled_from(["root", "root-link", "other/../root", "file", "loop"])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Roots of many kinds, and in the real one something of each kind; nothing is changed by the tests."""
    base = tmp_path_factory.mktemp("world").resolve()
    root = base / "root"
    for directory in (root / "dir", base / "outside", base / "other"):
        directory.mkdir(parents=True)
    for file in (root / "file", base / "file"):
        file.write_text("")
    links = {
        "out": "../outside",
        "beside": "dir",
        "up": "..",
        "self": ".",
        "loop": "loop",
        "dangling": "no",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    (base / "root-link").symlink_to(root)
    (base / "loop").symlink_to("loop")
    return base


def refusal(path: Path, root: Path) -> Category | None:
    try:
        resolve_contained(path, root)
    except WorkspaceError as error:
        return error.failure.category
    return None


@pytest.mark.conformance("K-4")
class TestOneLook:
    @given(name=_NAMES, root=_ROOTS)
    def test_it_refuses_what_following_every_step_refuses(self, world: Path, name: str, root: str) -> None:
        layout = Layout(world / root)
        expected = refusal(layout.root / name, layout.root)
        if expected is not None:
            with pytest.raises(WorkspaceError, match=expected.value):
                check_path(layout, name)
            return

        path, there = check_path(layout, name)

        assert path == layout.root / name
        assert (there is not None) == os.path.lexists(path)

    def test_a_relative_root_is_refused(self, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(world)
        for name in ("dir", "missing"):
            with pytest.raises(WorkspaceError, match="not an absolute path"):
                check_path(Layout(Path("root")), name)

    @pytest.mark.parametrize("name", ["file", "missing", "beside", "dangling", "dir/missing"])
    def test_an_agent_is_started_in_nothing_but_a_real_directory(self, world: Path, name: str) -> None:
        assert is_launchable(world / "root" / "dir", world / "root")
        assert not is_launchable(world / "root" / name, world / "root")

    @pytest.mark.parametrize(
        "name", ["", "..", "../outside", "dir/../..", "out", "up", "self", "loop", "file/x"]
    )
    def test_an_agent_is_never_started_elsewhere(self, world: Path, name: str) -> None:
        with pytest.raises(WorkspaceError):
            is_launchable(world / "root" / name, world / "root")


def test_daemons_that_start_at_the_same_moment_can_all_write(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with ThreadPoolExecutor(4) as daemons:
        list(daemons.map(lambda _: try_writing(layout), range(400)))
    assert list(tmp_path.iterdir()) == []
