"""The program: `symphony`, or `python -m symphony`. It imports nothing before Ctrl-C can end it quietly.

While the program loads and while the interpreter ends there is nothing to tidy up and a stack trace would not
help, so the signal simply ends the process. In between, the signal is an exception that each command handles
in its own way.
"""

import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


_INTERRUPTED = 130


def main() -> None:
    """Run the command line; an interrupt makes it exit with 130 or by the signal itself."""
    _open_closed_streams()
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        _load()()  # a background job ignores the signal; keep that
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
    """Start again with `/dev/null` in place of a stdin, stdout or stderr that is closed.

    Otherwise the next opened file gets its number, and printed text goes into that file. A restart is needed
    because Python creates its streams when it starts.
    """
    closed = [number for number in range(3) if not _is_open(number)]
    for number in closed:
        os.open(os.devnull, os.O_RDWR)  # open(2) takes the lowest free number, which is this one
        os.set_inheritable(number, True)  # noqa: FBT003 - the name of the function says it
    if closed:
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - the same program with the same arguments


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _load() -> "Callable[[], object]":
    from symphony.cli.main import main as command  # noqa: PLC0415 - not before Ctrl-C is quiet

    return command


if __name__ == "__main__":
    main()
