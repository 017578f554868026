"""Mistakes that people make in front matter: each is mended or refused, and told as what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from symphony.skills import Problem, Severity, Validation, read_content
from unit.skills.conftest import Shelf

if TYPE_CHECKING:
    from symphony.skills import Problem
    from unit.skills.conftest import Shelf


def advice(shelf: Shelf, front: str, **options: object) -> Problem:
    """The one problem, besides what is merely worth knowing, of a file with this front matter."""
    shelf.write("a", f"---\n{front}\n---\n")
    (problem,) = [one for one in shelf.load(**options).problems if one.severity is not Severity.INFO]
    return problem


SIGNS = (
    "*foo bar",
    "- x",
    "? x",
    "] x",
    "} x",
    "@x",
    "`x`",
    "%x",
    "**Bold** text",
    "|Text",
    "&foo bar",
    "!foo bar",
    "!x",
)


@pytest.mark.parametrize("value", SIGNS)
@pytest.mark.parametrize("front", ["name: a\n{}", "{}\nname: a", "name: a\n{}\nnote: b: c"])
def test_a_value_that_begins_with_a_sign_is_read_whole(shelf: Shelf, front: str, value: str) -> None:
    problem = advice(shelf, front.format(f"description: {value}"))
    assert [skill.description for skill in shelf.load().skills] == [value]
    assert problem.code == "repaired_yaml"


def test_a_sign_is_not_blamed_on_a_colon(shelf: Shelf) -> None:
    colon = advice(shelf, "name: a\ndescription: Use when: x")
    sign = advice(shelf, "name: a\ndescription: *foo bar")
    assert ("colon" in colon.message, "colon" in colon.hint) == (True, True)
    assert ("colon" in sign.message, "colon" in sign.hint) == (False, False)
    lost = advice(shelf, "name: a\ndescription: &foo bar")
    assert (lost.code, lost.line, lost.column) == ("repaired_yaml", 3, 14)


@pytest.mark.parametrize("value", ["&x 'b'", "!!str b", "&x >-\n  b", "!x [b]\nwhen_to_use: b"])
def test_an_anchor_or_a_tag_that_costs_no_word_is_left_alone(shelf: Shelf, value: str) -> None:
    shelf.skill("a", f"description: {value}")
    assert "repaired_yaml" not in shelf.warnings()
    assert shelf.entries() == ["- a — b"]


def test_a_repair_leaves_lines_alone_that_are_yaml(shelf: Shelf) -> None:
    shelf.skill("a", "description: *foo bar", "metadata: {symphony-priority: 7}", "allowed-tools: [Read]")
    (skill,) = shelf.load().skills
    assert (skill.description, skill.priority) == ("*foo bar", 7)
    assert shelf.warnings() == ["repaired_yaml"]


@pytest.mark.parametrize(
    ("front", "description"),
    [
        ("name: a\ndescription: Does it.\nexample: [a,\n  b\n", "Does it."),
        ("name: a\nhooks:\n\tx: y\ndescription: >-\n  Does\n  it.\n", "Does it."),
        ("name: a\ndescription: Use when: x\n  and: more\n", "Use when: x and: more"),
        ("name: 'a'\ndescription: \"Does: it.\"\n- x\n", "Does: it."),
        ("name: a\ndescription: Does it.\nmetadata:\n  symphony-priority: 'x\n", "Does it."),
    ],
)
def test_where_yaml_fails_as_a_whole_the_lines_that_matter_are_read(
    shelf: Shelf, front: str, description: str
) -> None:
    problem = advice(shelf, front)
    assert [(one.name, one.description) for one in shelf.load().skills] == [("a", description)]
    assert (problem.code, problem.severity) == ("repaired_yaml", "warning")
    assert "`description`" in problem.message
    assert advice(shelf, front, validation=Validation.STRICT).code == "invalid_yaml"


def test_the_keys_that_can_be_read_are_kept(shelf: Shelf) -> None:
    front = "x: [\nmetadata:\n  symphony-priority: 3\nname: a\nwhen_to_use: Now.\ndescription: Does it."
    assert advice(shelf, front).line is not None
    (skill,) = shelf.load().skills
    assert (skill.priority, skill.when_to_use) == (3, "Now.")


@pytest.mark.parametrize(
    "front",
    [
        "name: a\nx:\n\ty: z",
        "description: b\nx:\n\ty: z",
        "name: a\nname: b\ndescription: c\nx:\n\ty: z",
        'name: a\nx:\n\ty: z\ndescription: "\\ud83d\\ude00"',
        "name: a\nx:\n\ty: z\ndescription: b:" + " c: d" * 2_000,
    ],
)
def test_without_both_lines_once_the_front_matter_stays_invalid(shelf: Shelf, front: str) -> None:
    assert advice(shelf, front).code == "invalid_yaml"


def test_a_missing_name_tells_what_codex_does_and_how(shelf: Shelf) -> None:
    problem = advice(shelf, "description: b")
    assert problem.code == "missing_name"
    assert "Codex" in problem.hint
    assert "`agent.skills.name_fallback: true`" in problem.hint


def test_a_name_with_a_slash_tells_what_codex_does(shelf: Shelf) -> None:
    problem = advice(shelf, "name: team/a\ndescription: b")
    assert problem.code == "invalid_name"
    assert "Codex" in problem.hint


@pytest.mark.parametrize("front", ["hooks: {x: 1, x: 2}", "hooks:\n- y: 1\n  y: 2"])
def test_a_key_given_twice_below_an_unknown_one_is_a_warning(shelf: Shelf, front: str) -> None:
    problem = advice(shelf, f"name: a\ndescription: b\n{front}")
    assert shelf.names() == ["a"]
    assert (problem.code, problem.line) == ("bad_optional_field", 3 + 1 + front.count("\n"))


@pytest.mark.parametrize("front", ["name: b", "hooks: 1\nhooks: 2", "metadata: {x: 1, x: 2}"])
def test_a_key_given_twice_that_matters_is_an_error(shelf: Shelf, front: str) -> None:
    assert advice(shelf, f"name: a\ndescription: b\n{front}").code == "invalid_yaml"


def test_a_title_on_the_line_of_the_closing_fence(shelf: Shelf) -> None:
    shelf.write("a", "---\nname: a\ndescription: b\n---# Title\nBody\n")
    assert shelf.names() == ["a"]
    problem = shelf.only_problem()
    assert (problem.code, problem.line) == ("repaired_yaml", 4)
    assert shelf.problems(validation=Validation.STRICT) == [("unclosed_front_matter", "a/SKILL.md")]
    assert read_content(shelf.workspace, ".symphony/skills/a/SKILL.md").body == "# Title\nBody"


@pytest.mark.parametrize(("value", "kind"), [("[x, y]", "list"), ("\n- x\n- y", "list"), ("{x: y}", "map")])
def test_a_description_that_is_no_text_is_told_as_that(shelf: Shelf, value: str, kind: str) -> None:
    problem = advice(shelf, f"name: a\ndescription: {value}")
    assert problem.code == "missing_description"
    assert f"a {kind}" in problem.message


@pytest.mark.parametrize("key", ["when-to-use", "whenToUse", "when to use"])
def test_a_misspelt_when_to_use_is_told(shelf: Shelf, key: str) -> None:
    problem = advice(shelf, f"name: a\ndescription: b\n{key}: Now.")
    assert (problem.code, problem.line) == ("bad_optional_field", 4)
    assert "`when_to_use`" in problem.hint


def test_a_second_line_that_became_a_key_is_told(shelf: Shelf) -> None:
    problem = advice(shelf, "name: a\ndescription: Does this.\nUse it when: needed")
    assert (problem.code, problem.line) == ("bad_optional_field", 4)
    assert "indent" in problem.hint
