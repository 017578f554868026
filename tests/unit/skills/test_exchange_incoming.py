"""What counts as a skill of a foreign folder, and what is said about the rest."""

import os
from collections.abc import Iterable
from errno import EACCES
from pathlib import Path

import pytest

from symphony.skills import (
    FILE_NAME,
    ImportCandidate,
    ParseOptions,
    SkillOptions,
    Validation,
    find_importable,
)
from symphony.skills import exchange as module

GOOD = "---\nname: {}\ndescription: d\n---\n"


def write(path: Path, data: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def found(
    anchor: Path, *below: str, flat: bool = True, options: SkillOptions | None = None
) -> dict[str, ImportCandidate]:
    return {one.source: one for one in find_importable(anchor, [below], options or SkillOptions(), flat=flat)}


def data(one: ImportCandidate) -> bytes:
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
    assert both["a.md"].reason == "a has this name"


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
        (("skills/flat.md", "skills/writing/haiku.md"), ("skills/writing/notes.md", "docs/page.md")),
        (("a/skills/flat.md",), ()),
        (("a",), ("node_modules/b/SKILL.md", ".git/c/SKILL.md", ".idea/d/SKILL.md", "a/examples/e/SKILL.md")),
    ],
)
def test_skills_are_found_wherever_collections_keep_them(
    tmp_path: Path, places: tuple[str, ...], others: tuple[str, ...]
) -> None:
    lay(tmp_path, *places)
    for other in others:
        write(tmp_path / other, "No skill.\n")
    assert sorted(usable(find_importable(tmp_path, [()], SkillOptions(), flat=False))) == sorted(places)


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


def test_a_flat_link_to_a_folder_is_no_file(tmp_path: Path) -> None:
    lay(tmp_path, "skills/a")
    (tmp_path / "skills/b.md").symlink_to("a")
    (tmp_path / "skills/c.md").symlink_to("a/SKILL.md")
    assert usable(found(tmp_path).values()) == ["skills/a"]


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
            every = find_importable(tmp_path, [()], SkillOptions(), flat=True)
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
    (one,) = find_importable(tmp_path, [("closed",)], SkillOptions(), flat=True)
    assert one.reason == "it cannot be read: Permission denied"


# --- a manifest ---


def manifest(root: Path, text: str) -> None:
    write(root / "manifest.yaml", text)


def test_the_priority_and_phases_of_a_manifest_are_kept(tmp_path: Path) -> None:
    manifest(
        tmp_path / "skills",
        'version: "1"\nskills:\n'
        "- {name: first, file: first_one.md, priority: 10, phases: [TEST, REVIEW]}\n"
        "- {name: second, file: second/SKILL.md, priority: 20}\n"
        "- {name: Third, file: sub/third.md, phases: 'TEST, REVIEW'}\n"
        "- {name: plain, file: plain}\n",
    )
    write(tmp_path / "skills/first_one.md", "Does one thing.\n")
    write(tmp_path / "skills/second/SKILL.md", "---\r\nname: second\r\ndescription: d\r\n---\r\nbody\r\n")
    write(tmp_path / "skills/sub/third.md", "Does another.\n")
    lay(tmp_path, "skills/plain")
    both = {one.directory: one for one in found(tmp_path).values()}
    skills = {
        name: module.parse_bytes(data(one), name, "x", ParseOptions.of(SkillOptions())).skill
        for name, one in both.items()
    }
    assert {name: skill and (skill.priority, skill.phases) for name, skill in skills.items()} == {
        "first": (10, ("TEST", "REVIEW")),
        "second": (20, ()),
        "third": (50, ("TEST", "REVIEW")),
        "plain": (50, ()),
    }
    assert data(both["second"]).endswith(b'metadata:\r\n  symphony-priority: "20"\r\n---\r\nbody\r\n')
    assert data(both["plain"]) == GOOD.format("plain").encode(), "nothing is written that was not told"


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        ("metadata:\n    version: 1.0", 'metadata:\n    symphony-priority: "7"\n    version: 1.0'),
        ("metadata:\nlicense: MIT", 'metadata:\n  symphony-priority: "7"\nlicense: MIT'),
        ('metadata:\n  symphony-priority: "3"', 'metadata:\n  symphony-priority: "3"'),
        ("metadata: {a: b}", None),
        ("license: |\n  MIT\nmetadata: {a: b}", None),
        ("metadata: text", None),
    ],
)
def test_a_manifest_goes_into_metadata_and_changes_nothing_of_it(
    tmp_path: Path, front: str, expected: str | None
) -> None:
    manifest(tmp_path, 'version: "1"\nskills: [{file: a/SKILL.md, priority: 7}]\n')
    write(tmp_path / "a/SKILL.md", f"---\nname: a\ndescription: d\n{front}\n---\n")
    (one,) = found(tmp_path).values()
    text = data(one).decode()
    assert text == f"---\nname: a\ndescription: d\n{expected or front}\n---\n"
    codes = [problem.code for problem in one.problems]
    assert ("bad_optional_field" in codes) is (expected is None)


