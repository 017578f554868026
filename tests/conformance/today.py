"""Whether the page says what the tests claim today, by the cheapest way there is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.recorder import Claims, whole
from conformance.report import PAGE, REFRESH, render
from conformance.verdict import faults_of_claims

__all__ = ["faults_of_page", "faults_today"]


def faults_of_page(claims: Claims, root: Path) -> list[str]:
    """What is wrong with the page, if anything."""
    page = root / PAGE
    if page.is_file() and page.read_text(encoding="utf-8") == render(claims.claimed):
        return []
    return [f"{PAGE} is out of date; write it with `{REFRESH}`"]


def faults_today(config: pytest.Config, root: Path) -> list[str]:
    """What is wrong with claims and page; a session that did not collect all tests has them collected."""
    claims = config.pluginmanager.get_plugin("conformance-claims")
    if isinstance(claims, Claims) and whole(config):
        return [*faults_of_claims(claims, root), *faults_of_page(claims, root)]
    done = subprocess.run(
        [sys.executable, "-m", "conformance", "--check"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'tests'}:{root / 'src'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.splitlines() if done.returncode else []
