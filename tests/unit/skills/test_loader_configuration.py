"""Conformance cases 1 to 14: the happy path and the configuration."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from symphony.skills import Dropped, DropReason, Severity, SkillOptions, SkillSet, comment_body, load, render
from unit.skills.conftest import Shelf

if TYPE_CHECKING:
    from pathlib import Path

    from unit.skills.conftest import Shelf


def test_case_01_without_a_root_there_is_nothing_and_one_miss(
    shelf: Shelf, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    misses: list[int | None] = []
    real = os.open

    def count(*args: Any, **kwargs: Any) -> int:
        try:
            return real(*args, **kwargs)
        except OSError as error:
            misses.append(error.errno)
            raise

    monkeypatch.setattr(os, "open", count)
    found = shelf.load()
    made = {*calls}
    assert found == SkillSet(root=shelf.root)
    assert render(found, SkillOptions()).text is None
    assert misses == [errno.ENOENT]
    assert made == {"open"}


def test_case_01_a_missing_workspace_is_no_reason_to_fail(tmp_path: Path) -> None:
    assert load(tmp_path / "gone", SkillOptions()).problems == ()


def test_case_01_the_path_may_itself_be_one_skill(shelf: Shelf) -> None:
    shelf.skill("a", "when_to_use: Always.")
    shelf.skill("b")
    found = shelf.load(path=".symphony/skills/a")
    assert [(skill.name, skill.directory, skill.path) for skill in found.skills] == [
        ("a", "a", ".symphony/skills/a/SKILL.md")
    ]
    assert (found.root / found.skills[0].directory / "SKILL.md").is_file()


def test_case_01_the_workspace_itself_may_be_one_skill(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_text("---\nname: x\nwhen_to_use: y\n---\n")
    found = load(tmp_path, SkillOptions(path="."))
    assert found.root == tmp_path.parent
    assert [(skill.directory, skill.path) for skill in found.skills] == [(tmp_path.name, "SKILL.md")]


def test_case_01_one_malformed_skill_is_reported_where_it_stands(shelf: Shelf) -> None:
    shelf.write("a", "# Title\n")
    (problem,) = shelf.load(path=".symphony/skills/a").problems
    assert (problem.code, problem.path) == ("missing_front_matter", ".symphony/skills/a/SKILL.md")


def test_case_02_an_empty_root_gives_no_heading(shelf: Shelf) -> None:
    shelf.root.mkdir(parents=True)
    assert (shelf.load().skills, shelf.load().problems) == ((), ())
    assert shelf.render().text is None
    assert comment_body(shelf.load().problems) is None


def test_case_03_skills_are_listed_by_name_with_their_when_to_use(shelf: Shelf) -> None:
    for name in ("c", "a", "b"):
        shelf.skill(name, f"when_to_use: When {name}.", f"description: About {name}.", body="Secret body.\n")
    assert shelf.entries() == ["- a — When a.", "- b — When b.", "- c — When c."]
    assert "Secret body" not in str(shelf.render().text)
    assert "About" not in str(shelf.render().text)


def test_case_04_the_description_stands_in_for_when_to_use(shelf: Shelf) -> None:
    shelf.skill("a", "description: About a.")
    assert shelf.entries() == ["- a — About a."]
    assert shelf.problems(Severity.INFO) == [("missing_when_to_use", "a/SKILL.md")]


@pytest.mark.parametrize(
    "blank", ["when_to_use:", "when_to_use: ''", 'when_to_use: " \\t "', "when_to_use: ~"]
)
def test_case_05_a_blank_when_to_use_counts_as_none(shelf: Shelf, blank: str) -> None:
    shelf.skill("a", blank, "description: About a.")
    assert shelf.entries() == ["- a — About a."]


@pytest.mark.parametrize("fields", [[], ["description: ''"], ["description: [a]"]])
def test_case_06_when_to_use_alone_is_loaded_with_a_warning(shelf: Shelf, fields: list[str]) -> None:
    shelf.skill("a", "when_to_use: Always.", *fields)
    assert shelf.entries() == ["- a — Always."]
    assert shelf.warnings() == ["missing_description"]


def test_case_06_when_to_use_may_stand_under_metadata(shelf: Shelf) -> None:
    shelf.skill("a", "description: About a.", "metadata: {when_to_use: Nested.}")
    shelf.skill("b", "description: About b.", "when_to_use: Top.", "metadata: {when_to_use: Nested.}")
    assert shelf.entries() == ["- a — Nested.", "- b — Top."]


def test_case_07_the_block_has_one_heading_and_one_line_on_use(shelf: Shelf) -> None:
    shelf.skill("a")
    heading, blank, how, gap, *entries = str(shelf.render().text).split("\n")
    assert (heading, blank, gap, len(entries)) == ("## Available skills", "", "", 1)
    assert f"`{shelf.root}/" in how
    assert shelf.root.is_absolute()
    assert "not orders" in how


def test_case_09_disabled_means_no_file_system_call_at_all(shelf: Shelf, calls: list[str]) -> None:
    shelf.write("a", "# malformed\n")
    calls.clear()
    found = shelf.load(enabled=False)
    assert calls == []
    assert (found.skills, found.problems) == ((), ())
    assert render(found, SkillOptions(enabled=False)).text is None


def test_case_11_another_path_works(shelf: Shelf) -> None:
    directory = shelf.workspace / "docs" / "skills" / "a"
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text("---\nname: a\ndescription: b\n---\n")
    found = shelf.load(path="docs/skills")
    assert [skill.path for skill in found.skills] == ["docs/skills/a/SKILL.md"]
    assert found.root == shelf.workspace / "docs" / "skills"


@pytest.mark.parametrize("path", ["../x", "/etc", "a/../../b", "", " ", "a\0b", "a\nb", "\udc80"])
def test_case_11_a_path_that_leaves_the_workspace_is_refused(
    shelf: Shelf, calls: list[str], path: str
) -> None:
    (problem,) = shelf.load(path=path).problems
    assert (problem.code, problem.path, problem.severity) == ("outside_workspace", ".", "error")
    assert calls == []


def test_case_11_a_path_that_is_a_file_gives_one_warning(shelf: Shelf) -> None:
    (shelf.workspace / "docs").write_text("")
    for path in ("docs", "docs/skills"):
        (problem,) = shelf.load(path=path).problems
        assert (problem.code, problem.severity, problem.path) == ("not_a_directory", "warning", path)


def test_case_11_a_configured_path_that_is_missing_gives_one_warning(shelf: Shelf) -> None:
    (problem,) = shelf.load(path="docs/skills").problems
    assert (problem.code, problem.severity) == ("missing_directory", "warning")


def test_case_12_the_cap_keeps_the_first_and_names_the_rest(shelf: Shelf) -> None:
    for name in ("c", "a", "b"):
        shelf.skill(name)
    block = shelf.render(max_skills_in_prompt=2)
    assert block.listed == ("a", "b")
    assert block.dropped == (Dropped(name="c", reason=DropReason.COUNT),)
    assert "c" not in shelf.entries(max_skills_in_prompt=2)
    assert comment_body(shelf.load().problems) is None


@pytest.mark.parametrize("cap", [0, -1])
def test_case_12_a_cap_below_one_lists_nothing(shelf: Shelf, cap: int) -> None:
    shelf.skill("a")
    block = shelf.render(max_skills_in_prompt=cap)
    assert (block.text, block.listed, [one.name for one in block.dropped]) == (None, (), ["a"])


def test_case_13_unknown_keys_are_ignored(shelf: Shelf) -> None:
    shelf.skill("a", "disabled:", "hooks:", "  pre: [x]", "metadata:", "  version: 1.0", "tags: [a, b]")
    assert shelf.entries() == ["- a — About a."]
    assert shelf.problems(Severity.ERROR, Severity.WARNING) == []


@pytest.mark.parametrize("tools", ["Read, Grep", "[Read, Grep]", "", "~"])
def test_case_14_allowed_tools_come_in_every_shape(shelf: Shelf, tools: str) -> None:
    shelf.skill("a", f"allowed-tools: {tools}")
    assert shelf.names() == ["a"]
    assert shelf.warnings() == []


@pytest.mark.parametrize(
    "field",
    [
        "compatibility: {a: b}",
        "compatibility: ''",
        f"compatibility: {'x' * 501}",
        "license: [MIT]",
        "metadata: text",
        "allowed-tools: {a: b}",
        "when_to_use: [a]",
        "metadata: {when_to_use: [a]}",
    ],
)
def test_case_14_an_optional_field_of_another_type_is_a_warning_that_names_it(
    shelf: Shelf, field: str
) -> None:
    shelf.skill("a", field, "description: About a.")
    assert shelf.entries() == ["- a — About a."]
    problem = shelf.only_problem()
    assert (problem.code, problem.line) == ("bad_optional_field", 3)
    assert field.split(":", maxsplit=1)[0] in problem.message
