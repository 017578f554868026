"""The words of the comment: section 7 of the facts, and every code has its own."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from symphony.skills import (
    MEANINGS,
    Code,
    Problem,
    Scope,
    Severity,
    Shadowed,
    Skill,
    SkillSet,
    comment_body,
    named_problems,
    problem,
    resolved_body,
)


def error(
    path: str = ".symphony/skills/bad/SKILL.md", line: int | None = 3, code: Code = Code.INVALID_YAML
) -> Problem:
    return problem(code, path, None if line is None else (line, 5), message="unsaid: text of the loader")


def test_the_comment_names_path_code_place_and_what_to_do() -> None:
    body = str(comment_body([error()]))
    assert "`.symphony/skills/bad/SKILL.md`" in body
    assert "`invalid_yaml` at 3:5" in body
    assert MEANINGS[Code.INVALID_YAML].message in body
    assert MEANINGS[Code.INVALID_YAML].hint in body
    assert "unsaid" not in body


def test_a_problem_without_a_place_has_none_in_the_comment() -> None:
    assert " at " not in str(comment_body([error(line=None, code=Code.UNREADABLE)]))


def test_warnings_alone_make_no_comment() -> None:
    assert comment_body([problem(Code.BOM, "a"), problem(Code.MISSING_WHEN_TO_USE, "a")]) is None
    assert comment_body([]) is None


def test_warnings_beside_an_error_stay_out() -> None:
    assert "bom" not in str(comment_body([error(), problem(Code.BOM, "a")]))


def test_with_a_milder_gate_warnings_are_named_behind_the_errors() -> None:
    found = [problem(Code.BOM, "a"), error(), problem(Code.MISSING_WHEN_TO_USE, "a")]
    body = str(comment_body(found, at_least=Severity.WARNING))
    assert body.index("invalid_yaml") < body.index("bom")
    assert "missing_when_to_use" not in body


def test_at_most_twenty_entries_then_a_count() -> None:
    body = str(comment_body([error(f"s/{number}/SKILL.md") for number in range(25)]))
    assert body.count("\n- `") == 20
    assert body.endswith("\n- and 5 more")


def test_twenty_entries_fit_without_a_count() -> None:
    assert "more" not in str(comment_body([error(f"s/{number}/SKILL.md") for number in range(20)]))


def test_paths_cannot_break_out_of_the_code() -> None:
    path = ".symphony/skills/@user #12 `<b>`\n## x [l](http://y)\u202e|*/SKILL.md"
    body = str(comment_body([error(path)]))
    (entry,) = [line for line in body.split("\n") if line.startswith("- ")]
    shown = entry.split("`")[1]
    assert not re.search(r"[@#<>\[\](){}|*:!\u202e]", shown)
    assert "%40user %2312" in shown


def test_letters_of_every_script_stay_readable_in_paths() -> None:
    assert "`сделать/日本/SKILL.md`" in str(comment_body([error("сделать/日本/SKILL.md")]))


def test_a_long_path_keeps_both_ends() -> None:
    shown = str(comment_body([error("a" * 300 + "/SKILL.md")])).split("`")[1]
    assert len(shown) == 161
    assert shown.startswith("aaa")
    assert shown.endswith("/SKILL.md")


def test_entries_that_do_not_fit_are_counted() -> None:
    body = str(comment_body([error("日" * 200 + f"{number}/SKILL.md") for number in range(20)]))
    shown = body.count("\n- `")
    assert 0 < shown < 20
    assert body.endswith(f"\n- and {20 - shown} more")
    assert len(body.encode()) <= 4_000


_PROBLEMS = st.builds(
    error,
    st.text(),
    st.none() | st.integers(1, 99),
    st.sampled_from([c for c in Code if MEANINGS[c].severity is Severity.ERROR]),
)


@given(st.lists(_PROBLEMS, min_size=1, max_size=30))
def test_for_any_problems_the_comment_is_small_and_keeps_its_lines(problems: list[Problem]) -> None:
    body = str(comment_body(problems))
    assert len(body.encode()) <= 4_000
    head, blank, intro, gap, *entries = body.splitlines()
    assert (blank, gap, head.startswith("**"), intro.endswith(":")) == ("", "", True, True)
    assert all(entry.startswith("- ") for entry in entries)
    assert 1 <= len(entries) <= 21


def test_what_is_named_is_what_the_comment_shows() -> None:
    problems = [error(f"s/@{number}/SKILL.md") for number in range(25)]
    body, named = str(comment_body(problems)), named_problems(problems)
    assert [f"`{path}` `{code}`" in body for path, code in named] == [True] * 20
    assert named_problems(problems, at_least=None) == ()


def test_errors_come_first_and_warnings_are_called_warnings() -> None:
    found = [problem(Code.BOM, "warned"), error("failed")]
    body = str(comment_body(found, at_least=Severity.WARNING))
    assert body.index("could not be loaded") < body.index("`failed`") < body.index("warnings")
    assert body.index("warnings") < body.index("`warned`")
    mild = str(comment_body([problem(Code.BOM, "warned")], at_least=Severity.WARNING))
    assert "could not be loaded" not in mild
    assert "warnings" in mild


def skill(path: str, name: str) -> Skill:
    return Skill(name=name, description="d", when_to_use="", directory=name, path=path)


def test_only_what_can_be_loaded_without_what_it_was_named_for_is_mended() -> None:
    named = [("mended", "bom"), ("odd", "bom"), ("gone", "bom"), ("off", "bom"), ("hidden", "bom")]
    now = SkillSet(
        root=Path("/"),
        skills=(skill("mended", "m"), skill("odd", "o"), skill("off", "off")),
        problems=(problem(Code.BOM, "odd"), problem(Code.NAME_CHARSET, "mended")),
        shadowed=(Shadowed(name="h", path="hidden", scope=Scope.EXTRA, by="m"),),
    )
    body = resolved_body(named, now, switched_off=["off"])
    mended, others = body.split("No longer reported")
    assert ["`mended`" in mended, "`hidden`" in mended] == [True, True]
    assert [f"`{path}`" in others for path in ("odd", "gone", "off")] == [True] * 3
    assert "`odd`" not in mended


def test_where_all_is_mended_the_comment_says_nothing_else() -> None:
    body = resolved_body([("a", "bom")], SkillSet(root=Path("/"), skills=(skill("a", "a"),)))
    assert "are fixed" in body
    assert body.endswith("\n- `a`")


def test_with_nothing_named_nothing_is_claimed() -> None:
    assert "ended" not in resolved_body((), SkillSet(root=Path("/")))


def test_every_code_has_a_sentence_and_a_hint() -> None:
    assert set(MEANINGS) == set(Code)
    for meaning in MEANINGS.values():
        assert meaning.message.endswith(".")
        assert meaning.hint.endswith(".")
