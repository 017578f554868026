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
from typing import Any, Final

from symphony.cli.client import Client, check_listener
from symphony.cli.control import Traces, traces
from symphony.cli.daemon_places import Place, find_places, user_name
from symphony.domain.failures import SymphonyError
from symphony.observability.moments import utc_text

__all__ = ["COUNTED", "daemons"]

Document = dict[str, Any]

COUNTED: Final = ("running", "retrying", "blocked", "waiting")
_ANSWER_S: Final = 5.0
_AT_ONCE: Final = 16
_MAX_BYTES: Final = 16 * 1024 * 1024  # of each: several are held at once, and not all are ours


def daemons(environment: Mapping[str, str]) -> Document:
    """`{"daemons": […], "skipped": [{"path", "reason"}]}`: `docs/schemas/status-all.schema.json`."""
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
    return {
        "daemons": sorted(rows, key=lambda row: (row["name"], row["state_dir"])),
        "skipped": [{"path": str(path), "reason": reason} for path, reason in sorted(skipped.items())],
    }


def _told(place: Place) -> Document | str | None:
    """The row of a daemon; null where there is none, and a text where it cannot be known."""
    try:
        found = traces(place.path, place.owner)
    except OSError as error:
        return error.strerror or str(error)
    return None if found is None else _row(place, found)


def _row(place: Place, found: Traces) -> Document:
    row: Document = {
        "name": place.path.name if found.workflow is None else Path(found.workflow).parent.name,
        "status": "silent" if found.alive else "dead",
        "state_dir": str(place.path),
        "user": user_name(place.owner),
        "workflow": found.workflow,
        "pid": found.pid,
        "started_at": None,
        "health": None,
        "counts": None,
        "version": None,
        "commit": None,
        "socket": None,
        "host": None,
        "port": None,
        "message": None,
        "hint": None,
    }
    if not found.alive:
        message = f"The process (pid {found.pid}) is gone, and it did not end in order"
        return row | {"message": message, "hint": _start(found)}
    control = found.control
    if control is None:
        return row | {
            "message": f"A daemon (pid {found.pid}) is there, and offers no control socket",
            "hint": "it may be starting or ending; if it stays so, restart it",
        }
    started = None if control.started is None else utc_text(control.started)
    reach = {"socket": str(control.socket), "host": control.host, "port": control.port}
    row |= {"started_at": started, **reach}
    try:
        check_listener(control, place.owner)
        with Client(control, answer_s=_ANSWER_S, max_bytes=_MAX_BYTES) as client:
            return row | {"status": "running"} | _said(client.state())
    except SymphonyError as error:
        return row | {"message": error.failure.message, "hint": error.failure.hint}


def _start(found: Traces) -> str:
    which = "" if found.workflow is None else f" {found.workflow}"
    return f"symphony run{which} ends what it left running, and goes on"


def _said(state: Mapping[str, Any]) -> Document:
    """What of an answer goes into the row; an older daemon tells no version."""
    health, counts = state.get("health"), state.get("counts")
    return {
        "health": _text(health.get("status")) if isinstance(health, dict) else None,
        "counts": {kind: _number(counts.get(kind)) for kind in COUNTED} if isinstance(counts, dict) else None,
        "version": _text(state.get("version")),
        "commit": _text(state.get("commit")),
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
