"""A program that a test starts has default signals, however the tests were started."""

import subprocess
import sys
from pathlib import Path

CHILD = """
import signal
ignored = {number.name for number in signal.Signals if signal.getsignal(number) is signal.SIG_IGN}
print(sorted(ignored & {"SIGINT", "SIGQUIT", "SIGHUP"}))
"""


def test_a_child_ignores_no_signal_that_ends_a_program() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_neither_does_one_of_tests_in_the_background(tmp_path: Path) -> None:
    test = f"{__file__}::{test_a_child_ignores_no_signal_that_ends_a_program.__name__}"
    switches = ("-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'b'}")
    background = ("sh", "-c", "trap '' INT QUIT HUP; exec \"$@\"", "sh")
    done = subprocess.run(
        [*background, sys.executable, "-m", "pytest", *switches, test],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
