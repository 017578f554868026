"""Asks pytest what the tests claim, and runs those that claim something."""

import contextlib
import io
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from conformance.recorder import MARKER, OPTION, Claims, Result, read_results


def collect(root: Path) -> Claims:
    """What the tests below `root` claim, by pytest's own collection in this process."""
    claims = Claims()
    said = io.StringIO()
    with contextlib.chdir(root), contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider"], plugins=[claims])
    if code != pytest.ExitCode.OK and not claims.errors:
        claims.errors.append((said.getvalue().strip().splitlines() or ["no tests were collected"])[-1])
    return claims


def run(root: Path, *, workers: int) -> frozenset[Result]:
    """Run the tests that claim something, and return how they ended; what pytest says goes to stderr.

    `workers` is the number of processes to share the work, 0 for none but this one.
    """
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "results.json"
        shared = ["-n", str(workers), "--dist", "worksteal"] if workers else []
        arguments = ["-m", MARKER, *shared, "-q", OPTION, str(file)]
        command = [sys.executable, "-m", "pytest", *arguments]
        subprocess.run(command, cwd=root, check=False, stdout=sys.stderr)
        return read_results(file)[1] if file.exists() else frozenset()
