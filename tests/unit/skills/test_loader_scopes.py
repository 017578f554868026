"""Several roots: precedence, what is shadowed, and that no root is read twice (case 84 and around it)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from symphony.skills import (
    Root,
    Scope,
    Severity,
    Shadowed,
    SkillOptions,
    comment_body,
    load,
    named_problems,
    render,
    resolve_anchor,
    skill_digests,
)
from unit.skills.conftest import Shelf

if TYPE_CHECKING:
    from pathlib import Path

    from unit.skills.conftest import Shelf


def put(root: Path, directory: str, front: str) -> None:
    (root / directory).mkdir(parents=True)
    (root / directory / "SKILL.md").write_text(f"---\n{front}\n---\n")


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own skills, at `~/mine`."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    return home / "mine"


def test_case_84_the_project_wins_and_the_shadowing_is_told(shelf: Shelf, home: Path) -> None:
    shelf.skill("same", "description: Of the project.")
    put(home, "same", "name: same\ndescription: Of the user.")
    put(shelf.workspace / ".agents/skills", "same", "name: same\ndescription: Further.")
    found = shelf.load(user_path="~/mine", extra_paths=(".agents/skills",))
    assert [(skill.name, skill.scope, skill.description) for skill in found.skills] == [
        ("same", Scope.PROJECT, "Of the project.")
    ]
    assert found.shadowed == (
        Shadowed(
            name="same", path="~/mine/same/SKILL.md", scope=Scope.USER, by=".symphony/skills/same/SKILL.md"
        ),
        Shadowed(
            name="same",
            path=".agents/skills/same/SKILL.md",
            scope=Scope.EXTRA,
            by=".symphony/skills/same/SKILL.md",
        ),
    )
    assert shelf.problems(user_path="~/mine", extra_paths=(".agents/skills",)) == []


def test_case_84_the_user_goes_before_the_further_roots_and_those_by_their_order(
    shelf: Shelf, home: Path
) -> None:
    put(home, "a", "name: a\ndescription: user")
    for root in ("x", "y"):
        put(shelf.workspace / root, "a", f"name: a\ndescription: {root}")
        put(shelf.workspace / root, "b", f"name: b\ndescription: {root}")
    found = shelf.load(user_path=str(home), extra_paths=("y", "x"))
    assert [(skill.name, skill.description) for skill in found.skills] == [("a", "user"), ("b", "y")]
    assert [(root.scope, root.path) for root in found.roots] == [
        ("user", str(home)),
        ("extra", "y"),
        ("extra", "x"),
    ]


def test_inside_one_root_a_second_skill_of_a_name_is_an_error_even_where_both_are_shadowed(
    shelf: Shelf,
) -> None:
    shelf.skill("same")
    for directory in ("one", "two"):
        put(shelf.workspace / "more", directory, "name: same\ndescription: d")
    found = shelf.load(extra_paths=("more",))
    errors = [(one.code, one.path) for one in found.problems if one.severity is Severity.ERROR]
    assert errors == [("duplicate_name", "more/two/SKILL.md")]
    assert [one.path for one in found.shadowed] == ["more/one/SKILL.md"]


def test_one_directory_under_two_names_is_loaded_once(shelf: Shelf) -> None:
    shelf.skill("a")
    (shelf.workspace / ".agents").mkdir()
    (shelf.workspace / ".agents/skills").symlink_to("../.symphony/skills")
    found = shelf.load(extra_paths=(".agents/skills", ".symphony/skills"))
    assert [skill.name for skill in found.skills] == ["a"]
    assert found.shadowed == ()
    assert found.roots == (Root(scope=Scope.PROJECT, path=".symphony/skills", directory=shelf.root),)


@pytest.mark.usefixtures("home")
def test_a_root_that_is_missing_or_has_no_skill_deserves_a_word_and_the_usual_ones_do_not(
    shelf: Shelf, home: Path
) -> None:
    usual = {"path": ".symphony/skills", "user_path": "~/.symphony/skills"}
    assert shelf.load(**usual).problems == ()
    (shelf.workspace / ".symphony/skills").mkdir(parents=True)
    (home.parent / ".symphony/skills").mkdir(parents=True)
    assert shelf.load(**usual).problems == ()
    for directory in (shelf.workspace / "empty", shelf.workspace / "more", home):
        directory.mkdir()
    found = shelf.load(path="empty", user_path=("~/mine", "~/gone"), extra_paths=(".agents/skills", "more"))
    assert [(one.code, one.severity, one.path) for one in found.problems] == [
        ("no_skills", "warning", "empty"),
        ("no_skills", "warning", "~/mine"),
        ("missing_directory", "warning", "~/gone"),
        ("missing_directory", "warning", ".agents/skills"),
        ("no_skills", "warning", "more"),
    ]


def test_the_roots_of_a_user_may_be_several_and_each_is_its_own_anchor(shelf: Shelf, home: Path) -> None:
    """A folder of a product beside one of a customer; one may even lie in the other."""
    for root, names in ((home, ("a", "both")), (home / "inner", ("b", "both"))):
        for name in names:
            put(root, name, f"name: {name}\ndescription: of {root.name}")
    options = SkillOptions(user_path=("~/mine/", str(home / "inner")))
    found = load(shelf.workspace, options)
    assert [(skill.name, skill.description) for skill in found.skills] == [
        ("a", "of mine"),
        ("b", "of inner"),
        ("both", "of mine"),
    ]
    assert [one.path for one in found.shadowed] == [f"{home}/inner/both/SKILL.md"]
    anchors = [resolve_anchor(skill.scope, skill.path, shelf.workspace, options) for skill in found.skills]
    assert anchors == [(home, "a/SKILL.md"), (home / "inner", "b/SKILL.md"), (home, "both/SKILL.md")]
    assert set(skill_digests(shelf.workspace, found.skills, options)) == {
        skill.path for skill in found.skills
    }


@pytest.mark.parametrize("path", ["../x", "/etc", "", "a\0b"])
def test_a_further_root_outside_of_the_workspace_is_refused(shelf: Shelf, path: str) -> None:
    (problem,) = shelf.load(extra_paths=(path,)).problems
    assert (problem.code, problem.scope) == ("outside_workspace", Scope.EXTRA)
    assert "extra_paths" in problem.message


@pytest.mark.parametrize("path", ["", " ", "a\0b", "\udc80"])
def test_a_user_path_that_is_none_is_a_warning(shelf: Shelf, path: str) -> None:
    (problem,) = shelf.load(user_path=path).problems
    assert (problem.code, problem.severity, problem.path) == ("not_a_directory", "warning", ".")


def test_no_link_leads_out_of_the_users_root(shelf: Shelf, home: Path) -> None:
    put(home.parent / "elsewhere", "a", "name: a\ndescription: d")
    home.mkdir()
    (home / "a").symlink_to("../elsewhere/a")
    (problem,) = shelf.load(user_path="~/mine").problems
    assert (problem.code, problem.path, problem.scope) == (
        "outside_workspace",
        "~/mine/a/SKILL.md",
        Scope.USER,
    )
    assert "workspace" not in problem.message


def test_what_is_wrong_with_the_users_files_is_nothing_for_an_issue(shelf: Shelf, home: Path) -> None:
    put(home, "a", "x: y")
    problems = shelf.load(user_path="~/mine").problems
    assert [(one.code, one.path) for one in problems] == [("missing_name", "~/mine/a/SKILL.md")]
    assert comment_body(problems) is None
    assert named_problems(problems) == ()


def test_the_users_root_may_be_one_skill(shelf: Shelf, home: Path) -> None:
    put(home.parent, "mine", "name: mine\ndescription: d")
    found = shelf.load(user_path="~/mine")
    assert [found.file(skill) for skill in found.skills] == [home / "SKILL.md"]


def test_the_root_that_most_skills_share_stands_on_top_and_the_others_name_their_files(
    shelf: Shelf, home: Path
) -> None:
    put(home, "a", "name: a\ndescription: d")
    for name in ("b", "c"):
        put(shelf.workspace / "more", name, f"name: {name}\ndescription: d")
    text = str(shelf.render(user_path="~/mine", extra_paths=("more",)).text).split("\n")
    assert f"`{shelf.workspace}/more/{{directory}}/SKILL.md`" in text[2]
    assert text[4:] == [f"- a (file: {home}/a/SKILL.md) — d", "- b — d", "- c — d"]


def test_the_block_may_name_another_directory_than_the_one_that_was_read(
    shelf: Shelf, tmp_path: Path
) -> None:
    shelf.skill("a")
    put(shelf.workspace / "more", "b", "name: b\ndescription: d")
    options = SkillOptions(extra_paths=("more",))
    found = load(shelf.workspace, options, root=tmp_path / "other")
    assert found.root == tmp_path / "other/.symphony/skills"
    assert [found.file(skill) for skill in found.skills] == [
        tmp_path / "other/.symphony/skills/a/SKILL.md",
        tmp_path / "other/more/b/SKILL.md",
    ]
    text = str(render(found, options).text)
    assert f"`{tmp_path}/other/.symphony/skills/" in text
    assert [skill.path for skill in found.skills] == [".symphony/skills/a/SKILL.md", "more/b/SKILL.md"]
    assert load(shelf.workspace, options).root == shelf.root, "one reading is not taken for the other"


def test_disabled_there_is_no_call_for_any_root(shelf: Shelf, home: Path, calls: list[str]) -> None:
    put(home, "a", "x: y")
    calls.clear()
    found = shelf.load(enabled=False, user_path="~/mine", extra_paths=("more",))
    assert (calls, found.problems, found.roots) == ([], (), ())
    assert load(shelf.workspace, SkillOptions(enabled=False), root=shelf.workspace / "x").root == (
        shelf.workspace / "x/.symphony/skills"
    )
