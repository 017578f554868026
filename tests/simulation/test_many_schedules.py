"""Hundreds of short random schedules with deaths, the same on every machine and in every run.

They run in processes of their own and without coverage, which would take 70 % of their rate and shows nothing
that a few dozen schedules do not show. Others are tried by `make simulate` and by `make nightly`, which sets
`SYMPHONY_SIMULATION_EXAMPLES`.
"""

import json
import os
import subprocess
import sys
from secrets import randbelow

import pytest

from harness.nightly import SCHEDULES
from harness.rings import mostly_slow
from kit.simulator.crash_points import ALL_POINTS

CHUNKS = 20 if SCHEDULES else 2
EACH = (int(SCHEDULES or 200) + CHUNKS - 1) // CHUNKS
FIRST = randbelow(10**9) if SCHEDULES else 0


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    return {**kept, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.conformance("S-3", "S-9", "S-14", "S-16", "S-20")
@pytest.mark.timeout(0 if SCHEDULES else 120)
@pytest.mark.parametrize("chunk", mostly_slow(range(CHUNKS)))
def test_no_rule_is_broken_in_hundreds_of_schedules(chunk: int) -> None:
    first = FIRST + chunk * EACH
    argv = [sys.executable, "-m", "kit.simulator", "--json"]
    found = subprocess.run(
        [*argv, "--schedules", str(EACH), "--seed", str(first)],
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode in {0, 1}, found.stderr
    told = json.loads(found.stdout)
    again = [broken["replay"] for broken in told["broken"]]
    assert not told["broken_seeds"], f"replay with: {again}"
    assert told["schedules"] == EACH
    assert told["inputs"] > 10 * EACH
    if not SCHEDULES:
        assert sum(told["crashes"].values()) > EACH // 5, "they die often"
        assert len(told["crashes"]) > len(ALL_POINTS) // 3, "and at many points"
