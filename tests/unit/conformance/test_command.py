"""The command as people and CI run it, on a small project of its own."""

import json
from typing import TYPE_CHECKING

import pytest

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


@pytest.mark.conformance("R-2")
def test_where_nobody_requires_it_an_absent_program_is_shown_as_skipped(suite: "Suite") -> None:
    suite.write("tests/test_rules.py", suite.claiming("test_all", without="A-2"))
    suite.add(f"@pytest.mark.conformance('A-2')\ndef test_real():\n    pytest.skip({REAL!r})")
    suite.conformance("--write")
    done = suite.conformance()
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith(("A-2 ", "W-1 "))]
    assert row.split()[1] == "skipped"


@pytest.mark.parametrize(
    "text", ["import no_such_module", "pytest.skip('all of it', allow_module_level=True)"]
)
def test_a_module_that_hides_its_tests_fails(suite: "Suite", text: str) -> None:
    suite.add(text)
    done = suite.conformance("--write")
    assert done.returncode == 1
    assert "tests/test_more.py" in done.stderr
    assert "it may hide tests" in done.stderr


def test_a_rule_that_lost_its_test_fails(suite: "Suite") -> None:
    suite.write("tests/test_rules.py", suite.claiming("test_some", without="K-9"))
    done = suite.conformance("--write")
    assert (done.returncode, done.stderr) == (1, "error: K-9: no test shows it\n")


def test_results_of_another_session_can_be_judged(suite: "Suite") -> None:
    suite.conformance("--write")
    missing = suite.conformance("--from", str(suite.root / "none.json"))
    assert missing.returncode == 1
    assert "cannot be used" in missing.stderr
    suite.write("results.json", '{"claims": null, "results": []}\n')
    unrun = suite.conformance("--from", str(suite.root / "results.json"))
    assert unrun.returncode == 1
    assert "tests/test_rules.py::test_all: did not run" in unrun.stdout


def test_a_session_of_all_tests_tells_what_they_claim_so_that_nothing_is_collected_again(
    suite: "Suite",
) -> None:
    suite.conformance("--write")
    file = str(suite.root / "results.json")
    suite.pytest("-p", "xdist", "-n", "1", f"--conformance-results={file}")
    suite.write("tests/test_rules.py", "import no_such_module\n")
    done = suite.conformance("--from", file)
    assert done.returncode == 0, done.stdout + done.stderr

    suite.create()
    suite.pytest("tests/test_rules.py", f"--conformance-results={file}")
    part = suite.conformance("--from", file)
    assert part.returncode == 1
    assert "did not run" in part.stdout
    assert "no test shows it" not in part.stdout, "claims of a part are not taken for those of all"


def test_a_session_lists_each_reason_to_skip_once_with_its_count(suite: "Suite") -> None:
    conftest = (suite.root / "tests" / "conftest.py").read_text(encoding="utf-8")
    suite.write("tests/conftest.py", f"{conftest}from conformance.skips import pytest_terminal_summary\n")
    suite.add(
        "@pytest.fixture\ndef tea():\n    pytest.skip('no tea')\n\n"
        "@pytest.mark.parametrize('cup', range(11))\ndef test_drink(tea, cup):\n    pass\n\n"
        "@pytest.mark.skipif(True, reason='no bread')\ndef test_eat():\n    pass\n\n"
        "@pytest.mark.xfail\ndef test_odd():\n    assert 0\n"
    )
    for options in ((), ("-p", "xdist", "-n", "2")):
        done = suite.pytest(*options)
        assert done.returncode == 0, done.stdout + done.stderr
        listed = [line.strip() for line in done.stdout.splitlines() if " skipped: " in line]
        assert listed == ["1 skipped: no bread", "11 skipped: no tea"]
    suite.write("tests/test_more.py", "")
    assert "skipped" not in suite.pytest().stdout