def test_a_manifest_helps_no_file_that_is_no_skill(tmp_path: Path) -> None:
    manifest(tmp_path, 'version: "1"\nskills: [{file: A B/SKILL.md, priority: 7}]\n')
    write(tmp_path / "A B/SKILL.md", "Bare.\n")
    (one,) = found(tmp_path).values()
    assert one.bundle is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("skills: [\n", "line "),
        ('version: "2"\nskills: []\n', '`version` is not "1"'),
        ('version: "1"\nskills: [x]\n', "entry 1: it is no map"),
        ('version: "1"\nskills: [x, y, z]\n', "entry 1: it is no map (and 2 more)"),
        ('version: "1"\nskills: [{name: [x], file: y}]\n', "entry 1: `name` is not text"),
        ('version: "1"\nskills: [{name: x}]\n', "entry 1: `file` is not the path of a file"),
        ('version: "1"\nskills: [{file: ../x.md}]\n', "entry 1: `file` leads out of the folder"),
        ('version: "1"\nskills: [{file: /etc/x.md}]\n', "entry 1: `file` leads out of the folder"),
        ('version: "1"\nskills: [{file: .git/config}]\n', "entry 1: `file` leads out of the folder"),
        (
            'version: "1"\nskills: [{file: x.md, priority: soon}]\n',
            "entry 1: `priority` is not a whole number",
        ),
        (
            'version: "1"\nskills: [{file: x.md, phases: {a: b}}]\n',
            "entry 1: `phases` is not a list of words",
        ),
        ('version: "1"\nskills: [{file: gone.md}]\n', "gone.md cannot be read"),
    ],
)
def test_what_is_wrong_with_a_manifest_is_told_and_the_skills_come_over(
    tmp_path: Path, text: str, reason: str
) -> None:
    manifest(tmp_path, text)
    lay(tmp_path, "a")
    both = [*found(tmp_path).values()]
    assert usable(both) == ["a"]
    ((told,),) = [[str(one.reason) for one in both if one.bundle is None]]
    assert reason in told


def test_a_manifest_of_something_else_is_nothing(tmp_path: Path) -> None:
    manifest(tmp_path, "apiVersion: v1\nkind: Pod\n")
    lay(tmp_path, "a")
    assert list(found(tmp_path)) == ["a"]
    (tmp_path / "manifest.yaml").unlink()
    (tmp_path / "manifest.yaml").symlink_to("/etc/passwd")
    assert "leads out" in str(found(tmp_path)["manifest.yaml"].reason)


def test_a_manifest_of_the_top_may_name_the_top_and_is_bounded(tmp_path: Path) -> None:
    manifest(tmp_path, 'version: "1"\nskills: [{file: SKILL.md, priority: 7}, {file: b.md}]\n')
    write(tmp_path / "SKILL.md", GOOD.format("top"))
    assert b"symphony-priority" in data(found(tmp_path)["."])
    manifest(tmp_path, 'version: "1"\nskills: [' + "b.md, " * 2_001 + "]\n")
    assert "(and 2000 more)" in str(found(tmp_path)["manifest.yaml"].reason), "2,000 entries and the limit"
