"""What people meant to be a skill and no run takes for one is told, with what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from symphony.skills import Problem, SkillOptions, draft, load, with_advice
from unit.skills.conftest import Shelf

if TYPE_CHECKING:
    from pathlib import Path

    from unit.skills.conftest import Shelf


def told(shelf: Shelf, **options: object) -> list[Problem]:
    chosen = SkillOptions(**options)  # type: ignore[arg-type]
    found = load(shelf.workspace, chosen)
    advised = with_advice(shelf.workspace, chosen, found)
    assert advised.skills == found.skills
    assert advised.problems[: len(found.problems)] == found.problems
    return [*advised.problems[len(found.problems) :]]


def test_flat_files_are_told(shelf: Shelf) -> None:
    shelf.skill("good")
    for name in ("foo.md", "my_notes.md", "README.md", "readme.md", "x.txt", "no name.md"):
        shelf.write(".", "Advice.\n", file=name)
    assert [(one.code, one.severity, one.path) for one in told(shelf)] == [
        ("flat_file", "warning", ".symphony/skills/foo.md"),
        ("flat_file", "warning", ".symphony/skills/my_notes.md"),
    ]
    assert "SKILL.md" in told(shelf)[0].hint


def test_skills_nested_too_deeply_are_told(shelf: Shelf) -> None:
    shelf.skill("good")
    for place in ("writing/haiku", "a/b/c", "good/examples/own", ".git/x", ".hidden/y"):
        shelf.write(place, "---\nname: x\ndescription: d\n---\n")
    assert [(one.code, one.path) for one in told(shelf)] == [
        ("nested_too_deep", ".symphony/skills/writing/haiku/SKILL.md"),
        ("nested_too_deep", ".symphony/skills/a/b/c/SKILL.md"),
    ]
    assert "extra_paths" in told(shelf)[0].hint
    named = told(shelf, extra_paths=(".symphony/skills/writing",))
    assert [one.path for one in named] == [".symphony/skills/a/b/c/SKILL.md"], "the hint helps"


@pytest.mark.parametrize(
    ("description", "when", "unfilled"),
    [(None, None, True), ("Does it.", None, True), (None, "Now.", True), ("Does it.", "Now.", False)],
)
def test_what_new_wrote_to_be_filled_in_is_told_until_it_is(
    shelf: Shelf, description: str | None, when: str | None, *, unfilled: bool
) -> None:
    shelf.write("a", draft("a", description, when))
    assert [one.code for one in told(shelf)] == ["unfilled"] * unfilled
    assert told(shelf, disabled_skills=("a",)) == []


def test_every_root_is_looked_at_and_none_has_to_be_there(shelf: Shelf, tmp_path: Path) -> None:
    (shelf.workspace / "more").mkdir()
    (shelf.workspace / "more/flat.md").write_text("x")
    user = tmp_path / "user"
    (user / "deep/one").mkdir(parents=True)
    (user / "deep/one/SKILL.md").write_text("x")
    found = told(shelf, user_path=str(user), extra_paths=("more", "gone", "../out"))
    assert [(one.code, one.scope, one.path) for one in found] == [
        ("nested_too_deep", "user", f"{user}/deep/one/SKILL.md"),
        ("flat_file", "extra", "more/flat.md"),
    ]
