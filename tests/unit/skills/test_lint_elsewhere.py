"""Folders with skills that sessions do not see: which are told, and what shows them."""

import os
from pathlib import Path

import pytest

from symphony.skills import SkillOptions, hint_for, load, skills_elsewhere, unseen_in
from unit.skills.conftest import Shelf


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True)
        (root / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n")


def elsewhere(workspace: Path, *listed: str, **options: object) -> list[tuple[str, int]]:
    chosen = SkillOptions(**options)  # type: ignore[arg-type]
    found = skills_elsewhere(workspace, chosen, load(workspace, chosen), listed)
    return [(one.path, one.skills) for one in found]


@pytest.mark.parametrize(
    "folder",
    [
        *(
            ".claude/skills",
            ".agents/skills",
            ".github/skills",
            ".cursor/skills",
            ".agent/skills",
            ".kiro/skills",
        ),
        *(
            ".windsurf/skills",
            ".codex/skills",
            ".gemini/skills",
            ".opencode/skill",
            ".factory/skills",
            "skills",
        ),
    ],
)
def test_a_folder_that_is_not_loaded_is_told(tmp_path: Path, folder: str) -> None:
    put(tmp_path / folder, "a", "b")
    assert elsewhere(tmp_path) == [(folder, 2)]
    assert elsewhere(tmp_path, extra_paths=(folder,)) == []
    assert elsewhere(tmp_path, path=folder) == []
    assert elsewhere(tmp_path, folder) == [], "the agent lists it itself"


def test_what_holds_no_skill_is_not_told(tmp_path: Path) -> None:
    (tmp_path / ".claude/skills/notes").mkdir(parents=True)
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor/skills").write_text("a file")
    put(tmp_path / ".git/skills", "a")
    put(tmp_path / ".kiro/specs", "a")
    put(tmp_path / "docs/skills", "a")
    put(tmp_path / ".symphony/skills", "mine")
    assert elsewhere(tmp_path) == []


def test_links_are_told_once_and_only_for_what_is_not_loaded(
    shelf: Shelf, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shelf.skill("a")
    root = shelf.workspace
    for agent in (".claude", ".agents", ".cursor", ".outside"):
        (root / agent).mkdir()
    (root / ".claude/skills").symlink_to("../.symphony/skills")
    put(root / ".agents/skills", "b")
    (root / ".agents/skills/a").symlink_to("../../.symphony/skills/a")
    (root / ".cursor/skills").symlink_to("../.agents/skills")
    outside = tmp_path_factory.mktemp("outside")
    put(outside, "c")
    (root / ".outside/skills").symlink_to(outside)
    assert elsewhere(root) == [(".agents/skills", 1)]


def test_one_line_names_all_and_the_setting_keeps_what_is_there(tmp_path: Path) -> None:
    for folder in (".agents/skills", ".claude/skills", ".odd\x1b[2J/skills"):
        put(tmp_path / folder, "a")
    options = SkillOptions(extra_paths=(".agents/skills",))
    folders = skills_elsewhere(tmp_path, options, load(tmp_path, options))
    assert "\n" not in unseen_in(folders)
    assert "\x1b" not in unseen_in(folders) + hint_for(options, folders)
    assert ".claude/skills (1 skill)" in unseen_in(folders)
    assert hint_for(options, folders[:1]).endswith(
        "agent.skills.extra_paths: [.agents/skills, .claude/skills]"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    put(tmp_path / ".claude/skills", "a")
    (tmp_path / ".claude/skills").chmod(0)
    assert elsewhere(tmp_path) == []
    (tmp_path / ".claude/skills").chmod(0o700)
