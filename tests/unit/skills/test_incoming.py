"""What counts as a skill of a foreign folder, and what is said about the rest."""

from pathlib import Path

import pytest

from symphony.skills import SkillOptions, Validation
from symphony.skills import incoming as module
from symphony.skills.incoming import Incoming, incoming
from symphony.skills.model import FILE_NAME

GOOD = "---\nname: {}\ndescription: d\n---\n"


def write(path: Path, data: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def found(
    anchor: Path, *below: str, flat: bool = True, options: SkillOptions | None = None
) -> dict[str, Incoming]:
    return {one.source: one for one in incoming(anchor, below, options or SkillOptions(), flat=flat)}


def data(one: Incoming) -> bytes:
    assert one.bundle is not None, one.reason
    return one.bundle.files[FILE_NAME].data


def test_folders_come_as_they_are_with_all_their_files(tmp_path: Path) -> None:
    write(tmp_path / "PDF_Tools/SKILL.md", GOOD.format("PDF_Tools"))
    write(tmp_path / "PDF_Tools/references/x.md", "x")
    write(tmp_path / "no-skill/README.md", "x")
    write(tmp_path / ".hidden/SKILL.md", GOOD.format("hidden"))
    (one,) = found(tmp_path).values()
    assert (one.name, one.directory, one.source, one.flat) == ("PDF_Tools", "PDF_Tools", "PDF_Tools", False)
    assert one.bundle is not None
    assert sorted(one.bundle.files) == ["SKILL.md", "references/x.md"]
    assert [(p.code, p.path) for p in one.problems] == [("name_charset", "PDF_Tools/SKILL.md")]


def test_the_rules_are_those_of_the_target(tmp_path: Path) -> None:
    write(tmp_path / "a/SKILL.md", GOOD.format("A"))
    (one,) = found(tmp_path, options=SkillOptions(validation=Validation.STRICT)).values()
    assert one.bundle is None
    assert one.reason == "`name` has unusual characters. (name_charset)"


def test_a_folder_may_be_one_skill(tmp_path: Path) -> None:
    write(tmp_path / "one/SKILL.md", GOOD.format("one"))
    assert [one.directory for one in found(tmp_path, "one").values()] == ["one"]
    (only,) = found(tmp_path / "one").values()
    assert (only.directory, only.source) == ("one", ".")


def test_a_bare_file_in_a_folder_gets_front_matter_and_the_name_of_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "my_tool/SKILL.md", "# Mine\n\nDoes: it.\n")
    (one,) = found(tmp_path).values()
    assert (one.name, one.directory) == ("my-tool", "my-tool")
    assert data(one) == b'---\nname: my-tool\ndescription: "Does: it."\n---\n# Mine\n\nDoes: it.\n'


@pytest.mark.parametrize(
    ("folder", "text", "code"),
    [
        ("a", b"", "missing_front_matter"),
        ("a", b"\xff\xfe", "not_utf8"),
        ("A B", b"Bare.\n", "missing_front_matter"),
        ("a", b"\n---\nname: a\ndescription: d\n---\n", "missing_front_matter"),
        ("a", b"---\nname: a\n---\n", "missing_description"),
    ],
)
def test_what_cannot_be_a_skill_is_told_with_its_code(
    tmp_path: Path, folder: str, text: bytes, code: str
) -> None:
    write(tmp_path / folder / "SKILL.md", text)
    (one,) = found(tmp_path).values()
    assert one.bundle is None
    assert f"({code})" in str(one.reason)


def test_flat_files_become_folders_named_by_themselves_or_their_file(tmp_path: Path) -> None:
    write(tmp_path / "my_flat.md", "Says much.\n")
    write(tmp_path / "x.md", GOOD.format("other"))
    write(tmp_path / "y.md", GOOD.format("Not Clean"))
    for no_skill in ("README.md", "notes.txt", "CHANGELOG.md"):
        write(tmp_path / no_skill, "x")
    (tmp_path / "folder.md").mkdir()
    assert {source: one.directory for source, one in found(tmp_path).items()} == {
        "my_flat.md": "my-flat",
        "x.md": "other",
        "y.md": "y",
    }
    assert found(tmp_path, flat=False) == {}


def test_a_flat_file_that_was_named_is_taken_or_told(tmp_path: Path) -> None:
    write(tmp_path / "my_flat.md", GOOD.format("my_flat"))
    write(tmp_path / "Read Me.md", "Bare.\n")
    write(tmp_path / "notes.txt", "x")
    assert data(found(tmp_path, "my_flat.md")["my_flat.md"]) == GOOD.format("my_flat").encode()
    assert found(tmp_path, "Read Me.md")["Read Me.md"].bundle is None
    assert found(tmp_path, "notes.txt") == {}
    assert found(tmp_path, "none") == {}
    assert "cannot be read" in str(found(tmp_path, "none.md")["none.md"].reason)


def test_a_folder_goes_before_a_flat_file_of_its_name(tmp_path: Path) -> None:
    write(tmp_path / "a/SKILL.md", GOOD.format("a"))
    write(tmp_path / "a.md", "Flat.\n")
    both = found(tmp_path)
    assert both["a"].bundle is not None
    assert both["a.md"].reason == "another one of the source has this name"


def test_a_flat_link_out_is_not_looked_at(tmp_path: Path) -> None:
    write(tmp_path / "outside.md", "secret\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.md").symlink_to("../outside.md")
    (tmp_path / "in/gone.md").symlink_to("nowhere.md")
    (one,) = found(tmp_path / "in").values()
    assert (one.bundle, one.reason) == (None, "a.md is a link that leads out of the source")


def test_a_folder_that_is_a_link_out_is_told_and_a_dangling_one_is_not(tmp_path: Path) -> None:
    write(tmp_path / "outside/a/SKILL.md", GOOD.format("a"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").symlink_to("../outside/a")
    (tmp_path / "in/gone").symlink_to("nowhere")
    (one,) = found(tmp_path / "in").values()
    assert (one.name, one.reason) == ("a", "the folder is a link that leads out of the source")


def test_front_matter_beyond_the_limit_is_refused_as_in_a_run(tmp_path: Path) -> None:
    write(tmp_path / "a/SKILL.md", "---\nname: a\n" + "# long\n" * 20_000 + "---\n")
    write(tmp_path / "b/SKILL.md", GOOD.format("b") + "body\n" * 40_000)
    both = found(tmp_path)
    assert "front_matter_too_large" in str(both["a"].reason)
    assert both["b"].bundle is not None


def test_a_source_that_is_too_large_as_a_whole_is_taken_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        write(tmp_path / name / "SKILL.md", GOOD.format(name))
    monkeypatch.setattr(module, "MAX_BYTES", 40)
    both = found(tmp_path)
    assert both["a"].bundle is not None
    assert "larger than" in str(both["b"].reason)
