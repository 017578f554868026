"""The program that starts the commands of a daemon, each below a subreaper that adopts its orphans.

Linux gives a process whose parent has ended to its nearest ancestor that is a child subreaper, whatever its
session, group, name, environment and descriptors. `PR_SET_CHILD_SUBREAPER` is the only such mechanism that
needs no privileges. A single subreaper for the whole daemon could not tell which run an orphan belongs to, so
each command has its own. They are forks of this one small program, and share its memory:

    daemon (a subreaper too) -> supervisor -> a subreaper for each command -> the command -> its descendants

A request is a message with the last signal and six descriptors (`Descriptors`). The command sends its pid
over `started` and reads from there what to execute, so only its own process ever has the environment. It
executes nothing until it has read everything, so an abandoned request starts nothing.

A subreaper ends the remaining processes when its command has ended, and all processes when the supervisor
dies. The supervisor dies with the daemon, even after SIGKILL and even if it is stopped. If a subreaper is
killed, the kernel kills its command, and the remaining processes become children of the daemon, which ends
every child that it did not start (`LocalHost.end_orphans`). The supervisor continues a stopped subreaper, and
so does the end of the supervisor. At `KILL_ALL` a subreaper kills all its descendants. These include
processes that `/proc` hides from the daemon: with `hidepid`, agents that cannot be inspected.

It runs with `python -I -S` on the standard library alone. See docs/adr/0010-one-supervisor.md.
"""

import ctypes
import errno
import os
import signal
import socket
import sys
import time
import warnings  # noqa: F401 - else `os.execvpe` imports it in each command
from contextlib import suppress

MAX_DESCRIPTORS = 6
KILL_ALL = signal.SIGUSR1
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_GRACE_S = 0.5
_STUCK_S = 2.0
_POLL_S = 0.05
_SUPERVISOR_DIED = signal.SIGCONT  # it reaches even a stopped subreaper
_CANNOT_START = 127
_OPTIONS = ("-I", "-S")
_PIECE_BYTES = 65_536
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)


def become_subreaper() -> None:
    """Make this process adopt the orphans of everything it starts. Raises `OSError`."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def deny_inspection() -> None:
    """Close environment, memory, descriptors and core dumps to other processes of this user.

    A started process is open again as soon as it executes another program. Raises `OSError`.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def command_line(instance: str) -> list[str]:
    """Return the command that runs this program for a daemon, with the socket for requests as its stdin."""
    return [sys.executable, *_OPTIONS, __file__, str(os.getpid()), instance]


def served_by(command: tuple[str, ...]) -> tuple[int, str] | None:
    """Return pid and instance of the daemon of a supervisor or subreaper with this command line, or None."""
    match command:
        case [_, "-I", "-S", program, daemon, instance] if (
            program.endswith("/supervisor_program.py") and daemon.isdecimal()
        ):
            return int(daemon), instance
    return None


def request(argv: list[bytes], env: list[bytes]) -> bytes:
    """Return what a command reads from `started`: the counts of words and variables, then both lists."""
    return b"".join(field + b"\0" for field in (b"%d %d" % (len(argv), len(env)), *argv, *env))


def _prctl(option: int, value: int) -> None:
    """`prctl(2)`, which Python does not offer. Raises `OSError`."""
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Descriptors:
    """The descriptors of a request: a directory, the command's three streams, and two ways to answer.

    On `started`, a socket, the command writes a line with its pid and that of its subreaper; later, if it
    could not be executed, the errno. If no process could be created, the line is `0` and the errno. The
    socket is closed when the command is executed. On `ended`, a pipe, the subreaper writes the exit code,
    negative for a signal, when the command and all its descendants have ended. ` left` follows the code if
    some of them could not be ended.
    """

    def __init__(self, started: int, ended: int, cwd: int, stdin: int, stdout: int, stderr: int) -> None:
        self.started = started
        self.ended = ended
        self.cwd = cwd
        self.streams = (stdin, stdout, stderr)

    def close(self, *, but: int | None = None) -> None:
        """Close all of them, or all but one."""
        for each in {self.started, self.ended, self.cwd, *self.streams} - {but}:
            os.close(each)


