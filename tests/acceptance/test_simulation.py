"""Months of operation are simulated in seconds, and every failure replays from its seed."""

import json
import os
import shlex
import subprocess
import sys
from typing import Any

import pytest

from harness.nightly import NIGHTLY

DAYS, ISSUES = (90, 500) if NIGHTLY else (15, 100)
STORM = (
    "--days",
    str(DAYS),
    "--issues",
    str(ISSUES),
    "--slots",
    "10",
    "--poll-s",
    "900",
    "--profile",
    "storm",
)


def _simulator(*words: str) -> tuple[int, dict[str, Any]]:
    """The command as anybody calls it; without coverage, which costs more than the simulation."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    argv = [sys.executable, "-m", "kit.simulator", *words, "--json"]
    found = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode in {0, 1}, found.stderr
    return found.returncode, json.loads(found.stdout)


@pytest.mark.conformance("S-3", "S-16")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_months_of_storm_break_no_rule() -> None:
    code, told = _simulator("--seed", "4711", *STORM)
    assert told["violations"] == []
    assert code == 0
    figures = told["statistics"]
    assert figures["virtual_ms"] >= DAYS * 86_400_000
    assert figures["issues"] == ISSUES
    assert figures["finished"] > ISSUES // 2
    assert figures["max_running"] >= 10
    assert figures["lives"] > DAYS // 5
    assert figures["blocks"] > DAYS // 5


@pytest.mark.slow
def test_a_failure_is_found_and_its_own_words_replay_it() -> None:
    broken = ("--step", "harness.broken_steps:forgets_a_claim_on_reload")
    code, told = _simulator("--seed", "11", "--days", "5", "--issues", "30", *broken)
    assert code == 1
    (violation,) = told["violations"]
    assert violation["invariant"] == "reload-keeps-claims"
    assert violation["trace"]
    words = shlex.split(told["replay"])
    code, again = _simulator(*words[words.index("kit.simulator") + 1 :], *broken)
    assert code == 1
    assert again == told
