"""The program below which agents and hooks run, and which adopts the processes that they orphan.

Linux gives a process whose parent has ended to its nearest ancestor that is a child subreaper, whatever its
session, group, name, environment and descriptors. `PR_SET_CHILD_SUBREAPER` is the only such hold that needs
no privileges. A single subreaper for the whole daemon could not tell which run an orphan belongs to, so each
command has its own:

    daemon (a subreaper too) -> this file as a program -> the agent -> its descendants

The program ends the remaining processes when its command has ended, and all of them when the daemon dies,
even by SIGKILL. If the program itself is killed, the kernel kills the command, and the remaining processes
become children of the daemon, which ends every child that it did not start (`LocalHost.end_orphans`).

It runs with `python -I -S` on the standard library alone, without `typing` and `collections.abc`, because
each command of the daemon starts it: in some 15 ms and with 10 MB.
"""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_GRACE_S = 0.5
_STUCK_S = 2.0
_POLL_S = 0.05
_DAEMON_DIED = signal.SIGUSR1
_CANNOT_START = 127
_OPTIONS = ("-I", "-S")


def become_subreaper() -> None:
    """Make this process adopt the orphans of everything it starts. Raises `OSError`."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def deny_inspection() -> None:
    """Close environment, memory, descriptors and core dumps to other processes of this user.

    A started process is open again as soon as it executes another program. Raises `OSError`.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def command_line(argv: list[str], *, last_signal: signal.Signals, status_fd: int) -> list[str]:
    """Return the command that runs `argv` below a subreaper, and ends with its exit code or signal.

    Args:
        argv: the command.
        last_signal: sent to the command and its descendants when this process dies; SIGKILL follows.
        status_fd: an inherited descriptor. What becomes the command writes its pid, a newline, and, if it
            could not be started, the errno: all by one process, so that nothing comes before the pid.
    """
    options = (str(os.getpid()), str(int(last_signal)), str(status_fd))
    return [sys.executable, *_OPTIONS, __file__, *options, *argv]


def daemon_of(command: tuple[str, ...]) -> int | None:
    """Return the pid of the daemon that started a subreaper with this command line; None for others."""
    match command:
        case [_, "-I", "-S", program, daemon, *_] if program.endswith("/subreaper.py") and daemon.isdecimal():
            return int(daemon)
    return None


def _prctl(option: int, value: int) -> None:
    """`prctl(2)`, which Python does not offer. Raises `OSError`."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), *(ctypes.c_ulong(0),) * 3) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _main(daemon: int, last_signal: int, status_fd: int, argv: list[str]) -> None:
    """Start the command and see it and its descendants to their end."""
    become_subreaper()
    _prctl(_PR_SET_PDEATHSIG, _DAEMON_DIED)
    # Signals to the whole group or session are for the command: this process ends after its descendants.
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    os.set_inheritable(status_fd, False)  # noqa: FBT003 - the library's own
    command = os.fork()
    if command == 0:
        _become(argv, status_fd)
    os.chdir("/")
    os.closerange(0, status_fd + 1)  # the daemon must see the end of the pipes when the command closes them
    status: int | None = None
    while status is None and os.getppid() == daemon:  # the daemon may have died before the prctl above
        signal.sigwait({signal.SIGCHLD, _DAEMON_DIED})
        status = _reap().get(command)
    ended = _end_descendants(signal.SIGTERM if status is not None else last_signal)
    _exit_like(status if status is not None else ended.get(command, signal.SIGKILL))


def _become(argv: list[str], status_fd: int) -> None:
    """Become the command, in a session of its own, killed by the kernel when the subreaper dies."""
    try:
        os.write(status_fd, b"%d\n" % os.getpid())
        subreaper = os.getppid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != subreaper:
            os._exit(_CANNOT_START)
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvp(argv[0], argv)  # noqa: S606 - no shell
    except OSError as error:
        os.write(status_fd, b"%d" % (error.errno or 0))
    os._exit(_CANNOT_START)


def _reap() -> dict[int, int]:
    """Return the wait status of each child that has ended, by pid."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended[found[0]] = found[1]
    return ended


def _end_descendants(first: int) -> dict[int, int]:
    """End children until there are none; their descendants become children of this process as they end.

    Each child gets `first`, and SIGKILL after a grace. A child that survives SIGKILL, because it runs as
    another user or is held by the kernel, is left to the daemon. Returns the wait status by pid.
    """
    ended, signalled = _reap(), set[int]()
    began = progress = time.monotonic()
    while _has_children() and (children := _children()):
        killing = first == signal.SIGKILL or time.monotonic() > began + _GRACE_S
        for pid in children:
            if killing or pid not in signalled:
                signalled.add(pid)
                with suppress(OSError):  # the pid cannot be reused: only this process reaps it
                    os.kill(pid, signal.SIGKILL if killing else first)
        signal.sigtimedwait({signal.SIGCHLD}, _POLL_S)
        if reaped := _reap():
            ended |= reaped
            progress = time.monotonic()
        elif time.monotonic() > progress + _GRACE_S + _STUCK_S:
            break
    return ended


def _has_children() -> bool:
    """Return whether there is any child, at the price of one system call."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children() -> list[int]:
    """Return the children that have not ended, by a scan: not every kernel lists them by parent."""
    own, found = b"%d" % os.getpid(), []
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is not loaded here
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stream:  # noqa: PTH123 - as above
                state, parent = stream.read().rpartition(b") ")[2].split(maxsplit=2)[:2]
                if parent == own and state != b"Z":
                    found.append(int(name))
    return found


def _exit_like(status: int) -> None:
    """Exit with the exit code or signal of a wait status."""
    if os.WIFSIGNALED(status):
        deny_inspection()  # a core file would be the subreaper's, not the command's
        number = os.WTERMSIG(status)
        if number not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
