"""The command as people and CI run it, on a small project of its own."""

import json
from typing import TYPE_CHECKING

import pytest

from conformance.recorder import Outcome, Result, read_results
from conformance.report import PAGE

if TYPE_CHECKING:
    from unit.conformance.conftest import Suite

REAL = "no Codex (npm: @openai/codex, or SYMPHONY_TEST_CODEX)"
WRONG = {
    "@pytest.mark.conformance('W-1')\ndef test_red():\n    assert False": "test_red: failed",
    "@pytest.mark.conformance('R-1')\ndef test_early():\n    pass": "R-1: pending (",
    "@pytest.mark.conformance('Q-1')\ndef test_odd():\n    pass": "Q-1: there is no such id",
    "@pytest.mark.conformance('W-1')\ndef test_no():\n    pytest.skip('tired')": "skipped (tired): no such",
    "@pytest.mark.conformance('W-1')\n@pytest.mark.xfail\ndef test_x():\n    assert 0": "expected to fail",
    f"@pytest.mark.conformance('A-2')\ndef test_real():\n    pytest.skip({REAL!r})": "SYMPHONY_REQUIRE_REAL",
}


@pytest.mark.slow
def test_a_whole_project_is_green_and_its_page_is_watched(suite: "Suite") -> None:
    written = suite.conformance("--write")
    assert (written.returncode, written.stderr) == (0, "")

    done = suite.conformance("--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["faults"] == []
    by_id = {one["id"]: one for one in told["ids"]}
    assert by_id["W-1"]["status"] == by_id["approval"]["status"] == "green"
    assert by_id["W-1"]["tests"] == ["tests/test_rules.py::test_all"]
    assert by_id["R-1"]["status"] == "pending"
    assert by_id["R-1"]["pending"]

    page = suite.root / PAGE
    page.write_text(page.read_text().replace("test_all", "test_none"))
    stale = suite.conformance("--check")
    assert stale.returncode == 1
    assert stale.stderr == (
        "error: docs/CONFORMANCE.md is out of date; write it with `make conformance-report`\n"
    )


@pytest.mark.slow
@pytest.mark.conformance("R-2")
def test_each_thing_that_is_wrong_is_one_line_and_fails_the_job(suite: "Suite") -> None:
    suite.add("\n\n".join(WRONG))
    assert suite.conformance("--write").returncode == 1
    done = suite.conformance(SYMPHONY_REQUIRE_REAL="1")
    assert done.returncode == 1
    told = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert len(told) == len(WRONG)
    for complaint in WRONG.values():
        assert sum(complaint in line for line in told) == 1, complaint


def test_what_passed_before_is_left_out_and_what_was_skipped_counts_as_it_ends_now(suite: "Suite") -> None:
    text = "import pytest\n\n@pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.slow)])\n"
    suite.write("tests/unit/test_pure.py", f"{text}def test_it(n):\n    pass\n")
    needs = "import os\n\nimport pytest\n\ndef test_it():\n    if 'REAL' not in os.environ:\n"
    suite.write("tests/unit/test_odd.py", f"{needs}        pytest.skip('no git-lfs (Debian: git-lfs)')\n")
    first, second = suite.root / "first.json", suite.root / "second.json"
    files = ("tests/unit/test_pure.py", "tests/unit/test_odd.py")
    fast = suite.pytest(*files, "-m", "not slow", f"--conformance-results={first}")
    again = (*files, f"--conformance-before={first}", f"--conformance-results={second}")
    rest = suite.pytest(*again, REAL="1")
    assert "1 passed, 1 skipped, 1 deselected" in fast.stdout
    assert "2 passed, 1 deselected" in rest.stdout, "the variant, and what was skipped"
    assert read_results(second)[1] == {
        Result(test=f"{file}::test_it", outcome=Outcome.PASSED) for file in files
    }
