"""Ctrl-C at moments that are over in some milliseconds, each of them made to happen for certain."""

import signal
import subprocess
import sys

import pytest

PRESS = "import atexit, os, signal, sys; press = lambda: os.kill(os.getpid(), signal.SIGINT)\n"
START = "sys.argv = ['symphony', '--version']; from symphony.__main__ import main; main()\n"
ON_IMPORT = """
class Press:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            press()

sys.meta_path.insert(0, Press())
"""


def interrupted(code: str) -> "subprocess.CompletedProcess[str]":
    """How a fresh interpreter ends."""
    return subprocess.run([sys.executable, "-c", PRESS + code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", ["symphony.cli", "click", "symphony.cli.main"])
def test_while_it_loads_it_ends_without_a_word(module: str) -> None:
    done = interrupted(ON_IMPORT.format(module=module) + START)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_while_the_interpreter_ends_it_ends_without_a_word() -> None:
    done = interrupted("atexit.register(press)\n" + START)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
    assert done.stdout.startswith("symphony 0.1.0")


def test_within_a_command_it_says_so_and_exits_with_130() -> None:
    done = interrupted(
        ON_IMPORT.format(module="symphony.cli.commands.check") + START.replace("--version", "check")
    )
    assert (done.returncode, done.stderr.strip()) == (130, "stopped")


def test_between_two_commands_there_is_no_stack_either() -> None:
    code = "import symphony.cli.main\ndef main(): press()\nsymphony.cli.main.main = main\n" + START
    done = interrupted(code)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_signal_that_is_ignored_stays_so() -> None:
    code = "signal.signal(signal.SIGINT, signal.SIG_IGN); atexit.register(press)\n"
    code += ON_IMPORT.format(module="click") + START
    done = interrupted(code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("symphony 0.1.0")
