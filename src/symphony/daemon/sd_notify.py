"""Reports to the service manager, with the protocol of sd_notify(3): datagrams of `NAME=value` lines.

The deciding loop feeds the watchdog after each turn. `keep_alive` only makes the loop turn now and then,
through the mailbox, so a hanging loop does not feed the watchdog. Nothing here raises, waits or ends the
daemon. Unsent lines are sent again after the next turn; a broken socket is logged once.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

import anyio
import structlog

from symphony.daemon.clock import monotonic_ms
from symphony.scheduler import Drain, State

_MANAGER_VARIABLES: Final = frozenset(
    {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}
)
_INTERVAL_MS: Final = 10_000
_SHORTEST_INTERVAL_MS: Final = 20
_FEEDS: Final = 4  # how often the watchdog is fed within its time
_START_USEC: Final = 180_000_000
_STOP_USEC: Final = 60_000_000
_log = structlog.get_logger(__name__)


class Notifier:
    """Reports the state of the daemon to the service manager.

    Attributes:
        watchdog_ms: the manager ends a daemon after this silence; `None` without a watchdog.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        watchdog_ms: int | None = None,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        """Report to the socket at `address`; without one nothing is sent."""
        self._address = address
        self._now_ms = now_ms
        self.watchdog_ms = watchdog_ms if address else None
        self._interval_ms = _INTERVAL_MS
        if self.watchdog_ms is not None:
            self._interval_ms = max(min(_INTERVAL_MS, self.watchdog_ms // _FEEDS), _SHORTEST_INTERVAL_MS)
        self._unsent: dict[str, str] = {}
        self._status = ""
        self._due_ms = 0
        self._ready = self._stopping = self._warned = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], *, pid: int | None = None) -> "Notifier":
        """Read the manager's variables. The watchdog is for the process that `WATCHDOG_PID` names, if set."""
        usec = environment.get("WATCHDOG_USEC", "")
        watchdog_ms = int(usec) // 1000 if usec.isdecimal() and usec.isascii() else 0
        if environment.get("WATCHDOG_PID", "") not in {"", str(os.getpid() if pid is None else pid)}:
            watchdog_ms = 0
        return cls(environment.get("NOTIFY_SOCKET"), watchdog_ms=watchdog_ms or None)

    def starting(self, what: str) -> None:
        """A part of the start begins, which may take three minutes."""
        self._send({"EXTEND_TIMEOUT_USEC": str(_START_USEC)}, status=f"starting: {what}")

    def looped(self, state: State) -> None:
        """The loop took a turn. The first turn makes the daemon ready."""
        if not self._address:
            return
        status = status_line(state)
        if not self._ready:
            self._ready = True
            self._queue({"READY": "1"})
        elif self._now_ms() < self._due_ms and status == self._status:
            return
        self._due_ms = self._now_ms() + self._interval_ms
        extension = {"EXTEND_TIMEOUT_USEC": str(_STOP_USEC)} if self._stopping else {}
        self._send({"WATCHDOG": "1", **extension}, status=status)

    def reloading(self) -> None:
        """A reload starts. Ignored while the daemon starts or stops, which the manager waits for."""
        if self._ready and not self._stopping:
            self._queue({"RELOADING": "1", "MONOTONIC_USEC": str(time.monotonic_ns() // 1000)})
            self._send({})

    def reloaded(self) -> None:
        """The reload ended, successfully or not."""
        if self._ready and not self._stopping:
            self._queue({"READY": "1"})
            self._send({})

    def stopping(self) -> None:
        """The shutdown starts. Each turn of the loop extends its time."""
        if not self._stopping:
            self._stopping = True
            self._queue({"STOPPING": "1"})
            self._send({"EXTEND_TIMEOUT_USEC": str(_STOP_USEC)})

    async def keep_alive(self, post: Callable[[None], None]) -> None:
        """Make the loop turn regularly, until cancelled; returns at once without a manager."""
        while self._address:
            await anyio.sleep(self._interval_ms / 1000)
            post(None)

    def _queue(self, lines: Mapping[str, str]) -> None:
        """Queue lines that must arrive; later lines replace outdated ones."""
        if {"READY", "STOPPING"} & lines.keys():
            for name in ("RELOADING", "MONOTONIC_USEC"):
                self._unsent.pop(name, None)
        self._unsent.pop("READY", None)
        self._unsent.update(lines)

    def _send(self, lines: Mapping[str, str], *, status: str | None = None) -> None:
        """Send the queued lines and these in one datagram."""
        address = self._address
        if not address:
            return
        sent = {**self._unsent, **lines, **({} if status is None else {"STATUS": status})}
        data = "".join(f"{name}={value}\n" for name, value in sent.items()).encode()
        try:
            _send_datagram(address, data)
        except BlockingIOError:  # the manager is busy
            return
        except (OSError, ValueError) as error:
            if not self._warned:
                self._warned = True
                reason = getattr(error, "strerror", None) or str(error)
                _log.warning("service_manager_not_told", address=address, reason=reason)
            return
        self._unsent.clear()
        if status is not None:
            self._status = status


def _send_datagram(address: str, data: bytes) -> None:
    if address[0] not in "/@":
        raise OSError(0, "the address is neither a path nor an abstract one")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(0)
        connection.sendto(data, "\0" + address[1:] if address[0] == "@" else address)


def without_service_manager(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables without those of the service manager, which no child process gets."""
    return {name: value for name, value in environment.items() if name not in _MANAGER_VARIABLES}


def status_line(state: State) -> str:
    """One line for `systemctl status`: the numbers of claims, and what keeps issues from starting."""
    parts = [f"{len(state.running)} running, {len(state.retrying)} retrying, {len(state.blocked)} blocked"]
    if state.drain is not Drain.NO:
        parts.append("draining")
    if state.paused:
        parts.append("paused")
    if state.config_error is not None:
        parts.append("the workflow is not valid, and nothing new starts")
    return "; ".join(parts)
