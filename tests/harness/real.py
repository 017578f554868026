"""The real programs that some tests drive: found, or a skip that says why, or a failure where required."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from symphony.testing.codex_home import find_codex

__all__ = ["require_codex"]


def require_codex(environment: Mapping[str, str] = os.environ) -> Path:
    """The real Codex; an absent one skips the test, or fails it where `SYMPHONY_REQUIRE_REAL` is set."""
    found = find_codex(environment)
    if found is None:
        reason = "no Codex: put `codex` on PATH or name it in SYMPHONY_TEST_CODEX"
        if environment.get("SYMPHONY_REQUIRE_REAL"):
            pytest.fail(f"SYMPHONY_REQUIRE_REAL is set, but there is {reason}")
        pytest.skip(reason)
    return found
