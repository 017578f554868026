"""Checks of a root, and of paths in it by one lstat, which agrees with following every segment."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.domain import Category
from symphony.workspaces import (
    Layout,
    StoredRecord,
    WorkspaceError,
    check_path,
    is_launchable,
    resolve_contained,
)
from symphony.workspaces.directories import foreign_owner, is_complete, try_writing

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
        assert is_launchable(world / "root" / "dir", Layout(world / "root"))
        assert not is_launchable(world / "root" / name, Layout(world / "root"))

    @pytest.mark.parametrize(
        "name", ["", "..", "../outside", "dir/../..", "out", "up", "self", "loop", "file/x"]
    )
    def test_an_agent_is_never_started_elsewhere(self, world: Path, name: str) -> None:
        with pytest.raises(WorkspaceError):
            is_launchable(world / "root" / name, Layout(world / "root"))


def test_daemons_that_start_at_the_same_moment_can_all_write(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with ThreadPoolExecutor(4) as daemons:
        list(daemons.map(lambda _: try_writing(layout), range(400)))
    assert list(tmp_path.iterdir()) == []


def made(*, ready: bool = True, tenant: str | None = None, owner: int | None = None) -> StoredRecord:
    return StoredRecord(issue_id="1", identifier="1", key="1", ready=ready, tenant=tenant, owner=owner)


def test_a_workspace_is_complete_when_it_was_made_to_its_end_and_holds_what_it_should(tmp_path: Path) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    for path in (empty, full):
        path.mkdir()
    file = full / "file"
    file.touch()

    def complete(path: Path, record: StoredRecord | None, *, populated: bool) -> bool:
        return is_complete(path, path.lstat(), record, populated=populated)

    assert complete(full, made(), populated=True)
    assert complete(full, None, populated=True)
    assert not complete(full, made(ready=False), populated=True)
    assert complete(empty, made(), populated=False)
    assert not complete(empty, made(), populated=True)
    assert not complete(file, None, populated=False)
    assert not is_complete(tmp_path / "no", None, None, populated=False)


def test_a_workspace_belongs_to_the_user_who_owned_it_when_it_was_made_and_to_its_tenant(
    tmp_path: Path,
) -> None:
    found, me = tmp_path.lstat(), os.geteuid()
    assert foreign_owner(found, None) is None
    assert foreign_owner(found, made(owner=me)) is None
    assert "another user" in str(foreign_owner(found, made(owner=me + 1)))
    assert foreign_owner(found, made(tenant="/a.md"), "/a.md") is None
    assert foreign_owner(found, made(), "/a.md") is None
    assert "/b.md" in str(foreign_owner(found, made(tenant="/b.md"), "/a.md"))
