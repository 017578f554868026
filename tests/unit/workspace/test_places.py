"""One look at a place tells the same as a walk along every step of the way to it."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.domain.failures import Category
from symphony.domain.issue import Issue
from symphony.workspace import places
from symphony.workspace.files import fingerprint
from symphony.workspace.layout import Layout, contained
from symphony.workspace.looks import Found, left
from symphony.workspace.model import WorkspaceError
from symphony.workspace.places import checked, launchable, make_empty, open_root
from symphony.workspace.records import Entry, read_entry, write_entry

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
        contained(path, root)
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
                checked(layout, name)
            return

        path, there = checked(layout, name)

        assert path == layout.root / name
        assert (there is not None) == os.path.lexists(path)

    def test_a_relative_root_is_refused(self, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(world)
        for name in ("dir", "missing"):
            with pytest.raises(WorkspaceError, match="not an absolute path"):
                checked(Layout(Path("root")), name)

    @pytest.mark.parametrize("name", ["file", "missing", "beside", "dangling", "dir/missing"])
    def test_an_agent_is_started_in_nothing_but_a_real_directory(self, world: Path, name: str) -> None:
        assert launchable(world / "root" / "dir", world / "root")
        assert not launchable(world / "root" / name, world / "root")

    @pytest.mark.parametrize(
        "name", ["", "..", "../outside", "dir/../..", "out", "up", "self", "loop", "file/x"]
    )
    def test_an_agent_is_never_started_elsewhere(self, world: Path, name: str) -> None:
        with pytest.raises(WorkspaceError):
            launchable(world / "root" / name, world / "root")


class TestANewWorkspace:
    def test_it_is_marked_as_an_empty_directory_is(self, tmp_path: Path, issue: Issue) -> None:
        layout = open_root(tmp_path / "root")
        path = layout.workspace("SYM-1")
        found = Found(layout, path, make_empty(layout, path, issue), existed=False)
        mark = found.mark()

        assert mark is not None
        assert (mark.head, mark.tree) == (None, fingerprint(path, max_entries=1))
        assert left(path)[0] == mark, "so that an attempt that does nothing makes no progress"
        assert Found(layout, path, None, existed=False).mark() is None

    def test_one_that_somebody_else_made_meanwhile_is_left_to_them(
        self, tmp_path: Path, issue: Issue
    ) -> None:
        layout = open_root(tmp_path / "root")
        path = layout.workspace("SYM-1")
        path.mkdir()

        with pytest.raises(FileExistsError):
            make_empty(layout, path, issue)
        assert path.exists()
        assert read_entry(layout, "SYM-1") is None


class TestRecords:
    def test_one_is_written_though_the_directory_has_vanished(self, tmp_path: Path) -> None:
        layout, entry = Layout(tmp_path), Entry(issue_id="1", identifier="SYM-1", key="SYM-1", ready=True)

        write_entry(layout, entry)

        assert read_entry(layout, "SYM-1") == entry
        assert layout.records.stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("kind", ["directory", "pipe", "link", "loop"])
    def test_what_is_no_plain_file_is_no_record(self, tmp_path: Path, kind: str) -> None:
        layout = open_root(tmp_path)
        write_entry(layout, Entry(issue_id="1", identifier="SYM-1", key="SYM-1", ready=True))
        path = layout.record("SYM-1")
        path.rename(tmp_path / "record")
        match kind:
            case "directory":
                path.mkdir()
            case "pipe":
                os.mkfifo(path)
            case "link":
                path.symlink_to(tmp_path / "record")
            case _:
                path.symlink_to(path)

        assert read_entry(layout, "SYM-1") is None


def test_a_place_taken_away_meanwhile_is_reported_and_keeps_its_record(
    tmp_path: Path, issue: Issue, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = open_root(tmp_path)
    path = layout.workspace("SYM-1")
    make_empty(layout, path, issue)

    def gone(_: Path, __: Path) -> Path:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(places, "move_aside", gone)
    _, removal = places.remove_at_once(path, only_look=False, fault=lambda _: None)

    assert removal is not None
    assert not removal.removed
    assert read_entry(layout, "SYM-1") is not None


@pytest.fixture
def issue() -> Issue:
    return Issue(id="1", identifier="SYM-1", title="A title", state="Todo", dispatchable=True)
