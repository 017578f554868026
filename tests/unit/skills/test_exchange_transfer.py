"""Copying skills: whole, bounded, never out of the source, never over what somebody changed."""

import os
import socket
from pathlib import Path

import pytest

from symphony.skills import (
    Bundle,
    BundledFile,
    BundleError,
    Installed,
    InstallOutcome,
    install,
    read_bundle,
    read_file,
)
from symphony.skills.exchange import MAX_BYTES, MAX_FILES

TEXT = "---\nname: a\ndescription: d\n---\nbody\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder `source/a` with a skill, a script and things that are nobody's."""
    folder = tmp_path / "source" / "a"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(TEXT)
    (folder / "scripts/run.sh").write_text("#!/bin/sh\n")
    (folder / "scripts/run.sh").chmod(0o755)
    for junk in (".git/config", "__pycache__/x.pyc"):
        (folder / junk).parent.mkdir()
        (folder / junk).write_text("secret")
    (folder / ".DS_Store").write_text("x")
    return tmp_path / "source"


def read(source: Path) -> Bundle:
    return read_bundle(source, ("a",))


def refused(source: Path) -> str:
    with pytest.raises(BundleError) as caught:
        read(source)
    return str(caught.value)


# --- reading ---


def test_a_bundle_holds_every_file_with_its_bytes_and_whether_it_can_be_run(source: Path) -> None:
    assert read(source).files == {
        "SKILL.md": BundledFile(data=TEXT.encode()),
        "scripts/run.sh": BundledFile(data=b"#!/bin/sh\n", executable=True),
    }


def test_links_inside_the_source_are_copied_as_what_they_lead_to(source: Path) -> None:
    (source / "shared").mkdir()
    (source / "shared/x").write_text("x")
    (source / "a/one").symlink_to("../shared/x")
    (source / "a/all").symlink_to("../shared")
    assert {"one", "all/x"} <= read(source).files.keys()


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside", "/etc"])
def test_a_link_that_leads_out_refuses_the_whole_skill(source: Path, target: str) -> None:
    (source.parent / "outside").write_text("secret")
    (source / "a/link").symlink_to(target)
    assert refused(source) == "link is a link that leads out of the source"


def test_a_folder_that_is_a_link_out_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (source / "b").symlink_to(tmp_path / "other")
    with pytest.raises(BundleError, match="leads out of the source"):
        read_bundle(source, ("b",))


def test_a_link_to_its_own_folder_ends_at_the_limits(source: Path) -> None:
    (source / "a/loop").symlink_to(".")
    assert "more than" in refused(source)


def test_too_many_files_are_refused(source: Path) -> None:
    for number in range(MAX_FILES):
        (source / "a" / f"{number}.txt").touch()
    assert refused(source).startswith(f"it has more than {MAX_FILES} files")


def test_too_many_bytes_are_refused(source: Path) -> None:
    with (source / "a" / "large.bin").open("wb") as file:
        file.truncate(MAX_BYTES)
    assert "larger than" in refused(source)


def test_what_is_neither_file_nor_folder_is_refused_without_blocking(source: Path) -> None:
    os.mkfifo(source / "a/pipe")
    assert refused(source) == "pipe is neither a file nor a folder"


def test_a_socket_is_refused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source / "a")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("sock")
        assert refused(source).startswith("sock cannot be read")


def test_a_folder_without_a_skill_is_none(source: Path) -> None:
    (source / "a/SKILL.md").unlink()
    assert refused(source) == "there is no SKILL.md"


def test_a_single_file_is_read_alike(source: Path) -> None:
    assert read_file(source, ("a", "SKILL.md")).data == TEXT.encode()
    with pytest.raises(BundleError, match="none cannot be read"):
        read_file(source, ("a", "none"))
    with pytest.raises(BundleError, match="cannot be read"):
        read_file(source, ("none", "none"))
    with pytest.raises(BundleError, match="is not a file"):
        read_file(source, ("a", "scripts"))


# --- writing ---


def test_a_copy_equals_its_source(source: Path, tmp_path: Path) -> None:
    assert install(read(source), tmp_path / "new/root", "a", force=False) == Installed(InstallOutcome.CREATED)
    assert read_bundle(tmp_path / "new/root", ("a",)) == read(source)
    assert [path.name for path in (tmp_path / "new/root").iterdir()] == ["a"]


def test_an_equal_folder_stays_untouched(source: Path, tmp_path: Path) -> None:
    install(read(source), tmp_path, "a", force=False)
    before = (tmp_path / "a").stat().st_ino
    assert install(read(source), tmp_path, "a", force=True) == Installed(InstallOutcome.UNCHANGED)
    assert (tmp_path / "a").stat().st_ino == before


@pytest.mark.parametrize("change", ["text", "mode", "more", "less", "link"])
def test_what_differs_is_replaced_by_force_alone(source: Path, tmp_path: Path, change: str) -> None:
    install(read(source), tmp_path, "a", force=False)
    there = tmp_path / "a"
    match change:
        case "text":
            (there / "SKILL.md").write_text("edited")
        case "mode":
            (there / "scripts/run.sh").chmod(0o644)
        case "more":
            (there / "more").write_text("x")
        case "less":
            (there / "scripts/run.sh").unlink()
        case _:
            (there / "link").symlink_to("/etc/passwd")
    names = sorted(path.name for path in there.rglob("*"))
    kept = install(read(source), tmp_path, "a", force=False)
    assert (kept.outcome, kept.reason) == (
        InstallOutcome.SKIPPED,
        "the existing one differs; --force replaces it",
    )
    assert sorted(path.name for path in there.rglob("*")) == names
    assert install(read(source), tmp_path, "a", force=True, dry_run=True) == Installed(InstallOutcome.UPDATED)
    assert sorted(path.name for path in there.rglob("*")) == names
    assert install(read(source), tmp_path, "a", force=True) == Installed(InstallOutcome.UPDATED)
    assert read_bundle(tmp_path, ("a",)) == read(source)


def test_a_dry_run_writes_nothing(source: Path, tmp_path: Path) -> None:
    assert (
        install(read(source), tmp_path / "new", "a", force=True, dry_run=True).outcome
        is InstallOutcome.CREATED
    )
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", ["link", "dangling", "file"])
def test_nothing_is_written_through_a_link_or_over_a_file(source: Path, tmp_path: Path, kind: str) -> None:
    other = tmp_path / "other"
    match kind:
        case "link":
            other.mkdir()
            (tmp_path / "a").symlink_to(other)
        case "dangling":
            (tmp_path / "a").symlink_to(other)
        case _:
            (tmp_path / "a").write_text("x")
    done = install(read(source), tmp_path, "a", force=True)
    assert done == Installed(InstallOutcome.SKIPPED, "the target is not a folder")
    assert not other.exists() or not list(other.iterdir())


def test_a_place_that_cannot_be_written_is_told(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = install(read(source), tmp_path / "file", "a", force=False)
    assert done == Installed(InstallOutcome.SKIPPED, "it cannot be written: Not a directory")


def test_where_the_new_folder_cannot_take_its_place_the_old_one_comes_back(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(read(source), tmp_path, "a", force=False)
    (tmp_path / "a/SKILL.md").write_text("edited")
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    done = install(read(source), tmp_path, "a", force=True)
    assert done == Installed(InstallOutcome.SKIPPED, "it cannot be written: No space left on device")
    assert (tmp_path / "a/SKILL.md").read_text() == "edited"
    assert not list(tmp_path.glob(".symphony-*"))
