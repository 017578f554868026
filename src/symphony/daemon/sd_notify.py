"""What the service manager is told, by the protocol of sd_notify(3): datagrams of `NAME=value` lines.

The watchdog is fed by the loop that decides, when it has taken a turn. `nudges` only sees to it that there is
a turn now and then: the nudge goes through the mailbox like every fact, so a loop that hangs is not fed.

Nothing here raises, waits or ends the daemon. What could not be said is said again with the next turn, and of
a socket that cannot be used the log tells once.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Final

import anyio
import structlog

from symphony.daemon.clock import monotonic_ms
from symphony.scheduler import Drain, State

_FOR_US_ALONE: Final = frozenset(
    {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}
)

_BEAT_MS: Final = 10_000
_SHORTEST_MS: Final = 20
_FEEDS: Final = 4  # the watchdog is fed so many times in its interval
_START_USEC: Final = 180_000_000
_STOP_USEC: Final = 60_000_000
_log = structlog.get_logger(__name__)


class Notifier:
    """Speaks to the service manager at `address`; with null to nobody.

    `watchdog_ms` is the time after which the manager ends a daemon that it did not hear from; null without a
    watchdog.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        watchdog_ms: int | None = None,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._address = address
        self._now_ms = now_ms
        self.watchdog_ms = watchdog_ms if address else None
        self._beat_ms = max(min(_BEAT_MS, (self.watchdog_ms or _BEAT_MS * _FEEDS) // _FEEDS), _SHORTEST_MS)
        self._owed: dict[str, str] = {}
        self._status = ""
        self._due_ms = 0
        self._ready = self._stopping = self._complained = False

    @classmethod
    def of(cls, environment: Mapping[str, str], *, pid: int | None = None) -> "Notifier":
        """As the environment says. `WATCHDOG_PID` names for whom the watchdog is, where it is there."""
        meant = environment.get("WATCHDOG_PID", "") in {"", str(os.getpid() if pid is None else pid)}
        usec = environment.get("WATCHDOG_USEC", "")
        watchdog_ms = int(usec) // 1000 if meant and usec.isdecimal() and usec.isascii() else 0
        return cls(environment.get("NOTIFY_SOCKET"), watchdog_ms=watchdog_ms or None)

    def starting(self, doing: str) -> None:
        """A step of the start begins, and may take its three minutes."""
        self._say({"EXTEND_TIMEOUT_USEC": str(_START_USEC)}, status=f"starting: {doing}")

    def turned(self, state: State) -> None:
        """The loop has taken a turn and stands at `state`. The first turn is what makes the daemon ready."""
        if not self._address:
            return
        status = status_line(state)
        if not self._ready:
            self._ready = True
            self._owe({"READY": "1"})
        elif self._now_ms() < self._due_ms and status == self._status:
            return
        self._due_ms = self._now_ms() + self._beat_ms
        extension = {"EXTEND_TIMEOUT_USEC": str(_STOP_USEC)} if self._stopping else {}
        self._say({"WATCHDOG": "1", **extension}, status=status)

    def reloading(self) -> None:
        """A reload was asked for. While starting or stopping this is not said: the manager waits for that."""
        if self._ready and not self._stopping:
            self._owe({"RELOADING": "1", "MONOTONIC_USEC": str(time.monotonic_ns() // 1000)})
            self._say({})

    def reloaded(self) -> None:
        """The reload is over, whatever came of it."""
        if self._ready and not self._stopping:
            self._owe({"READY": "1"})
            self._say({})

    def stopping(self) -> None:
        """The daemon is on its way out. A drain is given more time with each turn that the loop takes."""
        if not self._stopping:
            self._stopping = True
            self._owe({"STOPPING": "1"})
            self._say({"EXTEND_TIMEOUT_USEC": str(_STOP_USEC)})

    async def nudges(self, post: Callable[[None], None]) -> None:
        """Have the loop take a turn now and then, until cancelled; without a manager there is no need."""
        while self._address:
            await anyio.sleep(self._beat_ms / 1000)
            post(None)

    def _owe(self, lines: Mapping[str, str]) -> None:
        """Lines that have to arrive; a later word on the same takes the place of an earlier one."""
        if {"READY", "STOPPING"} & lines.keys():
            for name in ("RELOADING", "MONOTONIC_USEC"):
                self._owed.pop(name, None)
        self._owed.pop("READY", None)
        self._owed.update(lines)

    def _say(self, lines: Mapping[str, str], *, status: str | None = None) -> None:
        if not self._address:
            return
        told = {**self._owed, **lines, **({} if status is None else {"STATUS": status})}
        if self._sent(self._address, "".join(f"{name}={value}\n" for name, value in told.items())):
            self._owed.clear()
            self._status = self._status if status is None else status

    def _sent(self, address: str, text: str) -> bool:
        """Whether the datagram is on its way. A manager that is busy is no reason to complain."""
        try:
            _send(address, text.encode())
        except BlockingIOError:
            return False
        except (OSError, ValueError) as error:
            if not self._complained:
                self._complained = True
                reason = getattr(error, "strerror", None) or str(error)
                _log.warning("service_manager_not_told", address=address, reason=reason)
            return False
        return True


def without_service_manager(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables without those by which a service manager speaks to the daemon; no child gets these."""
    return {name: value for name, value in environment.items() if name not in _FOR_US_ALONE}


def _send(address: str, data: bytes) -> None:
    if address[0] not in "/@":
        raise OSError(0, "the address is neither a path nor an abstract one")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)) as door:
        door.settimeout(0)
        door.sendto(data, "\0" + address[1:] if address.startswith("@") else address)


def status_line(state: State) -> str:
    """One line for `systemctl status`: what is odd, and how many run, wait for a retry, and are blocked."""
    odd = (
        "draining" if state.drain is not Drain.NO else "",
        "paused" if state.paused else "",
        "the workflow is not valid, and nothing new starts" if state.config_error is not None else "",
    )
    counts = f"{len(state.running)} running, {len(state.retrying)} retrying, {len(state.blocked)} blocked"
    return "; ".join((counts, *filter(None, odd)))
