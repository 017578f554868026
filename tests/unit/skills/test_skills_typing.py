"""The public API as a type checker sees it; mypy runs over this file, and so does Python."""

from pathlib import Path
from typing import assert_type

from symphony.skills import (
    CatalogBlock,
    Code,
    Dropped,
    DropReason,
    Format,
    NamedProblem,
    Problem,
    Root,
    Scope,
    Severity,
    Shadowed,
    Skill,
    SkillOptions,
    SkillSet,
    Validation,
    comment_body,
    load,
    named_problems,
    render,
    resolved_body,
)


def test_the_public_api_has_these_types(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_text("---\nname: x\ndescription: y\n---\n")
    options = SkillOptions(path=".", format=Format.XML, validation=Validation.STRICT, include=("x",))
    assert_type(options.user_path, str | tuple[str, ...] | None)
    assert_type(options.extra_paths, tuple[str, ...])
    found = load(tmp_path, options, root=tmp_path)
    assert_type(found, SkillSet)
    assert_type(found.skills, tuple[Skill, ...])
    assert_type(found.problems, tuple[Problem, ...])
    assert_type(found.roots, tuple[Root, ...])
    assert_type(found.shadowed, tuple[Shadowed, ...])
    block = render(found, options)
    assert_type(block, CatalogBlock)
    assert_type(block.text, str | None)
    assert_type(block.listed, tuple[str, ...])
    assert_type(block.dropped, tuple[Dropped, ...])
    assert_type([one.reason for one in block.dropped], list[DropReason])
    assert_type(comment_body(found.problems), str | None)
    assert_type(named_problems(found.problems), tuple[NamedProblem, ...])
    assert_type(resolved_body(named_problems(found.problems), found), str)


def test_values_of_one_file_have_these_types() -> None:
    skill = Skill(name="a", description="b", when_to_use="", directory="a", path="a/SKILL.md")
    assert_type(skill.scope, Scope)
    assert_type(skill.text, str)
    assert_type(skill.phases, tuple[str, ...])
    assert_type(SkillSet(root=Path("/r"), skills=(skill,)).file(skill), Path)
    assert SkillSet(root=Path("/r")).file(skill) == Path("/r/a/SKILL.md")


def test_a_problem_has_these_types() -> None:
    problem = Problem(
        path="a", severity=Severity.ERROR, code=Code.BOM, line=None, column=None, message="m", hint="h"
    )
    assert_type(problem.severity, Severity)
    assert_type(problem.code, str)
    assert_type(problem.line, int | None)
    assert problem.scope is None
