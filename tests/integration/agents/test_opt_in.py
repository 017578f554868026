"""Tests that need a real Codex say so when there is none, and fail when there is one that does not work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
REAL = "tests/integration/agents/test_real_codex.py::test_the_preflight_passes_and_changes_nothing"


def _pytest(codex: Path, home: Path) -> str:
    environment = {**os.environ, "SYMPHONY_TEST_CODEX": str(codex), "PYTHONPATH": str(ROOT / "src")}
    environment.pop("SYMPHONY_REQUIRE_REAL", None)  # what CI sets; the unit tests of the report judge it
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={home / 'b'}", REAL],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{done.returncode}\n{done.stdout}"


@pytest.mark.slow
@pytest.mark.conformance("R-2")
def test_without_codex_a_real_test_is_reported_as_skipped_with_its_reason(tmp_path: Path) -> None:
    told = _pytest(tmp_path / "absent", tmp_path)
    assert told.startswith("0\n")
    assert "1 skipped" in told
    assert "   1 skipped: no Codex (npm: @openai/codex" in told


@pytest.mark.slow
@pytest.mark.conformance("R-2")
def test_with_a_codex_that_does_not_work_a_real_test_fails(tmp_path: Path) -> None:
    broken = tmp_path / "codex"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    told = _pytest(broken, tmp_path)
    assert told.startswith("1\n")
    assert "skipped" not in told
