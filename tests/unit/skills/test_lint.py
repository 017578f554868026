"""Problems as lines of a linter and as annotations of GitHub."""

from symphony.skills import Code, github_lines, problem, text_lines


def test_an_untrusted_path_cannot_begin_another_line_or_command() -> None:
    one = problem(Code.BOM, "a\n::error::x,y%\u202e/SKILL.md", (1, 1))
    (line,) = github_lines([one], ".")
    assert line.startswith("::warning file=a%0A%3A%3Aerror%3A%3Ax%2Cy%25/SKILL.md,line=1")
    (text,) = text_lines([one], "sub")
    assert text.startswith("sub/a ::error::x,y%/SKILL.md:1:1: warning bom ")
