"""Every daemon of this user, or for root of this host, with what each says of itself.

    running   it answers
    silent    its process is there, and does not answer: it is starting, ending or frozen, or its socket is
              gone, or another process has it
    dead      its process is gone, and it did not end in order

A daemon that ended in order is in no list, although its state directory stays. Several are asked at once, so
that one that hangs holds up nobody but itself.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from symphony.cli.client import Client, check_listener
from symphony.cli.control import Traces, traces
from symphony.cli.daemon_places import Place, find_places, user_name
from symphony.cli.documents import CountsInShort, DaemonRow, Daemons, SkippedPlace
from symphony.domain.failures import SymphonyError
from symphony.observability.moments import utc_text

__all__ = ["daemons"]

_ANSWER_S: Final = 5.0
_AT_ONCE: Final = 16
_MAX_BYTES: Final = 16 * 1024 * 1024  # of each: several are held at once, and not all are ours


def daemons(environment: Mapping[str, str]) -> Daemons:
    """All of them, by name."""
    places = find_places(environment)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        told = list(pool.map(_told, places.found.values()))
    skipped = dict(places.skipped)
    rows = []
    for place, row in zip(places.found.values(), told, strict=True):
        if isinstance(row, str):
            skipped[place.path] = row
        elif row is not None:
            rows.append(row)
    return Daemons(
        daemons=tuple(sorted(rows, key=lambda row: (row.name, row.state_dir))),
        skipped=tuple(
            SkippedPlace(path=str(path), reason=reason) for path, reason in sorted(skipped.items())
        ),
    )


def _told(place: Place) -> DaemonRow | str | None:
    """The row of a daemon; `None` where there is none, and a text where it cannot be known."""
    try:
        found = traces(place.path, place.owner)
    except OSError as error:
        return error.strerror or str(error)
    return None if found is None else _row(place, found)


def _row(place: Place, found: Traces) -> DaemonRow:
    row = DaemonRow(
        name=place.path.name if found.workflow is None else Path(found.workflow).parent.name,
        status="silent" if found.alive else "dead",
        state_dir=str(place.path),
        user=user_name(place.owner),
        workflow=found.workflow,
        pid=found.pid,
    )
    if not found.alive:
        message = f"The process (pid {found.pid}) is gone, and it did not end in order"
        return replace(row, message=message, hint=_start(found))
    control = found.control
    if control is None:
        message = f"A daemon (pid {found.pid}) is there, and offers no control socket"
        hint = "it may be starting or ending; if it stays so, restart it"
        return replace(row, message=message, hint=hint)
    row = replace(
        row,
        started_at=None if control.started is None else utc_text(control.started),
        socket=str(control.socket),
        host=control.host,
        port=control.port,
    )
    try:
        check_listener(control, place.owner)
        with Client(control, answer_s=_ANSWER_S, max_bytes=_MAX_BYTES) as client:
            state = client.state(waiting=0)
    except SymphonyError as error:
        return replace(row, message=error.failure.message, hint=error.failure.hint)
    counts = state.counts
    return replace(
        row,
        status="running",
        health=state.health.status,
        counts=CountsInShort(
            running=counts.running, retrying=counts.retrying, blocked=counts.blocked, waiting=counts.waiting
        ),
        version=state.version or None,
        commit=state.commit or None,
    )


def _start(found: Traces) -> str:
    which = "" if found.workflow is None else f" {found.workflow}"
    return f"symphony run{which} ends what it left running, and goes on"
