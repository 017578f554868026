from pathlib import Path

import pytest

from conformance.skips import objection
from harness.real import require_codex

pytestmark = pytest.mark.conformance("R-2")


def test_a_real_program_that_is_there_is_used(tmp_path: Path) -> None:
    program = tmp_path / "codex"
    program.touch(mode=0o755)
    assert require_codex({"SYMPHONY_TEST_CODEX": str(program), "SYMPHONY_REQUIRE_REAL": "1"}) == program


def test_an_absent_one_is_a_skip_that_says_why_and_is_listed() -> None:
    with pytest.raises(pytest.skip.Exception) as skipped:
        require_codex({"PATH": ""})
    assert objection(str(skipped.value), require_real=False) is None


def test_an_absent_one_that_is_required_is_a_failure() -> None:
    with pytest.raises(pytest.fail.Exception, match="SYMPHONY_REQUIRE_REAL is set"):
        require_codex({"PATH": "", "SYMPHONY_REQUIRE_REAL": "1"})
