import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from conformance.skips import objection
from harness.real import (
    absent,
    require_backlog,
    require_boot,
    require_bubblewrap,
    require_claude,
    require_codex,
    require_container,
    require_emulate,
    require_own_disk,
    require_ray,
    require_redmine,
)

TESTS = Path(__file__).parents[2]
pytestmark = pytest.mark.conformance("R-2")

every_program = pytest.mark.parametrize(
    "require",
    [
        require_claude,
        require_codex,
        require_backlog,
        require_boot,
        require_bubblewrap,
        require_container,
        require_emulate,
        require_own_disk,
        require_ray,
        require_redmine,
    ],
)


@pytest.mark.parametrize(
    ("require", "variable"),
    [
        (require_claude, "SYMPHONY_TEST_CLAUDE"),
        (require_codex, "SYMPHONY_TEST_CODEX"),
        (require_backlog, "SYMPHONY_TEST_BACKLOG"),
        (require_ray, "SYMPHONY_TEST_RAY"),
    ],
)
def test_a_real_program_that_is_there_is_used(
    tmp_path: Path, require: Callable[[Mapping[str, str]], Path], variable: str
) -> None:
    program = tmp_path / "program"
    program.touch(mode=0o755)
    assert require({variable: str(program), "SYMPHONY_REQUIRE_REAL": "1"}) == program


@every_program
def test_an_absent_one_is_a_skip_that_says_why_and_is_listed(
    require: Callable[[Mapping[str, str]], Any],
) -> None:
    with pytest.raises(pytest.skip.Exception) as skipped:
        require({"PATH": ""})
    assert objection(str(skipped.value), require_real=False) is None
    assert objection(str(skipped.value), require_real=True)


@every_program
def test_an_absent_one_that_is_required_is_a_failure(require: Callable[[Mapping[str, str]], Any]) -> None:
    with pytest.raises(pytest.fail.Exception, match="SYMPHONY_REQUIRE_REAL is set"):
        require({"PATH": "", "SYMPHONY_REQUIRE_REAL": "1"})


def _reasons() -> Iterator[str]:
    """What tests that skip themselves give as a reason, where it stands there as text."""
    for file in TESTS.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if file.parent.name == "conformance" or not ("pytest.skip(" in text or "skipif(" in text):
            continue
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Call(func=ast.Attribute(attr="skip" | "skipif"), args=args, keywords=keywords):
                    given = [*args, *(keyword.value for keyword in keywords)]
                    yield from (
                        one.value
                        for one in given
                        if isinstance(one, ast.Constant) and isinstance(one.value, str)
                    )


def test_every_other_reason_to_skip_is_listed() -> None:
    reasons = sorted(_reasons())
    assert len(reasons) > 10
    assert [reason for reason in reasons if objection(reason, require_real=False)] == []


def test_a_reason_that_names_a_package_needs_no_row_in_the_list() -> None:
    with pytest.raises(pytest.skip.Exception) as skipped:
        absent("tea", "Debian: kettle, in SYMPHONY_TEST_TEA", {})
    assert objection(str(skipped.value), require_real=False) is None
    assert objection("no tea", require_real=False)
    assert objection("no tea (from the kitchen)", require_real=False)
