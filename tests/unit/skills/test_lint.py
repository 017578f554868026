"""Problems as lines of a linter and as annotations of GitHub."""

from pathlib import Path

import pytest

from symphony.skills import Code, SkillSet, github_lines, is_failure, problem, summary, text_lines


def test_an_untrusted_path_cannot_begin_another_line_or_command() -> None:
    one = problem(Code.BOM, "a\n::error::x,y%\u202e/SKILL.md", (1, 1))
    (line,) = github_lines([one], ".")
    assert line.startswith("::warning file=a%0A%3A%3Aerror%3A%3Ax%2Cy%25/SKILL.md,line=1")
    (text,) = text_lines([one], "sub")
    assert text.startswith("sub/a ::error::x,y%/SKILL.md:1:1: warning bom ")


@pytest.mark.parametrize(
    ("code", "fails", "fails_strictly"), [(Code.MISSING_NAME, True, True), (Code.BOM, False, True)]
)
def test_an_error_fails_a_check_and_a_warning_only_a_strict_one(
    code: Code, *, fails: bool, fails_strictly: bool
) -> None:
    found = [problem(code, "a/SKILL.md")]
    assert (is_failure(found, strict=False), is_failure(found, strict=True)) == (fails, fails_strictly)
    assert not is_failure([], strict=True)


def test_the_summary_counts_errors_and_warnings_apart() -> None:
    found = (problem(Code.MISSING_NAME, "a/SKILL.md"), problem(Code.BOM, "b/SKILL.md"))
    assert summary(SkillSet(root=Path("/w"))) == "0 skills, 0 errors, 0 warnings"
    assert summary(SkillSet(root=Path("/w"), problems=found)) == "0 skills, 1 error, 1 warning"
