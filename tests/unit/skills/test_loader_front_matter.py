"""Conformance cases 15 to 36: the syntax of the front matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from symphony.skills import Severity
from unit.skills.conftest import Shelf

if TYPE_CHECKING:
    from unit.skills.conftest import Shelf

PLAIN = "name: a\ndescription: About a.\n"


def test_case_15_a_byte_order_mark_is_a_warning(shelf: Shelf) -> None:
    shelf.write("a", f"\ufeff---\n{PLAIN}---\n")
    assert shelf.names() == ["a"]
    assert shelf.warnings() == ["bom"]


def test_case_16_carriage_returns_stay_out_of_values(shelf: Shelf) -> None:
    shelf.write("a", f"---\n{PLAIN}when_to_use: Now.\n---\nbody\n".replace("\n", "\r\n"))
    (skill,) = shelf.load().skills
    assert (skill.name, skill.description, skill.when_to_use) == ("a", "About a.", "Now.")


def test_case_17_blanks_may_follow_either_fence(shelf: Shelf) -> None:
    shelf.write("a", f"--- \t\n{PLAIN}---  \nbody")
    assert shelf.names() == ["a"]


def test_case_18_the_file_may_end_right_after_the_closing_fence(shelf: Shelf) -> None:
    shelf.write("a", f"---\n{PLAIN}---")
    assert shelf.names() == ["a"]


def test_case_19_a_missing_closing_fence_is_an_error(shelf: Shelf) -> None:
    assert shelf.error_of(f"---\n{PLAIN}# Body\n") == "unclosed_front_matter"


def test_case_20_a_blank_line_before_the_fence_is_an_error_with_a_hint(shelf: Shelf) -> None:
    assert shelf.error_of(f"\n---\n{PLAIN}---\n") == "missing_front_matter"
    assert "blank line" in shelf.only_problem().hint


def test_case_21_a_plain_heading_has_no_front_matter(shelf: Shelf) -> None:
    assert shelf.error_of("# Title\n") == "missing_front_matter"


def test_case_22_an_indented_rule_in_a_block_scalar_is_no_fence(shelf: Shelf) -> None:
    shelf.write("a", "---\nname: a\ndescription: |\n  one\n  ---\n  two\n---\n")
    assert shelf.entries() == ["- a — one --- two"]


def test_case_23_later_rules_in_the_body_are_ignored(shelf: Shelf) -> None:
    shelf.write("a", f"---\n{PLAIN}---\nbody\n---\nname: b\n---\n")
    assert shelf.names() == ["a"]


def test_case_24_four_hyphens_are_no_fence(shelf: Shelf) -> None:
    assert shelf.error_of(f"----\n{PLAIN}----\n") == "missing_front_matter"


def test_case_25_a_code_fence_is_no_front_matter(shelf: Shelf) -> None:
    assert shelf.error_of(f"```yaml\n---\n{PLAIN}---\n```\n") == "missing_front_matter"


def test_case_26_empty_front_matter_gives_one_error(shelf: Shelf) -> None:
    assert shelf.error_of("---\n---\n") == "missing_name"


def test_case_27_an_empty_file_has_no_front_matter(shelf: Shelf) -> None:
    assert shelf.error_of("") == "missing_front_matter"


@pytest.mark.parametrize("front", ["- a\n- b\n", "just text\n"])
def test_case_28_front_matter_must_be_a_map(shelf: Shelf, front: str) -> None:
    assert shelf.error_of(f"---\n{front}---\n") == "not_a_mapping"


def test_case_29_an_unquoted_colon_is_repaired(shelf: Shelf) -> None:
    shelf.write("a", "---\nname: a\ndescription: Use when: you need X\n---\n")
    assert shelf.entries() == ["- a — Use when: you need X"]
    problem = shelf.only_problem()
    assert (problem.code, problem.line, problem.column) == ("repaired_yaml", 3, 22)


@pytest.mark.parametrize(
    "value",
    [
        "It's for: 'this' and \"that\"",
        "'half: quoted",
        '"a": "b"',
        "[beta] Use when: needed",
        "@mentions: work",
        "*bold*: too",
        "- a dash: here",
        "Ends with a colon:",
        "back\\slash: kept",
        "see issue: #5",
    ],
)
def test_case_29_the_repaired_text_is_unchanged(shelf: Shelf, value: str) -> None:
    shelf.write("a", f"---\r\nname: a\r\ndescription: {value}  \r\n---\r\n")
    (skill,) = shelf.load().skills
    assert skill.description == value


def test_case_29_repair_touches_no_other_value(shelf: Shelf) -> None:
    shelf.skill(
        "a",
        "name: a # the name",
        "description: Use when: broken",
        "when_to_use: |",
        "  one: two",
        "license: 'MIT: or so'",
        "compatibility: goes on",
        "  in the next line",
        "metadata:",
        "  x: y",
    )
    (skill,) = shelf.load().skills
    assert (skill.name, skill.description, skill.when_to_use) == ("a", "Use when: broken", "one: two")
    assert shelf.warnings() == ["repaired_yaml"]


def test_case_29_what_cannot_be_repaired_keeps_its_first_place(shelf: Shelf) -> None:
    assert shelf.error_of("---\nname: a\nnote: [\ndescription: Use: x\nname: b\n---\n") == "invalid_yaml"
    problem = shelf.only_problem()
    assert (problem.line, problem.column) == (3, 7)  # the bracket that is never closed


def test_case_30_a_tab_after_the_colon_is_fine(shelf: Shelf) -> None:
    shelf.write("a", "---\nname:\ta\ndescription:\tAbout a.\n---\n")
    assert shelf.entries() == ["- a — About a."]
    assert shelf.warnings() == []


def test_case_30_a_tab_as_indentation_is_an_error_with_its_place(shelf: Shelf) -> None:
    assert shelf.error_of("---\nname: a\nmetadata:\n\tx: y\n---\n") == "invalid_yaml"
    problem = shelf.only_problem()
    assert (problem.line, problem.column) == (4, 1)


def test_case_31_a_yaml_comment_is_a_comment(shelf: Shelf) -> None:
    shelf.write("a", "---\nname: a\ndescription: a #b\n---\n")
    assert shelf.entries() == ["- a — a"]


@pytest.mark.parametrize(
    "text", [">-\n  one\n  two\n\n  three", "|\n  one\n  two\n  three\n", "one\n  two\n  three"]
)
def test_case_32_text_on_several_lines_becomes_one(shelf: Shelf, text: str) -> None:
    shelf.write("a", f"---\nname: a\ndescription: {text}\n---\n")
    assert shelf.entries() == ["- a — one two three"]


def test_case_33_a_second_document_is_an_error(shelf: Shelf) -> None:
    assert shelf.error_of(f"---\n{PLAIN}...\nname: b\n---\n") == "invalid_yaml"


def test_case_34_five_kilobytes_of_front_matter_are_fine(shelf: Shelf, reads: list[int]) -> None:
    shelf.skill("a", f"x-note: {'x' * 5_000}", body="b" * 100_000)
    assert shelf.names() == ["a"]
    assert reads[0] == 4_096
    assert sum(reads) <= 65_536


def test_case_35_seventy_kilobytes_are_too_large(shelf: Shelf, reads: list[int]) -> None:
    shelf.skill("a", f"x-note: {'x' * 70_000}")
    assert shelf.names() == []
    assert shelf.problems() == [("front_matter_too_large", "a/SKILL.md")]
    assert sum(reads[: len(reads) // 2]) <= 65_536


def test_case_36_of_a_large_body_only_the_beginning_is_read(shelf: Shelf, reads: list[int]) -> None:
    shelf.skill("a", body="é" * 150_000)
    assert shelf.names() == ["a"]
    assert reads == [4_096]


def test_case_36_a_fence_that_the_first_read_cuts_is_not_mistaken(shelf: Shelf) -> None:
    head = "---\nname: a\ndescription: About a.\nx: |\n"
    filler = "  " + "y" * (4_096 - len(head) - 2 - 4) + "\n"
    shelf.write("a", head + filler + "---" + "- no fence\n" + "z" * 5_000)
    assert shelf.problems() == [("unclosed_front_matter", "a/SKILL.md")]


@pytest.mark.parametrize("size", [4_095, 4_096, 4_097, 65_536])
def test_case_36_every_size_around_a_limit_is_read_whole(shelf: Shelf, size: int) -> None:
    head, tail = "---\nname: a\ndescription: b\nx: ", "\n---"
    shelf.write("a", head + "y" * (size - len(head) - len(tail)) + tail)
    assert shelf.names() == ["a"]


def test_case_36_one_byte_beyond_the_limit_is_too_large(shelf: Shelf) -> None:
    head, tail = "---\nname: a\ndescription: b\nx: ", "\n---"
    assert shelf.error_of(head + "y" * (65_537 - len(head) - len(tail)) + tail) == "front_matter_too_large"


def test_a_key_given_twice_is_invalid_yaml(shelf: Shelf) -> None:
    assert shelf.error_of("---\nname: a\nname: b\ndescription: c\n---\n") == "invalid_yaml"
    assert shelf.only_problem().line == 3
    assert "twice" in shelf.only_problem().message


def test_warnings_of_a_rejected_file_are_kept(shelf: Shelf) -> None:
    shelf.write("a", "\ufeff---\nname: A\n---\n")
    assert shelf.problems(Severity.ERROR, Severity.WARNING) == [
        ("missing_description", "a/SKILL.md"),
        ("bom", "a/SKILL.md"),
        ("name_charset", "a/SKILL.md"),
        ("name_dir_mismatch", "a/SKILL.md"),
    ]
