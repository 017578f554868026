"""The strict profile, the options that change what a file gives, and the keys of Symphony's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from symphony.skills import Severity, Validation

if TYPE_CHECKING:
    from unit.skills.conftest import Shelf

STRICT = Validation.STRICT


def strict_errors(shelf: Shelf) -> list[str]:
    assert shelf.names(validation=STRICT) == []
    return [code for code, _ in shelf.problems(validation=STRICT)]


def test_a_clean_skill_passes_the_strict_profile(shelf: Shelf) -> None:
    shelf.skill("a", "description: About a.", "when_to_use: Always.")
    assert shelf.names(validation=STRICT) == ["a"]
    assert shelf.load(validation=STRICT).problems == ()


def test_case_06_strict_wants_a_description(shelf: Shelf) -> None:
    shelf.skill("a", "when_to_use: Always.")
    assert strict_errors(shelf) == ["missing_description"]


def test_case_38_strict_wants_the_name_of_the_directory(shelf: Shelf) -> None:
    shelf.skill("there", "name: here")
    assert strict_errors(shelf) == ["name_dir_mismatch"]


@pytest.mark.parametrize("name", ["PDF-Tools", "a_b", "a b", "-a", "a-", "a--b"])
def test_case_39_strict_wants_the_alphabet(shelf: Shelf, name: str) -> None:
    shelf.skill(name, f"name: '{name}'")
    assert strict_errors(shelf) == ["name_charset"]


def test_case_40_strict_wants_64_characters_at_most(shelf: Shelf) -> None:
    shelf.skill("n" * 65)
    assert strict_errors(shelf) == ["name_too_long"]


def test_case_44_strict_refuses_a_look_alike_letter(shelf: Shelf) -> None:
    shelf.skill("\u0430bc")
    assert strict_errors(shelf) == ["name_charset"]


def test_strict_refuses_a_long_description(shelf: Shelf) -> None:
    shelf.skill("a", f"description: {'x' * 1_025}")
    assert strict_errors(shelf) == ["description_too_long"]


def test_strict_gives_one_error_and_keeps_the_warnings_before_it(shelf: Shelf) -> None:
    shelf.write("There", "\ufeff---\nname: Here\nwhen_to_use: x\nlicense: [a]\n---\n")
    found = shelf.load(validation=STRICT).problems
    assert [(one.severity, one.code, one.line) for one in found] == [
        (Severity.ERROR, "name_charset", 2),
        (Severity.WARNING, "bom", 1),
        (Severity.WARNING, "bad_optional_field", 4),
    ]


def test_warnings_stand_in_the_order_of_the_lines(shelf: Shelf) -> None:
    shelf.write("a", "---\nlicense: [x]\ndescription:\nname: A_b\nwhen_to_use: x\n---\n")
    found = shelf.load().problems
    assert [(one.line, one.code) for one in found] == [
        (2, "bad_optional_field"),
        (3, "missing_description"),
        (4, "name_charset"),
        (4, "name_dir_mismatch"),
    ]


def test_both_profiles_may_look_at_one_file(shelf: Shelf) -> None:
    shelf.skill("there", "name: here")
    assert (shelf.names(), shelf.names(validation=STRICT), shelf.names()) == (["here"], [], ["here"])


@pytest.mark.parametrize("front", ["description: d", "name:\ndescription: d"])
def test_a_missing_name_may_fall_back_to_the_directory(shelf: Shelf, front: str) -> None:
    shelf.write("a", f"---\n{front}\nwhen_to_use: w\n---\n")
    assert shelf.names(name_fallback=True) == ["a"]
    assert shelf.load(name_fallback=True).problems == ()
    assert shelf.problems() == [("missing_name", "a/SKILL.md")]


def test_a_name_that_is_no_text_does_not_fall_back(shelf: Shelf) -> None:
    shelf.write("a", "---\nname: [x]\ndescription: d\n---\n")
    assert shelf.problems(name_fallback=True) == [("invalid_name", "a/SKILL.md")]


@pytest.mark.parametrize("name", ["claude-api", "my-Claude_api", "claude", "api-anthropic"])
def test_case_45_reserved_words_are_errors_where_they_are_chosen(shelf: Shelf, name: str) -> None:
    shelf.skill(name)
    words = ("claude", "Anthropic")
    assert shelf.problems(reserved_words=words) == [("invalid_name", f"{name}/SKILL.md")]
    (error,) = [one for one in shelf.load(reserved_words=words).problems if one.severity is Severity.ERROR]
    assert "reserved" in error.message


@pytest.mark.parametrize("name", ["inference", "reinfer-x"])
def test_case_45_a_reserved_word_counts_as_a_whole(shelf: Shelf, name: str) -> None:
    shelf.skill(name)
    assert shelf.names(reserved_words=("infer", "")) == [name]


def test_priority_and_phases_stand_under_metadata(shelf: Shelf) -> None:
    shelf.skill("b", "metadata: {symphony-priority: 10, symphony-phases: 'TEST, REVIEW'}")
    shelf.skill("a", "metadata:", "  symphony-phases: [PLAN]")
    shelf.skill("c", "metadata: {symphony-priority: -1}")
    assert [(one.name, one.priority, one.phases) for one in shelf.load().skills] == [
        ("c", -1, ()),
        ("b", 10, ("TEST", "REVIEW")),
        ("a", 50, ("PLAN",)),
    ]


@pytest.mark.parametrize(
    ("field", "key"),
    [
        ("symphony-priority: high", "symphony-priority"),
        ("symphony-priority: [1]", "symphony-priority"),
        ("symphony-priority: '9999999999'", "symphony-priority"),
        ("symphony-phases: {a: b}", "symphony-phases"),
        ("symphony-phases: [[a]]", "symphony-phases"),
        (f"symphony-phases: {' x' * 21}", "symphony-phases"),
    ],
)
def test_a_key_of_ours_that_is_odd_is_a_warning(shelf: Shelf, field: str, key: str) -> None:
    shelf.skill("a", "metadata:", f"  {field}")
    (skill,) = shelf.load().skills
    assert (skill.priority, skill.phases) == (50, ())
    problem = shelf.only_problem()
    assert (problem.code, problem.line, problem.column) == ("bad_optional_field", 4, 3)
    assert key in problem.message


def test_case_79_a_disabled_skill_is_absent_and_its_errors_are_nobodys_concern(shelf: Shelf) -> None:
    for name in ("x", "y"):
        shelf.skill(name)
    shelf.skill("x2", "name: x")
    shelf.write("broken", "# no front matter\n")
    options = {"disabled_skills": ("x", "broken")}
    assert shelf.entries(**options) == ["- y — About y."]
    assert shelf.problems(Severity.ERROR, Severity.WARNING, **options) == []
    assert [(one.name, one.reason.value) for one in shelf.render(**options).dropped] == [("x", "disabled")]


@pytest.mark.parametrize("option", ["disabled_skills", "include"])
def test_case_79_an_unknown_name_is_a_warning(shelf: Shelf, option: str) -> None:
    shelf.skill("x")
    shelf.write("broken", "# no front matter\n")
    found = shelf.load(**{option: ("x", "broken", "n<b")})
    (problem,) = [one for one in found.problems if one.code == "unknown_skill"]
    assert (problem.severity, problem.path) == (Severity.WARNING, ".")
    assert f"`agent.skills.{option}` names `n&lt;b`" in problem.message


def test_only_what_is_included_is_listed(shelf: Shelf) -> None:
    for name in ("a", "b", "c"):
        shelf.skill(name)
    block = shelf.render(include=("c", "a"), disabled_skills=("a",))
    assert block.listed == ("c",)
    assert [(one.name, one.reason.value) for one in block.dropped] == [
        ("a", "disabled"),
        ("b", "not_included"),
    ]


def test_a_phase_leaves_out_the_skills_of_others_and_the_tool_still_reaches_them(shelf: Shelf) -> None:
    shelf.skill("plan", "metadata: {symphony-phases: plan, symphony-priority: 60}")
    shelf.skill("test", "metadata: {symphony-phases: 'Test, REVIEW', symphony-priority: 70}")
    shelf.skill("any")
    shelf.skill("off", "metadata: {symphony-phases: TEST}")
    block = shelf.render(phase="TEST", disabled_skills=("off",))
    assert block.listed == ("any", "test")
    assert [(one.name, one.reason.value) for one in block.dropped] == [("off", "disabled"), ("plan", "phase")]
    assert block.available == ("any", "plan", "test")
    assert shelf.render().listed == ("any", "off", "plan", "test")
    assert shelf.render(phase="PLAN", include=("test",)).text is None
    pointing = shelf.render(phase="TEST", search_above=2)
    assert pointing.uses_search
    assert pointing.available == ("any", "off", "plan", "test")
