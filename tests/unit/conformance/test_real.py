from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from conformance.skips import objection
from harness.real import (
    require_backlog,
    require_claude,
    require_codex,
    require_emulate,
    require_ray,
    require_redmine,
)

pytestmark = pytest.mark.conformance("R-2")

every_program = pytest.mark.parametrize(
    "require", [require_claude, require_codex, require_backlog, require_emulate, require_ray, require_redmine]
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


def test_an_emulator_is_used_where_there_is_a_node_to_run_it(tmp_path: Path) -> None:
    for name in ("emulate", "node"):
        (tmp_path / name).touch(mode=0o755)
    named = {"SYMPHONY_TEST_EMULATE": str(tmp_path / "emulate"), "SYMPHONY_REQUIRE_REAL": "1"}
    assert require_emulate({**named, "PATH": str(tmp_path)}) == tmp_path / "emulate"
    with pytest.raises(pytest.fail.Exception, match="no emulator of GitHub"):
        require_emulate({**named, "PATH": ""})


def test_a_real_redmine_is_an_address_and_a_key() -> None:
    named = {"SYMPHONY_TEST_REDMINE": "http://127.0.0.1:1", "SYMPHONY_TEST_REDMINE_KEY": "k"}
    assert require_redmine(named) == ("http://127.0.0.1:1", "k")


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
