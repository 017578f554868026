"""The program: `symphony`, or `python -m symphony`. Imports nothing before Ctrl-C can end it quietly.

While it loads and while the interpreter ends there is nothing to tidy up, and a stack trace helps no
one: there the signal ends the process as it would any other. In between it is an exception, which the
commands answer, each in its own way.
"""

import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


_INTERRUPTED = 130


def main() -> None:
    """Run the command line; exits with 130, or by the signal itself, when it is interrupted."""
    _open_closed_streams()
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        _load()()  # ignored, as in a job in the background: it stays so
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    command = _load()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        command()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    finally:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # on its way out a daemon ignores it
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _open_closed_streams() -> None:
    """Give a program that was started without stdin, stdout or stderr `/dev/null` in their place.

    Otherwise the next file that is opened gets their number, and what is printed goes into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this one
            os.set_inheritable(number, True)  # noqa: FBT003 - the name of the function says it
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115 - as long as the program


def _load() -> "Callable[[], object]":
    from symphony.cli.main import main as command  # noqa: PLC0415 - not before Ctrl-C is quiet

    return command


if __name__ == "__main__":
    main()
