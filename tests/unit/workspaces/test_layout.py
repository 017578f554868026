import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.domain import Category, branch_name, workspace_key
from symphony.workspaces import Layout, WorkspaceError, check_key, key_of, resolve, resolve_contained

_SEGMENTS = st.sampled_from(["a", "b", "..", ".", "link-out", "link-up", "link-in", "link-root", "loop", "é"])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with links in every direction; nothing below is changed by the tests."""
    base = tmp_path_factory.mktemp("world").resolve()
    root = base / "root"
    (root / "a" / "b").mkdir(parents=True)
    (base / "outside").mkdir()
    (root / "link-out").symlink_to(base / "outside")
    (root / "a" / "link-up").symlink_to("../..")
    (root / "link-in").symlink_to("a/b")
    (root / "link-root").symlink_to(root)
    (root / "loop").symlink_to("loop")
    (base / "root-link").symlink_to(root)
    return base


def _category(path: Path, root: Path) -> Category:
    with pytest.raises(WorkspaceError) as caught:
        resolve_contained(path, root)
    return caught.value.failure.category


class TestNames:
    def test_everything_lies_below_the_root(self) -> None:
        layout = Layout(Path("/r"))

        assert layout.workspace("MT-1") == Path("/r/MT-1")
        assert layout.record("MT-1") == Path("/r/.symphony/records/MT-1.json")
        assert {layout.mirrors, layout.staging, layout.trash} == {
            Path("/r/.symphony/mirrors"),
            Path("/r/.symphony/staging"),
            Path("/r/.symphony/trash"),
        }

    def test_what_daemons_share_lies_beside_the_records(self) -> None:
        layout = Layout(Path("/r"))

        assert {layout.records, layout.tenants, layout.tenant_files, layout.tenants_lock, layout.pins} == {
            Path("/r/.symphony/records"),
            Path("/r/.symphony/tenants"),
            Path("/r/.symphony/tenants.d"),
            Path("/r/.symphony/tenants.lock"),
            Path("/r/.symphony/pinned"),
        }

    def test_a_pin_is_named_by_its_commit_and_paths_in_any_order(self) -> None:
        layout = Layout(Path("/r"))

        assert layout.pinned("c1", ["a", "b"]) == layout.pinned("c1", ["b", "a", "b"])
        assert layout.pinned("c1", ["a"]) != layout.pinned("c1", ["b"])
        assert layout.pinned("c1", ["a"]).parent == layout.pins

    def test_what_is_known_of_a_base_is_kept_by_commit_and_command(self) -> None:
        layout = Layout(Path("/w"))
        assert layout.baseline("c1", "make test") != layout.baseline("c1", "make lint")
        assert layout.baseline("c1", "make test").name.startswith("c1-")

    def test_what_was_written_into_a_workspace_is_recorded_beside_it(self) -> None:
        layout = Layout(Path("/r"))

        assert layout.written_skills("k-1").parent == Path("/r/.symphony/library")
        assert layout.written_skills("k-1").name == layout.record("k-1").name

    def test_what_a_conversation_was_given_is_recorded_beside_it(self) -> None:
        assert Layout(Path("/r")).activated_skills("k-1").parent == Path("/r/.symphony/activated")

    def test_a_mirror_is_named_by_its_address(self) -> None:
        layout = Layout(Path("/r"))

        assert layout.mirror("/a") != layout.mirror("/b")
        assert layout.mirror("/a") == layout.mirror("/a")
        assert layout.mirror("/a").parent == layout.mirrors

    @pytest.mark.conformance("K-3")
    @pytest.mark.parametrize(
        "key", ["", ".", "..", ".git", ".GIT", ".symphony", ".Symphony", "a/b", "a b", "é", "a\n", "x" * 256]
    )
    def test_unsafe_keys_are_refused(self, key: str) -> None:
        layout = Layout(Path("/r"))
        for name in (check_key, layout.workspace, layout.record, layout.written_skills):
            with pytest.raises(WorkspaceError) as caught:
                name(key)
            assert caught.value.failure.category is Category.WORKSPACE_UNSAFE_KEY
            assert not caught.value.failure.retryable

    @pytest.mark.conformance("K-3")
    @pytest.mark.parametrize("identifier", ["", ".", "..", ".git", ".symphony", "x" * 256, "/" * 250])
    def test_unsafe_identifiers_are_refused(self, identifier: str) -> None:
        with pytest.raises(WorkspaceError, match="workspace_unsafe_key"):
            key_of(identifier)

    @pytest.mark.conformance("K-3")
    @given(st.text(max_size=120))
    def test_any_other_identifier_names_one_directory_below_the_root(self, identifier: str) -> None:
        try:
            key = key_of(identifier)
        except WorkspaceError:
            return
        layout = Layout(Path("/r"))

        assert key == workspace_key(identifier)
        assert layout.workspace(key).parent == Path("/r")
        assert layout.record(key).parent == layout.records

    @given(st.integers(min_value=1, max_value=255))
    def test_every_file_name_derived_from_a_key_fits_into_a_directory(self, length: int) -> None:
        key = "k" * length

        assert len(Layout(Path("/r")).record(key).name) <= 255
        assert len(branch_name(key).removeprefix("symphony/")) <= 250

    @pytest.mark.conformance("K-1")
    @given(st.lists(st.text("ab/ ", min_size=1, max_size=6), min_size=2, max_size=2, unique=True))
    def test_different_identifiers_have_different_workspaces(self, pair: list[str]) -> None:
        assert key_of(pair[0]) != key_of(pair[1])


@pytest.mark.conformance("K-4")
class TestContainment:
    def test_a_directory_below_the_root_is_resolved(self, world: Path) -> None:
        assert resolve_contained(world / "root" / "a", world / "root") == world / "root" / "a"

    def test_a_directory_that_does_not_exist_yet_is_fine(self, world: Path) -> None:
        assert resolve_contained(world / "root" / "new", world / "root") == world / "root" / "new"

    def test_a_symlinked_root_is_fine(self, world: Path) -> None:
        assert resolve_contained(world / "root-link" / "a", world / "root-link") == world / "root" / "a"
        assert resolve_contained(world / "root" / "a", world / "root-link") == world / "root" / "a"

    def test_a_link_that_stays_inside_is_resolved(self, world: Path) -> None:
        assert resolve_contained(world / "root" / "link-in", world / "root") == world / "root" / "a" / "b"

    def test_the_root_itself_is_refused(self, world: Path) -> None:
        for path in ("root", "root-link", "root/link-root", "root/a/.."):
            assert _category(world / path, world / "root") is Category.WORKSPACE_EQUALS_ROOT

    def test_a_link_out_of_the_root_is_an_escape(self, world: Path) -> None:
        for path in ("root/link-out", "root/link-out/deeper", "root/a/link-up/outside"):
            assert _category(world / path, world / "root") is Category.WORKSPACE_SYMLINK_ESCAPE

    def test_a_path_elsewhere_is_outside(self, world: Path) -> None:
        for path in ("outside", "root/../outside", "root2"):
            assert _category(world / path, world / "root") is Category.WORKSPACE_OUTSIDE_ROOT

    def test_relative_paths_are_outside(self, world: Path) -> None:
        assert _category(Path("root/a"), world / "root") is Category.WORKSPACE_OUTSIDE_ROOT
        assert _category(world / "root" / "a", Path("root")) is Category.WORKSPACE_OUTSIDE_ROOT

    def test_a_loop_of_links_cannot_be_resolved(self, world: Path) -> None:
        assert _category(world / "root" / "loop", world / "root") is Category.WORKSPACE_PATH_UNREADABLE

    def test_as_many_links_are_followed_as_linux_follows(self, tmp_path: Path) -> None:
        (tmp_path / "0").mkdir()
        for number in range(1, 42):
            (tmp_path / str(number)).symlink_to(str(number - 1))
        assert resolve_contained(tmp_path / "40", tmp_path) == tmp_path / "0"
        assert _category(tmp_path / "41", tmp_path) is Category.WORKSPACE_PATH_UNREADABLE

    def test_a_path_through_a_file_cannot_be_resolved(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")

        assert _category(tmp_path / "file" / "x", tmp_path) is Category.WORKSPACE_PATH_UNREADABLE

    def test_a_segment_that_the_file_system_refuses_cannot_be_resolved(self, world: Path) -> None:
        path = world / "root" / ("a" * 300)
        assert _category(path, world / "root") is Category.WORKSPACE_PATH_UNREADABLE

    @given(segments=st.lists(_SEGMENTS, max_size=7))
    def test_whatever_passes_lies_strictly_below_the_real_root(
        self, world: Path, segments: list[str]
    ) -> None:
        path = world.joinpath("root", *segments)
        try:
            real = resolve_contained(path, world / "root-link")
        except WorkspaceError:
            return

        assert world / "root" in real.parents
        assert Path(os.path.realpath(path)) == real

    @given(segments=st.lists(_SEGMENTS, max_size=7))
    def test_resolving_agrees_with_the_system_and_is_stable(self, world: Path, segments: list[str]) -> None:
        path = world.joinpath("root", *segments)
        try:
            real = resolve(path)
        except OSError:
            return

        assert real == Path(os.path.realpath(path))
        assert resolve(real) == real
