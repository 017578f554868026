"""Any file gives a skill or one error, and one clean line. `make fuzz` runs this for `FUZZ_S` seconds.

What a run finds is kept in `found/`, beside files that broke other loaders, and replayed here for ever.
"""

import hashlib
import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from unit.skills.fuzzing import FOUND, check, files

FUZZ_S = float(os.environ.get("FUZZ_S", "0"))
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
KEPT = sorted(FOUND.glob("*.md"))


@pytest.mark.parametrize("path", KEPT, ids=[path.name for path in KEPT])
def test_what_was_found_before_stays_mended(tmp_path: Path, path: Path) -> None:
    check(tmp_path, path.read_bytes())


@settings(suppress_health_check=QUIET, deadline=None, max_examples=150)
@given(data=files())
def test_for_any_file_the_rules_hold(tmp_path: Path, data: bytes) -> None:
    check(tmp_path, data)


def _keep(data: bytes) -> None:
    name = hashlib.sha256(data).hexdigest()[:16]
    (FOUND / f"{name}.md").write_bytes(data)


if FUZZ_S > 0:

    @pytest.mark.timeout(FUZZ_S + 120)
    def test_for_as_long_as_one_likes(tmp_path: Path) -> None:
        """Hypothesis shrinks what fails; the smallest file is what is kept."""
        until = time.monotonic() + FUZZ_S
        failed: list[bytes] = []

        @settings(
            suppress_health_check=QUIET, deadline=None, max_examples=2_000, database=None, derandomize=False
        )
        @given(data=files())
        def one_round(data: bytes) -> None:
            if time.monotonic() < until or failed:
                try:
                    check(tmp_path, data)
                except Exception:
                    failed[:] = [data]
                    raise

        while time.monotonic() < until:
            try:
                one_round()
            except Exception:
                _keep(failed[0])
                raise