def _main(daemon: int) -> None:
    """Serve requests until no more can come, and stay while a command runs."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != daemon:  # the daemon may have died before the prctl above
        os._exit(_CANNOT_START)
    os.chdir("/")
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # descriptors that the daemon itself was given
    # Signals to a whole group or session are for commands: subreapers end after their descendants.
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGCHLD})
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and commands would inherit that
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, lambda *_: _see_to_subreapers())
    requests = socket.socket(fileno=0)
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, 16, MAX_DESCRIPTORS)
        if not message:
            break
        for each in descriptors:
            os.set_inheritable(each, False)  # noqa: FBT003 - the library's own
        if len(descriptors) == MAX_DESCRIPTORS:
            _serve(int(message), Descriptors(*descriptors))
        else:  # this process has no free descriptors: the caller sees the end of `started`
            for each in descriptors:
                os.close(each)
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _serve(last_signal: int, given: Descriptors) -> None:
    """Fork a subreaper, which starts the command."""
    supervisor = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # a subreaper waits for it instead
    try:
        forked = os.fork()
    except OSError as error:
        _tell_failure(given, error)
        forked = -1
    if forked == 0:
        try:
            _supervise(supervisor, last_signal, given)
        finally:
            os._exit(_CANNOT_START)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    given.close()


def _supervise(supervisor: int, last_signal: int, given: Descriptors) -> None:
    """Start the command, and wait until it and its descendants have ended."""
    become_subreaper()
    _prctl(_PR_SET_PDEATHSIG, _SUPERVISOR_DIED)
    subreaper = os.getpid()
    try:
        command = os.fork()
    except OSError as error:
        _tell_failure(given, error)
        return
    if command == 0:
        _become(subreaper, given)
    os.close(0)
    given.close(but=given.ended)  # the daemon must see the end of the pipes when the command closes them
    status: int | None = None
    while status is None and os.getppid() == supervisor:  # it may have died before the prctl above
        if signal.sigwait({signal.SIGCHLD, _SUPERVISOR_DIED, KILL_ALL}) == KILL_ALL:
            last_signal = signal.SIGKILL
            break
        status = _reap().get(command)
    ended = _end_descendants(signal.SIGTERM if status is not None else last_signal)
    status = status if status is not None else ended.get(command, signal.SIGKILL)
    with suppress(OSError):  # the reader may be gone
        left = b" left" if _has_children() else b""
        os.write(given.ended, b"%d%s" % (os.waitstatus_to_exitcode(status), left))


def _become(subreaper: int, given: Descriptors) -> None:
    """Become the command, in a session of its own, killed by the kernel when the subreaper dies."""
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != subreaper:
            os._exit(_CANNOT_START)
        os.setsid()
        os.write(given.started, b"%d %d\n" % (os.getpid(), subreaper))
        text = b""
        while piece := os.read(given.started, _PIECE_BYTES):
            deny_inspection()  # before it gets an environment, the daemon must know its pid
            text += piece
        counts, *fields = text.split(b"\0")
        words, variables = map(int, counts.split())
        if len(fields) != words + variables + 1:  # the request was abandoned, or the daemon died
            os._exit(_CANNOT_START)
        os.fchdir(given.cwd)
        for number, stream in enumerate(given.streams):
            os.dup2(stream, number)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        environment = dict(each.split(b"=", 1) for each in fields[words:-1])
        os.execvpe(fields[0], fields[:words], environment)  # noqa: S606 - no shell
    except (OSError, MemoryError) as error:
        with suppress(OSError):
            os.write(given.started, b"%d" % (getattr(error, "errno", None) or errno.ENOMEM))
    finally:
        os._exit(_CANNOT_START)


def _tell_failure(given: Descriptors, error: OSError) -> None:
    """Report that the command was not started, and why."""
    with suppress(OSError):
        os.write(given.started, b"0 %d\n" % (error.errno or 0))


def _see_to_subreapers() -> None:
    """Reap subreapers that have ended, and continue those that a command has stopped."""
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG | os.WUNTRACED))[0] != 0:
            if os.WIFSTOPPED(found[1]):
                os.kill(found[0], signal.SIGCONT)


def _reap() -> dict[int, int]:
    """Return the wait status of each child that has ended, by pid."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended[found[0]] = found[1]
    return ended


def _end_descendants(first: int) -> dict[int, int]:
    """End children until there are none; when a child ends, its children become children of this process.

    Each child gets the signal `first`, and SIGKILL after a grace period. A child that survives SIGKILL,
    because it runs as another user or is held by the kernel, is left to the daemon. Returns the wait status
    by pid.
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
    """Return whether there is any child, with a single system call."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children() -> list[int]:
    """Return the children. If the kernel does not list them, scan `/proc`, which `hidepid` may restrict."""
    with suppress(OSError), open("/proc/thread-self/children", "rb") as stream:  # noqa: PTH123 - as below
        return list(map(int, stream.read().split()))
    own, found = b"%d" % os.getpid(), []
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is not loaded here
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stream:  # noqa: PTH123 - as above
                state, parent = stream.read().rpartition(b") ")[2].split(maxsplit=2)[:2]
                if parent == own and state != b"Z":
                    found.append(int(name))
    return found


if __name__ == "__main__":
    _main(int(sys.argv[1]))
