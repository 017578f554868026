"""Every agent and hook runs below a small process, to which all that they orphan comes back (Linux).

Linux gives a process whose parent ended to the nearest ancestor that is a child subreaper, whatever session,
group, name, environment and descriptors it has. `PR_SET_CHILD_SUBREAPER` is the only such hold that needs no
rights. One for the whole daemon could not tell whose an orphan is, so each command has its own:

    daemon (a subreaper too) -> this file as a program -> the agent -> whatever it starts

The program ends what is left when its command has ended, and all at once when the daemon is gone, be it by
SIGKILL. Should somebody kill the program, the kernel kills the command, and the rest becomes a child of the
daemon, where nothing belongs that the daemon did not start itself (`ProcessTable.orphans`).

It runs with `python -I -S` on nothing but the standard library, so it starts in some 20 ms with 10 MB.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
_GRACE_S: Final = 0.5
_STUCK_S: Final = 2.0
_LOOK_S: Final = 0.05
_DAEMON_ENDED: Final = signal.SIGUSR1
_CANNOT_START: Final = 127
_OPTIONS: Final = ("-I", "-S")


def available() -> bool:
    """Whether this system has subreapers, and we a Python to run one with."""
    return sys.platform == "linux" and bool(sys.executable)


def become_subreaper() -> None:
    """Let the orphans of all that we start become our children. Raises `OSError` where the kernel refuses."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def deny_inspection() -> None:
    """Close our environment, memory, descriptors and core dumps to other processes of our user.

    What we start can be read again as soon as it is another program. Raises `OSError`.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def above(argv: Sequence[str], *, last_word: signal.Signals, told: int) -> list[str]:
    """The command that runs `argv` below a subreaper; it answers by the same exit code or signal.

    Args:
        argv: the command.
        last_word: what it and all below it are sent first when we are gone; SIGKILL follows.
        told: an inherited descriptor, to which the number of the command's process is written, a line, and
            behind it the number of the error if the command could not be started.
    """
    return [sys.executable, *_OPTIONS, __file__, str(os.getpid()), str(int(last_word)), str(told), *argv]


def daemon_of(command: Sequence[str]) -> int | None:
    """The number of the daemon that started a subreaper, by its command line; None where it is none."""
    match command:
        case [_, "-I", "-S", program, daemon, *_] if program.endswith("/subreaper.py") and daemon.isdecimal():
            return int(daemon)
    return None


def _prctl(option: int, value: int) -> None:
    """`prctl(2)`, for which Python has no function. Raises `OSError`."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), *(ctypes.c_ulong(0),) * 3) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _main(daemon: int, last_word: int, told: int, argv: list[str]) -> None:
    """Start the command and see it and all below it to their end."""
    become_subreaper()
    _prctl(_PR_SET_PDEATHSIG, _DAEMON_ENDED)
    # Whoever signals a whole group or session does not mean us: we end when there is nobody left below.
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    os.set_inheritable(told, False)  # noqa: FBT003 - the library's own
    command = os.fork()
    if command == 0:
        _become(argv, told)
    os.write(told, b"%d\n" % command)
    os.chdir("/")
    os.closerange(0, told + 1)  # the command's pipes are its own: their other ends are to see it close them
    status: int | None = None
    while status is None and os.getppid() == daemon:  # which may have ended before we asked to be told
        signal.sigwait({signal.SIGCHLD, _DAEMON_ENDED})
        status = _reap().get(command)
    ended = _end_all_below(signal.SIGTERM if status is not None else last_word)
    _leave(status if status is not None else ended.get(command, signal.SIGKILL))


def _become(argv: list[str], told: int) -> None:
    """Become the command, in a session of its own; its end is certain once ours has come."""
    try:
        supervisor = os.getppid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(_CANNOT_START)
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvp(argv[0], argv)  # noqa: S606 - no shell
    except OSError as error:
        os.write(told, b"%d" % (error.errno or 0))
    os._exit(_CANNOT_START)


def _reap() -> dict[int, int]:
    """The status of each child that has ended, by its number."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended[found[0]] = found[1]
    return ended


def _end_all_below(first: int) -> dict[int, int]:
    """End children until there are none; those below them become ours as they end.

    Each is sent `first`, and SIGKILL after a grace. What even that does not end (another user's process, or
    one that the kernel holds) is left to the daemon.
    """
    ended, told = _reap(), set[int]()
    began = progress = time.monotonic()
    while children := _children():
        killing = first == signal.SIGKILL or time.monotonic() > began + _GRACE_S
        for pid in children:
            if killing or pid not in told:
                told.add(pid)
                with suppress(OSError):  # only we reap it: the number is nobody else's
                    os.kill(pid, signal.SIGKILL if killing else first)
        signal.sigtimedwait({signal.SIGCHLD}, _LOOK_S)
        if reaped := _reap():
            ended |= reaped
            progress = time.monotonic()
        elif time.monotonic() > progress + _GRACE_S + _STUCK_S:
            break
    return ended


def _children() -> list[int]:
    """Our children that have not ended; not every kernel lists them by parent."""
    own, found = b"%d" % os.getpid(), []
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are all that is needed
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stream:  # noqa: PTH123 - no pathlib here
                state, parent = stream.read().rpartition(b") ")[2].split(maxsplit=2)[:2]
                if parent == own and state != b"Z":
                    found.append(int(name))
    return found


def _leave(status: int) -> None:
    """Exit as the command did."""
    if os.WIFSIGNALED(status):
        deny_inspection()  # a core file would be ours, not the command's
        number = os.WTERMSIG(status)
        if number not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
