from pathlib import Path

import pytest

from symphony.daemon.runs.session_skills import SkillUsageTracker
from symphony.daemon.runs.skills import RunCatalog
from symphony.skills import Scope, Skill, SkillSet

WORKSPACE = Path("/work/SYM-1")
ROOT = WORKSPACE / ".symphony" / "skills"
USER = Path("/home/ann/.symphony/skills")
PINNED = Path("/work/.symphony/pinned/c0ffee-1/.symphony/skills")


def skill(name: str, directory: str | None = None) -> Skill:
    place = directory or name
    return Skill(
        name=name,
        description="d",
        when_to_use="",
        directory=place,
        path=f".symphony/skills/{place}/SKILL.md",
    )


def of_the_user(name: str) -> Skill:
    return Skill(
        name=name,
        description="d",
        when_to_use="",
        directory=name,
        path=f"~/.symphony/skills/{name}/SKILL.md",
        scope=Scope.USER,
        root=USER,
    )


def sightings(*skills: Skill, root: Path = ROOT) -> SkillUsageTracker:
    return SkillUsageTracker(
        RunCatalog(listed=skills, complete=True, found=SkillSet(root=root, skills=skills)), WORKSPACE
    )


@pytest.mark.parametrize(
    "arguments",
    [
        f"cat -- {ROOT}/greet/SKILL.md",
        f"/bin/bash -lc \"sed -n '1,200p' {ROOT}/greet/SKILL.md\"",
        "cat .symphony/skills/greet/SKILL.md",
        "cat ./.symphony/skills/greet/SKILL.md | head",
        f'{{"path": "{ROOT}/greet/SKILL.md"}}',
        f"head <{ROOT}/greet/SKILL.md",
        f"FILE={ROOT}/greet/SKILL.md",
        f"cat {ROOT}/greet/SKILL.md;ls",
        f"cat a\n{ROOT}/greet/SKILL.md\n",
    ],
)
def test_the_path_of_a_file_in_what_a_tool_is_given_is_a_sighting(arguments: str) -> None:
    assert [one.name for one in sightings(skill("greet"), skill("other")).named_in(arguments)] == ["greet"]


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "cat greet/SKILL.md",
        "cat .symphony/skills/*/SKILL.md",
        "cat .symphony/skills/greet/NOTES.md",
        "cat .symphony/skills/greet/SKILL.mdx",
        "cat .symphony/skills/greeting/SKILL.md",
        "cat /other/.symphony/skills/greet/SKILL.md",
        f"cat /mnt{ROOT}/greet/SKILL.md",
        "cat old.symphony/skills/greet/SKILL.md",
        "/SKILL.md",
    ],
)
def test_another_path_is_none(arguments: str) -> None:
    assert sightings(skill("greet")).named_in(arguments) == ()


def test_a_directory_with_blanks_is_recognised_too() -> None:
    looked = sightings(skill("greet", "my greeting"))
    assert looked.named_in(f"cat '{ROOT}/my greeting/SKILL.md'")


def test_a_path_that_a_shell_has_to_quote_is_recognised_too() -> None:
    root = Path("/srv/it's here/skills")
    for path in (
        "'/srv/it'\"'\"'s here/skills/greet/SKILL.md'",
        "'/srv/it'\\''s here/skills/greet/SKILL.md'",
    ):
        assert sightings(skill("greet"), root=root).named_in(f"cat {path}")
        assert not sightings(skill("greet"), root=root).named_in(f"cat {path.replace('skills', 'others')}")


def test_a_root_that_is_the_workspace_itself() -> None:
    assert sightings(skill("greet"), root=WORKSPACE).named_in("cat greet/SKILL.md")


def test_the_users_files_are_known_as_they_are_configured() -> None:
    assert sightings(of_the_user("greet")).named_in("cat ~/.symphony/skills/greet/SKILL.md")
    assert sightings(of_the_user("greet")).named_in(f"cat {USER}/greet/SKILL.md")


def test_of_pinned_skills_the_workspaces_own_file_is_another_one() -> None:
    looked = sightings(skill("greet"), root=PINNED)
    assert looked.named_in("cat .symphony/skills/greet/SKILL.md") == ()
    assert looked.named_in(f"cat {PINNED}/greet/SKILL.md")


def test_each_skill_is_told_once_however_it_was_seen() -> None:
    looked = sightings(skill("a"), skill("b"))
    both = f"cat {ROOT}/a/SKILL.md {ROOT}/b/SKILL.md {ROOT}/a/SKILL.md"
    assert [one.name for one in looked.activated("b")] == ["b"]
    assert [one.name for one in looked.named_in(both)] == ["a"]
    assert looked.named_in(both) == looked.activated("a") == looked.activated("unknown") == ()


def test_people_are_told_what_was_seen_so_far() -> None:
    looked = sightings(skill("a"), skill("b"))
    assert [one.seen for one in looked.document.listed] == [False, False]
    looked.activated("b")
    assert [(one.name, one.seen) for one in looked.document.listed] == [("a", False), ("b", True)]


def test_without_skills_there_is_nothing_to_see() -> None:
    looked = SkillUsageTracker(RunCatalog(), WORKSPACE)
    assert looked.named_in(f"cat {ROOT}/a/SKILL.md") == ()
    assert looked.document == RunCatalog().document
