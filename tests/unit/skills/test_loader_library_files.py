"""The scope `library`: skills that were written into a workspace, beside those of the repository."""

from pathlib import Path

from symphony.skills import DropReason, LibraryFiles, Scope, SkillOptions, load, render, skill_digests

PLACE = ".agents/skills"
NAMES = frozenset({"a-learned-one", "style", "tests"})


def put(workspace: Path, path: str) -> None:
    file = workspace / path / "SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text(f"---\nname: {file.parent.name}\ndescription: What it does.\n---\n")


def test_they_are_listed_behind_those_of_the_repository_and_learned_ones_last(tmp_path: Path) -> None:
    for name in (*NAMES, "own"):
        put(tmp_path, f"{PLACE}/{name}")
    put(tmp_path, ".symphony/skills/tests")
    files = LibraryFiles(base=tmp_path, path=PLACE, names=NAMES, learned=frozenset({"a-learned-one"}))
    options = SkillOptions(library=files)
    found = load(tmp_path, options)
    assert [(one.name, one.scope, one.learned) for one in found.skills] == [
        ("style", Scope.LIBRARY, False),
        ("tests", Scope.PROJECT, False),
        ("a-learned-one", Scope.LIBRARY, True),
    ]
    assert [(one.name, one.scope) for one in found.shadowed] == [("tests", Scope.LIBRARY)]
    assert len(skill_digests(tmp_path, found.skills, options)) == len(found.skills)
    assert DropReason.SHADOWED not in {one.reason for one in render(found, options).dropped}


def test_a_directory_of_both_is_told_apart_by_the_names(tmp_path: Path) -> None:
    for name in ("style", "own"):
        put(tmp_path, f"{PLACE}/{name}")
    files = LibraryFiles(base=tmp_path, path=PLACE, names=NAMES)
    found = load(tmp_path, SkillOptions(library=files, extra_paths=(PLACE,)))
    assert {one.name: one.scope for one in found.skills} == {"own": Scope.EXTRA, "style": Scope.LIBRARY}
    assert [one.scope for one in found.problems] == [Scope.EXTRA, Scope.LIBRARY]


def test_a_preview_names_the_workspace_that_is_not_there_yet(tmp_path: Path) -> None:
    put(tmp_path, f"{PLACE}/style")
    later = tmp_path / "later"
    files = LibraryFiles(base=tmp_path, path=PLACE, names=NAMES, named=later)
    found = load(tmp_path, SkillOptions(library=files))
    assert found.file(found.skills[0]) == later / PLACE / "style" / "SKILL.md"
