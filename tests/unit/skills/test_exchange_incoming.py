"""What counts as a skill of a foreign folder, and what is said about the rest."""

import os
from collections.abc import Iterable
from errno import EACCES
from pathlib import Path

import pytest

from symphony.skills import (
    FILE_NAME,
    ImportCandidate,
    SkillOptions,
    Validation,
    find_importable,
)
from symphony.skills import exchange as module

GOOD = "---\nname: {}\ndescription: d\n---\n"


def write(path: Path, data: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def found(anchor: Path, *below: str, options: SkillOptions | None = None) -> dict[str, ImportCandidate]:
    return {one.source: one for one in find_importable(anchor, [below], options or SkillOptions())}


def test_folders_come_as_they_are_with_all_their_files(tmp_path: Path) -> None:
    write(tmp_path / "PDF_Tools/SKILL.md", GOOD.format("PDF_Tools"))
    write(tmp_path / "PDF_Tools/references/x.md", "x")
    write(tmp_path / "no-skill/README.md", "x")
    write(tmp_path / ".hidden/SKILL.md", GOOD.format("hidden"))
    (one,) = found(tmp_path).values()
    assert (one.name, one.directory, one.source) == ("PDF_Tools", "PDF_Tools", "PDF_Tools")
    assert one.bundle is not None
    assert sorted(one.bundle.files) == ["SKILL.md", "references/x.md"]
    assert [(p.code, p.path) for p in one.problems] == [("name_charset", "PDF_Tools/SKILL.md")]


def test_each_is_told_with_its_folder(tmp_path: Path) -> None:
    lay(tmp_path, "top", "a/b/c")
    assert {one.folder for one in found(tmp_path).values()} == {".", "a/b"}
    assert [one.folder for one in found(tmp_path / "top").values()] == ["."]


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


@pytest.mark.parametrize(
    ("folder", "text", "code"),
    [
        ("a", b"", "missing_front_matter"),
        ("a", b"\xff\xfe", "not_utf8"),
        ("A B", b"Bare.\n", "missing_front_matter"),
        ("a", b"\n---\nname: a\ndescription: d\n---\n", "missing_front_matter"),
        ("a", b"---\nname: a\n---\n", "missing_description"),
        ("my_tool", b"# Mine\n\nDoes much.\n", "missing_front_matter"),
    ],
)
def test_what_cannot_be_a_skill_is_told_with_its_code(
    tmp_path: Path, folder: str, text: bytes, code: str
) -> None:
    write(tmp_path / folder / "SKILL.md", text)
    (one,) = found(tmp_path).values()
    assert one.bundle is None
    assert f"({code})" in str(one.reason)


@pytest.mark.parametrize("place", ["", "skills", "a/skills/writing", ".claude/skills"])
def test_a_flat_file_that_could_be_a_skill_is_told_what_to_do_and_hides_nothing(
    tmp_path: Path, place: str
) -> None:
    write(tmp_path / place / "my_flat.md", GOOD.format("other"))
    for no_skill in ("README.md", "notes.md", "index.txt"):
        write(tmp_path / place / no_skill, "Says much.\n")
    (tmp_path / place / "folder.md").mkdir()
    lay(tmp_path, "skills/a")
    both = found(tmp_path)
    assert usable(both.values()) == ["skills/a"]
    (told,) = (one for one in both.values() if one.bundle is None)
    assert told.source == f"{place}/my_flat.md".lstrip("/")
    assert "make my-flat/SKILL.md of this file" in str(told.reason)


def test_a_document_elsewhere_is_no_flat_skill(tmp_path: Path) -> None:
    lay(tmp_path, "skills/a")
    write(tmp_path / "agents/critic.md", GOOD.format("critic"))
    write(tmp_path / "skills/a/more.md", GOOD.format("more"))
    assert list(found(tmp_path)) == ["skills/a"]


def test_a_flat_link_is_told_if_it_leads_out_and_to_a_folder_it_is_no_file(tmp_path: Path) -> None:
    write(tmp_path / "outside.md", "secret\n")
    lay(tmp_path, "in/skills/a")
    (tmp_path / "in/a.md").symlink_to("../outside.md")
    (tmp_path / "in/gone.md").symlink_to("nowhere.md")
    (tmp_path / "in/skills/b.md").symlink_to("a")
    (tmp_path / "in/skills/c.md").symlink_to("a/SKILL.md")
    both = found(tmp_path / "in")
    assert usable(both.values()) == ["skills/a"]
    assert both["a.md"].reason == "a.md is a link that leads out of the source"
    assert "make c/SKILL.md" in str(both["skills/c.md"].reason)
    assert set(both) == {"a.md", "skills/a", "skills/c.md"}


def test_a_manifest_is_not_read(tmp_path: Path) -> None:
    lay(tmp_path, "skills/a")
    write(
        tmp_path / "skills/manifest.yaml",
        'version: "1"\nskills: [{file: a/SKILL.md, priority: 7}, {file: gone.md}]\n',
    )
    (one,) = found(tmp_path).values()
    assert one.bundle is not None
    assert one.bundle.files[FILE_NAME].data == GOOD.format("a").encode()


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
    monkeypatch.setattr(module, "MAX_IMPORT_BYTES", 40)
    both = found(tmp_path)
    assert both["a"].bundle is not None
    assert "larger than" in str(both["b"].reason)


# --- where skills lie ---


def lay(root: Path, *places: str) -> None:
    """A folder with a skill of its name for each place, or a flat file where the place ends so."""
    for place in places:
        path = root / place
        file = path if path.suffix == ".md" else path / FILE_NAME
        write(file, GOOD.format(path.stem))


def usable(found: Iterable[ImportCandidate]) -> list[str]:
    return [one.source for one in found if one.bundle is not None]


@pytest.mark.parametrize(
    ("places", "others"),
    [
        (("template", "skills/a", "skills/b"), ()),
        (("writing/haiku", "writing/essay", "code/lint"), ("code/README.md", "notes.md")),
        (("plugins/review/skills/lint", "plugins/build/skills/make"), ("plugins/review/agents/critic.md",)),
        (("one/two/three/four/five",), ()),
        (("skills/.curated/x", ".claude/skills/y", "packages/z/.agents/skills/w"), ()),
        (("a",), ("node_modules/b/SKILL.md", ".git/c/SKILL.md", ".idea/d/SKILL.md", "a/examples/e/SKILL.md")),
    ],
)
def test_skills_are_found_wherever_collections_keep_them(
    tmp_path: Path, places: tuple[str, ...], others: tuple[str, ...]
) -> None:
    lay(tmp_path, *places)
    for other in others:
        write(tmp_path / other, "No skill.\n")
    assert sorted(usable(find_importable(tmp_path, [()], SkillOptions()))) == sorted(places)


def test_what_lies_deeper_than_five_levels_is_told(tmp_path: Path) -> None:
    lay(tmp_path, "1/2/3/4/5/6", "a")
    write(tmp_path / "1/2/3/4/5/none/notes.md", "No skill.\n")
    both = found(tmp_path)
    assert usable(both.values()) == ["a"]
    assert "more than 5 levels deep" in str(both["1/2/3/4/5/6"].reason)
    assert usable(found(tmp_path, "1").values()) == ["1/2/3/4/5/6"]


def test_a_skill_at_the_top_is_one_of_many_and_takes_only_its_own_along(tmp_path: Path) -> None:
    lay(tmp_path, ".", "skills/a", "plugins/p/skills/b", "lib/no")
    write(tmp_path / "SKILL.md", GOOD.format("top"))
    write(tmp_path / "scripts/x.sh", "x")
    both = found(tmp_path)
    assert usable(both.values()) == ["skills/a", ".", "plugins/p/skills/b"]
    assert both["."].bundle is not None
    assert sorted(both["."].bundle.files) == ["SKILL.md", "scripts/x.sh"]


def test_a_skill_alone_takes_all_of_its_folder_along(tmp_path: Path) -> None:
    write(tmp_path / "one/SKILL.md", GOOD.format("one"))
    write(tmp_path / "one/lib/x.py", "x")
    (one,) = found(tmp_path / "one").values()
    assert one.bundle is not None
    assert sorted(one.bundle.files) == ["SKILL.md", "lib/x.py"]


def test_what_is_no_file_of_a_skill_hides_nothing_below(tmp_path: Path) -> None:
    lay(tmp_path, "skills/a", "other/b")
    (tmp_path / FILE_NAME).mkdir()
    assert usable(found(tmp_path).values()) == ["skills/a", "other/b"]


def test_a_file_in_lower_case_gets_its_name(tmp_path: Path) -> None:
    write(tmp_path / "a/skill.md", GOOD.format("a"))
    (one,) = found(tmp_path).values()
    assert one.bundle is not None
    assert list(one.bundle.files) == [FILE_NAME]


def test_the_usual_places_keep_a_name_and_others_that_want_it_are_told(tmp_path: Path) -> None:
    lay(tmp_path, "deep/er/a", "skills/a", "skills/b", "copy/b", "z/A")
    write(tmp_path / "deep/er/a/more.md", "x")
    both = found(tmp_path)
    assert usable(both.values()) == ["skills/a", "skills/b"]
    assert both["deep/er/a"].reason == both["z/A"].reason == "skills/a has this name"
    assert "copy/b" not in both, "an equal copy is the same skill"


def test_a_malformed_skill_keeps_no_name(tmp_path: Path) -> None:
    lay(tmp_path, "b/x")
    write(tmp_path / "skills/x/SKILL.md", "---\nname: x\n---\n")
    both = found(tmp_path)
    assert both["skills/x"].bundle is None
    assert usable(both.values()) == ["b/x"]


@pytest.mark.parametrize("name", ["a ", "a\nb", "\udcff", ".curated"])
def test_a_folder_whose_name_no_session_could_read_is_not_taken(tmp_path: Path, name: str) -> None:
    write(tmp_path / "skills" / name / "SKILL.md", GOOD.format("a"))
    (one,) = found(tmp_path).values()
    assert (one.bundle, "the name of its folder" in str(one.reason)) == (None, True)


def test_a_folder_that_two_names_lead_to_is_looked_at_once(tmp_path: Path) -> None:
    lay(tmp_path, "skills/a")
    (tmp_path / "skills/again").symlink_to("a")
    (tmp_path / "skills/all").symlink_to("..")
    assert list(found(tmp_path)) == ["skills/a"]


def test_a_password_of_a_clone_does_not_come_along(tmp_path: Path) -> None:
    lay(tmp_path, "skills/a", "skills/b")
    write(tmp_path / ".git/config", "url = https://x:secret@localhost/")
    (tmp_path / "skills/a/config").symlink_to("../../.git/config")
    (tmp_path / "skills/b/git").symlink_to("../../.git")
    both = found(tmp_path)
    assert both["skills/a"].reason == "config is a link into .git"
    assert both["skills/b"].reason == "git is a link into .git"


def test_more_than_can_be_looked_at_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(tmp_path, *(f"s{number}" for number in range(9)))
    for limit in ("_MAX_FOLDERS", "_MAX_NAMES", "_MAX_SKILLS"):
        with monkeypatch.context() as patch:
            patch.setattr(module, limit, 3)
            every = find_importable(tmp_path, [()], SkillOptions())
        reasons = [one.reason for one in every if one.bundle is None]
        assert len(reasons) == 1, limit
        assert "3 " in str(reasons[0])


@pytest.mark.parametrize("call", ["open", "scandir"])
def test_a_folder_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    lay(tmp_path, "closed")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(EACCES, "Permission denied")

    monkeypatch.setattr(os, call, refuse)
    (one,) = find_importable(tmp_path, [("closed",)], SkillOptions())
    assert one.reason == "it cannot be read: Permission denied"
