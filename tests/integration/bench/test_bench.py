"""The benchmark at a tiny size: that it runs and counts right. Never how fast anything is.

A change runs the parts that start few daemons, `make nightly` all of them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import report
from bench.__main__ import SMOKE, parts
from bench.kit import PYTHON_AGENT
from bench.trackers import SAVING, polling
from harness.nightly import NIGHTLY

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[2]
AIMS: dict[str, tuple[str, ...]] = {
    "transcripts": (),
    "sessions": ("session_cpu", "session_peak", "session_repeats", "requests_tick"),
    "workspaces": ("workspace", "object_stores"),
    "journal": (),
}
AIMS_OF_A_NIGHT: dict[str, tuple[str, ...]] = {
    "pump": ("pump_cpu", "pump_memory"),
    "losses": ("events_lost", "tokens_off"),
    "latency": ("slot_gap", "saved_to_start"),
    "launch": ("launch",),
    "restart": (),
    "footprint": ("memory_idle", "memory_1", "memory_3", "threads"),
    "asking": ("help", "status", "full_status", "scrape", "state", "blocked"),
    "soak": ("soak_memory", "soak_descriptors", "soak_threads", "soak_journal"),
    "trackers": tuple(f"{service}_bytes" for service in SAVING),
    "hosts": ("hosts_most", "hosts_lost", "hosts_repeated"),
}
"""The figures with aims of each part."""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--smoke", "--json", *(() if NIGHTLY else AIMS)],
        env={**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


@pytest.mark.slow
def test_nothing_is_lost_and_no_limit_is_broken(found: dict[str, Any]) -> None:
    values = {figure["key"]: figure["ours"] for figure in found["figures"]}
    assert values["session_repeats"] == 0
    assert values["session_peak"] == 2
    assert values["object_stores"] == 1
    assert values["requests_tick"] <= 2
    assert {values.get(key, 0) for key in ("hosts_lost", "hosts_repeated")} == {0}
    assert values.get("hosts_most", 1) == 1
    assert (values.get("events_lost", 0), values.get("tokens_off", 0)) == (0, 0)


@pytest.mark.slow
def test_every_aim_has_its_row(found: dict[str, Any]) -> None:
    judged = {figure["key"] for figure in found["figures"] if figure["aims"]}
    asked = {**AIMS, **AIMS_OF_A_NIGHT} if NIGHTLY else AIMS
    assert judged == {key for keys in asked.values() for key in keys}
    assert found["missed"] == sum(not figure["met"] for figure in found["figures"])


@pytest.mark.slow
def test_every_part_is_run(tmp_path: Path) -> None:
    assert {*AIMS, *AIMS_OF_A_NIGHT} == set(parts(tmp_path, PYTHON_AGENT, SMOKE))


def test_the_page_of_the_project_has_a_place_for_the_table() -> None:
    text = (TESTS.parent / "docs" / "PERFORMANCE.md").read_text("utf-8")
    assert text.count(report.BEGIN) == text.count(report.END) == 1


def test_a_poll_that_finds_nothing_changed_receives_a_tenth_at_most() -> None:
    """Counts of requests and bytes, which do not depend on the machine."""
    for found in polling(issues=60, ticks=24):
        if found.service in SAVING and not found.running:  # ten sessions are many beside sixty issues
            assert found.bytes["symphony"] * 10 <= found.bytes["floor"], found
        assert found.requests["symphony"] <= found.requests["floor"], found
